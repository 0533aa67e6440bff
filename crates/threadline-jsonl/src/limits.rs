//! Every limit of the backend in one place.

/// Longest line that is looked at as one, in bytes; anything longer is no record.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Bytes read from a log at once.
pub const READ_BYTES: usize = 256 << 10;

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
