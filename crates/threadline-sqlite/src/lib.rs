//! All sessions in one SQLite file.
//!
//! - [`SqliteBackend`] is the asynchronous shell: reads run on a few connections of their own,
//!   everything that writes goes through one queue to one thread (`queue`), but for a batch that
//!   finds the queue empty: its caller stores it.
//! - `schema` opens connections and brings the tables up to date (`migrations/`).
//! - `reader` gives pages and lines, `writer` claims, `append` stores batches, `leases` says who lives.
//! - `import`, `delete`, `blobs` and `checkpoints` are what their names say.
//! - `threadline-catalogue` is the table that lists are made from, `catalogue` its place in this database.
//!
//! # How it is kept
//! The write-ahead log is on. An append that must be durable commits with `synchronous=FULL`, which
//! syncs everything committed before it too; one that need not be commits without a sync, so it
//! survives the process and not the machine. Either way a batch is one transaction, which begins
//! with a compare-and-set on the session's epoch and next number: whoever was fenced stores nothing.
//!
//! Forks share the rows of the events they have in common. Deleting a session removes the events
//! that no other session names, overwrites their bytes (`secure_delete`), gives the pages back to
//! the file system (`incremental_vacuum`) and empties the write-ahead log.
//!
//! A repair puts a new segment in the place of a session's own ones. The old log is kept until the
//! session is deleted: the view `quarantine` gives its lines, `SELECT line FROM quarantine WHERE
//! session = … AND generation = 1 ORDER BY at`.

mod append;
mod backend;
mod blobs;
mod catalogue;
mod checkpoints;
mod delete;
mod error;
mod import;
mod leases;
pub mod limits;
mod log;
mod number;
mod queue;
mod reader;
mod schema;
mod writer;

pub use backend::{SqliteBackend, SqliteOptions};
pub use error::SqliteError;
