//! Which launcher there is and what the system can hold.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::launcher::VERB;
use crate::{Error, Layers, Policy};

/// Names of programs that are launchers, the one that does nothing else first.
const LAUNCHERS: [&str; 2] = ["threadline-sandbox", "threadline"];

/// The program that applies the rules to itself and becomes the command. Its first argument is
/// [`VERB`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Launcher(PathBuf);

impl Launcher {
    /// Names the program: `threadline`, or any other whose `main` hands the arguments after
    /// [`VERB`] to [`launcher_main`](crate::launcher_main) before it does anything else.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self(program.into())
    }

    /// Finds the launcher: the running program when it is threadline, else one next to it.
    ///
    /// # Errors
    /// When there is none.
    pub fn find() -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|error| Error::Launcher {
            launcher: PathBuf::from("/proc/self/exe"),
            problem: error.to_string(),
        })?;
        Self::find_for(&still_there(program))
    }

    fn find_for(program: &Path) -> Result<Self, Error> {
        let known = |path: &Path| path.file_name().is_some_and(is_launcher);
        if known(program) {
            return Ok(Self::new(program));
        }
        let folder = program.parent().unwrap_or_else(|| Path::new("/"));
        // Cargo puts tests and examples into a folder of their own, beside the programs.
        let beside = ["deps", "examples"]
            .iter()
            .any(|name| folder.ends_with(name));
        let folder = match folder.parent() {
            Some(above) if beside && cfg!(debug_assertions) => above,
            _ => folder,
        };
        LAUNCHERS
            .iter()
            .map(|name| folder.join(name))
            .find(|path| path.is_file())
            .map(Self)
            .ok_or_else(|| Error::NoLauncher {
                program: program.into(),
            })
    }

    /// Returns the program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.0
    }
}

/// A program that was replaced while it runs is told of with this ending; what took its place is
/// the launcher then, and refuses a policy that it does not understand.
fn still_there(program: PathBuf) -> PathBuf {
    let bytes = program.as_os_str().as_bytes();
    match bytes.strip_suffix(b" (deleted)") {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => program,
    }
}

fn is_launcher(name: &OsStr) -> bool {
    LAUNCHERS.iter().any(|known| name == *known)
}

/// A launcher that works here, and the layers that the system can hold.
#[derive(Debug, Clone)]
pub struct Sandbox {
    launcher: Launcher,
    layers: Layers,
}

impl Sandbox {
    /// Tries what the launcher can do. It takes some milliseconds once per launcher; a failure is
    /// tried again.
    ///
    /// # Errors
    /// When the launcher does not run, or the system cannot hold a sandbox.
    pub fn open(launcher: &Launcher) -> Result<Self, Error> {
        static KNOWN: Mutex<Option<HashMap<Launcher, Layers>>> = Mutex::new(None);
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().as_ref().and_then(|all| all.get(launcher).copied());
        let layers = match found {
            Some(layers) => layers,
            None => {
                let layers = probe(launcher)?;
                known()
                    .get_or_insert_default()
                    .insert(launcher.clone(), layers);
                layers
            }
        };
        Ok(Self {
            launcher: launcher.clone(),
            layers,
        })
    }

    /// Returns what holds the rules on this system.
    #[must_use]
    pub fn layers(&self) -> Layers {
        self.layers
    }

    /// Returns the launcher.
    #[must_use]
    pub fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Returns program and arguments that run a command within a policy.
    ///
    /// # Errors
    /// When the policy is too large.
    pub fn command_line<A: Into<OsString>>(
        &self,
        policy: &Policy,
        command: impl IntoIterator<Item = A>,
    ) -> Result<Vec<OsString>, Error> {
        let mut line: Vec<OsString> = vec![
            self.launcher.0.clone().into(),
            VERB.into(),
            "--policy".into(),
            policy.to_json()?.into(),
            "--".into(),
        ];
        line.extend(command.into_iter().map(Into::into));
        Ok(line)
    }
}

fn probe(launcher: &Launcher) -> Result<Layers, Error> {
    let fail = |problem: String| Error::Launcher {
        launcher: launcher.0.clone(),
        problem,
    };
    let output = Command::new(&launcher.0)
        .args([VERB, "--probe"])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| fail(error.to_string()))?;
    if output.status.success() {
        return serde_json::from_slice(&output.stdout)
            .map_err(|error| fail(format!("it answers what it should not: {error}")));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // The launcher's own sentence is the one about the kernel.
    let missing = said
        .trim()
        .strip_prefix("threadline: this system cannot hold commands inside the sandbox: ")
        .and_then(|rest| rest.split_once("; run threadline on "));
    Err(match missing {
        Some((missing, _)) => Error::Unsupported {
            missing: missing.into(),
        },
        None => fail(format!("{}: {}", output.status, said.trim())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_is_the_program_itself_or_next_to_it() {
        let own = Launcher::find_for(Path::new("/opt/threadline")).unwrap();
        assert_eq!(own.program(), Path::new("/opt/threadline"));
        let replaced = still_there("/opt/threadline (deleted)".into());
        assert_eq!(Launcher::find_for(&replaced).unwrap(), own);
        let error = Launcher::find_for(Path::new("/nowhere/other")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/other"), "{error}");
        assert!(error.to_string().contains("name one as the launcher"));
    }

    #[test]
    fn a_program_that_is_no_launcher_is_told_of() {
        for program in ["/bin/false", "/bin/echo", "/nowhere/threadline"] {
            let error = Sandbox::open(&Launcher::new(program)).unwrap_err();
            assert!(error.to_string().contains(program), "{error}");
            assert!(error.to_string().contains("does not work"), "{error}");
        }
    }
}
