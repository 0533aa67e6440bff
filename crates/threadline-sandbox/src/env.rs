//! The environment that commands see.

use std::ffi::OsString;
use std::path::Path;

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

/// Returns the environment of a command: what is on the list of the agent's own, what was
/// configured beside it, and the private folder for temporary files if it has one.
///
/// Secrets are left out of both, so that no mistake in a configured list hands them out.
#[must_use]
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    configured: &[(OsString, OsString)],
    temp: Option<&Path>,
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsString| {
        let name = name.to_string_lossy();
        PASSED.contains(&&*name) || name.starts_with("LC_") || (temp.is_none() && name == "TMPDIR")
    };
    let mut env: Vec<(OsString, OsString)> =
        own.into_iter().filter(|(name, _)| passed(name)).collect();
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

    #[test]
    fn secrets_are_left_out_and_the_rest_is_an_allowlist() {
        let pairs = |names: &[&str]| -> Vec<(OsString, OsString)> {
            let pair = |name: &&str| (OsString::from(name), OsString::from("x"));
            names.iter().map(pair).collect()
        };
        let own = pairs(&[
            "PATH",
            "LC_ALL",
            "EDITOR",
            "OPENAI_API_KEY",
            "LD_PRELOAD",
            "TMPDIR",
        ]);
        let configured = pairs(&["FOO", "my_api_key", "GH_TOKEN", "SSH_AUTH_SOCK", "MONKEY"]);
        let env = environment(own, &configured, Some(Path::new("/t")));
        let names: Vec<_> = env.iter().map(|(name, _)| name.to_string_lossy()).collect();
        assert_eq!(names, ["PATH", "LC_ALL", "FOO", "MONKEY", "TERM", "TMPDIR"]);
        assert_eq!(env.last().unwrap().1, "/t");
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
