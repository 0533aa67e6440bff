//! The program is killed with SIGKILL and goes on, against a model server that refuses what the
//! real ones refuse.
//!
//! `kill/cases.rs` kills at chosen moments, `kill/random.rs` at random ones:
//! `THREADLINE_KILLS=1000 THREADLINE_SEED=7 cargo test -p threadline-cli --test kill random`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

#[path = "kill/cases.rs"]
mod cases;
#[path = "kill/random.rs"]
mod random;
#[path = "kill/trial.rs"]
mod trial;

use support::{Strict, World};

/// The flags that point a call at a strict model server.
fn flags(strict: &Strict) -> Vec<String> {
    [
        "--provider",
        "openai-chat",
        "--base-url",
        &strict.model.base_url(),
        "--model",
        "m",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The arguments of a run with those flags.
fn run_args(strict: &Strict, more: &[&str]) -> Vec<String> {
    let mut args = vec!["run".to_owned(), "--json".to_owned()];
    args.extend(flags(strict));
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// A world whose key is set.
fn world() -> World {
    let mut world = World::new();
    world.env.insert("OPENAI_API_KEY".into(), "test".into());
    world
}
