//! The agent behind a client, in one process: what is said, in which order, and what is replayed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

#[path = "it/support.rs"]
mod support;

#[path = "it/files.rs"]
mod files;
#[path = "it/lifecycle.rs"]
mod lifecycle;
#[path = "it/long.rs"]
mod long;
#[path = "it/offers.rs"]
mod offers;
#[path = "it/prompts.rs"]
mod prompts;
#[path = "it/replay.rs"]
mod replay;
#[path = "it/terminals.rs"]
mod terminals;
#[path = "it/wire.rs"]
mod wire;
