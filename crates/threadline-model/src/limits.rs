//! Every limit and default of the model layer in one place.

use std::time::Duration;

/// Longest line of an event stream, in bytes. A whole tool call may arrive in one line.
pub const MAX_LINE_BYTES: usize = 8 << 20;

/// Largest whole event stream of one answer, in bytes.
pub const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// Bytes of an error answer that are read; the rest is not needed to say what is wrong.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// Characters of a provider's error message that are kept.
pub const MAX_ERROR_CHARS: usize = 2000;

/// Shortest API key that is looked for in error messages, in bytes.
pub const MIN_SCRUBBED_BYTES: usize = 8;

/// Most tool calls in one answer.
pub const MAX_TOOL_CALLS: usize = 256;

/// Most items or content blocks in one answer, whatever their kind.
pub const MAX_BLOCKS: usize = 1024;

/// Most bytes of an answer as the log keeps it, for what only its issuer can read to be kept with
/// it. One event holds 1 MiB, with a little more in it than the answer.
pub const MAX_KEPT_BYTES: usize = threadline_session::limits::MAX_EVENT_BYTES - (16 << 10);

/// Longest tool call id that Chat Completions accepts, in characters.
pub const MAX_CALL_ID_CHARS: usize = 40;

/// Longest tool call id that the Responses and Messages APIs accept, in characters.
pub const MAX_LONG_CALL_ID_CHARS: usize = 64;

/// Largest image that every provider accepts, in bytes of its base64 text. Anthropic counts these
/// and refuses more than 5 MiB; the others accept more.
pub const MAX_IMAGE_BASE64_BYTES: usize = 5 << 20;

/// The same in bytes of the image itself (3.75 MiB).
pub const MAX_IMAGE_BYTES: usize = MAX_IMAGE_BASE64_BYTES / 4 * 3;

/// Most tokens of an answer when nothing is configured and the dialect must name a number. Every
/// model that Anthropic serves today can write as many.
pub const MAX_OUTPUT_TOKENS: u32 = 32_000;

/// Smallest thinking budget that the Messages API accepts, in tokens.
pub const MIN_THINKING_TOKENS: u32 = 1024;

/// Tokens that stay for the answer itself beside the thinking budget.
pub const MIN_ANSWER_TOKENS: u32 = 4096;

/// Longest path of a rejected item that is kept, in characters.
pub const MAX_PATH_CHARS: usize = 200;

/// Longest tool name that every provider accepts, in characters.
pub const MAX_TOOL_NAME_CHARS: usize = 64;

/// Attempts before a call fails for good.
pub const MAX_ATTEMPTS: u32 = 5;

/// Upper bound of the first wait before a retry; it doubles with every attempt.
pub const BACKOFF_BASE: Duration = Duration::from_millis(500);

/// Upper bound of any wait that this side chooses.
pub const BACKOFF_CAP: Duration = Duration::from_secs(30);

/// Longest wait that a provider may ask for; beyond it the call fails and says so.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Time to open a connection, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Time from the sent request to the answer's headers. A local server may load a model first.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest silence within a stream. Keep-alive comments count as life.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest wait for usage and `[DONE]` once the model has said that it is finished.
pub const FINISH_GRACE: Duration = Duration::from_secs(5);

/// Longest wait for the end of a complete answer's body, so that its connection can be used again.
pub const DRAIN_GRACE: Duration = Duration::from_millis(20);

/// Time that the local Ollama has to answer when nothing is configured.
pub const DETECT_TIMEOUT: Duration = Duration::from_millis(300);

/// Largest list of local models that is read, in bytes.
pub const MAX_DETECT_BYTES: usize = 1 << 20;

/// Longest pause that a `!slow` line of the offline demonstration may ask for.
pub const MAX_SLOW: Duration = Duration::from_secs(60);

/// Lines of each tool result that the offline demonstration repeats.
pub const OFFLINE_RESULT_LINES: usize = 5;

/// Characters of a line or quotation that the offline demonstration repeats.
pub const OFFLINE_QUOTE_CHARS: usize = 200;
