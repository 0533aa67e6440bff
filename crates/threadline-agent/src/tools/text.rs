//! Text for results: decoding, making harmless, and cutting without splitting a character.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the longest start of `text` that has at most `most` bytes.
pub(crate) fn head(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Returns the longest end of `text` that has at most `most` bytes.
pub(crate) fn tail(text: &str, most: usize) -> &str {
    let from = text.ceil_char_boundary(text.len().saturating_sub(most));
    text.get(from..).unwrap_or("")
}

/// Returns `text` cut to `most` bytes, marked when something was cut.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        text.to_owned()
    } else {
        format!("{}...", head(text, most))
    }
}

/// Returns text in which control characters other than tab, line feed and carriage return are
/// written out, so that output cannot drive a terminal and every store can hold it.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    escape(text, |c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
}

/// Returns text that stays on one line whatever it holds.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape(text, char::is_control)
}

fn escape(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) {
            let _ = write!(out, "\\x{:02x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns a path for the model: one line, whatever is in the name.
pub(crate) fn show(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Turns bytes that arrive in pieces into text; a character cut by a piece waits for its rest.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    /// Returns the text that is complete with this piece; invalid bytes become U+FFFD.
    pub(crate) fn push(&mut self, piece: &[u8]) -> String {
        self.pending.extend_from_slice(piece);
        let mut out = String::with_capacity(self.pending.len());
        let mut used = 0;
        for chunk in self.pending.utf8_chunks() {
            out.push_str(chunk.valid());
            used += chunk.valid().len();
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let at_end = used + invalid.len() == self.pending.len();
            let may_go_on = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if at_end && may_go_on {
                break;
            }
            out.push('\u{fffd}');
            used += invalid.len();
        }
        self.pending.drain(..used);
        out
    }

    /// Returns what is left when nothing more comes.
    pub(crate) fn finish(&mut self) -> String {
        if std::mem::take(&mut self.pending).is_empty() {
            String::new()
        } else {
            '\u{fffd}'.to_string()
        }
    }
}

/// Keeps the start and the end of a text of any length in bounded memory.
#[derive(Debug)]
pub(crate) struct HeadTail {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    total: u64,
    half: usize,
    most: usize,
}

impl HeadTail {
    /// Makes one whose text never exceeds `most` bytes, the note of `note` bytes included.
    pub(crate) fn new(most: usize, note: usize) -> Self {
        Self {
            head: String::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            total: 0,
            half: most.saturating_sub(note) / 2,
            most,
        }
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &str) {
        self.total = self.total.saturating_add(piece.len() as u64);
        let mut rest = piece;
        if self.tail.is_empty() {
            let start = head(rest, self.most - self.head.len().min(self.most));
            self.head.push_str(start);
            rest = rest.get(start.len()..).unwrap_or("");
        }
        if rest.is_empty() {
            return;
        }
        self.tail.push_back(rest.to_owned());
        self.tail_bytes += rest.len();
        while let Some(first) = self.tail.front() {
            // The front goes only when the rest still fills the tail's half.
            if self.tail_bytes - first.len() < self.half {
                break;
            }
            self.tail_bytes -= first.len();
            self.tail.pop_front();
        }
    }

    /// Returns the bytes seen.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns everything when it fits, else the start, a note and the end.
    pub(crate) fn finish(self) -> String {
        if self.total == self.head.len() as u64 {
            return self.head;
        }
        // Until here the head holds up to the full allowance, so its end may belong to the tail.
        let late: String = self.tail.into_iter().collect();
        let all = self.head + &late;
        let start = head(&all, self.half);
        let end = tail(&all, self.half);
        let cut = self.total - (start.len() + end.len()) as u64;
        let mut out = String::with_capacity(self.most);
        out.push_str(start);
        let _ = write!(
            out,
            "\n[... {cut} of {} bytes of output left out here ...]\n",
            self.total
        );
        out.push_str(end);
        out
    }
}
