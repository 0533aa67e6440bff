//! Words, times and sizes as people read them.

use jiff::Timestamp;
use threadline_session::SessionId;
pub(crate) use threadline_store::error_chain as chain;

/// Returns a time in UTC to the second.
pub(crate) fn moment(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(
            || "an unknown time".into(),
            |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        )
}

/// Returns how long ago a time was, in one short word.
pub(crate) fn age(unix_ms: u64, now_ms: u64) -> String {
    let secs = now_ms.saturating_sub(unix_ms) / 1000;
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{}m", secs / 60),
        3_600..86_400 => format!("{}h", secs / 3_600),
        86_400..31_536_000 => format!("{}d", secs / 86_400),
        _ => format!("{}y", secs / 31_536_000),
    }
}

/// Returns a number of bytes with a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
}

/// Returns a number with its noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns the first line, cut to a number of characters, without control characters.
pub(crate) fn line(text: &str, chars: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !c.is_control()));
        if words.len() > chars * 4 {
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

/// Returns text that cannot steer a terminal: control characters besides line feeds and tabs are
/// left out. What a model or a file says is shown, never obeyed.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// Indents every line.
pub(crate) fn indent(text: &str, by: &str) -> String {
    text.lines().map(|line| format!("{by}{line}\n")).collect()
}

/// Returns how many characters of these ids tell them apart, at least eight. Ids begin with their
/// time, so those of one minute share their first eight.
pub(crate) fn unique_chars(ids: &[SessionId]) -> usize {
    let mut sorted: Vec<&str> = ids.iter().map(SessionId::as_str).collect();
    sorted.sort_unstable();
    let shared = sorted
        .windows(2)
        .map(|pair| match pair {
            [a, b] => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
            _ => 0,
        })
        .max()
        .unwrap_or(0);
    (shared + 1).max(8)
}

/// Returns the first characters of an id.
pub(crate) fn short(id: &SessionId, chars: usize) -> &str {
    let text = id.as_str();
    text.char_indices()
        .nth(chars)
        .map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_minute_are_shown_as_long_as_they_differ() {
        let ids: Vec<_> = ["0199f3aa-1b2c-7000", "0199f3aa-1b2d-7000", "zzz"]
            .into_iter()
            .map(|id| SessionId::parse(id).unwrap())
            .collect();
        let chars = unique_chars(&ids);
        assert_eq!(short(&ids[0], chars), "0199f3aa-1b2c");
        assert_eq!(short(&ids[2], chars), "zzz");
        assert_eq!(unique_chars(&ids[2..]), 8);
    }

    #[test]
    fn lines_are_cut_by_characters_and_hold_no_escape() {
        assert_eq!(line("  a\n\tb\u{1b}[31m ", 20), "a b[31m");
        assert_eq!(line("\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", 4), "\u{e4}...");
        assert_eq!(harmless("a\u{1b}]0;x\u{7}b\n"), "a]0;xb\n");
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
