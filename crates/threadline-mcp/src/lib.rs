//! Tools of MCP servers.
//!
//! - [`ServerConfig`] says how a server is reached; [`ServerFile`] is how a configuration file says
//!   it.
//! - [`Servers`] holds the connections of all sessions, and is the source of tools that agents are
//!   made with. A session has the servers that all have, or those that it was
//!   [assigned](Servers::assign).
//! - [`survey()`] connects to servers once and tells how each of them stands.
//!
//! A server is connected to when a turn begins, and the connection is kept until nobody has used it
//! for a while. A server that is not there stops nothing: its tools are left out, and the model and
//! the person are told. Servers are the person's own programs and run outside of the sandbox.

mod call;
mod config;
mod connection;
mod http;
pub mod limits;
mod listing;
mod names;
mod problem;
mod result;
mod server;
mod servers;
mod stdio;
mod survey;

pub use config::{ConfigError, ServerConfig, ServerFile, Transport};
pub use names::ServerName;
pub use problem::Problem;
pub use servers::Servers;
pub use survey::{Report, ReportedTool, Standing, survey};
