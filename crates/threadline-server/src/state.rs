//! What all requests share.

use std::sync::Arc;

use threadline_agent::{Agents, policy::Bounds};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Hosts,
    error::{Code, Problem},
    metrics::Metrics,
};

/// Everything that handlers need. Cheap to clone.
pub(crate) type Shared = Arc<State>;

pub(crate) struct State {
    pub(crate) agents: Agents,
    pub(crate) token: String,
    pub(crate) ceiling: Bounds,
    pub(crate) hosts: Hosts,
    pub(crate) version: String,
    pub(crate) demonstration: bool,
    pub(crate) metrics: Metrics,
    /// Held while a whole log is checked.
    pub(crate) checking: tokio::sync::Mutex<()>,
    /// Counts what clients have changed of sessions besides running them.
    pub(crate) changes: watch::Sender<u64>,
    /// Cancelled when shutdown begins: nothing new is started.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the ends of all runs are logged: event streams end.
    pub(crate) closing: CancellationToken,
}

impl State {
    /// Notes that lists may show something else now.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Refuses to start something once shutdown has begun.
    pub(crate) fn open(&self) -> Result<(), Problem> {
        if self.stopping.is_cancelled() {
            return Err(Problem::new(Code::ShuttingDown, "the server is going down"));
        }
        Ok(())
    }
}
