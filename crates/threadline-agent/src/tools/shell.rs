//! `shell`: a command and all that it prints.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::{Outcome, OutputStream, SandboxMode, ToolDefinition};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::arguments::{self, Arguments, Field};
use super::bounds::Bounds;
use super::paths::{Access, PathError, PathRules};
use super::process::{self, Running};
use super::terminal::{self, InTerminal};
use super::text::{Decoder, HeadTail, harmless, show};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, noted};
use crate::limits::{
    COMMAND_BYTES, DRAIN_TIME, LIVE_BYTES, NOTE_BYTES, OUTPUT_BYTES, PIPE_BYTES,
    SHELL_TIMEOUT_DEFAULT, SHELL_TIMEOUT_MAX,
};
use crate::policy::{OUTSIDE, looking_words, safe_words};

const FIELDS: [Field; 4] = [
    Field::required("command", "string", "The command, run by bash (or sh) -c."),
    Field::optional(
        "timeout_ms",
        "integer",
        "Most milliseconds it may take; default 120000, most 600000.",
    ),
    Field::optional(
        OUTSIDE,
        "boolean",
        "Run this one command without the sandbox. A person is asked each time; use it only for \
         what the sandbox refuses and the task needs, such as `git commit`.",
    ),
    Field::optional(
        "reason",
        "string",
        "With outside_sandbox: why it is needed, in one sentence for that person.",
    ),
];

/// Settings for commands that nobody is asked about. A folder with the files of a bare repository,
/// or a repository's own settings, could otherwise tell git to run a program, and looking must not
/// change the index.
const CAREFUL_GIT: [(&str, &str); 8] = [
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_CONFIG_COUNT", "3"),
    ("GIT_CONFIG_KEY_0", "safe.bareRepository"),
    ("GIT_CONFIG_VALUE_0", "explicit"),
    ("GIT_CONFIG_KEY_1", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_1", "false"),
    ("GIT_CONFIG_KEY_2", "core.pager"),
    ("GIT_CONFIG_VALUE_2", "cat"),
];

/// What programs print when the sandbox refuses them something.
const REFUSALS: [&str; 4] = [
    "Permission denied",
    "Read-only file system",
    "Operation not permitted",
    "Device or resource busy",
];

/// Runs a shell command.
///
/// No process that it starts outlives the call, or the agent when that dies first. What it prints
/// is kept in the order in which it arrives; with two pipes, lines of standard output and standard
/// error that are printed at the same moment can change places.
#[derive(Debug, Clone, Copy)]
pub struct Shell;

#[async_trait]
impl Tool for Shell {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "shell",
            "Runs a command in the working directory, without input, and shows what it prints and \
             its exit code; of more than 32 KiB the middle is left out. Processes that it leaves \
             in the background are ended.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::Executes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        match Request::parse(arguments) {
            Ok(request) => request.run(ctx).await.unwrap_or_else(|refused| refused),
            Err(error) => error.into(),
        }
    }
}

pub(super) struct Request {
    pub(super) command: String,
    pub(super) timeout: Duration,
}

enum End {
    Exited(io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

impl Request {
    pub(super) fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("shell", value, &FIELDS)?;
        let invalid = |problem: String| ArgumentError::Invalid {
            field: "command",
            problem,
        };
        let command = arguments.string("command")?;
        if command.trim().is_empty() {
            return Err(invalid("is empty".into()));
        }
        if command.contains('\0') {
            return Err(invalid("contains a NUL character".into()));
        }
        if command.len() > COMMAND_BYTES {
            return Err(invalid(format!(
                "has {} bytes; at most {COMMAND_BYTES} are taken, so write a file and run it",
                command.len()
            )));
        }
        let most = u64::try_from(SHELL_TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
        let timeout = arguments.count("timeout_ms", most)?;
        // What they mean was judged before; here it only matters that they are what they should be.
        arguments.flag(OUTSIDE)?;
        arguments.optional_string("reason")?;
        Ok(Self {
            command: command.to_owned(),
            timeout: timeout.map_or(SHELL_TIMEOUT_DEFAULT, Duration::from_millis),
        })
    }

    pub(super) async fn run(&self, ctx: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let (words, careful) = match safe_words(&self.command) {
            Some(words) => (words, true),
            // Nobody was asked about the parts of a granted command that only look either.
            None if ctx.granted => looking_words(&self.command),
            None => (Vec::new(), false),
        };
        if ctx.sandbox != SandboxMode::DangerFullAccess {
            check_words(ctx, &words)?;
        }
        if !ctx.cwd.is_dir() {
            let cwd = show(&ctx.cwd);
            return Err(ToolOutput::error(format!(
                "the working directory `{cwd}` does not exist"
            )));
        }
        if ctx.cancel.is_cancelled() {
            return Err(ToolOutput::cancelled());
        }
        let bounds = Bounds::new(ctx).await?;
        let output = self.run_inside(ctx, &bounds, careful).await;
        bounds.remove().await;
        output
    }

    async fn run_inside(
        &self,
        ctx: &ToolContext,
        bounds: &Bounds,
        careful: bool,
    ) -> Result<ToolOutput, ToolOutput> {
        let command = bounds
            .wrap(process::shell(&self.command))
            .map_err(|error| ToolOutput::error(error.to_string()))?;
        let env = environment(ctx, bounds, careful);
        let no_terminal = match terminal::run(ctx, &command, &env, self.timeout).await {
            InTerminal::Ran(ended) => return Ok(ended.report(self.timeout)),
            InTerminal::Refused(why) => Some(format!(
                "it ran without a terminal: the editor was asked for one, and {why}"
            )),
            InTerminal::NotAsked => None,
        };
        let mut running = process::start(command, &ctx.cwd, env, bounds.mark())
            .await
            .map_err(|error| ToolOutput::error(format!("the command cannot be run: {error}")))?;
        let mut capture = Capture::new(ctx.output.clone());
        let end = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => End::Cancelled,
            status = pump(&mut running, &mut capture) => End::Exited(status),
            () = sleep(self.timeout) => End::TimedOut,
        };
        if !matches!(end, End::Exited(_)) {
            running.group.kill();
            // What was printed before the end is worth having, but nobody waits for it for long.
            let _ = timeout(DRAIN_TIME, pump(&mut running, &mut capture)).await;
        }
        let (outcome, note) = self.outcome(&end);
        let text = capture.finish();
        let hint = if outcome == Outcome::Error {
            hint(&text, ctx.sandbox)
        } else {
            ""
        };
        let output = report(outcome, text, &format!("{note}{hint}"));
        Ok(noted(output, no_terminal.as_deref()))
    }

    fn outcome(&self, end: &End) -> (Outcome, String) {
        match end {
            End::Cancelled => (
                Outcome::Cancelled,
                "cancelled; its processes were ended".into(),
            ),
            End::TimedOut => (
                Outcome::Timeout,
                format!(
                    "took longer than {} ms; its processes were ended",
                    self.timeout.as_millis()
                ),
            ),
            End::Exited(Err(error)) => (Outcome::Error, format!("its end is not known: {error}")),
            End::Exited(Ok(status)) => match (status.code(), status.signal()) {
                (Some(0), _) => (Outcome::Ok, "exit code 0".into()),
                (Some(code), _) => (Outcome::Error, format!("exit code {code}")),
                (None, Some(signal)) => (Outcome::Error, format!("ended by signal {signal}")),
                (None, None) => (Outcome::Error, status.to_string()),
            },
        }
    }
}

/// Returns the result of a command: what it printed and how it ended.
pub(super) fn report(outcome: Outcome, mut text: String, note: &str) -> ToolOutput {
    if text.is_empty() {
        text.push_str("[no output]");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{note}]"));
    ToolOutput::new(outcome, text)
}

/// The text of a safe command cannot tell where links lead. Such a command may run without a
/// question, so the paths in it obey the rules of the file tools.
fn check_words(ctx: &ToolContext, words: &[String]) -> Result<(), PathError> {
    if words.is_empty() {
        return Ok(());
    }
    let rules = PathRules::new(ctx)?;
    for word in words {
        match rules.resolve(Path::new(word), Access::Read) {
            // Not every word is a path.
            Ok(_) | Err(PathError::Io { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns what the model should know when a command failed and the sandbox may be why.
fn hint(text: &str, mode: SandboxMode) -> &'static str {
    if !REFUSALS.iter().any(|refusal| text.contains(refusal)) {
        return "";
    }
    match mode {
        SandboxMode::WorkspaceWrite if names_git(text) => {
            "; in the sandbox mode workspace_write commands do not write `.git`. If the task needs \
             this command to, call again with `outside_sandbox: true` and a `reason`: a person is \
             then asked whether it may run without the sandbox, this once"
        }
        SandboxMode::ReadOnly => {
            "; the sandbox mode read_only lets commands write below $TMPDIR only, and reach no \
             network"
        }
        SandboxMode::WorkspaceWrite => {
            "; the sandbox mode workspace_write lets commands write in the working directory, \
             except `.git`, and below $TMPDIR only, and reach neither secrets nor a network"
        }
        SandboxMode::DangerFullAccess => "",
    }
}

/// Whether a line that tells of a refusal names git's own data.
fn names_git(text: &str) -> bool {
    text.lines().any(|line| {
        let names = [".git/", ".git'", ".git:"]
            .iter()
            .any(|name| line.contains(name));
        names && REFUSALS.iter().any(|refusal| line.contains(refusal))
    })
}

fn environment(ctx: &ToolContext, bounds: &Bounds, careful: bool) -> Vec<(OsString, OsString)> {
    let mut env =
        threadline_sandbox::environment(std::env::vars_os(), &ctx.passed, &ctx.env, bounds.temp());
    if careful {
        env.extend(CAREFUL_GIT.map(|(name, value)| (name.into(), value.into())));
    }
    env
}

/// What a command prints, as it arrives.
struct Capture {
    kept: HeadTail,
    stdout: Decoder,
    stderr: Decoder,
    live: Option<mpsc::Sender<(OutputStream, String)>>,
    live_left: usize,
}

impl Capture {
    fn new(live: Option<mpsc::Sender<(OutputStream, String)>>) -> Self {
        // The halves, the note between them and the note at the end fit into a blob.
        Self {
            kept: HeadTail::new(OUTPUT_BYTES - NOTE_BYTES / 2, NOTE_BYTES / 2),
            stdout: Decoder::default(),
            stderr: Decoder::default(),
            live,
            live_left: LIVE_BYTES,
        }
    }

    async fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        let decoder = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let text = if bytes.is_empty() {
            decoder.finish()
        } else {
            decoder.push(bytes)
        };
        if text.is_empty() {
            return;
        }
        let text = harmless(&text);
        // Kept first: forwarding can be cut off by the end of the call.
        self.kept.push(&text);
        self.forward(stream, text.into_owned()).await;
    }

    async fn forward(&mut self, stream: OutputStream, text: String) {
        let Some(live) = &self.live else {
            return;
        };
        let last = text.len() > self.live_left;
        self.live_left = self.live_left.saturating_sub(text.len());
        let piece = if last {
            "\n[more output is not shown live]\n".to_owned()
        } else {
            text
        };
        let gone = live.send((stream, piece)).await.is_err();
        if last || gone {
            self.live = None;
        }
    }

    fn finish(mut self) -> String {
        let rest = self.stdout.finish() + &self.stderr.finish();
        self.kept.push(&rest);
        self.kept.finish()
    }
}

/// Takes output until the command has ended and its pipes are dry.
async fn pump(running: &mut Running, capture: &mut Capture) -> io::Result<ExitStatus> {
    let Running {
        stdout,
        stderr,
        exit,
        ..
    } = running;
    let ended = {
        let output = take_all(stdout, stderr, capture);
        tokio::pin!(output);
        tokio::select! {
            // A command can close its output and go on.
            () = &mut output => None,
            ended = &mut *exit => {
                // A process that got away can hold the pipes open, and a listener can be slow.
                let _ = timeout(DRAIN_TIME, &mut output).await;
                Some(ended)
            }
        }
    };
    match ended {
        Some(ended) => ended,
        None => exit.await,
    }
    .map_err(io::Error::other)?
}

async fn take_all(stdout: &mut ChildStdout, stderr: &mut ChildStderr, capture: &mut Capture) {
    let (mut out, mut err) = (vec![0; PIPE_BYTES], vec![0; PIPE_BYTES]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        // A pipe that fails has nothing more to give, like one that ends.
        tokio::select! {
            read = stdout.read(&mut out), if out_open => {
                let bytes = read.ok().and_then(|count| out.get(..count)).unwrap_or_default();
                out_open = !bytes.is_empty();
                capture.take(OutputStream::Stdout, bytes).await;
            }
            read = stderr.read(&mut err), if err_open => {
                let bytes = read.ok().and_then(|count| err.get(..count)).unwrap_or_default();
                err_open = !bytes.is_empty();
                capture.take(OutputStream::Stderr, bytes).await;
            }
        }
    }
}
