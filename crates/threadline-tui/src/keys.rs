//! Keys of a conversation, and its commands.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use threadline_agent::{COMPACT_COMMAND, QueueInput};
use threadline_session::payload::plain_text;

use crate::{
    app::{App, Effect, STOPPING},
    draw,
    picker::edit,
    talk::{Load, Overlay, Purpose, answers, read_answer},
    theme::Tone,
};

/// A command: its name, what follows it, what it does.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// With its slash.
    pub name: &'static str,
    /// What follows.
    pub takes: &'static str,
    /// What it does.
    pub does: &'static str,
}

const fn command(name: &'static str, takes: &'static str, does: &'static str) -> Command {
    Command { name, takes, does }
}

/// All commands.
pub const COMMANDS: &[Command] = &[
    command(
        "/compact",
        "",
        "replace the older part of the history by a summary",
    ),
    command("/export", "[FILE]", "write the session down as Markdown"),
    command("/fork", "", "go on in a copy, from a turn you choose"),
    command("/help", "", "show keys and commands"),
    command(
        "/model",
        "[NAME]",
        "show or choose the model of the next turns",
    ),
    command("/name", "TITLE", "give the session a title"),
    command("/new", "", "begin a new session"),
    command("/queue", "", "change or drop messages that wait"),
    command("/quit", "", "leave"),
    command("/redo", "", "take the last rewind back"),
    command("/rewind", "", "go back to after a turn you choose"),
    command("/sessions", "", "pick another session"),
];

/// Returns the commands that a text may become.
#[must_use]
pub fn completions(text: &str) -> Vec<&'static Command> {
    if !text.starts_with('/') || text.contains(char::is_whitespace) {
        return Vec::new();
    }
    let begins = |command: &&Command| command.name.starts_with(text);
    COMMANDS.iter().filter(begins).collect()
}

/// Takes a key in a conversation.
pub(crate) fn talk_key(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    if app.talk.overlay.is_some() {
        return overlay_key(app, key);
    }
    if let Some(effects) = scroll_key(app, key) {
        return effects;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    let shift = key.modifiers.contains(KeyModifiers::SHIFT);
    match key.code {
        KeyCode::Esc => escape(app),
        KeyCode::Char('c') if control => interrupt(app),
        KeyCode::Char('d') if control && app.talk.composer.is_empty() => app.leave(),
        KeyCode::Char('o') if control => {
            app.talk.unfolded = !app.talk.unfolded;
            Vec::new()
        }
        KeyCode::Char('s') if control => app.pick(),
        KeyCode::F(1) => {
            app.talk.overlay = Some(Overlay::Help);
            Vec::new()
        }
        KeyCode::Tab => {
            tab(app);
            Vec::new()
        }
        KeyCode::Enter if app.talk.answering => answer(app),
        KeyCode::Enter if alt || shift => {
            app.talk.composer.insert("\n");
            Vec::new()
        }
        KeyCode::Enter => send(app),
        _ => {
            typed(app, key);
            Vec::new()
        }
    }
}

fn typed(app: &mut App, key: KeyEvent) {
    if app.talk.answering {
        edit(&mut app.talk.answer, key);
        return;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let composer = &mut app.talk.composer;
    match key.code {
        // What a terminal sends for Ctrl-J is a line feed.
        KeyCode::Char('j') if control => composer.insert("\n"),
        KeyCode::Char('d') if control => composer.delete(),
        KeyCode::Up => composer.up(),
        KeyCode::Down => composer.down(),
        KeyCode::Char('p') if control => composer.up(),
        KeyCode::Char('n') if control => composer.down(),
        _ => edit(composer, key),
    }
}

fn scroll_key(app: &mut App, key: KeyEvent) -> Option<Vec<Effect>> {
    let (rows, look) = draw::talk_view(app);
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let shift = key.modifiers.contains(KeyModifiers::SHIFT);
    let talk = &mut app.talk;
    let page = rows.saturating_sub(2).max(1);
    let near_start = match key.code {
        KeyCode::PageUp => talk.turns.scroll_up(page, rows, look),
        KeyCode::Up if shift || control => talk.turns.scroll_up(1, rows, look),
        KeyCode::Home if control => {
            talk.turns.to_start();
            true
        }
        KeyCode::PageDown => {
            talk.turns.scroll_down(page, rows, look);
            false
        }
        KeyCode::Down if shift || control => {
            talk.turns.scroll_down(1, rows, look);
            false
        }
        KeyCode::End if control => return Some(talk.to_end().into_iter().collect()),
        _ => return None,
    };
    let earlier = if near_start {
        talk.want_earlier()
    } else {
        None
    };
    Some(earlier.into_iter().collect())
}

/// Takes back the smallest thing there is to take back; then stops the run.
fn escape(app: &mut App) -> Vec<Effect> {
    let talk = &mut app.talk;
    if !talk.answer.is_empty() {
        talk.answer.set("");
        return Vec::new();
    }
    if talk.composer.editing.take().is_some() {
        talk.composer.set("");
        return Vec::new();
    }
    if talk.runs() {
        return stop(app);
    }
    app.notice = None;
    Vec::new()
}

fn stop(app: &mut App) -> Vec<Effect> {
    let Some(id) = app.talk.id.clone() else {
        return Vec::new();
    };
    app.note(Tone::Warning, STOPPING);
    vec![Effect::Cancel { id }]
}

fn interrupt(app: &mut App) -> Vec<Effect> {
    let talk = &mut app.talk;
    if !talk.composer.is_empty() {
        talk.composer.editing = None;
        talk.composer.set("");
        return Vec::new();
    }
    if talk.runs() {
        return stop(app);
    }
    app.leave()
}

/// Completes a command, or moves between the answer and the message.
fn tab(app: &mut App) {
    let asked = !app.questions.is_empty();
    let talk = &mut app.talk;
    if talk.answering || (asked && !talk.composer.text().starts_with('/')) {
        talk.answering = !talk.answering;
        return;
    }
    let found = completions(talk.composer.text());
    let Some(first) = found.first() else {
        return;
    };
    // As far as all of them agree.
    let shared = found.iter().fold(first.name.len(), |shared, command| {
        let same = first.name.bytes().zip(command.name.bytes());
        shared.min(same.take_while(|(a, b)| a == b).count())
    });
    let mut text = first.name[..shared].to_owned();
    if found.len() == 1 && !first.takes.is_empty() {
        text.push(' ');
    }
    talk.composer.set(text);
}

fn answer(app: &mut App) -> Vec<Effect> {
    let Some(question) = app.questions.first().cloned() else {
        app.talk.answering = false;
        return Vec::new();
    };
    let Some(answered) = read_answer(app.talk.answer.text(), &question.info) else {
        let answers = answers(&question.info);
        app.note(
            Tone::Warning,
            format!("Answer {answers}; a comment may follow. Tab writes a message instead."),
        );
        return Vec::new();
    };
    app.talk.answer.set("");
    app.notice = None;
    let run = Box::new(app.talk.run_input(String::new()));
    vec![Effect::Answer {
        question: Box::new(question),
        answered,
        run,
    }]
}

fn send(app: &mut App) -> Vec<Effect> {
    if app.talk.composer.text().trim().is_empty() {
        return Vec::new();
    }
    if let Load::Failed(_) | Load::Loading = app.talk.load {
        app.note(
            Tone::Warning,
            "The session is not there to go on with. /sessions picks another one.",
        );
        if !app.talk.composer.text().starts_with('/') {
            return Vec::new();
        }
    }
    let editing = app.talk.composer.editing.take();
    let said = app.talk.composer.take().trim().to_owned();
    app.notice = None;
    if said.starts_with('/') && editing.is_none() && !said.contains('\n') {
        return slash(app, &said);
    }
    let talk = &mut app.talk;
    talk.turns.to_end();
    let run = Box::new(talk.run_input(String::new()));
    match talk.id.clone() {
        Some(id) if talk.runs() || editing.is_some() => {
            let input = QueueInput {
                message_id: editing,
                ..QueueInput::new(said)
            };
            vec![Effect::Queue { id, input, run }]
        }
        None if talk.starting => {
            talk.composer.set(said);
            app.note(Tone::Warning, "The session is just being made.");
            Vec::new()
        }
        id => start(app, id, said),
    }
}

fn start(app: &mut App, id: Option<threadline_session::SessionId>, task: String) -> Vec<Effect> {
    app.talk.starting = true;
    let input = Box::new(app.talk.run_input(task));
    vec![Effect::Start { id, input }]
}

fn slash(app: &mut App, said: &str) -> Vec<Effect> {
    let (name, rest) = said
        .split_once(char::is_whitespace)
        .map_or((said, ""), |(name, rest)| (name, rest.trim()));
    match name {
        "/help" => app.talk.overlay = Some(Overlay::Help),
        "/quit" => return app.leave(),
        "/new" => return app.begin(),
        "/sessions" => return app.pick(),
        "/model" => return model(app, rest),
        "/queue" | "/compact" | "/fork" | "/rewind" | "/redo" | "/name" | "/export" => {
            return on_session(app, name, rest);
        }
        _ => {
            app.talk.composer.set(said);
            app.note(
                Tone::Warning,
                format!(
                    "There is no command {}. /help lists them; a space in front sends it as a \
                     message.",
                    crate::text::line(name, 40)
                ),
            );
        }
    }
    Vec::new()
}

/// Commands that need a session, some of them one that rests.
fn on_session(app: &mut App, name: &str, rest: &str) -> Vec<Effect> {
    let Some(id) = app.talk.id.clone() else {
        app.note(
            Tone::Warning,
            format!("{name} needs a session; it begins with its first message."),
        );
        return Vec::new();
    };
    if app.talk.runs() && matches!(name, "/compact" | "/rewind" | "/redo") {
        app.note(
            Tone::Warning,
            format!("{name} must wait: a turn is under way. Esc stops it."),
        );
        app.talk.composer.set(format!("{name} {rest}").trim_end());
        return Vec::new();
    }
    match name {
        "/queue" => {
            app.talk.overlay = Some(Overlay::Queue(0));
            Vec::new()
        }
        "/compact" => start(app, Some(id), COMPACT_COMMAND.to_owned()),
        "/fork" => vec![app.talk.open_choices(Purpose::Fork, id)],
        "/rewind" => vec![app.talk.open_choices(Purpose::Rewind, id)],
        "/redo" => vec![Effect::Redo { id }],
        "/export" => {
            let path = Some(rest.to_owned()).filter(|path| !path.is_empty());
            vec![Effect::Export { id, path }]
        }
        _ if rest.is_empty() => {
            app.note(Tone::Warning, "Say the title: /name TITLE");
            Vec::new()
        }
        _ => vec![Effect::Rename {
            id,
            title: rest.to_owned(),
        }],
    }
}

fn model(app: &mut App, name: &str) -> Vec<Effect> {
    let shown = draw::model_of(&app.talk);
    if name.is_empty() {
        let said = format!("The model is {shown}. /model NAME or PROVIDER/NAME chooses another.");
        app.note(Tone::Plain, said);
        return Vec::new();
    }
    app.talk.model = Some(name.to_owned());
    app.note(
        Tone::Good,
        format!("The next turns use {}.", crate::text::line(name, 80)),
    );
    Vec::new()
}

fn overlay_key(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if key.code == KeyCode::Esc || (control && key.code == KeyCode::Char('c')) {
        app.talk.close_overlay();
        return Vec::new();
    }
    let (rows, _) = draw::talk_view(app);
    match app.talk.overlay.take() {
        Some(Overlay::Queue(at)) => queue_key(app, key, at),
        Some(Overlay::Turns {
            purpose,
            id,
            choices,
            at,
        }) => {
            let last = choices.as_ref().map_or(0, Vec::len).saturating_sub(1);
            let at = moved(key.code, at, last, rows);
            let chosen = choices.as_ref().and_then(|choices| choices.get(at));
            if key.code == KeyCode::Enter
                && let Some(chosen) = chosen
            {
                return chosen_turn(app, purpose, id, chosen.end_seq);
            }
            app.talk.overlay = Some(Overlay::Turns {
                purpose,
                id,
                choices,
                at,
            });
            Vec::new()
        }
        Some(Overlay::Help) | None => Vec::new(),
    }
}

fn moved(code: KeyCode, at: usize, last: usize, rows: usize) -> usize {
    let page = rows.max(2) - 1;
    match code {
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down => (at + 1).min(last),
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => (at + page).min(last),
        _ => at.min(last),
    }
}

fn chosen_turn(
    app: &mut App,
    purpose: Purpose,
    id: threadline_session::SessionId,
    end_seq: Option<u64>,
) -> Vec<Effect> {
    match (purpose, end_seq) {
        // A running turn is forked where it is.
        (Purpose::Fork, at) => vec![Effect::Fork { id, at }],
        (Purpose::Rewind, Some(to)) => vec![Effect::Rewind { id, to }],
        (Purpose::Rewind, None) => {
            app.note(Tone::Warning, "This turn has not ended.");
            Vec::new()
        }
    }
}

fn queue_key(app: &mut App, key: KeyEvent, at: usize) -> Vec<Effect> {
    let last = app.talk.facts.queue.len().saturating_sub(1);
    let (rows, _) = draw::talk_view(app);
    let at = moved(key.code, at, last, rows);
    let chosen = app.talk.facts.queue.get(at).cloned();
    match (key.code, chosen, app.talk.id.clone()) {
        (KeyCode::Char('e') | KeyCode::Enter, Some(queued), _) => {
            app.talk.composer.set(plain_text(&queued.content));
            app.talk.composer.editing = Some(queued.message_id);
            app.talk.answering = false;
            app.note(
                Tone::Plain,
                "Change the message; Enter puts it in its place, Esc leaves it as it was.",
            );
            return Vec::new();
        }
        (KeyCode::Char('d') | KeyCode::Delete, Some(queued), Some(id)) => {
            app.talk.overlay = Some(Overlay::Queue(at));
            return vec![Effect::Withdraw {
                id,
                message_id: queued.message_id,
            }];
        }
        (KeyCode::Char('s'), Some(_), Some(id)) if !app.talk.runs() => {
            let run = Box::new(app.talk.run_input(String::new()));
            return vec![Effect::Deliver { id, run }];
        }
        _ => app.talk.overlay = Some(Overlay::Queue(at)),
    }
    Vec::new()
}
