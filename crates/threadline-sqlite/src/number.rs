//! SQLite knows signed integers only.

/// Returns a number as SQLite keeps it; what is too large is the largest.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number that SQLite kept; what is negative is nothing.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a length as a number.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
