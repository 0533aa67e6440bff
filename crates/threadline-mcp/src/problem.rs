//! Why a server is not there, in words that the model and the person may read.

use std::fmt;

use crate::limits::REASON_BYTES;

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Why, in one sentence without a full stop. It holds no address, no header and nothing of the
    /// environment, and is the same as long as the cause is.
    pub reason: String,
    /// What the server said last for people, if it said something.
    pub detail: Option<String>,
    /// Whether its time was over; to try again takes as long.
    pub late: bool,
}

impl Problem {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: short(&reason.into()),
            detail: None,
            late: false,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.detail {
            Some(detail) => write!(f, " (it said: {detail})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

/// Makes one short line of foreign text, without anything that a terminal would obey.
pub(crate) fn short(text: &str) -> String {
    cut(&line(text), REASON_BYTES)
}

/// Makes one line of foreign text.
pub(crate) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || is_active(c)) {
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Bounds a foreign text of several lines, without anything that a terminal would obey.
pub(crate) fn block(text: &str, most: usize) -> String {
    let plain: String = text
        .trim()
        .chars()
        .filter(|c| matches!(c, '\n' | '\t') || !is_active(*c))
        .collect();
    cut(&plain, most)
}

/// Cuts a text that is too long.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut out = text[..text.floor_char_boundary(most)].to_owned();
    out.push_str("...");
    out
}

/// Control characters, and those that change the order in which text is shown.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_becomes_one_short_inert_line() {
        assert_eq!(short("a\n\t b\u{1b}[31mc\u{202e}d"), "a b [31mc d");
        let long = short(&"\u{e9}".repeat(REASON_BYTES));
        assert!(long.len() <= REASON_BYTES + 3 && long.ends_with("..."));
        assert_eq!(short(&"x".repeat(REASON_BYTES)).len(), REASON_BYTES);
    }
}
