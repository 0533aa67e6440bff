//! Every limit of the server in one place.

use std::time::Duration;

/// Most bytes of a request's body (1 MiB).
pub const BODY_BYTES: usize = 1 << 20;

/// Most bytes of a body that may hold images (32 MiB). What is not their data is still held to
/// [`BODY_BYTES`].
pub const IMAGE_BODY_BYTES: usize = 32 << 20;

/// How often a silent event stream sends a comment, so that nobody in between gives it up.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Least time between two messages that lists have changed.
pub const CHANGES_GAP: Duration = Duration::from_millis(200);

/// Time between two words of a check about how far it is.
pub const CHECK_GAP: Duration = Duration::from_millis(200);

/// What event streams ask clients to wait before they connect again.
pub const RETRY: Duration = Duration::from_secs(1);

/// How often an event stream looks whether an open turn still has a writer.
pub const ABANDONED_CHECK: Duration = Duration::from_secs(1);

/// Items in a page of the read model when the caller names no number.
pub const TURN_ITEMS: usize = 100;

/// Most items in a page of the read model.
pub const MAX_TURN_ITEMS: usize = 500;

/// Most findings of a check that are told one by one.
pub const MAX_FINDINGS: usize = 100;

/// Most ancestors in a lineage.
pub const MAX_ANCESTORS: usize = 32;

/// Siblings, and children, in a page of a lineage.
pub const RELATIVES: usize = 50;

/// Entries in a page of an audit when the caller names no number.
pub const AUDIT_LIMIT: usize = 100;

/// Most entries in a page of an audit.
pub const MAX_AUDIT_LIMIT: usize = 500;

/// Events that are read for one page of an audit, also when they hold few entries.
pub const AUDIT_EVENTS: u64 = 50_000;

/// Requests in a page of their list when the caller names no number.
pub const REQUEST_LIMIT: usize = 200;

/// Most requests in a page of their list.
pub const MAX_REQUEST_LIMIT: usize = 500;

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
