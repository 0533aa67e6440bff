//! Text as agents produce it, the same in every run.

/// A small generator of numbers; not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Returns one of some words.
    pub(crate) fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        let at = usize::try_from(self.next() % words.len().max(1) as u64).unwrap_or_default();
        words.get(at).copied().unwrap_or_default()
    }

    /// Returns a number from `low` to `high`, of which most are small.
    pub(crate) fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + ((high - low) as f64 * unit.powi(5)) as u64
    }
}

const WORDS: [&str; 40] = [
    "let",
    "mut",
    "fn",
    "return",
    "error",
    "the",
    "file",
    "parser",
    "session",
    "log",
    "store",
    "index",
    "line",
    "Ok(())",
    "=>",
    "{",
    "}",
    "0x1f",
    "warning:",
    "src/main.rs:42",
    "test",
    "result",
    "value",
    "\"name\":",
    "\"ok\"",
    "in",
    "of",
    "a",
    "to",
    "is",
    "::new()",
    "impl",
    "where",
    "match",
    "cargo",
    "build",
    "--release",
    "crate",
    "\\n",
    "päth",
];

/// Words of sentences, some with Markdown.
const PLAIN: [&str; 32] = [
    "the",
    "parser",
    "`Session::load`",
    "reads",
    "a",
    "line",
    "and",
    "the",
    "**writer**",
    "appends",
    "it",
    "once",
    "more",
    "when",
    "its",
    "test",
    "fails",
    "so",
    "that",
    "[the log](docs/log.md)",
    "stays",
    "whole",
    "after",
    "each",
    "turn",
    "of",
    "`src/main.rs`",
    "which",
    "is",
    "held",
    "by",
    "one_lock",
];

/// Returns where a text can be cut behind about so many bytes.
pub(crate) fn boundary(text: &str, bytes: u64) -> usize {
    let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut at = wanted.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// A long text that pieces are cut from.
pub(crate) struct Pool {
    text: String,
    dice: Dice,
}

impl Pool {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut text = String::with_capacity((1 << 20) + 32);
        let mut column = 0;
        while text.len() < 1 << 20 {
            let word = dice.one_of(&WORDS);
            text.push_str(word);
            column += word.len() + 1;
            text.push(if column > 76 { '\n' } else { ' ' });
            if column > 76 {
                column = 0;
            }
        }
        Self { text, dice }
    }

    pub(crate) fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// Makes about as many bytes of Markdown: paragraphs, lists, and code in a fence.
    pub(crate) fn prose(&mut self, bytes: u64) -> String {
        let mut text = String::new();
        while (text.len() as u64) < bytes {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            let left = bytes.saturating_sub(text.len() as u64);
            match self.dice.between(0, 9) {
                0 => {
                    let lines = self.cut(left.min(600)).replace("```", "");
                    text.push_str(&format!("```rust\n{lines}\n```"));
                }
                1 | 2 => {
                    for _ in 0..self.dice.between(2, 6) {
                        text.push_str(&format!("- {}\n", self.sentence()));
                    }
                }
                _ => {
                    for _ in 0..self.dice.between(1, 4) {
                        text.push_str(&self.sentence());
                        text.push(' ');
                    }
                }
            }
        }
        text
    }

    /// Makes a sentence.
    fn sentence(&mut self) -> String {
        let words: Vec<_> = (0..self.dice.between(5, 18))
            .map(|_| self.dice.one_of(&PLAIN))
            .collect();
        format!("{}.", words.join(" "))
    }

    /// Cuts about as many bytes.
    pub(crate) fn cut(&mut self, bytes: u64) -> String {
        let len = usize::try_from(bytes).unwrap_or_default();
        let room = self.text.len().saturating_sub(len + 8) as u64;
        let mut from = usize::try_from(self.dice.between(0, room)).unwrap_or_default();
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let mut end = (from + len).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        self.text.get(from..end).unwrap_or_default().to_owned()
    }
}
