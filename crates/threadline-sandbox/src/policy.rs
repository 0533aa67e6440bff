//! What a command may touch, as it is told to the launcher.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadline_session::OsPath;
use threadline_session::payload::SandboxMode;

use crate::Error;
use crate::limits::POLICY_BYTES;
use crate::names::home_secrets;

/// Which means of the kernel hold the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layers {
    /// Landlock, seccomp and mounts of the command's own.
    Namespaces,
    /// Landlock and seccomp, where the system does not give mounts to everybody. It allows less:
    /// folders that hold a protected name cannot get new entries, and no mode, owner or time of a
    /// file can be changed.
    LandlockOnly,
}

/// What one command may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The mode.
    pub mode: SandboxMode,
    /// The workspace, which is also where the command starts.
    pub workspace: OsPath,
    /// The private folder for temporary files.
    pub temp: OsPath,
    /// What no mode opens, such as the session store's own files.
    pub denied: Vec<OsPath>,
    /// What is closed unless the mode is full access, such as the keys of the person.
    pub secrets: Vec<OsPath>,
    /// What holds all this.
    pub layers: Layers,
}

impl Policy {
    /// Makes a policy. Relative paths of `denied` start at the workspace; `home` is where the
    /// person's own keys are looked for.
    #[must_use]
    pub fn new(
        mode: SandboxMode,
        workspace: &Path,
        temp: &Path,
        denied: &[PathBuf],
        home: Option<&Path>,
        layers: Layers,
    ) -> Self {
        Self {
            mode,
            workspace: workspace.into(),
            temp: temp.into(),
            denied: denied
                .iter()
                .map(|path| workspace.join(path).into())
                .collect(),
            secrets: home
                .filter(|home| home.is_absolute() && *home != Path::new("/"))
                .into_iter()
                .flat_map(|home| home_secrets().map(|name| home.join(name).into()))
                .collect(),
            layers,
        }
    }

    /// Returns the policy as the launcher takes it.
    ///
    /// # Errors
    /// When it is larger than an argument may be.
    pub fn to_json(&self) -> Result<String, Error> {
        let json = serde_json::to_string(self).map_err(|error| Error::Policy {
            problem: error.to_string(),
        })?;
        if json.len() > POLICY_BYTES {
            return Err(Error::Policy {
                problem: format!(
                    "it has {} bytes and at most {POLICY_BYTES} are taken, so name fewer denied \
                     paths",
                    json.len()
                ),
            });
        }
        Ok(json)
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(|error| Error::Policy {
            problem: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_json_and_has_a_limit() {
        let make = |denied: &[PathBuf]| {
            let (workspace, home) = (Path::new("/w"), Some(Path::new("/h")));
            let layers = Layers::Namespaces;
            Policy::new(
                SandboxMode::ReadOnly,
                workspace,
                workspace,
                denied,
                home,
                layers,
            )
        };
        let policy = make(&["store".into(), "/abs".into()]);
        assert_eq!(policy.denied, ["/w/store", "/abs"].map(OsPath::from));
        assert!(policy.secrets.contains(&OsPath::from("/h/.ssh")));
        let json = policy.to_json().unwrap();
        assert_eq!(Policy::from_json(&json).unwrap(), policy);
        assert!(Policy::from_json("{}").is_err());
        let rest = make(&["x".into()]).to_json().unwrap().len() - 1;
        assert!(
            make(&["x".repeat(POLICY_BYTES - rest).into()])
                .to_json()
                .is_ok()
        );
        let error = make(&["x".repeat(POLICY_BYTES - rest + 1).into()]).to_json();
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("name fewer denied paths")
        );
    }
}
