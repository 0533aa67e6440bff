//! What lists show of a session.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use threadline_session::{
    Parent, SessionId, Status,
    payload::{ModelRef, Usage},
};

/// A title that a model made. One that a person gives stands before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MadeTitle {
    /// The title.
    pub text: String,
    /// Who made it.
    pub model: ModelRef,
    /// Tokens that it took, which are no part of the session's own.
    #[serde(default)]
    pub usage: Usage,
}

/// What people set. Everything else in a summary is derived from the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserSummary {
    /// Title that a person gave.
    pub title: Option<String>,
    /// Title that a model made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_title: Option<Box<MadeTitle>>,
    /// Whether it is put away.
    pub archived: bool,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Tags.
    pub tags: Vec<String>,
    /// Counts the changes.
    pub revision: u64,
    /// Where the damaged file is, when what people had set cannot be read. It is moved aside, not
    /// erased, by the next change.
    #[serde(skip)]
    pub damaged: Option<String>,
}

/// A change of what people set; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummaryPatch {
    /// Sets or (with `Some(None)`) removes the title.
    pub title: Option<Option<String>>,
    /// Archives or takes out again.
    pub archived: Option<bool>,
    /// Pins or unpins.
    pub pinned: Option<bool>,
    /// Replaces the tags.
    pub tags: Option<Vec<String>>,
}

/// What is promised once an append is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Synced at every barrier: before the model, before a tool, before the next request, before
    /// "done".
    #[default]
    Step,
    /// Synced at every append.
    Event,
    /// Never synced: survives the death of the process, not of the machine.
    Os,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// No turn is open.
    Idle,
    /// A live writer has a turn open.
    Running,
    /// A live writer waits for a person.
    Waiting,
    /// The last turn was cut short.
    Interrupted,
    /// The log is damaged: it can be shown, not continued.
    Damaged,
    /// The log is of a version that this program cannot continue.
    Unsupported,
    /// The session was there and its files are gone, without having been deleted here.
    Missing,
}

impl SessionStatus {
    pub(crate) fn of(status: Status, written_now: bool) -> Self {
        match (status, written_now) {
            (Status::Idle, _) => Self::Idle,
            (Status::Interrupted, _) | (Status::Running | Status::Waiting, false) => {
                Self::Interrupted
            }
            (Status::Running, true) => Self::Running,
            (Status::Waiting, true) => Self::Waiting,
        }
    }
}

/// Why a session cannot be used in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryError {
    /// `damaged`, `unsupported`, `unreadable` or `missing`.
    pub code: Cow<'static, str>,
    /// One sentence.
    pub message: String,
    /// File of the damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Byte offset of the damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Sequence number of the damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// A row of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// Title that a person gave, else the one that a model made.
    pub title: Option<String>,
    /// Title that a model made, also when a person gave another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_title: Option<MadeTitle>,
    /// First message that a person wrote, shortened.
    pub first_prompt: Option<String>,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Time of the last event, unix milliseconds.
    pub updated_at: u64,
    /// Turns begun.
    pub turns: u64,
    /// Events in the log.
    pub events: u64,
    /// How it stands.
    pub status: SessionStatus,
    /// Working directory, as text for people.
    pub cwd: String,
    /// Model of the last turn.
    pub model: Option<ModelRef>,
    /// Tokens of all model calls.
    pub usage: Usage,
    /// Tokens of the sessions of its subagents, which lists show too.
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub subagent_usage: Usage,
    /// Bytes of the log.
    pub bytes: u64,
    /// Whether it is put away.
    pub archived: bool,
    /// Whether it is pinned.
    pub pinned: bool,
    /// Tags.
    pub tags: Vec<String>,
    /// Counts the changes of what people set.
    pub revision: u64,
    /// What it was forked from.
    pub parent: Option<Parent>,
    /// What an acknowledged append promises.
    pub durability: Durability,
    /// Why it cannot be used in full.
    pub error: Option<SummaryError>,
    /// Where the damaged file is, when what people had set cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub people_damaged: Option<String>,
}
