//! The server over real sockets.

mod access;
mod disk;
mod document;
mod follow;
mod page;
mod runs;
mod schema;
mod sessions;
mod stored;
mod support;
