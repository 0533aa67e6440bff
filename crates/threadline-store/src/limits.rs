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

/// Times that a title made by a model is tried to be kept while people change the session.
pub const MADE_TITLE_TRIES: usize = 3;
/// Longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// Most tags on a session.
pub const MAX_TAGS: usize = 32;

/// Bytes of log that are worth a checkpoint. Reading as much takes about a millisecond.
pub const CHECKPOINT_BYTES: u64 = 1 << 20;

/// Largest blob, in bytes.
pub const MAX_BLOB_BYTES: usize = 64 << 20;

/// How long a blob that no log names is kept: whoever put it may be about to name it.
pub const BLOB_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Lines that are asked of a backend at once when the content of items is read.
pub const LINES_AT_ONCE: usize = 4096;

/// Sessions that a list looks at before it answers, when the catalogue suspects as many.
pub const LIST_LOOKS: usize = 128;

/// How long a list goes on looking at more of them.
pub const LIST_LOOK_TIME: Duration = Duration::from_millis(50);

/// Bytes of log between two words of a check about how far it is.
pub const CHECK_STRIDE: u64 = 1 << 20;

/// Bytes that are gathered for the hash of a chain.
pub const HASHED_AT_ONCE: usize = 64 << 10;

/// Bytes asked of a backend for one page while the bounds of a window are looked for.
pub const WINDOW_PAGE_BYTES: usize = 128 << 10;

/// Events that a look backwards begins with; each next one takes twice as many.
pub const WINDOW_STRIDE: u64 = 128;

/// Bytes of log behind which a window ends at the next step, however few items it has.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// Items of an open turn behind which a read model for following leaves its older steps out.
pub const FOLLOWED_ITEMS: usize = 500;
