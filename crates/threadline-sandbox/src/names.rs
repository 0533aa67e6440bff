//! Names that are closed to tools wherever they are found.

use std::ffi::OsStr;
use std::fmt;

/// Why a name is closed to tools in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    /// It belongs to git.
    Git,
    /// It holds the environment of a program, and so its secrets.
    Environment,
    /// It holds a key or a password.
    Key,
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Git => "part of git's own data (`.git`)",
            Self::Environment => "an environment file (`.env*`)",
            Self::Key => "where keys or passwords are kept",
        })
    }
}

/// Endings of environment files that are made to be shared.
const SHARED: [&str; 3] = [".example", ".sample", ".template"];

/// Files and folders that programs keep keys and passwords in.
const KEYS: [&str; 16] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".pypirc",
    ".git-credentials",
    ".password-store",
    ".vault-token",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
];

/// Endings of files with keys.
const KEY_ENDINGS: [&str; 6] = [".pem", ".key", ".p12", ".pfx", ".jks", ".ppk"];

/// Returns why one component of a path is closed to tools, if it is. Case does not matter,
/// because on some file systems it does not.
#[must_use]
pub fn protected_name(name: &OsStr) -> Option<Protected> {
    let name = name.to_string_lossy().to_ascii_lowercase();
    if name == ".git" {
        Some(Protected::Git)
    } else if name.starts_with(".env") && !SHARED.iter().any(|ending| name.ends_with(ending)) {
        Some(Protected::Environment)
    } else if KEYS.contains(&name.as_str()) || KEY_ENDINGS.iter().any(|end| name.ends_with(end)) {
        Some(Protected::Key)
    } else {
        None
    }
}

/// What is closed to sandboxed commands below the home folder, beside [`KEYS`].
const HOME: [&str; 9] = [
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".docker/config.json",
    ".local/share/keyrings",
    ".mozilla",
    ".config/google-chrome",
];

/// Returns the paths below a home folder, relative to it, that hold keys or passwords.
pub(crate) fn home_secrets() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter()
        .filter(|name| name.starts_with(['.', '_']))
        .chain(HOME)
}
