//! Rebuilding from the log what steps have sent.

use std::ops::ControlFlow;

use serde::Serialize;
use threadline_session::{
    Event, Payload, PendingApproval, Queued, Request, RequestError, RunId, SessionGrant, SessionId,
    Transcript, closers,
    codec::Line,
    payload::{StepStart, TurnContext},
    types,
};

use crate::{
    BackendError, CheckStage, Entry, ReadError, ReadPos, SessionStore, WatchCheck, WindowAt,
    limits::PAGE_BYTES, verify::Meter,
};

/// Questions to a person that a dead process has left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestions {
    /// The run that asked.
    pub run_id: RunId,
    /// What it asked.
    pub questions: Vec<PendingApproval>,
}

/// A step's request, rebuilt.
#[derive(Debug, Clone)]
pub struct RebuiltRequest {
    /// The request.
    pub request: Request,
    /// The `step/start` event.
    pub seq: u64,
    /// What the log recorded of it.
    pub start: StepStart,
}

/// A step whose request, rebuilt from the log, is not the one that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unequal {
    /// The `step/start` event.
    pub seq: u64,
    /// The step.
    pub step: u64,
}

impl std::fmt::Display for Unequal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seq, step } = self;
        write!(
            f,
            "seq {seq}: the log does not rebuild the request that step {step} sent"
        )
    }
}

fn step_of(line: &Line) -> Option<StepStart> {
    if line.event.kind != types::STEP_START {
        return None;
    }
    match line.event.payload() {
        Ok(Payload::StepStart(start)) => Some(start),
        _ => None,
    }
}

impl SessionStore {
    /// Returns the messages that wait in a session's inbox, in order.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn inbox(&self, id: &SessionId) -> Result<Vec<Queued>, ReadError> {
        let scan = self.restore(id, None, false).await?;
        Ok(scan.state.inbox().to_vec())
    }

    /// Returns what is approved for the rest of a session, oldest first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn grants(&self, id: &SessionId) -> Result<Vec<SessionGrant>, ReadError> {
        let scan = self.restore(id, None, false).await?;
        Ok(scan.state.session_grants().to_vec())
    }

    /// Returns what the newest turn of a session ran under; `None` before the first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn context(&self, id: &SessionId) -> Result<Option<TurnContext>, ReadError> {
        let scan = self.restore(id, None, false).await?;
        Ok(scan.state.context().cloned())
    }

    /// Returns the events with which the next opening of a session will close its last turn; none
    /// when no turn is open, or when somebody is writing it.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn closers(&self, id: &SessionId) -> Result<Vec<Event>, ReadError> {
        if self.stat(id).await?.writer.is_some() {
            return Ok(Vec::new());
        }
        let mut scan = self.restore(id, None, false).await?;
        let calls = scan.state.missing_calls();
        if let Some(damage) = self.fill(id, &mut scan.state, &calls).await? {
            return Err(self.corrupt(id, damage));
        }
        closers(&scan.state).map_err(|error| {
            let source = std::io::Error::other(error.to_string());
            ReadError::from(BackendError::new("closing the last turn", source))
        })
    }

    /// Returns what a session's open turn asks a person, if nobody is writing it: the process that
    /// asked has died. `None` without an open turn, or with a live writer.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn open_questions(&self, id: &SessionId) -> Result<Option<OpenQuestions>, ReadError> {
        if self.stat(id).await?.writer.is_some() {
            return Ok(None);
        }
        let scan = self.restore(id, None, false).await?;
        let questions = scan.state.pending_approvals().to_vec();
        let turn = scan.state.open_turn().filter(|_| !questions.is_empty());
        Ok(turn.map(|turn| OpenQuestions {
            run_id: turn.run_id.clone(),
            questions,
        }))
    }

    /// Returns the state that the next opening of a session begins with, as opening restores it:
    /// from a checkpoint, the content of the surface by the places of its lines, the last turn
    /// closed unless somebody is writing it. `None` when something is in the way that opening
    /// would refuse.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn resumed(&self, id: &SessionId) -> Result<Option<Transcript>, ReadError> {
        let stat = self.stat(id).await?;
        let scan = self.restore(id, None, true).await?;
        if scan.is_stuck() {
            return Ok(None);
        }
        let mut state = scan.state;
        if stat.writer.is_none() {
            for event in closers(&state).unwrap_or_default() {
                if state.apply(&event).is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(state))
    }

    /// Returns where a step begins. Steps are counted up, so it is found by halving the log; `None`
    /// when it is not, or damage is in the way.
    async fn step_at(&self, id: &SessionId, step: u64) -> Result<Option<u64>, ReadError> {
        let (mut low, mut high) = (0, self.window(id, WindowAt::End, 1).await?.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut newest = None;
            let look = |line: &Line| {
                let seq = line.event.seq;
                newest = step_of(line).map(|start| (start.step, seq));
                newest.is_none() && seq > low
            };
            match self.each_event_back(id, middle + 1, look).await {
                Ok(()) => {}
                Err(ReadError::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            match newest {
                Some((found, seq)) if found == step => return Ok(Some(seq)),
                Some((found, seq)) if found > step => high = seq,
                _ => low = middle + 1,
            }
        }
        Ok(None)
    }

    /// Rebuilds the request of a step from the log alone: from the state that a checkpoint gives
    /// right before it, or from the first event if the step is not found without.
    ///
    /// # Errors
    /// [`ReadError`]; the inner result says when the session has no such step.
    pub async fn request_of_step(
        &self,
        id: &SessionId,
        step: u64,
    ) -> Result<Option<Result<RebuiltRequest, RequestError>>, ReadError> {
        self.stat(id).await?;
        if let Some(seq) = self.step_at(id, step).await?
            && let Some(found) = self.request_at(id, step, seq).await?
        {
            return Ok(Some(found));
        }
        let mut found = None;
        self.replay(id, |state, line| {
            let Some(start) = step_of(line).filter(|start| start.step == step) else {
                return true;
            };
            let seq = line.event.seq;
            found = Some(Request::build(state).map(|(request, _)| RebuiltRequest {
                request,
                seq,
                start,
            }));
            false
        })
        .await?;
        Ok(found)
    }

    /// Rebuilds the request of every step from the log, and returns those whose fingerprint is not
    /// the one that was recorded when they were sent.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn unequal_requests(&self, id: &SessionId) -> Result<Vec<Unequal>, ReadError> {
        let unequal = self
            .unequal_requests_watched(id, &mut |_| ControlFlow::Continue(()))
            .await?;
        Ok(unequal.unwrap_or_default())
    }

    /// The same for who wants to know how far it is, or to stop it: `None` when `watch` did.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn unequal_requests_watched(
        &self,
        id: &SessionId,
        watch: &mut WatchCheck<'_>,
    ) -> Result<Option<Vec<Unequal>>, ReadError> {
        let mut unequal = Vec::new();
        let of = self.stat(id).await?.bytes;
        let mut meter = Meter::new(watch, CheckStage::Requests, of);
        self.replay(id, |state, line| {
            if !meter.line(&line.raw) {
                return false;
            }
            if let Some(start) = step_of(line) {
                let rebuilt = Request::build(state)
                    .ok()
                    .and_then(|(request, _)| request.fingerprint().ok());
                if rebuilt.is_none_or(|print| print.hash != start.request.fingerprint) {
                    unequal.push(Unequal {
                        seq: line.event.seq,
                        step: start.step,
                    });
                }
            }
            true
        })
        .await?;
        Ok((!meter.is_stopped()).then_some(unequal))
    }

    /// Applies the log event by event, and calls `f` with the state before each until it returns
    /// false, the log ends, or an event comes that this version may not pass over.
    async fn replay(
        &self,
        id: &SessionId,
        mut f: impl FnMut(&Transcript, &Line) -> bool,
    ) -> Result<(), ReadError> {
        self.stat(id).await?;
        let mut state = self.transcript();
        let mut pos = ReadPos::default();
        loop {
            let page = self.backend().page(id, pos, PAGE_BYTES).await?;
            for entry in &page.entries {
                let (line, place) = match entry {
                    Entry::Header(_) => continue,
                    Entry::Line(line, place) => (line, *place),
                    Entry::Damage(damage) => return Err(self.corrupt(id, damage.clone())),
                };
                if !f(&state, line) {
                    return Ok(());
                }
                let applied = self.fold_one(id, &mut state, &line.event, place).await?;
                if applied.is_err() {
                    return Ok(());
                }
                if line.event.kind == types::HISTORY_HEAD {
                    let missing = state.missing();
                    if let Some(damage) = self.fill(id, &mut state, &missing).await? {
                        return Err(self.corrupt(id, damage));
                    }
                }
            }
            if page.end {
                return Ok(());
            }
            pos = page.next;
        }
    }

    pub(crate) fn corrupt(&self, id: &SessionId, damage: crate::Damage) -> ReadError {
        ReadError::Corrupt {
            id: id.clone(),
            damage,
        }
    }
}
