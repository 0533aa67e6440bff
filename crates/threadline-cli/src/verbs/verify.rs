//! `threadline verify`: every checksum, every number, every link of the chain; with `--requests`
//! also every request, which takes as long as going through all of history once more, step by step.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use threadline_agent::read_code;
use threadline_session::SessionId;
use threadline_store::{
    BackendError, CheckProgress, Finding, LOG_LOST, ReadError, RepairReport, SessionStore, Unequal,
    VerifyReport,
};

use crate::{
    args::Verify,
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::{Part, Progress, Tone, Ui},
};

struct Checked {
    report: VerifyReport,
    /// `None` when they were not rebuilt: nobody asked, or the log itself has findings.
    requests: Option<Requests>,
    /// What `repair` would do.
    mending: Option<RepairReport>,
}

/// What rebuilding the requests found.
#[derive(Default)]
struct Requests {
    unequal: Vec<Unequal>,
    /// Requests that cannot be rebuilt because a repair found events before them lost.
    bereft: u64,
}

impl Checked {
    fn unequal(&self) -> &[Unequal] {
        self.requests
            .as_ref()
            .map_or(&[], |requests| &requests.unequal)
    }

    fn bereft(&self) -> Option<u64> {
        self.requests.as_ref().map(|requests| requests.bereft)
    }

    fn ok(&self) -> bool {
        self.report.ok && self.unequal().is_empty()
    }
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
        let part = progress.part();
        let checked = progress
            .during(check(store, id, args.requests, &part))
            .await;
        let ok = checked.as_ref().is_ok_and(Checked::ok);
        bad += u64::from(!ok);
        progress.clear();
        match (args.json, checked) {
            (true, checked) => reports.push(report_json(id, checked)?),
            (false, Ok(checked)) => print(ui, &checked, &args)?,
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
        ui.json(&json!({
            "ok": bad == 0,
            "checked": ids.len(),
            "requests": args.requests,
            "sessions": reports,
        }))?;
    }
    conclude(ui, &args, &ids, bad)
}

/// Says how it went, and what was not looked at.
fn conclude(ui: Ui, args: &Verify, ids: &[SessionId], bad: u64) -> Outcome<Exit> {
    let checked = text::count(ids.len() as u64, "session", "sessions");
    if bad == 0 {
        ui.note(&format!("Checked {checked}: nothing is wrong."));
    } else {
        ui.note(&format!("Checked {checked}: {bad} with findings."));
    }
    if !args.requests {
        // The id, because a title may need quotes.
        let named = ids.first().filter(|_| args.id.is_some());
        let which = named.map_or("--all", SessionId::as_str);
        ui.note(&format!(
            "Requests were not rebuilt; `threadline verify {which} --requests` does that too."
        ));
    }
    if bad == 0 {
        Ok(Exit::Completed)
    } else {
        Err(Failure::quiet(Exit::Damaged))
    }
}

async fn check(
    store: &SessionStore,
    id: &SessionId,
    requests: bool,
    part: &Part,
) -> Result<Checked, ReadError> {
    let report = store.verify_watched(id, &mut watched(part)).await?;
    let report = report.ok_or_else(stopped)?;
    let mending = if report.ok {
        None
    } else {
        // What cannot be mended has its findings all the same.
        let mending = store.repair(id, true).await.ok();
        mending.filter(|mending| mending.repaired)
    };
    let requests = if requests && report.ok {
        Some(rebuild(store, id, part).await?)
    } else {
        None
    };
    Ok(Checked {
        report,
        requests,
        mending,
    })
}

fn watched(part: &Part) -> impl FnMut(CheckProgress) -> ControlFlow<()> + Send + use<'_> {
    |progress| {
        part.set(progress.bytes, progress.of);
        ControlFlow::Continue(())
    }
}

/// Nobody stops a check here: a signal ends the program.
fn stopped() -> ReadError {
    let source = std::io::Error::other("it was stopped");
    ReadError::from(BackendError::new("checking the log", source))
}

async fn rebuild(store: &SessionStore, id: &SessionId, part: &Part) -> Result<Requests, ReadError> {
    let watch = &mut watched(part);
    let unequal = store.unequal_requests_watched(id, watch).await?;
    let unequal = unequal.ok_or_else(stopped)?;
    if unequal.is_empty() {
        return Ok(Requests::default());
    }
    let lost = first_loss(store, id).await?;
    let (bereft, unequal): (Vec<_>, Vec<_>) = unequal
        .into_iter()
        .partition(|unequal| lost.is_some_and(|lost| lost < unequal.seq));
    Ok(Requests {
        unequal,
        bereft: bereft.len() as u64,
    })
}

/// Returns the first event that stands for a lost one.
async fn first_loss(store: &SessionStore, id: &SessionId) -> Result<Option<u64>, ReadError> {
    let mut lost = None;
    store
        .each_event(id, |line| {
            if line.event.kind == LOG_LOST {
                lost = Some(line.event.seq);
            }
            lost.is_none()
        })
        .await?;
    Ok(lost)
}

fn report_json(id: &SessionId, checked: Result<Checked, ReadError>) -> Outcome<Value> {
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
    value["ok"] = checked.ok().into();
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
    for unequal in checked.unequal() {
        findings.push(json!({
            "kind": "request",
            "seq": unequal.seq,
            "step": unequal.step,
            "message": unequal.to_string(),
        }));
    }
    value["findings"] = findings.into();
    // The same fields whether requests were rebuilt or not.
    value["requests"] = checked.requests.is_some().into();
    value["bereft"] = checked.bereft().into();
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

fn print(ui: Ui, checked: &Checked, args: &Verify) -> Outcome<()> {
    let report = &checked.report;
    let counted = format!(
        "{}, {} chained",
        text::count(report.events, "event", "events"),
        text::count(report.chained_turns, "turn", "turns")
    );
    let word = if checked.ok() {
        ui.out(Tone::Good, "ok,")
    } else {
        let findings = report.findings.len() + checked.unequal().len();
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
    for unequal in checked.unequal() {
        ui.line(&format!("  {unequal}"))?;
    }
    match checked.bereft() {
        None if args.requests => {
            ui.line("  note: requests were not rebuilt, because the log has findings")?;
        }
        None | Some(0) => {}
        Some(bereft) => ui.line(&format!(
            "  note: {} cannot be rebuilt, because a repair found events before lost",
            text::count(bereft, "request", "requests")
        ))?,
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
    if args.head {
        ui.line(&format!(
            "  head {}",
            report.head.as_deref().unwrap_or("(no turn has ended)")
        ))?;
    }
    Ok(())
}
