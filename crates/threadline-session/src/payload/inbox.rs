//! Messages that wait for a turn or a step.

use serde::{Deserialize, Serialize};

use super::ContentPart;

/// When a waiting message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// As a turn of its own, after the one that is under way.
    #[default]
    AfterTurn,
    /// At the next step of the turn that is under way; after the turn if there is none.
    NextStep,
}

/// `inbox/queued`: a message waits. The same id again puts other words in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxQueued {
    /// The message.
    pub message_id: String,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// When it is delivered.
    #[serde(default, skip_serializing_if = "Delivery::is_after_turn")]
    pub delivery: Delivery,
}

impl Delivery {
    fn is_after_turn(&self) -> bool {
        *self == Self::AfterTurn
    }
}

/// `inbox/taken` and `inbox/dropped`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxMark {
    /// The message.
    pub message_id: String,
}
