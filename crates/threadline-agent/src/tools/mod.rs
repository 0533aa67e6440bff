//! What the model can do: the tool interface, the registry and the built-in tools.
//!
//! - [`Tool`] is one capability; [`Toolbox`] holds them by name. A [`ToolSource`] has more of them
//!   for a session, as far as they can be had when a turn begins.
//! - The file tools obey [`PathRules`]; the shell tool runs in a sandbox of the kernel, and in a
//!   group of processes that cannot outlive the agent.
//! - Whether a call may run at all is decided before, by [`crate::policy::judge`].

mod apply_patch;
pub(crate) mod arguments;
mod bounds;
mod client;
mod edit;
mod file;
mod files;
mod find;
mod grep;
mod jobs;
mod ls;
mod output;
mod patch;
mod paths;
mod private;
mod process;
mod read;
mod session;
mod shell;
mod source;
mod staging;
pub(crate) mod state;
mod terminal;
pub(crate) mod text;
mod todo;
mod walk;
mod write;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::{
    ContentPart, Outcome, OutputStream, SandboxMode, ToolDefinition,
};
use threadline_store::BlobId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use apply_patch::ApplyPatch;
pub use arguments::{ArgumentError, parse_arguments};
pub use client::{
    ClientCommand, ClientError, ClientFiles, ClientTerminal, ClientTerminals, TerminalExit,
    TerminalOutput,
};
pub use edit::Edit;
pub use files::Files;
pub use find::Find;
pub use grep::Grep;
pub use jobs::{JobKill, JobStart, JobStatus};
pub use ls::Ls;
pub use output::ReadOutput;
pub use paths::{Access, PathError, PathRules};
pub use process::{Companion, CompanionPipes};
pub use read::Read;
pub use session::{CallSession, ImageError};
pub use shell::Shell;
pub use source::{Ready, ToolSource};
pub use todo::Todo;
pub use write::Write;

/// What running a tool may do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It looks and changes nothing.
    ReadOnly,
    /// It changes files.
    Writes,
    /// It runs a program, which may do anything.
    Executes,
}

/// What a tool gives back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// All of it. Of a text that is too long for the model the run keeps the whole as a blob and
    /// shows its start and its end.
    pub content: Vec<ContentPart>,
    /// How it ended.
    pub outcome: Outcome,
    /// The bytes of images that `content` names by their BLAKE3. The run stores them before it
    /// logs the result.
    pub blobs: Vec<Vec<u8>>,
}

impl ToolOutput {
    /// Makes a result of one text.
    #[must_use]
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentPart::text(text)],
            outcome,
            blobs: Vec::new(),
        }
    }

    /// Adds an image that the model is shown.
    #[must_use]
    pub fn with_image(mut self, media_type: impl Into<String>, bytes: Vec<u8>) -> Self {
        self.content.push(ContentPart::Image {
            media_type: media_type.into(),
            blob: BlobId::of(&bytes).as_str().into(),
        });
        self.blobs.push(bytes);
        self
    }

    /// Makes a successful result.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(Outcome::Ok, text)
    }

    /// Makes a failed result.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self::new(Outcome::Error, text)
    }

    /// Makes a refused result.
    #[must_use]
    pub fn denied(text: impl Into<String>) -> Self {
        Self::new(Outcome::Denied, text)
    }

    /// Makes the result of a call that was cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(Outcome::Cancelled, "cancelled before it was done")
    }

    /// Returns whether it counts as a failure.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.outcome != Outcome::Ok
    }

    /// Returns the text of all text parts, joined by line feeds.
    #[must_use]
    pub fn text(&self) -> String {
        threadline_session::payload::plain_text(&self.content)
    }
}

impl From<ArgumentError> for ToolOutput {
    fn from(error: ArgumentError) -> Self {
        Self::error(error.to_string())
    }
}

/// What one call of a tool runs under.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Working directory: what relative paths start from, and the workspace.
    pub cwd: PathBuf,
    /// What may be touched.
    pub sandbox: SandboxMode,
    /// Whether the call runs because a grant covers it, and nobody was asked.
    pub granted: bool,
    /// Folders that no mode opens, such as the session store's own.
    pub denied: Vec<PathBuf>,
    /// Ends the call when it is cancelled.
    pub cancel: CancellationToken,
    /// Takes live output; a full channel slows the tool down, a closed one is ignored.
    pub output: Option<mpsc::Sender<(OutputStream, String)>>,
    /// Variables of this process that commands see, beside the built-in allowlist.
    pub passed: threadline_sandbox::Passed,
    /// Further variables for commands. Secrets among them are left out.
    pub env: Vec<(OsString, OsString)>,
    /// The program that puts commands into the sandbox; none finds it by itself.
    pub launcher: Option<threadline_sandbox::Launcher>,
    /// The session that the call belongs to; none outside of a run.
    pub session: Option<CallSession>,
    /// The texts of files.
    pub files: Files,
    /// Where commands run that nothing confines, instead of beside the agent.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
}

impl ToolContext {
    /// Makes a context without live output, denied folders or extra environment.
    #[must_use]
    pub fn new(cwd: impl Into<PathBuf>, sandbox: SandboxMode) -> Self {
        Self {
            cwd: cwd.into(),
            sandbox,
            granted: false,
            denied: Vec::new(),
            cancel: CancellationToken::new(),
            output: None,
            passed: threadline_sandbox::Passed::default(),
            env: Vec::new(),
            launcher: None,
            session: None,
            files: Files::default(),
            terminals: None,
        }
    }
}

/// One thing the model can do.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns what the model is told of the tool; it never changes.
    fn definition(&self) -> ToolDefinition;

    /// Returns what a call with these arguments may do to the world.
    fn effect(&self, arguments: &Value) -> Effect;

    /// Runs one call; every failure is told in the output.
    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput;
}

/// A tool of that name is in the box already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a tool named `{name}` already")]
pub struct DuplicateTool {
    /// The name.
    pub name: String,
}

/// The tools by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl Toolbox {
    /// Makes an empty box.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a box with all built-in tools.
    #[must_use]
    pub fn standard() -> Self {
        let tools: [Arc<dyn Tool>; 14] = [
            Arc::new(Read),
            Arc::new(Ls),
            Arc::new(Find),
            Arc::new(Grep),
            Arc::new(Write),
            Arc::new(Edit),
            Arc::new(ApplyPatch),
            Arc::new(Shell),
            Arc::new(ReadOutput),
            Arc::new(Todo),
            Arc::new(JobStart),
            Arc::new(JobStatus),
            Arc::new(JobKill),
            Arc::new(crate::subagents::Subagent),
        ];
        Self {
            tools: tools
                .into_iter()
                .map(|tool| (tool.definition().name, tool))
                .collect(),
        }
    }

    /// Adds a tool under the name in its definition.
    ///
    /// # Errors
    /// When the name is taken; the box is unchanged then.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateTool> {
        let name = tool.definition().name;
        if self.tools.contains_key(&name) {
            return Err(DuplicateTool { name });
        }
        self.tools.insert(name, tool);
        Ok(())
    }

    /// Returns the tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// Returns the names in the order of the definitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Returns all definitions, ordered by name, so that equal boxes make equal requests.
    #[must_use]
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.values().map(|tool| tool.definition()).collect()
    }

    /// Returns the error for a name that is not in the box; it lists those that are.
    #[must_use]
    pub fn unknown(&self, name: &str) -> ToolOutput {
        let known: Vec<&str> = self.names().collect();
        let name = text::shorten(&text::printable(name), 100);
        ToolOutput::error(format!(
            "there is no tool `{name}`; the tools are: {}",
            known.join(", ")
        ))
    }
}

/// Makes the error of file work that the system refused.
pub(crate) fn failed(doing: &str, path: &str, error: &io::Error) -> ToolOutput {
    let path = text::printable(path);
    ToolOutput::error(match error.kind() {
        io::ErrorKind::NotFound => format!("`{path}` does not exist"),
        io::ErrorKind::IsADirectory => format!("`{path}` is a folder"),
        io::ErrorKind::NotADirectory => format!("`{path}` is not a folder"),
        _ => format!("cannot {doing} `{path}`: {error}"),
    })
}

/// Adds what the model is to know besides.
pub(crate) fn noted(mut output: ToolOutput, note: Option<&str>) -> ToolOutput {
    let text = output.content.iter_mut().find_map(|part| match part {
        ContentPart::Text { text } => Some(text),
        ContentPart::Image { .. } | ContentPart::Unknown => None,
    });
    if let (Some(note), Some(text)) = (note, text) {
        let gap = if text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{gap}[{note}]"));
    }
    output
}

/// Runs file work off the async threads; a defect in it becomes an error of the call.
pub(crate) async fn blocking<F>(ctx: &ToolContext, work: F) -> ToolOutput
where
    F: FnOnce(&ToolContext) -> ToolOutput + Send + 'static,
{
    let ctx = ctx.clone();
    match tokio::task::spawn_blocking(move || work(&ctx)).await {
        Ok(output) => output,
        Err(error) => {
            tracing::error!(%error, "a tool broke");
            ToolOutput::error("the tool broke while it ran; this is a defect of the tool")
        }
    }
}
