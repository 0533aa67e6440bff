//! `threadline gc`: removing blobs that nothing names.

use threadline_store::SessionStore;

use crate::{
    args::Gc,
    failure::{Exit, Outcome},
    text,
    ui::Ui,
};

/// Removes what no session names, or says what that would be.
pub(crate) async fn gc(ui: Ui, store: &SessionStore, args: Gc) -> Outcome<Exit> {
    let report = store.gc(args.dry_run).await?;
    if args.json {
        ui.json(&report)?;
    } else {
        for blob in &report.removed {
            ui.line(blob.as_str())?;
        }
    }
    let blobs = text::count(report.removed.len() as u64, "blob", "blobs");
    let bytes = text::bytes(report.removed_bytes);
    let done = match (report.removed.is_empty(), report.dry_run) {
        (true, _) => "Nothing to remove".to_owned(),
        (false, true) => format!("Would remove {blobs}, {bytes}"),
        (false, false) => format!("Removed {blobs}, {bytes}"),
    };
    ui.note(&format!(
        "{done}. Looked through {}: {} named, {} too young to be removed.",
        text::count(report.sessions, "session", "sessions"),
        report.kept,
        report.young
    ));
    if report.dry_run && !report.removed.is_empty() {
        ui.note("Nothing was changed. Remove them with: threadline gc");
    }
    Ok(Exit::Completed)
}
