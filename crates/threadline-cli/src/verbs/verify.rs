//! `threadline verify`: every checksum, every number, every link of the chain, every request.

use serde_json::{Value, json};
use threadline_agent::read_code;
use threadline_session::SessionId;
use threadline_store::{
    Finding, LOG_LOST, ReadError, RepairReport, SessionStore, Unequal, VerifyReport,
};

use crate::{
    args::Verify,
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::{Progress, Tone, Ui},
};

struct Checked {
    report: VerifyReport,
    unequal: Vec<Unequal>,
    /// Requests that cannot be rebuilt because a repair found events before them lost.
    bereft: u64,
    /// What `repair` would do.
    mending: Option<RepairReport>,
}

/// Checks one session or all.
pub(crate) async fn verify(ui: Ui, store: &SessionStore, args: Verify) -> Outcome<Exit> {
    let ids = match &args.id {
        Some(id) => vec![sessions::find(store, id).await?],
        None if !args.all => {
            return Err(Failure::usage("no session is named").hint(
                "name one: `threadline verify ID`, or check all: `threadline verify --all`",
            ));
        }
        None => {
            let mut ids = store.ids().await?;
            ids.sort();
            ids
        }
    };
    let mut reports = Vec::new();
    let mut bad = 0u64;
    let mut progress = Progress::new(ui, "Checking", ids.len());
    for id in &ids {
        progress.step();
        let checked = check(store, id).await;
        let ok = matches!(&checked, Ok(checked) if checked.report.ok && checked.unequal.is_empty());
        bad += u64::from(!ok);
        progress.clear();
        match (args.json, checked) {
            (true, checked) => reports.push(report_json(id, ok, checked)?),
            (false, Ok(checked)) => print(ui, &checked, ok, args.head)?,
            (false, Err(error)) => {
                let failure = Failure::from(error);
                ui.line(&format!(
                    "{id}: {} {}",
                    ui.out(Tone::Bad, "unreadable,"),
                    failure.message
                ))?;
            }
        }
    }
    if args.json {
        ui.json(&json!({"ok": bad == 0, "checked": ids.len(), "sessions": reports}))?;
    }
    let checked = text::count(ids.len() as u64, "session", "sessions");
    if bad == 0 {
        ui.note(&format!("Checked {checked}: nothing is wrong."));
        return Ok(Exit::Completed);
    }
    ui.note(&format!("Checked {checked}: {bad} with findings."));
    Err(Failure::quiet(Exit::Damaged))
}

async fn check(store: &SessionStore, id: &SessionId) -> Result<Checked, ReadError> {
    let report = store.verify(id).await?;
    let unequal = if report.ok {
        store.unequal_requests(id).await?
    } else {
        Vec::new()
    };
    let mending = if report.ok {
        None
    } else {
        // What cannot be mended has its findings all the same.
        let mending = store.repair(id, true).await.ok();
        mending.filter(|mending| mending.repaired)
    };
    let lost = first_loss(store, id, &unequal).await?;
    let (bereft, unequal): (Vec<_>, Vec<_>) = unequal
        .into_iter()
        .partition(|unequal| lost.is_some_and(|lost| lost < unequal.seq));
    Ok(Checked {
        report,
        unequal,
        bereft: bereft.len() as u64,
        mending,
    })
}

/// Returns the first event that stands for a lost one, if that is of interest.
async fn first_loss(
    store: &SessionStore,
    id: &SessionId,
    unequal: &[Unequal],
) -> Result<Option<u64>, ReadError> {
    let mut lost = None;
    if !unequal.is_empty() {
        store
            .each_event(id, |line| {
                if line.event.kind == LOG_LOST {
                    lost = Some(line.event.seq);
                }
                lost.is_none()
            })
            .await?;
    }
    Ok(lost)
}

fn report_json(id: &SessionId, ok: bool, checked: Result<Checked, ReadError>) -> Outcome<Value> {
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => {
            let message = text::chain(&error);
            return Ok(json!({
                "id": id,
                "ok": false,
                "error": {"code": read_code(&error), "message": message},
            }));
        }
    };
    let internal = |error: serde_json::Error| Failure::new("internal", error.to_string());
    let mut value = serde_json::to_value(&checked.report).map_err(internal)?;
    value["ok"] = ok.into();
    let mut findings = Vec::new();
    for finding in &checked.report.findings {
        let mut one = serde_json::to_value(finding).map_err(internal)?;
        one["message"] = finding.to_string().into();
        // Every finding says where; a header stands before the first event.
        if one.get("seq").is_none_or(Value::is_null) {
            one["seq"] = place(finding).into();
        }
        findings.push(one);
    }
    for unequal in &checked.unequal {
        findings.push(json!({
            "kind": "request",
            "seq": unequal.seq,
            "step": unequal.step,
            "message": unequal.to_string(),
        }));
    }
    value["findings"] = findings.into();
    value["bereft"] = checked.bereft.into();
    value["repair"] = serde_json::to_value(&checked.mending).map_err(internal)?;
    Ok(value)
}

fn place(finding: &Finding) -> u64 {
    match finding {
        Finding::Damage { damage } => damage.seq,
        Finding::Chain { seq, .. }
        | Finding::Unchained { seq }
        | Finding::Unreadable { seq, .. } => *seq,
        Finding::Unchecked { seq } => seq.unwrap_or(0),
        Finding::Truncated { last_seq, .. } => last_seq.map_or(0, |last| last + 1),
    }
}

fn print(ui: Ui, checked: &Checked, ok: bool, head: bool) -> Outcome<()> {
    let report = &checked.report;
    let counted = format!(
        "{}, {} chained",
        text::count(report.events, "event", "events"),
        text::count(report.chained_turns, "turn", "turns")
    );
    let word = if ok {
        ui.out(Tone::Good, "ok,")
    } else {
        let findings = report.findings.len() + checked.unequal.len();
        ui.out(
            Tone::Bad,
            &format!("{},", text::count(findings as u64, "finding", "findings")),
        )
    };
    ui.line(&format!("{}: {word} {counted}", report.id))?;
    for finding in &report.findings {
        let text = match finding {
            Finding::Unchecked { seq: None } => format!("seq 0: {finding}"),
            finding => finding.to_string(),
        };
        ui.line(&format!("  {}", ui.foreign(&text)))?;
    }
    for unequal in &checked.unequal {
        ui.line(&format!("  {unequal}"))?;
    }
    if checked.bereft > 0 {
        ui.line(&format!(
            "  note: {} cannot be rebuilt, because a repair found events before lost",
            text::count(checked.bereft, "request", "requests")
        ))?;
    }
    if let Some(mending) = &checked.mending {
        let lost = mending.lost.iter();
        let lost: u64 = lost.map(|lost| lost.to_seq - lost.from_seq + 1).sum();
        ui.line(&format!(
            "  run threadline repair {} to go on: it keeps {} of {}, and the old log beside",
            report.id,
            mending.kept,
            text::count(mending.kept + lost, "event", "events"),
        ))?;
    }
    if report.unverified > 0 {
        ui.line(&format!(
            "  note: {} no checksum; the log was not written by threadline",
            text::count(report.unverified, "line has", "lines have")
        ))?;
    }
    if let Some(torn) = &report.torn {
        ui.line(&format!(
            "  note: {} at byte {} were never fully written: {}",
            text::count(torn.bytes, "byte", "bytes"),
            torn.offset,
            torn.reason
        ))?;
    }
    if head {
        ui.line(&format!(
            "  head {}",
            report.head.as_deref().unwrap_or("(no turn has ended)")
        ))?;
    }
    Ok(())
}
