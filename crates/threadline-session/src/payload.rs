//! The vocabulary of format version 1, typed.
//!
//! Field names and meanings are the table in `docs/format.md`. A field that this version does not
//! know stays in the log untouched, because payloads are never written back.

mod approval;
mod inbox;

use serde::{Deserialize, Serialize};

pub use approval::{ApprovalAsked, ApprovalDecided, ApprovalGranted, ApprovalRevoked, Decision};
pub use inbox::{Delivery, InboxMark, InboxQueued};

pub use crate::surrogates::replace_lone_surrogates;
pub use crate::vocabulary::PayloadError;
use crate::{OsPath, RunId, SessionId, sorted};

/// How much the agent may do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalPolicy {
    /// Every tool that is not read-only is asked for.
    Strict,
    /// Only what leaves the sandbox's bounds, and shell commands, are asked for.
    OnRequest,
    /// Nothing is asked; what the sandbox forbids fails.
    Never,
}

/// What tools may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// Reading inside the working directory only.
    ReadOnly,
    /// Writing inside the working directory.
    WorkspaceWrite,
    /// Everything the process may do.
    DangerFullAccess,
}

/// What a turn ran under. Resuming restores it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnContext {
    /// Provider name, e.g. `openai-chat`.
    pub provider: String,
    /// Model name as the provider knows it.
    pub model: String,
    /// Approval policy in force.
    pub approval_policy: ApprovalPolicy,
    /// Sandbox mode in force.
    pub sandbox_mode: SandboxMode,
    /// Working directory of the tools.
    pub cwd: OsPath,
    /// Sampling temperature, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most steps this turn may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Whether no call may leave the sandbox, whatever a person would say. It is a bound of whoever
    /// runs the turn, and the one thing here that resuming does not restore.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confined: bool,
}

/// `turn/start`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnStart {
    /// 1-based turn number.
    pub turn: u64,
    /// The run.
    pub run_id: RunId,
    /// What it runs under.
    pub context: TurnContext,
}

/// A limit of a run or a session, besides steps and the length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunLimit {
    /// Time of the run.
    Time,
    /// Tokens of the run.
    RunTokens,
    /// Steps of the session.
    SessionSteps,
    /// Time of all runs of the session together.
    SessionTime,
    /// Tokens of the session.
    SessionTokens,
    /// Cost of the run.
    RunCost,
    /// Cost of the session.
    SessionCost,
    /// The same call with the same outcome again and again.
    RepeatedCalls,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EndReason {
    /// The model gave its final answer.
    Completed,
    /// A person or a signal stopped it.
    Cancelled,
    /// It needed an approval that nobody could give.
    Blocked,
    /// Something failed.
    Error {
        /// Stable code.
        code: String,
        /// One sentence for people.
        message: String,
    },
    /// It reached its step limit.
    MaxSteps,
    /// The model reached its output limit.
    MaxTokens,
    /// It, or its session, reached another limit.
    Limit {
        /// Which one.
        limit: RunLimit,
        /// One sentence for people.
        message: String,
    },
    /// The process ended first; written by recovery only.
    Interrupted,
}

impl EndReason {
    /// Returns the stable name of the kind.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
            Self::Error { .. } => "error",
            Self::MaxSteps => "max_steps",
            Self::MaxTokens => "max_tokens",
            Self::Limit { .. } => "limit",
            Self::Interrupted => "interrupted",
        }
    }
}

/// `turn/end`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// The turn.
    pub turn: u64,
    /// Why it ended.
    pub reason: EndReason,
}

/// Proof of what a step sent: the fingerprint of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMark {
    /// BLAKE3 of the canonical request, hex.
    pub fingerprint: String,
    /// History items in it.
    pub items: u64,
    /// Bytes of the canonical request.
    pub bytes: u64,
}

/// `step/start`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStart {
    /// The turn.
    pub turn: u64,
    /// 1-based step number, counted over the whole session.
    pub step: u64,
    /// What the step sends.
    pub request: RequestMark,
}

/// Tokens of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Part of the request that the provider had cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Part of the answer that was reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Adds another call's tokens; never overflows.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_input_tokens = sum(self.cached_input_tokens, other.cached_input_tokens);
        self.reasoning_tokens = sum(self.reasoning_tokens, other.reasoning_tokens);
    }

    /// Returns what is left when a part is taken out.
    #[must_use]
    pub fn minus(&self, part: &Self) -> Self {
        let sub = |a: Option<u64>, b: Option<u64>| a.map(|a| a.saturating_sub(b.unwrap_or(0)));
        Self {
            input_tokens: self.input_tokens.saturating_sub(part.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(part.output_tokens),
            cached_input_tokens: sub(self.cached_input_tokens, part.cached_input_tokens),
            reasoning_tokens: sub(self.reasoning_tokens, part.reasoning_tokens),
        }
    }

    /// Returns the tokens of requests and answers together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns whether nothing was counted.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.tokens() == 0
    }
}

/// `step/end`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEnd {
    /// The turn.
    pub turn: u64,
    /// The step.
    pub step: u64,
    /// Tokens of the step's model call, when the provider told them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(serialize_with = "sorted::serialize")]
    pub parameters: serde_json::Value,
}

/// Why a system prompt was logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemReason {
    /// The session's first.
    Initial,
    /// It or the tools differ from the one before.
    Changed,
}

/// `system/prompt`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemPrompt {
    /// The prompt.
    pub text: String,
    /// Tools offered.
    pub tools: Vec<ToolDefinition>,
    /// Why it was logged.
    pub reason: SystemReason,
}

/// A part of a user message or a tool result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image held as a blob.
    Image {
        /// MIME type.
        media_type: String,
        /// BLAKE3 of the bytes, hex.
        blob: String,
    },
    /// A kind that a newer version introduced; the model is shown a placeholder.
    #[serde(other)]
    Unknown,
}

impl ContentPart {
    /// Makes a text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// Returns the text of all text parts, joined by line feeds.
#[must_use]
pub fn plain_text(parts: &[ContentPart]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            ContentPart::Image { .. } | ContentPart::Unknown => None,
        })
        .collect();
    texts.join("\n")
}

/// Where a user message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSource {
    /// Typed for this turn.
    User,
    /// Taken from the inbox after a turn.
    Queued,
    /// Taken from the inbox in the middle of a turn.
    Steer,
    /// Written by the harness: date, folder, state.
    Context,
}

/// `user/message`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMessage {
    /// What was said.
    pub content: Vec<ContentPart>,
    /// Where it came from.
    pub source: UserSource,
}

/// The kind of a streamed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkKind {
    /// Answer text.
    Text,
    /// Reasoning text.
    Reasoning,
    /// Arguments of a tool call in the making.
    ToolArgs,
}

/// A piece of a streamed part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkPart {
    /// Position of the part in the message.
    pub index: u32,
    /// Its kind.
    pub kind: ChunkKind,
    /// The new piece.
    pub delta: String,
}

/// `assistant/chunk`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantChunk {
    /// The turn.
    pub turn: u64,
    /// The step.
    pub step: u64,
    /// What arrived.
    pub parts: Vec<ChunkPart>,
}

/// A part of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum AssistantPart {
    /// Answer text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning text as far as the provider shows it.
    Reasoning {
        /// The text.
        text: String,
    },
    /// A call of a tool.
    ToolCall {
        /// The provider's id for the call; may repeat across steps.
        call_id: String,
        /// The tool.
        name: String,
        /// Arguments as the JSON text the model wrote.
        arguments: String,
    },
    /// A kind that a newer version introduced.
    #[serde(other)]
    Unknown,
}

/// A provider and one of its models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRef {
    /// Provider name.
    pub provider: String,
    /// Model name.
    pub name: String,
}

/// Something only its issuer can read (encrypted reasoning, a signature), kept byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opaque {
    /// Who issued it, and only who gets it back.
    pub issuer: ModelRef,
    /// The issuer's own kind name.
    pub kind: String,
    /// The bytes, as text.
    pub data: String,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was finished.
    Stop,
    /// It calls tools.
    ToolCalls,
    /// It reached its output limit.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// The stream ended before the model did.
    Interrupted,
    /// Anything else the provider said.
    #[serde(other)]
    Other,
}

/// `assistant/message`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// The turn.
    pub turn: u64,
    /// The step.
    pub step: u64,
    /// Parts in order.
    pub content: Vec<AssistantPart>,
    /// Who wrote it.
    pub model: ModelRef,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Tokens, when told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the issuer needs back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<Opaque>,
    /// Whether the message was cut short and assembled from its chunks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// A tool call taken out of an assistant message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRef<'a> {
    /// The provider's id for the call.
    pub call_id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Arguments as JSON text.
    pub arguments: &'a str,
}

impl AssistantMessage {
    /// Returns the tool calls in order.
    pub fn calls(&self) -> impl Iterator<Item = CallRef<'_>> {
        self.content.iter().filter_map(|part| match part {
            AssistantPart::ToolCall {
                call_id,
                name,
                arguments,
            } => Some(CallRef {
                call_id,
                name,
                arguments,
            }),
            AssistantPart::Text { .. }
            | AssistantPart::Reasoning { .. }
            | AssistantPart::Unknown => None,
        })
    }

    /// Returns the answer text, parts joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.content
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// `tool/start`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolStart {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Working directory of this call.
    pub cwd: OsPath,
    /// Whether a person has let this one call run without the sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_sandbox: bool,
    /// The grant that made a question needless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
}

/// Which stream a piece of live output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// `tool/output`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutput {
    /// The call.
    pub call_id: String,
    /// The stream.
    pub stream: OutputStream,
    /// The new piece.
    pub delta: String,
}

/// How a tool call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was asked to.
    Ok,
    /// It failed and says how.
    Error,
    /// A person or the policy refused it.
    Denied,
    /// It took too long and was ended.
    Timeout,
    /// The run was cancelled while it ran or waited.
    Cancelled,
    /// The process ended before it began.
    NotStarted,
    /// The process ended while it ran.
    Unknown,
}

/// A reference to the full text behind a capped one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// BLAKE3 of the bytes, hex.
    pub blob: String,
}

/// `tool/result`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What the model is told.
    pub content: Vec<ContentPart>,
    /// Whether it counts as a failure.
    pub is_error: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The full text when `content` is capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<BlobRef>,
    /// Whether recovery wrote it instead of the tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}

/// `subagent/usage`: what a child session has used, its own children included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubagentUsage {
    /// The child.
    pub session_id: SessionId,
    /// Tokens that it has used since it began.
    pub usage: Usage,
    /// What of them no earlier event of this session tells of.
    pub added: Usage,
}

/// A closed range of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeqRange {
    /// First event.
    pub from_seq: u64,
    /// Last event.
    pub to_seq: u64,
}

/// `compaction/summary`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSummary {
    /// What stands for the replaced items.
    pub summary: Vec<ContentPart>,
    /// The range it replaces.
    pub replaces: SeqRange,
    /// Items inside the range that stay as they are.
    pub kept: Vec<u64>,
    /// Size of the history before.
    pub tokens_before: u64,
    /// Size of the history after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    /// Tokens of the summary call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What made it; information only, replay does not depend on it.
    pub algorithm: String,
}

/// Which way the head was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadReason {
    /// Back to an earlier point.
    Rewind,
    /// Forward again.
    Redo,
}

/// `history/head`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryHead {
    /// The history becomes what it was right after this event.
    pub seq: u64,
    /// Which way.
    pub reason: HeadReason,
}

/// What a provider refused of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedPart {
    /// Images, by their blobs.
    Images,
    /// What it had issued itself: encrypted reasoning, signatures.
    Opaque,
}

/// `item/rejected`: from here on the model is sent a placeholder for the images, and nothing of
/// the opaque items logged before. Other models still get both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemRejected {
    /// Who refused it.
    pub model: ModelRef,
    /// What.
    pub part: RejectedPart,
    /// The refused images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    /// What the provider said.
    pub message: String,
}

/// `model/retry` and `model/error`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelTrouble {
    /// 1-based attempt that failed.
    pub attempt: u32,
    /// HTTP status, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the provider said.
    pub message: String,
    /// Wait before the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// `log/lost`, the first of the events that a repair puts in the place of lost ones. The others say
/// only which the first is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLost {
    /// First lost event.
    pub from_seq: u64,
    /// Last lost event.
    pub to_seq: u64,
    /// Bytes of the log that could not be read.
    pub bytes: u64,
    /// What was wrong with them.
    pub reason: String,
}
