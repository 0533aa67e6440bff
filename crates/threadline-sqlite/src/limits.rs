//! Every limit of this backend in one place.

use std::time::Duration;

/// How long a piece of work waits for another process that writes, before it gives up.
pub const BUSY_FOR: Duration = Duration::from_secs(30);

/// Longest pause between two tries of a locked database. SQLite's own pauses grow until those who
/// wait longest come last.
pub const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Connections for reading that are kept open.
pub const READERS: usize = 4;

/// How often a process that holds sessions shows that it is alive.
pub const BEAT: Duration = Duration::from_secs(10);

/// How long a process that cannot be looked at counts as alive after its last sign.
pub const LEASE: Duration = Duration::from_secs(45);

/// Most batches in one commit.
pub const BATCHES: usize = 64;

/// Pages given back to the file system at a time, after a session was deleted.
pub const VACUUM_PAGES: i64 = 512;

/// How long the end of a process may take for giving back pages. What is left stays free for use.
pub const SWEEP_AT_END: Duration = Duration::from_secs(2);

/// How often another process's commits are looked for while a session is followed.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Size that the write-ahead log is cut to once it was larger.
pub const WAL_BYTES: i64 = 16 << 20;

/// Prepared statements kept per connection.
pub const STATEMENTS: usize = 64;
