//! What can go wrong with the database, and how it is told above.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use threadline_store::{BackendError, ClaimError, WriteError};

/// Says what is wrong with a database file, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// The file is something else.
    #[error(
        "{path} is no SQLite database; nothing was changed in it. Name another file, or move this one away"
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error(
        "{path} is a database of another program; nothing was changed in it. Name another file"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer version has written the database.
    #[error(
        "{path} was written by a newer threadline (schema {found}, this one knows up to {known}): upgrade threadline to open it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema of the database.
        found: i64,
        /// Newest schema that this program knows.
        known: i64,
    },
    /// The database is damaged.
    #[error(
        "{path} is damaged ({reason}). Copy it with its -wal file to a safe place, then save what can be read with `sqlite3 {path} .recover`"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// The disk, or the size that the database may have, is full.
    #[error("there is no space for {path}: {reason}. Make space, then try again")]
    Full {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
        /// The same as the rest of the system says it, which is how those above tell it from other
        /// failures.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else kept the database locked for too long.
    #[error(
        "another process keeps {path} locked; nothing was stored. Try again, or look for a program that has the file open"
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file is on a network file system.
    #[error(
        "{path} is on {kind}, where SQLite's locks do not hold between machines; use a local folder, or PostgreSQL for many machines"
    )]
    Network {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// There is no such file, and none was to be made.
    #[error("there is no database {path}")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{path}: {source}")]
    Other {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SqliteError {
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt {
                path,
                reason: error.to_string(),
            },
            Some(ErrorCode::DiskFull) => Self::Full {
                path,
                reason: error.to_string(),
                source: std::io::ErrorKind::StorageFull.into(),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            _ => match error {
                // A value of another kind than this program ever stores.
                rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..) => Self::Corrupt {
                    path,
                    reason: error.to_string(),
                },
                error => Self::Other {
                    path,
                    source: Box::new(error),
                },
            },
        }
    }

    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        Self::Other {
            path: path.to_owned(),
            source: Box::new(error),
        }
    }

    pub(crate) fn doing(self, what: impl Into<String>) -> BackendError {
        BackendError::new(what, self)
    }
}

/// Why a piece of work on the database was given up. Nothing of it is stored, unless it says
/// otherwise.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The database said so.
    Sql(rusqlite::Error),
    /// The database said so when all was done but the commit: the outcome has to be looked up.
    Commit(rusqlite::Error),
    /// The database cannot be opened any more.
    Open(SqliteError),
    /// The work itself said so.
    Claim(ClaimError),
    /// The work itself said so.
    Write(WriteError),
    /// The request makes no sense for what is stored.
    Refused(String),
    /// The thread that writes is gone.
    Gone,
}

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<ClaimError> for Fail {
    fn from(error: ClaimError) -> Self {
        Self::Claim(error)
    }
}

impl From<WriteError> for Fail {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl Fail {
    /// Whether the connection had better not be used again.
    pub(crate) fn spoils(&self) -> bool {
        match self {
            Self::Sql(error) | Self::Commit(error) => matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::SystemIoFailure
                        | ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                        | ErrorCode::CannotOpen
                        | ErrorCode::FileLockingProtocolFailed
                        | ErrorCode::InternalMalfunction
                )
            ),
            Self::Open(_) | Self::Gone => true,
            Self::Claim(_) | Self::Write(_) | Self::Refused(_) => false,
        }
    }

    fn sqlite(self, path: &Path) -> Result<SqliteError, ClaimError> {
        match self {
            Self::Sql(error) | Self::Commit(error) => Ok(SqliteError::of(path, error)),
            Self::Open(error) => Ok(error),
            Self::Claim(error) => Err(error),
            Self::Write(error) => Err(BackendError::new(path.display().to_string(), error).into()),
            Self::Refused(reason) => {
                Err(BackendError::new(path.display().to_string(), reason).into())
            }
            Self::Gone => Ok(SqliteError::Other {
                path: path.to_owned(),
                source: "the thread that writes is gone".into(),
            }),
        }
    }

    pub(crate) fn into_sqlite(self, path: &Path) -> SqliteError {
        self.sqlite(path)
            .unwrap_or_else(|error| SqliteError::Other {
                path: path.to_owned(),
                source: Box::new(error),
            })
    }

    pub(crate) fn into_claim(self, path: &Path, what: String) -> ClaimError {
        match self.sqlite(path) {
            Ok(full @ SqliteError::Full { .. }) => ClaimError::StorageFull {
                what: format!("{what}: {full}"),
            },
            Ok(error) => error.doing(what).into(),
            Err(error) => error,
        }
    }

    pub(crate) fn into_backend(self, path: &Path, what: String) -> BackendError {
        match self.sqlite(path) {
            Ok(error) => error.doing(what),
            Err(ClaimError::Backend(error)) => error,
            Err(error) => BackendError::new(what, error),
        }
    }

    pub(crate) fn into_write(self, path: &Path, what: &str) -> WriteError {
        match self {
            Self::Write(error) => error,
            other => match other.sqlite(path) {
                Ok(full @ SqliteError::Full { .. }) => WriteError::StorageFull {
                    what: format!("{what}: {full}"),
                },
                Ok(error) => WriteError::Poisoned {
                    reason: format!("{what}: {error}"),
                },
                Err(error) => WriteError::Poisoned {
                    reason: format!("{what}: {}", threadline_store::error_chain(&error)),
                },
            },
        }
    }
}
