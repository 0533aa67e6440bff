//! A conversation on the screen.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};
use threadline_session::payload::{ApprovalPolicy, SandboxMode, plain_text};

use super::{help_box, hints, model_of, notice, over, paragraph, put, take_foot, take_top};
use crate::{
    app::App,
    keys::{COMMANDS, completions},
    limits::{INPUT_ROWS, QUEUE_ROWS},
    render::{Look, call_line},
    talk::{Load, Overlay, Purpose, answers},
    text,
    theme::{Theme, Tone},
};

/// Bytes of a command that its question shows.
const QUESTION_BYTES: usize = 2_000;

/// Where the parts of a conversation are.
struct Areas {
    head: Rect,
    body: Rect,
    notes: Vec<Line<'static>>,
    input: Rect,
    rows: Vec<Line<'static>>,
    cursor: (u16, u16),
}

/// Returns how many rows the turns have, and how they are shown.
pub(crate) fn talk_view(app: &App) -> (usize, Look) {
    let screen = Rect::new(0, 0, app.size.0, app.size.1);
    let look = Look {
        width: usize::from(app.size.0),
        unfolded: app.talk.unfolded,
        theme: app.theme,
    };
    let mut area = screen;
    let _ = talk_hints(app, &mut area, screen);
    let _ = notice(app, &mut area);
    (usize::from(talk_areas(app, area).body.height).max(1), look)
}

fn talk_hints(app: &App, area: &mut Rect, screen: Rect) -> Option<(Rect, Line<'static>)> {
    let talk = &app.talk;
    let shown: &[(&str, &str)] = if talk.answering {
        &[("Enter", "answer"), ("Tab", "message"), ("Esc", "stop")]
    } else if talk.runs() {
        &[
            ("Enter", "queue"),
            ("Esc", "stop"),
            ("F1", "help"),
            ("PgUp", "back"),
            ("^O", "unfold"),
            ("/queue", "waiting"),
        ]
    } else {
        &[
            ("Enter", "send"),
            ("F1", "help"),
            ("/", "commands"),
            ("PgUp", "back"),
            ("^O", "unfold"),
            ("^S", "sessions"),
            ("Alt-Enter", "new line"),
        ]
    };
    hints(app.theme, area, screen, shown)
}

fn talk_areas(app: &App, mut area: Rect) -> Areas {
    let talk = &app.talk;
    let headed = u16::from(area.height > 3);
    let head = take_top(&mut area, headed);
    let width = usize::from(area.width);
    let (typed, lead) = if talk.answering {
        (&talk.answer, "? ")
    } else if talk.composer.editing.is_some() {
        (&talk.composer, "e ")
    } else {
        (&talk.composer, "> ")
    };
    let (rows, place) = typed.lay_out(width.saturating_sub(3).max(2));
    let most = INPUT_ROWS.min(area.height / 3).max(1);
    let shown = usize::from(most).min(rows.len());
    let top = (place.0 + 1).saturating_sub(shown);
    let style = app.theme.style(Tone::Accent);
    let lines = rows.into_iter().skip(top).take(shown).enumerate();
    let lines = lines
        .map(|(at, row)| {
            let lead = if at + top == 0 { lead } else { "  " };
            Line::from(vec![Span::styled(lead, style), Span::raw(row)])
        })
        .collect();
    let mut input = take_foot(&mut area, u16::try_from(shown).unwrap_or(1));
    let y = input.y + u16::try_from(place.0 - top).unwrap_or(0);
    let x = u16::try_from(place.1 + 2).unwrap_or(0);
    let cursor = (x.min(area.width.saturating_sub(1)), y);
    // A line between what is said and what is typed.
    if area.height > 3 {
        let rule = take_foot(&mut area, 1);
        input.y = rule.y;
        input.height += 1;
    }
    let most = usize::from(area.height / 2);
    let mut notes = above_input(app, width);
    if notes.len() > most {
        // Nobody shall say yes to what was not seen.
        notes = notes.split_off(notes.len() + 1 - most.max(1));
        let said = text::cut("… not all is shown: a higher window shows more", width);
        notes.insert(0, Line::styled(said, app.theme.style(Tone::Bad)));
    }
    take_foot(&mut area, u16::try_from(notes.len()).unwrap_or(0));
    Areas {
        head,
        body: area,
        notes,
        input,
        rows: lines,
        cursor,
    }
}

/// Returns what stands between the turns and the input: what is worth knowing, the question, what
/// waits, what a command may become.
fn above_input(app: &App, width: usize) -> Vec<Line<'static>> {
    let talk = &app.talk;
    let mut lines = Vec::new();
    let say = |said: &str, tone: Tone, lines: &mut Vec<Line<'static>>| {
        for piece in text::wrap(&text::reveal(said), width) {
            lines.push(Line::styled(piece, app.theme.style(tone)));
        }
    };
    for (tone, note) in &talk.notes {
        say(note, *tone, &mut lines);
    }
    if let Some(question) = app.questions.first() {
        let info = &question.info;
        let more = match app.questions.len() {
            1 => String::new(),
            all => format!(" (1 of {all})"),
        };
        let elsewhere = talk.id.as_ref() != Some(&info.session_id);
        let whose = match (question.offered, elsewhere) {
            (true, _) => " — its process is gone; yes makes the call now",
            (_, true) => " — asked by another session or a subagent",
            _ => "",
        };
        let bare = match info.outside_sandbox {
            true => ", WITHOUT the sandbox",
            false => "",
        };
        let lead = format!(
            "Approval needed{bare}{more}: {}{whose}",
            text::line(&info.name, 64)
        );
        say(&lead, Tone::Warning, &mut lines);
        for line in question_lines(&info.arguments) {
            say(&format!("  {line}"), Tone::Code, &mut lines);
        }
        say(
            &format!("  {}", text::line(&info.reason, 1_000)),
            Tone::Faint,
            &mut lines,
        );
        if talk.answering {
            say(&format!("  {}", answers(info)), Tone::Strong, &mut lines);
        } else {
            say("  Tab: answer it", Tone::Faint, &mut lines);
        }
    }
    let queue = &talk.facts.queue;
    for queued in queue.iter().take(QUEUE_ROWS) {
        let said = text::line(&plain_text(&queued.content), 400);
        let line = text::cut(&format!("queued: {said}"), width);
        lines.push(Line::styled(line, app.theme.style(Tone::Accent)));
    }
    if queue.len() > QUEUE_ROWS {
        let more = format!("{} more wait (/queue)", queue.len() - QUEUE_ROWS);
        say(&more, Tone::Accent, &mut lines);
    }
    let found = completions(talk.composer.text());
    let complete = found.len() == 1 && found[0].name == talk.composer.text();
    if !talk.answering && !complete {
        for command in found {
            let said = format!("{} {}", command.name, command.takes);
            let line = text::cut(&format!("{said:<18} {}", command.does), width);
            lines.push(Line::styled(line, app.theme.style(Tone::Faint)));
        }
    }
    lines
}

/// Returns the lines of what is asked: a command whole, as far as there is room.
fn question_lines(arguments: &str) -> Vec<String> {
    let parsed: Option<serde_json::Value> = serde_json::from_str(arguments).ok();
    let command = parsed
        .as_ref()
        .and_then(|value| value.get("command")?.as_str());
    match command {
        Some(command) => {
            let shown = text::head(command, QUESTION_BYTES);
            let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
            if shown.len() < command.len() {
                let more = command.len() - shown.len();
                lines.push(format!("[{more} more bytes: Ctrl-O shows them above]"));
            }
            lines
        }
        None => vec![call_line(arguments), text::line(arguments, QUESTION_BYTES)],
    }
}

fn head_line(app: &App, width: usize) -> Line<'static> {
    let talk = &app.talk;
    let state = match &talk.load {
        Load::Loading => "reading…",
        Load::Failed(_) => "not read",
        _ if !app.questions.is_empty() => "waits for you",
        _ if talk.runs() => "running",
        _ if talk.id.is_none() => "new",
        _ => "idle",
    };
    let policy = talk
        .facts
        .context
        .as_ref()
        .map_or(String::new(), |context| {
            let approval = match context.approval_policy {
                ApprovalPolicy::Strict => "strict",
                ApprovalPolicy::OnRequest => "on request",
                ApprovalPolicy::Never => "never asks",
            };
            let sandbox = match context.sandbox_mode {
                SandboxMode::ReadOnly => "read only",
                SandboxMode::WorkspaceWrite => "workspace",
                SandboxMode::DangerFullAccess => "FULL ACCESS",
            };
            format!(" · {approval} · {sandbox}")
        });
    let id = talk.id.as_ref().map_or("", |id| id.as_str());
    let right = format!(" {state} · {}{policy} ", model_of(talk));
    let room = width.saturating_sub(text::width(&right));
    // The whole id when there is room: it is what resumes the session.
    let left = if talk.about.is_empty() {
        format!(" {id}")
    } else {
        format!(" {} · {id}", talk.about)
    };
    let left = text::cut(&left, room);
    let gap = " ".repeat(room.saturating_sub(text::width(&left)));
    let line = text::cut(&format!("{left}{gap}{right}"), width);
    Line::styled(line, Style::new().add_modifier(Modifier::REVERSED))
}

pub(super) fn talk(frame: &mut Frame<'_>, app: &mut App) {
    let screen = frame.area();
    app.size = (screen.width, screen.height);
    let mut area = screen;
    let hint = talk_hints(app, &mut area, screen);
    let told = notice(app, &mut area);
    let (_, look) = talk_view(app);
    let areas = talk_areas(app, area);
    let width = usize::from(screen.width);
    if areas.head.height > 0 {
        put(frame, areas.head, vec![head_line(app, width)]);
    }
    let body = body_lines(app, usize::from(areas.body.height), look);
    put(frame, areas.body, body);
    let notes = Rect {
        y: areas.body.y + areas.body.height,
        height: u16::try_from(areas.notes.len()).unwrap_or(0),
        ..areas.body
    };
    put(frame, notes, areas.notes);
    let mut input = areas.input;
    if usize::from(input.height) > areas.rows.len() {
        let rule = take_top(&mut input, 1);
        put(frame, rule, vec![rule_line(app, width)]);
    }
    put(frame, input, areas.rows);
    if let Some((area, lines)) = told {
        put(frame, area, lines);
    }
    if let Some((area, line)) = hint {
        put(frame, area, vec![line]);
    }
    frame.set_cursor_position(areas.cursor);
    overlay(frame, app);
}

/// Returns the line above the input; it says when the end is out of sight.
fn rule_line(app: &App, width: usize) -> Line<'static> {
    let said = if app.talk.turns.at_end() {
        String::new()
    } else {
        "── more below: Ctrl-End ".to_owned()
    };
    let rest = "─".repeat(width.saturating_sub(text::width(&said)));
    Line::styled(
        text::cut(&format!("{said}{rest}"), width),
        app.theme.style(Tone::Faint),
    )
}

fn body_lines(app: &mut App, rows: usize, look: Look) -> Vec<Line<'static>> {
    let theme = app.theme;
    let say = |said: &str, tone: Tone| paragraph(theme, look.width, said, tone);
    match &app.talk.load {
        Load::Loading => return say("Reading the last turns…", Tone::Faint),
        Load::Failed(trouble) => {
            let mut lines = say(&trouble.message, Tone::Bad);
            if let Some(hint) = &trouble.hint {
                lines.extend(say(hint, Tone::Plain));
            }
            lines.extend(say("Ctrl-S: other sessions", Tone::Faint));
            return lines;
        }
        Load::New if app.talk.starting => return say("…", Tone::Faint),
        Load::New => {
            return say(
                "A new session. Say what is to be done; F1 shows keys and commands.",
                Tone::Faint,
            );
        }
        Load::Ready => {}
    }
    let mut lines = app.talk.turns.visible(rows, look);
    if app.talk.loads_earlier()
        && let Some(first) = lines.first_mut()
    {
        *first = Line::styled("… reading earlier turns", theme.style(Tone::Faint));
    }
    lines
}

fn overlay(frame: &mut Frame<'_>, app: &App) {
    let theme = app.theme;
    let screen = frame.area();
    let width = usize::from(screen.width);
    let room = usize::from(screen.height).saturating_sub(2).max(1);
    let pick = |rows: Vec<String>, at: usize| -> Vec<Line<'static>> {
        let top = at / room * room;
        let rows = rows.into_iter().enumerate().skip(top).take(room);
        rows.map(|(place, row)| {
            let lead = if place == at { "> " } else { "  " };
            let line = text::cut(&format!("{lead}{row}"), width);
            let style = if place == at {
                theme.selected()
            } else {
                Style::new()
            };
            Line::styled(line, style)
        })
        .collect()
    };
    match &app.talk.overlay {
        None => {}
        Some(Overlay::Help) => talk_help(frame, theme),
        Some(Overlay::Queue(at)) => {
            let queue = &app.talk.facts.queue;
            let rows: Vec<String> = queue
                .iter()
                .map(|queued| text::line(&plain_text(&queued.content), 400))
                .collect();
            let lines = if rows.is_empty() {
                vec![Line::styled("Nothing waits.", theme.style(Tone::Faint))]
            } else {
                pick(rows, *at)
            };
            over(
                frame,
                theme,
                "Waiting messages: e changes, d drops, s sends the first now",
                lines,
            );
        }
        Some(Overlay::Turns {
            purpose,
            choices,
            at,
            ..
        }) => {
            let title = match purpose {
                Purpose::Fork => "Fork after which turn? Enter forks",
                Purpose::Rewind => {
                    "Go back to after which turn? Files are not undone; /redo takes it back"
                }
            };
            let lines = match choices {
                None => vec![Line::styled("Reading…", theme.style(Tone::Faint))],
                Some(choices) if choices.is_empty() => {
                    vec![Line::styled("It has no turn.", theme.style(Tone::Faint))]
                }
                Some(choices) => {
                    let rows = choices.iter();
                    let rows = rows.map(|choice| format!("turn {}: {}", choice.turn, choice.asked));
                    pick(rows.collect(), *at)
                }
            };
            over(frame, theme, title, lines);
        }
    }
}

fn talk_help(frame: &mut Frame<'_>, theme: Theme) {
    let keys = [
        ("Enter", "send; while a run is under way, queue"),
        ("Alt-Enter, Ctrl-J", "another line"),
        ("Up, Down", "lines of the input, then what was sent before"),
        (
            "PgUp PgDn Shift-Up/Down",
            "scroll; Ctrl-Home, Ctrl-End: to the ends",
        ),
        ("Esc", "stop the run"),
        (
            "Ctrl-O",
            "show outputs, reasoning and context in full, or not",
        ),
        ("Tab", "complete a command; answer a question or write"),
        ("Ctrl-S", "other sessions"),
        ("Ctrl-Z", "suspend"),
        ("Ctrl-C, Ctrl-D", "clear, stop, leave"),
    ];
    let commands: Vec<(String, &str)> = COMMANDS
        .iter()
        .map(|command| (format!("{} {}", command.name, command.takes), command.does))
        .collect();
    help_box(frame, theme, "Keys and commands", &keys, &commands);
}
