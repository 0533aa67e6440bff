//! Other processes: this program again, in a role.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

pub(crate) const ROOT: &str = "THREADLINE_TEST_CONTENTION_ROOT";
pub(crate) const ROLE: &str = "THREADLINE_TEST_CONTENTION_ROLE";

/// A child, which is killed when it is dropped.
pub(crate) struct Other {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Other {
    pub(crate) fn start(root: &Path, role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "contention::child::child"])
            .args(["--ignored", "--nocapture"])
            .env(ROOT, root)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("another process");
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output, for a thread that reads it.
    pub(crate) fn output(&mut self) -> BufReader<ChildStdout> {
        self.lines.take().expect("its output")
    }

    /// Returns the next line that is a word to us; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<String> {
        let lines = self.lines.as_mut().expect("its output");
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).expect("a line") == 0 {
                return None;
            }
            if let Some(word) = word(&line) {
                return Some(word);
            }
        }
    }

    pub(crate) fn tell(&mut self, word: &str) {
        let input = self.child.stdin.as_mut().expect("its input");
        // It may be dead by now.
        let _ = writeln!(input, "{word}");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.expect("kill").success(), "{name} {pid}");
    }

    /// Stops it, and waits until it is.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let path = format!("/proc/{}/stat", self.child.id());
        loop {
            let stat = std::fs::read_to_string(&path).expect("its state");
            let state = stat.rsplit(") ").next().and_then(|it| it.chars().next());
            if state == Some('T') {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Kills it without a chance to clean up, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().expect("its end");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a child says begins so; the rest is of the test runner.
const MARK: &str = "> ";

/// Says something to the parent.
pub(crate) fn say(word: &str) {
    // In one write, so that a kill leaves no half of it to be taken for a whole.
    let text = format!("\n{MARK}{word}\n");
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).expect("the parent");
    out.flush().expect("the parent");
}

/// Returns what a line says, if it is whole.
pub(crate) fn word(line: &str) -> Option<String> {
    let whole = line.strip_suffix('\n')?;
    whole.strip_prefix(MARK).map(str::to_owned)
}
