//! Programs that chores start, and what becomes of them.
//!
//! A streamed program runs in a process group of its own. What it prints is passed on line by
//! line, so that counts can be read out of it. When it ends, and when a signal asks this process
//! to stop, the whole group is ended: no test leaves a server or a browser behind.

use std::{
    io::{self, BufRead as _, BufReader, IsTerminal as _, PipeReader, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{Failure, place};

/// How long a group may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How long output is still read after a program has ended and its group was killed.
const DRAIN: Duration = Duration::from_secs(2);
/// How often a program that prints nothing is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Set once a signal has asked this process to stop.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// The program that runs now, and whether it leads a group of its own.
static RUNNING: Mutex<Option<(Pid, bool)>> = Mutex::new(None);

/// How the programs of a chore are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With this process's own terminal, as a person would start them.
    Attached,
    /// Without input, output passed on line by line.
    Streamed,
}

/// Prints a line on stdout. A reader that has gone away is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Prints a line on stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Returns whether a signal has asked this process to stop.
pub(crate) fn stopping() -> bool {
    STOPPING.load(Ordering::SeqCst)
}

/// Ends the running program when a signal asks this process to stop.
///
/// # Errors
/// [`Failure`] when the handlers cannot be set.
pub(crate) fn watch_signals() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| format!("the signal handlers cannot be set: {e}"))?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // Asked twice, it does not wait for anybody to tidy up.
            let again = STOPPING.swap(true, Ordering::SeqCst);
            end_running(if again { Signal::KILL } else { Signal::TERM });
            if !again {
                std::thread::spawn(|| {
                    std::thread::sleep(GRACE);
                    end_running(Signal::KILL);
                });
            }
        }
    });
    Ok(())
}

fn end_running(signal: Signal) {
    // The lock is held while the signal is sent: the program cannot be reaped meanwhile, so its id
    // cannot belong to anybody else.
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((pid, group)) = *running {
        let _ = if group {
            kill_process_group(pid, signal)
        } else {
            kill_process(pid, signal)
        };
    }
}

fn set_running(running: Option<(Pid, bool)>) {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = running;
}

/// Returns a command without the variables that `cargo run` sets for this process. Build scripts
/// that watch them would run again on every change between cargo and `cargo xtask`.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(place::root());
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let inner = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
        ]
        .iter()
        .any(|prefix| text.starts_with(prefix));
        if inner || text == "CARGO_PRIMARY_PACKAGE" {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns a command of cargo, the one that runs this chore.
pub(crate) fn cargo() -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    command(&program)
}

/// Returns a command's line for people.
pub(crate) fn line_of(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut line = program
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs a command to its end.
///
/// # Errors
/// A sentence when it cannot be started, fails or is stopped.
pub(crate) fn run(mode: Mode, command: Command) -> Result<(), Failure> {
    let line = line_of(&command);
    note(&format!("$ {line}"));
    let status = match mode {
        Mode::Attached => attached(command, &line)?,
        Mode::Streamed => streamed(command, |_| {})?,
    };
    judge(&line, status)
}

/// Returns why a command that ended so has failed.
///
/// # Errors
/// The sentence.
pub(crate) fn judge(line: &str, status: ExitStatus) -> Result<(), Failure> {
    use std::os::unix::process::ExitStatusExt as _;
    if stopping() {
        return Err(format!("`{line}` was stopped"));
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("`{line}` exited with code {code}")),
        (None, signal) => Err(format!(
            "`{line}` was ended by signal {}",
            signal.unwrap_or_default()
        )),
    }
}

fn attached(mut command: Command, line: &str) -> Result<ExitStatus, Failure> {
    let failed = |e: io::Error| format!("`{line}` cannot be run: {e}");
    let mut child = command.spawn().map_err(failed)?;
    set_running(Some((Pid::from_child(&child), false)));
    while !has_ended(&child, WaitIdOptions::empty()).map_err(failed)? {}
    set_running(None);
    child.wait().map_err(failed)
}

/// Runs a command in a group of its own and calls `on_line` for each line it prints, which is
/// printed on stdout too.
///
/// # Errors
/// A sentence when it cannot be started or watched.
pub(crate) fn streamed(
    mut command: Command,
    mut on_line: impl FnMut(&str),
) -> Result<ExitStatus, Failure> {
    if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command
            .env("CARGO_TERM_COLOR", "always")
            .env("FORCE_COLOR", "1");
    }
    watched(command, |bytes| {
        let mut out = io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
        on_line(&text_of(bytes));
    })
}

/// Runs a command in a group of its own and returns the lines it printed, none of which is shown.
///
/// # Errors
/// A sentence when it cannot be started or watched.
pub(crate) fn captured(mut command: Command) -> Result<(ExitStatus, Vec<String>), Failure> {
    command.env("CARGO_TERM_COLOR", "never");
    let mut lines = Vec::new();
    let status = watched(command, |bytes| lines.push(text_of(bytes)))?;
    Ok((status, lines))
}

/// Returns a line without its end.
fn text_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

/// Runs a command in a group of its own and calls `on_line` for each line it prints.
fn watched(mut command: Command, mut on_line: impl FnMut(&[u8])) -> Result<ExitStatus, Failure> {
    let line = line_of(&command);
    let failed = |e: io::Error| format!("`{line}` cannot be run: {e}");
    // One pipe for both streams keeps their lines in order.
    let (reader, writer) = io::pipe().map_err(failed)?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the write end too; with it the reader would never see the end.
    drop(command);
    set_running(Some((Pid::from_child(&child), true)));
    if stopping() {
        end_running(Signal::TERM);
    }
    let lines = read_lines(reader);
    let mut looked = Instant::now();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(bytes) => on_line(&bytes),
            Err(RecvTimeoutError::Timeout) => {}
            // All has been said; it remains to wait.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
        }
        if looked.elapsed() >= LOOK {
            if has_ended(&child, WaitIdOptions::NOHANG).map_err(failed)? {
                break;
            }
            looked = Instant::now();
        }
    }
    // What the program has left behind in its group, before the group's id is free again.
    end_running(Signal::KILL);
    set_running(None);
    let status = child.wait().map_err(failed)?;
    let ended = Instant::now();
    while let Some(left) = DRAIN.checked_sub(ended.elapsed()) {
        let Ok(bytes) = lines.recv_timeout(left) else {
            break;
        };
        on_line(&bytes);
    }
    Ok(status)
}

/// Returns whether a program has ended, and leaves it to be reaped.
fn has_ended(child: &Child, how: WaitIdOptions) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | how;
    match waitid(WaitId::Pid(Pid::from_child(child)), options) {
        Ok(status) => Ok(status.is_some()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn read_lines(reader: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if sender.send(line).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    lines
}
