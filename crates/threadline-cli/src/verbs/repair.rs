//! `threadline repair`: every valid record is kept, and what is lost is said by number and place.

use threadline_jsonl::layout::{QUARANTINE, session_dir};
use threadline_store::{Lost, RepairReport, SessionStore};

use crate::{
    address::Address,
    args::Repair,
    failure::{Exit, Outcome},
    program::program,
    sessions,
    settings::Settings,
    text,
    ui::{Tone, Ui},
};

/// Repairs a session, or says what that would do.
pub(crate) async fn repair(
    ui: Ui,
    settings: &Settings,
    store: &SessionStore,
    args: Repair,
) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let report = store.repair(&id, args.dry_run).await?;
    if args.json {
        ui.json(&report)?;
    } else {
        print(ui, &report)?;
    }
    if !report.repaired {
        ui.note(&format!(
            "Nothing is wrong with session {id}; it is as it was."
        ));
        return Ok(Exit::Completed);
    }
    let aside = match &settings.address {
        Address::Jsonl(root) => session_dir(root, &id)
            .join(QUARANTINE)
            .display()
            .to_string(),
        address => format!("the quarantine of {address}"),
    };
    if report.dry_run {
        ui.note(&format!(
            "Nothing was changed. Repair it with: {} repair {id}\nThe log as it is would be kept \
             in {aside}",
            program()
        ));
    } else {
        ui.note(&format!(
            "The log as it was is kept in {aside}\nGo on with: {} run --session {id} \"TASK\"",
            program()
        ));
    }
    Ok(Exit::Completed)
}

fn print(ui: Ui, report: &RepairReport) -> Outcome<()> {
    let lost: u64 = report.lost.iter().map(events).sum();
    let word = match (report.repaired, report.dry_run) {
        (false, _) => ui.out(Tone::Good, "ok,"),
        (true, true) => ui.out(Tone::Warning, "would be repaired,"),
        (true, false) => ui.out(Tone::Good, "repaired,"),
    };
    ui.line(&format!(
        "{}: {word} {} kept, {lost} lost",
        report.id,
        text::count(report.kept, "event", "events")
    ))?;
    if !report.repaired {
        return Ok(());
    }
    if report.header {
        ui.line("  lost  the header, which is made anew from what the events tell")?;
    }
    let end = report.kept + lost;
    let mut next = 0;
    for gap in &report.lost {
        kept(ui, next, gap.from_seq)?;
        let place = if gap.damage.file.is_empty() {
            gap.damage.reason.clone()
        } else {
            format!(
                "{} at byte {}, {}: {}",
                gap.damage.file,
                gap.damage.offset,
                text::count(gap.damage.bytes, "byte", "bytes"),
                gap.damage.reason
            )
        };
        ui.line(&format!(
            "  lost  {}  {}",
            range(gap.from_seq, gap.to_seq),
            ui.foreign(&place)
        ))?;
        next = gap.to_seq.saturating_add(1);
    }
    kept(ui, next, end)?;
    if report.misplaced > 0 {
        ui.line(&format!(
            "  left out  {} that do not belong where they stand",
            text::count(report.misplaced, "valid record", "valid records")
        ))?;
    }
    Ok(())
}

fn events(lost: &Lost) -> u64 {
    lost.to_seq.saturating_sub(lost.from_seq).saturating_add(1)
}

fn kept(ui: Ui, from: u64, end: u64) -> Outcome<()> {
    match end.checked_sub(1) {
        Some(last) if last >= from => ui.line(&format!("  kept  {}", range(from, last))),
        _ => Ok(()),
    }
}

fn range(from: u64, to: u64) -> String {
    if from == to {
        format!("event {from}")
    } else {
        format!("events {from} to {to}")
    }
}
