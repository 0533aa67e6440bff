//! Blobs: content that is too big for a line, kept once under the hash of its bytes.

use std::{collections::HashSet, fmt};

use serde::{Deserialize, Serialize};

const HEX_DIGITS: usize = 64;

/// Names a blob: BLAKE3 of its bytes, 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId(String);

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no name of a blob (expected 64 lower-case hex digits)")]
pub struct BlobIdError(String);

impl BlobId {
    /// Returns the name of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }

    /// Reads a name.
    ///
    /// # Errors
    /// [`BlobIdError`].
    pub fn parse(text: &str) -> Result<Self, BlobIdError> {
        let digits = text.len() == HEX_DIGITS && text.bytes().all(is_hex);
        digits
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| BlobIdError(text.chars().take(100).collect()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BlobId {
    type Error = BlobIdError;

    fn try_from(text: String) -> Result<Self, BlobIdError> {
        Self::parse(&text)
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.0
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Adds everything in some bytes that could be the name of a blob.
///
/// It asks neither for valid JSON nor for a known event type, so that what a newer version or a
/// plug-in names, or what is damaged, keeps its blobs. Hashes of other things are taken along,
/// which does no harm.
pub fn names_in(bytes: &[u8], found: &mut HashSet<BlobId>) {
    let runs = bytes.split(|byte| !is_hex(*byte));
    for run in runs.filter(|run| run.len() == HEX_DIGITS) {
        if let Ok(text) = std::str::from_utf8(run) {
            found.insert(BlobId(text.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_wherever_it_stands_and_nothing_else_is() {
        let (a, b) = (BlobId::of(b"a"), BlobId::of(b"b"));
        let bytes = format!("{{\"blob\":\"{a}\"}}\0broken {b}\n0{a} {}", "ab".repeat(31));
        let mut found = HashSet::new();
        names_in(bytes.as_bytes(), &mut found);
        assert_eq!(found, HashSet::from([a, b]));
    }

    #[test]
    fn only_64_lower_case_hex_digits_are_a_name() {
        let id = BlobId::of(b"x");
        assert_eq!(BlobId::parse(id.as_str()), Ok(id.clone()));
        for bad in [
            "",
            "ab",
            &id.as_str().to_uppercase(),
            &format!("{id}0"),
            "../../etc/passwd",
        ] {
            assert!(BlobId::parse(bad).is_err(), "{bad}");
        }
    }
}
