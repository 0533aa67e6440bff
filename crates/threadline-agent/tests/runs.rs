//! Whole runs against a scripted model and an in-memory store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

#[path = "runs/support.rs"]
mod support;

#[path = "runs/approvals.rs"]
mod approvals;
#[path = "runs/compaction.rs"]
mod compaction;
#[path = "runs/ends.rs"]
mod ends;
#[path = "runs/grants.rs"]
mod grants;
#[path = "runs/inbox.rs"]
mod inbox;
#[path = "runs/jobs.rs"]
mod jobs;
#[path = "runs/limits.rs"]
mod limits;
#[path = "runs/outputs.rs"]
mod outputs;
#[path = "runs/prefix.rs"]
mod prefix;
#[path = "runs/read_output.rs"]
mod read_output;
#[path = "runs/replay.rs"]
mod replay;
#[path = "runs/resume.rs"]
mod resume;
#[path = "runs/sources.rs"]
mod sources;
#[path = "runs/subagents.rs"]
mod subagents;
#[path = "runs/titles.rs"]
mod titles;
