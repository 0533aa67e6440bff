//! What a policy means for the files that are there right now.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};

use threadline_session::payload::SandboxMode;

use crate::limits::{SEARCHED_ENTRIES, SYMLINKS};
use crate::names::{Protected, protected_name};
use crate::{Error, Policy};

/// Folders of other people's code and of what is built, in which entries are many and keys are
/// examples. Nothing with a secret in it can be moved there: see [`Plan::pinned`].
const NOT_SEARCHED: [&str; 5] = ["node_modules", "target", ".venv", "venv", "__pycache__"];

/// Paths, free of links, by what is to be done with them.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) mode: SandboxMode,
    pub(crate) workspace: PathBuf,
    /// None when nothing is restricted but what is closed in every mode.
    pub(crate) temp: Option<PathBuf>,
    /// Neither read nor written.
    pub(crate) closed: BTreeSet<PathBuf>,
    /// Read, and not written although they lie in the workspace.
    pub(crate) frozen: BTreeSet<PathBuf>,
}

impl Plan {
    pub(crate) fn new(policy: &Policy) -> Result<Self, Error> {
        let workspace = resolve(policy.workspace.as_path())?;
        if !workspace.is_dir() {
            let problem = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(Error::path(workspace, &problem));
        }
        let mut plan = Self {
            mode: policy.mode,
            workspace,
            temp: None,
            closed: BTreeSet::new(),
            frozen: BTreeSet::new(),
        };
        for path in &policy.denied {
            plan.close(path.as_path())?;
        }
        if policy.mode == SandboxMode::DangerFullAccess {
            return Ok(plan);
        }
        plan.check_workspace(policy.mode)?;
        let temp = resolve(policy.temp.as_path())?;
        if is_closed(&plan.closed, &temp) {
            return Err(Error::Path {
                path: temp,
                problem: "temporary files cannot be kept where tools may not go".into(),
            });
        }
        plan.temp = Some(temp);
        for path in &policy.secrets {
            plan.close(path.as_path())?;
        }
        plan.search(SEARCHED_ENTRIES)?;
        plan.keep_launcher()?;
        Ok(plan)
    }

    fn check_workspace(&self, mode: SandboxMode) -> Result<(), Error> {
        let problem = if is_closed(&self.closed, &self.workspace) {
            "it is closed to tools in every sandbox mode"
        } else if mode == SandboxMode::ReadOnly {
            return Ok(());
        } else if self.workspace.parent().is_none() {
            "it is the root of the file system, which no command may write as a whole"
        } else if ["/proc", "/sys", "/dev"]
            .iter()
            .any(|system| self.workspace.starts_with(system))
        {
            "it belongs to the system"
        } else if self.workspace.components().any(is_git) {
            "it is git's own data"
        } else {
            return Ok(());
        };
        Err(Error::Path {
            path: self.workspace.clone(),
            problem: problem.into(),
        })
    }

    /// Closes a path. One that does not exist is closed once a command finds it there.
    fn close(&mut self, path: &Path) -> Result<(), Error> {
        let path = resolve(path)?;
        if path.parent().is_none() {
            return Err(Error::Path {
                path,
                problem: "the whole file system cannot be closed".into(),
            });
        }
        if std::fs::symlink_metadata(&path).is_ok() {
            self.closed.insert(path);
        }
        Ok(())
    }

    /// Protects this program when it lies in the workspace: what replaced it would run the next
    /// command, and nothing would hold it.
    fn keep_launcher(&mut self) -> Result<(), Error> {
        let own = std::env::current_exe().map_err(|error| Error::path("/proc/self/exe", &error))?;
        if own.starts_with(&self.workspace) {
            self.frozen.insert(own);
        }
        Ok(())
    }

    /// Returns the folders of the workspace that lead to something protected. They must keep their
    /// names, or a command could hide them from the next one's search.
    pub(crate) fn pinned(&self) -> BTreeSet<PathBuf> {
        let protected = self.closed.iter().chain(&self.frozen);
        protected
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|above| above.starts_with(&self.workspace) && *above != self.workspace)
            .map(Path::to_path_buf)
            .collect()
    }

    /// Finds protected names in the workspace.
    fn search(&mut self, most: usize) -> Result<(), Error> {
        let mut folders = vec![self.workspace.clone()];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if folder == self.workspace => return Err(Error::path(folder, &error)),
                // Its owner can open it again, so what is not seen is closed.
                Err(_) => {
                    self.closed.insert(folder);
                    continue;
                }
            };
            for entry in entries.flatten() {
                seen += 1;
                if seen > most {
                    return Err(Error::Path {
                        path: self.workspace.clone(),
                        problem: format!(
                            "it has more than {most} entries, too many to be searched for secrets"
                        ),
                    });
                }
                match protected_name(&entry.file_name()) {
                    Some(what) => self.protect(&folder, &entry.path(), what)?,
                    None if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                        let path = entry.path();
                        let left_out = NOT_SEARCHED.iter().any(|name| entry.file_name() == *name);
                        if !left_out && !self.closed.contains(&path) {
                            folders.push(path);
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn protect(&mut self, folder: &Path, path: &Path, what: Protected) -> Result<(), Error> {
        // The name is a link's, and the secret is where it leads.
        let target = match path.canonicalize() {
            Ok(target) => target,
            // It leads nowhere, or in a circle.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            Err(error) if is_loop(&error) => return Ok(()),
            Err(error) if folder == self.workspace => return Err(Error::path(path, &error)),
            // The folder can be listed and not entered; its owner can change that.
            Err(_) => {
                self.closed.insert(folder.into());
                return Ok(());
            }
        };
        let ancestor = self.workspace.starts_with(&target) || Path::new("/dev/null") == target;
        if ancestor {
            return Ok(());
        }
        match what {
            Protected::Git if target.starts_with(&self.workspace) => {
                self.frozen.insert(target);
            }
            Protected::Git => {}
            Protected::Environment | Protected::Key => {
                self.closed.insert(target);
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

#[cfg(not(target_os = "linux"))]
fn is_loop(_error: &io::Error) -> bool {
    false
}

fn is_git(part: Component<'_>) -> bool {
    matches!(part, Component::Normal(name) if protected_name(name) == Some(Protected::Git))
}

/// Returns whether a path is, or is inside, one of the set.
pub(crate) fn is_closed(closed: &BTreeSet<PathBuf>, path: &Path) -> bool {
    path.ancestors().any(|above| closed.contains(above))
}

/// Returns whether anything of the set is inside a path.
pub(crate) fn has_closed(closed: &BTreeSet<PathBuf>, path: &Path) -> bool {
    // Paths are ordered by their parts, so what is inside a folder comes right after it.
    let after = (Bound::Excluded(path), Bound::Unbounded);
    closed
        .range::<Path, _>(after)
        .next()
        .is_some_and(|next| next.starts_with(path))
}

/// Resolves every link of an absolute path, also when its end does not exist.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let mut path = path.to_path_buf();
    let mut missing: Vec<std::ffi::OsString> = Vec::new();
    for _ in 0..=SYMLINKS * 8 {
        match path.canonicalize() {
            Ok(found) => {
                let whole = missing
                    .iter()
                    .rev()
                    .fold(found, |path, name| path.join(name));
                return Ok(whole);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link whose target is missing stands for the target.
                if let Ok(target) = std::fs::read_link(&path) {
                    path = path.parent().unwrap_or_else(|| Path::new("/")).join(target);
                    continue;
                }
                let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
                    return Err(Error::path(path, &error));
                };
                if name == OsStr::new("..") {
                    return Err(Error::path(path, &error));
                }
                missing.push(name.to_owned());
                path = parent.to_path_buf();
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                // Below a file there is nothing to close.
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // What this process cannot reach, the command cannot reach either.
                return Ok(path);
            }
            Err(error) => return Err(Error::path(path, &error)),
        }
    }
    Err(Error::path(
        path,
        &io::Error::other("it goes through too many symbolic links"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(workspace: &Path) -> Plan {
        Plan {
            mode: SandboxMode::WorkspaceWrite,
            workspace: workspace.canonicalize().unwrap(),
            temp: None,
            closed: BTreeSet::new(),
            frozen: BTreeSet::new(),
        }
    }

    #[test]
    fn a_workspace_is_searched_up_to_the_limit_and_refused_above_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("node_modules/deep")).unwrap();
        std::fs::create_dir_all(dir.path().join("x/y")).unwrap();
        for name in ["node_modules/.env", "node_modules/deep/b", "x/y/.env"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let mut plan = plan(dir.path());
        plan.search(4).unwrap();
        let at = |name: &str| plan.workspace.join(name);
        assert_eq!(plan.closed, BTreeSet::from([at("x/y/.env")]));
        assert_eq!(plan.pinned(), BTreeSet::from([at("x"), at("x/y")]));
        let error = plan.search(3).unwrap_err();
        assert!(error.to_string().contains("more than 3 entries"), "{error}");
    }

    #[test]
    fn links_to_nowhere_and_in_circles_are_no_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let link = |to, name| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        for (to, name) in [
            ("gone", ".env"),
            (".env.b", ".env.a"),
            (".env.a", ".env.b"),
            (".", ".env.c"),
            ("/dev/null", ".env.d"),
            ("real", ".env.e"),
        ] {
            link(to, name);
        }
        std::fs::write(dir.path().join("real"), "").unwrap();
        let mut plan = plan(dir.path());
        plan.search(100).unwrap();
        assert_eq!(plan.closed, BTreeSet::from([plan.workspace.join("real")]));
    }

    #[test]
    fn what_is_closed_is_found_from_above_and_from_below() {
        let closed: BTreeSet<PathBuf> = ["/a/b", "/a/b-c", "/d"].map(PathBuf::from).into();
        for inside in ["/a/b", "/a/b/x", "/d/e/f"] {
            assert!(is_closed(&closed, Path::new(inside)), "{inside}");
        }
        for outside in ["/a", "/a/bc", "/"] {
            assert!(!is_closed(&closed, Path::new(outside)), "{outside}");
        }
        for above in ["/", "/a"] {
            assert!(has_closed(&closed, Path::new(above)), "{above}");
        }
        for beside in ["/a/b", "/a/c", "/b", "/d"] {
            assert!(!has_closed(&closed, Path::new(beside)), "{beside}");
        }
    }
}
