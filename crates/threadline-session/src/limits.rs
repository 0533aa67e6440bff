//! Every limit of the log format in one place.

/// Largest encoded event line, in bytes (1 MiB). Bigger content belongs in a blob.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Largest number of events in one batch.
pub const MAX_BATCH_EVENTS: usize = 4096;

/// Longest session or run id, in bytes.
pub const MAX_ID_BYTES: usize = 200;

/// Longest event type name, in bytes.
pub const MAX_TYPE_BYTES: usize = 100;

/// Longest idempotency key, in bytes.
pub const MAX_KEY_BYTES: usize = 200;

/// Characters of the first prompt kept in a summary.
pub const FIRST_PROMPT_CHARS: usize = 200;

/// Bytes of live tool output kept per call in the read model; the log keeps all of it.
pub const VIEW_OUTPUT_BYTES: usize = 64 << 10;

/// Steps of the surface's making that are kept before they are folded together.
pub const SURFACE_NODES: usize = 4096;
