//! How this program is called again, for the commands that it tells people to type.

use std::{borrow::Cow, sync::OnceLock};

use crate::address::Address;

static PROGRAM: OnceLock<String> = OnceLock::new();

/// Remembers the store that the command line named: without it, another call would look elsewhere.
/// A password is left out of what is shown.
pub(crate) fn remember(named: bool, address: &Address) {
    if named {
        let _ = PROGRAM.set(with_store(&address.to_string()));
    }
}

/// Returns the beginning of a command that finds the same sessions.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("threadline", String::as_str)
}

fn with_store(address: &str) -> String {
    format!("threadline --store {}", quoted(address))
}

/// Writes a word so that a shell takes it as it is.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_one_word_of_the_command() {
        for (address, command) in [
            ("jsonl:/srv/a-1", "threadline --store jsonl:/srv/a-1"),
            ("jsonl:/my work", "threadline --store 'jsonl:/my work'"),
            ("jsonl:/it's;rm", r"threadline --store 'jsonl:/it'\''s;rm'"),
        ] {
            assert_eq!(with_store(address), command);
        }
    }
}
