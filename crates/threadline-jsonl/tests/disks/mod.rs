//! The tests of real disks. The lanes of xtask tell them from all others by this module's name.

mod failed_sync;
mod full;
mod ledger;
mod machine;
mod power_cut;
mod rng;
mod script;
mod volume;

use std::io::Write as _;

/// What went well is no text; what did not is a sentence.
pub(crate) type Fallible<T> = Result<T, String>;

pub(crate) fn text(error: impl std::error::Error) -> String {
    threadline_store::error_chain(&error)
}

pub(crate) fn check(fits: bool, what: impl FnOnce() -> String) -> Fallible<()> {
    if fits { Ok(()) } else { Err(what()) }
}

/// Past the capture of the test runner: these lines are the result. The runner may have left a line
/// of its own unfinished.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "\n{text}");
}

/// Says that something could not be tried. xtask counts it by this line.
pub(crate) fn tell_skipped(name: &str, run: u64, skipped: u64, why: &str) {
    tell(&format!("{name}: {run} run, {skipped} skipped: {why}"));
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The runtime that all stores of a test share. It has several threads, as the program's has, so
/// that blocking work is done in place.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Prints what failed and where, and fails the test if anything did.
pub(crate) fn conclude(name: &str, failures: &[String]) {
    for failure in failures {
        tell(&format!("{name}: {failure}"));
    }
    assert!(failures.is_empty(), "{name}: {} failed", failures.len());
}
