//! What the read model consists of, and the patches that change it.

use serde::Serialize;

use crate::{
    RunId, Status,
    payload::{
        BlobRef, ChunkKind, ContentPart, Decision, EndReason, HeadReason, ModelRef, Outcome,
        SeqRange, StopReason, SystemReason, TurnContext, Usage, UserSource,
    },
};

/// The head of a turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnHead {
    /// Turn number.
    pub turn: u64,
    /// Its run.
    pub run_id: RunId,
    /// First event.
    pub start_seq: u64,
    /// Last event, once it has ended.
    pub end_seq: Option<u64>,
    /// Unix milliseconds.
    pub started_at: u64,
    /// Unix milliseconds.
    pub ended_at: Option<u64>,
    /// What it ran under.
    pub context: Option<TurnContext>,
    /// Why it ended.
    pub reason: Option<EndReason>,
    /// Tokens so far.
    pub usage: Usage,
    /// Tokens that its subagents have used, which are no part of the others.
    #[serde(skip_serializing_if = "Usage::is_zero")]
    pub subagent_usage: Usage,
}

/// A turn with its items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// The head.
    #[serde(flatten)]
    pub head: TurnHead,
    /// Items in the order they are shown.
    pub items: Vec<TurnItem>,
}

impl Turn {
    /// Returns the text of the turn's last message that has any: its answer, once it has ended.
    #[must_use]
    pub fn answer(&self) -> String {
        let texts = self.items.iter().rev().filter_map(|item| match item {
            TurnItem::Assistant(message) => Some(
                message
                    .parts
                    .iter()
                    .filter(|part| part.kind == ChunkKind::Text)
                    .map(|part| part.text.as_str())
                    .collect::<String>(),
            ),
            _ => None,
        });
        texts
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }
}

/// A streamed or final part of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewPart {
    /// Its kind; `tool_args` only while streaming.
    pub kind: ChunkKind,
    /// Its text.
    pub text: String,
}

/// An approval as shown at its call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewApproval {
    /// The question.
    pub approval_id: String,
    /// Why it was asked.
    pub reason: String,
    /// The answer.
    pub decision: Option<Decision>,
    /// Who gave it.
    pub by: Option<String>,
    /// Words that the answer may approve all commands by that begin with them; once it has, the
    /// words that it did so by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Vec<String>>,
    /// Whether the call would run without the sandbox.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside_sandbox: bool,
}

/// A tool call with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolItem {
    /// Stable id of the item.
    pub id: String,
    /// The assistant message that made the call.
    pub seq: u64,
    /// Its step.
    pub step: u64,
    /// The provider's id.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// `tool/start`.
    pub start_seq: Option<u64>,
    /// `tool/result`.
    pub result_seq: Option<u64>,
    /// Unix milliseconds.
    pub started_at: Option<u64>,
    /// Unix milliseconds.
    pub ended_at: Option<u64>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Whether it counts as a failure.
    pub is_error: bool,
    /// What the model was told.
    pub content: Vec<ContentPart>,
    /// The whole text when `content` is capped.
    pub full: Option<BlobRef>,
    /// Live output, capped at [`VIEW_OUTPUT_BYTES`](crate::limits::VIEW_OUTPUT_BYTES).
    pub output: String,
    /// Whether recovery wrote the result.
    pub synthetic: bool,
    /// The approval asked for it.
    pub approval: Option<Box<ViewApproval>>,
    /// Whether it ran without the sandbox, as a person had let it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside_sandbox: bool,
    /// The grant that made a question needless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

/// An assistant message, whole or in the making.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantItem {
    /// Stable id of the item.
    pub id: String,
    /// First event of the step while streaming, then the message.
    pub seq: u64,
    /// Its step.
    pub step: u64,
    /// Whether it is still being written.
    pub streaming: bool,
    /// Whether it was cut short.
    pub interrupted: bool,
    /// Why it ended.
    pub stop_reason: Option<StopReason>,
    /// Who wrote it.
    pub model: Option<ModelRef>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Its parts; calls are items of their own.
    pub parts: Vec<ViewPart>,
}

/// One item of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum TurnItem {
    /// System prompt.
    System {
        /// Stable id.
        id: String,
        /// Its event.
        seq: u64,
        /// Why it was logged.
        reason: SystemReason,
        /// The prompt.
        text: String,
        /// Names of the tools offered.
        tools: Vec<String>,
    },
    /// User message.
    User {
        /// Stable id.
        id: String,
        /// Its event.
        seq: u64,
        /// Where it came from.
        source: UserSource,
        /// Parts.
        content: Vec<ContentPart>,
    },
    /// Assistant message.
    Assistant(AssistantItem),
    /// Tool call.
    Tool(ToolItem),
    /// Compaction.
    Compaction {
        /// Stable id.
        id: String,
        /// Its event.
        seq: u64,
        /// What stands for the replaced items.
        summary: Vec<ContentPart>,
        /// What it replaces.
        replaces: SeqRange,
        /// Size of the history before, in tokens.
        tokens_before: u64,
        /// The same after.
        tokens_after: Option<u64>,
    },
    /// The head moved.
    Head {
        /// Stable id.
        id: String,
        /// Its event.
        seq: u64,
        /// Where to.
        to_seq: u64,
        /// Which way.
        reason: HeadReason,
    },
    /// Trouble with the model.
    Notice {
        /// Stable id.
        id: String,
        /// Its event.
        seq: u64,
        /// Event type.
        #[serde(rename = "type")]
        kind: &'static str,
        /// What the provider said.
        message: String,
        /// Attempt that failed.
        attempt: u32,
        /// HTTP status.
        status: Option<u16>,
        /// Wait before the next attempt.
        delay_ms: Option<u64>,
    },
    /// Events that were acknowledged and are lost; a repair has put this in their place.
    Lost {
        /// Stable id.
        id: String,
        /// Its event: the first of the lost ones.
        seq: u64,
        /// The events.
        events: SeqRange,
        /// Bytes of the log that could not be read.
        bytes: u64,
        /// What was wrong with them.
        reason: String,
    },
}

impl TurnItem {
    /// Returns the stable id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::System { id, .. }
            | Self::User { id, .. }
            | Self::Compaction { id, .. }
            | Self::Head { id, .. }
            | Self::Notice { id, .. }
            | Self::Lost { id, .. } => id,
            Self::Assistant(item) => &item.id,
            Self::Tool(item) => &item.id,
        }
    }
}

/// One change of the read model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Patch {
    /// Sets the head of a turn.
    Turn {
        /// The head.
        turn: TurnHead,
    },
    /// Sets an item by its id.
    Item {
        /// Turn number.
        turn: u64,
        /// The item.
        item: TurnItem,
    },
    /// Appends text to a part of an item, or to a tool's live output.
    Append {
        /// Turn number.
        turn: u64,
        /// The item.
        id: String,
        /// The part.
        part: usize,
        /// `text`, `reasoning`, `tool_args` or `output`.
        kind: &'static str,
        /// The text.
        text: String,
    },
    /// Sets how the session stands.
    Status {
        /// The status.
        status: Status,
        /// Whether a turn is open.
        running: bool,
    },
}
