//! `threadline du`: how much space sessions take up.

use serde::Serialize;
use serde_json::json;
use threadline_session::SessionId;
use threadline_store::{ReadError, SessionStore, Usage};

use crate::{
    args::Du,
    failure::{Exit, Outcome},
    sessions, text,
    ui::{Progress, Tone, Ui},
};

#[derive(Debug, Serialize)]
struct Row {
    id: SessionId,
    #[serde(flatten)]
    usage: Usage,
}

impl Row {
    /// What deleting the session gives back at least.
    fn own(&self) -> u64 {
        let Usage {
            log,
            shared: _,
            index,
            quarantine,
            other,
        } = self.usage;
        log + index + quarantine + other
    }
}

/// Shows sessions by size.
pub(crate) async fn du(ui: Ui, store: &SessionStore, args: Du) -> Outcome<Exit> {
    let ids = match &args.id {
        Some(id) => vec![sessions::find(store, id).await?],
        None => store.ids().await?,
    };
    let mut rows = Vec::new();
    let mut progress = Progress::new(ui, "Measuring", ids.len());
    for id in ids {
        progress.step();
        match store.usage(&id).await {
            Ok(usage) => rows.push(Row { id, usage }),
            // Deleted since it was listed.
            Err(ReadError::NotFound { .. }) if args.id.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    progress.done();
    rows.sort_by(|a, b| (b.own(), &a.id).cmp(&(a.own(), &b.id)));
    let mut total = Usage::default();
    for row in &rows {
        total.log += row.usage.log;
        total.shared += row.usage.shared;
        total.index += row.usage.index;
        total.quarantine += row.usage.quarantine;
        total.other += row.usage.other;
    }
    let count = rows.len();
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    let blobs = match args.id {
        Some(_) => None,
        None => {
            let stats = store.blob_stats().await?;
            let bytes: u64 = stats.iter().map(|stat| stat.bytes).sum();
            Some((stats.len(), bytes))
        }
    };
    if args.json {
        ui.json(&json!({
            "store": store.address(),
            "count": count,
            "sessions": rows,
            "total": total,
            "blobs": blobs.map(|(count, bytes)| json!({"count": count, "bytes": bytes})),
        }))?;
        return Ok(Exit::Completed);
    }
    let total = (args.id.is_none()).then_some((total, count, blobs));
    print(ui, &rows, total)?;
    if rows.len() < count {
        ui.note(&format!(
            "{} more; list them with `--limit 0`.",
            text::count((count - rows.len()) as u64, "session", "sessions")
        ));
    }
    Ok(Exit::Completed)
}

type Total = (Usage, usize, Option<(usize, u64)>);

fn print(ui: Ui, rows: &[Row], total: Option<Total>) -> Outcome<()> {
    let head = ["LOG", "SHARED", "INDEX", "QUARANTINE", "OTHER", "SESSION"].map(String::from);
    let cells = |usage: &Usage, name: String| {
        [
            ui.size(usage.log),
            ui.size(usage.shared),
            ui.size(usage.index),
            ui.size(usage.quarantine),
            ui.size(usage.other),
            name,
        ]
    };
    let mut lines = vec![head];
    lines.extend(rows.iter().map(|row| cells(&row.usage, row.id.to_string())));
    if let Some((usage, count, _)) = &total {
        let name = text::count(*count as u64, "session", "sessions");
        lines.push(cells(usage, format!("total of {name}")));
    }
    let mut widths = [0usize; 5];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (at, line) in lines.iter().enumerate() {
        let mut shown: Vec<String> = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        shown.extend(line.last().cloned());
        let shown = shown.join("  ");
        ui.line(&match at {
            0 => ui.out(Tone::Strong, &shown),
            _ => shown,
        })?;
    }
    if let Some((_, _, Some((blobs, bytes)))) = total {
        ui.line(&format!(
            "{} in {}",
            ui.size(bytes),
            text::count(blobs as u64, "blob", "blobs")
        ))?;
    }
    Ok(())
}
