//! What of a recorded turn the loop runs again, and what is taken over from the log.

use std::{collections::BTreeSet, ops::Range};

use serde_json::Value;
use threadline_model::ModelError;
use threadline_session::{
    Event, Payload,
    payload::{EndReason, ModelTrouble, TurnContext, TurnStart, UserSource},
    types,
};

use crate::policy::{self, Effect, Verdict, judge};

/// Part of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// It is appended as it was recorded.
    Given(Range<usize>),
    /// The loop makes it again.
    Driven {
        events: Range<usize>,
        /// Rounds of the loop that the turn has behind it.
        rounds: u32,
    },
}

/// How a turn is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// What is taken over, where from, and why.
    pub(super) notes: Vec<(usize, String)>,
    /// Where what recovery appended begins, if that ended the turn.
    pub(super) closers: Option<usize>,
}

impl Plan {
    fn given(events: usize, why: String) -> Self {
        Self {
            parts: vec![Part::Given(0..events)],
            notes: vec![(0, why)],
            closers: None,
        }
    }

    /// Plans a turn whose first event is its start. `knows` says whether this program has a tool.
    pub(super) fn new(payloads: &[Payload], knows: impl Fn(&str) -> bool) -> Self {
        let all = payloads.len();
        if !payloads.iter().any(|p| matches!(p, Payload::StepStart(_))) {
            return Self::given(all, without_steps(payloads).into());
        }
        if let Some(name) = unknown_tool(payloads, knows) {
            return Self::given(all, format!("this program has no tool named `{name}`"));
        }
        let (closing, why) = closing(payloads);
        let mut walk = Walk {
            payloads,
            closing,
            calling: false,
            open: 0,
            running: 0,
            rounds: 0,
            parts: vec![Part::Given(0..beginning(payloads))],
            notes: Vec::new(),
        };
        if let Err(kind) = walk.all() {
            let why = format!("`{kind}` came from outside in the middle of the calls of a step");
            return Self::given(all, why);
        }
        let Walk {
            mut parts,
            mut notes,
            ..
        } = walk;
        let covered = match parts.last() {
            Some(Part::Given(events) | Part::Driven { events, .. }) => events.end,
            None => 0,
        };
        if covered < all {
            parts.push(Part::Given(covered..all));
        }
        if closing < all
            && let Some(why) = why
        {
            notes.push((closing, why));
        }
        let interrupted = matches!(
            payloads.last(),
            Some(Payload::TurnEnd(end)) if end.reason == EndReason::Interrupted
        );
        Self {
            parts,
            notes,
            closers: interrupted.then_some(closing),
        }
    }
}

struct Walk<'a> {
    payloads: &'a [Payload],
    /// Where the part begins that ends the turn from outside.
    closing: usize,
    /// Whether the model is being asked.
    calling: bool,
    /// Calls without a result, and those of them that run.
    open: usize,
    running: usize,
    rounds: u32,
    parts: Vec<Part>,
    notes: Vec<(usize, String)>,
}

impl Walk<'_> {
    /// # Errors
    /// The type of an event that the loop cannot be stopped for.
    fn all(&mut self) -> Result<(), String> {
        let mut from = beginning(self.payloads);
        let mut rounds = 0;
        let mut at = from;
        while at < self.closing {
            if self.passes(at) {
                at += 1;
                continue;
            }
            let payload = &self.payloads[at];
            let failed = matches!(payload, Payload::ModelError(_));
            if !failed && (self.calling || self.open > 0) {
                return Err(payload.kind().to_owned());
            }
            self.drive(from..at, rounds);
            self.notes.push((at, reason(payload).into()));
            let rest = &self.payloads[at..self.closing];
            let next = rest.iter().position(|p| matches!(p, Payload::StepStart(_)));
            from = next.map_or(self.closing, |next| at + next);
            if waits(&self.payloads[at..from]) {
                // It came while a step began, and the loop would deliver it now.
                from = self.closing;
            }
            self.parts.push(Part::Given(at..from));
            (at, rounds) = (from, self.rounds);
            (self.calling, self.open, self.running) = (false, 0, 0);
        }
        self.drive(from..self.closing, rounds);
        Ok(())
    }

    fn drive(&mut self, events: Range<usize>, rounds: u32) {
        if !events.is_empty() {
            self.parts.push(Part::Driven { events, rounds });
        }
    }

    /// Returns whether the loop, or what it runs, brings about the event.
    fn passes(&mut self, at: usize) -> bool {
        match &self.payloads[at] {
            Payload::StepStart(_) => self.calling = true,
            Payload::AssistantMessage(message) => {
                self.calling = false;
                self.rounds += 1;
                self.open = message.calls().count();
            }
            Payload::ToolStart(_) => self.running += 1,
            Payload::ToolResult(_) => {
                self.open = self.open.saturating_sub(1);
                self.running = self.running.saturating_sub(1);
            }
            Payload::StepEnd(_)
            | Payload::TurnEnd(_)
            | Payload::ApprovalAsked(_)
            | Payload::ApprovalDecided(_) => {}
            Payload::AssistantChunk(_) | Payload::ModelRetry(_) => return self.calling,
            Payload::ModelError(trouble) => {
                return self.calling
                    && ends_the_turn(self.payloads, at)
                    && again(trouble).is_some();
            }
            // Something that goes on in the background may still have something to say.
            Payload::ToolOutput(_) => return self.calling || self.running > 0,
            // What waits is delivered between two steps.
            Payload::InboxTaken(_) => return !self.calling && self.open == 0,
            Payload::UserMessage(message) => {
                let delivered = message.source == UserSource::Steer;
                return delivered && !self.calling && self.open == 0;
            }
            // The model and the tools let such pass by while they are waited for.
            payload => return is_foreign(payload) && (self.calling || self.running > 0),
        }
        true
    }
}

/// Returns whether anybody may append the event at any time.
pub(super) fn is_foreign(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::InboxQueued(_)
            | Payload::InboxDropped(_)
            | Payload::ApprovalGranted(_)
            | Payload::ApprovalRevoked(_)
            | Payload::SubagentUsage(_)
            | Payload::Other { .. }
    )
}

/// Returns whether a message came in that was not taken.
fn waits(payloads: &[Payload]) -> bool {
    let count = |is: fn(&Payload) -> bool| payloads.iter().filter(|p| is(p)).count();
    count(|p| matches!(p, Payload::InboxQueued(_))) > count(|p| matches!(p, Payload::InboxTaken(_)))
}

/// Returns the length of what stood in the log before the loop began.
fn beginning(payloads: &[Payload]) -> usize {
    let is_first = |payload: &&Payload| {
        matches!(
            payload,
            Payload::TurnStart(_)
                | Payload::SubagentUsage(_)
                | Payload::SystemPrompt(_)
                | Payload::UserMessage(_)
                | Payload::InboxTaken(_)
        )
    };
    payloads.iter().take_while(is_first).count()
}

/// Returns where the end of a turn begins that the loop does not come to by itself, and why.
fn closing(payloads: &[Payload]) -> (usize, Option<String>) {
    let all = payloads.len();
    let Some(Payload::TurnEnd(end)) = payloads.last() else {
        return (all, None);
    };
    let why = match &end.reason {
        EndReason::Completed | EndReason::MaxTokens | EndReason::MaxSteps => return (all, None),
        EndReason::Blocked if !asks(payloads) => return (all, None),
        // Somebody had answered before, so that the loop cannot be told that nobody is there.
        EndReason::Blocked => "the turn was blocked".into(),
        EndReason::Error { code, .. } if code == "content_filter" => return (all, None),
        EndReason::Error { code, .. } => {
            let failed = payloads
                .iter()
                .rposition(|p| matches!(p, Payload::ModelError(_)));
            if failed.is_some_and(|at| ends_the_turn(payloads, at)) {
                return (all, None);
            }
            format!("the turn failed with `{code}`")
        }
        EndReason::Limit { .. } => "the turn came to a limit, which the log does not tell".into(),
        EndReason::Cancelled => "the turn was cancelled".into(),
        EndReason::Interrupted => "the turn was interrupted".into(),
    };
    let mut from = all - 1;
    let mut back = |is: &dyn Fn(&Payload) -> bool| {
        while from > 0 && is(&payloads[from - 1]) {
            from -= 1;
        }
    };
    // Recovery knows no tokens; an end that has some is the loop's.
    let recovered = end.reason == EndReason::Interrupted;
    back(&|p| matches!(p, Payload::StepEnd(end) if !recovered || end.usage.is_none()));
    back(&|p| matches!(p, Payload::ToolResult(result) if result.synthetic));
    back(&|p| {
        let by_harness = |by: &str| ["recovery", "cancel", "harness"].contains(&by);
        matches!(p, Payload::ApprovalDecided(decided) if by_harness(&decided.by))
    });
    back(&|p| matches!(p, Payload::AssistantMessage(message) if message.interrupted));
    (from, Some(why))
}

/// Returns whether the turn asks a person.
pub(super) fn asks(payloads: &[Payload]) -> bool {
    let asked = |payload: &Payload| matches!(payload, Payload::ApprovalAsked(_));
    payloads.iter().any(asked)
}

/// Returns whether nothing but what ends a failed turn follows.
fn ends_the_turn(payloads: &[Payload], at: usize) -> bool {
    let Some([between @ .., Payload::TurnEnd(_)]) = payloads.get(at + 1..) else {
        return false;
    };
    between.iter().all(|payload| match payload {
        Payload::AssistantMessage(message) => message.interrupted,
        payload => matches!(payload, Payload::StepEnd(_)),
    })
}

fn unknown_tool(payloads: &[Payload], knows: impl Fn(&str) -> bool) -> Option<&str> {
    payloads.iter().find_map(|payload| match payload {
        Payload::ToolStart(start) if !knows(&start.name) => Some(start.name.as_str()),
        Payload::ApprovalAsked(asked) if !knows(&asked.name) => Some(asked.name.as_str()),
        _ => None,
    })
}

/// Returns the tools of MCP servers that only read, as the turn shows it: the program that replays
/// does not know them. Such a tool is never asked for, and it either ran beside another one, or it
/// ran where one that may do anything would have been asked for or refused. In all other turns it
/// makes no difference.
pub(super) fn foreign_reads(
    payloads: &[Payload],
    context: &TurnContext,
    granted: &[String],
) -> BTreeSet<String> {
    let asked = |name: &str| {
        granted.iter().any(|granted| granted == name)
            || payloads
                .iter()
                .any(|p| matches!(p, Payload::ApprovalAsked(asked) if asked.name == name))
    };
    let started = |at: Option<usize>| {
        at.and_then(|at| payloads.get(at))
            .is_some_and(|p| matches!(p, Payload::ToolStart(_)))
    };
    let (policy, mode) = (context.approval_policy, context.sandbox_mode);
    let stopped = |name: &str| {
        judge(policy, mode, Effect::Executes, name, &Value::Null, &[]) != Verdict::Allow
    };
    payloads
        .iter()
        .enumerate()
        .filter_map(|(at, payload)| match payload {
            Payload::ToolStart(start) => Some((at, start.name.as_str())),
            _ => None,
        })
        .filter(|(_, name)| policy::is_foreign(name) && !asked(name))
        .filter(|(at, name)| started(at.checked_sub(1)) || started(Some(at + 1)) || stopped(name))
        .map(|(_, name)| name.to_owned())
        .collect()
}

fn without_steps(payloads: &[Payload]) -> &'static str {
    let said = |p: &Payload| matches!(p, Payload::UserMessage(message) if message.source != UserSource::Context);
    if payloads.iter().any(said) {
        "the turn ended before its first step"
    } else {
        "a compaction that a person asked for: its summary is the recorded one"
    }
}

fn reason(payload: &Payload) -> &'static str {
    match payload {
        Payload::CompactionSummary(_) => "a compaction: its summary is the recorded one",
        Payload::ModelRetry(_) => "a model call outside of the steps, as for a summary",
        Payload::ModelError(_) => "a failed model call: what came of it is the recorded",
        Payload::ItemRejected(_) => "an item that the provider had refused",
        Payload::UserMessage(_) | Payload::InboxQueued(_) | Payload::InboxDropped(_) => {
            "a message that came in between two steps"
        }
        payload if payload.kind() == threadline_store::LOG_LOST => "events that are lost",
        _ => "an event that the loop does not make",
    }
}

/// Makes the error again that a record tells of, as far as the record alone says all of it.
pub(super) fn again(trouble: &ModelTrouble) -> Option<ModelError> {
    let text = trouble.message.as_str();
    let after = |start: &str| text.strip_prefix(start).map(str::to_owned);
    let with_status = |start: &str| {
        let status = trouble.status?;
        let message = after(&format!("{start} (HTTP {status}): "))?;
        Some((status, message))
    };
    let error = if let Some((status, message)) = with_status("the provider answered with an error")
    {
        ModelError::Status { status, message }
    } else if let Some((status, message)) = with_status("the provider refused the API key") {
        ModelError::Auth { status, message }
    } else if let Some(message) = after("the provider's account has no quota left: ") {
        ModelError::Quota { message }
    } else if let Some(reason) = after("the provider's answer cannot be read: ") {
        ModelError::Malformed { reason }
    } else {
        ModelError::CutStream
    };
    (error.to_string() == text && error.status() == trouble.status).then_some(error)
}

/// Parses the events of a turn.
///
/// # Errors
/// What is wrong with the first that cannot be parsed.
pub(super) fn parse(events: &[Event]) -> Result<Vec<Payload>, String> {
    let parsed = events.iter().map(Event::payload);
    parsed
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Returns what a turn began with.
pub(super) fn start(payloads: &[Payload]) -> Option<&TurnStart> {
    match payloads.first() {
        Some(Payload::TurnStart(start)) => Some(start),
        _ => None,
    }
}

/// Returns whether a type begins a turn.
pub(super) fn begins(event: &Event) -> bool {
    event.kind == types::TURN_START
}

/// Returns whether a type ends a turn.
pub(super) fn ends(event: &Event) -> bool {
    event.kind == types::TURN_END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_made_again_only_when_its_record_says_all_of_it() {
        let status = |status: u16| ModelError::Status {
            status,
            message: "no (HTTP 500): really".into(),
        };
        let quota = ModelError::Quota {
            message: "none".into(),
        };
        let auth = ModelError::Auth {
            status: 401,
            message: "who?".into(),
        };
        let malformed = ModelError::Malformed {
            reason: "half".into(),
        };
        let all = [
            status(500),
            status(404),
            quota,
            auth,
            malformed,
            ModelError::CutStream,
        ];
        for error in all {
            let made = again(&error.trouble(1, None)).unwrap();
            assert_eq!(made.to_string(), error.to_string());
            assert_eq!((made.code(), made.hint()), (error.code(), error.hint()));
        }
        let slow = ModelError::Idle {
            after: std::time::Duration::from_secs(3),
        };
        assert!(again(&slow.trouble(1, None)).is_none());
        let mut other = status(500).trouble(1, None);
        other.status = Some(502);
        assert!(again(&other).is_none());
    }

    #[test]
    fn a_turn_without_a_step_and_one_with_an_unknown_tool_are_taken_over() {
        let end = Payload::TurnEnd(threadline_session::payload::TurnEnd {
            turn: 1,
            reason: EndReason::Interrupted,
        });
        let plan = Plan::new(&[end], |_| true);
        assert_eq!(plan.parts, [Part::Given(0..1)]);
        let mark = threadline_session::payload::RequestMark {
            fingerprint: String::new(),
            items: 0,
            bytes: 0,
        };
        let step = Payload::StepStart(threadline_session::payload::StepStart {
            turn: 1,
            step: 1,
            request: mark,
        });
        let start = Payload::ToolStart(threadline_session::payload::ToolStart {
            call_id: "c".into(),
            name: "gone".into(),
            cwd: std::path::PathBuf::from("/").into(),
            outside_sandbox: false,
            grant_id: None,
        });
        let plan = Plan::new(&[step, start], |_| false);
        assert_eq!(plan.parts, [Part::Given(0..2)]);
        assert!(plan.notes[0].1.contains("`gone`"), "{plan:?}");
    }

    fn payload(kind: &str, data: &str) -> Payload {
        let event = Event::from_json(0, 0, kind, data, false).unwrap();
        event.payload().unwrap()
    }

    fn turn(middle: &[(&str, &str)]) -> Vec<Payload> {
        let step = r#"{"turn":1,"step":1,"request":{"fingerprint":"","items":1,"bytes":1}}"#;
        let message = r#"{"turn":1,"step":1,"content":[],"model":{"provider":"p","name":"m"},
            "stopReason":"stop"}"#
            .replace('\n', "");
        let context = r#"{"provider":"p","model":"m","approvalPolicy":"never",
            "sandboxMode":"read_only","cwd":"/"}"#
            .replace('\n', "");
        let start = format!(
            r#"{{"turn":1,"runId":"01a22cec-47fe-719b-9881-37a1a68f50fe","context":{context}}}"#
        );
        let mut all = vec![
            payload(types::TURN_START, &start),
            payload(types::STEP_START, step),
        ];
        all.extend(middle.iter().map(|(kind, data)| payload(kind, data)));
        all.extend([
            payload(types::STEP_START, step),
            payload(types::ASSISTANT_MESSAGE, &message),
            payload(types::STEP_END, r#"{"turn":1,"step":1}"#),
            payload(
                types::TURN_END,
                r#"{"turn":1,"reason":{"kind":"completed"}}"#,
            ),
        ]);
        all
    }

    fn driven(events: Range<usize>) -> Part {
        Part::Driven { events, rounds: 0 }
    }

    #[test]
    fn a_failed_call_of_the_model_is_taken_over_up_to_the_next_step() {
        let payloads = turn(&[
            (
                types::MODEL_ERROR,
                r#"{"attempt":1,"status":400,"message":"refused"}"#,
            ),
            (types::STEP_END, r#"{"turn":1,"step":1}"#),
            ("vendor/rejected", "{}"),
        ]);
        let plan = Plan::new(&payloads, |_| true);
        let parts = [
            Part::Given(0..1),
            driven(1..2),
            Part::Given(2..5),
            driven(5..9),
        ];
        assert_eq!(plan.parts, parts);
        assert_eq!(plan.notes.len(), 1);
        assert_eq!(plan.closers, None);
    }

    #[test]
    fn a_message_that_came_while_a_step_began_takes_the_rest_of_the_turn_with_it() {
        let done = r#"{"turn":1,"step":1,"content":[],"model":{"provider":"p","name":"m"},"stopReason":"stop"}"#;
        let payloads = turn(&[
            (types::ASSISTANT_MESSAGE, done),
            (types::INBOX_QUEUED, r#"{"messageId":"a","content":[]}"#),
            (types::STEP_END, r#"{"turn":1,"step":1}"#),
        ]);
        let plan = Plan::new(&payloads, |_| true);
        let all = payloads.len();
        let parts = [Part::Given(0..1), driven(1..3), Part::Given(3..all)];
        assert_eq!(plan.parts, parts);
    }
}
