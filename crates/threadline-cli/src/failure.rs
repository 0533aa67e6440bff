//! What goes wrong, as people and programs are told: an exit code, a stable code, what happened
//! where, and the next command to type.

use std::{io, process::ExitCode};

use serde_json::json;
use threadline_agent::{GrantError, ReplayError, StartError, append_code, open_code, read_code};
use threadline_session::SessionId;
use threadline_store::{
    AppendError, DeleteError, ForkError, GcError, Holder, ListError, MoveError, OpenError,
    ReadError, RepairError, UpdateError,
};

use crate::text;

/// Exit codes. They are part of the interface and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Completed = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Locked = 4,
    Damaged = 5,
    ApprovalNeeded = 6,
    StorageFull = 7,
    Cancelled = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// Returns the exit code that belongs to a stable code.
    pub(crate) fn of_code(code: &str) -> Self {
        match code {
            "session_not_found" => Self::NotFound,
            "locked" | "session_busy" | "fenced" => Self::Locked,
            "damaged" | "unsupported" => Self::Damaged,
            "storage_full" => Self::StorageFull,
            "empty_task" | "unknown_provider" | "missing_folder" | "usage" | "config"
            | "ambiguous" | "missing_key" | "missing_model" => Self::Usage,
            _ => Self::Failed,
        }
    }
}

/// Something that ends the program before its work is done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Stable code, for programs.
    pub(crate) code: String,
    /// What happened, and where.
    pub(crate) message: String,
    /// What to do now.
    pub(crate) hint: Option<String>,
    /// Whether it was told already, or is nothing to tell.
    pub(crate) silent: bool,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            exit: Exit::of_code(code),
            code: code.into(),
            message: message.into(),
            hint: None,
            silent: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Ends the program with a code and without another word.
    pub(crate) fn quiet(exit: Exit) -> Self {
        Self {
            exit,
            silent: true,
            ..Self::new("quiet", "")
        }
    }

    /// Writing to standard output failed. A reader that has seen enough, as `head` has, is no
    /// failure.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::quiet(Exit::Completed);
        }
        Self::new(
            "output",
            format!("standard output cannot be written: {error}"),
        )
    }

    /// Returns the line that `--json` prints of it.
    pub(crate) fn json(&self) -> String {
        let mut line = json!({"type": "error", "code": self.code, "message": self.message});
        if let Some(hint) = &self.hint {
            line["hint"] = hint.as_str().into();
        }
        line.to_string()
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let hint = match &error {
            StartError::Open(error) => return Self::from_open(error),
            StartError::EmptyTask => {
                Some("say what to do: `threadline run \"TASK\"`, or pipe the task in".into())
            }
            StartError::UnknownProvider { .. } => Some(
                "start with `--provider NAME` and, where it needs one, its key; or name another \
                 model with `--model PROVIDER/NAME`"
                    .into(),
            ),
            error => error.hint(),
        };
        let mut failure = Self::new(error.code(), error.to_string());
        failure.hint = hint;
        failure
    }
}

impl Failure {
    pub(crate) fn from_open(error: &OpenError) -> Self {
        match error {
            OpenError::Read(error) => Self::from_read(error),
            OpenError::Locked { id, holder } => locked(id.as_str(), holder),
            OpenError::StorageFull { .. } => Self::new(open_code(error), error.to_string())
                .hint("make space, then type the same command again; nothing was lost"),
            OpenError::Recovery { id, .. } => Self::new(open_code(error), error.to_string())
                .hint(format!("see what is there with `threadline doctor {id}`")),
        }
    }

    fn from_read(error: &ReadError) -> Self {
        if let ReadError::Backend(cause) = error
            && cause.is_full()
        {
            return full(text::chain(error));
        }
        let failure = Self::new(read_code(error), text::chain(error));
        match error {
            ReadError::NotFound { .. } => failure.hint("list the sessions with `threadline ls`"),
            ReadError::Corrupt { id, .. } => failure.hint(format!(
                "nothing was changed; see what can be read with `threadline show {id}`, and what \
                 mending would keep with `threadline repair {id} --dry-run`"
            )),
            ReadError::Unsupported { id, .. } => failure.hint(format!(
                "what is stored can be read with `threadline show {id} --raw`"
            )),
            ReadError::Backend(_) => failure.hint("look at the store with `threadline doctor`"),
        }
    }
}

/// The refusal of a second writer.
pub(crate) fn locked(id: &str, holder: &Holder) -> Failure {
    let since = text::moment(holder.since);
    let message = format!(
        "session {id} is being written by process {} on {} since {since}",
        holder.pid, holder.host
    );
    let hint = format!(
        "wait until it is done, or end it on {} with `kill {}`; or take the session over, which \
         stops what it writes: `threadline run --session {id} --take-over \"TASK\"`",
        holder.host, holder.pid
    );
    Failure::new("locked", message).hint(hint)
}

impl From<GrantError> for Failure {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::Start(error) => error.into(),
            GrantError::NotFound { ref session_id, .. } => {
                let hint = format!("see what is granted with `threadline grants {session_id}`");
                Self::usage(error.to_string()).hint(hint)
            }
            GrantError::Full => Self::usage(error.to_string()),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match &error {
            ReplayError::Read(error) => Self::from_read(error),
            ReplayError::Event { id, .. } => Self::new("unsupported", error.to_string()).hint(
                format!("what is stored can be read with `threadline show {id} --raw`"),
            ),
            ReplayError::Internal { id, .. } => Self::new("internal", error.to_string()).hint(
                format!("its requests can be checked with `threadline verify {id} --requests`"),
            ),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::from_open(&error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::from_read(&error)
    }
}

impl From<ListError> for Failure {
    fn from(error: ListError) -> Self {
        if let ListError::Backend(cause) = &error
            && cause.is_full()
        {
            return full(text::chain(&error));
        }
        Self::new("storage_error", text::chain(&error))
            .hint("look at the store with `threadline doctor`")
    }
}

impl From<UpdateError> for Failure {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Read(error) => Self::from_read(&error),
            UpdateError::Conflict { .. } => {
                Self::new("conflict", error.to_string()).hint("type the same command again")
            }
            UpdateError::Invalid { .. } => Self::usage(error.to_string()),
        }
    }
}

impl From<ForkError> for Failure {
    fn from(error: ForkError) -> Self {
        match &error {
            ForkError::Read(error) => Self::from_read(error),
            ForkError::Empty { .. } => Self::usage(error.to_string()),
            ForkError::NoEvent { id, .. } => Self::usage(error.to_string()).hint(format!(
                "see the numbers of its events with `threadline show {id} --raw`"
            )),
            ForkError::AlreadyExists { .. } => {
                Self::new("conflict", error.to_string()).hint("type the same command again")
            }
            ForkError::Locked { id, holder } => locked(id.as_str(), holder),
            ForkError::StorageFull { .. } => full(error.to_string()),
            ForkError::Encode { .. } => Self::new("internal", error.to_string()),
        }
    }
}

impl Failure {
    /// Says why the history of a session was not moved.
    pub(crate) fn from_move(id: &SessionId, error: &MoveError) -> Self {
        match error {
            MoveError::Open(error) => Self::from_open(error),
            MoveError::NoEvent { .. } => Self::usage(error.to_string()).hint(format!(
                "see the numbers of its events with `threadline show {id} --raw`"
            )),
            MoveError::TurnOpen => Self::new("session_busy", error.to_string()),
            MoveError::NothingToRedo => Self::usage(error.to_string()).hint(format!(
                "go back with `threadline rewind {id} --to SEQ`, or branch with `threadline fork \
                 {id} --at SEQ`"
            )),
            MoveError::Append(AppendError::StorageFull { .. }) => full(error.to_string()),
            MoveError::Append(error) => Self::new(append_code(error), error.to_string())
                .hint(format!("see what is there with `threadline doctor {id}`")),
        }
    }
}

impl From<RepairError> for Failure {
    fn from(error: RepairError) -> Self {
        match &error {
            RepairError::Read(error) => Self::from_read(error),
            RepairError::Locked { id, holder } => locked(id.as_str(), holder),
            RepairError::StorageFull { .. } => full(error.to_string()),
            RepairError::Failed { id, .. } => Self::new("storage_error", error.to_string())
                .hint(format!("see what is there with `threadline doctor {id}`")),
        }
    }
}

impl From<GcError> for Failure {
    fn from(error: GcError) -> Self {
        let failure = Self::new("storage_error", text::chain(&error));
        match &error {
            GcError::Backend(cause) if cause.is_full() => full(text::chain(&error)),
            GcError::Unreadable { id, .. } => failure.hint(format!(
                "nothing was removed; look at it with `threadline doctor {id}`"
            )),
            GcError::Backend(_) => failure.hint("look at the store with `threadline doctor`"),
        }
    }
}

fn full(message: String) -> Failure {
    Failure::new("storage_full", message)
        .hint("make space, then type the same command again; nothing was lost")
}

impl From<DeleteError> for Failure {
    fn from(error: DeleteError) -> Self {
        match &error {
            DeleteError::NotFound { .. } => Self::new("session_not_found", error.to_string())
                .hint("list the sessions with `threadline ls`"),
            DeleteError::Locked { id, holder } => locked(id.as_str(), holder),
            DeleteError::Backend(cause) if cause.is_full() => full(text::chain(&error)),
            DeleteError::Backend(_) => Self::new("storage_error", text::chain(&error))
                .hint("look at the store with `threadline doctor`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use threadline_store::BackendError;

    use super::*;

    #[test]
    fn a_storage_without_room_is_said_to_be_full_whatever_was_being_done() {
        let error = |kind: io::ErrorKind| BackendError::new("x", io::Error::from(kind));
        let all = |kind| {
            [
                Failure::from(GcError::Backend(error(kind))),
                Failure::from(DeleteError::Backend(error(kind))),
                Failure::from(UpdateError::Read(ReadError::Backend(error(kind)))),
            ]
        };
        for failure in all(io::ErrorKind::StorageFull) {
            assert_eq!(
                (failure.exit, failure.code.as_str()),
                (Exit::StorageFull, "storage_full")
            );
            assert!(failure.hint.is_some_and(|hint| hint.contains("make space")));
        }
        for failure in all(io::ErrorKind::PermissionDenied) {
            assert_eq!(
                (failure.exit, failure.code.as_str()),
                (Exit::Failed, "storage_error")
            );
        }
    }
}
