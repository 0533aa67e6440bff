//! How servers are reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use serde::Deserialize;

use crate::{
    ServerName,
    limits::{CALL_TIME, SECONDS_MAX, START_TIME},
    problem::Problem,
};

/// What a configuration file may say of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFile {
    /// The program of a server that is started.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Environment variables for it, beside a few of the agent's own.
    pub env: Option<BTreeMap<String, String>>,
    /// The folder it works in; the session's otherwise.
    pub cwd: Option<PathBuf>,
    /// The address of a server that runs elsewhere.
    pub url: Option<String>,
    /// Headers of every request to it.
    pub headers: Option<BTreeMap<String, String>>,
    /// Whether it is used; yes when it is not said.
    pub enabled: Option<bool>,
    /// Seconds that a call may take.
    pub timeout_seconds: Option<u64>,
    /// Seconds that it may take to start.
    pub start_seconds: Option<u64>,
    /// The tools that are used, by the server's names for them; all when it is not said.
    pub tools: Option<BTreeSet<String>>,
    /// Whether it is believed which of its tools only read.
    pub trust: Option<bool>,
}

/// What is wrong with the configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`mcp.{server}{}{key}`: {problem}", if key.is_empty() { "" } else { "." })]
pub struct ConfigError {
    /// The server.
    pub server: String,
    /// The key; empty when it is about all of them.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program that is started and talked to over its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables; `${NAME}` stands for one of the agent's own.
        env: BTreeMap<String, String>,
        /// The folder it works in; the session's otherwise.
        cwd: Option<PathBuf>,
    },
    /// A server that speaks streamable HTTP.
    Http {
        /// Its address; `${NAME}` stands for an environment variable of the agent.
        url: String,
        /// Headers of every request; `${NAME}` stands for an environment variable of the agent.
        headers: BTreeMap<String, String>,
    },
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name, which is part of the names of its tools.
    pub name: ServerName,
    /// How it is reached.
    pub transport: Transport,
    /// Whether it is used.
    pub enabled: bool,
    /// Time that a call may take.
    pub timeout: Duration,
    /// Time that it may take to start and to tell its tools.
    pub start_timeout: Duration,
    /// The tools that are used; all when it is `None`.
    pub tools: Option<BTreeSet<String>>,
    /// Whether it is believed which of its tools only read.
    pub trust: bool,
}

impl ServerConfig {
    /// Makes the configuration of a server with everything else as usual.
    #[must_use]
    pub fn new(name: ServerName, transport: Transport) -> Self {
        Self {
            name,
            transport,
            enabled: true,
            timeout: CALL_TIME,
            start_timeout: START_TIME,
            tools: None,
            trust: false,
        }
    }

    /// Reads what a configuration file says.
    ///
    /// # Errors
    /// [`ConfigError`], which names the key.
    pub fn from_file(name: &str, file: ServerFile) -> Result<Self, ConfigError> {
        let wrong = |key, problem: String| ConfigError {
            server: name.to_owned(),
            key,
            problem,
        };
        let seconds = |key, given: Option<u64>, usual: Duration| match given {
            None => Ok(usual),
            Some(seconds @ 1..=SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
            Some(_) => Err(wrong(key, format!("write seconds from 1 to {SECONDS_MAX}"))),
        };
        let transport = file
            .transport()
            .map_err(|(key, problem)| wrong(key, problem))?;
        Ok(Self {
            transport,
            enabled: file.enabled.unwrap_or(true),
            timeout: seconds("timeout_seconds", file.timeout_seconds, CALL_TIME)?,
            start_timeout: seconds("start_seconds", file.start_seconds, START_TIME)?,
            tools: file.tools,
            trust: file.trust.unwrap_or(false),
            name: ServerName::parse(name).map_err(|problem| wrong("", problem))?,
        })
    }

    /// Returns the way to the server in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.transport {
            Transport::Stdio { .. } => "stdio",
            Transport::Http { .. } => "http",
        }
    }
}

impl ServerFile {
    fn transport(&self) -> Result<Transport, (&'static str, String)> {
        let (command, url) = (self.command.as_ref(), self.url.as_ref());
        let only = |key, of: &str| Err((key, format!("it belongs to a server with `{of}`")));
        match (command, url) {
            (Some(_), Some(_)) => Err(("url", "name either `command` or `url`".into())),
            (None, None) => Err((
                "",
                "name the program to start as `command`, or the server's address as `url`".into(),
            )),
            (Some(_), None) if self.headers.is_some() => only("headers", "url"),
            (Some(command), None) => {
                if command.trim().is_empty() {
                    return Err(("command", "it is empty".into()));
                }
                let env = self.env.clone().unwrap_or_default();
                let bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
                if let Some(name) = env.keys().find(|name| bad(name)) {
                    return Err(("env", format!("`{name}` is no name of a variable")));
                }
                check_references("env", &env)?;
                let texts = [command].into_iter().chain(self.args.iter().flatten());
                if texts.chain(env.values()).any(|text| text.contains('\0')) {
                    return Err(("command", "a NUL cannot be part of it".into()));
                }
                Ok(Transport::Stdio {
                    command: command.clone(),
                    args: self.args.clone().unwrap_or_default(),
                    env,
                    cwd: self.cwd.clone(),
                })
            }
            (None, Some(_)) if self.args.is_some() => only("args", "command"),
            (None, Some(_)) if self.env.is_some() => only("env", "command"),
            (None, Some(_)) if self.cwd.is_some() => only("cwd", "command"),
            (None, Some(url)) => {
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err(("url", "it begins with `http://` or `https://`".into()));
                }
                references(url).map_err(|problem| ("url", problem))?;
                let headers = self.headers.clone().unwrap_or_default();
                let bad = |name: &&String| {
                    reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err()
                };
                if let Some(name) = headers.keys().find(bad) {
                    return Err(("headers", format!("`{name}` is no name of a header")));
                }
                check_references("headers", &headers)?;
                Ok(Transport::Http {
                    url: url.clone(),
                    headers,
                })
            }
        }
    }
}

fn check_references(
    key: &'static str,
    values: &BTreeMap<String, String>,
) -> Result<(), (&'static str, String)> {
    for (name, value) in values {
        references(value).map_err(|problem| (key, format!("`{name}`: {problem}")))?;
    }
    Ok(())
}

/// A piece of a value.
enum Piece<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// Splits a value at its references; `$$` stands for a dollar sign.
fn references(value: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        pieces.push(Piece::Text(before));
        if let Some(after) = from.strip_prefix("$$") {
            pieces.push(Piece::Text("$"));
            rest = after;
        } else if let Some(inside) = from.strip_prefix("${") {
            let (name, after) = inside
                .split_once('}')
                .ok_or_else(|| "a `${` has no `}`".to_owned())?;
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(fits) {
                return Err("between `${` and `}` stands the name of a variable".into());
            }
            pieces.push(Piece::Variable(name));
            rest = after;
        } else {
            pieces.push(Piece::Text("$"));
            rest = &from[1..];
        }
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Puts environment variables into a value.
///
/// # Errors
/// The name of a variable that is not set; never a value.
pub(crate) fn expand(
    value: &str,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<String, Problem> {
    let pieces = references(value).map_err(Problem::new)?;
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Variable(name) => out.push_str(&variable(name).ok_or_else(|| {
                Problem::new(format!("the environment variable {name} is not set"))
            })?),
        }
    }
    Ok(out)
}

/// Returns a variable of this process.
pub(crate) fn own_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio() -> ServerFile {
        ServerFile {
            command: Some("server".into()),
            ..ServerFile::default()
        }
    }

    fn http() -> ServerFile {
        ServerFile {
            url: Some("http://127.0.0.1/mcp".into()),
            ..ServerFile::default()
        }
    }

    fn map(name: &str, value: &str) -> Option<BTreeMap<String, String>> {
        Some(BTreeMap::from([(name.into(), value.into())]))
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let config = ServerConfig::from_file("a", stdio()).unwrap();
        assert!(config.enabled && !config.trust && config.tools.is_none());
        assert_eq!((config.timeout, config.kind()), (CALL_TIME, "stdio"));
        assert_eq!(ServerConfig::from_file("a", http()).unwrap().kind(), "http");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key() {
        let none = ServerFile::default();
        let both = ServerFile {
            url: http().url,
            ..stdio()
        };
        let cases = [
            ("mcp.a:", "a", none),
            ("mcp.a.url:", "a", both),
            ("mcp.a__b:", "a__b", stdio()),
            (
                "mcp.a.command",
                "a",
                ServerFile {
                    command: Some(" ".into()),
                    ..stdio()
                },
            ),
            (
                "mcp.a.headers",
                "a",
                ServerFile {
                    headers: map("x", "y"),
                    ..stdio()
                },
            ),
            (
                "mcp.a.env",
                "a",
                ServerFile {
                    env: map("x", "y"),
                    ..http()
                },
            ),
            (
                "mcp.a.args",
                "a",
                ServerFile {
                    args: Some(vec![]),
                    ..http()
                },
            ),
            (
                "mcp.a.cwd",
                "a",
                ServerFile {
                    cwd: Some("/".into()),
                    ..http()
                },
            ),
            (
                "mcp.a.env",
                "a",
                ServerFile {
                    env: map("a=b", "y"),
                    ..stdio()
                },
            ),
            (
                "mcp.a.env",
                "a",
                ServerFile {
                    env: map("x", "${y"),
                    ..stdio()
                },
            ),
            (
                "mcp.a.url",
                "a",
                ServerFile {
                    url: Some("ftp://x".into()),
                    ..http()
                },
            ),
            (
                "mcp.a.headers",
                "a",
                ServerFile {
                    headers: map("a b", "y"),
                    ..http()
                },
            ),
            (
                "mcp.a.timeout_seconds",
                "a",
                ServerFile {
                    timeout_seconds: Some(0),
                    ..stdio()
                },
            ),
            (
                "mcp.a.start_seconds",
                "a",
                ServerFile {
                    start_seconds: Some(SECONDS_MAX + 1),
                    ..stdio()
                },
            ),
        ];
        for (named, server, file) in cases {
            let error = ServerConfig::from_file(server, file)
                .unwrap_err()
                .to_string();
            assert!(
                error.replace('`', "").starts_with(named),
                "{named}: {error}"
            );
        }
        let most = ServerFile {
            start_seconds: Some(SECONDS_MAX),
            ..stdio()
        };
        assert!(ServerConfig::from_file("a", most).is_ok());
    }

    #[test]
    fn variables_are_put_in_and_a_missing_one_is_named() {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        let put = |value: &str| expand(value, &variable);
        assert_eq!(put("Bearer ${TOKEN}!").unwrap(), "Bearer s3cret!");
        assert_eq!(put("$$${TOKEN}$x$").unwrap(), "$s3cret$x$");
        let missing = put("${TOKEN}${OTHER}").unwrap_err().to_string();
        assert!(
            missing.contains("OTHER") && !missing.contains("s3cret"),
            "{missing}"
        );
    }
}
