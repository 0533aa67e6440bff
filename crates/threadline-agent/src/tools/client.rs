//! What the client that drives a session lends to its tools: the texts of files as it holds them,
//! and terminals.
//!
//! All of it lasts as long as the client is connected. Nothing of it is in the log, so a session
//! that is opened again knows nothing of it.

use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::CallSession;

/// Says why a client did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It answered with an error, so it has done nothing.
    #[error("it refused: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// It gave no answer that says whether it has done it.
    #[error("{reason}")]
    Unclear {
        /// What came instead.
        reason: String,
    },
    /// The call was cancelled first.
    #[error("the call was cancelled")]
    Cancelled,
}

/// The texts of files as a client holds them, which may not be what is on disk.
///
/// Each method must end within a time of its own, and soon after `cancel`.
#[async_trait]
pub trait ClientFiles: Send + Sync + fmt::Debug {
    /// Returns whether [`read`](Self::read) may be called.
    fn reads(&self) -> bool;

    /// Returns whether [`write`](Self::write) may be called.
    fn writes(&self) -> bool;

    /// Returns the text of a file, given by its absolute path.
    ///
    /// # Errors
    /// [`ClientError`]; a file that is not there is one it refuses.
    async fn read(&self, path: &Path, cancel: &CancellationToken) -> Result<String, ClientError>;

    /// Sets the text of a file, given by its absolute path. Its folder exists.
    ///
    /// # Errors
    /// [`ClientError`].
    async fn write(
        &self,
        path: &Path,
        text: &str,
        cancel: &CancellationToken,
    ) -> Result<(), ClientError>;
}

/// A command for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCommand {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs; absolute.
    pub cwd: PathBuf,
    /// Bytes of its output that are kept: the last ones.
    pub output_bytes: u64,
}

/// What a command has printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalOutput {
    /// The text, or its end.
    pub text: String,
    /// Whether the beginning was left out.
    pub truncated: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalExit {
    /// The exit code, unless a signal ended it.
    pub code: Option<u32>,
    /// The signal.
    pub signal: Option<String>,
}

/// Runs commands where a person sees them.
#[async_trait]
pub trait ClientTerminals: Send + Sync + fmt::Debug {
    /// Starts the command of a call. It must end within a time of its own, and soon after `cancel`;
    /// a terminal that comes too late is ended by whoever implements this.
    ///
    /// # Errors
    /// [`ClientError`].
    async fn start(
        &self,
        call: &CallSession,
        command: ClientCommand,
        cancel: &CancellationToken,
    ) -> Result<Box<dyn ClientTerminal>, ClientError>;
}

/// A command that runs in a terminal. [`release`](Self::release) is called at the end in any case.
#[async_trait]
pub trait ClientTerminal: Send + Sync {
    /// Returns what it has printed so far, within a time of its own.
    ///
    /// # Errors
    /// [`ClientError`].
    async fn output(&self) -> Result<TerminalOutput, ClientError>;

    /// Waits for its end, however long that takes. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError`]; it may still run then.
    async fn exited(&self) -> Result<TerminalExit, ClientError>;

    /// Ends it; what it has printed can still be had. It must end within a time of its own.
    ///
    /// # Errors
    /// [`ClientError`]; it may still run then.
    async fn kill(&self) -> Result<(), ClientError>;

    /// Lets go of it, within a time of its own. A command that still runs is ended.
    async fn release(&self);
}
