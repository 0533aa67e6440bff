//! What keeps a command from being run inside its bounds.

use std::io;
use std::path::PathBuf;

/// A command cannot be run inside its bounds, so it is not run at all.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program that applies the rules is not known.
    #[error(
        "the sandbox has no launcher: `{}` is not threadline, and neither `threadline` nor \
         `threadline-sandbox` is next to it; put one there, or name one as the launcher \
         (in a source tree: `cargo build -p threadline-sandbox`)",
        program.display()
    )]
    NoLauncher {
        /// The running program.
        program: PathBuf,
    },
    /// The launcher does not start, or says what nobody understands.
    #[error(
        "the sandbox launcher `{}` does not work: {problem}; rebuild or reinstall threadline",
        launcher.display()
    )]
    Launcher {
        /// The program.
        launcher: PathBuf,
        /// What happened.
        problem: String,
    },
    /// The system or its kernel cannot hold the rules.
    #[error(
        "this system cannot hold commands inside the sandbox: {missing}; run threadline on Linux \
         6.2 or later with Landlock enabled (`landlock` in `/sys/kernel/security/lsm`, seccomp in \
         the kernel), or choose the sandbox mode danger_full_access if you accept commands \
         without a sandbox"
    )]
    Unsupported {
        /// What is not there.
        missing: String,
    },
    /// The command line of the launcher is not one.
    #[error(
        "the sandbox cannot read its policy: {problem}; it takes `__sandbox --policy JSON -- PROGRAM ARGUMENTS`"
    )]
    Policy {
        /// What is wrong.
        problem: String,
    },
    /// A path of the policy cannot be used.
    #[error("the sandbox cannot use `{}`: {problem}; choose another folder", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// One of the rules was not accepted.
    #[error(
        "the sandbox could not be set up ({doing}: {problem}), so the command was not run; free \
         the system's resources and try again, or choose another sandbox mode"
    )]
    Apply {
        /// The step.
        doing: String,
        /// What the system said.
        problem: String,
    },
    /// The program of the command does not start.
    #[error("`{}` cannot be run: {problem}; check that it is installed", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// What the system said.
        problem: String,
    },
}

impl Error {
    /// Makes the error of a step that the system refused.
    pub(crate) fn apply(doing: impl Into<String>, problem: impl ToString) -> Self {
        Self::Apply {
            doing: doing.into(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn path(path: impl Into<PathBuf>, problem: &io::Error) -> Self {
        Self::Path {
            path: path.into(),
            problem: problem.to_string(),
        }
    }
}
