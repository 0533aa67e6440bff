//! The default backend: one directory of JSON lines per session.
//!
//! ```text
//! <root>/sessions/2026/11/30/<id>/
//!   log.jsonl      header and events; append-only
//!   base-<k>.jsonl frozen prefixes that a fork, or a session that was taken over, continues
//!   index          checkpoints of the log; a cache
//!   lock, lock-<n> never unlinked; who writes, and what is known to be on stable storage
//!   summary.json   what people set
//!   quarantine/    torn bytes that were moved aside
//! <root>/blobs/ab/<hash>
//! ```
//! - [`JsonlBackend`] is the asynchronous shell, [`Files`] and [`LogWriter`] the synchronous core.
//! - [`vfs`] is the seam below every file access; the simulated file systems in `sim` (feature
//!   `test-util`) crash and fail on command.
//! - A log is read by one decoder, which tells torn ends from damage.

mod backend;
mod blobs;
mod catalogue;
mod claims;
mod counting;
mod create;
mod delete;
mod files;
mod hint;
mod import;
mod index;
pub mod layout;
pub mod limits;
mod lines;
mod log;
mod people;
mod pieces;
mod real;
mod scan;
mod seek;
#[cfg(feature = "test-util")]
pub mod sim;
mod skim;
pub mod vfs;
mod watch;

pub use backend::{JsonlBackend, JsonlOptions};
pub use counting::{CountingVfs, Counts, Reads, Shares};
pub use files::Files;
pub use hint::Hint;
pub use import::LogImport;
pub use log::LogWriter;
pub use real::RealVfs;
