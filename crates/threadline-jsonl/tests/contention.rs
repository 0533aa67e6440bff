//! Real processes that fight for one session on a real file system.
//!
//! `THREADLINE_TAKEOVERS=2000 cargo xtask test contention` kills the holder more often.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "real files and processes are the matter; the store under test goes through its seam"
)]

#[path = "contention/mod.rs"]
mod contention;
#[path = "crash/world.rs"]
mod world;
