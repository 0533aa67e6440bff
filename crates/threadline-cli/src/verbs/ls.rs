//! `threadline ls`.

use serde_json::json;
use threadline_store::{Archived, ListFilter, SessionStatus, SessionStore, SessionSummary};

use crate::{
    args::Ls,
    failure::{Exit, Outcome},
    sessions::{self, Listed},
    text,
    ui::{Tone, Ui},
};

/// Lists sessions, newest activity first.
pub(crate) async fn ls(ui: Ui, store: &SessionStore, args: Ls) -> Outcome<Exit> {
    let filter = filter(store, &args).await?;
    let Listed {
        mut rows,
        rebuilding,
    } = sessions::all(store, &filter).await?;
    let total = rows.len();
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    if args.json {
        ui.json(&json!({
            "store": store.address(),
            "total": total,
            "rebuilding": rebuilding.is_some(),
            "sessions": rows,
        }))?;
    } else if rows.is_empty() {
        let none = if filter == ListFilter::default() {
            "No sessions"
        } else {
            "No such sessions"
        };
        ui.note(&format!("{none} in {}.", store.address()));
    } else {
        show(ui, store, &rows).await?;
        if rows.len() < total {
            ui.note(&format!(
                "{} more; list them with `--limit 0`.",
                text::count((total - rows.len()) as u64, "session", "sessions")
            ));
        }
    }
    if let Some(left) = rebuilding {
        ui.warning(&unfinished(left));
    }
    Ok(Exit::Completed)
}

async fn filter(store: &SessionStore, args: &Ls) -> Outcome<ListFilter> {
    let parent = match &args.parent {
        Some(parent) => Some(sessions::find_parent(store, parent).await?),
        None => None,
    };
    Ok(ListFilter {
        query: args.query.clone(),
        archived: match (args.all, args.archived) {
            (true, _) => Archived::All,
            (_, true) => Archived::Only,
            _ => Archived::No,
        },
        status: args.status.map(Into::into),
        parent,
        ..ListFilter::default()
    })
}

/// Says that a list is of a catalogue that is still being made anew.
fn unfinished(left: u64) -> String {
    format!(
        "the list is being made anew and {} still to be looked at: it may lack some, or show them \
         as they were; type the command again for a fuller one",
        text::count(left, "session is", "sessions are")
    )
}

async fn show(ui: Ui, store: &SessionStore, rows: &[SessionSummary]) -> Outcome<()> {
    let chars = text::unique_chars(&store.ids().await?);
    for line in table(ui, rows, chars, store.clock().now_ms()) {
        ui.line(&line)?;
    }
    for row in rows {
        if let Some(error) = &row.error {
            let id = text::short(&row.id, chars);
            ui.warning(&format!("{id}: {}", text::line(&error.message, 500)));
            ui.note(&format!("  look closer with `threadline doctor {id}`"));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_may_lack_sessions_says_how_many_and_what_to_do() {
        let one = unfinished(1);
        assert!(
            one.contains("1 session is still") && one.contains("again"),
            "{one}"
        );
        assert!(unfinished(2_000).contains("2000 sessions are still"));
    }
}
