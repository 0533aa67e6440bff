//! A world of its own for each test: an empty home, an empty store, no settings from outside.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use threadline_strict_model::{Reply, StrictModel};

/// Longest wait for anything; a test that runs into it has found a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A home, a store and a working directory that nothing else uses.
pub(crate) struct World {
    dir: TempDir,
    /// Environment of every call.
    pub(crate) env: BTreeMap<String, String>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut world = Self {
            dir,
            env: BTreeMap::new(),
        };
        for name in ["PATH", "TMPDIR"] {
            if let Ok(value) = std::env::var(name) {
                world.env.insert(name.into(), value);
            }
        }
        let path = |path: PathBuf| path.to_str().unwrap().to_owned();
        let home = path(world.home());
        let store = path(world.store());
        world.env.insert("HOME".into(), home);
        world.env.insert("THREADLINE_HOME".into(), store);
        world
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    pub(crate) fn store(&self) -> PathBuf {
        match self.env.get("THREADLINE_HOME") {
            Some(store) => PathBuf::from(store),
            None => self.root().join("store"),
        }
    }

    /// Points every call at a strict model server.
    pub(crate) fn with_model(mut self, strict: &Strict) -> Self {
        self.use_model(strict);
        self
    }

    pub(crate) fn use_model(&mut self, strict: &Strict) {
        let config = self.home().join(".config/threadline");
        fs::create_dir_all(&config).unwrap();
        let text = format!(
            "provider = \"openai-chat\"\nmodel = \"m\"\nbase_url = \"{}\"\n",
            strict.model.base_url()
        );
        fs::write(config.join("config.toml"), text).unwrap();
        self.env.insert("OPENAI_API_KEY".into(), "test".into());
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_threadline"));
        command
            .args(args)
            .env_clear()
            .envs(&self.env)
            .current_dir(self.work());
        command
    }

    /// Calls the program with nothing on standard input and waits for its end.
    pub(crate) fn call(&self, args: &[&str]) -> Called {
        self.call_with(args, b"")
    }

    pub(crate) fn call_with(&self, args: &[&str], input: &[u8]) -> Called {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that reads no input has closed it.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        Called {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status,
            root: self.root(),
        }
    }

    /// Starts the program and reads its lines as they come.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::new(self.command(args), None)
    }

    /// Starts the program at a terminal: standard input and error are one, output is read apart.
    pub(crate) fn start_at_terminal(&self, args: &[&str]) -> Running {
        let (main, side) = terminal();
        let mut command = self.command(args);
        command.stdin(side.try_clone().unwrap()).stderr(side);
        Running::new(command, Some(main))
    }

    /// Runs a first turn on the demonstration and returns its session.
    pub(crate) fn hello(&self) -> String {
        let called = self.call(&["run", "--json", "--provider", "offline", "hello"]);
        called.ok();
        called.lines()[0]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Returns the log of a session.
    pub(crate) fn log_path(&self, id: &str) -> PathBuf {
        let mut found = self.files();
        found.retain(|path| path.ends_with(format!("{id}/log.jsonl")));
        assert_eq!(found.len(), 1, "log of {id} among {found:?}");
        found.remove(0)
    }

    pub(crate) fn log(&self, id: &str) -> Vec<u8> {
        fs::read(self.log_path(id)).unwrap()
    }

    /// Returns the events of a session's log, without its header.
    pub(crate) fn events(&self, id: &str) -> Vec<Value> {
        let log = String::from_utf8(self.log(id)).unwrap();
        log.lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns all files of the store but the catalogue, which is derived and written by lists too.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, found);
                } else {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.store(), &mut found);
        let derived = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("catalogue.sqlite")
        };
        found.retain(|path| !derived(path));
        found.sort();
        found
    }

    /// Returns the bytes of all files of the store.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files()
            .into_iter()
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }
}

fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let side = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    (main, side.into())
}

/// What a call gave.
#[derive(Debug)]
#[must_use]
pub(crate) struct Called {
    pub(crate) args: Vec<String>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: ExitStatus,
    root: PathBuf,
}

impl Called {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> &Self {
        self.exits(0)
    }

    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code(), Some(code), "{self:#?}");
        self
    }

    /// Standard error holds all these texts.
    #[track_caller]
    pub(crate) fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.stderr.contains(text), "`{text}` is not in {self:#?}");
        }
        self
    }

    /// Standard output holds all these texts.
    #[track_caller]
    pub(crate) fn prints(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.stdout.contains(text), "`{text}` is not in {self:#?}");
        }
        self
    }

    /// Standard output as lines of JSON.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}: {self:#?}"))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines[0].clone()
    }

    /// Both outputs and the exit code with everything that differs between calls replaced.
    pub(crate) fn redacted(&self) -> String {
        let code = self
            .code()
            .map_or_else(|| "signal".into(), |code| code.to_string());
        let text = format!(
            "exit {code}\n--- stdout\n{}--- stderr\n{}",
            self.stdout, self.stderr
        );
        redact(&text.replace(self.root.to_str().unwrap(), "<root>"))
    }
}

/// Replaces ids and times by placeholders of the same width.
pub(crate) fn redact(text: &str) -> String {
    let bytes = text.as_bytes();
    let shaped = |at: usize, shape: &str| {
        bytes.get(at..at + shape.len()).is_some_and(|found| {
            found
                .iter()
                .zip(shape.bytes())
                .all(|(byte, shape)| match shape {
                    b'x' => byte.is_ascii_hexdigit(),
                    b'9' => byte.is_ascii_digit(),
                    other => *byte == other,
                })
        })
    };
    let shapes = [
        (
            "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
            "<id................................>",
        ),
        ("9999-99-99 99:99:99 UTC", "<time.................>"),
    ];
    let mut out = String::new();
    let mut at = 0;
    while let Some(char) = text[at..].chars().next() {
        match shapes.iter().find(|(shape, _)| shaped(at, shape)) {
            Some((shape, placeholder)) => {
                out.push_str(placeholder);
                at += shape.len();
            }
            None => {
                out.push(char);
                at += char.len_utf8();
            }
        }
    }
    out
}

/// A call that is going on.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Receiver<String>,
    /// Lines of standard output so far.
    pub(crate) seen: Vec<String>,
    stderr: Option<JoinHandle<String>>,
    terminal: Option<fs::File>,
    stdin: Option<ChildStdin>,
}

impl Running {
    fn new(mut command: Command, terminal: Option<OwnedFd>) -> Self {
        command.stdout(Stdio::piped());
        if terminal.is_none() {
            command.stdin(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        // The terminal's other side must be held by the program alone, so that its end is seen.
        drop(command);
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let terminal = terminal.map(fs::File::from);
        let mut source: Box<dyn std::io::Read + Send> = match (&terminal, child.stderr.take()) {
            (Some(terminal), _) => Box::new(terminal.try_clone().unwrap()),
            (None, Some(stderr)) => Box::new(stderr),
            (None, None) => Box::new(std::io::empty()),
        };
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A terminal whose other side is closed gives an error at the end.
            let _ = source.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
            stderr: Some(stderr),
            terminal,
            stdin,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line; `None` when there are no more.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no line within {PATIENCE:?}: {:#?}", self.seen)
            }
        }
    }

    /// Waits for a line of JSON.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        while let Some(line) = self.next_line() {
            let value: Value = serde_json::from_str(&line).unwrap();
            if wanted(&value) {
                return value;
            }
        }
        let stderr = self.stderr.take().map(|stderr| stderr.join().unwrap());
        panic!(
            "the program ended before {what}: {:#?}\n{stderr:?}",
            self.seen
        );
    }

    #[track_caller]
    pub(crate) fn wait_type(&mut self, kind: &str) -> Value {
        self.wait_for(kind, |line| line["type"] == kind)
    }

    /// Types at the terminal.
    pub(crate) fn type_line(&mut self, text: &str) {
        let terminal = self.terminal.as_mut().expect("no terminal");
        terminal.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        // It may have ended by itself meanwhile.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Kills the program as a power cut would, and returns whether it was still alive.
    pub(crate) fn kill(&mut self) -> bool {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap();
        self.drain();
        status.signal() == Some(9)
    }

    /// Stops reading its output.
    pub(crate) fn close_stdout(&mut self) {
        self.lines = channel().1;
    }

    fn drain(&mut self) {
        while self.next_line().is_some() {}
    }

    /// Waits for the end, and returns its status and standard error.
    pub(crate) fn finish(mut self) -> (ExitStatus, Vec<Value>, String) {
        drop(self.stdin.take());
        self.drain();
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "the program does not end");
            std::thread::park_timeout(Duration::from_millis(2));
        };
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let lines = std::mem::take(&mut self.seen);
        let lines = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (status, lines, stderr)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A strict model server beside a test that is not async.
pub(crate) struct Strict {
    runtime: tokio::runtime::Runtime,
    pub(crate) model: StrictModel,
}

impl Strict {
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let model = runtime.block_on(StrictModel::start(script)).unwrap();
        Self { runtime, model }
    }

    fn wait<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let timed = async { tokio::time::timeout(PATIENCE, future).await };
        self.runtime
            .block_on(timed)
            .unwrap_or_else(|_| panic!("waited in vain: {what}"))
    }

    pub(crate) fn wait_reached(&self, gate: &str) {
        let reached = self.model.gate(gate);
        self.wait(gate, async move { reached.wait_reached().await });
    }

    pub(crate) fn wait_requests(&self, count: usize) {
        self.wait("requests", self.model.wait_requests(count));
    }

    /// Returns the messages of the last request.
    pub(crate) fn last_messages(&self) -> Vec<Value> {
        let requests = self.model.requests();
        requests.last().unwrap().json["messages"]
            .as_array()
            .unwrap()
            .clone()
    }
}

/// Returns whether a process runs; one that only waits to be reaped does not.
pub(crate) fn alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// Waits for a file that a tool writes, and returns the process ids in it.
pub(crate) fn pids(path: &Path, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    };
    until("process ids", || read().len() >= count);
    read()
}
