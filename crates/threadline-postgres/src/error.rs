//! What can go wrong below the seam, and what it means.

use std::{error::Error as _, io, time::Duration};

use deadpool_postgres::{HookError, PoolError};
use threadline_store::{BackendError, ClaimError};
use tokio_postgres::error::SqlState;

/// A failure of the database or of the way to it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The server or the connection failed.
    #[error(transparent)]
    Pg(#[from] tokio_postgres::Error),
    /// No connection could be had.
    #[error("no connection: {0}")]
    Pool(String),
    /// What was found makes no sense, or cannot be stored.
    #[error("{0}")]
    Other(String),
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The transaction lost a race and was rolled back: try again.
    Race,
    /// The connection is gone: what was under way may have happened.
    Lost,
    /// There is no space; it was rolled back.
    Full,
    /// It failed and was rolled back.
    Failed,
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                Self::Pg(error)
            }
            error => Self::Pool(error.to_string()),
        }
    }
}

impl Trouble {
    pub(crate) fn kind(&self) -> Kind {
        let Self::Pg(error) = self else {
            return Kind::Failed;
        };
        let Some(code) = error.code() else {
            let io = error
                .source()
                .is_some_and(|source| source.downcast_ref::<io::Error>().is_some());
            return if io || error.is_closed() {
                Kind::Lost
            } else {
                Kind::Failed
            };
        };
        match *code {
            SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => Kind::Race,
            SqlState::DISK_FULL => Kind::Full,
            SqlState::ADMIN_SHUTDOWN
            | SqlState::CRASH_SHUTDOWN
            | SqlState::CANNOT_CONNECT_NOW
            | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Kind::Lost,
            _ if code.code().starts_with("08") => Kind::Lost,
            _ => Kind::Failed,
        }
    }

    /// Returns whether the server said this.
    pub(crate) fn is(&self, codes: &[SqlState]) -> bool {
        matches!(self, Self::Pg(error) if error.code().is_some_and(|code| codes.contains(code)))
    }

    pub(crate) fn backend(self, what: impl Into<String>) -> BackendError {
        match self.kind() {
            // The kind is how those above the seam tell it from other failures.
            Kind::Full => BackendError::new(what, io::Error::new(io::ErrorKind::StorageFull, self)),
            Kind::Race | Kind::Lost | Kind::Failed => BackendError::new(what, self),
        }
    }

    pub(crate) fn claim(self, what: impl Into<String>) -> ClaimError {
        match self.kind() {
            Kind::Full => ClaimError::StorageFull { what: what.into() },
            Kind::Race | Kind::Lost | Kind::Failed => ClaimError::Backend(self.backend(what)),
        }
    }
}

/// How often something that changes nothing when it is done twice is tried again.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    races: u32,
    losses: u32,
}

const MOST_RACES: u32 = 10;
const MOST_LOSSES: u32 = 4;

impl Tries {
    /// Waits a moment if another try is worth it; else gives the failure back.
    pub(crate) async fn again(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        let (tries, most) = match trouble.kind() {
            Kind::Race => (&mut self.races, MOST_RACES),
            Kind::Lost => (&mut self.losses, MOST_LOSSES),
            Kind::Full | Kind::Failed => return Err(trouble),
        };
        *tries += 1;
        if *tries > most {
            return Err(trouble);
        }
        tracing::debug!(%trouble, "trying again");
        tokio::time::sleep(pause(*tries)).await;
        Ok(())
    }

    /// Returns whether an earlier try may have been done after all.
    pub(crate) fn lost(&self) -> bool {
        self.losses > 0
    }
}

/// Returns a growing pause that differs between those who wait.
pub(crate) fn pause(tries: u32) -> Duration {
    let most = 4_u64 << tries.min(6);
    let jitter = crate::lease::random() % most;
    Duration::from_millis(most / 2 + jitter / 2)
}

/// Repeats an attempt while its failure is worth another one.
macro_rules! retrying {
    ($once:expr) => {{
        let mut tries = $crate::error::Tries::default();
        loop {
            match $once.await {
                Ok(done) => break Ok(done),
                Err(trouble) => {
                    if let Err(trouble) = tries.again(trouble).await {
                        break Err(trouble);
                    }
                }
            }
        }
    }};
}
pub(crate) use retrying;
