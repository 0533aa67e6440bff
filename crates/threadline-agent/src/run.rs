//! A handle on a run, and the stream of what happens in it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use serde::Serialize;
use serde_json::value::RawValue;
use threadline_session::{
    Payload, RunId, SessionId,
    codec::Line,
    payload::{Decision, EndReason, Usage},
};
use threadline_store::{Follow, Followed, ReadError, Recovered, SessionStore};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{RunPolicy, approvals::ApprovalInfo};

/// Why a run stopped without its end being logged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Stable code.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// What a person can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// Why.
    pub reason: EndReason,
    /// Text of the final answer; empty when there was none.
    pub answer: String,
    /// Tokens of the turn.
    pub usage: Usage,
    /// Tokens of the turn's subagents, which are no part of the others.
    pub subagent_usage: Usage,
    /// Last event of the run that is stored.
    pub last_seq: u64,
    /// Last event on stable storage.
    pub durable_seq: Option<u64>,
    /// Set when the end could not be logged.
    pub failure: Option<Failure>,
}

pub(crate) struct RunParts {
    pub(crate) run_id: RunId,
    pub(crate) session_id: SessionId,
    pub(crate) resumed: bool,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) policy: RunPolicy,
    pub(crate) start_seq: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) outcome: watch::Receiver<Option<RunOutcome>>,
    pub(crate) store: SessionStore,
}

/// A run of this process. Cheap to clone; dropping it does not end the run.
#[derive(Clone)]
pub struct Run {
    parts: Arc<RunParts>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("run", &self.parts.run_id)
            .field("session", &self.parts.session_id)
            .finish_non_exhaustive()
    }
}

impl Run {
    pub(crate) fn new(parts: RunParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Returns the run's id.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.parts.run_id
    }

    /// Returns the session's id.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.parts.session_id
    }

    /// Returns whether the session existed before.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.parts.resumed
    }

    /// Returns what opening the session had to move aside.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.parts.recovered.as_ref()
    }

    /// Returns what the run runs under.
    #[must_use]
    pub fn policy(&self) -> &RunPolicy {
        &self.parts.policy
    }

    /// Returns the run's first event.
    #[must_use]
    pub fn start_seq(&self) -> u64 {
        self.parts.start_seq
    }

    pub(crate) fn cancel_token(&self) -> &CancellationToken {
        &self.parts.cancel
    }

    /// Asks the run to stop. Its end is logged as cancelled.
    pub fn cancel(&self) {
        self.parts.cancel.cancel();
    }

    /// Returns how the run ended, if it has.
    #[must_use]
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.parts.outcome.borrow().clone()
    }

    /// Waits for the end.
    pub async fn wait(&self) -> RunOutcome {
        let mut outcome = self.parts.outcome.clone();
        let ended = match outcome.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone(),
            Err(_) => None,
        };
        ended.unwrap_or_else(|| self.lost())
    }

    fn lost(&self) -> RunOutcome {
        let message = "the run's task broke; this is a defect".to_owned();
        RunOutcome {
            reason: EndReason::Error {
                code: "internal".into(),
                message: message.clone(),
            },
            answer: String::new(),
            usage: Usage::default(),
            subagent_usage: Usage::default(),
            last_seq: self.parts.start_seq,
            durable_seq: None,
            failure: Some(Failure {
                code: "internal".into(),
                message,
                hint: None,
            }),
        }
    }

    /// Returns everything that happens in the run, from its first event to its end.
    #[must_use]
    pub fn stream(&self) -> RunStream {
        let after = self.parts.start_seq.checked_sub(1);
        let follow = self.parts.store.follow(&self.parts.session_id, after);
        RunStream {
            run: self.clone(),
            follow,
            ready: VecDeque::new(),
            state: StreamState::New,
            given: None,
            asked: HashMap::new(),
        }
    }
}

/// Something that happens in a run, in the shape that `run --json` and the stream route show.
#[derive(Debug, Clone, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum RunEvent {
    /// The prompt is stored and the run goes on.
    RunStarted {
        /// The run.
        run_id: RunId,
        /// Its session.
        session_id: SessionId,
        /// Whether the session existed before.
        resumed: bool,
        /// What it runs under.
        policy: RunPolicy,
        /// Torn bytes that opening moved aside.
        #[serde(skip_serializing_if = "Option::is_none")]
        recovered: Option<Recovered>,
    },
    /// An event of the log, verbatim.
    #[serde(skip)]
    Log(Box<Line>),
    /// A person is asked.
    ApprovalRequired(ApprovalInfo),
    /// The question is answered.
    ApprovalResolved {
        /// The question.
        approval_id: String,
        /// The run.
        run_id: RunId,
        /// The call.
        tool_call_id: String,
        /// The answer.
        decision: Decision,
        /// Who gave it.
        by: String,
    },
    /// The run ended and its end is logged. Always last.
    RunFinished {
        /// The run.
        run_id: RunId,
        /// Its session.
        session_id: SessionId,
        /// Why.
        reason: EndReason,
        /// Text of the final answer.
        answer: String,
        /// Tokens of the turn.
        usage: Usage,
        /// Tokens of the turn's subagents, which are no part of the others.
        #[serde(skip_serializing_if = "Usage::is_zero")]
        subagent_usage: Usage,
        /// Last event on stable storage.
        durable_seq: Option<u64>,
    },
    /// The run stopped without its end being logged. Always last.
    Error(Failure),
}

impl RunEvent {
    /// Returns whether nothing comes after it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::RunFinished { .. } | Self::Error(_))
    }

    /// Returns the name of the event as SSE shows it: the log event's type, or the control event.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::RunStarted { .. } => "run_started",
            Self::Log(line) => &line.event.kind,
            Self::ApprovalRequired(_) => "approval_required",
            Self::ApprovalResolved { .. } => "approval_resolved",
            Self::RunFinished { .. } => "run_finished",
            Self::Error(_) => "error",
        }
    }

    /// Returns the event as one line of JSON; a log event is the line as it is stored.
    ///
    /// # Errors
    /// When it does not serialize, which no input is known to cause.
    pub fn to_json(&self) -> serde_json::Result<Box<RawValue>> {
        match self {
            Self::Log(line) => {
                RawValue::from_string(String::from_utf8_lossy(&line.raw).into_owned())
            }
            other => serde_json::value::to_raw_value(other),
        }
    }
}

enum StreamState {
    New,
    Running,
    Ended,
}

/// Gives a run's events in order, each once, and ends after its last.
pub struct RunStream {
    run: Run,
    follow: Follow,
    ready: VecDeque<RunEvent>,
    state: StreamState,
    given: Option<u64>,
    /// Calls of the questions that are open.
    asked: HashMap<String, String>,
}

impl std::fmt::Debug for RunStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunStream")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl RunStream {
    /// Waits for the next event; `None` after the last. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<RunEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event.is_last() {
                    self.state = StreamState::Ended;
                }
                return Some(event);
            }
            match self.state {
                StreamState::New => {
                    self.state = StreamState::Running;
                    self.ready.push_back(self.started());
                }
                StreamState::Running => self.advance().await,
                StreamState::Ended => return None,
            }
        }
    }

    fn started(&self) -> RunEvent {
        let parts = &self.run.parts;
        RunEvent::RunStarted {
            run_id: parts.run_id.clone(),
            session_id: parts.session_id.clone(),
            resumed: parts.resumed,
            policy: parts.policy.clone(),
            recovered: parts.recovered.clone(),
        }
    }

    async fn advance(&mut self) {
        let mut outcome = self.run.parts.outcome.clone();
        let ended = outcome.borrow_and_update().clone();
        if let Some(ended) = &ended
            && self.given.is_some_and(|given| given >= ended.last_seq)
        {
            return self.finish(ended.clone());
        }
        let followed = match &ended {
            // Everything the run has logged is stored by now.
            Some(_) => self.follow.next().await,
            None => tokio::select! {
                followed = self.follow.next() => followed,
                changed = outcome.changed() => {
                    if changed.is_err() && outcome.borrow().is_none() {
                        let lost = self.run.lost();
                        self.finish(lost);
                    }
                    return;
                }
            },
        };
        match followed {
            // What is behind the run's end belongs to the session's next run.
            Ok(Followed::Line(line))
                if ended
                    .as_ref()
                    .is_some_and(|ended| line.event.seq > ended.last_seq) =>
            {
                self.given = Some(line.event.seq);
            }
            Ok(Followed::Line(line)) => self.line(line),
            Ok(Followed::CaughtUp { .. }) => {}
            Err(error) => self.broken(&error),
        }
    }

    fn line(&mut self, line: Box<Line>) {
        self.given = Some(line.event.seq);
        let control = self.control(&line);
        self.ready.push_back(RunEvent::Log(line));
        self.ready.extend(control);
    }

    fn control(&mut self, line: &Line) -> Option<RunEvent> {
        match line.event.payload().ok()? {
            Payload::ApprovalAsked(asked) => {
                self.asked
                    .insert(asked.approval_id.clone(), asked.call_id.clone());
                let parts = &self.run.parts;
                Some(RunEvent::ApprovalRequired(ApprovalInfo::of(
                    parts.run_id.clone(),
                    parts.session_id.clone(),
                    asked,
                    line.event.time,
                )))
            }
            Payload::ApprovalDecided(decided) => Some(RunEvent::ApprovalResolved {
                tool_call_id: self.asked.remove(&decided.approval_id).unwrap_or_default(),
                approval_id: decided.approval_id,
                run_id: self.run.run_id().clone(),
                decision: decided.decision,
                by: decided.by,
            }),
            _ => None,
        }
    }

    fn finish(&mut self, outcome: RunOutcome) {
        let parts = &self.run.parts;
        self.ready.push_back(match outcome.failure {
            Some(failure) => RunEvent::Error(failure),
            None => RunEvent::RunFinished {
                run_id: parts.run_id.clone(),
                session_id: parts.session_id.clone(),
                reason: outcome.reason,
                answer: outcome.answer,
                usage: outcome.usage,
                subagent_usage: outcome.subagent_usage,
                durable_seq: outcome.durable_seq,
            },
        });
    }

    fn broken(&mut self, error: &ReadError) {
        self.ready.push_back(RunEvent::Error(Failure {
            code: crate::error::read_code(error).into(),
            message: error.to_string(),
            hint: None,
        }));
    }
}
