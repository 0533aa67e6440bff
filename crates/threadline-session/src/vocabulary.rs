//! Which event type has which payload, and how payloads are parsed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Event, event::types, payload::*, surrogates::replace_lone_surrogates};

/// A known event's data did not have the shape its type promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data of event {seq} ({kind}) cannot be read: {reason}")]
pub struct PayloadError {
    /// The event.
    pub seq: u64,
    /// Its type.
    pub kind: String,
    /// What is wrong.
    pub reason: String,
}

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $variant:ident($data:ty) = $name:path, $ignorable:literal;)*) => {
        /// A parsed payload.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Payload {
            $($(#[$doc])* $variant($data),)*
            /// A type this version does not know, or a plug-in's.
            Other {
                /// The type name.
                kind: String,
                /// Whether it may be passed over.
                ignorable: bool,
            },
        }

        impl Payload {
            /// Returns the type name.
            #[must_use]
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Other { kind, .. } => kind,
                }
            }

            /// Returns whether a reader that does not know the type may pass over it.
            #[must_use]
            pub fn ignorable(&self) -> bool {
                match self {
                    $(Self::$variant(_) => $ignorable,)*
                    Self::Other { ignorable, .. } => *ignorable,
                }
            }

            pub(crate) fn to_raw(&self) -> serde_json::Result<Box<RawValue>> {
                match self {
                    $(Self::$variant(data) => serde_json::value::to_raw_value(data),)*
                    Self::Other { .. } => RawValue::from_string("{}".into()),
                }
            }

            pub(crate) fn parse(event: &Event) -> Result<Self, PayloadError> {
                match event.kind.as_str() {
                    $($name => decode(event).map(Self::$variant),)*
                    _ => Ok(Self::Other { kind: event.kind.clone(), ignorable: event.ignorable }),
                }
            }

            /// Returns whether this version knows the type.
            #[must_use]
            pub fn is_known(kind: &str) -> bool {
                [$($name),*].contains(&kind)
            }
        }
    };
}

vocabulary! {
    /// A turn begins.
    TurnStart(TurnStart) = types::TURN_START, false;
    /// A turn ends.
    TurnEnd(TurnEnd) = types::TURN_END, false;
    /// A model call begins.
    StepStart(StepStart) = types::STEP_START, false;
    /// A step ends, its tools included.
    StepEnd(StepEnd) = types::STEP_END, false;
    /// The system prompt and tools from here on.
    SystemPrompt(SystemPrompt) = types::SYSTEM_PROMPT, false;
    /// Something said to the model.
    UserMessage(UserMessage) = types::USER_MESSAGE, false;
    /// A piece of the answer as it streamed.
    AssistantChunk(AssistantChunk) = types::ASSISTANT_CHUNK, false;
    /// The whole answer.
    AssistantMessage(AssistantMessage) = types::ASSISTANT_MESSAGE, false;
    /// A tool is about to run.
    ToolStart(ToolStart) = types::TOOL_START, false;
    /// Live output of a tool.
    ToolOutput(ToolOutput) = types::TOOL_OUTPUT, true;
    /// What a tool gave.
    ToolResult(ToolResult) = types::TOOL_RESULT, false;
    /// What a child session has used.
    SubagentUsage(SubagentUsage) = types::SUBAGENT_USAGE, true;
    /// A person is asked.
    ApprovalAsked(ApprovalAsked) = types::APPROVAL_ASKED, false;
    /// A person, or time, has answered.
    ApprovalDecided(ApprovalDecided) = types::APPROVAL_DECIDED, false;
    /// Commands are approved before they are asked for.
    ApprovalGranted(ApprovalGranted) = types::APPROVAL_GRANTED, false;
    /// What was approved for the session is asked for again.
    ApprovalRevoked(ApprovalRevoked) = types::APPROVAL_REVOKED, false;
    /// A message waits for its turn.
    InboxQueued(InboxQueued) = types::INBOX_QUEUED, false;
    /// A waiting message was taken.
    InboxTaken(InboxMark) = types::INBOX_TAKEN, false;
    /// A waiting message was withdrawn.
    InboxDropped(InboxMark) = types::INBOX_DROPPED, false;
    /// Part of the history is replaced by a summary.
    CompactionSummary(CompactionSummary) = types::COMPACTION_SUMMARY, false;
    /// The history moves to an earlier or later point.
    HistoryHead(HistoryHead) = types::HISTORY_HEAD, false;
    /// A provider refused part of the history, which it is not sent any more.
    ItemRejected(ItemRejected) = types::ITEM_REJECTED, false;
    /// A model call failed and is tried again.
    ModelRetry(ModelTrouble) = types::MODEL_RETRY, true;
    /// A model call failed for good.
    ModelError(ModelTrouble) = types::MODEL_ERROR, true;
}

fn decode<T: for<'a> Deserialize<'a>>(event: &Event) -> Result<T, PayloadError> {
    let text = event.data.get();
    match serde_json::from_str(text) {
        Ok(data) => Ok(data),
        Err(first) => {
            // A lone surrogate escape is valid JSON text but no Rust string. One such character
            // must not make a session unreadable (field reports 74 and 79).
            let mended = replace_lone_surrogates(text);
            let retry = match &mended {
                Cow::Borrowed(_) => Err(first),
                Cow::Owned(text) => serde_json::from_str(text),
            };
            retry.map_err(|e| PayloadError {
                seq: event.seq,
                kind: event.kind.clone(),
                reason: e.to_string(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_a_lone_surrogate_is_readable() {
        let event = Event::from_json(
            0,
            0,
            types::USER_MESSAGE,
            r#"{"content":[{"type":"text","text":"a\ud800b"}],"source":"user"}"#,
            false,
        )
        .unwrap();
        let Payload::UserMessage(message) = event.payload().unwrap() else {
            panic!("wrong type")
        };
        assert_eq!(plain_text(&message.content), "a\u{fffd}b");
    }
}
