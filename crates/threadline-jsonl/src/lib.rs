//! The default backend: one directory of JSON lines per session.
//!
//! ```text
//! <root>/sessions/2026/11/30/<id>/
//!   log.jsonl      header and events; append-only
//!   lock           never unlinked; who writes, and what is known to be on stable storage
//!   summary.json   what people set
//!   quarantine/    torn bytes that were moved aside
//! ```
//! - [`JsonlBackend`] is the asynchronous shell, [`Files`] and [`LogWriter`] the synchronous core.
//! - [`vfs`] is the seam below every file access; the simulated file systems in `sim` (feature
//!   `test-util`) crash and fail on command.
//! - A log is read by one decoder, which tells torn ends from damage.

mod backend;
mod counting;
mod files;
mod hint;
pub mod layout;
pub mod limits;
mod log;
mod people;
mod real;
mod scan;
#[cfg(feature = "test-util")]
pub mod sim;
pub mod vfs;

pub use backend::{JsonlBackend, JsonlOptions};
pub use counting::{CountingVfs, Counts};
pub use files::Files;
pub use hint::Hint;
pub use log::LogWriter;
pub use real::RealVfs;
