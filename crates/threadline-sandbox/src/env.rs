//! The environment that commands see.

use std::ffi::OsString;
use std::path::Path;

use crate::limits;

/// Variables of the agent that commands see, besides `LC_*`.
const PASSED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SHELL"];

/// Words in the name of a variable that holds a secret.
const SECRET_WORDS: [&str; 8] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
];

/// Variables that lead to somebody who acts for the person.
const AGENTS: [&str; 5] = [
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
];

/// Names of variables that commands see besides the built-in list: `NAME`, or `PREFIX*`.
///
/// A variable whose name looks like that of a secret is seen only when it is spelled out: no
/// pattern hands one out that nobody thought of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Passed {
    names: Vec<String>,
    prefixes: Vec<String>,
}

/// Says why something names no variables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` names no variable: {reason}")]
pub struct PassedError {
    /// What was given.
    pub entry: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Passed {
    /// Reads a list of names and patterns.
    ///
    /// # Errors
    /// [`PassedError`] for the first entry that is neither.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self, PassedError> {
        let mut passed = Self::default();
        for entry in entries {
            let entry = entry.as_ref();
            let wrong = |reason| {
                Err(PassedError {
                    entry: entry.into(),
                    reason,
                })
            };
            let (name, prefix) = match entry.strip_suffix('*') {
                Some(prefix) => (prefix, true),
                None => (entry, false),
            };
            if name.is_empty() {
                return wrong("write a name, or the beginning of names with a `*` behind it");
            }
            if name.len() > limits::VARIABLE_BYTES {
                return wrong("it is too long");
            }
            if name.contains('*') {
                return wrong("a `*` may stand at the end only");
            }
            if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return wrong("names have ASCII letters, digits and `_` only");
            }
            let list = if prefix {
                &mut passed.prefixes
            } else {
                &mut passed.names
            };
            list.push(name.to_owned());
        }
        Ok(passed)
    }

    /// Returns whether commands see a variable of this name.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
            || (!is_secret(name) && self.prefixes.iter().any(|own| name.starts_with(own)))
    }
}

/// Returns the environment of a command: what of the agent's own is on the built-in list or
/// `passed`, what was `configured` beside it, and the private folder for temporary files if it has
/// one.
///
/// Secrets are left out of what is configured, so that no mistake in it hands them out.
#[must_use]
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    passed: &Passed,
    configured: &[(OsString, OsString)],
    temp: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let seen = |name: &OsString| {
        let name = name.to_string_lossy();
        PASSED.contains(&&*name)
            || name.starts_with("LC_")
            || (temp.is_none() && name == "TMPDIR")
            || passed.allows(&name)
    };
    let mut env: Vec<(OsString, OsString)> =
        own.into_iter().filter(|(name, _)| seen(name)).collect();
    let open = configured
        .iter()
        .filter(|(name, _)| !is_secret(&name.to_string_lossy()));
    env.extend(open.cloned());
    env.push(("TERM".into(), "dumb".into()));
    if let Some(temp) = temp {
        env.push(("TMPDIR".into(), temp.into()));
    }
    env
}

/// Returns whether a variable holds a secret, or leads to somebody who acts for the person.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    AGENTS.contains(&name.as_str())
        || name.ends_with("APIKEY")
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| SECRET_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(names: &[&str]) -> Vec<(OsString, OsString)> {
        let pair = |name: &&str| (OsString::from(name), OsString::from("x"));
        names.iter().map(pair).collect()
    }

    fn names(env: &[(OsString, OsString)]) -> Vec<String> {
        let name = |(name, _): &(OsString, OsString)| name.to_string_lossy().into_owned();
        env.iter().map(name).collect()
    }

    #[test]
    fn secrets_are_left_out_and_the_rest_is_an_allowlist() {
        let own = pairs(&[
            "PATH",
            "LC_ALL",
            "EDITOR",
            "OPENAI_API_KEY",
            "LD_PRELOAD",
            "TMPDIR",
        ]);
        let configured = pairs(&["FOO", "my_api_key", "GH_TOKEN", "SSH_AUTH_SOCK", "MONKEY"]);
        let env = environment(own, &Passed::default(), &configured, Some(Path::new("/t")));
        assert_eq!(
            names(&env),
            ["PATH", "LC_ALL", "FOO", "MONKEY", "TERM", "TMPDIR"]
        );
        assert_eq!(env.last().unwrap().1, "/t");
    }

    #[test]
    fn a_secret_is_passed_only_when_it_is_spelled_out() {
        let own = pairs(&[
            "GH_TOKEN",
            "GH_HOST",
            "GH_TOKENS",
            "gh_token",
            "SSH_AUTH_SOCK",
        ]);
        let seen = |entries: &[&str]| {
            let passed = Passed::parse(entries).unwrap();
            let mut seen = names(&environment(own.clone(), &passed, &[], None));
            assert_eq!(seen.pop().as_deref(), Some("TERM"));
            seen
        };
        assert_eq!(seen(&["GH_*", "SSH_*"]), ["GH_HOST", "GH_TOKENS"]);
        assert_eq!(seen(&["GH_T*", "GH_TOKEN*"]), ["GH_TOKENS"]);
        assert_eq!(seen(&["GH_TOKEN"]), ["GH_TOKEN"]);
        assert!(seen(&[]).is_empty());
    }

    #[test]
    fn what_names_no_variable_is_refused_with_a_reason() {
        let long = "A".repeat(limits::VARIABLE_BYTES + 1);
        assert!(Passed::parse([&long[1..]]).is_ok());
        for (entry, reason) in [
            ("", "write a name"),
            ("*", "write a name"),
            ("*_PATH", "at the end only"),
            ("A**", "at the end only"),
            ("A=B", "letters, digits"),
            ("A B", "letters, digits"),
            ("\u{dc}", "letters, digits"),
            (&long, "too long"),
        ] {
            let error = Passed::parse([entry]).unwrap_err().to_string();
            assert!(error.contains(reason), "{entry}: {error}");
        }
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "OPENAI_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD_PASSWORD",
            "npm_config__authToken_TOKEN",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "ssh_auth_sock",
            "MYAPIKEY",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "PATH",
            "KEYBOARD",
            "MONKEY",
            "TOKENIZERS_PARALLELISM",
            "CARGO_HOME",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
