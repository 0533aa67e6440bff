//! Which paths the file tools may touch.
//!
//! A path is resolved by hand, link by link, into the physical path it stands for; the rules look
//! at that. Whoever opens it later goes through [`super::file`], which refuses any link on the
//! way, so a path that is swapped in between fails instead of leading elsewhere.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use threadline_session::payload::SandboxMode;

use super::text::show;
use super::{ToolContext, ToolOutput};
use crate::limits::SYMLINKS;
use crate::policy::{Protected, protected_name};

/// What a tool wants of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To look at it.
    Read,
    /// To make or change it.
    Write,
}

/// A path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It leaves the workspace.
    #[error(
        "refused: `{}` leads to `{}`, outside the working directory `{}`, and the sandbox mode {} \
         keeps to it",
        show(path), show(target), show(root), mode_name(*mode)
    )]
    Outside {
        /// The path as given.
        path: PathBuf,
        /// What it stands for.
        target: PathBuf,
        /// The workspace.
        root: PathBuf,
        /// The mode that forbids it.
        mode: SandboxMode,
    },
    /// Nothing may be written.
    #[error(
        "refused: `{}` cannot be written, because the sandbox mode is read_only",
        show(path)
    )]
    ReadOnly {
        /// The path as given.
        path: PathBuf,
    },
    /// It is part of a folder that is closed to tools.
    #[error(
        "refused: `{}` is inside `{}`, which is closed to tools in every sandbox mode",
        show(path),
        show(folder)
    )]
    Closed {
        /// The path as given.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// Its name is protected.
    #[error("refused: `{}` is {what}, which tools never read or write", show(path))]
    Protected {
        /// The path as given.
        path: PathBuf,
        /// Which rule protects it.
        what: Protected,
    },
    /// Too many symbolic links lead through it.
    #[error("`{}` goes through too many symbolic links", show(path))]
    Loop {
        /// The path as given.
        path: PathBuf,
    },
    /// The system refused to look.
    #[error("`{}`: {source}", show(path))]
    Io {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl PathError {
    /// Returns whether a rule refused it, as opposed to a failure.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Loop { .. } | Self::Io { .. })
    }
}

impl From<PathError> for ToolOutput {
    fn from(error: PathError) -> Self {
        if error.is_refusal() {
            Self::denied(error.to_string())
        } else {
            Self::error(error.to_string())
        }
    }
}

fn mode_name(mode: SandboxMode) -> &'static str {
    match mode {
        SandboxMode::ReadOnly => "read_only",
        SandboxMode::WorkspaceWrite => "workspace_write",
        SandboxMode::DangerFullAccess => "danger_full_access",
    }
}

/// The rules of one call: the workspace, the mode and the closed folders, all resolved.
#[derive(Debug, Clone)]
pub struct PathRules {
    root: PathBuf,
    sandbox: SandboxMode,
    denied: Vec<PathBuf>,
}

impl PathRules {
    /// Makes the rules of a call.
    ///
    /// # Errors
    /// When the working directory, or a closed folder, cannot be resolved.
    pub fn new(ctx: &ToolContext) -> Result<Self, PathError> {
        let root = std::path::absolute(&ctx.cwd)
            .map_err(|source| PathError::Io {
                path: ctx.cwd.clone(),
                source,
            })
            .and_then(|cwd| physical(&cwd, &ctx.cwd))?;
        let denied = ctx
            .denied
            .iter()
            .map(|folder| physical(&root.join(folder), folder))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            root,
            sandbox: ctx.sandbox,
            denied,
        })
    }

    /// Returns the workspace, free of links.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the closed folders, free of links.
    #[must_use]
    pub fn denied(&self) -> &[PathBuf] {
        &self.denied
    }

    /// Resolves a path and returns what it stands for; the last parts need not exist.
    ///
    /// # Errors
    /// When a rule forbids it or the system does not let it be looked at.
    pub fn resolve(&self, given: &Path, access: Access) -> Result<PathBuf, PathError> {
        if access == Access::Write && self.sandbox == SandboxMode::ReadOnly {
            return Err(PathError::ReadOnly { path: given.into() });
        }
        let named = self.root.join(given);
        let target = physical(&named, given)?;
        self.check(given, &target)?;
        // A link called `.env` is taken for what its name says, wherever it leads.
        self.check_names(given, given)?;
        Ok(target)
    }

    /// Returns whether a path that a walk below a resolved one came to may be shown.
    pub(crate) fn allows_found(&self, path: &Path) -> bool {
        self.check(path, path).is_ok()
    }

    /// Returns a resolved path relative to the workspace when it is inside, for showing.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
            Ok(rest) => rest,
            Err(_) => path,
        }
    }

    fn check(&self, given: &Path, target: &Path) -> Result<(), PathError> {
        if let Some(folder) = self.denied.iter().find(|folder| target.starts_with(folder)) {
            return Err(PathError::Closed {
                path: given.into(),
                folder: folder.clone(),
            });
        }
        if self.sandbox != SandboxMode::DangerFullAccess && !target.starts_with(&self.root) {
            return Err(PathError::Outside {
                path: given.into(),
                target: target.into(),
                root: self.root.clone(),
                mode: self.sandbox,
            });
        }
        self.check_names(given, target)
    }

    fn check_names(&self, given: &Path, path: &Path) -> Result<(), PathError> {
        // Working inside a folder that merely looks like an environment file is no secret, but
        // git's own data and folders of keys stay closed from within as well.
        let below = path.strip_prefix(&self.root).ok();
        let within = first_protected(path).filter(|what| *what != Protected::Environment);
        match within.or_else(|| first_protected(below.unwrap_or(path))) {
            None => Ok(()),
            Some(what) => Err(PathError::Protected {
                path: given.into(),
                what,
            }),
        }
    }
}

/// Returns the rule that a path falls under; the one that also holds from within goes first.
fn first_protected(path: &Path) -> Option<Protected> {
    let all = || {
        path.components().filter_map(|part| match part {
            Component::Normal(name) => protected_name(name),
            _ => None,
        })
    };
    all()
        .find(|what| *what != Protected::Environment)
        .or_else(|| all().next())
}

/// A step of a path still to be taken.
enum Step {
    Root,
    Up,
    Down(OsString),
}

fn steps(path: &Path) -> Vec<Step> {
    path.components()
        .rev()
        .filter_map(|part| match part {
            Component::RootDir => Some(Step::Root),
            Component::ParentDir => Some(Step::Up),
            Component::Normal(name) => Some(Step::Down(name.to_owned())),
            Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// Resolves every link of an absolute path, the last one included, also when the end of the path,
/// or the target of a link, does not exist.
fn physical(path: &Path, given: &Path) -> Result<PathBuf, PathError> {
    let fail = |source| PathError::Io {
        path: given.into(),
        source,
    };
    let mut todo = steps(path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = todo.pop() {
        let name: &OsStr = match &step {
            Step::Root => {
                done = PathBuf::from("/");
                continue;
            }
            Step::Up => {
                done.pop();
                continue;
            }
            Step::Down(name) => name,
        };
        done.push(name);
        match std::fs::symlink_metadata(&done) {
            Ok(meta) if meta.is_symlink() => {
                links += 1;
                if links > SYMLINKS {
                    return Err(PathError::Loop { path: given.into() });
                }
                let target = std::fs::read_link(&done).map_err(fail)?;
                done.pop();
                todo.extend(steps(&target));
            }
            Ok(meta) if !meta.is_dir() && matches!(todo.last(), Some(Step::Down(_) | Step::Up)) => {
                return Err(fail(io::ErrorKind::NotADirectory.into()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
    }
    Ok(done)
}
