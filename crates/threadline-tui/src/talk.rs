//! A conversation: what is shown of a session, what is typed, and what lies over both.

use threadline_agent::{Answer, Answered, ApprovalInfo, RunInput};
use threadline_session::{
    Patch, SessionId, Turn, TurnItem, payload::UserSource, payload::plain_text,
};

use crate::{
    app::{Effect, Facts, Opened, Trouble},
    composer::Composer,
    text,
    theme::Tone,
    turns::Turns,
};

/// How far a session is read.
#[derive(Debug)]
pub enum Load {
    /// It is new: there is nothing to read.
    New,
    /// It is being read.
    Loading,
    /// It is shown.
    Ready,
    /// It cannot be read.
    Failed(Trouble),
}

/// A turn to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Turn number.
    pub turn: u64,
    /// Its last event; `None` while it runs.
    pub end_seq: Option<u64>,
    /// What was asked.
    pub asked: String,
}

/// What a turn is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To fork after it.
    Fork,
    /// To go back to after it.
    Rewind,
}

/// What lies over the conversation.
#[derive(Debug)]
pub enum Overlay {
    /// Keys and commands.
    Help,
    /// Messages that wait, and the selected one.
    Queue(usize),
    /// Turns to choose from, newest first; `None` while they are read.
    Turns {
        /// Why.
        purpose: Purpose,
        /// The session.
        id: SessionId,
        /// The turns.
        choices: Option<Vec<Choice>>,
        /// The selected one.
        at: usize,
    },
}

/// A conversation.
#[derive(Debug)]
pub struct Talk {
    /// The session; `None` before the first message of a new one.
    pub id: Option<SessionId>,
    /// Its title, or how it began.
    pub about: String,
    /// How far it is read.
    pub load: Load,
    /// Its turns.
    pub turns: Turns,
    /// Where the turns that are held begin.
    first_seq: u64,
    loading_earlier: bool,
    /// How it stands.
    pub facts: Facts,
    /// What is wrong with it, or worth knowing.
    pub notes: Vec<(Tone, String)>,
    /// The model that the next turns use, if the person chose one.
    pub model: Option<String>,
    /// Whether a run was asked for and has not begun.
    pub starting: bool,
    /// What is typed.
    pub composer: Composer,
    /// What is typed as an answer.
    pub answer: Composer,
    /// Whether keys go to the answer.
    pub answering: bool,
    /// Whether outputs, reasoning and context are shown in full.
    pub unfolded: bool,
    /// What lies over it.
    pub overlay: Option<Overlay>,
}

impl Talk {
    /// Makes the conversation of a new session.
    #[must_use]
    pub fn new(model: Option<String>) -> Self {
        Self {
            id: None,
            about: String::new(),
            load: Load::New,
            turns: Turns::default(),
            first_seq: 0,
            loading_earlier: false,
            facts: Facts::default(),
            notes: Vec::new(),
            model,
            starting: false,
            composer: Composer::default(),
            answer: Composer::default(),
            answering: false,
            unfolded: false,
            overlay: None,
        }
    }

    /// Returns whether a turn is under way.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.starting || self.facts.open
    }

    /// Returns whether turns before those held are being read.
    #[must_use]
    pub fn loads_earlier(&self) -> bool {
        self.loading_earlier
    }

    /// Returns whether there are turns before those that are held.
    #[must_use]
    pub fn has_earlier(&self) -> bool {
        self.first_seq > 0
    }

    fn is(&self, id: &SessionId) -> bool {
        self.id.as_ref() == Some(id)
    }

    /// Takes a session that was read. Asks for more if what there is fills no screen.
    pub fn opened(
        &mut self,
        id: &SessionId,
        opened: Result<Box<Opened>, Trouble>,
    ) -> Option<Effect> {
        if !self.is(id) {
            return None;
        }
        let opened = match opened {
            Ok(opened) => *opened,
            Err(trouble) => {
                self.load = Load::Failed(trouble);
                return None;
            }
        };
        self.load = Load::Ready;
        self.starting = false;
        self.about = opened.about;
        self.turns = Turns::new(opened.turns);
        self.first_seq = opened.first_seq;
        self.loading_earlier = false;
        self.facts = opened.facts;
        self.notes = opened.notes;
        for said in opened.said {
            self.composer.remember(&said);
        }
        None
    }

    /// Asks for turns before those that are held.
    pub fn want_earlier(&mut self) -> Option<Effect> {
        if self.first_seq == 0 || self.loading_earlier {
            return None;
        }
        self.loading_earlier = true;
        Some(Effect::Earlier {
            id: self.id.clone()?,
            before: self.first_seq,
        })
    }

    /// Takes turns before those that are held.
    pub fn earlier(&mut self, id: &SessionId, turns: Vec<Turn>, first_seq: u64) {
        if self.is(id) && self.loading_earlier {
            self.loading_earlier = false;
            self.first_seq = first_seq;
            self.turns.prepend(turns);
        }
    }

    /// Takes that there are none to be had.
    pub fn not_earlier(&mut self, id: &SessionId) {
        if self.is(id) {
            self.loading_earlier = false;
        }
    }

    /// Takes what was appended.
    pub fn patched(&mut self, id: &SessionId, patches: Vec<Patch>, facts: Option<Box<Facts>>) {
        if !self.is(id) {
            return;
        }
        for patch in patches {
            self.turns.apply(patch);
        }
        if let Some(facts) = facts {
            if facts.open {
                // What was worth knowing when it was opened is closed by now.
                self.notes.clear();
            }
            self.starting = false;
            self.facts = *facts;
        }
        if let Some(Overlay::Queue(at)) = &mut self.overlay {
            *at = (*at).min(self.facts.queue.len().saturating_sub(1));
        }
    }

    /// Follows the end again; what was let go of there is read anew.
    pub fn to_end(&mut self) -> Option<Effect> {
        let hole = self.turns.has_hole();
        self.turns.to_end();
        let id = self.id.clone().filter(|_| hole)?;
        Some(Effect::Open { id })
    }

    /// Takes back what could not be sent.
    pub fn not_sent(&mut self, words: &str) {
        self.starting = false;
        if self.composer.is_empty() {
            self.composer.set(words);
        }
    }

    /// Takes that questions wait, or none any more. What is being typed is not taken away.
    pub fn asked(&mut self, waits: bool) {
        if !waits {
            self.answering = false;
            self.answer.set("");
        } else if self.composer.is_empty() {
            self.answering = true;
        }
    }

    /// Takes pasted text.
    pub fn paste(&mut self, text: &str) {
        if self.answering {
            self.answer.insert(&text.replace(['\n', '\r'], " "));
        } else {
            self.composer.insert(text);
        }
    }

    /// Returns what a run runs under besides its task.
    #[must_use]
    pub fn run_input(&self, task: String) -> RunInput {
        RunInput {
            task,
            model: self.model.clone(),
            ..RunInput::default()
        }
    }

    /// Shows turns to choose from, which are yet to come.
    pub fn open_choices(&mut self, purpose: Purpose, id: SessionId) -> Effect {
        self.overlay = Some(Overlay::Turns {
            purpose,
            id: id.clone(),
            choices: None,
            at: 0,
        });
        Effect::Choose { id }
    }

    /// Shows turns to fork from.
    pub fn choose(&mut self, id: SessionId, turns: Vec<Turn>) {
        self.overlay = Some(Overlay::Turns {
            purpose: Purpose::Fork,
            id,
            choices: Some(choices(turns)),
            at: 0,
        });
    }

    /// Takes the turns to choose from.
    pub fn choices(&mut self, session: &SessionId, turns: Vec<Turn>) {
        if let Some(Overlay::Turns {
            id, choices: known, ..
        }) = &mut self.overlay
            && id == session
        {
            *known = Some(choices(turns));
        }
    }

    /// Shows the conversation alone.
    pub fn close_overlay(&mut self) {
        self.overlay = None;
    }
}

fn choices(turns: Vec<Turn>) -> Vec<Choice> {
    let choice = |turn: Turn| Choice {
        turn: turn.head.turn,
        end_seq: turn.head.end_seq,
        asked: said(&turn)
            .next()
            .map_or_else(|| "(no message)".to_owned(), |said| text::line(&said, 120)),
    };
    turns.into_iter().rev().map(choice).collect()
}

/// Returns what a person said in a turn.
pub(crate) fn said(turn: &Turn) -> impl Iterator<Item = String> {
    turn.items.iter().filter_map(|item| match item {
        TurnItem::User {
            source: UserSource::User | UserSource::Queued | UserSource::Steer,
            content,
            ..
        } => Some(plain_text(content)),
        _ => None,
    })
}

/// Reads an answer to a question: a word, and what the person adds for the model. What the question
/// does not offer is no answer to it.
#[must_use]
pub fn read_answer(line: &str, info: &ApprovalInfo) -> Option<Answered> {
    let line = line.trim();
    let (word, rest) = line
        .split_once(|c: char| c.is_whitespace() || c == ',')
        .unwrap_or((line, ""));
    // For the session nobody leaves the sandbox.
    let lasting = !info.outside_sandbox;
    let (answer, prefix) = match word.to_lowercase().as_str() {
        "y" | "yes" => (Answer::Approve, None),
        "n" | "no" => (Answer::Deny, None),
        "s" | "session" if lasting => (Answer::ApproveForSession, None),
        "a" | "all" if lasting && info.prefix.is_some() => {
            (Answer::ApproveForSession, info.prefix.clone())
        }
        _ => return None,
    };
    let comment = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    Some(Answered {
        answer,
        by: "terminal".into(),
        comment,
        prefix,
    })
}

/// Returns what a question can be answered with.
#[must_use]
pub fn answers(info: &ApprovalInfo) -> String {
    if info.outside_sandbox {
        return "y (yes, this once) or n (no)".into();
    }
    let all = info.prefix.as_ref().map_or(String::new(), |words| {
        let words = text::line(&words.join(" "), 100);
        format!(", a (all that begin with `{words}`)")
    });
    format!("y (yes), s (yes, for the session){all} or n (no)")
}
