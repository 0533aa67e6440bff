//! Every limit of the store in one place.

use std::time::Duration;

/// Bytes asked of a backend for one page while a log is read.
pub const PAGE_BYTES: usize = 1 << 20;

/// Idempotency keys remembered per session, newest first.
pub const REMEMBERED_KEYS: usize = 256;

/// Sessions in one page of a list when the caller names no number.
pub const LIST_LIMIT: usize = 50;

/// Most sessions in one page of a list.
pub const MAX_LIST_LIMIT: usize = 500;

/// How often a session that another process writes is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// Most tags on a session.
pub const MAX_TAGS: usize = 32;
