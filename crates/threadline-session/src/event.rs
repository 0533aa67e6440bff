//! One entry of the log.

use serde_json::value::RawValue;

use crate::{Payload, limits::MAX_TYPE_BYTES, payload::PayloadError};

/// The type names of format version 1.
pub mod types {
    #![allow(missing_docs)]
    pub const TURN_START: &str = "turn/start";
    pub const TURN_END: &str = "turn/end";
    pub const STEP_START: &str = "step/start";
    pub const STEP_END: &str = "step/end";
    pub const SYSTEM_PROMPT: &str = "system/prompt";
    pub const USER_MESSAGE: &str = "user/message";
    pub const ASSISTANT_CHUNK: &str = "assistant/chunk";
    pub const ASSISTANT_MESSAGE: &str = "assistant/message";
    pub const TOOL_START: &str = "tool/start";
    pub const TOOL_OUTPUT: &str = "tool/output";
    pub const TOOL_RESULT: &str = "tool/result";
    pub const SUBAGENT_USAGE: &str = "subagent/usage";
    pub const APPROVAL_ASKED: &str = "approval/asked";
    pub const APPROVAL_DECIDED: &str = "approval/decided";
    pub const APPROVAL_GRANTED: &str = "approval/granted";
    pub const APPROVAL_REVOKED: &str = "approval/revoked";
    pub const INBOX_QUEUED: &str = "inbox/queued";
    pub const INBOX_TAKEN: &str = "inbox/taken";
    pub const INBOX_DROPPED: &str = "inbox/dropped";
    pub const COMPACTION_SUMMARY: &str = "compaction/summary";
    pub const HISTORY_HEAD: &str = "history/head";
    pub const ITEM_REJECTED: &str = "item/rejected";
    pub const MODEL_RETRY: &str = "model/retry";
    pub const MODEL_ERROR: &str = "model/error";
    /// Written by a repair only, and passed over by everything but the read model.
    pub const LOG_LOST: &str = "log/lost";
}

/// One event. Its payload stays the JSON text it was written with.
#[derive(Debug, Clone)]
pub struct Event {
    /// Position in the logical log, contiguous from 0.
    pub seq: u64,
    /// Unix milliseconds; information only, the order is by `seq`.
    pub time: u64,
    /// Type name, `family/name`.
    pub kind: String,
    /// Payload: a JSON object on one line.
    pub data: Box<RawValue>,
    /// Whether a reader that does not know the type may pass over it.
    pub ignorable: bool,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
            && self.time == other.time
            && self.kind == other.kind
            && self.ignorable == other.ignorable
            && self.data.get() == other.data.get()
    }
}

/// Says why something cannot be an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The type name is not `family/name` of printable ASCII.
    #[error("\"{kind}\" is not an event type (expected family/name in lower-case ASCII)")]
    Type {
        /// The name given.
        kind: String,
    },
    /// The payload is not a JSON object.
    #[error("the data of a {kind} event is not a JSON object: {reason}")]
    Data {
        /// The event's type.
        kind: String,
        /// What is wrong.
        reason: String,
    },
}

impl Event {
    /// Makes an event from a typed payload.
    ///
    /// # Errors
    /// [`EventError::Data`] when the payload does not serialize.
    pub fn new(seq: u64, time: u64, payload: &Payload) -> Result<Self, EventError> {
        let kind = payload.kind();
        let data = payload.to_raw().map_err(|e| EventError::Data {
            kind: kind.into(),
            reason: e.to_string(),
        })?;
        Ok(Self {
            seq,
            time,
            kind: kind.into(),
            data,
            ignorable: payload.ignorable(),
        })
    }

    /// Makes an event of any type from JSON text, as an embedder does with `vendor/name` types.
    ///
    /// # Errors
    /// [`EventError`] when the type name or the data is not acceptable.
    pub fn from_json(
        seq: u64,
        time: u64,
        kind: &str,
        data: &str,
        ignorable: bool,
    ) -> Result<Self, EventError> {
        let bad = |reason: String| EventError::Data {
            kind: kind.into(),
            reason,
        };
        let raw = RawValue::from_string(data.trim().into()).map_err(|e| bad(e.to_string()))?;
        let event = Self {
            seq,
            time,
            kind: kind.into(),
            data: raw,
            ignorable,
        };
        event.check()?;
        Ok(event)
    }

    /// Checks what the codec relies on: a well-formed type name and an object on one line.
    ///
    /// # Errors
    /// [`EventError`] with what is wrong.
    pub fn check(&self) -> Result<(), EventError> {
        let named = self.kind.len() <= MAX_TYPE_BYTES
            && self.kind.split('/').count() >= 2
            && self.kind.split('/').all(|part| !part.is_empty())
            && self.kind.bytes().all(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || matches!(b, b'/' | b'_' | b'-' | b'.')
            });
        if !named {
            return Err(EventError::Type {
                kind: self.kind.clone(),
            });
        }
        let bad = |reason: &str| EventError::Data {
            kind: self.kind.clone(),
            reason: reason.into(),
        };
        let text = self.data.get();
        if !text.starts_with('{') {
            return Err(bad("it is not an object"));
        }
        if text.bytes().any(|b| matches!(b, b'\n' | b'\r')) {
            return Err(bad("it spans more than one line"));
        }
        Ok(())
    }

    /// Parses the payload. A type this version does not know gives [`Payload::Other`].
    ///
    /// # Errors
    /// [`PayloadError`] when a known type's data does not have its shape.
    pub fn payload(&self) -> Result<Payload, PayloadError> {
        Payload::parse(self)
    }
}
