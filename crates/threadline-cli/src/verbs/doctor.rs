//! `threadline doctor`: what is stored, what is wrong with it, and what opening it would do.
//!
//! The numbers I1 to I12 are the invariants of `docs/recovery.md`. Those that a look at one
//! session can tell are told here; the others hold over time and are proved by the tests.

mod files;

use serde::Serialize;
use threadline_session::SessionId;
use threadline_store::{
    Damage, Durability, Finding, Holder, Inspected, SessionStatus, SessionStore, Torn, VerifyReport,
};

use self::files::{FileReport, Known, State};
use super::ls::status as status_word;
use crate::{
    address::Address,
    failure::{Exit, Failure, Outcome},
    mounts, sessions,
    settings::Settings,
    text,
    ui::{Progress, Tone, Ui},
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    store: StoreReport,
    sessions: Vec<SessionReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StoreReport {
    address: String,
    /// Path of a store that is on this machine.
    root: Option<String>,
    exists: bool,
    durability: Durability,
    file_system: Option<String>,
    free_bytes: Option<u64>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionReport {
    id: SessionId,
    about: String,
    status: SessionStatus,
    events: u64,
    bytes: u64,
    writer: Option<Holder>,
    torn: Option<Torn>,
    damage: Vec<Damage>,
    unsupported: Option<String>,
    unreadable: Option<String>,
    /// What opening it for writing would do, in order.
    recovery: Vec<String>,
    checks: Vec<Check>,
    /// Of a session that is a folder, what lies in it.
    files: Vec<FileReport>,
}

impl SessionReport {
    fn healthy(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
            && self.files.iter().all(|file| file.state != State::Wrong)
    }
}

/// What one invariant looks like from here.
#[derive(Debug, Serialize)]
struct Check {
    invariant: &'static str,
    ok: bool,
    says: String,
}

/// Tells about the store and one session or all.
pub(crate) async fn doctor(
    ui: Ui,
    settings: &Settings,
    store: &SessionStore,
    id: Option<&str>,
    json: bool,
) -> Outcome<Exit> {
    let ids = match id {
        Some(id) => vec![sessions::find(store, id).await?],
        None => {
            let mut ids = store.ids().await?;
            ids.sort();
            ids
        }
    };
    let mut report = Report {
        store: look_at_store(&settings.address, store),
        sessions: Vec::new(),
    };
    let mut progress = Progress::new(ui, "Looking at", ids.len());
    for id in &ids {
        progress.step();
        // Deleted since it was listed.
        if store.has(id).await? {
            let session = look_at_session(&settings.address, store, id).await?;
            report.sessions.push(session);
        }
    }
    progress.done();
    let healthy = report.sessions.iter().all(SessionReport::healthy);
    if json {
        ui.json(&report)?;
    } else {
        print_store(ui, &report.store)?;
        for session in &report.sessions {
            print_session(ui, session, id.is_some())?;
        }
        if id.is_none() {
            ui.note(&format!(
                "Looked at {}.",
                text::count(report.sessions.len() as u64, "session", "sessions")
            ));
        }
    }
    if healthy {
        Ok(Exit::Completed)
    } else {
        Err(Failure::quiet(Exit::Damaged))
    }
}

fn look_at_store(address: &Address, store: &SessionStore) -> StoreReport {
    let mut warnings = Vec::new();
    let root = address.path();
    let mount = root.map(mounts::of).unwrap_or_default();
    if let Some(kind) = &mount.kind {
        match kind.as_str() {
            "tmpfs" | "ramfs" => {
                warnings.push(format!("{kind} is memory: all sessions are gone after a restart"));
            }
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "fuse.sshfs" => warnings.push(format!(
                "{kind} is on another machine, where locks and appends do not hold: sessions can be \
                 read there, not written"
            )),
            _ => {}
        }
    }
    if store.durability() == Durability::Os {
        warnings.push("nothing is synced: sessions survive the program, not the machine".into());
    }
    StoreReport {
        address: store.address(),
        root: root.map(|root| root.display().to_string()),
        exists: root.is_none_or(std::path::Path::exists),
        durability: store.durability(),
        file_system: mount.kind,
        free_bytes: mount.free_bytes,
        warnings,
    }
}

async fn look_at_session(
    address: &Address,
    store: &SessionStore,
    id: &SessionId,
) -> Outcome<SessionReport> {
    let row = store.summary(id).await?;
    let inspected = store.inspect(id).await;
    let verified = store.verify(id).await;
    let unreadable = inspected.as_ref().err().map(|error| text::chain(error));
    let inspected = inspected.ok();
    let verified = verified.ok();
    let mut report = SessionReport {
        id: id.clone(),
        about: sessions::about(&row),
        status: row.status,
        events: row.events,
        bytes: row.bytes,
        writer: store.stat(id).await?.writer,
        torn: inspected.as_ref().and_then(|seen| seen.torn.clone()),
        damage: inspected
            .as_ref()
            .map(|seen| seen.damage.clone())
            .unwrap_or_default(),
        unsupported: inspected.as_ref().and_then(|seen| seen.unsupported.clone()),
        unreadable,
        recovery: Vec::new(),
        checks: Vec::new(),
        files: Vec::new(),
    };
    if !report.damage.is_empty() {
        // The row may be from before the damage.
        report.status = SessionStatus::Damaged;
    }
    report.recovery = recovery(&report, inspected.as_ref());
    report.checks = checks(&report, verified.as_ref());
    if let Address::Jsonl(root) = address {
        report.files = files::look(
            root,
            &Known {
                id,
                last_seq: report.events.checked_sub(1),
                writer: report.writer.as_ref(),
                torn: report.torn.as_ref(),
                damage: &report.damage,
                unstored: inspected.as_ref().map_or(0, |seen| seen.unstored),
            },
        );
    }
    Ok(report)
}

fn recovery(report: &SessionReport, inspected: Option<&Inspected>) -> Vec<String> {
    let mut steps = Vec::new();
    if report.writer.is_some() || !report.damage.is_empty() || report.unsupported.is_some() {
        return steps;
    }
    if let Some(torn) = &report.torn {
        steps.push(format!(
            "move {} at byte {} of {} to quarantine/ and cut them off the log",
            text::count(torn.bytes, "torn byte", "torn bytes"),
            torn.offset,
            torn.file
        ));
    }
    let unstored = inspected.map_or(0, |seen| seen.unstored);
    if unstored > 0 {
        steps.push(format!(
            "append {} that close the interrupted turn",
            text::count(unstored as u64, "event", "events")
        ));
    }
    steps
}

fn checks(report: &SessionReport, verified: Option<&VerifyReport>) -> Vec<Check> {
    let findings = verified
        .map(|verified| verified.findings.as_slice())
        .unwrap_or_default();
    let told = |invariant, ok, says: String| Check {
        invariant,
        ok,
        says,
    };
    let truncated = findings
        .iter()
        .find(|finding| matches!(finding, Finding::Truncated { .. }));
    let acknowledged = match truncated {
        Some(finding) => told("I1", false, finding.to_string()),
        None => told(
            "I1",
            report.unreadable.is_none(),
            "every acknowledged event is there".into(),
        ),
    };
    let wrong = findings
        .iter()
        .find(|finding| !matches!(finding, Finding::Truncated { .. }));
    let order = match (&report.unreadable, wrong) {
        (Some(reason), _) => told("I2", false, reason.clone()),
        (None, Some(finding)) => told("I2", false, finding.to_string()),
        (None, None) => told(
            "I2",
            true,
            format!("events 0 to {} stand in order", last(report.events)),
        ),
    };
    let whole = match &report.torn {
        Some(torn) => told(
            "I3",
            true,
            format!(
                "the log ends in {} of an unfinished write ({}), which readers pass over",
                text::count(torn.bytes, "byte", "bytes"),
                torn.reason
            ),
        ),
        None => told("I3", true, "every batch is whole".into()),
    };
    let opening = match (
        &report.unreadable,
        report.damage.first(),
        &report.unsupported,
    ) {
        (Some(reason), _, _) => told("I4", false, format!("it cannot be opened: {reason}")),
        (_, Some(damage), _) => told("I4", false, format!("it opens for reading only: {damage}")),
        (_, _, Some(reason)) => told("I4", false, format!("it opens for reading only: {reason}")),
        _ => told("I4", true, "it opens".into()),
    };
    let steps = match report.recovery.as_slice() {
        [] => "opening it writes nothing before the next turn".to_owned(),
        steps => format!("opening it would {}", steps.join(", then ")),
    };
    let writer = match &report.writer {
        Some(holder) => format!("{holder} writes it since {}", text::moment(holder.since)),
        None => "nobody writes it".into(),
    };
    vec![
        acknowledged,
        order,
        whole,
        opening,
        told("I5", true, steps),
        told("I8", true, writer),
    ]
}

fn last(events: u64) -> String {
    events
        .checked_sub(1)
        .map_or_else(|| "(none)".into(), |last| last.to_string())
}

fn print_store(ui: Ui, store: &StoreReport) -> Outcome<()> {
    let mut place = store
        .file_system
        .clone()
        .unwrap_or_else(|| "unknown".into());
    if let Some(free) = store.free_bytes {
        place.push_str(&format!(", {} free", text::bytes(free)));
    }
    let level = match store.durability {
        Durability::Step => "step: synced before the model, before a tool, before \"done\"",
        Durability::Event => "event: synced at every append",
        Durability::Os => "os: never synced",
    };
    let root = match (&store.root, store.exists) {
        (Some(root), true) => root.clone(),
        (Some(root), false) => format!("{root} (not there yet; the first run makes it)"),
        (None, _) => "on a server".into(),
    };
    for (name, value) in [
        ("store", store.address.as_str()),
        ("root", &root),
        ("file system", &place),
        ("durability", level),
    ] {
        ui.line(&format!("{name:<12} {value}"))?;
    }
    for warning in &store.warnings {
        ui.line(&format!("{:<12} {}", "", ui.out(Tone::Warning, warning)))?;
    }
    Ok(())
}

fn print_session(ui: Ui, session: &SessionReport, full: bool) -> Outcome<()> {
    let (tone, word) = status_word(session.status);
    ui.line("")?;
    ui.line(&format!(
        "{}  {}  {}, {}  {}",
        ui.out(Tone::Strong, session.id.as_str()),
        ui.out(tone, word),
        text::count(session.events, "event", "events"),
        text::bytes(session.bytes),
        ui.foreign(&session.about)
    ))?;
    for check in &session.checks {
        // In a list, what is as it should be needs no line of its own.
        let remarkable = !check.ok
            || (check.invariant == "I3" && session.torn.is_some())
            || (check.invariant == "I5" && !session.recovery.is_empty())
            || (check.invariant == "I8" && session.writer.is_some());
        if full || remarkable {
            let word = if check.ok {
                ui.out(Tone::Good, "ok ")
            } else {
                ui.out(Tone::Bad, "bad")
            };
            ui.line(&format!(
                "  {:<4} {word}  {}",
                check.invariant,
                ui.foreign(&check.says)
            ))?;
        }
    }
    for file in &session.files {
        if full || file.state != State::Fine {
            let word = match file.state {
                State::Fine => ui.out(Tone::Good, "ok  "),
                State::Left => ui.out(Tone::Warning, "left"),
                State::Wrong => ui.out(Tone::Bad, "bad "),
            };
            ui.line(&format!(
                "  {:<14} {word}  {} [{}]",
                ui.foreign(&file.name),
                ui.foreign(&file.says),
                file.invariant
            ))?;
        }
    }
    if !session.damage.is_empty() {
        let id = &session.id;
        ui.line(&format!(
            "  see what mending would keep: threadline repair {id} --dry-run"
        ))?;
    }
    Ok(())
}
