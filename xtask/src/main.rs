//! Every chore behind one door: `cargo xtask run | build | web | types | test | bench | make | fmt | lint`.
//!
//! - [`lanes`] is the table of what `test` and `bench` run; a new lane is one row there.
//! - [`mutants`] seeds bugs into a copy of the store and expects the tests to catch each.
//! - [`setup`] installs what is missing and builds what is stale, and says so.
//! - [`runner`] starts programs in process groups of their own and streams what they print.
//! - [`tally`] reads the counts out of what test programs print.
//! - [`place`] knows where the repository and its build output are.

#![allow(
    clippy::disallowed_methods,
    reason = "chores touch files directly; the rule protects the store"
)]

mod commands;
mod lanes;
mod mutants;
mod place;
mod runner;
mod setup;
mod tally;

use std::process::ExitCode;

const HELP: &str = "\
Every chore of the repository behind one door

Usage: cargo xtask <COMMAND> [ARGS]

Commands:
  run [--dev] [-- ARGS]        Build page and binary, then run `threadline serve ARGS`
  build [--dev]                Build page and binary
  web                          Build the page into web/dist
  types                        Write the page's types from the OpenAPI document
  test [--quick] [LANE]...     Run the tests, all lanes or the named ones (--list lists)
  bench [NAME [ARGS]]          Run the benchmarks, or one; JSON goes to target/bench/
  make KIND DIR [ARGS]         Make a store with a long session, or with many sessions
  fmt                          Format the Rust sources
  lint                         Check formatting and lints, warnings denied
  help                         Print this text

Whatever is missing (npm packages, Chromium, rustfmt, clippy) is installed first, and said.

Examples:
  cargo xtask run                           the page on http://127.0.0.1:4870
  cargo xtask run -- --listen 127.0.0.1:0   any free port
  cargo xtask test                          what CI runs
  cargo xtask test --quick                  the inner loop
  cargo xtask test web e2e                  two lanes only
  THREADLINE_KILLS=2000 cargo xtask test kill
  cargo xtask bench store fork verify       two rows only (bench store --list lists)
  cargo xtask bench page                    a million events and 100,000 sessions in Chromium
  cargo xtask make session DIR --events 50000
";

/// A chore that failed, in one sentence for people.
type Failure = String;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] | ["help" | "--help" | "-h", ..] | [_, "--help" | "-h", ..] => {
            runner::say(HELP.trim_end());
            if words.is_empty() {
                return ExitCode::from(2);
            }
            Ok(ExitCode::SUCCESS)
        }
        ["run", rest @ ..] => commands::run(rest),
        ["build", rest @ ..] => commands::build(rest),
        ["web"] => commands::web(),
        ["types"] => commands::types(),
        ["test", rest @ ..] => commands::test(rest),
        ["bench", rest @ ..] => commands::bench(rest),
        ["make", rest @ ..] => commands::make(rest),
        ["fmt"] => commands::fmt(),
        ["lint"] => commands::lint(),
        [unknown, ..] => {
            return usage(&format!(
                "`{unknown}` is not a command, or it takes no arguments"
            ));
        }
    };
    outcome.unwrap_or_else(|failure| {
        runner::note(&format!("error: {failure}"));
        ExitCode::FAILURE
    })
}

fn usage(problem: &str) -> ExitCode {
    runner::note(&format!(
        "error: {problem}; `cargo xtask help` lists the commands"
    ));
    ExitCode::from(2)
}
