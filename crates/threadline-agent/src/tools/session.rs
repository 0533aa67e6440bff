//! The session that a call belongs to, as far as tools may use it.

use std::fmt;
use std::sync::{Arc, Weak};

use threadline_model::Images;
use threadline_session::payload::{ContentPart, ToolResult, TurnContext};
use threadline_session::{Item, Payload, RunId, SessionId};
use threadline_store::{BlobError, ReadError, SessionStore};

use crate::Run;
use crate::agents::Core;
use crate::budget::Budget;

/// The event type that holds results.
const TOOL_RESULT: &str = "tool/result";

/// Says why an image cannot be part of a result.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No provider could be shown it.
    #[error("an image that is no PNG, JPEG, GIF or WebP, or has more than 3.9 MB")]
    Unfit,
    /// It cannot be stored.
    #[error("an image that cannot be stored")]
    Blob(#[from] BlobError),
}

/// A handle on the session and the run of a call.
///
/// It does not keep the session open: a tool that holds on to its context cannot stop others from
/// resuming the session later.
#[derive(Clone)]
pub struct CallSession {
    core: Weak<Core>,
    store: SessionStore,
    id: SessionId,
    run_id: RunId,
    context: Arc<TurnContext>,
    call_id: Arc<str>,
    budget: Budget,
}

impl fmt::Debug for CallSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSession")
            .field("id", &self.id)
            .field("call_id", &self.call_id)
            .finish_non_exhaustive()
    }
}

impl CallSession {
    pub(crate) fn new(
        core: &Arc<Core>,
        run: &Run,
        context: &TurnContext,
        call_id: &str,
        budget: Budget,
    ) -> Self {
        Self {
            core: Arc::downgrade(core),
            store: core.shared.store.clone(),
            id: core.writer.id().clone(),
            run_id: run.run_id().clone(),
            context: Arc::new(context.clone()),
            call_id: call_id.into(),
            budget,
        }
    }

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the run that the call belongs to.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns the id that the model gave the call; ids may repeat in a session.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Returns what the run runs under.
    #[must_use]
    pub fn context(&self) -> &TurnContext {
        &self.context
    }

    /// Stores an image, so that it can be part of the call's result.
    ///
    /// # Errors
    /// [`ImageError`]; nothing is stored when it is unfit.
    pub async fn keep_image(&self, bytes: &[u8]) -> Result<ContentPart, ImageError> {
        let media_type = Images::check(bytes).map_err(|_| ImageError::Unfit)?;
        let blob = self.store.put_blob(bytes).await?;
        Ok(ContentPart::Image {
            media_type: media_type.into(),
            blob: blob.as_str().into(),
        })
    }

    /// Returns what the run may use, as it stood when the call was started.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn store(&self) -> &SessionStore {
        &self.store
    }

    /// Returns the session while its run lasts.
    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        self.core.upgrade()
    }

    /// Picks from the results of this session: from those that the model sees, and only when none
    /// of them is picked from the whole log, because reading that takes as long as it is.
    pub(crate) async fn pick_results<T: Send>(
        &self,
        wanted: impl Fn(&ToolResult) -> Option<T> + Send + Sync,
    ) -> Result<Vec<T>, ReadError> {
        let mut picked = Vec::new();
        if let Some(core) = self.core() {
            picked = core
                .writer
                .with_transcript(|transcript| {
                    transcript
                        .surface()
                        .filter_map(|(_, item)| match item {
                            Item::ToolResult(result) => wanted(&result),
                            _ => None,
                        })
                        .collect()
                })
                .await;
        }
        if picked.is_empty() {
            self.store
                .each_event(&self.id, |line| {
                    // Other lines are not parsed.
                    if line.event.kind == TOOL_RESULT
                        && let Ok(Payload::ToolResult(result)) = line.event.payload()
                    {
                        picked.extend(wanted(&result));
                    }
                    true
                })
                .await?;
        }
        Ok(picked)
    }
}
