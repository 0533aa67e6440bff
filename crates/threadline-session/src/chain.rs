//! The hash chain over turns.
//!
//! The value on a `turn/end` line is BLAKE3 over the previous turn end's value (32 bytes; nothing
//! before the first), every whole line since that turn end with its LF (the header counts for the
//! first), and this line's bytes before its `chain` key. Whoever edits, deletes or reorders a line
//! breaks the value of the turn it belongs to; whoever rewrites the values breaks the last one.

use std::fmt;

use crate::os_path::{hex, unhex};

/// One value of the chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainValue([u8; 32]);

impl ChainValue {
    /// Returns the value in hex, 64 digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Parses 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        Some(Self(unhex(text)?.try_into().ok()?))
    }
}

impl fmt::Debug for ChainValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Display for ChainValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// The running state of the chain.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Boxed: it is two kilobytes, and chains are moved around a lot.
    hasher: Box<blake3::Hasher>,
    last: Option<ChainValue>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// Starts before the header.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hasher: Box::new(blake3::Hasher::new()),
            last: None,
        }
    }

    /// Continues right after a turn end whose value is known.
    #[must_use]
    pub fn after(value: ChainValue) -> Self {
        let mut hasher = Box::new(blake3::Hasher::new());
        hasher.update(&value.0);
        Self {
            hasher,
            last: Some(value),
        }
    }

    /// Takes a whole line, LF included, that is not a turn end.
    pub fn line(&mut self, line: &[u8]) {
        self.hasher.update(line);
    }

    /// Takes the part of a turn end before its `chain` key and returns the value it must carry.
    pub fn end_turn(&mut self, part: &[u8]) -> ChainValue {
        self.hasher.update(part);
        let value = ChainValue(*self.hasher.finalize().as_bytes());
        *self = Self::after(value);
        value
    }

    /// Takes a turn end that was only looked at, and checks the value it carries. Returns whether
    /// it is right. `line` is without its LF and has a checksum.
    pub fn check_skimmed(&mut self, line: &[u8], found: ChainValue) -> bool {
        let cut = line.len().saturating_sub(crate::codec::CHAIN_AND_CRC);
        let wanted = self.end_turn(line.get(..cut).unwrap_or_default());
        *self = Self::after(found);
        wanted == found
    }

    /// Returns the last turn end's value.
    #[must_use]
    pub fn last(&self) -> Option<ChainValue> {
        self.last
    }

    /// Takes a decoded line, trusting the value it carries.
    pub fn follow(&mut self, line: &crate::codec::Line) {
        match line.chain {
            Some(value) => *self = Self::after(value),
            None => {
                self.hasher.update(&line.raw);
                self.hasher.update(b"\n");
            }
        }
    }

    /// Takes a decoded line and checks the value it carries. Returns whether it is right.
    pub fn check(&mut self, line: &crate::codec::Line) -> bool {
        let Some(found) = line.chain else {
            self.follow(line);
            return true;
        };
        let wanted = self.end_turn(line.chained_part());
        // Later turns are judged against what the log says, so one damaged turn is named once.
        *self = Self::after(found);
        wanted == found
    }
}
