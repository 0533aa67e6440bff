//! What the state of a session is told in.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    RunId,
    payload::{
        self, ApprovalAsked, AssistantMessage, ChunkKind, CompactionSummary, ContentPart, Delivery,
        EndReason, ModelRef, PayloadError, RequestMark, SystemPrompt, ToolResult, Usage,
        UserMessage,
    },
    surface::CallPlace,
};

/// A model-visible item.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// System prompt and tools.
    System(Arc<SystemPrompt>),
    /// A user message.
    User(Arc<UserMessage>),
    /// An assistant message.
    Assistant(Arc<AssistantMessage>),
    /// A tool's result.
    ToolResult(Arc<ToolResult>),
    /// The summary that stands for compacted items.
    Summary(Arc<CompactionSummary>),
}

/// Says why an event cannot be applied. The transcript is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The event is not the next one.
    #[error("event {found} stands where event {expected} belongs")]
    OutOfOrder {
        /// Sequence number that belongs there.
        expected: u64,
        /// Sequence number found.
        found: u64,
    },
    /// A known type with data that cannot be read.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The head moves to a point before what is kept in memory. Supply the surface of that point
    /// with [`Transcript::supply_past`](crate::transcript::Transcript::supply_past) and apply the event again.
    #[error("event {seq} moves the history to event {target}, which is not kept in memory")]
    Past {
        /// The event.
        seq: u64,
        /// Where the head moves to.
        target: u64,
    },
    /// A batch moves the head more than once.
    #[error("event {seq} moves the history a second time in one batch: append it on its own")]
    HeadsInBatch {
        /// The second event that does.
        seq: u64,
    },
    /// A type this version does not know, and that may not be passed over.
    #[error(
        "event {seq} has the type {kind}, which this threadline does not know and may not pass over: upgrade it, or register the type"
    )]
    UnknownType {
        /// The event.
        seq: u64,
        /// Its type.
        kind: String,
    },
}

/// What applying an event changed, for read models.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A turn began.
    TurnStarted,
    /// The open turn ended.
    TurnEnded(EndReason),
    /// A step began.
    StepStarted,
    /// A step ended.
    StepEnded,
    /// An item joined the surface.
    Item(Item),
    /// Streamed pieces arrived.
    Chunk(Vec<payload::ChunkPart>),
    /// A call is about to run.
    CallStarted(CallKey, payload::ToolStart),
    /// Live output of a call arrived.
    CallOutput(Option<CallKey>, payload::ToolOutput),
    /// A call was answered; `None` for a result that belongs to no open call.
    CallAnswered(Option<CallKey>, Arc<ToolResult>),
    /// A person is asked about a call.
    ApprovalAsked(Option<CallKey>, ApprovalAsked),
    /// An approval was decided.
    ApprovalDecided(Option<CallKey>, payload::ApprovalDecided),
    /// What is approved for the session changed.
    Grants,
    /// The inbox changed.
    Inbox,
    /// The head moved.
    Head(payload::HistoryHead),
    /// A model call failed.
    Trouble(&'static str, payload::ModelTrouble),
    /// A child session has used something.
    SubagentUsed,
    /// Nothing that this version shows.
    Nothing,
}

/// Identifies a call: the assistant message and the position among its calls. Call ids may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Sequence number of the assistant message.
    pub assistant_seq: u64,
    /// Position among the message's calls.
    pub index: usize,
}

impl From<CallPlace> for CallKey {
    fn from(place: CallPlace) -> Self {
        Self {
            assistant_seq: place.assistant,
            index: place.index,
        }
    }
}

/// The open turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// Turn number.
    pub turn: u64,
    /// Its run.
    pub run_id: RunId,
    /// Its first event.
    pub start_seq: u64,
    /// When it began, unix milliseconds.
    pub started_at: u64,
}

/// The open step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenStep {
    /// The turn it belongs to.
    pub turn: u64,
    /// Step number.
    pub step: u64,
    /// Its request.
    pub request: RequestMark,
    pub(crate) parts: Vec<(u32, ChunkKind, String)>,
    pub(crate) message_logged: bool,
}

/// What a model is not sent any more because its provider refused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) model: ModelRef,
    /// Images, by their blobs.
    pub(crate) blobs: BTreeSet<String>,
    /// Opaque items logged before this event.
    pub(crate) opaque_before: u64,
}

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// Where it stands.
    pub key: CallKey,
    /// The provider's id.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Whether the call ran or may have: `tool/start` was logged, or the head has moved back to
    /// where the call has no result.
    pub started: bool,
}

/// An approval without a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// Event that asked.
    pub seq: u64,
    /// When it asked, unix milliseconds.
    pub time: u64,
    /// The question.
    pub asked: ApprovalAsked,
}

/// A message that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// Identifies it.
    pub message_id: String,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// When it is delivered.
    pub delivery: Delivery,
}

/// How a session stands, as far as its log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No turn is open.
    Idle,
    /// A turn is open.
    Running,
    /// A turn is open and waits for a person.
    Waiting,
    /// The last turn was interrupted.
    Interrupted,
}

/// What lists show of a session, derived from its log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Text of the first message a person wrote, shortened.
    pub first_prompt: Option<String>,
    /// Turns begun.
    pub turns: u64,
    /// Events in the log.
    pub events: u64,
    /// Time of the last event, unix milliseconds.
    pub updated_at: u64,
    /// Tokens of all model calls; never falls.
    pub usage: Usage,
    /// Tokens of the sessions of subagents, as far as this log tells; never falls.
    pub subagents: Usage,
    /// Turns that ended as completed.
    pub completed: u64,
    /// Time that ended turns took together, in milliseconds.
    pub active_ms: u64,
    /// Reason of the last finished turn.
    pub last_reason: Option<EndReason>,
}
