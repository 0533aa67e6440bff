//! The state at one point of a log as bytes, so that going on need not read what lies before.
//!
//! It holds no content: of each item on the surface only its number and the place of its line.
//! It is a cache and never the truth. Bytes that are not what this very version wrote are refused,
//! and the log is read instead.
//!
//! Layout: the length of the JSON part (4 bytes, little endian), the JSON part, the surface in
//! postcard's encoding.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Facts, PendingApproval, Transcript,
    payload::{ApprovalAsked, TurnContext},
    state::{OpenStep, OpenTurn, Queued, Refused},
    surface::{Slot, Surface},
};

/// Changes with the shape of what is written here, or with what the reducer makes of an event.
const REVISION: u32 = 3;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frozen {
    app: String,
    revision: u32,
    next_seq: u64,
    last_time: u64,
    open_turn: Option<OpenTurn>,
    open_step: Option<OpenStep>,
    last_turn: u64,
    last_step: u64,
    context: Option<TurnContext>,
    approvals: Vec<PendingApproval>,
    granted: Vec<ApprovalAsked>,
    inbox: Vec<Queued>,
    undone: Vec<u64>,
    facts: Facts,
    refused: Vec<Refused>,
    relied_on: BTreeSet<String>,
}

/// Says why bytes are not a state to go on from. The log has the truth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThawError {
    /// They are not such bytes, or another version wrote them.
    #[error("the state kept beside the log is of no use: {reason}")]
    Useless {
        /// What is wrong.
        reason: String,
    },
    /// The log holds events of types that are not registered here.
    #[error("the log relies on event types that are not registered")]
    NotRegistered,
}

impl Transcript {
    /// Returns the state as bytes. What is folded into them no head can move behind any more, so
    /// a copy is taken of it that has forgotten how it came about.
    #[must_use]
    pub fn freeze(&self) -> Vec<u8> {
        let frozen = Frozen {
            app: env!("CARGO_PKG_VERSION").into(),
            revision: REVISION,
            next_seq: self.next_seq,
            last_time: self.last_time,
            open_turn: self.open_turn.clone(),
            open_step: self.open_step.clone(),
            last_turn: self.last_turn,
            last_step: self.last_step,
            context: self.context.clone(),
            approvals: self.approvals.clone(),
            granted: self.granted.clone(),
            inbox: self.inbox.clone(),
            undone: self.undone.clone(),
            facts: self.facts.clone(),
            refused: self.refused.clone(),
            relied_on: self.relied_on.clone(),
        };
        let mut surface = Surface::starting(self.surface.slots().to_vec(), self.next_seq);
        surface.settle(self.next_seq);
        // Neither can fail: there is no map with keys that are no strings, and no unknown length.
        let json = serde_json::to_vec(&frozen).unwrap_or_default();
        let slots = postcard::to_allocvec(surface.slots()).unwrap_or_default();
        let mut bytes = Vec::with_capacity(4 + json.len() + slots.len());
        bytes.extend_from_slice(&u32::try_from(json.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(&slots);
        bytes
    }

    /// Goes on from frozen bytes, with the registered types of a store. No item's content is
    /// held: [`missing`](Self::missing) names what a request needs.
    ///
    /// # Errors
    /// [`ThawError`].
    pub fn thaw(bytes: &[u8], registered: Arc<BTreeSet<String>>) -> Result<Self, ThawError> {
        let useless = |reason: &str| ThawError::Useless {
            reason: reason.into(),
        };
        let (len, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| useless("too short"))?;
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let (json, slots) = rest
            .split_at_checked(len)
            .ok_or_else(|| useless("too short"))?;
        let frozen: Frozen =
            serde_json::from_slice(json).map_err(|error| useless(&error.to_string()))?;
        if frozen.revision != REVISION || frozen.app != env!("CARGO_PKG_VERSION") {
            return Err(useless("another version wrote it"));
        }
        if !frozen.relied_on.is_subset(&registered) {
            return Err(ThawError::NotRegistered);
        }
        let slots: Vec<Slot> =
            postcard::from_bytes(slots).map_err(|error| useless(&error.to_string()))?;
        Ok(Self {
            next_seq: frozen.next_seq,
            last_time: frozen.last_time,
            open_turn: frozen.open_turn,
            open_step: frozen.open_step,
            last_turn: frozen.last_turn,
            last_step: frozen.last_step,
            context: frozen.context,
            surface: Surface::starting(slots, frozen.next_seq),
            approvals: frozen.approvals,
            granted: frozen.granted,
            inbox: frozen.inbox,
            undone: frozen.undone,
            facts: frozen.facts,
            refused: frozen.refused,
            registered: Some(registered),
            relied_on: frozen.relied_on,
            ..Self::default()
        })
    }
}
