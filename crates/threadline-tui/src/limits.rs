//! Limits of the terminal interface.

/// Rows of the picker that are asked for at once.
pub const PAGE_ROWS: usize = 100;

/// Rows of the picker that are held. Who wants to go further searches.
pub const MAX_ROWS: usize = 5_000;

/// Rows before the last loaded one at which the next page is asked for.
pub const ROWS_AHEAD: usize = 30;

/// Items that are shown when a session is opened, and put in front at once when scrolling back.
pub const PAGE_ITEMS: usize = 80;

/// Items that are held of earlier turns; past them, scrolling back lets the newest of them go.
pub const MAX_EARLIER_ITEMS: usize = 4_000;

/// Items that the picker previews.
pub const PREVIEW_ITEMS: usize = 12;

/// Items whose turns are offered to fork from or to go back to.
pub const CHOICE_ITEMS: usize = 400;

/// How long a deletion can be undone, in milliseconds.
pub const UNDO_MS: u64 = 8_000;

/// How long the selection of the picker rests before its preview is read, in milliseconds.
pub const PREVIEW_REST_MS: u64 = 80;

/// Lines of a tool's output that are shown folded: the first and the last ones.
pub const FOLDED_HEAD: usize = 4;
/// See [`FOLDED_HEAD`].
pub const FOLDED_TAIL: usize = 8;

/// Lines of an item that are shown at most, unfolded.
pub const MAX_ITEM_LINES: usize = 2_000;

/// Bytes of one text that are laid out at most.
pub const MAX_TEXT_BYTES: usize = 128 << 10;

/// Bytes of a message that can be typed.
pub const MAX_INPUT_BYTES: usize = 1 << 20;

/// Messages of the input history.
pub const MAX_HISTORY: usize = 200;

/// Rows of the input box at most.
pub const INPUT_ROWS: u16 = 8;

/// Rows of waiting messages that are shown above the input.
pub const QUEUE_ROWS: usize = 3;

/// Messages between the engine and the screen that may wait.
pub const MESSAGES: usize = 512;

/// Milliseconds between two drawings while much happens.
pub const FRAME_MS: u64 = 33;

/// Milliseconds between two ticks of what changes with time.
pub const TICK_MS: u64 = 250;
