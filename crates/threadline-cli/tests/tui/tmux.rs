//! A terminal of its own, driven through tmux.

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::support::{PATIENCE, World, until};

static TERMINALS: AtomicU32 = AtomicU32::new(0);

/// A tmux server with one terminal.
pub(crate) struct Tmux {
    socket: PathBuf,
    env: Vec<(String, String)>,
}

impl Tmux {
    /// Opens a shell in the world's working directory, on a terminal of 80 by 24.
    pub(crate) fn shell(world: &World) -> Self {
        Self::open(world, &["bash", "--norc", "--noprofile"])
    }

    /// Starts the program itself; with it, the terminal ends.
    pub(crate) fn program(world: &World, args: &[&str]) -> Self {
        let mut command = vec![env!("CARGO_BIN_EXE_threadline")];
        command.extend(args);
        Self::open(world, &command)
    }

    fn open(world: &World, command: &[&str]) -> Self {
        let number = TERMINALS.fetch_add(1, Ordering::Relaxed);
        let mut env: Vec<_> = world.env.clone().into_iter().collect();
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_threadline")).parent();
        let path = format!(
            "{}:{}",
            folder.unwrap().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        env.retain(|(name, _)| name != "PATH");
        env.push(("PATH".into(), path));
        env.push(("LC_ALL".into(), "C.UTF-8".into()));
        env.push(("PS1".into(), "sh> ".into()));
        let tmux = Self {
            socket: world.root().join(format!("tmux-{number}")),
            env,
        };
        let work = world.work();
        let work = work.to_str().unwrap();
        let mut args = vec!["-u", "-f", "/dev/null", "new-session", "-d", "-c", work];
        args.extend(["-x", "80", "-y", "24"]);
        args.extend(command);
        tmux.call(&args);
        tmux
    }

    fn call(&self, args: &[&str]) -> Output {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .args(args)
            .env_clear()
            .envs(self.env.iter().cloned())
            .output()
            .expect("tmux is there: `cargo xtask test tui` installs it");
        assert!(
            output.status.success(),
            "tmux {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    fn text(&self, args: &[&str]) -> String {
        String::from_utf8(self.call(args).stdout).unwrap()
    }

    /// Returns what is on the screen.
    pub(crate) fn screen(&self) -> String {
        self.text(&["capture-pane", "-p"])
    }

    /// Returns what is on the screen with its escape sequences.
    pub(crate) fn painted(&self) -> String {
        self.text(&["capture-pane", "-p", "-e"])
    }

    /// Presses keys by their names.
    pub(crate) fn press(&self, keys: &[&str]) {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.call(&args);
    }

    /// Types text.
    pub(crate) fn types(&self, text: &str) {
        self.call(&["send-keys", "-l", text]);
    }

    /// Types a line and sends it.
    pub(crate) fn says(&self, text: &str) {
        self.types(text);
        self.press(&["Enter"]);
    }

    /// Waits until the screen holds all these texts.
    #[track_caller]
    pub(crate) fn sees(&self, texts: &[&str]) {
        self.looks(&format!("{texts:?}"), |screen| {
            texts.iter().all(|text| screen.contains(text))
        });
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub(crate) fn looks(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return;
            }
            assert!(
                std::time::Instant::now() < end,
                "waited in vain for {what}; shown is\n{screen}"
            );
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.call(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Returns the process that the terminal was opened for.
    pub(crate) fn pid(&self) -> i32 {
        let pid = self.text(&["display-message", "-p", "#{pane_pid}"]);
        pid.trim().parse().unwrap()
    }

    /// Returns the program that the shell has started.
    pub(crate) fn child(&self) -> i32 {
        let shell = self.pid();
        let path = format!("/proc/{shell}/task/{shell}/children");
        let mut found = None;
        until("a child of the shell", || {
            let children = std::fs::read_to_string(&path).unwrap_or_default();
            found = children.split_whitespace().next().map(str::to_owned);
            found.is_some()
        });
        found.unwrap().parse().unwrap()
    }

    /// Writes the screen down, where somebody wants to look at it.
    pub(crate) fn photograph(&self, name: &str) {
        if let Some(folder) = std::env::var_os("THREADLINE_CAPTURES") {
            let folder = PathBuf::from(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}.txt")), self.screen()).unwrap();
            std::fs::write(folder.join(format!("{name}.ansi")), self.painted()).unwrap();
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
    }
}
