//! Names: what a server may be called, and what the model is told its tools are called.
//!
//! A tool is `mcp__SERVER__TOOL`. No name of a server has two underscores in a row or one at its
//! end, so the two never run into each other, and tools of different servers never share a name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use threadline_agent::policy::FOREIGN;

use crate::limits::{SERVER_NAME_BYTES, TOOL_NAME_BYTES};

/// Digits of the hash that tells names apart which had to be changed.
const HASH_DIGITS: usize = 8;

/// The name of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(String);

impl ServerName {
    /// Takes a name as it is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(name: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > SERVER_NAME_BYTES || !name.chars().all(fits) {
            return Err(format!(
                "a server's name has 1 to {SERVER_NAME_BYTES} letters, digits, `_` and `-`"
            ));
        }
        if name.contains("__") || name.starts_with('_') || name.ends_with('_') {
            return Err("a server's name has no `_` at its ends and no two in a row".to_owned());
        }
        Ok(Self(name.to_owned()))
    }

    /// Makes a name of any text. One that has to be changed ends with a hash, so that different
    /// texts stay different.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| {
            let mut name = plain(text).replace("__", "-");
            name.truncate(SERVER_NAME_BYTES - HASH_DIGITS - 1);
            let name = name.replace("__", "-");
            let name = name.trim_matches('_');
            let hash = hash(&[text]);
            if name.is_empty() {
                return Self(hash);
            }
            Self(format!("{name}-{hash}"))
        })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns what the model is told for each of the tools of a server, by the server's own names.
///
/// It depends on nothing but the names. One that is too long, or has characters that providers
/// refuse, is changed and ends with a hash.
pub(crate) fn tools<'a>(
    server: &ServerName,
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<&'a str, String> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let start = format!("{FOREIGN}{server}__");
    let room = TOOL_NAME_BYTES - start.len();
    let fits = |name: &str| !name.is_empty() && name.len() <= room && plain(name) == name;
    let mut told = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for name in names.iter().filter(|name| fits(name)) {
        let full = format!("{start}{name}");
        taken.insert(full.clone());
        told.insert(*name, full);
    }
    for name in names.iter().filter(|name| !fits(name)) {
        let mut short = plain(name);
        short.truncate(room - HASH_DIGITS - 1);
        // A server may have a tool that is called like what this one becomes.
        for salt in 0_u32.. {
            let hash = hash(&[server.as_str(), name, &salt.to_string()]);
            let full = format!("{start}{short}_{hash}");
            if taken.insert(full.clone()) {
                told.insert(*name, full);
                break;
            }
        }
    }
    told
}

/// Replaces what providers refuse in names.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => c,
            _ => '_',
        })
        .collect()
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    let mut hash = hasher.finalize().to_hex().to_string();
    hash.truncate(HASH_DIGITS);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_server_is_taken_as_it_is_or_refused() {
        for name in ["a", "git-hub_2", &"x".repeat(SERVER_NAME_BYTES)] {
            assert_eq!(ServerName::parse(name).unwrap().as_str(), name);
            assert_eq!(ServerName::from_text(name).as_str(), name);
        }
        let long = "x".repeat(SERVER_NAME_BYTES + 1);
        for name in ["", "a b", "a__b", "a_", "_a", "\u{e9}", long.as_str()] {
            assert!(ServerName::parse(name).is_err(), "{name}");
            let made = ServerName::from_text(name);
            assert_eq!(ServerName::parse(made.as_str()), Ok(made.clone()), "{name}");
        }
        assert_ne!(ServerName::from_text("a b"), ServerName::from_text("a.b"));
    }

    #[test]
    fn every_name_of_a_tool_fits_is_its_own_and_depends_on_names_alone() {
        let server = ServerName::from_text(&"s".repeat(SERVER_NAME_BYTES));
        let long = "t".repeat(300);
        let longer = "t".repeat(301);
        let mut names = vec!["plain", "a.b", "a_b", "a/b", "", "\u{4f60}", &long, &longer];
        let told = tools(&server, names.clone());
        assert_eq!(told.len(), names.len());
        let all: BTreeSet<&String> = told.values().collect();
        assert_eq!(all.len(), names.len());
        for full in &all {
            assert!(
                full.len() <= TOOL_NAME_BYTES && full.starts_with("mcp__s"),
                "{full}"
            );
            assert_eq!(&plain(full), *full);
        }
        names.reverse();
        assert_eq!(tools(&server, names), told);
        // A tool that is called like what another one becomes keeps its name.
        let taken = told["a.b"].rsplit("__").next().unwrap().to_owned();
        let both = tools(&server, ["a.b", taken.as_str()]);
        assert!(both[taken.as_str()].ends_with(&taken) && both["a.b"] != both[taken.as_str()]);
    }

    #[test]
    fn a_name_at_the_limit_stays_and_one_past_it_is_shortened() {
        let server = ServerName::parse("s").unwrap();
        let room = TOOL_NAME_BYTES - "mcp__s__".len();
        let (fits, over) = ("n".repeat(room), "n".repeat(room + 1));
        let told = tools(&server, [fits.as_str(), over.as_str()]);
        assert_eq!(told[fits.as_str()], format!("mcp__s__{fits}"));
        assert_eq!(told[over.as_str()].len(), TOOL_NAME_BYTES);
    }
}
