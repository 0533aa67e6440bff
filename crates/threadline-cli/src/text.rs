//! Words, times and sizes as people read them.

use jiff::Timestamp;
use threadline_session::SessionId;
pub(crate) use threadline_store::error_chain as chain;
pub(crate) use threadline_tui::text::{age, count, harmless, line};

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

/// Returns a number of bytes with a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
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
}
