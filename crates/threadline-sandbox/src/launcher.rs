//! The program that binds itself and becomes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::{Error, Policy};

/// First argument that makes a program the launcher.
pub const VERB: &str = "__sandbox";
/// Exit code of a launcher that did not become the command.
pub const FAILED: u8 = 125;

/// Runs the launcher with the arguments after [`VERB`]: either `--probe`, which prints the layers
/// that the system can hold, or `--policy JSON -- PROGRAM ARGUMENTS`.
///
/// It must be called by a process with one thread, before anything else. It returns only when it
/// did not become the command; the reason is then on standard error, and the code is [`FAILED`].
#[must_use]
pub fn launcher_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments.into_iter().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            // Nobody is left to be told when this fails.
            let _ = writeln!(std::io::stderr(), "threadline: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<(), Error> {
    let usage = |problem: &str| Error::Policy {
        problem: problem.into(),
    };
    let mut arguments = arguments.into_iter();
    let first = arguments.next().unwrap_or_default();
    if first == "--probe" {
        use std::io::Write as _;
        let layers = serde_json::to_string(&probe()?).map_err(|error| usage(&error.to_string()))?;
        return writeln!(std::io::stdout(), "{layers}")
            .map_err(|error| usage(&format!("nobody takes the answer: {error}")));
    }
    if first != "--policy" {
        return Err(usage("`--policy` is missing"));
    }
    let json = arguments.next().and_then(|json| json.into_string().ok());
    let policy = Policy::from_json(&json.ok_or_else(|| usage("the JSON is missing"))?)?;
    if arguments.next().is_none_or(|dashes| dashes != "--") {
        return Err(usage("`--` is missing"));
    }
    let program = arguments
        .next()
        .ok_or_else(|| usage("the program is missing"))?;
    apply(&policy)?;
    let error = Command::new(&program).args(arguments).exec();
    Err(Error::Program {
        program: PathBuf::from(program),
        problem: error.to_string(),
    })
}

#[cfg(target_os = "linux")]
use crate::linux::{apply, probe};

#[cfg(not(target_os = "linux"))]
fn apply(_policy: &Policy) -> Result<(), Error> {
    probe().map(drop)
}

#[cfg(not(target_os = "linux"))]
fn probe() -> Result<crate::Layers, Error> {
    Err(Error::Unsupported {
        missing: format!("there is no sandbox for {}", std::env::consts::OS),
    })
}
