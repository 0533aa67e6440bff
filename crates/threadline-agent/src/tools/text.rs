//! Text for results: decoding, making harmless, and cutting without splitting a character.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

use crate::limits::OUTPUT_PIECE_BYTES;

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

/// Keeps a text of any length in bounded memory: all of it up to a bound, and beyond that its start
/// and its end.
#[derive(Debug)]
pub(crate) struct HeadTail {
    /// The first bytes, up to `half`.
    head: String,
    /// What follows them, in pieces of about `piece` bytes; of a longer text its end.
    tail: VecDeque<String>,
    tail_bytes: usize,
    total: u64,
    half: usize,
    piece: usize,
    most: usize,
}

impl HeadTail {
    /// Makes one whose text never exceeds `most` bytes, the note of `note` bytes included.
    pub(crate) fn new(most: usize, note: usize) -> Self {
        let half = most.saturating_sub(note) / 2;
        Self {
            head: String::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            total: 0,
            half,
            piece: (half / 16).clamp(1, OUTPUT_PIECE_BYTES),
            most,
        }
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, text: &str) {
        self.total = self.total.saturating_add(text.len() as u64);
        let mut rest = text;
        if self.tail.is_empty() {
            let start = head(rest, self.half - self.head.len().min(self.half));
            self.head.push_str(start);
            rest = rest.get(start.len()..).unwrap_or_default();
        }
        // Not as they come: a command can print a byte at a time.
        while !rest.is_empty() {
            let room = match self.tail.back() {
                Some(last) => self.piece.saturating_sub(last.len()),
                None => 0,
            };
            let mut next = head(rest, room);
            if next.is_empty() {
                self.tail.push_back(String::new());
                next = head(rest, self.piece.max(char::MAX.len_utf8()));
            }
            if let Some(last) = self.tail.back_mut() {
                last.push_str(next);
            }
            self.tail_bytes += next.len();
            rest = rest.get(next.len()..).unwrap_or_default();
            self.forget();
        }
    }

    /// Lets go what is neither needed for the whole text nor for its end.
    fn forget(&mut self) {
        while self.head.len() + self.tail_bytes > self.most
            && let Some(first) = self.tail.front()
            && self.tail_bytes - first.len() >= self.half
        {
            self.tail_bytes -= first.len();
            self.tail.pop_front();
        }
    }

    /// Returns everything when it fits, else the start, a note and the end.
    pub(crate) fn finish(self) -> String {
        let mut out = self.head;
        if self.total <= self.most as u64 {
            // Piece by piece, so that a long text is not held twice.
            for piece in self.tail {
                out.push_str(&piece);
            }
            return out;
        }
        let late: String = self.tail.into_iter().collect();
        let end = tail(&late, self.half);
        let cut = self.total - (out.len() + end.len()) as u64;
        let _ = write!(
            out,
            "\n[... {cut} of {} bytes of output left out here ...]\n",
            self.total
        );
        out.push_str(end);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_never_splits_a_character() {
        let text = "a\u{e4}\u{1f600}z";
        for most in 0..=text.len() + 1 {
            let (start, end) = (head(text, most), tail(text, most));
            assert!(start.len() <= most && text.starts_with(start));
            assert!(end.len() <= most && text.ends_with(end));
        }
        assert_eq!(head(text, 100), text);
        assert_eq!(tail(text, 100), text);
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "abc...");
    }

    #[test]
    fn decoding_is_the_same_in_any_pieces() {
        let bytes: Vec<u8> = [
            "a\u{e4}\u{20ac}\u{1f600}".as_bytes(),
            &[0xff, 0xe2, 0x82, b'x', 0xf0, 0x9f, 0x98],
            "z".as_bytes(),
            &[0xf0, 0x9f],
        ]
        .concat();
        let whole = String::from_utf8_lossy(&bytes);
        for size in 1..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut text: String = bytes
                .chunks(size)
                .map(|piece| decoder.push(piece))
                .collect();
            text.push_str(&decoder.finish());
            assert_eq!(text, whole, "in pieces of {size}");
            assert_eq!(decoder.finish(), "");
        }
    }

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(harmless("a\tb\r\n"), "a\tb\r\n");
        assert_eq!(harmless("\0\u{1b}[1m\u{9b}"), "\\x00\\x1b[1m\\x9b");
        assert_eq!(printable("a\nb"), "a\\x0ab");
    }

    #[test]
    fn head_and_tail_are_kept_within_the_bound() {
        for size in [1, 7, 64, 1000] {
            for total in [0, 1, 199, 200, 201, 400, 1000] {
                let text: String = ('a'..='z').cycle().take(total).collect();
                let mut kept = HeadTail::new(200, 80);
                for piece in text.as_bytes().chunks(size) {
                    kept.push(std::str::from_utf8(piece).unwrap());
                }
                let found = kept.finish();
                if total <= 200 {
                    assert_eq!(found, text);
                    continue;
                }
                assert!(found.len() <= 200, "{found}");
                assert!(found.starts_with(&text[..60]) && found.ends_with(&text[total - 60..]));
                let note = format!("[... {} of {total} bytes of output left out", total - 120);
                assert!(found.contains(&note), "{found}");
            }
        }
        let mut kept = HeadTail::new(1 << 20, 80);
        for _ in 0..3 << 20 {
            kept.push("x");
        }
        let held: usize = kept.tail.iter().map(String::capacity).sum();
        assert!(held <= 2 << 20 && kept.tail.len() <= 32, "{held}");
        let mut kept = HeadTail::new(100, 80);
        kept.push(&"\u{1f600}".repeat(40));
        let found = kept.finish();
        assert!(
            found.starts_with("\u{1f600}\u{1f600}\n[... 144 of 160"),
            "{found}"
        );
    }
}
