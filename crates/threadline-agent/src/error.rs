//! Why a run could not start, or stopped without its end being logged.

use threadline_model::ImageError;
use threadline_session::SessionId;
use threadline_store::{AppendError, BlobError, CreateError, OpenError, ReadError};

use crate::limits::{MAX_GRANTS, MAX_IMAGES};

/// Says why a run or a session could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The harness has no store to resume from.
    #[error("sessions cannot be resumed, because this agent was built without a store")]
    NoStore,
    /// The task says nothing.
    #[error("the task is empty")]
    EmptyTask,
    /// The session has a run in this process.
    #[error("session {id} has a run already")]
    Busy {
        /// The session.
        id: SessionId,
    },
    /// The session cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The session cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// An image that comes with the task or the message cannot be shown to a model.
    #[error("image {number} cannot be used: {error}")]
    Image {
        /// Its number, from 1.
        number: usize,
        /// What is wrong with it.
        error: ImageError,
    },
    /// Too many images come with the task or the message.
    #[error("{images} images are over the limit of {MAX_IMAGES}")]
    ManyImages {
        /// How many.
        images: usize,
    },
    /// An image that comes with the task or the message cannot be stored.
    #[error("an image could not be stored: {0}")]
    Blob(#[from] BlobError),
    /// The prompt could not be stored.
    #[error("the prompt could not be stored: {0}")]
    Append(#[from] AppendError),
    /// The working directory is gone.
    #[error("the working directory {path} does not exist")]
    MissingFolder {
        /// The directory.
        path: String,
    },
    /// The provider that the session or the caller names is not set up.
    #[error("provider `{provider}` is not set up here; set up: {}", known.join(", "))]
    UnknownProvider {
        /// The provider.
        provider: String,
        /// Those that are.
        known: Vec<String>,
    },
    /// The session would have too many grants.
    #[error("the session would have more than {MAX_GRANTS} grants")]
    TooManyGrants,
    /// A defect.
    #[error("{0}")]
    Internal(String),
}

impl StartError {
    /// Returns the stable code that interfaces show.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoStore => "no_store",
            Self::EmptyTask => "empty_task",
            Self::Busy { .. } => "session_busy",
            Self::Open(error) => open_code(error),
            Self::Create(CreateError::AlreadyExists { .. }) => "already_exists",
            Self::Create(CreateError::Header(_)) | Self::Internal(_) => "internal",
            Self::Create(CreateError::Backend(error)) if error.is_full() => "storage_full",
            Self::Create(CreateError::Backend(_)) => "storage_error",
            Self::Append(error) => append_code(error),
            Self::Image { .. } | Self::ManyImages { .. } => "bad_image",
            Self::Blob(error) => blob_code(error),
            Self::MissingFolder { .. } => "missing_folder",
            Self::TooManyGrants => "grants_full",
            Self::UnknownProvider { .. } => "unknown_provider",
        }
    }

    /// Returns what a person can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoStore => "give the agent a store".into(),
            Self::EmptyTask => "say what the agent shall do".into(),
            Self::Busy { .. } => "wait for the run to end, or cancel it".into(),
            Self::Open(OpenError::Read(ReadError::NotFound { .. })) => {
                "list the sessions with `threadline ls`".into()
            }
            Self::Open(OpenError::Read(ReadError::Corrupt { id, .. })) => format!(
                "see what can be read with `threadline show {id}`, and all findings with \
                 `threadline verify {id}`"
            ),
            Self::Open(OpenError::Locked { holder, .. }) => {
                format!("end {holder} first; the session is free as soon as it is gone")
            }
            Self::TooManyGrants => {
                "revoke some first: `threadline grants ID --revoke GRANT`".into()
            }
            Self::MissingFolder { .. } => "name another one with `--cwd`".into(),
            Self::UnknownProvider { .. } => {
                "name another model with `--model PROVIDER/NAME`, or start with `--provider`".into()
            }
            Self::Open(OpenError::StorageFull { .. })
            | Self::Append(AppendError::StorageFull { .. }) => {
                "make space and send the message again; nothing was lost".into()
            }
            Self::Image { .. } => "make it smaller, or save it as PNG or JPEG".into(),
            Self::ManyImages { .. } => "send the rest with another message".into(),
            Self::Open(_)
            | Self::Blob(_)
            | Self::Create(_)
            | Self::Append(_)
            | Self::Internal(_) => return None,
        };
        Some(hint)
    }
}

/// Returns the stable code of an error of opening a session.
#[must_use]
pub fn open_code(error: &OpenError) -> &'static str {
    match error {
        OpenError::Read(error) => read_code(error),
        OpenError::Locked { .. } => "locked",
        OpenError::StorageFull { .. } => "storage_full",
        OpenError::Recovery { source, .. } => append_code(source),
    }
}

/// Returns the stable code of an error of reading a session.
#[must_use]
pub fn read_code(error: &ReadError) -> &'static str {
    match error {
        ReadError::NotFound { .. } => "session_not_found",
        ReadError::Corrupt { .. } => "damaged",
        ReadError::Unsupported { .. } => "unsupported",
        ReadError::Backend(error) if error.is_full() => "storage_full",
        ReadError::Backend(_) => "storage_error",
    }
}

/// Returns the stable code of an error of appending to a session.
#[must_use]
pub fn append_code(error: &AppendError) -> &'static str {
    match error {
        AppendError::Conflict { .. } => "conflict",
        AppendError::Invalid(_) | AppendError::Event(_) | AppendError::Unloadable(_) => {
            "invalid_event"
        }
        AppendError::Past { .. } => "damaged",
        AppendError::AlreadyExists { .. } => "already_exists",
        AppendError::Locked { .. } => "locked",
        AppendError::StorageFull { .. } => "storage_full",
        AppendError::Fenced { .. } => "fenced",
        AppendError::Poisoned { .. } => "poisoned",
        AppendError::UnknownOutcome { .. } => "unknown_outcome",
    }
}

/// Returns the stable code of an error of storing or reading a blob.
#[must_use]
pub fn blob_code(error: &BlobError) -> &'static str {
    match error {
        BlobError::TooLarge { .. } => "too_large",
        BlobError::NotFound { .. } => "blob_not_found",
        BlobError::Damaged { .. } => "damaged",
        BlobError::Backend(error) if error.is_full() => "storage_full",
        BlobError::Backend(_) => "storage_error",
    }
}
