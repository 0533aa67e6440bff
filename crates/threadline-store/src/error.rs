//! One error type per operation, listing only what it can return.

use threadline_session::{ApplyError, EventError, HeaderError, SessionId, codec::EncodeError};

use crate::{BackendError, Damage, HeaderReadError, Holder};

/// Says why a session cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The id is taken.
    #[error("session {id} exists already")]
    AlreadyExists {
        /// The session.
        id: SessionId,
    },
    /// The header does not serialize.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why a session cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such session in this store.
    #[error("there is no session {id} in {store}")]
    NotFound {
        /// The session.
        id: SessionId,
        /// The store that was asked.
        store: String,
    },
    /// The log is damaged.
    #[error("session {id}: {damage}")]
    Corrupt {
        /// The session.
        id: SessionId,
        /// Where and how.
        damage: Damage,
    },
    /// The log's format, or an event in it, is of another version.
    #[error("session {id}: {reason}")]
    Unsupported {
        /// The session.
        id: SessionId,
        /// Which, and in which direction.
        reason: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why a session cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Another writer has it.
    #[error("session {id} is being written by {holder}")]
    Locked {
        /// The session.
        id: SessionId,
        /// Who, and since when.
        holder: Holder,
    },
    /// There is no space to close the last turn or to move torn bytes aside.
    #[error("session {id} cannot be opened because the storage is full: {what}")]
    StorageFull {
        /// The session.
        id: SessionId,
        /// What could not be written.
        what: String,
    },
    /// Recovery could not be written.
    #[error("session {id}: {source}")]
    Recovery {
        /// The session.
        id: SessionId,
        /// The cause.
        #[source]
        source: AppendError,
    },
}

/// Says why a batch was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The history cannot be moved there, because the log before cannot be read.
    #[error("the history cannot be moved to event {target}: {reason}")]
    Past {
        /// Where it was to be moved.
        target: u64,
        /// What is wrong.
        reason: String,
    },
    /// Somebody appended first.
    #[error("expected to append at event {expected}, but the log continues at {actual}")]
    Conflict {
        /// Sequence number the caller expected to write.
        expected: u64,
        /// Sequence number the log continues at.
        actual: u64,
    },
    /// The batch is malformed.
    #[error(transparent)]
    Invalid(#[from] EncodeError),
    /// A payload does not serialize.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The log could not be read back with this event in it.
    #[error("the event cannot be accepted, because the log could not be loaded with it: {0}")]
    Unloadable(#[from] ApplyError),
    /// The session came into being elsewhere since `create`.
    #[error("session {id} exists already")]
    AlreadyExists {
        /// The session.
        id: SessionId,
    },
    /// Another writer has it.
    #[error("the session is being written by {holder}")]
    Locked {
        /// Who, and since when.
        holder: Holder,
    },
    /// There is no space. The log is valid, and appending works again once there is.
    #[error("the storage is full: {what}")]
    StorageFull {
        /// What could not be written.
        what: String,
    },
    /// Another writer has taken over.
    #[error("another writer has taken over: {by}")]
    Fenced {
        /// Who, as far as is known.
        by: String,
    },
    /// A write or sync failed; open the session again to recover.
    #[error("a write failed, so this writer refuses to go on; open the session again: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The outcome is not known; ask again with the same idempotency key.
    #[error(
        "it is not known whether the batch was stored; append it again with the same key: {reason}"
    )]
    UnknownOutcome {
        /// What happened.
        reason: String,
    },
}

/// Says why what people set was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// There is no such session.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Somebody changed it first.
    #[error("session {id} was changed meanwhile: its revision is {actual}, not {expected}")]
    Conflict {
        /// The session.
        id: SessionId,
        /// Revision the caller saw.
        expected: u64,
        /// Revision in force.
        actual: u64,
    },
    /// A value is over its limit.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// Says why a session was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// There is no such session.
    #[error("there is no session {id} in {store}")]
    NotFound {
        /// The session.
        id: SessionId,
        /// The store that was asked.
        store: String,
    },
    /// Somebody is writing it.
    #[error("session {id} is being written by {holder}")]
    Locked {
        /// The session.
        id: SessionId,
        /// Who, and since when.
        holder: Holder,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why a list cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The cursor is not one that a list gave.
    #[error("the cursor is not one that a list gave; start again without one")]
    Cursor,
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Returns an error with its causes as one sentence, without repeating what a message already
/// holds.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

pub(crate) fn header_error(id: &SessionId, error: HeaderReadError) -> ReadError {
    match error {
        HeaderReadError::Backend(error) => ReadError::Backend(error),
        HeaderReadError::Header { file, source } => match source {
            HeaderError::Newer { .. } | HeaderError::NeverReleased { .. } => {
                ReadError::Unsupported {
                    id: id.clone(),
                    reason: source.to_string(),
                }
            }
            HeaderError::Checksum | HeaderError::Invalid { .. } => ReadError::Corrupt {
                id: id.clone(),
                damage: Damage {
                    file,
                    offset: 0,
                    bytes: 0,
                    seq: 0,
                    reason: source.to_string(),
                },
            },
        },
    }
}
