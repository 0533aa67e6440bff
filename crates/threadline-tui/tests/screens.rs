//! What the screen shows, and what keys come to, without a terminal.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

#[path = "screens/picker.rs"]
mod picker;
#[path = "screens/safety.rs"]
mod safety;
#[path = "screens/talk.rs"]
mod talk;
