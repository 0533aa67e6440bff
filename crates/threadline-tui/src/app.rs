//! The state of the whole interface: what happens goes in, what is to be done comes out. Nothing
//! here waits, reads a clock or touches a terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use threadline_agent::{Answered, ApprovalInfo, QueueInput, RunInput};
use threadline_session::{Patch, Queued, SessionId, Turn, payload::TurnContext};
use threadline_store::{ListFilter, ListPage, SessionSummary};

use crate::{
    limits::UNDO_MS,
    picker::{Picker, Wish},
    talk::{Load, Talk},
    text,
    theme::{Theme, Tone},
};

/// What went wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// One sentence.
    pub message: String,
    /// What a person can do.
    pub hint: Option<String>,
}

impl Trouble {
    /// Makes one without advice.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// Returns both in one text.
    #[must_use]
    pub fn told(&self) -> String {
        let message = text::line(&self.message, 1_000);
        match &self.hint {
            Some(hint) => format!("{message} — {}", text::line(hint, 500)),
            None => message,
        }
    }
}

/// How a session stands, as its log says now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// Whether a turn is open.
    pub open: bool,
    /// Messages that wait.
    pub queue: Vec<Queued>,
    /// What the last turn ran under.
    pub context: Option<TurnContext>,
}

/// A session that was read.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// Its title, or how it began.
    pub about: String,
    /// Its last turns.
    pub turns: Vec<Turn>,
    /// Where they begin; 0 when nothing is before.
    pub first_seq: u64,
    /// How it stands.
    pub facts: Facts,
    /// What is wrong with it, or worth knowing.
    pub notes: Vec<(Tone, String)>,
    /// What people said in it, oldest first, for the input history.
    pub said: Vec<String>,
}

/// A question to the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub info: ApprovalInfo,
    /// Whether the process that asked it is gone.
    pub offered: bool,
}

/// What happens.
#[derive(Debug)]
pub enum Msg {
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The terminal's columns and rows.
    Resize(u16, u16),
    /// Time passes.
    Tick,
    /// A page of the list.
    Listed {
        /// The list.
        generation: u64,
        /// Whether it is its first page.
        first: bool,
        /// The page.
        page: Result<ListPage, Trouble>,
    },
    /// The last turns of a session, for its preview.
    Previewed(SessionId, Result<Vec<Turn>, Trouble>),
    /// Turns to choose from.
    Choices(SessionId, Result<Vec<Turn>, Trouble>),
    /// What people set of a session was changed.
    Changed(Box<SessionSummary>),
    /// A session was deleted, or not.
    Deleted(SessionId, Result<(), Trouble>),
    /// A session was read.
    Opened(SessionId, Result<Box<Opened>, Trouble>),
    /// Turns before those that are shown, and where they begin.
    Earlier(SessionId, Result<(Vec<Turn>, u64), Trouble>),
    /// Events were appended.
    Patched(SessionId, Vec<Patch>, Option<Box<Facts>>),
    /// A run was started, in a session of this id.
    Started(SessionId),
    /// A message was not sent or not queued: its words, and why.
    NotSent(String, Trouble),
    /// What waits for the person.
    Questions(Vec<Question>),
    /// A fork was made, to be gone on with.
    Forked(SessionId, String),
    /// Something is done.
    Noted(String),
    /// Something is not as it should be, and the work goes on.
    Warned(String),
    /// Something was not done.
    Failed(Trouble),
}

/// What is to be done. What comes of it is told by a [`Msg`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// List sessions.
    List {
        /// The list.
        generation: u64,
        /// Which.
        filter: ListFilter,
        /// Where its page begins.
        cursor: Option<String>,
    },
    /// Read the last turns of a session.
    Preview {
        /// The session.
        id: SessionId,
    },
    /// Read turns to choose from.
    Choose {
        /// The session.
        id: SessionId,
    },
    /// Set or remove a title.
    Rename {
        /// The session.
        id: SessionId,
        /// The title; empty removes it.
        title: String,
    },
    /// Put a session away or take it out.
    Archive {
        /// The session.
        id: SessionId,
        /// Whether away.
        archived: bool,
    },
    /// Delete a session for good.
    Delete {
        /// The session.
        id: SessionId,
    },
    /// Fork a session.
    Fork {
        /// The session.
        id: SessionId,
        /// The last event that both have.
        at: Option<u64>,
    },
    /// Read a session and follow it.
    Open {
        /// The session.
        id: SessionId,
    },
    /// Follow no session any more.
    Close,
    /// Read turns before an event.
    Earlier {
        /// The session.
        id: SessionId,
        /// The event.
        before: u64,
    },
    /// Start a run.
    Start {
        /// Its session; a new one otherwise.
        id: Option<SessionId>,
        /// What it is asked.
        input: Box<RunInput>,
    },
    /// Queue a message.
    Queue {
        /// The session.
        id: SessionId,
        /// The message.
        input: QueueInput,
        /// What a run that it starts runs under.
        run: Box<RunInput>,
    },
    /// Withdraw a queued message.
    Withdraw {
        /// The session.
        id: SessionId,
        /// The message.
        message_id: String,
    },
    /// Start a run on what waits.
    Deliver {
        /// The session.
        id: SessionId,
        /// What it runs under.
        run: Box<RunInput>,
    },
    /// Answer a question.
    Answer {
        /// The question.
        question: Box<Question>,
        /// The answer.
        answered: Answered,
        /// What a run that it starts runs under.
        run: Box<RunInput>,
    },
    /// Stop a session's run.
    Cancel {
        /// The session.
        id: SessionId,
    },
    /// Go back to right after an event.
    Rewind {
        /// The session.
        id: SessionId,
        /// The event.
        to: u64,
    },
    /// Take the last rewind back.
    Redo {
        /// The session.
        id: SessionId,
    },
    /// Write a session down as Markdown.
    Export {
        /// The session.
        id: SessionId,
        /// The file; one named after the session otherwise.
        path: Option<String>,
    },
    /// Draw everything anew.
    Redraw,
    /// Stop the process until it is continued.
    Suspend,
    /// Leave.
    Quit,
}

/// What is told until a run that was asked to stop has.
pub(crate) const STOPPING: &str = "Stopping…";

/// A sentence at the foot of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How it is meant.
    pub tone: Tone,
    /// What it says.
    pub text: String,
}

/// What the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// The picker.
    Picker,
    /// A conversation.
    Talk,
}

/// What to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// The picker.
    Picker,
    /// A session.
    Session(SessionId),
}

#[derive(Debug)]
struct Deletion {
    id: SessionId,
    about: String,
    at_ms: u64,
}

/// The whole interface.
#[derive(Debug)]
pub struct App {
    /// What is shown.
    pub screen: Screen,
    /// The picker.
    pub picker: Picker,
    /// The conversation, also while the picker is shown.
    pub talk: Talk,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Colours.
    pub theme: Theme,
    /// The last thing that was told.
    pub notice: Option<Notice>,
    /// Whether the help of the picker is shown.
    pub help: bool,
    /// The time, unix milliseconds.
    pub now_ms: u64,
    /// What waits for the person, oldest first.
    pub questions: Vec<Question>,
    deletions: Vec<Deletion>,
    /// Whether leaving was asked for while a run goes on.
    leaving: bool,
    /// A session of which the turns to choose from were asked for, to fork it.
    forking: Option<SessionId>,
}

impl App {
    /// Makes the interface, and says what to do first.
    #[must_use]
    pub fn new(
        begin: Begin,
        cwd: String,
        model: Option<String>,
        theme: Theme,
        size: (u16, u16),
        now_ms: u64,
    ) -> (Self, Vec<Effect>) {
        let mut app = Self {
            screen: Screen::Picker,
            picker: Picker::new(cwd),
            talk: Talk::new(model),
            size,
            theme,
            notice: None,
            help: false,
            now_ms,
            questions: Vec::new(),
            deletions: Vec::new(),
            leaving: false,
            forking: None,
        };
        let effects = match begin {
            Begin::Picker => vec![app.picker.list()],
            Begin::Session(id) => app.open(id),
        };
        (app, effects)
    }

    /// Returns the session that is open, for the command that resumes it.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self.screen {
            Screen::Talk => self.talk.id.as_ref(),
            Screen::Picker => None,
        }
    }

    /// Returns whether something on the screen changes with time alone.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.deletions.is_empty() || self.picker.waits()
    }

    /// Tells something at the foot of the screen.
    pub fn note(&mut self, tone: Tone, text: impl Into<String>) {
        self.notice = Some(Notice {
            tone,
            text: text.into(),
        });
    }

    fn fail(&mut self, trouble: &Trouble) {
        self.note(Tone::Bad, trouble.told());
    }

    /// Takes what happened.
    pub fn update(&mut self, msg: Msg, now_ms: u64) -> Vec<Effect> {
        self.now_ms = now_ms;
        match msg {
            Msg::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
            Msg::Key(key) => self.key(key),
            Msg::Paste(text) => self.paste(&text),
            Msg::Resize(columns, rows) => {
                self.size = (columns, rows);
                Vec::new()
            }
            Msg::Tick => self.tick(),
            msg => self.told(msg),
        }
    }

    /// Takes what the engine tells.
    fn told(&mut self, msg: Msg) -> Vec<Effect> {
        match msg {
            Msg::Listed {
                generation,
                first,
                page,
            } => {
                let (mut effects, wish) = self.picker.listed(generation, first, page, self.now_ms);
                if let Some(wish) = wish {
                    effects.extend(self.wish(wish));
                }
                return effects;
            }
            Msg::Previewed(id, turns) => self.picker.previewed(id, turns),
            Msg::Choices(id, turns) => self.choices(id, turns),
            Msg::Changed(row) => self.changed(*row),
            Msg::Deleted(id, outcome) => self.deleted(&id, outcome),
            Msg::Opened(id, opened) => {
                if let Some(effect) = self.talk.opened(&id, opened) {
                    return vec![effect];
                }
            }
            Msg::Earlier(id, earlier) => match earlier {
                Ok((turns, first_seq)) => self.talk.earlier(&id, turns, first_seq),
                Err(trouble) => {
                    self.talk.not_earlier(&id);
                    self.fail(&trouble);
                }
            },
            Msg::Patched(id, patches, facts) => {
                let ran = self.talk.facts.open;
                self.talk.patched(&id, patches, facts);
                let stopping = self
                    .notice
                    .as_ref()
                    .is_some_and(|told| told.text == STOPPING);
                if ran && !self.talk.facts.open && stopping {
                    self.notice = None;
                }
            }
            Msg::Started(id) => return self.started(id),
            Msg::NotSent(words, trouble) => {
                self.talk.not_sent(&words);
                self.fail(&trouble);
            }
            Msg::Questions(questions) => {
                self.questions = questions;
                self.talk.asked(!self.questions.is_empty());
                if self.screen == Screen::Picker && !self.questions.is_empty() {
                    let said = "A run waits for your answer: open its session.";
                    self.note(Tone::Warning, said);
                }
            }
            Msg::Forked(id, said) => {
                let effects = self.open(id);
                self.note(Tone::Good, said);
                return effects;
            }
            Msg::Noted(said) => self.note(Tone::Good, said),
            Msg::Warned(said) => self.note(Tone::Warning, said),
            Msg::Failed(trouble) => self.fail(&trouble),
            Msg::Key(_) | Msg::Paste(_) | Msg::Resize(..) | Msg::Tick => {}
        }
        Vec::new()
    }

    fn started(&mut self, id: SessionId) -> Vec<Effect> {
        // It counts as starting until its first event is shown.
        if self.talk.id.is_none() {
            // It is read from its first event on, like any other.
            self.talk.id = Some(id.clone());
            return vec![Effect::Open { id }];
        }
        Vec::new()
    }

    fn changed(&mut self, row: SessionSummary) {
        if self.talk.id.as_ref() == Some(&row.id) {
            self.talk.about = crate::draw::about(&row);
        }
        let said = if row.archived {
            "Put away. Ctrl-T takes it out again; Ctrl-A shows what is put away."
        } else {
            "Changed."
        };
        self.note(Tone::Good, said);
        self.picker.changed(row, self.now_ms);
    }

    fn deleted(&mut self, id: &SessionId, outcome: Result<(), Trouble>) {
        match outcome {
            Ok(()) => self.picker.remove(id, self.now_ms),
            Err(trouble) => {
                self.picker.hide(id, false, self.now_ms);
                self.fail(&trouble);
            }
        }
    }

    fn choices(&mut self, id: SessionId, turns: Result<Vec<Turn>, Trouble>) {
        match turns {
            Ok(turns) if self.forking.as_ref() == Some(&id) => {
                self.forking = None;
                self.talk.choose(id, turns);
            }
            Ok(turns) => self.talk.choices(&id, turns),
            Err(trouble) => {
                self.talk.close_overlay();
                self.fail(&trouble);
            }
        }
    }

    fn open(&mut self, id: SessionId) -> Vec<Effect> {
        self.screen = Screen::Talk;
        self.notice = None;
        if self.talk.id.as_ref() == Some(&id) && matches!(self.talk.load, Load::Ready) {
            return Vec::new();
        }
        let model = self.talk.model.take();
        self.talk = Talk::new(model);
        self.talk.id = Some(id.clone());
        self.talk.load = Load::Loading;
        self.talk.asked(!self.questions.is_empty());
        vec![Effect::Open { id }]
    }

    /// Begins a new session; it comes into being with its first message.
    pub(crate) fn begin(&mut self) -> Vec<Effect> {
        self.screen = Screen::Talk;
        self.notice = None;
        let model = self.talk.model.take();
        self.talk = Talk::new(model);
        self.talk.asked(!self.questions.is_empty());
        vec![Effect::Close]
    }

    /// Shows the picker. What runs goes on.
    pub(crate) fn pick(&mut self) -> Vec<Effect> {
        self.screen = Screen::Picker;
        self.notice = None;
        vec![self.picker.list()]
    }

    /// Leaves; with a run under way only when asked twice, because leaving stops it.
    pub(crate) fn leave(&mut self) -> Vec<Effect> {
        if self.talk.runs() && !self.leaving {
            self.leaving = true;
            self.note(
                Tone::Warning,
                "A run is under way, and leaving stops it. Leave again to do so; Esc stops it now.",
            );
            return Vec::new();
        }
        let due = std::mem::take(&mut self.deletions).into_iter();
        let mut effects: Vec<Effect> = due.map(|due| Effect::Delete { id: due.id }).collect();
        effects.push(Effect::Quit);
        effects
    }

    fn tick(&mut self) -> Vec<Effect> {
        let now = self.now_ms;
        let (due, waiting) = std::mem::take(&mut self.deletions)
            .into_iter()
            .partition::<Vec<_>, _>(|deletion| deletion.at_ms <= now);
        self.deletions = waiting;
        let mut effects: Vec<Effect> = Vec::new();
        for deletion in due {
            self.note(Tone::Plain, format!("Deleted: {}", deletion.about));
            effects.push(Effect::Delete { id: deletion.id });
        }
        if self.screen == Screen::Picker {
            effects.extend(self.picker.tick(now));
        }
        effects
    }

    fn paste(&mut self, text: &str) -> Vec<Effect> {
        match self.screen {
            Screen::Picker => self.picker.paste(text).into_iter().collect(),
            Screen::Talk => {
                self.talk.paste(text);
                Vec::new()
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('z') {
            return vec![Effect::Suspend];
        }
        if control && key.code == KeyCode::Char('l') {
            return vec![Effect::Redraw];
        }
        if std::mem::take(&mut self.help) {
            return Vec::new();
        }
        let leaving = std::mem::take(&mut self.leaving);
        match self.screen {
            Screen::Picker => {
                let rows = crate::draw::picker_rows(self.size);
                let (mut effects, wish) = self.picker.key(key, rows, self.now_ms);
                if let Some(wish) = wish {
                    self.leaving = leaving;
                    effects.extend(self.wish(wish));
                }
                effects
            }
            Screen::Talk => {
                self.leaving = leaving;
                crate::keys::talk_key(self, key)
            }
        }
    }

    fn wish(&mut self, wish: Wish) -> Vec<Effect> {
        match wish {
            Wish::Open(id) => self.open(id),
            Wish::New => self.begin(),
            Wish::Fork(id) => {
                self.forking = Some(id.clone());
                self.screen = Screen::Talk;
                let mut effects = self.open(id.clone());
                effects.push(Effect::Choose { id });
                effects
            }
            Wish::Delete(id, about) => {
                if self.talk.id.as_ref() == Some(&id) && self.talk.runs() {
                    self.note(Tone::Warning, "It runs. Stop it before it is deleted.");
                    return Vec::new();
                }
                self.picker.hide(&id, true, self.now_ms);
                let seconds = UNDO_MS / 1000;
                self.note(
                    Tone::Warning,
                    format!("Deleting \"{about}\" in {seconds} s. Ctrl-B brings it back."),
                );
                self.deletions.push(Deletion {
                    id,
                    about,
                    at_ms: self.now_ms + UNDO_MS,
                });
                Vec::new()
            }
            Wish::Undo => {
                match self.deletions.pop() {
                    Some(deletion) => {
                        self.picker.hide(&deletion.id, false, self.now_ms);
                        self.note(Tone::Good, format!("Kept: {}", deletion.about));
                    }
                    None => self.note(Tone::Plain, "Nothing is being deleted."),
                }
                Vec::new()
            }
            Wish::Help => {
                self.help = true;
                Vec::new()
            }
            Wish::Leave => self.leave(),
        }
    }
}
