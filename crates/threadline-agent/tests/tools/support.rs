use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use threadline_agent::tools::{ToolContext, ToolOutput, Toolbox};
use threadline_sandbox::Launcher;
use threadline_session::payload::{Outcome, SandboxMode};

pub(crate) const MODES: [SandboxMode; 3] = [
    SandboxMode::ReadOnly,
    SandboxMode::WorkspaceWrite,
    SandboxMode::DangerFullAccess,
];

/// Returns the launcher of the sandbox, which cargo does not build for the tests of this package.
pub(crate) fn launcher() -> Launcher {
    static BUILT: OnceLock<Launcher> = OnceLock::new();
    let build = || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = std::process::Command::new(cargo)
            .args(["build", "--quiet", "-p", "threadline-sandbox"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.unwrap().success(), "the launcher cannot be built");
        Launcher::find().unwrap()
    };
    BUILT.get_or_init(build).clone()
}

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
        let mut ctx = ToolContext::new(root.join("w"), sandbox);
        ctx.launcher = Some(launcher());
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
