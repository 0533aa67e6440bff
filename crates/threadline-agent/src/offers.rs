//! Questions to a person that outlived the process which asked them.
//!
//! The log still says what was asked. As long as nobody has gone on with the session the question
//! is offered again; a yes begins a turn in which the model is told of it and the call is not asked
//! for once more. The call itself was never started, so it runs once.

use std::collections::HashMap;

use threadline_session::{
    Payload, RunId, SessionId,
    payload::{ApprovalAsked, ContentPart, UserMessage, UserSource},
};
use threadline_store::{Archived, ListFilter, OpenQuestions, ReadError, SessionStatus};

use crate::{
    Agent, Agents, Answer, AnswerError, Answered, ApprovalInfo, ResumeOptions, Run, RunInput,
    StartError, Started,
    driver::{Driver, Stop},
    limits::MAX_OFFERS,
};

/// Says why the answer to an old question was not taken.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// Nothing is asked about that call, or it was answered meanwhile.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The sessions cannot be looked at.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The session cannot be gone on with.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What an interrupted session asks. Lists of questions are asked for often, and a log that has not
/// grown asks the same.
pub(crate) struct Offered {
    /// Events and bytes of the log then.
    log: (u64, u64),
    questions: Vec<ApprovalInfo>,
}

/// A call that a person has approved before it is made.
#[derive(Debug, Clone)]
pub(crate) struct Approved {
    asked: ApprovalInfo,
    answered: Answered,
}

impl Approved {
    /// Returns the message by which the model hears of it.
    pub(crate) fn message(&self) -> Payload {
        let ApprovalInfo {
            name, arguments, ..
        } = &self.asked;
        let mut text = format!(
            "Approval: the person has now approved the call of `{name}` with the arguments \
             {arguments}, which was not started because the process ended while it waited. Make \
             exactly this call now; it will not be asked for again."
        );
        if let Some(comment) = &self.answered.comment {
            text.push_str(&format!(" The person says: {}", comment.trim()));
        }
        Payload::UserMessage(UserMessage {
            content: vec![ContentPart::text(text)],
            source: UserSource::Context,
        })
    }

    /// Whether it is about such a call: in the sandbox or outside of it, as it was asked.
    fn is_for(&self, question: &ApprovalAsked) -> bool {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let arguments = question.arguments.as_str();
        self.asked.name == question.name
            && self.asked.outside_sandbox == question.outside_sandbox
            && (self.asked.arguments == arguments
                || json(&self.asked.arguments).is_some_and(|known| json(arguments) == Some(known)))
    }
}

impl Driver {
    /// Notes the answer that a person gave to this question before. Returns whether there was one;
    /// it is used up then.
    pub(crate) async fn is_approved(&mut self, question: &ApprovalAsked) -> Result<bool, Stop> {
        let Some(approved) = self.approved.take_if(|approved| approved.is_for(question)) else {
            return Ok(false);
        };
        let decided = ApprovalInfo {
            approval_id: question.approval_id.clone(),
            ..approved.asked
        }
        .decided(&approved.answered);
        let both = vec![
            Payload::ApprovalAsked(ApprovalAsked {
                prefix: decided.prefix.clone().or_else(|| question.prefix.clone()),
                ..question.clone()
            }),
            Payload::ApprovalDecided(decided),
        ];
        self.record(both, false).await?;
        Ok(true)
    }
}

/// A question that outlived its process and was answered with yes. Its session is open, and its turn
/// is closed.
#[derive(Debug)]
pub struct Accepted {
    agent: Agent,
    approved: Approved,
}

impl Accepted {
    /// Returns the session, opened.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Starts the turn that makes the call, under what `run` names besides a task.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(self, run: RunInput) -> Result<Started, StartError> {
        self.agent.start_approved(self.approved, run).await
    }
}

impl Agents {
    /// Returns the questions of one session that outlived the process which asked them; none while
    /// somebody writes the session.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn offers_of(&self, id: &SessionId) -> Result<Vec<ApprovalInfo>, ReadError> {
        if self.running(id).is_some() {
            return Ok(Vec::new());
        }
        let open = self.store().open_questions(id).await?;
        Ok(open.map_or_else(Vec::new, |open| infos(id, open).collect()))
    }

    /// Returns the questions of sessions whose process died while it waited, newest session first.
    ///
    /// # Errors
    /// [`ReadError`] when the sessions cannot be listed.
    pub async fn offers(&self) -> Result<Vec<ApprovalInfo>, ReadError> {
        let store = self.store();
        let filter = ListFilter {
            archived: Archived::All,
            status: Some(SessionStatus::Interrupted),
            ..ListFilter::default()
        };
        let page = store
            .list(&filter, None, MAX_OFFERS)
            .await
            .map_err(|error| {
                ReadError::from(threadline_store::BackendError::new("listing", error))
            })?;
        let mut known = std::mem::take(&mut *self.shared.offers());
        let mut kept = HashMap::new();
        let mut offers = Vec::new();
        for row in page.sessions {
            if self.running(&row.id).is_some() {
                continue;
            }
            let log = (row.events, row.bytes);
            let found = match known.remove(&row.id).filter(|known| known.log == log) {
                Some(known) => known,
                None => Offered {
                    log,
                    // One that cannot be read says so elsewhere.
                    questions: match store.open_questions(&row.id).await {
                        Ok(Some(open)) => infos(&row.id, open).collect(),
                        Ok(None) | Err(_) => Vec::new(),
                    },
                },
            };
            offers.extend(found.questions.iter().cloned());
            kept.insert(row.id, found);
        }
        *self.shared.offers() = kept;
        Ok(offers)
    }

    /// Answers a question that outlived its process, once. A yes begins a run, under what `run`
    /// names besides a task; a no closes the interrupted turn.
    ///
    /// # Errors
    /// [`OfferError`].
    pub async fn answer_offer(
        &self,
        run_id: &RunId,
        call_id: &str,
        answered: Answered,
        run: RunInput,
    ) -> Result<Option<Run>, OfferError> {
        let offers = self.offers().await?;
        let offer = offers
            .into_iter()
            .find(|offer| offer.run_id == *run_id && offer.tool_call_id == call_id)
            .ok_or_else(|| AnswerError::NotFound {
                run_id: run_id.clone(),
                call_id: call_id.to_owned(),
            })?;
        match self.accept(offer, answered).await? {
            None => Ok(None),
            Some(accepted) => match accepted.start(run).await? {
                Started::New(run) => Ok(Some(run)),
                Started::Repeated { .. } => Ok(None),
            },
        }
    }

    /// Takes the answer to a question that outlived its process, once. A no closes the interrupted
    /// turn; after a yes the call is to be [started](Accepted::start).
    ///
    /// # Errors
    /// [`OfferError`]; also when the question is not open any more.
    pub async fn accept(
        &self,
        offer: ApprovalInfo,
        answered: Answered,
    ) -> Result<Option<Accepted>, OfferError> {
        offer.check(&answered)?;
        let open = self.offers_of(&offer.session_id).await?;
        if open.iter().all(|now| now.approval_id != offer.approval_id) {
            let call_id = offer.tool_call_id;
            return Err(AnswerError::AlreadyDecided { call_id }.into());
        }
        // Opening it closes the turn: of two who answer at once the second finds it busy.
        let agent = match self
            .resume(ResumeOptions::new(offer.session_id.clone()))
            .await
        {
            Err(StartError::Busy { .. }) => {
                let call_id = offer.tool_call_id;
                return Err(AnswerError::AlreadyDecided { call_id }.into());
            }
            other => other?,
        };
        if agent.closed() == 0 {
            let call_id = offer.tool_call_id;
            return Err(AnswerError::AlreadyDecided { call_id }.into());
        }
        if answered.answer == Answer::Deny {
            return Ok(None);
        }
        let approved = Approved {
            asked: offer,
            answered,
        };
        Ok(Some(Accepted { agent, approved }))
    }
}

fn infos(id: &SessionId, open: OpenQuestions) -> impl Iterator<Item = ApprovalInfo> {
    let OpenQuestions { run_id, questions } = open;
    let id = id.clone();
    questions.into_iter().map(move |pending| {
        ApprovalInfo::of(run_id.clone(), id.clone(), pending.asked, pending.time)
    })
}
