//! Counters.

/// What was asked of a [`MemVfs`](super::MemVfs).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads of file content.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes and appends.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Syncs of folders.
    pub dir_syncs: u64,
    /// Times that somebody waited for a lock.
    pub pauses: u64,
}
