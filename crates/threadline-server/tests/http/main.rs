//! The server over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod access;
mod branches;
mod disk;
mod document;
mod follow;
mod grants;
mod listing;
mod page;
mod panels;
mod queue;
mod runs;
mod schema;
mod sessions;
mod stored;
mod support;
mod types;
