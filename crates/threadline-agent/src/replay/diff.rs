//! What differs between two texts, in few words.

use serde::Serialize;

/// Bytes that are shown before and behind the first that differs.
const AROUND: usize = 40;

/// The surroundings of the first byte that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Position of that byte.
    pub byte: usize,
    /// What the log has there.
    pub recorded: String,
    /// What the replay has there.
    pub replayed: String,
}

impl Difference {
    /// Compares two texts; `None` when they are equal.
    #[must_use]
    pub fn between(recorded: &str, replayed: &str) -> Option<Self> {
        let same = recorded
            .bytes()
            .zip(replayed.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        if same == recorded.len() && same == replayed.len() {
            return None;
        }
        let around = |text: &str| {
            let from = text.floor_char_boundary(same.saturating_sub(AROUND));
            let to = text.ceil_char_boundary(same.saturating_add(AROUND).min(text.len()));
            let cut = |is: bool| if is { "\u{2026}" } else { "" };
            let shown = text.get(from..to).unwrap_or_default();
            format!("{}{shown}{}", cut(from > 0), cut(to < text.len()))
        };
        Some(Self {
            byte: same,
            recorded: around(recorded),
            replayed: around(replayed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_is_shown_with_what_is_around_it() {
        assert_eq!(Difference::between("same", "same"), None);
        let long = "x".repeat(100);
        let found = Difference::between(&format!("{long}a{long}"), &format!("{long}b")).unwrap();
        let near = "x".repeat(AROUND);
        assert_eq!(found.byte, 100);
        let rest = "x".repeat(AROUND - 1);
        assert_eq!(found.recorded, format!("\u{2026}{near}a{rest}\u{2026}"));
        assert_eq!(found.replayed, format!("\u{2026}{near}b"));
    }

    #[test]
    fn characters_stay_whole_and_a_missing_end_counts() {
        let wide = "\u{1f600}".repeat(30);
        let found = Difference::between(&format!("{wide}!"), &wide).unwrap();
        assert_eq!(found.byte, wide.len());
        assert!(found.recorded.ends_with("\u{1f600}!"));
        assert!(found.replayed.ends_with('\u{1f600}'));
    }
}
