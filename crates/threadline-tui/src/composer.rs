//! The input: several lines, a cursor, a history.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use crate::{
    limits::{MAX_HISTORY, MAX_INPUT_BYTES},
    text,
};

/// Text that is being typed.
#[derive(Debug, Clone, Default)]
pub struct Composer {
    text: String,
    /// Byte position, between two graphemes.
    cursor: usize,
    history: Vec<String>,
    /// The place in the history that is shown, and what was typed before.
    recalled: Option<(usize, String)>,
    /// The waiting message whose words are being changed.
    pub editing: Option<String>,
}

impl Composer {
    /// Returns what is typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether nothing is typed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Replaces what is typed; the cursor goes to its end.
    pub fn set(&mut self, text: impl Into<String>) {
        self.text = text.into();
        self.cursor = self.text.len();
        self.recalled = None;
    }

    /// Takes what is typed out, and notes it in the history.
    pub fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.cursor = 0;
        self.recalled = None;
        self.remember(&text);
        text
    }

    /// Adds a message to the history.
    pub fn remember(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() || self.history.last().is_some_and(|last| last == text) {
            return;
        }
        self.history.push(text.to_owned());
        let over = self.history.len().saturating_sub(MAX_HISTORY);
        self.history.drain(..over);
    }

    /// Inserts text at the cursor, as far as there is room. Line ends become line feeds; other
    /// control characters are left out.
    pub fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text = text::harmless(&text);
        let room = MAX_INPUT_BYTES.saturating_sub(self.text.len());
        let text = text::head(&text, room);
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // A mark that joined the character before it moves the boundary.
        if !self.is_boundary(self.cursor) {
            self.cursor = self.next(self.cursor);
        }
    }

    fn is_boundary(&self, at: usize) -> bool {
        GraphemeCursor::new(at, self.text.len(), true)
            .is_boundary(&self.text, 0)
            .unwrap_or(true)
    }

    fn previous(&self, at: usize) -> usize {
        let before = self.text[..at].grapheme_indices(true).next_back();
        before.map_or(0, |(start, _)| start)
    }

    fn next(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        let next = cursor.next_boundary(&self.text, 0).ok().flatten();
        next.unwrap_or(self.text.len())
    }

    /// Moves by one character.
    pub fn left(&mut self) {
        self.cursor = self.previous(self.cursor);
    }

    /// Moves by one character.
    pub fn right(&mut self) {
        self.cursor = self.next(self.cursor);
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let rest = &self.text[self.cursor..];
        rest.find('\n')
            .map_or(self.text.len(), |at| self.cursor + at)
    }

    /// Moves to the beginning of the line.
    pub fn home(&mut self) {
        self.cursor = self.line_start();
    }

    /// Moves to the end of the line.
    pub fn end(&mut self) {
        self.cursor = self.line_end();
    }

    /// Moves to the beginning of the word.
    pub fn word_left(&mut self) {
        let before = &self.text[..self.cursor];
        let trimmed = before.trim_end();
        let start = trimmed.rfind(char::is_whitespace);
        self.cursor = start.map_or(0, |at| {
            at + trimmed[at..].chars().next().map_or(1, char::len_utf8)
        });
    }

    /// Moves behind the word.
    pub fn word_right(&mut self) {
        let rest = &self.text[self.cursor..];
        let word = rest.len() - rest.trim_start().len();
        let end = rest[word..].find(char::is_whitespace);
        self.cursor = end.map_or(self.text.len(), |at| self.cursor + word + at);
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    /// Removes the character before the cursor.
    pub fn backspace(&mut self) {
        self.remove(self.previous(self.cursor), self.cursor);
    }

    /// Removes the character behind the cursor.
    pub fn delete(&mut self) {
        self.remove(self.cursor, self.next(self.cursor));
    }

    /// Removes the word before the cursor.
    pub fn delete_word(&mut self) {
        let end = self.cursor;
        self.word_left();
        self.remove(self.cursor, end);
    }

    /// Removes the line up to the cursor.
    pub fn delete_to_start(&mut self) {
        self.remove(self.line_start(), self.cursor);
    }

    /// Removes the line from the cursor on.
    pub fn delete_to_end(&mut self) {
        self.remove(self.cursor, self.line_end());
    }

    /// Moves up a line; on the first one, to the message before in the history.
    pub fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.older();
        }
        let column = text::width(&self.text[start..self.cursor]);
        self.cursor = start - 1;
        self.go_to_column(column);
    }

    /// Moves down a line; on the last one, to the message after in the history.
    pub fn down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.newer();
        }
        let column = text::width(&self.text[self.line_start()..self.cursor]);
        self.cursor = end + 1;
        self.go_to_column(column);
    }

    fn go_to_column(&mut self, column: usize) {
        let start = self.line_start();
        let end = self.line_end();
        let mut at = start;
        for (offset, grapheme) in self.text[start..end].grapheme_indices(true) {
            if text::width(&self.text[start..start + offset]) >= column {
                break;
            }
            at = start + offset + grapheme.len();
        }
        self.cursor = at;
    }

    fn older(&mut self) {
        let at = self
            .recalled
            .as_ref()
            .map_or(self.history.len(), |(at, _)| *at);
        let Some(at) = at.checked_sub(1) else {
            return;
        };
        let draft = match self.recalled.take() {
            Some((_, draft)) => draft,
            None => self.text.clone(),
        };
        self.set(self.history[at].clone());
        self.recalled = Some((at, draft));
    }

    fn newer(&mut self) {
        let Some((at, draft)) = self.recalled.take() else {
            return;
        };
        match self.history.get(at + 1) {
            Some(text) => {
                let text = text.clone();
                self.set(text);
                self.recalled = Some((at + 1, draft));
            }
            None => self.set(draft),
        }
    }

    /// Returns the lines that fit into so many columns, and where the cursor is among them.
    #[must_use]
    pub fn lay_out(&self, columns: usize) -> (Vec<String>, (usize, usize)) {
        let columns = columns.max(2);
        let mut rows: Vec<String> = vec![String::new()];
        let mut place = (0, 0);
        let mut used = 0;
        for (at, grapheme) in self.text.grapheme_indices(true) {
            let wide = text::width(grapheme);
            if grapheme != "\n" && used + wide > columns {
                rows.push(String::new());
                used = 0;
            }
            if at == self.cursor {
                place = (rows.len() - 1, used);
            }
            if grapheme == "\n" {
                rows.push(String::new());
                used = 0;
                continue;
            }
            if let Some(row) = rows.last_mut() {
                // A tab is shown as one space: what is sent is the tab.
                row.push_str(if grapheme == "\t" { " " } else { grapheme });
            }
            used += wide.max(usize::from(grapheme == "\t"));
        }
        if self.cursor == self.text.len() {
            if used >= columns {
                rows.push(String::new());
                used = 0;
            }
            place = (rows.len() - 1, used);
        }
        (rows, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Composer {
        let mut composer = Composer::default();
        composer.insert(text);
        composer
    }

    #[test]
    fn the_cursor_moves_and_removes_by_what_people_see_as_one_character() {
        let mut composer = typed("a👩‍👩‍👧e\u{301}");
        composer.backspace();
        assert_eq!(composer.text(), "a👩‍👩‍👧");
        composer.left();
        composer.delete();
        assert_eq!(composer.text(), "a");
        composer.delete();
        composer.backspace();
        composer.backspace();
        assert!(composer.is_empty());
    }

    #[test]
    fn up_and_down_stay_in_the_column_and_leave_through_the_history() {
        let mut composer = typed("");
        composer.remember("first");
        composer.remember("second");
        composer.insert("draft\nlonger line");
        composer.up();
        composer.insert("|");
        assert_eq!(composer.text(), "draft|\nlonger line");
        composer.up();
        assert_eq!(composer.text(), "second");
        composer.up();
        composer.up();
        assert_eq!(composer.text(), "first");
        composer.down();
        composer.down();
        assert_eq!(composer.text(), "draft|\nlonger line");
    }

    #[test]
    fn pasted_text_keeps_its_lines_and_loses_its_escapes() {
        let composer = typed("a\r\nb\rc\x1b[31m\u{202e}d");
        assert_eq!(composer.text(), "a\nb\nc[31md");
    }

    #[test]
    fn words_are_removed_whole() {
        let mut composer = typed("one two  ");
        composer.delete_word();
        assert_eq!(composer.text(), "one ");
        composer.delete_word();
        composer.delete_word();
        assert!(composer.is_empty());
    }

    #[test]
    fn long_lines_wrap_and_the_cursor_is_where_the_next_character_comes() {
        let composer = typed("日本語");
        let (rows, place) = composer.lay_out(4);
        assert_eq!(rows, ["日本", "語"]);
        assert_eq!(place, (1, 2));
        let (rows, place) = typed("abcd").lay_out(4);
        assert_eq!(rows, ["abcd", ""]);
        assert_eq!(place, (1, 0));
    }

    #[test]
    fn a_message_has_a_limit() {
        let mut composer = typed(&"x".repeat(MAX_INPUT_BYTES));
        composer.insert("y");
        assert_eq!(composer.text().len(), MAX_INPUT_BYTES);
        let _ = composer.take();
        composer.insert("y");
        assert_eq!(composer.text(), "y");
    }
}
