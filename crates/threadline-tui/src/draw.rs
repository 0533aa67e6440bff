//! What the screen shows of the state.

mod picker;
mod talk;

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::{Clear, Paragraph},
};
use threadline_store::SessionSummary;

pub use self::picker::picker_rows;
pub(crate) use self::talk::talk_view;
use crate::{
    app::{App, Screen},
    talk::Talk,
    text,
    theme::{Theme, Tone},
};

/// Rows from which on the keys are named.
const HINTS: u16 = 8;

/// Returns what a session is about: its title, or how it began.
#[must_use]
pub fn about(row: &SessionSummary) -> String {
    let words = row.title.as_deref().or(row.first_prompt.as_deref());
    text::line(words.unwrap_or("(no prompt)"), 200)
}

/// Returns the model that the next turn uses, as far as it is known.
#[must_use]
pub fn model_of(talk: &Talk) -> String {
    let recorded = talk.facts.context.as_ref();
    talk.model.clone().map_or_else(
        || {
            recorded.map_or_else(
                || "the default".into(),
                |context| text::line(&format!("{}/{}", context.provider, context.model), 80),
            )
        },
        |model| text::line(&model, 80),
    )
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < 4 || area.height < 2 {
        return;
    }
    match app.screen {
        Screen::Picker => picker::picker(frame, app),
        Screen::Talk => talk::talk(frame, app),
    }
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(area: Rect, at: u16) -> Rect {
    Rect::new(area.x, area.y + at, area.width, 1)
}

/// Cuts rows off the top of an area.
fn take_top(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    let top = Rect {
        height: rows,
        ..*area
    };
    area.y += rows;
    area.height -= rows;
    top
}

/// Cuts rows off the foot of an area.
fn take_foot(area: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    area.height -= rows;
    Rect {
        y: area.y + area.height,
        height: rows,
        ..*area
    }
}

fn notice(app: &App, area: &mut Rect) -> Option<(Rect, Vec<Line<'static>>)> {
    let notice = app.notice.as_ref()?;
    let pieces = text::wrap(&text::reveal(&notice.text), usize::from(area.width));
    let rows = u16::try_from(pieces.len().min(3)).unwrap_or(1);
    if area.height < rows + 3 {
        return None;
    }
    let style = app.theme.style(notice.tone);
    let lines = pieces.into_iter().take(3);
    let lines = lines.map(|piece| Line::styled(piece, style)).collect();
    Some((take_foot(area, rows), lines))
}

fn hints(
    theme: Theme,
    area: &mut Rect,
    screen: Rect,
    hints: &[(&str, &str)],
) -> Option<(Rect, Line<'static>)> {
    if screen.height < HINTS {
        return None;
    }
    let room = usize::from(area.width);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for (key, does) in hints {
        let wide = text::width(key) + text::width(does) + 3;
        if used + wide > room + 2 {
            break;
        }
        used += wide;
        spans.push(Span::styled((*key).to_owned(), theme.style(Tone::Strong)));
        spans.push(Span::styled(format!(" {does}  "), theme.style(Tone::Faint)));
    }
    Some((take_foot(area, 1), Line::from(spans)))
}

fn help_box(
    frame: &mut Frame<'_>,
    theme: Theme,
    title: &str,
    keys: &[(&str, &str)],
    more: &[(String, &str)],
) {
    let wide = keys.iter().map(|(key, _)| text::width(key));
    let wide = wide.chain(more.iter().map(|(key, _)| text::width(key)));
    let wide = wide.max().unwrap_or(0);
    let line = |key: &str, does: &str| {
        Line::from(vec![
            Span::styled(format!("{key:<wide$}  "), theme.style(Tone::Strong)),
            Span::raw(does.to_owned()),
        ])
    };
    let mut lines: Vec<Line<'static>> = keys.iter().map(|(key, does)| line(key, does)).collect();
    lines.extend(more.iter().map(|(key, does)| line(key, does)));
    over(frame, theme, title, lines);
}

/// Draws lines over the screen, from its top, under a title.
fn over(frame: &mut Frame<'_>, theme: Theme, title: &str, lines: Vec<Line<'static>>) {
    let screen = frame.area();
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(screen.height);
    let area = Rect { height, ..screen };
    frame.render_widget(Clear, area);
    let width = usize::from(screen.width);
    let rule = |said: &str| {
        let rest = "─".repeat(width.saturating_sub(text::width(said)));
        Line::styled(
            text::cut(&format!("{said}{rest}"), width),
            theme.style(Tone::Accent),
        )
    };
    put(frame, row(area, 0), vec![rule(&format!("── {title} "))]);
    if height > 2 {
        let body = Rect {
            y: area.y + 1,
            height: height - 2,
            ..area
        };
        put(frame, body, lines);
    }
    if height > 1 {
        put(frame, row(area, height - 1), vec![rule("── Esc closes ")]);
    }
}

/// Returns a text wrapped into lines of one tone.
fn paragraph(theme: Theme, width: usize, said: &str, tone: Tone) -> Vec<Line<'static>> {
    let pieces = text::wrap(said, width).into_iter();
    let style = theme.style(tone);
    pieces.map(|piece| Line::styled(piece, style)).collect()
}
