//! Who holds a session. The epoch in each append is the truth; a lease is courtesy.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use threadline_store::Holder;

/// Tokens of the writers that this process holds now.
static LIVE: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// This process, as others on the same machine can find it.
static HERE: LazyLock<Here> = LazyLock::new(|| Here {
    host: rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned(),
    machine: machine(),
    started: started(std::process::id()),
});

#[derive(Debug)]
struct Here {
    host: String,
    machine: Option<String>,
    started: Option<u64>,
}

/// A holder as the head row names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holding {
    pid: u32,
    host: String,
    /// Since when, unix milliseconds.
    since: u64,
    /// Boot and process namespace: where the process id means this process.
    machine: Option<String>,
    /// When the process began, in ticks since the boot.
    started: Option<u64>,
    token: u64,
}

impl Holding {
    /// Returns a holding of this process, which counts as dead until [`Self::enter`].
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            pid: std::process::id(),
            host: HERE.host.clone(),
            since: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
            machine: HERE.machine.clone(),
            started: HERE.started,
            token: random(),
        }
    }

    /// Returns it as others are told of it.
    pub(crate) fn holder(self) -> Holder {
        Holder {
            pid: self.pid,
            host: self.host,
            since: self.since,
        }
    }

    /// Marks it as held.
    pub(crate) fn enter(&self) {
        live().insert(self.token);
    }

    /// Marks it as let go of.
    pub(crate) fn leave(&self) {
        live().remove(&self.token);
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns whether it is certain that nobody holds this any more, whatever the lease says.
    pub(crate) fn is_dead(&self) -> bool {
        if self.machine.is_none() || self.machine != HERE.machine {
            return false;
        }
        if self.pid == std::process::id() && self.started == HERE.started {
            return !live().contains(&self.token);
        }
        let pid = i32::try_from(self.pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let gone = pid.is_none_or(|pid| {
            rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
        });
        gone || (self.started.is_some() && started(self.pid) != self.started)
    }
}

/// Returns who stands in a head row: nobody when the lease is over or the holder dead.
pub(crate) fn holder_now(text: Option<&str>, leased: bool) -> Option<Holder> {
    let text = text.filter(|_| leased)?;
    match Holding::parse(text) {
        Some(holding) if holding.is_dead() => None,
        Some(holding) => Some(holding.holder()),
        None => Some(Holder {
            pid: 0,
            host: "an unknown host".into(),
            since: 0,
        }),
    }
}

fn live() -> std::sync::MutexGuard<'static, HashSet<u64>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a random number below 2^62.
pub(crate) fn random() -> u64 {
    uuid::Uuid::now_v7().as_u64_pair().1 & ((1 << 62) - 1)
}

fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the start time is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holding_is_dead_before_it_is_entered_and_after_it_is_left() {
        let holding = Holding::new();
        assert!(holding.is_dead());
        holding.enter();
        assert!(!holding.is_dead());
        let read = Holding::parse(&holding.to_text()).unwrap();
        assert_eq!(read, holding);
        assert_eq!(holder_now(Some(&holding.to_text()), false), None);
        holding.leave();
        assert!(read.is_dead());
    }

    #[test]
    fn a_holding_of_another_machine_is_never_known_to_be_dead() {
        let mut holding = Holding::new();
        holding.machine = Some("elsewhere".into());
        assert!(!holding.is_dead());
        assert!(holder_now(Some(&holding.to_text()), true).is_some());
    }

    #[test]
    fn another_process_that_took_over_the_number_is_not_the_holder() {
        let mut holding = Holding::new();
        holding.enter();
        holding.started = Some(1);
        assert!(holding.is_dead());
        holding.pid = i32::MAX as u32;
        assert!(holding.is_dead());
    }
}
