//! The program as people and programs call it: outputs, exit codes, and what is on disk after.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/branch.rs"]
mod branch;
#[path = "cli/export.rs"]
mod export;
#[path = "cli/full.rs"]
mod full;
#[path = "cli/grants.rs"]
mod grants;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/resume.rs"]
mod resume;
#[path = "cli/serve.rs"]
mod serve;
#[path = "cli/storage.rs"]
mod storage;
#[path = "cli/telemetry.rs"]
mod telemetry;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/verbs.rs"]
mod verbs;
#[path = "cli/verify.rs"]
mod verify;
