//! Addresses and options.

use std::{path::PathBuf, time::Duration};

use threadline_store::{BackendError, limits};
use tokio_postgres::{Config, config::Host};

/// How the backend works.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Schema that the tables are in; made if it is not there.
    pub schema: String,
    /// Most connections at a time, besides one that listens; at least 2. Each import and each repair
    /// keeps one until its end.
    pub connections: usize,
    /// How long a session stays claimed when nothing is heard from its writer any more.
    pub lease: Duration,
    /// How long a writer tries to find out what became of a batch when the connection was lost.
    pub outcome_wait: Duration,
    /// Whether followers are woken through LISTEN and NOTIFY. Without, they look now and then.
    pub notify: bool,
    /// How often a followed session is looked at.
    pub poll: Duration,
    /// Bytes of log that are worth a checkpoint.
    pub checkpoint_every: u64,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "threadline".into(),
            connections: 16,
            lease: Duration::from_secs(15),
            outcome_wait: Duration::from_secs(10),
            notify: true,
            poll: limits::POLL_INTERVAL,
            checkpoint_every: limits::CHECKPOINT_BYTES,
        }
    }
}

/// How the server's certificate is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Not at all: `sslmode=prefer`, which takes no encryption for good too.
    Anyone,
    /// The usual certificate authorities.
    Public,
    /// Those in a PEM file.
    File(PathBuf),
}

/// An address, read.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) trust: Trust,
    /// The address without a password.
    pub(crate) shown: String,
    /// Host and database, for people.
    pub(crate) place: String,
}

impl Address {
    /// Reads an address, of which no error shows the password.
    pub(crate) fn parse(url: &str) -> Result<Self, BackendError> {
        let refused = |reason: String| BackendError::new("reading the store's address", reason);
        let known = ["postgres://", "postgresql://"];
        let Some(scheme) = known.into_iter().find(|scheme| url.starts_with(scheme)) else {
            return Err(refused(
                "it does not begin with postgres:// or postgresql://".into(),
            ));
        };
        let rest = url.get(scheme.len()..).unwrap_or_default();
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut trust = Trust::Anyone;
        let (mut file, mut kept) = (None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                // tokio-postgres knows these only as `require`, and leaves trust to us.
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => {
                    trust = Trust::Public;
                    kept.push("sslmode=require");
                }
                Some(("sslrootcert", path)) => file = Some(PathBuf::from(unescaped(path))),
                _ => kept.push(pair),
            }
        }
        if let Some(file) = file {
            trust = Trust::File(file);
        }
        let mut given = format!("{scheme}{base}");
        if !kept.is_empty() {
            given = format!("{given}?{}", kept.join("&"));
        }
        let mut config: Config = given
            .parse()
            .map_err(|error: tokio_postgres::Error| refused(error.to_string()))?;
        if config.get_application_name().is_none() {
            config.application_name("threadline");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(30));
        }
        let place = place(&config);
        Ok(Self {
            shown: without_password(scheme, base, query),
            place,
            config,
            trust,
        })
    }
}

fn without_password(scheme: &str, base: &str, query: &str) -> String {
    let (user, host) = base
        .rsplit_once('@')
        .map_or((None, base), |(user, host)| (Some(user), host));
    let user = user
        .map(|user| user.split(':').next().unwrap_or_default())
        .map(|user| format!("{user}@"))
        .unwrap_or_default();
    let shown = |pair: &&str| !pair.is_empty() && !pair.starts_with("password=");
    let query: Vec<_> = query.split('&').filter(shown).collect();
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    format!("{scheme}{user}{host}{query}")
}

fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or_else(|| ports.first()).unwrap_or(&5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}/.s.PGSQL.{port}", path.display()),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    let database = config.get_dbname().or_else(|| config.get_user());
    format!(
        "database {} on {}",
        database.unwrap_or("(default)"),
        hosts.join(", ")
    )
}

/// Replaces `%` and two hex digits by the byte they mean.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() {
            behind.get(2..).unwrap_or_default()
        } else {
            behind
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h/d", "postgres://u@h/d"),
            ("postgres://u:se@cret@h:1/d", "postgres://u@h:1/d"),
            (
                "postgresql:///d?host=/run&password=secret&user=u",
                "postgresql:///d?host=/run&user=u",
            ),
            ("postgres://h/d?password=secret", "postgres://h/d"),
        ] {
            let read = Address::parse(url);
            if let Ok(address) = read {
                assert_eq!(address.shown, shown);
                assert!(!format!("{address:?}").contains("secret"), "{address:?}");
            }
        }
        for bad in ["postgres://u:secret@h/d?nonsense=1", "mysql://u:secret@h/d"] {
            let error = threadline_store::error_chain(&Address::parse(bad).unwrap_err());
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn trust_follows_the_ssl_mode() {
        let trust = |url| Address::parse(url).unwrap().trust;
        assert_eq!(trust("postgres://h/d"), Trust::Anyone);
        assert_eq!(trust("postgres://h/d?sslmode=require"), Trust::Public);
        assert_eq!(trust("postgres://h/d?sslmode=verify-full"), Trust::Public);
        assert_eq!(
            trust("postgres://h/d?sslmode=require&sslrootcert=%2Fca.pem"),
            Trust::File("/ca.pem".into())
        );
    }
}
