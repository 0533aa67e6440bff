//! The Agent Client Protocol, wire version 1: the agent as an editor drives it.
//!
//! No logic of its own. Sessions, runs, approvals and the queue are `threadline-agent`'s; what is
//! shown comes from `View`, live as in a replay.
//!
//! - `transport` has the lines, `rpc` what they mean; both are bounded and own (ADR 19). The types
//!   on the wire are those of the official crate.
//! - `connection` reads lines, `methods` answers what concerns sessions, `live` begins prompts and
//!   follows them, `ask` puts questions to the person, `offer` those that outlived their
//!   process, `load` replays.
//! - `lent` is what the client does for tools: texts of files and terminals.
//! - `updates`, `calls`, `images` and `text` turn items of the read model into updates.

mod ask;
mod calls;
mod connection;
mod images;
mod lent;
pub mod limits;
mod live;
mod load;
mod mcp;
mod methods;
mod offer;
mod options;
mod prompt;
mod rpc;
mod sessions;
mod text;
mod transport;
mod updates;

pub use connection::{ServeError, serve};
pub use mcp::Pool;
