//! Servers that are real processes and real listeners on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub
)]

#[path = "mcp/calls.rs"]
mod calls;
#[path = "mcp/http.rs"]
mod http;
#[path = "mcp/runs.rs"]
mod runs;
#[path = "mcp/servers.rs"]
mod servers;
#[path = "mcp/support.rs"]
mod support;
