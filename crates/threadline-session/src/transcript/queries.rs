//! What a transcript tells.

use std::sync::Arc;

use super::{Held, Transcript, parse_item};
use crate::{
    SessionGrant,
    payload::{EndReason, SystemPrompt, TurnContext},
    state::{Facts, Item, OpenCall, OpenStep, OpenTurn, PendingApproval, Queued, Status},
    surface::{Place, Slot, SlotKind},
};

impl Transcript {
    /// Returns the sequence number the next event must have.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns the time of the last event, unix milliseconds.
    #[must_use]
    pub fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Returns the open turn.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.open_turn.as_ref()
    }

    /// Returns the open step.
    #[must_use]
    pub fn open_step(&self) -> Option<&OpenStep> {
        self.open_step.as_ref()
    }

    /// Returns the number of the last turn begun; 0 before the first.
    #[must_use]
    pub fn last_turn(&self) -> u64 {
        self.last_turn
    }

    /// Returns the number of the last step begun; 0 before the first.
    #[must_use]
    pub fn last_step(&self) -> u64 {
        self.last_step
    }

    /// Returns what the last turn ran under.
    #[must_use]
    pub fn context(&self) -> Option<&TurnContext> {
        self.context.as_ref()
    }

    /// Returns what lists show.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns approvals that nobody has decided.
    #[must_use]
    pub fn pending_approvals(&self) -> &[PendingApproval] {
        &self.approvals
    }

    /// Returns what is approved for the rest of the session, oldest first. Moving the head back
    /// before a grant ends it for good.
    #[must_use]
    pub fn session_grants(&self) -> &[SessionGrant] {
        self.granted.all()
    }

    /// Returns messages that wait for their turn, oldest first.
    #[must_use]
    pub fn inbox(&self) -> &[Queued] {
        &self.inbox
    }

    /// Returns the event to which a redo moves the history: where it was before the last rewind,
    /// unless something was built upon that.
    #[must_use]
    pub fn redo_target(&self) -> Option<u64> {
        self.undone.last().copied()
    }

    /// Returns which of the [`missing`](Self::missing) hold calls without a result.
    #[must_use]
    pub fn missing_calls(&self) -> Vec<(u64, Place)> {
        let open = |slot: &&Slot| slot.calls.iter().any(|call| call.result.is_none());
        self.surface
            .slots()
            .iter()
            .filter(open)
            .map(|slot| (slot.seq, slot.place))
            .filter(|(seq, _)| !self.items.contains_key(seq))
            .collect()
    }

    /// Returns how the session stands.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.open_turn.is_some() {
            return if self.approvals.is_empty() {
                Status::Running
            } else {
                Status::Waiting
            };
        }
        match self.facts.last_reason {
            Some(EndReason::Interrupted) => Status::Interrupted,
            _ => Status::Idle,
        }
    }

    /// Returns the system prompt and tools in force.
    #[must_use]
    pub fn system(&self) -> Option<Arc<SystemPrompt>> {
        let slot = self
            .surface
            .slots()
            .iter()
            .rev()
            .find(|slot| slot.kind == SlotKind::System)?;
        match self.item(slot.seq) {
            Some(Item::System(prompt)) => Some(prompt),
            _ => None,
        }
    }

    /// Returns the surface: model-visible items in order with their sequence numbers, each tool
    /// result right after its assistant message and in call order. The system prompt is left out,
    /// and so is what [`unheld`](Self::unheld) names.
    pub fn surface(&self) -> impl Iterator<Item = (u64, Item)> {
        self.surface
            .slots()
            .iter()
            .filter(|slot| slot.kind != SlotKind::System)
            .flat_map(Slot::events)
            .filter_map(|(seq, _)| Some((seq, self.item(seq)?)))
    }

    /// Returns the sequence numbers of the surface, the system prompt in force first.
    pub fn surface_seqs(&self) -> impl Iterator<Item = u64> {
        self.surface
            .slots()
            .iter()
            .flat_map(Slot::events)
            .map(|(seq, _)| seq)
    }

    /// Returns the first event on the surface whose content is not held or cannot be parsed.
    #[must_use]
    pub fn unheld(&self) -> Option<u64> {
        self.surface_seqs().find(|seq| match self.items.get(seq) {
            None => true,
            Some(Held::Item(_)) => false,
            Some(Held::Raw(line)) => parse_item(line).is_none(),
        })
    }

    /// Returns calls on the surface that have no result, in call order.
    #[must_use]
    pub fn open_calls(&self) -> Vec<OpenCall> {
        self.surface
            .open_calls()
            .filter_map(|(place, slot)| {
                let Some(Item::Assistant(message)) = self.item(place.assistant) else {
                    return None;
                };
                let call = message.calls().nth(place.index)?;
                Some(OpenCall {
                    key: place.into(),
                    call_id: call.call_id.into(),
                    name: call.name.into(),
                    arguments: call.arguments.into(),
                    started: slot.may_have_run(),
                })
            })
            .collect()
    }
}
