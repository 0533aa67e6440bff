//! Which shell commands only look.
//!
//! A command is parsed, not searched for bad words: it must be a chain of simple commands whose
//! words mean what they say in every shell, and each must be one of a few programs with options
//! that are known to be harmless. Anything else is not known to be safe.
//!
//! The shell's grammar: POSIX.1-2024, "Shell Command Language"; what is refused is everything of
//! it that expands, redirects, assigns or groups.

use std::ffi::OsStr;

use super::protected_name;

/// What may come after the name of a safe command, besides its short options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    None,
    /// Words that stay inside the workspace, if they are paths.
    Words,
    /// `+FORMAT`.
    Format,
    /// Words, and the tests of `find` that run, write and delete nothing.
    Tests,
}

/// What one safe command may be given.
struct SafeCommand {
    name: &'static str,
    /// Letters of short options without risk.
    letters: &'static str,
    operands: Operands,
}

const fn safe(name: &'static str, letters: &'static str, operands: Operands) -> SafeCommand {
    SafeCommand {
        name,
        letters,
        operands,
    }
}

const SAFE: [SafeCommand; 14] = [
    safe("ls", "1AFGRSUXacdfghilmnopqrstux", Operands::Words),
    safe("pwd", "LP", Operands::None),
    safe("cat", "AbeEnstTuv", Operands::Words),
    safe("head", "cnqv", Operands::Words),
    // Not -f and -F, which never end.
    safe("tail", "cnqv", Operands::Words),
    safe("wc", "Lclmw", Operands::Words),
    safe("echo", "neE", Operands::Words),
    // Not -s, which sets the clock, and no -f and -r, which read files.
    safe("date", "uIR", Operands::Format),
    // Not -r and -R, which find files that no word names.
    safe("grep", "ABCEFHLPachilmnoqsvwxzZ", Operands::Words),
    // Not -o, which writes, and not -T.
    safe("sort", "bdfghknMruVsz", Operands::Words),
    // Its second word is a file to write.
    safe("uniq", "cdiu", Operands::None),
    safe("stat", "Lft", Operands::Words),
    // The options of -exec's kind are words with a dash.
    safe("find", "", Operands::Tests),
    safe("true", "", Operands::None),
];

const FIND_TESTS: [&str; 13] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-type",
    "-maxdepth",
    "-mindepth",
    "-size",
    "-mtime",
    "-mmin",
    "-empty",
    "-not",
    "-print",
];

const SAFE_GIT: [&str; 3] = ["status", "log", "diff"];

const SAFE_GIT_OPTIONS: [&str; 20] = [
    "--all",
    "--branch",
    "--cached",
    "--decorate",
    "--graph",
    "--long",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-ext-diff",
    "--no-merges",
    "--no-textconv",
    "--numstat",
    "--oneline",
    "--patch",
    "--porcelain",
    "--short",
    "--shortstat",
    "--staged",
    "--stat",
];

/// Returns whether a shell command consists of simple ones that only look, inside the workspace as
/// far as its text can tell. What is not known to be safe is not safe.
///
/// The text cannot tell where a symbolic link leads; the shell tool checks that when it runs.
#[must_use]
pub fn is_safe_shell(command: &str) -> bool {
    safe_words(command).is_some()
}

/// Returns the words of a safe command that may be paths.
pub(crate) fn safe_words(command: &str) -> Option<Vec<String>> {
    let parts = simple_commands(command, Grammar::Looking)?;
    parts
        .iter()
        .all(|words| looks(words))
        .then(|| paths(&parts))
}

/// Returns those words of a granted command that may be paths and stand in parts of it that were
/// let through because they only look, and whether one of these parts is git.
pub(crate) fn looking_words(command: &str) -> (Vec<String>, bool) {
    let mut parts = simple_commands(command, Grammar::Granted).unwrap_or_default();
    parts.retain(|words| looks(words));
    let git = parts
        .iter()
        .any(|words| words.first().is_some_and(|name| name == "git"));
    (paths(&parts), git)
}

fn paths(parts: &[Vec<String>]) -> Vec<String> {
    let words = parts.iter().flat_map(|words| words.iter().skip(1));
    words
        .filter(|word| !word.starts_with('-'))
        .cloned()
        .collect()
}

/// Returns whether a simple command is known to only look.
pub(super) fn looks(words: &[String]) -> bool {
    words.split_first().is_some_and(|(name, rest)| {
        // What the stricter grammar takes only in quotes is not known to be safe.
        rest.iter()
            .all(|word| !word.starts_with('-') || !word.contains('='))
            && is_safe(name, rest)
    })
}

/// What may stand in a word outside of quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// What means itself in every shell.
    Looking,
    /// An equals sign behind the command's name too, and a tilde only where no shell expands it.
    Granted,
}

/// Splits a command at `|`, `||`, `&&` and `;` into simple commands, and these into words without
/// their quotes; none when it has anything else in it than words.
pub(super) fn simple_commands(command: &str, grammar: Grammar) -> Option<Vec<Vec<String>>> {
    let mut done = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = command.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' => words.extend(word.take()),
            '|' | '&' | ';' => {
                let twice = rest.next_if_eq(&c).is_some();
                // `&` alone leaves a command in the background, and `;;` is no separator.
                if !matches!((c, twice), ('|', _) | ('&', true) | (';', false)) {
                    return None;
                }
                words.extend(word.take());
                if words.is_empty() {
                    return None;
                }
                done.push(std::mem::take(&mut words));
            }
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        end if end == c => break,
                        // These mean something inside double quotes.
                        '$' | '`' | '\\' | '!' if c == '"' => return None,
                        inner if is_harmless(inner) => word.push(inner),
                        _ => return None,
                    }
                }
            }
            // In the first word it assigns.
            '=' if grammar == Grammar::Granted && !words.is_empty() => {
                word.get_or_insert_default().push(c);
            }
            '~' if grammar == Grammar::Granted
                && word.as_ref().is_none_or(|word| word.ends_with([':', '='])) =>
            {
                return None;
            }
            plain if is_plain(plain) => word.get_or_insert_default().push(plain),
            _ => return None,
        }
    }
    words.extend(word);
    // A chain that ends in an operator waits for more.
    if words.is_empty() {
        return None;
    }
    done.push(words);
    Some(done)
}

/// Characters that mean themselves in every shell; `~` is looked at per word.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:,+@%^~".contains(c) || (!c.is_ascii() && c.is_alphabetic())
}

/// Characters that look like what they are, inside quotes.
pub(super) fn is_harmless(c: char) -> bool {
    matches!(c, ' '..='~') || (!c.is_ascii() && c.is_alphanumeric())
}

fn is_safe(name: &str, rest: &[String]) -> bool {
    if name == "git" {
        return is_safe_git(rest);
    }
    let Some(known) = SAFE.iter().find(|known| known.name == name) else {
        return false;
    };
    rest.iter().all(|word| match word.strip_prefix('-') {
        Some(_) if known.operands == Operands::Tests => FIND_TESTS.contains(&word.as_str()),
        Some(option) => is_short_option(option, known.letters),
        None => match known.operands {
            Operands::None => false,
            Operands::Format => word.starts_with('+'),
            Operands::Words | Operands::Tests => stays_inside(word),
        },
    })
}

/// Letters of the list, with a number after them or alone as in `head -20`.
fn is_short_option(option: &str, letters: &str) -> bool {
    let letter_part = option.trim_end_matches(|c: char| c.is_ascii_digit());
    !option.is_empty() && letter_part.chars().all(|c| letters.contains(c))
}

fn is_safe_git(rest: &[String]) -> bool {
    let Some((command, rest)) = rest.split_first() else {
        return false;
    };
    SAFE_GIT.contains(&command.as_str())
        && rest.iter().all(|word| {
            if word.starts_with("--") {
                word == "--" || SAFE_GIT_OPTIONS.contains(&word.as_str())
            } else if let Some(option) = word.strip_prefix('-') {
                is_short_option(option, "bnpsuz")
            } else {
                stays_inside(word)
            }
        })
}

/// Returns whether a word, taken as a path or as git's `revision:path`, names nothing outside the
/// workspace and nothing protected.
fn stays_inside(word: &str) -> bool {
    !word.starts_with(['/', '~'])
        && !word.contains("..")
        && !word.contains(":/")
        && word
            .split(['/', ':'])
            .all(|part| protected_name(OsStr::new(part)).is_none())
}
