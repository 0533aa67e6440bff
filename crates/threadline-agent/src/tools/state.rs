//! What tools keep as long as a run lasts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadline_session::RunId;
use tokio::sync::Semaphore;

use super::jobs::Jobs;
use crate::limits::SUBAGENTS;

/// The states of the runs of this process.
#[derive(Default)]
pub(crate) struct RunStates(Mutex<HashMap<RunId, Arc<RunState>>>);

/// The state of one run.
pub(crate) struct RunState {
    pub(crate) jobs: Jobs,
    /// Permits for subagents.
    pub(crate) subagents: Arc<Semaphore>,
}

impl RunStates {
    fn held(&self) -> MutexGuard<'_, HashMap<RunId, Arc<RunState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a run, which begins with the first call that needs it.
    pub(crate) fn of(&self, run_id: &RunId) -> Arc<RunState> {
        let mut held = self.held();
        let state = held.entry(run_id.clone()).or_insert_with(|| {
            Arc::new(RunState {
                jobs: Jobs::default(),
                subagents: Arc::new(Semaphore::new(SUBAGENTS)),
            })
        });
        Arc::clone(state)
    }

    /// Ends what a run left behind.
    pub(crate) fn end(&self, run_id: &RunId) {
        let state = self.held().remove(run_id);
        if let Some(state) = state {
            state.jobs.end();
        }
    }
}
