//! HTTP and SSE over the agent, with the embedded web page.
//!
//! - [`serve`] listens until it is told to stop; [`router`] is the same without a socket.
//! - Starting turns is in `runs`, following them in `events`, that lists changed in `changes`, forks, rewinds and blobs in
//!   `branches`, everything else about sessions in `sessions`; `fold` holds the one read model that streams are told from.
//! - Every route stands in one table (`routes`), which makes both the router and its OpenAPI
//!   document.
//! - What goes wrong is mapped once, in `error`, to a stable [`Code`].

mod audit;
mod auth;
mod branches;
mod changes;
mod check;
mod error;
mod events;
mod export;
mod fold;
mod grants;
mod input;
pub mod limits;
mod lineage;
mod meta;
mod metrics;
mod openapi;
mod page;
mod queue;
mod routes;
mod runs;
mod schemas;
mod server;
mod sessions;
mod sse;
mod state;
mod timeline;
mod turns;

pub use auth::{COOKIE, ListenError, check_listen, check_token};
pub use error::Code;
pub use export::{ExportError, Format, Sink, export};
pub use page::is_built as page_is_built;
pub use server::{ServerConfig, router, serve};
