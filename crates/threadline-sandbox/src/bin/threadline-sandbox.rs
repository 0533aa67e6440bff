//! The launcher as a program of its own, for programs that embed the agent, and for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let verb = threadline_sandbox::VERB;
    threadline_sandbox::launcher_main(arguments.skip_while(|argument| argument == verb))
}
