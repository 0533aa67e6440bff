//! The bounds of one shell command: its launcher, its policy and its private folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use threadline_sandbox::{Error, Launcher, Layers, Policy, Sandbox};
use threadline_session::payload::SandboxMode;

use super::private::Private;
use super::{ToolContext, ToolOutput};

/// What a command runs inside of. Dropping it removes the private folder.
pub(crate) struct Bounds {
    /// None when nothing holds a command of the mode without a sandbox.
    held: Option<(Sandbox, Policy)>,
    temp: Option<Private>,
}

impl Bounds {
    /// Makes the bounds of a call. A command that has to be sandboxed and cannot be is refused.
    pub(crate) async fn new(ctx: &ToolContext) -> Result<Self, ToolOutput> {
        let ctx = ctx.clone();
        let made = tokio::task::spawn_blocking(move || Self::make(&ctx)).await;
        match made {
            Ok(made) => made.map_err(ToolOutput::error),
            Err(error) => {
                tracing::error!(%error, "making the bounds of a command broke");
                Err(ToolOutput::error(
                    "the sandbox broke while it was made, so the command was not run; this is a \
                     defect of threadline",
                ))
            }
        }
    }

    fn make(ctx: &ToolContext) -> Result<Self, String> {
        let full = ctx.sandbox == SandboxMode::DangerFullAccess;
        let sandbox = match open(ctx) {
            Ok(sandbox) => sandbox,
            // Nothing was promised but that the store is out of reach, which is said in the docs.
            Err(error) if full => {
                tracing::warn!(%error, "nothing keeps commands away from the session store");
                return Ok(Self {
                    held: None,
                    temp: None,
                });
            }
            Err(error) => return Err(error.to_string()),
        };
        let temp = if full {
            None
        } else {
            Some(Private::new().map_err(|error| {
                format!(
                    "the private folder for temporary files cannot be made in `{}`: {error}; the \
                     command was not run; set TMPDIR to a folder that threadline can write",
                    std::env::temp_dir().display()
                )
            })?)
        };
        let policy = policy(ctx, temp.as_ref().map(Private::path), sandbox.layers())?;
        Ok(Self {
            held: Some((sandbox, policy)),
            temp,
        })
    }

    /// Returns the private folder for temporary files.
    pub(crate) fn temp(&self) -> Option<&Path> {
        self.temp.as_ref().map(Private::path)
    }

    /// Returns a path that only the mounts of this command have, when it has its own.
    pub(crate) fn mark(&self) -> Option<&Path> {
        match &self.held {
            Some((sandbox, _)) if sandbox.layers() == Layers::Namespaces => self.temp(),
            _ => None,
        }
    }

    /// Returns program and arguments that run a command inside these bounds.
    pub(crate) fn wrap(&self, command: Vec<OsString>) -> Result<Vec<OsString>, Error> {
        match &self.held {
            Some((sandbox, policy)) => sandbox.command_line(policy, command),
            None => Ok(command),
        }
    }

    /// Removes the private folder and waits for it.
    pub(crate) async fn remove(self) {
        // It fails for what a command made unreadable even for its owner; the system's own
        // cleaning of temporary files takes that.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

fn open(ctx: &ToolContext) -> Result<Sandbox, Error> {
    let launcher = match &ctx.launcher {
        Some(launcher) => launcher.clone(),
        None => Launcher::find()?,
    };
    Sandbox::open(&launcher)
}

fn policy(ctx: &ToolContext, temp: Option<&Path>, layers: Layers) -> Result<Policy, String> {
    let workspace = std::path::absolute(&ctx.cwd).map_err(|error| {
        format!(
            "the working directory `{}` has no absolute path: {error}",
            ctx.cwd.display()
        )
    })?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    Ok(Policy::new(
        ctx.sandbox,
        &workspace,
        temp.unwrap_or(&workspace),
        &ctx.denied,
        home.as_deref(),
        layers,
    ))
}
