//! The terminal interface in a real terminal: tmux types and looks.
//!
//! Run by `cargo xtask test tui`, which installs tmux.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

#[path = "tui/flows.rs"]
mod flows;
#[path = "tui/survival.rs"]
mod survival;
#[path = "tui/tmux.rs"]
mod tmux;
