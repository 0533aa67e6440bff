//! Messages that are sent while a run goes on: kept in the log, delivered once, in order.
//!
//! A message waits from `inbox/queued` on. It is delivered by a batch that holds `inbox/taken` and
//! the message itself, so a death lies before both or behind both. Who puts one in and who takes
//! one out hold the same lock; other processes cannot write to the session at the same time.

use std::sync::Arc;

use threadline_session::{
    Payload, Queued, SessionId,
    payload::{ContentPart, Delivery, InboxMark, InboxQueued, UserMessage, UserSource},
};
use threadline_store::AppendOptions;
use uuid::Uuid;

use crate::{
    Agent, Agents, ResumeOptions, Run, RunInput, StartError, Started,
    agents::Core,
    driver::{Driver, Stop},
    limits::{MAX_QUEUED, MAX_QUEUED_BYTES},
};

/// A message to be queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInput {
    /// What it says.
    pub text: String,
    /// Images that belong to it, as the bytes of PNG, JPEG, GIF or WebP files. `None` is none for a
    /// new message, and leaves those of the message that it replaces.
    pub images: Option<Vec<Vec<u8>>>,
    /// When it is delivered.
    pub delivery: Delivery,
    /// The waiting message whose words it replaces; a new one otherwise.
    pub message_id: Option<String>,
}

impl QueueInput {
    /// Queues a text for after the turn.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            images: None,
            delivery: Delivery::AfterTurn,
            message_id: None,
        }
    }
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedMessage {
    /// Identifies it.
    pub message_id: String,
    /// Its event.
    pub seq: u64,
}

/// Says why a message could not be queued, changed or withdrawn. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// It says nothing.
    #[error("the message is empty")]
    Empty,
    /// It is too long.
    #[error("a message of {bytes} bytes is over the limit of {MAX_QUEUED_BYTES}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Too many wait already.
    #[error("{MAX_QUEUED} messages wait already; let some be delivered, or withdraw some")]
    Full,
    /// It was delivered or withdrawn before, or never was there.
    #[error("message `{message_id}` does not wait any more")]
    NotWaiting {
        /// The message.
        message_id: String,
    },
    /// The session cannot be opened or written.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<threadline_store::AppendError> for QueueError {
    fn from(error: threadline_store::AppendError) -> Self {
        Self::Start(error.into())
    }
}

impl QueueError {
    /// Returns the stable code that interfaces show.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "empty_task",
            Self::TooLong { .. } => "too_large",
            Self::Full => "queue_full",
            Self::NotWaiting { .. } => "not_waiting",
            Self::Start(error) => error.code(),
        }
    }
}

impl Agents {
    /// Queues a message for a session, durably. A session without a run begins to work on it at
    /// once, under what `run` names besides a task; then the run is returned too.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn queue(
        &self,
        id: &SessionId,
        input: QueueInput,
        run: RunInput,
    ) -> Result<(QueuedMessage, Option<Run>), QueueError> {
        check(&input)?;
        let core = self.core(id).await?;
        let queued = core.queue(input).await?;
        Ok((queued, deliver(core, run).await?))
    }

    /// Withdraws a message that still waits.
    ///
    /// # Errors
    /// [`QueueError::NotWaiting`] when it was delivered already.
    pub async fn withdraw(&self, id: &SessionId, message_id: &str) -> Result<(), QueueError> {
        self.core(id).await?.withdraw(message_id).await
    }

    /// Starts a run on what waits in a session's inbox, as after a restart, under what `run` names
    /// besides a task. `None` when nothing waits or a run is under way, which will see to it.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn deliver(&self, id: &SessionId, run: RunInput) -> Result<Option<Run>, StartError> {
        if self.running(id).is_some() {
            return Ok(None);
        }
        deliver(self.core(id).await?, run).await
    }

    /// The run under way lends its writer; else the session is opened.
    pub(crate) async fn core(&self, id: &SessionId) -> Result<Arc<Core>, StartError> {
        match self.shared.running_core(id) {
            Some(core) => Ok(core),
            None => Ok(self.resume(ResumeOptions::new(id.clone())).await?.core),
        }
    }
}

async fn deliver(core: Arc<Core>, run: RunInput) -> Result<Option<Run>, StartError> {
    match (Agent { core }).start_queued(run).await {
        Ok(Some(Started::New(run))) => Ok(Some(run)),
        Ok(_) | Err(StartError::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn check(input: &QueueInput) -> Result<(), QueueError> {
    if input.text.trim().is_empty() {
        return Err(QueueError::Empty);
    }
    let bytes = input.text.len();
    if bytes > MAX_QUEUED_BYTES {
        return Err(QueueError::TooLong { bytes });
    }
    Ok(())
}

impl Core {
    async fn queue(&self, input: QueueInput) -> Result<QueuedMessage, QueueError> {
        let _lock = self.inbox.lock().await;
        let waiting = self.waiting().await;
        let (message_id, before) = match input.message_id {
            Some(id) => match waiting.into_iter().find(|queued| queued.message_id == id) {
                Some(queued) => (id, queued.content),
                None => return Err(QueueError::NotWaiting { message_id: id }),
            },
            None if waiting.len() >= MAX_QUEUED => return Err(QueueError::Full),
            None => (Uuid::now_v7().to_string(), Vec::new()),
        };
        let mut content = vec![ContentPart::text(input.text)];
        match input.images {
            Some(images) => content.extend(self.keep_images(&images).await?),
            None => content.extend(
                before
                    .into_iter()
                    .filter(|part| matches!(part, ContentPart::Image { .. })),
            ),
        }
        let queued = Payload::InboxQueued(InboxQueued {
            message_id: message_id.clone(),
            content,
            delivery: input.delivery,
        });
        // "Queued" is a promise.
        let options = AppendOptions::barrier();
        let appended = self.writer.record(vec![queued], options).await?;
        Ok(QueuedMessage {
            message_id,
            seq: appended.last_seq,
        })
    }

    async fn withdraw(&self, message_id: &str) -> Result<(), QueueError> {
        let _lock = self.inbox.lock().await;
        let waiting = self.waiting().await;
        if !waiting.iter().any(|queued| queued.message_id == message_id) {
            let message_id = message_id.to_owned();
            return Err(QueueError::NotWaiting { message_id });
        }
        let dropped = Payload::InboxDropped(InboxMark {
            message_id: message_id.to_owned(),
        });
        let options = AppendOptions::barrier();
        self.writer.record(vec![dropped], options).await?;
        Ok(())
    }

    pub(crate) async fn waiting(&self) -> Vec<Queued> {
        self.writer
            .with_transcript(|transcript| transcript.inbox().to_vec())
            .await
    }
}

/// Delivers messages: what takes them out of the inbox, and they themselves.
pub(crate) fn taken(messages: Vec<Queued>, source: UserSource) -> Vec<Payload> {
    let both = |queued: Queued| {
        let mark = InboxMark {
            message_id: queued.message_id,
        };
        let message = UserMessage {
            content: queued.content,
            source,
        };
        [Payload::InboxTaken(mark), Payload::UserMessage(message)]
    };
    messages.into_iter().flat_map(both).collect()
}

impl Driver {
    /// Delivers what is to be heard before the next step.
    pub(crate) async fn take_steering(&mut self) -> Result<(), Stop> {
        let core = self.core.clone();
        let _lock = core.inbox.lock().await;
        let mut waiting = core.waiting().await;
        waiting.retain(|queued| queued.delivery == Delivery::NextStep);
        if waiting.is_empty() {
            return Ok(());
        }
        self.end_step().await?;
        self.record(taken(waiting, UserSource::Steer), false)
            .await?;
        Ok(())
    }
}
