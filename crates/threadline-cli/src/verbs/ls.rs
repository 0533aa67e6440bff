//! `threadline ls`.

use serde_json::json;
use threadline_store::{Archived, ListFilter, SessionStatus, SessionStore, SessionSummary};

use crate::{
    args::Ls,
    failure::{Exit, Outcome},
    sessions, text,
    ui::{Tone, Ui},
};

/// Lists sessions, newest activity first.
pub(crate) async fn ls(ui: Ui, store: &SessionStore, args: Ls) -> Outcome<Exit> {
    let archived = match (args.all, args.archived) {
        (true, _) => Archived::All,
        (_, true) => Archived::Only,
        _ => Archived::No,
    };
    let filter = ListFilter {
        query: args.query,
        archived,
        ..ListFilter::default()
    };
    let mut rows = sessions::all(store, &filter).await?;
    let total = rows.len();
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    if args.json {
        ui.json(&json!({
            "store": store.address(),
            "total": total,
            "sessions": rows,
        }))?;
        return Ok(Exit::Completed);
    }
    if rows.is_empty() {
        ui.note(&format!("No sessions in {}.", store.address()));
        return Ok(Exit::Completed);
    }
    let chars = text::unique_chars(&store.ids().await?);
    for line in table(ui, &rows, chars, store.clock().now_ms()) {
        ui.line(&line)?;
    }
    for row in rows.iter().filter(|row| row.error.is_some()) {
        if let Some(error) = &row.error {
            let id = text::short(&row.id, chars);
            ui.warning(&format!("{id}: {}", text::line(&error.message, 500)));
            ui.note(&format!("  look closer with `threadline doctor {id}`"));
        }
    }
    if rows.len() < total {
        ui.note(&format!(
            "{} more; list them with `--limit 0`.",
            text::count((total - rows.len()) as u64, "session", "sessions")
        ));
    }
    Ok(Exit::Completed)
}

/// Returns the word for how a session stands, and its tone.
pub(crate) fn status(status: SessionStatus) -> (Tone, &'static str) {
    match status {
        SessionStatus::Idle => (Tone::Faint, "idle"),
        SessionStatus::Running => (Tone::Good, "running"),
        SessionStatus::Waiting => (Tone::Warning, "waiting"),
        SessionStatus::Interrupted => (Tone::Warning, "interrupted"),
        SessionStatus::Damaged => (Tone::Bad, "damaged"),
        SessionStatus::Unsupported => (Tone::Bad, "unsupported"),
        SessionStatus::Missing => (Tone::Bad, "missing"),
    }
}

fn table(ui: Ui, rows: &[SessionSummary], chars: usize, now: u64) -> Vec<String> {
    let head = ["ID", "STATUS", "AGE", "TURNS", "ABOUT", "DIRECTORY"].map(String::from);
    let mut cells = vec![head];
    for row in rows {
        let mark = if row.archived { " (archived)" } else { "" };
        cells.push([
            text::short(&row.id, chars).to_owned(),
            status(row.status).1.to_owned(),
            text::age(row.updated_at, now),
            row.turns.to_string(),
            format!("{}{mark}", sessions::about(row)),
            text::line(&row.cwd, 200),
        ]);
    }
    let mut widths = [0usize; 6];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let tones = std::iter::once(None).chain(rows.iter().map(|row| Some(status(row.status).0)));
    cells
        .iter()
        .zip(tones)
        .map(|(line, tone)| render(ui, line, &widths, tone))
        .collect()
}

fn render(ui: Ui, line: &[String; 6], widths: &[usize; 6], tone: Option<Tone>) -> String {
    let padded: Vec<String> = line
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(at, (cell, width))| {
            let cell = match at {
                // Numbers and ages end in one column.
                2 | 3 => format!("{cell:>width$}"),
                5 => cell.clone(),
                _ => format!("{cell:<width$}"),
            };
            match (at, tone) {
                (_, None) => ui.out(Tone::Strong, &cell),
                (1, Some(tone)) => ui.out(tone, &cell),
                _ => cell,
            }
        })
        .collect();
    padded.join("  ")
}
