//! What completes a log that ended in the middle of a turn.

use crate::{
    Event, EventError, OpenCall, Payload, Transcript,
    payload::{
        ApprovalDecided, ContentPart, Decision, EndReason, Outcome, StepEnd, ToolResult, TurnEnd,
    },
};

/// How the text of every synthetic tool result begins.
pub const INTERRUPTED_MARK: &str = "Error [SESSION_RESUME_INTERRUPTED]:";

/// Returns the events that close what a dead run left open; empty when nothing is open.
///
/// In order: the partial answer as an interrupted message, undecided approvals as expired, one
/// synthetic result per unanswered call in call order, the end of the open step, the end of the
/// turn. All carry the time of the last real event, so closing twice, or on two machines, gives
/// the same bytes.
///
/// # Errors
/// [`EventError`] when a payload does not serialize, which no input is known to cause.
pub fn closers(transcript: &Transcript) -> Result<Vec<Event>, EventError> {
    let payloads = closing(transcript, &EndReason::Interrupted, "recovery", |call| {
        if call.started {
            (
                Outcome::Unknown,
                format!(
                    "{INTERRUPTED_MARK} this tool call was running when the run on this session \
                     ended, so its outcome is unknown. It may have taken effect in whole, in part \
                     or not at all. Check the current state before you call the tool again."
                ),
            )
        } else {
            (
                Outcome::NotStarted,
                format!(
                    "{INTERRUPTED_MARK} this tool call was never started, because the run on this \
                     session ended first. Nothing was executed, and it is safe to call the tool \
                     again."
                ),
            )
        }
    });
    let first = transcript.next_seq();
    payloads
        .iter()
        .zip(first..)
        .map(|(payload, seq)| Event::new(seq, transcript.last_time(), payload))
        .collect()
}

/// Returns what ends the open turn for a reason, answering every open call as `answer` says.
/// Empty when nothing is open. A run that ends early uses it as recovery does, so that both leave
/// logs of one shape.
pub fn closing(
    transcript: &Transcript,
    reason: &EndReason,
    by: &str,
    answer: impl Fn(&OpenCall) -> (Outcome, String),
) -> Vec<Payload> {
    let mut payloads = Vec::new();
    if let Some(message) = transcript.partial_message() {
        payloads.push(Payload::AssistantMessage(message));
    }
    for pending in transcript.pending_approvals() {
        payloads.push(Payload::ApprovalDecided(ApprovalDecided {
            approval_id: pending.asked.approval_id.clone(),
            decision: Decision::Expired,
            by: by.into(),
            comment: None,
            prefix: None,
        }));
    }
    for call in transcript.open_calls() {
        let (outcome, text) = answer(&call);
        payloads.push(Payload::ToolResult(ToolResult {
            call_id: call.call_id,
            name: call.name,
            content: vec![ContentPart::text(text)],
            is_error: true,
            outcome,
            full: None,
            synthetic: true,
        }));
    }
    if let Some(step) = transcript.open_step() {
        payloads.push(Payload::StepEnd(StepEnd {
            turn: step.turn,
            step: step.step,
            usage: None,
        }));
    }
    if let Some(turn) = transcript.open_turn() {
        payloads.push(Payload::TurnEnd(TurnEnd {
            turn: turn.turn,
            reason: reason.clone(),
        }));
    }
    payloads
}
