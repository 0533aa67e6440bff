//! Commands that are approved by the words they begin with.

use std::fmt;

use super::{
    plainly,
    programs::{Reach, offered, reach},
    safe::{Grammar, is_harmless, looks, simple_commands},
};
use crate::limits::{PREFIX_BYTES, PREFIX_WORDS};

/// Why words cannot be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// There are none.
    #[error("an empty prefix would allow every command; name a program and its first word")]
    Empty,
    /// They are more than a prefix may have.
    #[error(
        "a prefix has at most {PREFIX_WORDS} words and {PREFIX_BYTES} bytes; leave the last words out"
    )]
    TooLong,
    /// They are no plain words of one command.
    #[error(
        "`{text}` is not one command of plain words: a prefix holds no pipe, list, redirection, \
         assignment, pattern, variable or line feed"
    )]
    NotPlain {
        /// What was given.
        text: String,
    },
    /// A further word has to say what they run.
    #[error(
        "`{prefix}` would allow anything that it can be told to run; name what it runs as well, as \
         in `cargo test`"
    )]
    TooWide {
        /// The words.
        prefix: CommandPrefix,
    },
    /// No further word could bound them.
    #[error(
        "`{prefix}` runs, or can be told to run, whatever follows it, so it is never allowed as a \
         prefix; approve such commands one by one"
    )]
    Anything {
        /// The words.
        prefix: CommandPrefix,
    },
}

/// The words that granted commands begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPrefix(Vec<String>);

impl fmt::Display for CommandPrefix {
    /// Writes the words as a shell would read them again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            let bare = |c: char| c.is_alphanumeric() || "_-./:,+@%=".contains(c);
            if !word.is_empty() && word.chars().all(bare) {
                f.write_str(word)?;
            } else if word.contains('\'') {
                write!(f, "\"{word}\"")?;
            } else {
                write!(f, "'{word}'")?;
            }
        }
        Ok(())
    }
}

impl CommandPrefix {
    /// Takes words as they are.
    ///
    /// # Errors
    /// [`PrefixError`].
    pub fn from_words(words: Vec<String>) -> Result<Self, PrefixError> {
        let Some(first) = words.first() else {
            return Err(PrefixError::Empty);
        };
        if words.iter().all(|word| word.trim().is_empty()) {
            return Err(PrefixError::Empty);
        }
        let bytes: usize = words.iter().map(String::len).sum();
        if words.len() > PREFIX_WORDS || bytes > PREFIX_BYTES {
            return Err(PrefixError::TooLong);
        }
        let is_program = |c: char| c.is_ascii_alphanumeric() || "_-./+".contains(c);
        let plain = |word: &String| {
            !word.is_empty() && word.chars().all(is_harmless) && word.trim() == word
        };
        let a_program = first.chars().all(is_program) && !first.starts_with('-');
        if !a_program || !words.iter().all(plain) {
            let text = plainly(&words.join(" "));
            return Err(PrefixError::NotPlain { text });
        }
        let reach = reach(&words);
        let prefix = Self(words);
        match reach {
            Reach::Bounded => Ok(prefix),
            Reach::More => Err(PrefixError::TooWide { prefix }),
            Reach::Anything => Err(PrefixError::Anything { prefix }),
        }
    }

    /// Reads the words from a line, as `cargo test`.
    ///
    /// # Errors
    /// [`PrefixError`].
    pub fn parse(line: &str) -> Result<Self, PrefixError> {
        if line.trim().is_empty() {
            return Err(PrefixError::Empty);
        }
        if line.len() > PREFIX_BYTES * 2 {
            return Err(PrefixError::TooLong);
        }
        let parsed = simple_commands(line, Grammar::Granted);
        let Some([words]) = parsed
            .as_deref()
            .and_then(|all| <&[Vec<String>; 1]>::try_from(all).ok())
        else {
            let text = plainly(line);
            return Err(PrefixError::NotPlain { text });
        };
        Self::from_words(words.clone())
    }

    /// Returns the words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// Returns the words.
    #[must_use]
    pub fn into_words(self) -> Vec<String> {
        self.0
    }

    fn begins(&self, words: &[String]) -> bool {
        words.starts_with(&self.0)
    }
}

/// Returns whether each part of a shell command begins with the words of one of the prefixes, or
/// only looks. One part at least has to begin so; what does not parse is not covered.
#[must_use]
pub(super) fn covers(prefixes: &[&CommandPrefix], command: &str) -> bool {
    let Some(parts) = simple_commands(command, Grammar::Granted) else {
        return false;
    };
    let granted = |words: &Vec<String>| prefixes.iter().any(|prefix| prefix.begins(words));
    parts.iter().any(granted) && parts.iter().all(|words| granted(words) || looks(words))
}

/// Returns what a person may be offered to approve a command and its like by: the first words of
/// the one part of it that does more than look.
#[must_use]
pub fn suggest(command: &str) -> Option<CommandPrefix> {
    let parts = simple_commands(command, Grammar::Granted)?;
    let mut found: Option<CommandPrefix> = None;
    for words in parts.iter().filter(|words| !looks(words)) {
        let words = words.get(..offered(words)?)?;
        match &found {
            Some(known) if known.words() == words => {}
            Some(_) => return None,
            None => found = Some(CommandPrefix::from_words(words.to_vec()).ok()?),
        }
    }
    found
}
