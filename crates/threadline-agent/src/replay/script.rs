//! What the log says of a turn: the script that the loop is held to while it runs again.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use serde_json::Value;
use threadline_model::{Completion, ModelError};
use threadline_session::{
    Event, Payload, RunId,
    codec::Line,
    payload::{AssistantMessage, Decision, ModelTrouble, ToolResult},
    types,
};
use tokio::sync::watch;

use super::plan;
use crate::{
    agents::Core,
    approvals::{Answer, Answered, ApprovalBoard},
    tools::parse_arguments,
};

/// The first event that the replay makes otherwise.
#[derive(Debug, Clone)]
pub(super) struct Parted {
    pub(super) seq: u64,
    /// What the log has there.
    pub(super) recorded: Event,
    /// What the replay has there, if anything.
    pub(super) replayed: Option<Event>,
}

/// What the model does next.
pub(super) enum Answering {
    /// These stand in the log first.
    Pass(Vec<Event>),
    Retry(ModelTrouble),
    Done(Completion),
    Fail(ModelError),
}

/// What a tool does next.
pub(super) enum Working {
    /// These stand in the log first.
    Pass(Vec<Event>),
    Result(ToolResult),
    /// It is another one's turn.
    Wait,
    /// The log has no result.
    Over,
}

struct Start {
    call_id: String,
    name: String,
    arguments: Option<Value>,
    claimed: bool,
    done: bool,
}

#[derive(Default)]
struct Inner {
    /// The turn, and the number of its first event.
    events: Vec<Event>,
    first: u64,
    /// The event that is appended next.
    next: u64,
    /// The event before which the loop is stopped; without one, everything passes.
    limit: Option<u64>,
    /// Calls of the newest message, with their arguments, and those that were started.
    calls: Vec<(String, String)>,
    starts: Vec<Start>,
    /// Results whose whole output is gone, so that they cannot name it.
    shortened: HashSet<u64>,
    asked: Option<(ApprovalBoard, RunId)>,
    parted: Option<Parted>,
    /// Whether a refused batch had everything that the log has before the limit.
    reached: bool,
    /// What the loop runs on.
    core: Weak<Core>,
}

/// Shared by the judge, the model and the tools.
pub(super) struct Script {
    inner: Mutex<Inner>,
    moved: watch::Sender<u64>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::default(),
            moved: watch::channel(0).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a turn.
    pub(super) fn take_up(&self, events: Vec<Event>, shortened: HashSet<u64>) {
        let mut inner = self.lock();
        inner.first = events.first().map_or(0, |event| event.seq);
        inner.events = events;
        inner.shortened = shortened;
    }

    /// Holds what is appended to the log, up to an event.
    pub(super) fn hold(&self, limit: u64, board: ApprovalBoard, run: RunId) {
        let mut inner = self.lock();
        inner.limit = Some(limit);
        inner.asked = Some((board, run));
        inner.calls.clear();
        inner.starts.clear();
        inner.reached = false;
    }

    /// Takes what the loop runs on, through which the model and the tools append.
    pub(super) fn set_core(&self, core: &Arc<Core>) {
        self.lock().core = Arc::downgrade(core);
    }

    pub(super) fn core(&self) -> Option<Arc<Core>> {
        self.lock().core.upgrade()
    }

    /// Lets everything pass again. Returns the next event.
    pub(super) fn release(&self) -> u64 {
        let mut inner = self.lock();
        inner.limit = None;
        inner.next
    }

    /// Returns whether the loop made, in a batch that goes on behind the limit, all that the log
    /// has before it: a fork may cut what was written at once.
    pub(super) fn reached(&self) -> bool {
        self.lock().reached
    }

    pub(super) fn parted(&self) -> Option<Parted> {
        self.lock().parted.clone()
    }

    /// Returns a watch on what happens.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    fn tell(&self) {
        self.moved.send_modify(|count| *count += 1);
    }

    /// Compares a batch with the log.
    ///
    /// # Errors
    /// Why nothing of it is stored.
    pub(super) fn judge(&self, batch: &[u8]) -> Result<Vec<Event>, String> {
        let events = batch
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Line::decode(line).map(|line| line.event))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        let judged = self.lock().judge(&events);
        if judged.is_err() {
            self.tell();
        }
        judged.map(|()| events)
    }

    /// Notes a batch that was stored.
    pub(super) fn note(&self, events: Vec<Event>) {
        let mut inner = self.lock();
        for event in events {
            inner.next = event.seq + 1;
            inner.noted(&event);
        }
        drop(inner);
        self.tell();
    }

    /// Returns what the model does next.
    pub(super) fn answering(&self) -> Answering {
        let inner = self.lock();
        let pass = inner.pass(&[types::ASSISTANT_CHUNK, types::TOOL_OUTPUT]);
        if !pass.is_empty() {
            return Answering::Pass(pass);
        }
        match inner.due().map(Event::payload) {
            Some(Ok(Payload::ModelRetry(trouble))) => Answering::Retry(trouble),
            Some(Ok(Payload::AssistantMessage(message))) => Answering::Done(completion(message)),
            Some(Ok(Payload::ModelError(trouble))) => {
                Answering::Fail(plan::again(&trouble).unwrap_or(ModelError::CutStream))
            }
            _ => Answering::Fail(ModelError::CutStream),
        }
    }

    /// Returns whether the newest step was logged with this fingerprint.
    pub(super) fn sent(&self, fingerprint: &str) -> bool {
        let inner = self.lock();
        let started = inner.events.iter().rev().find_map(|event| {
            let before = event.seq < inner.next && event.kind == types::STEP_START;
            match before.then(|| event.payload())? {
                Ok(Payload::StepStart(start)) => Some(start),
                _ => None,
            }
        });
        started.is_some_and(|start| start.request.fingerprint == fingerprint)
    }

    /// Says that a request is not the one whose fingerprint was logged.
    pub(super) fn sent_otherwise(&self) {
        let mut inner = self.lock();
        if inner.parted.is_none()
            && let Some(recorded) = inner.due().cloned()
        {
            inner.parted = Some(Parted {
                seq: inner.next,
                recorded,
                replayed: None,
            });
        }
    }

    /// Returns which of the started calls a run of a tool is.
    pub(super) fn claim(&self, name: &str, arguments: &Value) -> Option<usize> {
        let mut inner = self.lock();
        let at = inner.starts.iter().position(|start| {
            !start.claimed && start.name == name && start.arguments.as_ref() == Some(arguments)
        })?;
        inner.starts[at].claimed = true;
        Some(at)
    }

    /// Returns what the tool of a started call does next.
    pub(super) fn working(&self, call: usize) -> Working {
        let inner = self.lock();
        if inner.parted.is_some() {
            return Working::Over;
        }
        let pass = inner.pass(&[types::TOOL_OUTPUT]);
        if !pass.is_empty() {
            return Working::Pass(pass);
        }
        let Some(Ok(Payload::ToolResult(result))) = inner.due().map(Event::payload) else {
            return Working::Over;
        };
        match inner.running(&result) {
            Some(at) if at == call => Working::Result(result),
            Some(_) => Working::Wait,
            None => Working::Over,
        }
    }
}

impl Inner {
    fn at(&self, seq: u64) -> Option<&Event> {
        let at = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.events.get(at)
    }

    /// Returns the event that comes next, while the loop runs.
    fn due(&self) -> Option<&Event> {
        self.at(self.next)
            .filter(|event| self.limit.is_some_and(|limit| event.seq < limit))
    }

    /// Returns the events that come next as long as they are of these types or from outside.
    fn pass(&self, kinds: &[&str]) -> Vec<Event> {
        let limit = self.limit.unwrap_or_default();
        let passes = |event: &&Event| {
            kinds.contains(&event.kind.as_str())
                || event.payload().is_ok_and(|p| plan::is_foreign(&p))
        };
        (self.next..limit)
            .map_while(|seq| self.at(seq).filter(passes).cloned())
            .collect()
    }

    fn judge(&mut self, events: &[Event]) -> Result<(), String> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        if self.parted.is_some() {
            return Err("the replay has parted from the log".into());
        }
        for event in events {
            let recorded = self.at(event.seq).filter(|_| event.seq < limit);
            let Some(recorded) = recorded else {
                self.reached |= event.seq == limit;
                return Err("the log has something else from here on".into());
            };
            let shortened = self.shortened.contains(&event.seq);
            if essence(recorded, shortened) != essence(event, shortened) {
                let recorded = recorded.clone();
                self.parted = Some(Parted {
                    seq: event.seq,
                    recorded,
                    replayed: Some(event.clone()),
                });
                return Err("the replay parts from the log".into());
            }
        }
        Ok(())
    }

    fn noted(&mut self, event: &Event) {
        match event.payload() {
            Ok(Payload::AssistantMessage(message)) => {
                self.calls = message
                    .calls()
                    .map(|call| (call.call_id.into(), call.arguments.into()))
                    .collect();
                self.starts.clear();
            }
            Ok(Payload::ToolStart(start)) => {
                // A call id may come twice in a message; the calls are started in its order.
                let at = self.calls.iter().position(|(id, _)| *id == start.call_id);
                let arguments = at.map(|at| self.calls.remove(at).1);
                self.starts.push(Start {
                    arguments: arguments.and_then(|text| parse_arguments(&text).ok()),
                    call_id: start.call_id,
                    name: start.name,
                    claimed: false,
                    done: false,
                });
            }
            Ok(Payload::ToolResult(result)) => {
                if let Some(at) = self.running(&result) {
                    self.starts[at].done = true;
                }
            }
            Ok(Payload::ApprovalAsked(asked)) => self.answer(event.seq, &asked.call_id),
            _ => {}
        }
    }

    /// Returns the started call that a result answers.
    fn running(&self, result: &ToolResult) -> Option<usize> {
        self.starts.iter().position(|start| {
            !start.done && start.call_id == result.call_id && start.name == result.name
        })
    }

    /// Answers a question as it was answered, or lets it expire.
    fn answer(&self, seq: u64, call_id: &str) {
        let (Some(limit), Some((board, run))) = (self.limit, &self.asked) else {
            return;
        };
        let recorded = self.at(seq).map(Event::payload);
        let Some(Ok(Payload::ApprovalAsked(asked))) = recorded else {
            return;
        };
        let decided = (seq + 1..limit).find_map(|seq| match self.at(seq)?.payload() {
            Ok(Payload::ApprovalDecided(decided)) => {
                (decided.approval_id == asked.approval_id).then_some(decided)
            }
            _ => None,
        });
        let answer = decided.and_then(|decided| {
            let answer = match decided.decision {
                Decision::Approved => Answer::Approve,
                Decision::ApprovedForSession => Answer::ApproveForSession,
                Decision::Denied => Answer::Deny,
                Decision::Expired => return None,
            };
            Some(Answered {
                answer,
                by: decided.by,
                comment: decided.comment,
                prefix: decided.prefix,
            })
        });
        match answer {
            // It waits, because the loop puts a question up before it logs it.
            Some(answered) => drop(board.answer(run, call_id, answered)),
            None => board.withdraw(run, call_id),
        }
    }
}

fn completion(message: AssistantMessage) -> Completion {
    Completion {
        content: message.content,
        stop_reason: message.stop_reason,
        usage: message.usage,
        opaque: message.opaque,
        model: message.model.name,
    }
}

/// Returns what must be equal of an event: its type, and its data but for the names of questions,
/// which are random and which no model sees.
pub(super) fn essence(event: &Event, shortened: bool) -> (String, String) {
    let kind = event.kind.clone();
    let written = |payload: &Payload| {
        Event::new(0, 0, payload).map_or_else(
            |error| error.to_string(),
            |event| event.data.get().to_owned(),
        )
    };
    let data = match event.payload() {
        Ok(Payload::ApprovalAsked(mut asked)) => {
            asked.approval_id.clear();
            // What is offered besides yes and no is the program's choice.
            asked.prefix = None;
            written(&Payload::ApprovalAsked(asked))
        }
        Ok(Payload::ApprovalDecided(mut decided)) => {
            decided.approval_id.clear();
            written(&Payload::ApprovalDecided(decided))
        }
        Ok(Payload::ToolStart(mut start)) => {
            start.grant_id = None;
            written(&Payload::ToolStart(start))
        }
        Ok(Payload::ToolResult(mut result)) if shortened => {
            result.full = None;
            written(&Payload::ToolResult(result))
        }
        Ok(Payload::Other { .. }) | Err(_) => event.data.get().to_owned(),
        Ok(payload) => written(&payload),
    };
    (kind, data)
}
