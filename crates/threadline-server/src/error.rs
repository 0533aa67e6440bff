//! What goes wrong, mapped once to a stable code, a status and `application/problem+json`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use threadline_agent::{AnswerError, Failure, OfferError, QueueError, StartError};
use threadline_session::RequestError;
use threadline_store::{
    AppendError, BackendError, BlobError, CreateError, DeleteError, ForkError, ListError,
    MoveError, OpenError, ReadError, UpdateError, error_chain,
};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident;)*) => {
        /// The stable codes of all errors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the code as clients see it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Returns the HTTP status that goes with it.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }
        }
    };
}

codes! {
    /// The input has a wrong, missing or unknown field.
    InvalidInput = "invalid_input", BAD_REQUEST;
    /// The position in the log does not exist or is no number.
    BadCursor = "bad_cursor", BAD_REQUEST;
    /// The task says nothing.
    EmptyTask = "empty_task", BAD_REQUEST;
    /// An image cannot be shown to a model, or there are too many.
    BadImage = "bad_image", BAD_REQUEST;
    /// The provider is not set up.
    UnknownProvider = "unknown_provider", BAD_REQUEST;
    /// No valid token.
    Unauthorized = "unauthorized", UNAUTHORIZED;
    /// More freedom was asked for than the server allows.
    PolicyCeiling = "policy_ceiling", FORBIDDEN;
    /// The request names a host that this server is not.
    BadHost = "bad_host", FORBIDDEN;
    /// The request comes from another site's page.
    BadOrigin = "bad_origin", FORBIDDEN;
    /// There is no such route.
    NotFound = "not_found", NOT_FOUND;
    /// There is no such session.
    SessionNotFound = "session_not_found", NOT_FOUND;
    /// The session has no such step.
    StepNotFound = "step_not_found", NOT_FOUND;
    /// The session has no such event.
    NoSuchEvent = "no_such_event", NOT_FOUND;
    /// The session names no such blob, or it is gone.
    BlobNotFound = "blob_not_found", NOT_FOUND;
    /// Nothing is asked about that call.
    ApprovalNotFound = "approval_not_found", NOT_FOUND;
    /// The session has no such grant in force.
    GrantNotFound = "grant_not_found", NOT_FOUND;
    /// The route does not know the method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// Somebody changed it first.
    Conflict = "conflict", CONFLICT;
    /// The id is taken.
    AlreadyExists = "already_exists", CONFLICT;
    /// The session has no run here.
    NotRunning = "not_running", CONFLICT;
    /// The message was delivered or withdrawn already.
    NotWaiting = "not_waiting", CONFLICT;
    /// Too many messages wait.
    QueueFull = "queue_full", CONFLICT;
    /// The session has too many grants.
    GrantsFull = "grants_full", CONFLICT;
    /// The question was answered already.
    AlreadyDecided = "already_decided", CONFLICT;
    /// The session has a run in this process.
    SessionBusy = "session_busy", CONFLICT;
    /// A turn is open, so the history stays where it is.
    TurnOpen = "turn_open", CONFLICT;
    /// The last change of the history is not a rewind.
    NothingToRedo = "nothing_to_redo", CONFLICT;
    /// The session has no event to fork at.
    ForkEmpty = "fork_empty", CONFLICT;
    /// Another process writes the session.
    Locked = "locked", CONFLICT;
    /// Another writer has taken over.
    Fenced = "fenced", CONFLICT;
    /// The body is too large.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE;
    /// The log is damaged.
    Damaged = "damaged", UNPROCESSABLE_ENTITY;
    /// The log is of another version.
    Unsupported = "unsupported", UNPROCESSABLE_ENTITY;
    /// The working directory is gone.
    MissingFolder = "missing_folder", UNPROCESSABLE_ENTITY;
    /// An event cannot be stored, for example because it is too large.
    InvalidEvent = "invalid_event", UNPROCESSABLE_ENTITY;
    /// A defect.
    Internal = "internal", INTERNAL_SERVER_ERROR;
    /// There is no store to resume from.
    NoStore = "no_store", INTERNAL_SERVER_ERROR;
    /// The storage failed.
    StorageError = "storage_error", INTERNAL_SERVER_ERROR;
    /// A write failed and the session must be opened again.
    Poisoned = "poisoned", INTERNAL_SERVER_ERROR;
    /// It is not known whether something was stored.
    UnknownOutcome = "unknown_outcome", INTERNAL_SERVER_ERROR;
    /// The server is going down.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE;
    /// The storage is full.
    StorageFull = "storage_full", INSUFFICIENT_STORAGE;
}

/// An error as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: String,
    pub(crate) field: Option<String>,
    pub(crate) hint: Option<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            field: None,
            hint: None,
        }
    }

    /// An input error at a field.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::new(Code::InvalidInput, detail)
        }
    }

    pub(crate) fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same as the last event of a stream.
    pub(crate) fn into_failure(self) -> Failure {
        Failure {
            code: self.code.as_str().into(),
            message: self.detail,
            hint: self.hint,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        if status.is_server_error() {
            tracing::error!(code = self.code.as_str(), detail = %self.detail, "request failed");
        }
        let body = Body {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: &self.detail,
            code: self.code.as_str(),
            field: self.field.as_deref(),
            hint: self.hint.as_deref(),
        };
        let mut response = (status, Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// A storage that fails because it is full says so: the client can do something about it.
fn storage_code(error: &BackendError) -> Code {
    if error.is_full() {
        Code::StorageFull
    } else {
        Code::StorageError
    }
}

fn read_code(error: &ReadError) -> Code {
    match error {
        ReadError::NotFound { .. } => Code::SessionNotFound,
        ReadError::Corrupt { .. } => Code::Damaged,
        ReadError::Unsupported { .. } => Code::Unsupported,
        ReadError::Backend(error) => storage_code(error),
    }
}

fn append_code(error: &AppendError) -> Code {
    match error {
        AppendError::Conflict { .. } => Code::Conflict,
        AppendError::Invalid(_) | AppendError::Event(_) | AppendError::Unloadable(_) => {
            Code::InvalidEvent
        }
        AppendError::Past { .. } => Code::Damaged,
        AppendError::AlreadyExists { .. } => Code::AlreadyExists,
        AppendError::Locked { .. } => Code::Locked,
        AppendError::StorageFull { .. } => Code::StorageFull,
        AppendError::Fenced { .. } => Code::Fenced,
        AppendError::Poisoned { .. } => Code::Poisoned,
        AppendError::UnknownOutcome { .. } => Code::UnknownOutcome,
    }
}

fn open_code(error: &OpenError) -> Code {
    match error {
        OpenError::Read(error) => read_code(error),
        OpenError::Locked { .. } => Code::Locked,
        OpenError::StorageFull { .. } => Code::StorageFull,
        OpenError::Recovery { source, .. } => append_code(source),
    }
}

fn start_code(error: &StartError) -> Code {
    match error {
        StartError::NoStore => Code::NoStore,
        StartError::EmptyTask => Code::EmptyTask,
        StartError::Busy { .. } => Code::SessionBusy,
        StartError::Open(error) => open_code(error),
        StartError::Create(error) => match error {
            CreateError::AlreadyExists { .. } => Code::AlreadyExists,
            CreateError::Header(_) => Code::Internal,
            CreateError::Backend(error) => storage_code(error),
        },
        StartError::Append(error) => append_code(error),
        StartError::MissingFolder { .. } => Code::MissingFolder,
        StartError::TooManyGrants => Code::GrantsFull,
        StartError::UnknownProvider { .. } => Code::UnknownProvider,
        StartError::Image { .. } | StartError::ManyImages { .. } => Code::BadImage,
        StartError::Blob(BlobError::Backend(error)) => storage_code(error),
        StartError::Blob(_) | StartError::Internal(_) => Code::Internal,
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let problem = Self::new(read_code(&error), error_chain(&error));
        match error {
            ReadError::Corrupt { id, .. } => {
                problem.hint(format!("see all findings with `threadline verify {id}`"))
            }
            ReadError::NotFound { .. } => problem.hint("list the sessions with `threadline ls`"),
            ReadError::Unsupported { .. } | ReadError::Backend(_) => problem,
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let hint = error.hint();
        let problem = Self {
            hint,
            ..Self::new(start_code(&error), error_chain(&error))
        };
        match error {
            StartError::EmptyTask => problem.at("task"),
            StartError::Image { number, .. } => problem.at(format!("images[{}]", number - 1)),
            StartError::ManyImages { .. } => problem.at("images"),
            StartError::UnknownProvider { .. } => problem.at("model"),
            _ => problem,
        }
    }
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        let code = match error {
            QueueError::Start(error) => return error.into(),
            QueueError::Empty => return Self::new(Code::EmptyTask, error.to_string()).at("text"),
            QueueError::TooLong { .. } => {
                return Self::new(Code::TooLarge, error.to_string()).at("text");
            }
            QueueError::Full => Code::QueueFull,
            QueueError::NotWaiting { .. } => Code::NotWaiting,
        };
        Self::new(code, error.to_string())
    }
}

impl From<OfferError> for Problem {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Answer(error) => error.into(),
            OfferError::Read(error) => error.into(),
            OfferError::Start(error) => error.into(),
        }
    }
}

impl From<ListError> for Problem {
    fn from(error: ListError) -> Self {
        match &error {
            ListError::Cursor => Self::field("cursor", error.to_string()),
            ListError::Backend(cause) => Self::new(storage_code(cause), error_chain(&error)),
        }
    }
}

impl From<UpdateError> for Problem {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Read(error) => error.into(),
            UpdateError::Conflict { .. } => Self::new(Code::Conflict, error.to_string())
                .hint("read the session again and repeat the change with its revision"),
            UpdateError::Invalid { field, .. } => Self::field(field, error.to_string()),
        }
    }
}

impl From<DeleteError> for Problem {
    fn from(error: DeleteError) -> Self {
        match &error {
            DeleteError::NotFound { .. } => Self::new(Code::SessionNotFound, error.to_string()),
            DeleteError::Locked { holder, .. } if holder.pid == std::process::id() => {
                Self::new(Code::SessionBusy, error.to_string())
                    .hint("wait for the run to end, or cancel it")
            }
            DeleteError::Locked { holder, .. } => {
                Self::new(Code::Locked, error.to_string()).hint(format!("end {holder} first"))
            }
            DeleteError::Backend(cause) => Self::new(storage_code(cause), error_chain(&error)),
        }
    }
}

impl From<ForkError> for Problem {
    fn from(error: ForkError) -> Self {
        let code = match error {
            ForkError::Read(error) => return error.into(),
            ForkError::Empty { .. } => Code::ForkEmpty,
            ForkError::NoEvent { .. } => Code::NoSuchEvent,
            ForkError::AlreadyExists { .. } => Code::AlreadyExists,
            ForkError::Locked { .. } => Code::Locked,
            ForkError::StorageFull { .. } => Code::StorageFull,
            ForkError::Encode { .. } => Code::Internal,
        };
        Self::new(code, error_chain(&error))
    }
}

impl From<MoveError> for Problem {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::NoEvent { .. } => Self::new(Code::NoSuchEvent, error.to_string()),
            MoveError::TurnOpen => Self::new(Code::TurnOpen, error.to_string())
                .hint("wait for the run to end, or cancel it"),
            MoveError::NothingToRedo => Self::new(Code::NothingToRedo, error.to_string()),
            MoveError::Append(error) => Self::new(append_code(&error), error_chain(&error)),
            MoveError::Open(OpenError::Read(error)) => error.into(),
            MoveError::Open(error) => match &error {
                OpenError::Locked { holder, .. } if holder.pid == std::process::id() => {
                    Self::new(Code::SessionBusy, error.to_string())
                        .hint("wait for the run to end, or cancel it")
                }
                OpenError::Locked { holder, .. } => {
                    Self::new(Code::Locked, error.to_string()).hint(format!("end {holder} first"))
                }
                _ => Self::new(open_code(&error), error_chain(&error)),
            },
        }
    }
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        let code = match &error {
            BlobError::NotFound { .. } => Code::BlobNotFound,
            BlobError::Damaged { .. } => Code::Damaged,
            BlobError::Backend(error) => storage_code(error),
            BlobError::TooLarge { .. } => Code::Internal,
        };
        Self::new(code, error_chain(&error))
    }
}

impl From<AnswerError> for Problem {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::NotFound { .. } => Code::ApprovalNotFound,
            AnswerError::AlreadyDecided { .. } => Code::AlreadyDecided,
            AnswerError::NotOffered { .. } => {
                return Self::field("prefix", error.to_string());
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NoTurn => Self::new(Code::StepNotFound, error.to_string()),
            RequestError::Unheld { .. } => Self::new(Code::Damaged, error.to_string()),
            RequestError::Serialize { .. } => Self::new(Code::Internal, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use threadline_session::SessionId;

    use super::*;

    #[test]
    fn codes_agree_with_those_of_the_agent() {
        let id = SessionId::parse("x").unwrap();
        let not_found = ReadError::NotFound {
            id: id.clone(),
            store: "memory:".into(),
        };
        for error in [
            StartError::NoStore,
            StartError::EmptyTask,
            StartError::Busy { id: id.clone() },
            StartError::Open(OpenError::Read(not_found)),
            StartError::Open(OpenError::StorageFull {
                id: id.clone(),
                what: "x".into(),
            }),
            StartError::Create(CreateError::AlreadyExists { id }),
            StartError::Append(AppendError::Poisoned { reason: "x".into() }),
            StartError::MissingFolder { path: "x".into() },
            StartError::ManyImages { images: 21 },
            StartError::UnknownProvider {
                provider: "x".into(),
                known: vec![],
            },
            StartError::Internal("x".into()),
        ] {
            assert_eq!(start_code(&error).as_str(), error.code());
        }
    }

    #[test]
    fn a_storage_without_room_is_said_to_be_full_whatever_was_being_done() {
        let error = |kind: std::io::ErrorKind| BackendError::new("x", std::io::Error::from(kind));
        let all = |kind| {
            [
                Problem::from(BlobError::Backend(error(kind))),
                Problem::from(UpdateError::Read(ReadError::Backend(error(kind)))),
                Problem::from(StartError::Create(CreateError::Backend(error(kind)))),
                Problem::from(DeleteError::Backend(error(kind))),
                Problem::from(ListError::Backend(error(kind))),
            ]
            .map(|problem| problem.code)
        };
        assert_eq!(all(std::io::ErrorKind::StorageFull), [Code::StorageFull; 5]);
        let other = std::io::ErrorKind::PermissionDenied;
        assert_eq!(all(other), [Code::StorageError; 5]);
    }

    #[test]
    fn codes_are_distinct() {
        let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
