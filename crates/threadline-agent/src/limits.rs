//! Every bound of the tools, in one place.

use std::time::Duration;

/// Most bytes of text in one tool result, notes included. What is longer is kept as a blob.
pub const RESULT_BYTES: usize = 32 * 1024;
/// Most bytes of an output that are kept at all, which is what a blob may have.
pub const OUTPUT_BYTES: usize = threadline_store::limits::MAX_BLOB_BYTES;
/// Bytes of the pieces in which the end of a long output is held.
pub const OUTPUT_PIECE_BYTES: usize = 64 * 1024;
/// Room kept inside [`RESULT_BYTES`] for the note that says what was left out.
pub const NOTE_BYTES: usize = 512;
/// Most bytes of the arguments of one tool call.
pub const ARGUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes of one path argument.
pub const PATH_BYTES: usize = 4096;
/// Most symbolic links followed while one path is resolved.
pub const SYMLINKS: usize = 40;

/// Most steps of the list that `todo` keeps.
pub const TODO_STEPS: usize = 50;
/// Most bytes of one step of that list.
pub const TODO_STEP_BYTES: usize = 500;

/// Most lines that `read` shows at once, and its default.
pub const READ_LINES: u64 = 2_000;
/// Bytes at the start of a file that are looked at to tell text from binary.
pub const SNIFF_BYTES: usize = 8 * 1024;

/// Most entries that `ls` shows.
pub const LS_ENTRIES: usize = 1_000;
/// Most paths that `find` shows, and its default.
pub const FIND_PATHS: u64 = 1_000;
/// Most matching lines that `grep` shows, and its default.
pub const GREP_LINES: u64 = 500;
/// Most bytes of one matching line that `grep` shows.
pub const GREP_LINE_BYTES: usize = 500;
/// Most memory that searching one file may take; a file with a longer line is passed over.
pub const GREP_HEAP_BYTES: usize = 16 * 1024 * 1024;
/// Most bytes a compiled pattern of `grep` or `find` may take.
pub const PATTERN_COMPILED_BYTES: usize = 4 * 1024 * 1024;
/// Most bytes of a pattern.
pub const PATTERN_BYTES: usize = 4 * 1024;
/// Most files and folders that one `find`, `grep` or `ls` looks at.
pub const WALK_ENTRIES: usize = 500_000;

/// Most bytes that `write` writes and `edit` reads or writes.
pub const FILE_BYTES: usize = 8 * 1024 * 1024;
/// Most bytes of the diff in a result of `edit`.
pub const DIFF_BYTES: usize = 16 * 1024;
/// Longest time spent on finding a small diff; after it the diff is correct but coarser.
pub const DIFF_TIME: Duration = Duration::from_millis(500);
/// Most line numbers that an error of `edit` names.
pub const NEAR_LINES: usize = 10;

/// Time that a shell command gets when it names none.
pub const SHELL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
/// Most time that a shell command can ask for.
pub const SHELL_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Most bytes of a shell command; the kernel takes 128 KiB for one argument.
pub const COMMAND_BYTES: usize = 64 * 1024;
/// Most bytes read from a pipe at once, which is also the longest piece of live output.
pub const PIPE_BYTES: usize = 8 * 1024;
/// Most bytes of live output that one call forwards; the result has all of it.
pub const LIVE_BYTES: usize = 1024 * 1024;
/// Time that the pipes get to run dry after the last process of a command is gone.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Most steps of a turn when the caller names no number.
pub const MAX_STEPS: u32 = 100;
/// How long a question to a person waits before it counts as refused.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time that streamed pieces are gathered before they are logged.
pub const CHUNK_TIME: Duration = Duration::from_millis(40);
/// Bytes of streamed pieces that are logged at once, however little time has passed.
pub const CHUNK_BYTES: usize = 1024;
/// Longest time that live output of a tool is gathered before it is logged.
pub const OUTPUT_TIME: Duration = Duration::from_millis(100);
/// Most bytes of live output of one call in the log, a note that there is more not counted.
pub const OUTPUT_LOG_BYTES: usize = 32 * 1024;
/// Read-only calls of one step that run at the same time.
pub const PARALLEL_CALLS: usize = 8;

/// Tokens that a model takes at once when nothing else is configured.
pub const CONTEXT_TOKENS: u64 = 128_000;
/// Tokens per byte of a request until a provider has counted one.
pub const TOKENS_PER_BYTE: f64 = 0.28;
/// Share of the limit from which on a request is taken for too long: the answer needs room.
pub const COMPACT_AT: f64 = 0.8;
/// Shares of the limit that the newest part of the history may keep, one try after the other, and
/// whether its newest item stays whatever its size.
pub const COMPACT_TAILS: [(f64, bool); 3] = [(0.3, true), (0.12, true), (0.0, false)];
/// Share of the limit that a summary may take.
pub const SUMMARY_SHARE: f64 = 0.1;
/// Share of the limit that one request for a summary shows of the history.
pub const SUMMARY_PIECE: f64 = 0.5;
/// Times that a summary is asked for, with smaller pieces each time.
pub const SUMMARY_TRIES: u32 = 3;
