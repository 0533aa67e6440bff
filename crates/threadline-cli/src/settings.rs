//! Settings: flags first, then the environment, then `config.toml`, then defaults.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use threadline_session::payload::{ApprovalPolicy, SandboxMode};

use crate::{
    address::Address,
    args::Common,
    failure::{Failure, Outcome},
};

/// What `config.toml` may say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) approval: Option<ApprovalPolicy>,
    pub(crate) sandbox: Option<SandboxMode>,
    pub(crate) store: Option<String>,
}

/// All settings of one call of the program.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) flags: Common,
    pub(crate) file: File,
    /// Where sessions are kept.
    pub(crate) address: Address,
    /// A directory for what is kept beside them; `None` when there is no home.
    pub(crate) beside: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn read(flags: Common) -> Outcome<Self> {
        let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = match config_path(&env) {
            Some(path) => read_file(&path)?,
            None => File::default(),
        };
        let address = store_address(&flags, &file, &env)?;
        let beside = match &address {
            Address::Jsonl(root) => Some(root.clone()),
            Address::Sqlite(file) => file.parent().map(Path::to_owned),
            Address::Postgres(_) => data_home(&env),
        };
        Ok(Self {
            flags,
            file,
            address,
            beside,
        })
    }
}

/// Directories of the XDG specification must be absolute; others are to be passed over.
fn absolute(path: Option<OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn below_home(env: &impl Fn(&str) -> Option<OsString>, path: &str) -> Option<PathBuf> {
    absolute(env("HOME")).map(|home| home.join(path))
}

fn config_path(env: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let base = absolute(env("XDG_CONFIG_HOME")).or_else(|| below_home(env, ".config"))?;
    Some(base.join("threadline").join("config.toml"))
}

fn read_file(path: &Path) -> Outcome<File> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(File::default());
        }
        Err(error) => {
            return Err(
                Failure::new("config", format!("{}: {error}", path.display()))
                    .hint("make the file readable, or move it away"),
            );
        }
    };
    parse_file(&text).map_err(|(line, reason)| {
        let place = line.map_or(String::new(), |line| format!(":{line}"));
        Failure::new("config", format!("{}{place}: {reason}", path.display())).hint(format!(
            "mend the file: `${{EDITOR:-vi}} {}`",
            path.display()
        ))
    })
}

/// Returns the settings, or the line and what is wrong with it.
fn parse_file(text: &str) -> Result<File, (Option<usize>, String)> {
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map(|before| before.matches('\n').count() + 1);
        (line, error.message().trim().replace('\n', " "))
    })
}

fn store_address(
    flags: &Common,
    file: &File,
    env: &impl Fn(&str) -> Option<OsString>,
) -> Outcome<Address> {
    let given = match (&flags.store, env("THREADLINE_HOME"), &file.store) {
        (Some(address), _, _) => Address::parse(address, "--store")?,
        (None, Some(home), _) => Address::Jsonl(PathBuf::from(home)),
        (None, None, Some(text)) => {
            let address = Address::parse(text, "`store` in config.toml")?;
            if address.path().is_some_and(|path| !path.is_absolute()) {
                return Err(Failure::new(
                    "config",
                    format!("`store` in config.toml: `{text}` depends on where you are"),
                )
                .hint("begin the path with a slash"));
            }
            address
        }
        (None, None, None) => data_home(env).map(Address::Jsonl).ok_or_else(|| {
            Failure::usage("there is no home directory to keep sessions in")
                .hint("name a directory: `--store DIR`, or set THREADLINE_HOME")
        })?,
    };
    given.absolute()
}

/// Where data is kept when nothing else is said.
fn data_home(env: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    absolute(env("XDG_DATA_HOME"))
        .or_else(|| below_home(env, ".local/share"))
        .map(|base| base.join("threadline"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_and_wrong_types_of_the_configuration_are_named_with_their_line() {
        let (line, reason) = parse_file("model = \"m\"\ncolour = 1\n").unwrap_err();
        assert_eq!(line, Some(2));
        assert!(reason.contains("unknown field `colour`"), "{reason}");
        let (line, reason) = parse_file("approval = \"sometimes\"\n").unwrap_err();
        assert_eq!(line, Some(1));
        assert!(reason.contains("on_request"), "{reason}");
        assert!(parse_file("model = 3").is_err());
        let file = parse_file("approval = \"never\"\nsandbox = \"read_only\"").unwrap();
        assert_eq!(file.sandbox, Some(SandboxMode::ReadOnly));
    }

    #[test]
    fn relative_xdg_directories_are_passed_over() {
        let env = |name: &str| match name {
            "XDG_DATA_HOME" => Some(OsString::from("relative")),
            "HOME" => Some(OsString::from("/home/x")),
            _ => None,
        };
        let found = store_address(&Common::default(), &File::default(), &env).unwrap();
        assert_eq!(
            found,
            Address::Jsonl("/home/x/.local/share/threadline".into())
        );
        let home = |name: &str| (name == "THREADLINE_HOME").then(|| OsString::from("/t"));
        let found = store_address(&Common::default(), &File::default(), &home).unwrap();
        assert_eq!(found, Address::Jsonl("/t".into()));
    }
}
