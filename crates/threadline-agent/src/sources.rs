//! Tools from a source: made ready between the prompt and the first step of a turn.
//!
//! The prompt is stored before, because servers may take their time, and because nobody waits for
//! them who only wants to cancel.

use std::{any::Any, sync::Arc};

use threadline_session::{Payload, SessionId};

use crate::{
    agents::Core,
    context,
    driver::{Driver, Stop},
    start::system_prompt,
    subagents,
    tools::{Ready, ToolSource},
};

/// A source that has something for a session.
pub(crate) struct Sources {
    source: Arc<dyn ToolSource>,
    /// The session whose tools they are: of a subagent, the one that it works for.
    session: SessionId,
    /// What is let go of when the run has ended.
    hold: Option<Box<dyn Any + Send + Sync>>,
}

impl Sources {
    /// Returns the source that has something for a session.
    pub(crate) async fn of(core: &Core) -> Option<Self> {
        let source = core.shared.config.source.clone()?;
        let session = subagents::root(&core.shared.store, core.writer.header()).await;
        source.serves(&session).then_some(Self {
            source,
            session,
            hold: None,
        })
    }

    /// Lets go of what the run held.
    pub(crate) fn release(self) {
        drop(self.hold);
    }
}

impl Driver {
    /// Gets the tools of this turn ready, and logs what the model is to know of them.
    pub(crate) async fn make_ready(&mut self) -> Result<(), Stop> {
        let Some(sources) = &mut self.sources else {
            return Ok(());
        };
        let (source, session) = (sources.source.clone(), sources.session.clone());
        let cwd = self.context.cwd.clone();
        let halt = self.halt().clone();
        let Ready { tools, told, hold } = tokio::select! {
            biased;
            () = halt.cancelled() => return Err(self.halted()),
            ready = source.ready(&session, cwd.as_path()) => ready,
        };
        for tool in tools {
            if let Err(error) = self.toolbox.register(tool) {
                tracing::warn!(%error, "a tool is left out");
            }
        }
        if let Some(sources) = &mut self.sources {
            sources.hold = hold;
        }
        let tools = self.toolbox.definitions();
        let payloads: Vec<Payload> = self
            .core
            .writer
            .with_transcript(|transcript| {
                let news = context::sources_news(transcript, told);
                let prompt = system_prompt(transcript, tools);
                prompt
                    .into_iter()
                    .chain(news.map(Payload::UserMessage))
                    .collect()
            })
            .await;
        if !payloads.is_empty() {
            self.record(payloads, false).await?;
        }
        Ok(())
    }
}
