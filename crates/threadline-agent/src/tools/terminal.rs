//! Commands in a terminal of the client, where a person sees them.
//!
//! Only those that nothing confines: the client would run them outside of the sandbox, and that
//! promises more. They get what they get beside the agent: the launcher in front, which keeps the
//! session store closed, the environment of the list and no input.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use threadline_session::payload::{Outcome, OutputStream, SandboxMode};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::client::{ClientCommand, ClientError, ClientTerminal, TerminalExit};
use super::shell::report;
use super::text::{HeadTail, harmless, printable, shorten};
use super::{CallSession, ToolContext, ToolOutput};
use crate::limits::{
    CLIENT_REASON_BYTES, NOTE_BYTES, OUTPUT_BYTES, OUTPUT_LOG_BYTES, TERMINAL_BYTES, TERMINAL_LOOK,
};

/// Runs its arguments with the environment that comes first, and without input: nobody answers
/// what a program asks.
const WITHOUT_INPUT: &str = r#"exec "$@" </dev/null"#;

/// What programs must not take a terminal for: a reason to wait for a key.
const NO_PAGER: [(&str, &str); 3] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// What came of a command.
pub(super) enum InTerminal {
    /// It is not for a terminal, or there is none.
    NotAsked,
    /// The client gives none. Nothing was started.
    Refused(String),
    Ran(Ended),
}

/// A command that is over, as far as anybody knows.
pub(super) struct Ended {
    end: End,
    /// Whether the client has said that it is ended, when that was wanted.
    killed: Result<(), ClientError>,
    text: String,
}

enum End {
    Exited(Result<TerminalExit, ClientError>),
    TimedOut,
    Cancelled,
    /// Nobody knows whether it was started.
    Lost(ClientError),
}

/// Runs a command, given as program and arguments, in the client's terminal if that is its place.
pub(super) async fn run(
    ctx: &ToolContext,
    command: &[OsString],
    env: &[(OsString, OsString)],
    time: Duration,
) -> InTerminal {
    let (Some(terminals), Some(session)) = (&ctx.terminals, &ctx.session) else {
        return InTerminal::NotAsked;
    };
    if ctx.sandbox != SandboxMode::DangerFullAccess {
        return InTerminal::NotAsked;
    }
    let Some(command) = for_client(ctx, command, env) else {
        return InTerminal::Refused("the command has a word that is not UTF-8".into());
    };
    let terminal = match start(terminals.as_ref(), session, command, ctx).await {
        Ok(terminal) => terminal,
        Err(error @ ClientError::Refused { .. }) => return InTerminal::Refused(reason(&error)),
        Err(error) => {
            return InTerminal::Ran(Ended {
                end: End::Lost(error),
                killed: Ok(()),
                text: String::new(),
            });
        }
    };
    let end = tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => End::Cancelled,
        exit = follow(terminal.as_ref(), ctx) => End::Exited(exit),
        () = sleep(time) => End::TimedOut,
    };
    let killed = match end {
        End::Exited(Ok(_)) => Ok(()),
        _ => terminal.kill().await,
    };
    let text = match terminal.output().await {
        Ok(output) => whole(&output.text, output.truncated),
        Err(error) => format!("[its output cannot be had: {}]\n", reason(&error)),
    };
    terminal.release().await;
    InTerminal::Ran(Ended { end, killed, text })
}

async fn start(
    terminals: &dyn super::ClientTerminals,
    session: &CallSession,
    command: ClientCommand,
    ctx: &ToolContext,
) -> Result<Box<dyn ClientTerminal>, ClientError> {
    terminals.start(session, command, &ctx.cancel).await
}

/// Waits for the end, and tells meanwhile what is printed, as far as the log takes it.
async fn follow(
    terminal: &dyn ClientTerminal,
    ctx: &ToolContext,
) -> Result<TerminalExit, ClientError> {
    let exited = terminal.exited();
    tokio::pin!(exited);
    let mut look = interval(TERMINAL_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // At once there is nothing to be seen.
    look.tick().await;
    let mut told = String::new();
    while let Some(live) = &ctx.output
        && told.len() <= OUTPUT_LOG_BYTES
    {
        tokio::select! {
            biased;
            exit = &mut exited => return exit,
            _ = look.tick() => {}
        }
        let output = tokio::select! {
            biased;
            exit = &mut exited => return exit,
            output = terminal.output() => output,
        };
        // A terminal may draw anew what it has shown; then there is no more to go on from.
        let Ok(more) = output.map(|output| output.text.strip_prefix(&told).map(str::to_owned))
        else {
            continue;
        };
        let Some(more) = more else { break };
        told.push_str(&more);
        let piece = harmless(&more).into_owned();
        if !more.is_empty() && live.send((OutputStream::Stdout, piece)).await.is_err() {
            break;
        }
    }
    exited.await
}

fn for_client(
    ctx: &ToolContext,
    command: &[OsString],
    env: &[(OsString, OsString)],
) -> Option<ClientCommand> {
    let text = |word: &OsStr| word.to_str().map(str::to_owned);
    let mut args = vec!["-i".to_owned()];
    let pagers = NO_PAGER.map(|(name, value)| format!("{name}={value}"));
    args.extend(env.iter().filter_map(|(name, value)| {
        // A variable that no text can tell is one less.
        Some(format!("{}={}", text(name)?, text(value)?))
    }));
    args.extend(pagers);
    args.extend(["/bin/sh", "-c", WITHOUT_INPUT, "sh"].map(str::to_owned));
    for word in command {
        args.push(text(word)?);
    }
    Some(ClientCommand {
        program: "/usr/bin/env".into(),
        args,
        cwd: std::path::absolute(&ctx.cwd).ok()?,
        output_bytes: TERMINAL_BYTES as u64,
    })
}

/// Returns the output as a result takes it, however much a client sends.
fn whole(text: &str, truncated: bool) -> String {
    let mut kept = HeadTail::new(OUTPUT_BYTES - NOTE_BYTES, NOTE_BYTES / 2);
    if truncated {
        kept.push("[the beginning of the output is left out: the editor has kept only its end]\n");
    }
    kept.push(&harmless(text));
    kept.finish()
}

fn reason(error: &ClientError) -> String {
    shorten(&printable(&error.to_string()), CLIENT_REASON_BYTES)
}

impl Ended {
    /// Makes the result of the call.
    pub(super) fn report(self, time: Duration) -> ToolOutput {
        let ended = match &self.killed {
            Ok(()) => "the editor has ended it".to_owned(),
            Err(error) => format!(
                "the editor was asked to end it, and {}; whether it still runs is not known",
                reason(error)
            ),
        };
        let (outcome, note) = match &self.end {
            End::Cancelled => (Outcome::Cancelled, format!("cancelled; {ended}")),
            End::TimedOut => (
                Outcome::Timeout,
                format!("took longer than {} ms; {ended}", time.as_millis()),
            ),
            End::Lost(ClientError::Cancelled) => (
                Outcome::Cancelled,
                "cancelled while the editor was asked to run it".into(),
            ),
            End::Lost(error) => (
                Outcome::Unknown,
                format!(
                    "the editor was asked to run it, and {}; whether it ran is not known: check \
                     before you run it again",
                    reason(error)
                ),
            ),
            End::Exited(Err(error)) => (
                Outcome::Unknown,
                format!(
                    "the editor was asked how it ends, and {}; how far it came is not known: check \
                     before you run it again",
                    reason(error)
                ),
            ),
            End::Exited(Ok(TerminalExit {
                code: Some(0),
                signal: None,
            })) => (Outcome::Ok, "exit code 0".into()),
            End::Exited(Ok(TerminalExit { signal, code })) => {
                let how = match (signal, code) {
                    (Some(signal), _) => {
                        format!("ended by signal {}", shorten(&printable(signal), 40))
                    }
                    (None, Some(code)) => format!("exit code {code}"),
                    (None, None) => "ended, and the editor does not say how".into(),
                };
                (Outcome::Error, how)
            }
        };
        report(
            outcome,
            self.text,
            &format!("{note}; in the editor's terminal"),
        )
    }
}
