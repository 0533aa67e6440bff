//! Questions to a person that wait for an answer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use threadline_session::{
    RunId, SessionId,
    payload::{ApprovalAsked, ApprovalDecided, Decision},
};
use tokio::sync::{oneshot, watch};

/// A question that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalInfo {
    /// Identifies the question.
    pub approval_id: String,
    /// The run that asks.
    pub run_id: RunId,
    /// Its session.
    pub session_id: SessionId,
    /// The call it is about.
    pub tool_call_id: String,
    /// The tool.
    pub name: String,
    /// The call's arguments as JSON text.
    pub arguments: String,
    /// Why it is asked.
    pub reason: String,
    /// Words that an answer for the session may approve commands by that begin with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Vec<String>>,
    /// Whether the call would run without the sandbox. An answer holds for this one call then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside_sandbox: bool,
    /// Unix milliseconds.
    pub asked_at: u64,
}

impl ApprovalInfo {
    /// Tells a question of the log, which was asked at a time in unix milliseconds.
    #[must_use]
    pub fn of(run_id: RunId, session_id: SessionId, asked: ApprovalAsked, asked_at: u64) -> Self {
        Self {
            approval_id: asked.approval_id,
            run_id,
            session_id,
            tool_call_id: asked.call_id,
            name: asked.name,
            arguments: asked.arguments,
            reason: asked.reason,
            prefix: asked.prefix,
            outside_sandbox: asked.outside_sandbox,
            asked_at,
        }
    }

    /// Checks the words of an answer: only those that were offered, with an answer for the session.
    pub(crate) fn check(&self, answered: &Answered) -> Result<(), AnswerError> {
        let fits = answered.prefix.is_none()
            || (answered.answer == Answer::ApproveForSession && answered.prefix == self.prefix);
        fits.then_some(()).ok_or_else(|| AnswerError::NotOffered {
            call_id: self.tool_call_id.clone(),
        })
    }

    /// What an answer decides. For the session nobody leaves the sandbox.
    pub(crate) fn decided(&self, answered: &Answered) -> ApprovalDecided {
        let decision = match answered.answer {
            Answer::ApproveForSession if self.outside_sandbox => Decision::Approved,
            answer => answer.into(),
        };
        ApprovalDecided {
            approval_id: self.approval_id.clone(),
            decision,
            by: answered.by.clone(),
            comment: answered.comment.clone(),
            prefix: answered.prefix.clone(),
        }
    }
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes, this once.
    Approve,
    /// Yes, and the like for the rest of the session.
    ApproveForSession,
    /// No.
    Deny,
}

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Approve => Self::Approved,
            Answer::ApproveForSession => Self::ApprovedForSession,
            Answer::Deny => Self::Denied,
        }
    }
}

/// An answer with who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// What was said.
    pub answer: Answer,
    /// Who said it.
    pub by: String,
    /// What the person added, told to the model.
    pub comment: Option<String>,
    /// With [`Answer::ApproveForSession`]: the words of the question, to approve commands by that
    /// begin with them. Without, the identical call is approved.
    pub prefix: Option<Vec<String>>,
}

/// Says why an answer was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Nothing is asked about that call.
    #[error("run {run_id} asks nothing about call {call_id}")]
    NotFound {
        /// The run.
        run_id: RunId,
        /// The call.
        call_id: String,
    },
    /// Somebody was faster.
    #[error("the question about call {call_id} was answered already")]
    AlreadyDecided {
        /// The call.
        call_id: String,
    },
    /// The answer names words that the question does not offer.
    #[error(
        "the question about call {call_id} offers no such words; answer for the session with the \
         words it offers, or without any"
    )]
    NotOffered {
        /// The call.
        call_id: String,
    },
}

type Key = (RunId, String);

#[derive(Default)]
struct Held {
    waiting: HashMap<Key, (ApprovalInfo, oneshot::Sender<Answered>)>,
    decided: HashMap<RunId, HashSet<String>>,
}

/// All questions of a process. Any client may answer each, once.
#[derive(Clone, Default)]
pub struct ApprovalBoard {
    held: Arc<Mutex<Held>>,
    /// Counts the changes of what waits.
    changes: Arc<watch::Sender<u64>>,
}

impl std::fmt::Debug for ApprovalBoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApprovalBoard").finish_non_exhaustive()
    }
}

impl ApprovalBoard {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns a watch that changes whenever what waits does.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns what waits, oldest first, of one run or of all.
    #[must_use]
    pub fn waiting(&self, run_id: Option<&RunId>) -> Vec<ApprovalInfo> {
        let mut found: Vec<_> = self
            .lock()
            .waiting
            .values()
            .map(|(info, _)| info)
            .filter(|info| run_id.is_none_or(|run_id| info.run_id == *run_id))
            .cloned()
            .collect();
        found.sort_by(|a, b| (a.asked_at, &a.approval_id).cmp(&(b.asked_at, &b.approval_id)));
        found
    }

    /// Answers a question.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn answer(
        &self,
        run_id: &RunId,
        call_id: &str,
        answered: Answered,
    ) -> Result<(), AnswerError> {
        let mut held = self.lock();
        let key = (run_id.clone(), call_id.to_owned());
        if let Some((info, _)) = held.waiting.get(&key) {
            info.check(&answered)?;
        }
        let Some((_, sender)) = held.waiting.remove(&key) else {
            let decided = held
                .decided
                .get(run_id)
                .is_some_and(|calls| calls.contains(call_id));
            return Err(if decided {
                AnswerError::AlreadyDecided {
                    call_id: call_id.into(),
                }
            } else {
                AnswerError::NotFound {
                    run_id: run_id.clone(),
                    call_id: call_id.into(),
                }
            });
        };
        held.decided
            .entry(run_id.clone())
            .or_default()
            .insert(call_id.into());
        drop(held);
        self.changed();
        // The run may have been cancelled between; then there is nobody to tell.
        let _ = sender.send(answered);
        Ok(())
    }

    /// Puts a question up. It goes when the receiver is dropped and [`withdraw`](Self::withdraw)
    /// is called.
    pub(crate) fn ask(&self, info: ApprovalInfo) -> oneshot::Receiver<Answered> {
        let (sender, receiver) = oneshot::channel();
        let key = (info.run_id.clone(), info.tool_call_id.clone());
        let mut held = self.lock();
        if let Some(calls) = held.decided.get_mut(&key.0) {
            calls.remove(&key.1);
        }
        held.waiting.insert(key, (info, sender));
        drop(held);
        self.changed();
        receiver
    }

    /// Takes a question down that nobody answered.
    pub(crate) fn withdraw(&self, run_id: &RunId, call_id: &str) {
        self.lock()
            .waiting
            .remove(&(run_id.clone(), call_id.to_owned()));
        self.changed();
    }

    /// Forgets a run that has ended.
    pub(crate) fn forget(&self, run_id: &RunId) {
        let mut held = self.lock();
        held.waiting.retain(|(run, _), _| run != run_id);
        held.decided.remove(run_id);
        drop(held);
        self.changed();
    }
}
