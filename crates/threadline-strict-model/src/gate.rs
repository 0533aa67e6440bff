//! Named points where a reply waits until the test lets it go on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, Default)]
struct Status {
    open: bool,
    waiting: u64,
    reached: u64,
    abandoned: u64,
}

/// A named point where replies wait until it is opened.
#[derive(Debug, Clone)]
pub struct Gate {
    status: Arc<watch::Sender<Status>>,
}

impl Gate {
    fn new() -> Self {
        Self {
            status: Arc::new(watch::Sender::new(Status::default())),
        }
    }

    /// Opens the gate for good: who waits goes on, who comes later does not wait.
    pub fn open(&self) {
        self.status.send_modify(|status| status.open = true);
    }

    /// Waits until a reply has come to the gate.
    pub async fn wait_reached(&self) {
        self.until(|status| status.reached > 0).await;
    }

    /// Waits until a reply has come to the gate at least this many times.
    pub async fn wait_reached_times(&self, times: u64) {
        self.until(|status| status.reached >= times).await;
    }

    /// Waits until a client has gone away while its reply waited here.
    pub async fn wait_abandoned(&self) {
        self.until(|status| status.abandoned > 0).await;
    }

    /// Returns whether a reply waits here now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.status.borrow().waiting > 0
    }

    async fn until(&self, holds: impl FnMut(&Status) -> bool) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.status.subscribe().wait_for(holds).await;
    }

    /// Comes to the gate and waits there.
    pub(crate) async fn pass(&self) {
        self.status.send_modify(|status| {
            status.waiting += 1;
            status.reached += 1;
        });
        let mut visit = Visit {
            gate: self,
            passed: false,
        };
        self.until(|status| status.open).await;
        visit.passed = true;
    }
}

/// Notices that a client went away: its reply is then dropped in the middle of `pass`.
struct Visit<'a> {
    gate: &'a Gate,
    passed: bool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.gate.status.send_modify(|status| {
            status.waiting = status.waiting.saturating_sub(1);
            status.abandoned += u64::from(!self.passed);
        });
    }
}

/// All gates of a server, made when first named.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<BTreeMap<String, Gate>>);

impl Gates {
    pub(crate) fn get(&self, name: &str) -> Gate {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates
            .entry(name.to_owned())
            .or_insert_with(Gate::new)
            .clone()
    }

    pub(crate) fn waiting(&self) -> Vec<String> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = gates.iter().filter(|(_, gate)| gate.is_waiting());
        waiting.map(|(name, _)| name.clone()).collect()
    }
}
