//! Every limit of this crate in one place.

use std::time::Duration;

/// Longest line that a client may send, in bytes. Room for the images that one prompt may carry.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Bytes that wait for the client to read them. A longer line waits alone.
pub const OUTGOING_BYTES: usize = 1 << 20;

/// Lines that wait for the client to read them.
pub const OUTGOING_LINES: usize = 64;

/// Requests of the client that are worked on at the same time, prompts included. No further line is
/// read as long as there are so many.
pub const REQUESTS_AT_ONCE: usize = 64;

/// Sessions that one connection holds open.
pub const OPEN_SESSIONS: usize = 256;

/// Prompts of one session that wait for their answer.
pub const PROMPTS_AT_ONCE: usize = 32;

/// Bytes of a tool's result that are shown; of a longer one the middle is left out.
pub const RESULT_BYTES: usize = 16 << 10;

/// Bytes of a running tool's output that are shown: its end.
pub const LIVE_OUTPUT_BYTES: usize = 8 << 10;

/// How often the output of a running tool is shown anew.
pub const LIVE_OUTPUT_EVERY: Duration = Duration::from_millis(200);

/// Bytes of a call's arguments that are shown as they are.
pub const RAW_INPUT_BYTES: usize = 32 << 10;

/// Bytes of each side of a difference; a bigger one is told by its size.
pub const DIFF_BYTES: usize = 64 << 10;

/// Files that one call is said to touch.
pub const LOCATIONS: usize = 50;

/// Characters of a tool call's title.
pub const TITLE_CHARS: usize = 160;

/// Characters of a session's title that is made from its first prompt.
pub const SESSION_TITLE_CHARS: usize = 80;

/// Sessions in one page of a list.
pub const LIST_PAGE: usize = 50;

/// MCP servers of one session.
pub const MCP_SERVERS: usize = 32;

/// How often a title is set again when somebody else changes the session at the same time.
pub const TITLE_TRIES: usize = 5;

/// A run lets go of its session a moment after its end is in the log. So long is waited for it.
pub const BUSY_WAIT: Duration = Duration::from_secs(5);

/// How long a client may take to give the text of a file.
pub const FILE_READ_TIME: Duration = Duration::from_secs(10);

/// How long it may take to write one: it may format it, or ask its person.
pub const FILE_WRITE_TIME: Duration = Duration::from_secs(30);

/// How long it may take to start a command in a terminal.
pub const TERMINAL_START_TIME: Duration = Duration::from_secs(30);

/// How long it may take to answer anything else about a terminal, but for the command's end.
pub const TERMINAL_ANSWER_TIME: Duration = Duration::from_secs(5);

/// How long a terminal is kept for its call to be shown with it.
pub const TERMINAL_SHOW_TIME: Duration = Duration::from_secs(5);

/// How long a client that does not read is waited for at the end.
pub const LAST_WORDS: Duration = Duration::from_secs(3);
