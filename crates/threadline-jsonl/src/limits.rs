//! Every limit of the backend in one place.

use std::time::Duration;

/// Longest line that is looked at as one, in bytes; anything longer is no record.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Bytes read from a log at once.
pub const READ_BYTES: usize = 256 << 10;

/// Bytes read from a log at first; each further read is twice as large.
pub const FIRST_READ_BYTES: usize = 8 << 10;

/// Longest header line, in bytes.
pub const MAX_HEADER_BYTES: usize = 64 << 10;

/// Size of the lock file's record, in bytes.
pub const HINT_BYTES: usize = 512;

/// Longest `summary.json` that is read, in bytes.
pub const MAX_SUMMARY_BYTES: u64 = 256 << 10;

/// How often a lock is tried for, with a pause of 10 ms between: readers hold it for an instant.
pub const LOCK_TRIES: u32 = 20;

/// Syncs of one process that run at the same time.
pub const PARALLEL_SYNCS: usize = 64;

/// Longest folder name of a session with an id of its own, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// Most files that one log is made of: a fork, and a take-over, adds one.
pub const MAX_PIECES: usize = 4096;

/// Bytes of a file that are searched from one end to the other instead of by halving.
pub const LINEAR_BYTES: u64 = 1 << 20;

/// Most events of one batch, as the log format has it.
pub const MAX_BATCH_EVENTS: u64 = threadline_session::limits::MAX_BATCH_EVENTS as u64;

/// Largest checkpoint, in bytes.
pub const MAX_CHECKPOINT_BYTES: usize = 256 << 20;

/// Session folders that one backend watches at most; more are looked at now and then instead.
pub const MAX_WATCHES: usize = 1024;

/// Bytes of the buffer for what the system tells of watched folders.
pub const WATCH_BYTES: usize = 16 << 10;

/// How often a session is looked at although its folder is watched: what is told is a hint.
pub const WATCHED_POLL_INTERVAL: Duration = Duration::from_secs(1);
