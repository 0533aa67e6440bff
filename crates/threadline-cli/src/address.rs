//! Store addresses: `jsonl:DIR`, `sqlite:FILE`, `postgres://…`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::failure::{Failure, Outcome};

const FORMS: &str = "name a store in one of the three forms: `jsonl:DIR` (or just a directory), \
                     `sqlite:FILE`, `postgres://USER@HOST/DATABASE`";

/// Where sessions are kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A directory.
    Jsonl(PathBuf),
    /// A database file.
    Sqlite(PathBuf),
    /// A URL, which may hold a password and is never shown as it is.
    Postgres(String),
}

impl Address {
    /// Reads an address that was given at a place, as `--store`.
    pub(crate) fn parse(text: &str, place: &str) -> Outcome<Self> {
        let refuse =
            |what: String| Err(Failure::usage(format!("{place}: {what}")).hint(FORMS.to_owned()));
        let (make, path): (fn(PathBuf) -> Self, &str) = match text.split_once(':') {
            Some(("jsonl", path)) => (Self::Jsonl, path),
            Some(("sqlite", path)) => (Self::Sqlite, path),
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                return Ok(Self::Postgres(text.to_owned()));
            }
            Some(("postgres" | "postgresql", _)) => {
                return refuse("the address names no host and database".into());
            }
            // One letter before a colon, or a slash before it, is a path.
            Some((scheme, rest)) if rest.starts_with("//") && !scheme.contains('/') => {
                return refuse(format!("`{scheme}:` is no kind of store"));
            }
            _ => (Self::Jsonl, text),
        };
        if path.trim().is_empty() {
            let kind = match text.starts_with("sqlite") {
                true => "file",
                false => "directory",
            };
            return refuse(format!("`{text}` names no {kind}"));
        }
        Ok(make(PathBuf::from(path)))
    }

    /// Returns the path of a store that is on this machine.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Jsonl(path) | Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// Makes a path independent of the current directory.
    pub(crate) fn absolute(self) -> Outcome<Self> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| {
                Failure::usage(format!(
                    "the store address {} is no path: {error}",
                    path.display()
                ))
                .hint(FORMS)
            })
        };
        Ok(match &self {
            Self::Jsonl(path) => Self::Jsonl(absolute(path)?),
            Self::Sqlite(path) => Self::Sqlite(absolute(path)?),
            Self::Postgres(_) => self,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jsonl(path) => write!(f, "jsonl:{}", path.display()),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Returns a URL without what stands between the user's name and the host, and without its query,
/// which may hold a password too.
pub(crate) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("//").unwrap_or(("", url));
    let rest = rest.split('?').next().unwrap_or_default();
    let shown = match rest.rsplit_once('@') {
        Some((user, host)) => {
            let name = user.split(':').next().unwrap_or_default();
            format!("{name}@{host}")
        }
        None => rest.to_owned(),
    };
    format!("{scheme}//{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_addresses_have_three_forms_and_others_are_refused() {
        let parse = |text: &str| Address::parse(text, "--store").map_err(|e| e.message);
        assert_eq!(parse("jsonl:/a b"), Ok(Address::Jsonl("/a b".into())));
        assert_eq!(parse("/a:b"), Ok(Address::Jsonl("/a:b".into())));
        assert_eq!(parse("rel"), Ok(Address::Jsonl("rel".into())));
        assert_eq!(parse("sqlite:/x.db"), Ok(Address::Sqlite("/x.db".into())));
        assert_eq!(
            parse("postgres://h/db"),
            Ok(Address::Postgres("postgres://h/db".into()))
        );
        for refused in [
            "s3://bucket",
            "jsonl:",
            "sqlite:",
            "postgres:",
            "postgres://",
            "postgresql:db",
            "",
        ] {
            assert!(
                parse(refused).unwrap_err().starts_with("--store: "),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://me:geheim@host/db",
            "postgres://me:geh@eim@host/db",
            "postgresql://host/db?user=me&password=geheim",
            "postgres://me:geheim@host:5432,other/db?sslmode=require",
        ] {
            let address = Address::parse(url, "--store").unwrap();
            for shown in [address.to_string(), format!("{address:?}")] {
                assert!(!shown.contains("gehe") && !shown.contains("eim"), "{shown}");
                assert!(shown.contains("host") && shown.contains("/db"), "{shown}");
            }
        }
    }
}
