//! Text of models, tools and files as a terminal may show it: seen, never obeyed.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Columns between two tab stops.
const TAB: usize = 4;

/// Returns whether a character would change how the text around it is ordered or shown.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{061c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns text that cannot steer a terminal: control characters besides line feeds and tabs are
/// left out, and so are those that reorder or hide text. What a model or a file says is shown,
/// never obeyed.
#[must_use]
pub fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| (!c.is_control() && !is_hidden(*c)) || matches!(c, '\n' | '\t'))
        .collect()
}

/// Returns the words on one line, cut to a number of characters, harmless.
#[must_use]
pub fn line(text: &str, chars: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !c.is_control() && !is_hidden(*c)));
        if words.len() > chars.saturating_mul(4) {
            break;
        }
    }
    if words.chars().count() <= chars {
        return words;
    }
    let mut cut: String = words.chars().take(chars.saturating_sub(3)).collect();
    cut.push_str("...");
    cut
}

/// Returns one line in which everything that a terminal would obey is visible instead. Colours,
/// which tools print all the time, are left out.
#[must_use]
pub fn reveal(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut columns = 0;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = colour_end(rest) {
            rest = &rest[after..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\t' => {
                let room = TAB - columns % TAB;
                shown.extend(std::iter::repeat_n(' ', room));
                columns += room;
                continue;
            }
            '\0'..='\x1f' => shown.push(char::from_u32(0x2400 + c as u32).unwrap_or('?')),
            '\x7f' => shown.push('\u{2421}'),
            c if c.is_control() || is_hidden(c) => {
                shown.push_str(&format!("<U+{:04X}>", c as u32));
            }
            c => shown.push(c),
        }
        columns += 1;
    }
    shown
}

/// Returns where a colour sequence at the beginning of a text ends.
fn colour_end(text: &str) -> Option<usize> {
    let body = text.strip_prefix("\x1b[")?;
    let end = body.find(|c: char| !c.is_ascii_digit() && !matches!(c, ';' | ':'))?;
    body[end..].starts_with('m').then_some(2 + end + 1)
}

/// Returns the columns that a text takes up.
#[must_use]
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns a text of at most so many columns, the cut marked.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let mut kept = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += grapheme.width();
        if used > room {
            break;
        }
        kept.push_str(grapheme);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// Breaks one line into pieces of at most so many columns: at spaces where it can, within words
/// where it must.
#[must_use]
pub fn wrap(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    if line.width() <= columns {
        return vec![line.to_owned()];
    }
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut used, mut space) = (0, None);
    for grapheme in line.graphemes(true) {
        let wide = grapheme.width();
        // What is wider than the screen is shown alone all the same.
        if used + wide > columns && !piece.is_empty() {
            let rest = match space {
                Some(at) if grapheme != " " => piece.split_off(at),
                _ => String::new(),
            };
            pieces.push(piece.trim_end().to_owned());
            piece = rest;
            used = piece.width();
            space = None;
            if grapheme == " " {
                continue;
            }
        }
        piece.push_str(grapheme);
        used += wide;
        if grapheme == " " {
            space = Some(piece.len());
        }
    }
    if !piece.is_empty() || pieces.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Returns the beginning of a text that fits into so many bytes.
#[must_use]
pub fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Returns how long ago a time was, in one short word.
#[must_use]
pub fn age(unix_ms: u64, now_ms: u64) -> String {
    let secs = now_ms.saturating_sub(unix_ms) / 1000;
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{}m", secs / 60),
        3_600..86_400 => format!("{}h", secs / 3_600),
        86_400..31_536_000 => format!("{}d", secs / 86_400),
        _ => format!("{}y", secs / 31_536_000),
    }
}

/// Returns a number with its noun.
#[must_use]
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(reveal("a\x1b[2Jb\x07\x7f"), "a␛[2Jb␇␡");
        assert_eq!(reveal("\x1b]0;title\x07"), "␛]0;title␇");
        assert_eq!(reveal("user\u{202e}cod.exe"), "user<U+202E>cod.exe");
        assert_eq!(reveal("\u{9b}31m"), "<U+009B>31m");
        assert_eq!(reveal("zero\u{200b}width"), "zero<U+200B>width");
    }

    #[test]
    fn colours_of_tools_are_left_out_and_tabs_are_columns() {
        assert_eq!(reveal("\x1b[1;31mred\x1b[0m"), "red");
        assert_eq!(reveal("a\tb"), "a   b");
        assert_eq!(reveal("\x1b[31"), "␛[31");
    }

    #[test]
    fn lines_are_cut_by_characters_and_hold_no_escape() {
        assert_eq!(line("  a\n\tb\u{1b}[31m ", 20), "a b[31m");
        assert_eq!(line("\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", 4), "\u{e4}...");
        assert_eq!(harmless("a\u{1b}]0;x\u{7}b\n"), "a]0;xb\n");
        assert_eq!(harmless("a\u{202e}b"), "ab");
    }

    #[test]
    fn wide_characters_count_as_the_columns_they_take() {
        assert_eq!(width("日本"), 4);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(wrap("日本語です", 4), ["日本", "語で", "す"]);
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("日", 1), ["日"]);
    }

    #[test]
    fn a_cut_in_bytes_is_between_characters() {
        assert_eq!(head("äb", 1), "");
        assert_eq!(head("äb", 2), "ä");
        assert_eq!(head("äb", 9), "äb");
    }

    #[test]
    fn ages_have_one_unit() {
        let now = 1_000_000_000_000;
        for (before, shown) in [
            (0, "0s"),
            (59_000, "59s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
        ] {
            assert_eq!(age(now - before, now), shown);
        }
        assert_eq!(age(now + 5_000, now), "0s");
    }
}
