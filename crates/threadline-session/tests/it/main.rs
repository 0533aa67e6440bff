//! The session log's promises, tested through the public interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod codec;
mod compaction;
mod grants;
mod head;
mod normalise;
mod properties;
mod recovery;
mod sequences;
mod support;
mod view;
