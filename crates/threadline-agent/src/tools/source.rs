//! Tools that are not always there, such as those of servers that a session is connected to.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use threadline_session::SessionId;

use super::Tool;

/// What a source has for one turn.
pub struct Ready {
    /// The tools. They stay as they are until the turn ends.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What the model is to know of them besides, such as what is missing and why; told again only
    /// when it differs from what was told last.
    pub told: Option<String>,
    /// Dropped when the run has ended.
    pub hold: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready")
            .field("tools", &self.tools.len())
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

/// Has tools for sessions besides those of the [`Toolbox`](super::Toolbox).
///
/// It is asked once at the beginning of each turn, after the prompt is stored. A subagent has what
/// the session has that it works for, under the id of that one.
#[async_trait]
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// Returns whether it may have anything for a session.
    fn serves(&self, session: &SessionId) -> bool;

    /// Gets what a session has ready for a turn in a working directory. It must end within a time
    /// of its own: what cannot be had is left out and told.
    async fn ready(&self, session: &SessionId, cwd: &Path) -> Ready;

    /// Returns what a session lacks, a sentence each, for the person.
    fn lacks(&self, session: &SessionId) -> Vec<String>;

    /// Lets go of everything and waits until that is done. It may be called again.
    async fn shutdown(&self);
}
