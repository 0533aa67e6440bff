//! `threadline __sandbox`: the launcher of the sandbox, which the agent calls and no person.

use std::process::ExitCode;

/// Becomes the command of a launcher's command line, if this is one.
///
/// It comes before everything else: the arguments are the command's own and none of `clap`'s, and
/// the rules must be applied while the process has one thread. What it returns is the exit code of
/// a launcher that did not become the command.
pub(crate) fn launch() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments
        .next()
        .filter(|verb| verb == threadline_sandbox::VERB)
        .map(|_| threadline_sandbox::launcher_main(arguments))
}
