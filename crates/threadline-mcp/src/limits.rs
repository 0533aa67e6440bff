//! Every bound of MCP servers, in one place.

use std::time::Duration;

/// Most bytes of one message of a server. One that is longer ends the connection.
pub const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes of the name of a server.
pub const SERVER_NAME_BYTES: usize = 32;
/// Most bytes of the name of a tool as the model is told it; more is refused by providers.
pub const TOOL_NAME_BYTES: usize = 64;
/// Most bytes of the name that a server gives a tool.
pub const SERVER_TOOL_NAME_BYTES: usize = 256;
/// Most servers of a session.
pub const SERVERS: usize = 64;
/// Most tools of one server.
pub const TOOLS: usize = 256;
/// Most pages of a server's list of tools.
pub const PAGES: usize = 64;
/// Most bytes of the schema of a tool's arguments.
pub const SCHEMA_BYTES: usize = 64 * 1024;
/// Most bytes of the definitions of all tools of one server, as JSON.
pub const SERVER_BYTES: usize = 256 * 1024;
/// Most bytes of the definitions of all tools of a session's servers, as JSON. They stand in one
/// event of the log with those of the agent itself, which has at most 1 MiB.
pub const SESSION_BYTES: usize = 768 * 1024;
/// Most bytes of all that the model is told of servers besides.
pub const TOLD_BYTES: usize = 32 * 1024;
/// Most sentences about tools of one server that are left out.
pub const LEFT_OUT: usize = 20;
/// Most bytes of the description of a tool; more is cut off.
pub const DESCRIPTION_BYTES: usize = 8 * 1024;
/// Most bytes of what a server says of itself that the model is told; more is cut off.
pub const INSTRUCTIONS_BYTES: usize = 2 * 1024;
/// Most bytes of a reason, and of a message of a server in it.
pub const REASON_BYTES: usize = 400;
/// Most bytes of a line of a server's standard error that are looked at.
pub const STDERR_LINE_BYTES: usize = 1024;
/// Most bytes of a server's standard error that are logged; the rest is read and forgotten.
pub const STDERR_BYTES: usize = 256 * 1024;

/// Time that a call gets when the configuration names none.
pub const CALL_TIME: Duration = Duration::from_secs(120);
/// Most seconds that the configuration can name.
pub const SECONDS_MAX: u64 = 24 * 60 * 60;
/// Time that a server gets to start and to tell its tools when the configuration names none.
pub const START_TIME: Duration = Duration::from_secs(30);
/// How long a server that was not ready in time is left alone by the turns after.
pub const REST_TIME: Duration = Duration::from_secs(60);
/// How long connections are kept that no run uses.
pub const IDLE_TIME: Duration = Duration::from_secs(5 * 60);
/// Time that a process gets to end by itself once its standard input is closed.
pub const END_TIME: Duration = Duration::from_secs(2);
/// Time that telling a server of a cancelled call may take.
pub const CANCEL_TIME: Duration = Duration::from_secs(2);
/// Time that a connection over HTTP may take to be made.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Progress notes that wait to be shown; more are left out.
pub const PROGRESS_NOTES: usize = 64;
/// Most bytes of one of them.
pub const PROGRESS_BYTES: usize = 1024;
/// Most bytes of all that one call shows.
pub const PROGRESS_ALL_BYTES: usize = 256 * 1024;
/// Most images of one result.
pub const IMAGES: usize = 20;
