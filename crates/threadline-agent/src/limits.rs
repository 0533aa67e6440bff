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
/// Most replacements that one call of `edit` makes.
pub const EDIT_PLACES: usize = 100;
/// Most bytes of a patch.
pub const PATCH_BYTES: usize = 2 * 1024 * 1024;
/// Most files that one patch changes.
pub const PATCH_FILES: usize = 200;
/// Most hunks of one patch; each is looked for in the whole file.
pub const PATCH_HUNKS: usize = 1_000;
/// Most lines of a hunk that are compared to say where it nearly fits.
pub const PATCH_NEAR_LINES: usize = 200;
/// Most bytes of all texts, old and new, that one patch holds in memory.
pub const PATCH_HELD_BYTES: usize = 64 * 1024 * 1024;
/// Most places that are compared, for each of a few lines, to say where a hunk nearly fits.
pub const PATCH_NEAR_PLACES: usize = 200;
/// Most bytes of the diff in a result of `edit` and `apply_patch`.
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

/// Most bytes of what a client says that a result repeats of why it did not do what it was asked.
pub const CLIENT_REASON_BYTES: usize = 120;
/// Texts of a client's files that a run remembers to have seen.
pub const SEEN_TEXTS: usize = 4_096;
/// Bytes of a command's output that a client's terminal keeps for the result: the last ones.
pub const TERMINAL_BYTES: usize = 4 * 1024 * 1024;
/// How often a client is asked what a command in its terminal has printed, until that is more than
/// the log takes of live output.
pub const TERMINAL_LOOK: Duration = Duration::from_secs(1);

/// Background jobs of one run that run or whose end nobody has looked at.
pub const JOBS: usize = 8;
/// Time that a background job gets when it names none.
pub const JOB_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60 * 60);
/// Most time that a background job can ask for. The end of its run ends it in any case.
pub const JOB_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most time that one look at a job waits for its end.
pub const JOB_WAIT_MAX: Duration = Duration::from_secs(120);
/// Most bytes of the newest output of a running job that are kept for the next look at it.
pub const JOB_FRESH_BYTES: usize = 16 * 1024;
/// Most bytes of a command that a note about a job repeats.
pub const JOB_COMMAND_BYTES: usize = 200;

/// Subagents above a session from which on it starts none itself.
pub const SUBAGENT_DEPTH: usize = 2;
/// Subagents of one run that run at the same time; others wait.
pub const SUBAGENTS: usize = 4;
/// Most tries to make the private folder of a command.
pub const PRIVATE_TRIES: usize = 8;

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

/// Times in one step that a request is sent again without what the provider refused of it.
pub const MAX_REJECTIONS: u32 = 8;

/// Most characters of a conversation that a model sees to make a title for it.
pub const TITLE_INPUT_CHARS: usize = 4_000;
/// Most tokens that it may answer with, where the provider takes such a number.
pub const TITLE_TOKENS: u32 = 1_024;
/// Most bytes that it may answer with, reasoning included, before it is given up.
pub const TITLE_OUTPUT_BYTES: usize = 16 * 1024;
/// Longest time that it has.
pub const TITLE_TIME: Duration = Duration::from_secs(60);
/// Longest title that is made, in characters.
pub const TITLE_CHARS: usize = 80;

/// Most bytes of each field of a span that says what was said, when that is wanted.
pub const SPAN_CONTENT_BYTES: usize = 16 * 1024;
/// Upper bounds of what is counted of how long a durable append took, in milliseconds.
pub const SYNC_BUCKETS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

/// How often the same calls with the same outcome may come one after the other.
pub const REPEATED_STEPS: u32 = 6;
/// Longest circle of steps that is noticed.
pub const REPEATED_PERIOD: usize = 3;

/// Most words of a command prefix that is granted.
pub const PREFIX_WORDS: usize = 16;
/// Most bytes of all its words.
pub const PREFIX_BYTES: usize = 1024;
/// Most grants of a session.
pub const MAX_GRANTS: usize = 100;
/// Most characters of the model's reason for leaving the sandbox that a question repeats.
pub const OUTSIDE_REASON_CHARS: usize = 500;

/// Most messages that wait in a session's inbox.
pub const MAX_QUEUED: usize = 100;
/// Most bytes of one of them.
pub const MAX_QUEUED_BYTES: usize = 256 * 1024;

/// Most bytes of one AGENTS.md that the model is told.
pub const INSTRUCTIONS_BYTES: u64 = 32 * 1024;
/// Most bytes read of a file that says where a repository stands.
pub const GIT_FILE_BYTES: u64 = 1024 * 1024;
/// Folders, from the working directory up, that are looked at for a repository and for rules.
pub const CONTEXT_FOLDERS: usize = 32;

/// Most images that come with one task.
pub const MAX_IMAGES: usize = 20;

/// Interrupted sessions that are looked at for questions which outlived their process.
pub const MAX_OFFERS: usize = 200;
