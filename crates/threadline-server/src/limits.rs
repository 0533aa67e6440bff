//! Every limit of the server in one place.

use std::time::Duration;

/// Most bytes of a request's body (1 MiB).
pub const BODY_BYTES: usize = 1 << 20;

/// How often a silent event stream sends a comment, so that nobody in between gives it up.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Least time between two messages that lists have changed.
pub const CHANGES_GAP: Duration = Duration::from_millis(200);

/// What event streams ask clients to wait before they connect again.
pub const RETRY: Duration = Duration::from_secs(1);

/// How often an event stream looks whether an open turn still has a writer.
pub const ABANDONED_CHECK: Duration = Duration::from_secs(1);

/// Lines in a page of a raw log when the caller names no number.
pub const LOG_LIMIT: usize = 200;

/// Most lines in a page of a raw log.
pub const MAX_LOG_LIMIT: usize = 1000;

/// Highest sampling temperature that may be asked for.
pub const MAX_TEMPERATURE: f64 = 2.0;

/// Longest name of a model, in bytes.
pub const MAX_MODEL_BYTES: usize = 200;

/// Longest comment to an approval, in bytes.
pub const MAX_COMMENT_BYTES: usize = 4096;

/// Longest token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 512;

/// How long connections get to finish after the runs have ended at shutdown.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
