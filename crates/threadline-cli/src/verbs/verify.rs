//! `threadline verify`: every checksum, every number, every link of the chain, every request.

use serde_json::{Value, json};
use threadline_agent::read_code;
use threadline_session::{Payload, Request, SessionId, Transcript};
use threadline_store::{Finding, ReadError, SessionStore, VerifyReport};

use crate::{
    args::Verify,
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::{Progress, Tone, Ui},
};

/// A step whose request cannot be rebuilt as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unequal {
    seq: u64,
    step: u64,
}

impl std::fmt::Display for Unequal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seq, step } = self;
        write!(
            f,
            "seq {seq}: the log does not rebuild the request that step {step} sent"
        )
    }
}

struct Checked {
    report: VerifyReport,
    unequal: Vec<Unequal>,
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
        unequal(store, id).await?
    } else {
        Vec::new()
    };
    Ok(Checked { report, unequal })
}

/// Rebuilds the request of every step from the log and compares its fingerprint with the one that
/// was recorded when it was sent.
async fn unequal(store: &SessionStore, id: &SessionId) -> Result<Vec<Unequal>, ReadError> {
    let mut transcript = Transcript::new();
    let mut found = Vec::new();
    store
        .each_event(id, |line| {
            if let Ok(Payload::StepStart(start)) = line.event.payload() {
                let rebuilt = Request::build(&transcript)
                    .ok()
                    .and_then(|(request, _)| request.fingerprint().ok());
                if rebuilt.is_none_or(|print| print.hash != start.request.fingerprint) {
                    found.push(Unequal {
                        seq: line.event.seq,
                        step: start.step,
                    });
                }
            }
            transcript.apply(&line.event).is_ok()
        })
        .await?;
    Ok(found)
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
