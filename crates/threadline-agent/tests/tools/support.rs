use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use threadline_agent::tools::{ToolContext, ToolOutput, Toolbox};
use threadline_session::payload::{Outcome, SandboxMode};

pub(crate) const MODES: [SandboxMode; 3] = [
    SandboxMode::ReadOnly,
    SandboxMode::WorkspaceWrite,
    SandboxMode::DangerFullAccess,
];

/// A workspace `w` beside a folder `outside`, in a temporary folder.
pub(crate) struct Place {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    pub(crate) ctx: ToolContext,
}

impl Place {
    pub(crate) fn new(sandbox: SandboxMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("w")).unwrap();
        std::fs::create_dir(root.join("outside")).unwrap();
        std::fs::write(root.join("outside/secret"), "hidden\n").unwrap();
        let ctx = ToolContext::new(root.join("w"), sandbox);
        Self {
            _dir: dir,
            root,
            ctx,
        }
    }

    pub(crate) fn writable() -> Self {
        Self::new(SandboxMode::WorkspaceWrite)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.ctx.cwd.join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn link(&self, target: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(target, self.path(name)).unwrap();
    }

    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> ToolOutput {
        let tools = Toolbox::standard();
        tools.get(tool).unwrap().run(&arguments, &self.ctx).await
    }

    /// Runs a call that has to succeed and returns its text.
    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.run(tool, arguments).await;
        assert_eq!(output.outcome, Outcome::Ok, "{}", output.text());
        output.text()
    }

    /// Runs a call that has to end in another way and returns its text.
    pub(crate) async fn not_ok(&self, tool: &str, arguments: Value, outcome: Outcome) -> String {
        let output = self.run(tool, arguments).await;
        assert_eq!(output.outcome, outcome, "{}", output.text());
        output.text()
    }
}

/// Looks until the condition holds; a minute is far more than any of them takes.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
