//! The model and the tools of a replay: they say what the log says they said.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_model::{ModelError, ModelEvent, ModelStream, Provider};
use threadline_session::{
    Event, Request,
    payload::{ContentPart, ToolDefinition, ToolResult},
};
use threadline_store::{AppendError, AppendOptions, BlobId, SessionStore};

use super::script::{Answering, Script, Working};
use crate::tools::{Effect, Tool, ToolContext, ToolOutput};

/// Appends what others had appended meanwhile. Returns whether it stands there now.
async fn pass(script: &Script, events: Vec<Event>) -> bool {
    let (Some(core), Some(first)) = (script.core(), events.first()) else {
        return false;
    };
    let first = first.seq;
    let options = AppendOptions::default();
    let appended = core.writer.append(first, events, options).await;
    // A tool that waits as well may have been faster.
    matches!(appended, Ok(_) | Err(AppendError::Conflict { .. }))
}

/// The model.
#[derive(Clone)]
pub(super) struct Recording {
    pub(super) name: String,
    pub(super) script: Arc<Script>,
}

impl Recording {
    async fn next(&self) -> Result<ModelEvent, ModelError> {
        loop {
            match self.script.answering() {
                Answering::Pass(events) => {
                    if !pass(&self.script, events).await {
                        return Err(ModelError::CutStream);
                    }
                }
                Answering::Retry(trouble) => return Ok(ModelEvent::Retry(trouble)),
                Answering::Done(completion) => return Ok(ModelEvent::Done(completion)),
                Answering::Fail(error) => return Err(error),
            }
        }
    }
}

impl Provider for Recording {
    fn name(&self) -> &str {
        &self.name
    }

    fn body(&self, request: &Request) -> Value {
        serde_json::to_value(request).unwrap_or_else(|_| json!({}))
    }

    fn stream(&self, request: Request) -> ModelStream {
        // What reaches the model is what the step has logged the fingerprint of.
        let sent = request
            .fingerprint()
            .is_ok_and(|print| self.script.sent(&print.hash));
        if !sent {
            self.script.sent_otherwise();
        }
        let answers = stream::unfold(Some(self.clone()), |state| async {
            let recording = state?;
            let next = recording.next().await;
            let ended = !matches!(next, Ok(ModelEvent::Retry(_)));
            Some((next, (!ended).then_some(recording)))
        });
        answers.boxed()
    }
}

/// A tool. It does nothing; what it may do is what the real one says.
pub(super) struct Recorded {
    pub(super) definition: ToolDefinition,
    pub(super) real: Option<Arc<dyn Tool>>,
    /// Whether it only reads, when there is no real one that says so.
    pub(super) reads: bool,
    pub(super) script: Arc<Script>,
    /// Where whole outputs are kept.
    pub(super) store: SessionStore,
}

#[async_trait]
impl Tool for Recorded {
    fn definition(&self) -> ToolDefinition {
        self.definition.clone()
    }

    fn effect(&self, arguments: &Value) -> Effect {
        match &self.real {
            Some(real) => real.effect(arguments),
            None if self.reads => Effect::ReadOnly,
            None => Effect::Executes,
        }
    }

    async fn run(&self, arguments: &Value, _: &ToolContext) -> ToolOutput {
        let mut moved = self.script.watch();
        let Some(call) = self.script.claim(&self.definition.name, arguments) else {
            return ToolOutput::error("the log has no such call");
        };
        loop {
            match self.script.working(call) {
                Working::Pass(events) => {
                    if !pass(&self.script, events).await {
                        return ToolOutput::error("the log cannot be gone on with");
                    }
                }
                Working::Result(result) => return output(&self.store, result).await,
                Working::Over => return ToolOutput::error("the log has no result of this call"),
                // The script outlives the loop, so this ends when another call is answered.
                Working::Wait => drop(moved.changed().await),
            }
        }
    }
}

/// Makes the output again that a result was made of.
async fn output(store: &SessionStore, result: ToolResult) -> ToolOutput {
    let outcome = result.outcome;
    let mut content = result.content;
    if let Some(full) = result.full
        && let Some(text) = whole(store, &full.blob).await
    {
        content.retain(|part| !matches!(part, ContentPart::Text { .. }));
        content.insert(0, ContentPart::text(text));
    }
    let mut output = ToolOutput::new(outcome, "");
    output.content = content;
    output
}

/// Returns the text of a blob, if it is there.
pub(super) async fn whole(store: &SessionStore, blob: &str) -> Option<String> {
    let id = BlobId::parse(blob).ok()?;
    let bytes = store.get_blob(&id).await.ok()?;
    String::from_utf8(bytes).ok()
}
