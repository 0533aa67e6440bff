//! The picker on the screen.

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use threadline_store::{Archived, SessionStatus};

use super::{about, help_box, hints, notice, paragraph, put, row, take_foot, take_top};
use crate::{
    app::App,
    picker::{Asking, Branch, Preview},
    render::Look,
    text,
    theme::{Theme, Tone},
};

/// Columns from which on the preview stands beside the list.
const WIDE: u16 = 100;
/// Rows from which on there is a preview.
const TALL: u16 = 16;

/// Returns the rows of the list on a terminal of this size.
#[must_use]
pub fn picker_rows(size: (u16, u16)) -> usize {
    let area = Rect::new(0, 0, size.0, size.1);
    usize::from(picker_areas(area, 1).0.height).max(1)
}

/// Returns where the list and the preview are, below the search and above what is told.
fn picker_areas(mut rest: Rect, foot: u16) -> (Rect, Option<Rect>) {
    let screen = rest;
    take_top(&mut rest, 2);
    take_foot(&mut rest, foot);
    if screen.height < TALL {
        return (rest, None);
    }
    if screen.width >= WIDE {
        let list = rest.width * 3 / 5;
        let preview = Rect {
            x: rest.x + list + 1,
            width: rest.width - list - 1,
            ..rest
        };
        return (
            Rect {
                width: list,
                ..rest
            },
            Some(preview),
        );
    }
    let preview = take_foot(&mut rest, screen.height * 2 / 5);
    (rest, Some(preview))
}

pub(super) fn picker(frame: &mut Frame<'_>, app: &mut App) {
    let screen = frame.area();
    let mut area = screen;
    let theme = app.theme;
    let hint = hints(
        theme,
        &mut area,
        screen,
        &[
            ("Enter", "open"),
            ("?", "help"),
            ("^O", "new"),
            ("Tab", "folder/all"),
            ("^A", "archived"),
            ("^R", "rename"),
            ("^F", "fork"),
            ("^T", "archive"),
            ("^X", "delete"),
        ],
    );
    let told = notice(app, &mut area);
    let (list, preview) = picker_areas(area, 0);
    let (search, cursor) = search_line(app, usize::from(screen.width));
    put(frame, row(screen, 0), vec![search]);
    if screen.height > 3 {
        let scope = Line::styled(
            scope(app, usize::from(screen.width)),
            theme.style(Tone::Faint),
        );
        put(frame, row(screen, 1), vec![scope]);
    }
    let lines = listed(app, list);
    put(frame, list, lines);
    if let Some(area) = preview {
        draw_preview(frame, app, area, screen.width >= WIDE);
    }
    if let Some((area, lines)) = told {
        put(frame, area, lines);
    }
    if let Some((area, line)) = hint {
        put(frame, area, vec![line]);
    }
    let column = u16::try_from(cursor).unwrap_or(0).min(screen.width - 1);
    frame.set_cursor_position((screen.x + column, screen.y));
    if app.help {
        picker_help(frame, theme);
    }
}

fn search_line(app: &App, width: usize) -> (Line<'static>, usize) {
    let (label, typed) = match &app.picker.asking {
        Asking::Search => ("Search: ", &app.picker.search),
        Asking::Title(_, title) => ("Title: ", title),
    };
    let room = width.saturating_sub(label.len() + 1).max(2);
    let (rows, place) = typed.lay_out(room);
    let shown = rows.get(place.0).cloned().unwrap_or_default();
    let line = Line::from(vec![
        Span::styled(label, app.theme.style(Tone::Strong)),
        Span::raw(shown),
    ]);
    (line, label.len() + place.1)
}

fn scope(app: &App, width: usize) -> String {
    let picker = &app.picker;
    let place = if picker.here {
        "this folder"
    } else {
        "everything"
    };
    let archived = match picker.archived {
        Archived::No => "",
        Archived::All => ", archived too",
        Archived::Only => ", archived only",
    };
    let count = picker.branches.len() as u64;
    let more = match (picker.loading, picker.has_more()) {
        (true, _) => ", loading…",
        (_, true) => " so far, more below",
        _ => "",
    };
    let rebuilding = picker.rebuilding.map_or(String::new(), |left| {
        format!(" — the list is being made anew: {left} to go")
    });
    let said = format!(
        "{place}{archived} — {}{more}{rebuilding}",
        text::count(count, "session", "sessions")
    );
    text::cut(&said, width)
}

fn status(status: SessionStatus) -> (Tone, &'static str) {
    match status {
        SessionStatus::Idle => (Tone::Faint, ""),
        SessionStatus::Running => (Tone::Good, "running"),
        SessionStatus::Waiting => (Tone::Warning, "waiting"),
        SessionStatus::Interrupted => (Tone::Warning, "interrupted"),
        SessionStatus::Damaged => (Tone::Bad, "damaged"),
        SessionStatus::Unsupported => (Tone::Bad, "unsupported"),
        SessionStatus::Missing => (Tone::Bad, "missing"),
    }
}

fn listed(app: &App, area: Rect) -> Vec<Line<'static>> {
    let picker = &app.picker;
    let theme = app.theme;
    let width = usize::from(area.width);
    let wrapped = |said: &str, tone: Tone| paragraph(theme, width, said, tone);
    if let Some(trouble) = &picker.trouble {
        return wrapped(
            &format!("The sessions cannot be listed: {}", trouble.told()),
            Tone::Bad,
        );
    }
    if picker.branches.is_empty() {
        let said = match (picker.loading, picker.search.is_empty(), picker.here) {
            (true, ..) => "Looking…",
            (_, false, true) => "Nothing found in this folder. Tab looks everywhere.",
            (_, false, false) => "Nothing found.",
            (_, true, true) => "No session in this folder. Enter begins one; Tab looks everywhere.",
            (_, true, false) => "No session yet. Enter begins one.",
        };
        return wrapped(said, Tone::Faint);
    }
    let rows = usize::from(area.height).max(1);
    let at = picker.place().unwrap_or(0);
    // A page at a time: the list stands still while the selection moves within it.
    let top = at / rows * rows;
    let shown = picker.branches.iter().skip(top).take(rows);
    let mut lines: Vec<Line<'static>> = shown
        .enumerate()
        .map(|(place, branch)| list_row(app, *branch, width, top + place == at))
        .collect();
    if picker.is_cut() && top + rows >= picker.branches.len() {
        lines.push(Line::styled(
            text::cut("There are more: search to find them.", width),
            theme.style(Tone::Warning),
        ));
    }
    lines
}

fn list_row(app: &App, branch: Branch, width: usize, selected: bool) -> Line<'static> {
    let theme = app.theme;
    let Some(row) = app.picker.rows.get(branch.row) else {
        return Line::default();
    };
    let (tone, word) = status(row.status);
    let age = text::age(row.updated_at, app.now_ms);
    let mut marks = String::new();
    if row.pinned {
        marks.push_str(" [pinned]");
    }
    if row.archived {
        marks.push_str(" [archived]");
    }
    let tree = match (branch.depth, &row.parent) {
        (0, None) => String::new(),
        // What it was forked from is not loaded.
        (0, Some(parent)) => format!("↳ of {} ", text::head(parent.id.as_str(), 8)),
        (depth, _) => format!("{}└ ", "  ".repeat(depth.min(8) - 1)),
    };
    let folder = if app.picker.here {
        String::new()
    } else {
        let name = row.cwd.rsplit('/').next().unwrap_or_default();
        format!("  {}", text::line(name, 20))
    };
    let lead = if selected { "> " } else { "  " };
    let turns = format!("{}t", row.turns);
    let right = format!(" {word}{folder} {turns:>5} {age:>4}");
    let room = width.saturating_sub(text::width(lead) + text::width(&tree) + text::width(&right));
    let words = text::cut(&format!("{}{marks}", about(row)), room);
    let gap = " ".repeat(room.saturating_sub(text::width(&words)));
    let style = if selected {
        theme.selected()
    } else {
        Style::new()
    };
    let line = Line::from(vec![
        Span::raw(lead),
        Span::styled(tree, theme.style(Tone::Faint)),
        Span::raw(words),
        Span::raw(gap),
        Span::styled(format!(" {word}"), theme.style(tone)),
        Span::styled(
            format!("{folder} {turns:>5} {age:>4}"),
            theme.style(Tone::Faint),
        ),
    ]);
    line.style(style)
}

fn draw_preview(frame: &mut Frame<'_>, app: &mut App, area: Rect, beside: bool) {
    let theme = app.theme;
    let title = app.picker.row().map_or(String::new(), |row| {
        let model = row.model.as_ref().map_or(String::new(), |model| {
            text::line(&format!("{}/{}", model.provider, model.name), 60)
        });
        format!(
            "{} · {} · {model}",
            text::head(row.id.as_str(), 13),
            text::line(&row.cwd, 80)
        )
    });
    let width = usize::from(area.width);
    let title = if beside {
        title
    } else {
        format!("── {title} ")
    };
    let rest = "─".repeat(width.saturating_sub(text::width(&title)));
    let title = text::cut(&format!("{title}{rest}"), width);
    put(
        frame,
        row(area, 0),
        vec![Line::styled(title, theme.style(Tone::Faint))],
    );
    let mut body = area;
    take_top(&mut body, 1);
    let look = Look {
        width,
        unfolded: false,
        theme,
    };
    let error = app.picker.row().and_then(|row| row.error.clone());
    let said = |said: &str, tone: Tone| paragraph(theme, width, said, tone);
    let lines = match &mut app.picker.preview {
        Preview::None => Vec::new(),
        Preview::Wanted(..) | Preview::Loading(_) => said("…", Tone::Faint),
        Preview::Ready(_, turns) => turns.visible(usize::from(body.height), look),
        Preview::Failed(_, trouble) => {
            let message =
                error.map_or_else(|| trouble.told(), |error| text::line(&error.message, 500));
            said(&message, Tone::Bad)
        }
    };
    put(frame, body, lines);
}

fn picker_help(frame: &mut Frame<'_>, theme: Theme) {
    let keys = [
        ("type", "search in titles, first prompts, tags and ids"),
        ("Up Down PgUp PgDn", "select"),
        ("Enter", "open the session"),
        ("Ctrl-O", "begin a new session"),
        ("Tab", "sessions of this folder, or all"),
        ("Ctrl-A", "without archived ones, with them, only them"),
        ("Ctrl-F", "fork the session from a turn"),
        ("Ctrl-R", "give it a title"),
        ("Ctrl-T", "archive it, or take it out again"),
        ("Ctrl-X", "delete it; Ctrl-B brings it back"),
        ("Ctrl-Z", "suspend"),
        ("Esc", "clear the search, then leave"),
    ];
    help_box(frame, theme, "Keys", &keys, &[]);
}
