//! A backend that keeps sessions in PostgreSQL.
//!
//! - A log is a list of segments, which forks share; a segment is a header line and rows of
//!   `events`, one for each line, byte for byte. Where a line would begin in a file stands beside
//!   it, so that places and positions mean the same as in every other backend.
//! - An append is one statement: it compares and sets the head row, and stores the lines only if
//!   the head was as expected. The epoch in it is what fences an older writer; the lease beside it
//!   only spares others the attempt.
//! - A repair puts a new segment in the place of a session's own. The old log is kept: the view
//!   `quarantine` gives its lines, `SELECT line FROM quarantine WHERE session = … AND generation = 1
//!   ORDER BY at`.
//! - Nothing on the way asks for more than ordinary transactions: no advisory locks, and
//!   notifications are hints that may be missing.
//!
//! A pooler between the two must pool sessions, not transactions: statements are prepared.

mod backend;
mod blobs;
mod catalogue;
mod db;
mod error;
mod head;
mod import;
mod lease;
mod lines;
mod migrate;
mod notify;
mod options;
mod read;
mod replace;
mod tls;
mod writer;

pub use backend::PostgresBackend;
pub use options::PostgresOptions;
