//! Settings: flags first, then the environment, then `config.toml`, then defaults.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use threadline_session::payload::{ApprovalPolicy, SandboxMode};

use crate::{
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
    /// Where the default backend keeps sessions.
    pub(crate) root: PathBuf,
}

impl Settings {
    pub(crate) fn read(flags: Common) -> Outcome<Self> {
        let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = match config_path(&env) {
            Some(path) => read_file(&path)?,
            None => File::default(),
        };
        let root = store_root(&flags, &file, &env)?;
        Ok(Self { flags, file, root })
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

fn store_root(
    flags: &Common,
    file: &File,
    env: &impl Fn(&str) -> Option<OsString>,
) -> Outcome<PathBuf> {
    let given = match (&flags.store, env("THREADLINE_HOME"), &file.store) {
        (Some(address), _, _) => address_path(address, "--store")?,
        (None, Some(home), _) => PathBuf::from(home),
        (None, None, Some(address)) => {
            let path = address_path(address, "`store` in config.toml")?;
            if !path.is_absolute() {
                return Err(Failure::new(
                    "config",
                    format!("`store` in config.toml: `{address}` depends on where you are"),
                )
                .hint("begin the path with a slash"));
            }
            path
        }
        (None, None, None) => absolute(env("XDG_DATA_HOME"))
            .or_else(|| below_home(env, ".local/share"))
            .map(|base| base.join("threadline"))
            .ok_or_else(|| {
                Failure::usage("there is no home directory to keep sessions in")
                    .hint("name a directory: `--store DIR`, or set THREADLINE_HOME")
            })?,
    };
    std::path::absolute(&given).map_err(|error| {
        Failure::usage(format!(
            "the store address {} is no path: {error}",
            given.display()
        ))
        .hint("name a directory: `--store DIR`")
    })
}

/// Takes the directory out of a store address.
fn address_path(address: &str, place: &str) -> Outcome<PathBuf> {
    let refuse = |what: String| {
        Err(Failure::usage(format!("{place}: {what}"))
            .hint("name a directory: `--store DIR`, or `--store jsonl:DIR`"))
    };
    let path = match address.split_once(':') {
        Some(("jsonl", path)) => path,
        Some((scheme @ ("sqlite" | "postgres" | "postgresql"), _)) => {
            return refuse(format!(
                "stores of the kind `{scheme}:` are not in this version, which keeps sessions in \
                 directories only"
            ));
        }
        // One letter before a colon, or a slash before it, is a path.
        Some((scheme, rest)) if rest.starts_with("//") && !scheme.contains('/') => {
            return refuse(format!("`{scheme}:` is no kind of store"));
        }
        _ => address,
    };
    if path.trim().is_empty() {
        return refuse(format!("`{address}` names no directory"));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_addresses_are_directories_or_refused() {
        let path = |address: &str| address_path(address, "--store").map_err(|e| e.message);
        assert_eq!(path("jsonl:/a b"), Ok("/a b".into()));
        assert_eq!(path("/a:b"), Ok("/a:b".into()));
        assert_eq!(path("rel"), Ok("rel".into()));
        for refused in [
            "sqlite:/x.db",
            "postgres://h/db",
            "s3://bucket",
            "jsonl:",
            "",
        ] {
            assert!(
                path(refused).unwrap_err().starts_with("--store: "),
                "{refused}"
            );
        }
    }

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
        let root = store_root(&Common::default(), &File::default(), &env).unwrap();
        assert_eq!(root, PathBuf::from("/home/x/.local/share/threadline"));
        let home = |name: &str| (name == "THREADLINE_HOME").then(|| OsString::from("/t"));
        let root = store_root(&Common::default(), &File::default(), &home).unwrap();
        assert_eq!(root, PathBuf::from("/t"));
    }
}
