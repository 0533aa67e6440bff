//! Attempts to get out of the sandbox, each really made.
//!
//! Every row of the table runs once without a sandbox, where it has to succeed: that shows that it
//! is an attempt. Then it runs in both sandboxed modes, with and without namespaces, and has to
//! change nothing and learn nothing. Where the kernel has no Landlock the tests fail and say so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code,
    missing_docs
)]
#![cfg(target_os = "linux")]

#[path = "escapes/helper.rs"]
mod helper;
#[path = "escapes/lacking.rs"]
mod lacking;
#[path = "escapes/positive.rs"]
mod positive;
#[path = "escapes/table.rs"]
mod table;
#[path = "escapes/world.rs"]
mod world;
