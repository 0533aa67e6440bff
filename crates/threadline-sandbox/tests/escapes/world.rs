//! A workspace and what lies around it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use threadline_sandbox::{Launcher, Layers, Policy, Sandbox};
use threadline_session::payload::SandboxMode;

/// What nobody may learn.
pub(crate) const SECRET: &str = "TOP-SECRET";
/// What an attempt says that has succeeded without leaving a trace.
pub(crate) const ESCAPED: &str = "ESCAPED";

pub(crate) const LAYERS: [Layers; 2] = [Layers::Namespaces, Layers::LandlockOnly];

/// Returns the sandbox; its sentence says what a kernel lacks.
pub(crate) fn sandbox() -> Sandbox {
    let launcher = Launcher::new(env!("CARGO_BIN_EXE_threadline-sandbox"));
    Sandbox::open(&launcher).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the layers that this system can hold; the second does with less.
pub(crate) fn layers() -> Vec<Layers> {
    let best = sandbox().layers();
    LAYERS
        .into_iter()
        .skip_while(|layers| *layers != best)
        .collect()
}

/// A process that is none of the command's business, with a secret in its environment.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct World {
    _dir: TempDir,
    pub(crate) root: PathBuf,
    victim: Victim,
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: UnixListener,
}

/// One output and how it ended.
pub(crate) struct Ran {
    pub(crate) text: String,
    pub(crate) ok: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let secret = format!("{SECRET}\n");
        put("outside/file", "old\n");
        put("outside/folder/inner", "old\n");
        put("store/sessions/log", &secret);
        put("home/.ssh/id_rsa", &secret);
        put("home/.aws/credentials", &secret);
        put("w/.env", &secret);
        put("w/sub/.env.local", &secret);
        put("w/sub/id_rsa", &secret);
        put("w/server.pem", &secret);
        put("w/real-secrets", &secret);
        put("w/plain", "plain\n");
        put("w/open/inner", "");
        put("w/.git/HEAD", "ref: refs/heads/main\n");
        put(
            "w/.git/config",
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
        );
        put("w/.git/hooks/sample", "#!/bin/sh\n");
        put("w/.git/objects/x", "");
        put("w/.git/refs/heads/x", "");
        put("w/lib/.git/config", "[core]\n");
        put("w/lib/.git/hooks/sample", "");
        std::fs::create_dir(root.join("temp")).unwrap();
        symlink("../outside", root.join("w/way-out")).unwrap();
        symlink("../outside/file", root.join("w/link-out")).unwrap();
        symlink("../store", root.join("w/way-to-store")).unwrap();
        symlink("real-secrets", root.join("w/.env.linked")).unwrap();
        let victim = Command::new("/bin/cat")
            .env("KEY", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let unix = UnixListener::bind(root.join("socket")).unwrap();
        Self {
            root,
            _dir: dir,
            victim: Victim(victim),
            tcp,
            udp,
            _unix: unix,
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn env(&self) -> Vec<(&'static str, OsString)> {
        let port = |at: std::io::Result<std::net::SocketAddr>| at.unwrap().port().to_string();
        let toolchain = |name: &str, folder: &str| {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let own = home.unwrap_or_default().join(folder);
            std::env::var_os(name).unwrap_or_else(|| own.into())
        };
        vec![
            ("PATH", std::env::var_os("PATH").unwrap()),
            ("CARGO_HOME", toolchain("CARGO_HOME", ".cargo")),
            ("RUSTUP_HOME", toolchain("RUSTUP_HOME", ".rustup")),
            ("HOME", self.at("home").into()),
            ("TMPDIR", self.at("temp").into()),
            ("OUT", self.at("outside").into()),
            ("STORE", self.at("store").into()),
            ("VICTIM", self.victim.0.id().to_string().into()),
            ("TCP", port(self.tcp.local_addr()).into()),
            ("UDP", port(self.udp.local_addr()).into()),
            ("SOCKET", self.at("socket").into()),
            ("SELF", std::env::current_exe().unwrap().into()),
            // The helper is one of the tests of this program.
            (
                "HELPER",
                "--exact helper::helper --ignored --nocapture".into(),
            ),
        ]
    }

    pub(crate) fn policy(&self, mode: SandboxMode, layers: Layers) -> Policy {
        Policy::new(
            mode,
            &self.at("w"),
            &self.at("temp"),
            &[self.at("store")],
            Some(&self.at("home")),
            layers,
        )
    }

    /// Runs a command of bash, without a sandbox when there is no policy.
    pub(crate) fn run(&self, command: &str, bounds: Option<(SandboxMode, Layers)>) -> Ran {
        let mut line: Vec<OsString> = ["bash", "-c", command].map(OsString::from).into();
        if let Some((mode, layers)) = bounds {
            let policy = self.policy(mode, layers);
            line = sandbox().command_line(&policy, line).unwrap();
        }
        let output = Command::new(&line[0])
            .args(&line[1..])
            .env_clear()
            .envs(self.env())
            .current_dir(self.at("w"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let failed = output.status.code() == Some(i32::from(threadline_sandbox::FAILED));
        assert!(!(failed && text.contains("threadline: ")), "{text}");
        Ran {
            text,
            ok: output.status.success(),
        }
    }

    /// Returns what a command must not change: what is outside, and what is closed inside.
    pub(crate) fn guarded(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for name in [
            "outside",
            "store",
            "home",
            "w/.git",
            "w/lib/.git",
            "w/.env",
            "w/server.pem",
        ] {
            look(&self.at(name), &mut found);
        }
        look(Path::new("/dev/shm/threadline-escape"), &mut found);
        for entry in std::fs::read_dir(&self.root).unwrap() {
            let path = entry.unwrap().path();
            found.entry(path).or_insert_with(|| "there".into());
        }
        found
    }

    /// Returns whether anything of the guarded world is touched: a connection, or the victim.
    pub(crate) fn is_touched(&mut self) -> bool {
        let mut buffer = [0; 16];
        self.tcp.accept().is_ok()
            || self.udp.recv(&mut buffer).is_ok()
            || self.victim.0.try_wait().unwrap().is_some()
    }
}

fn look(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return;
    };
    let mode = meta.permissions().mode();
    let mut state = format!("{mode:o} {} {}", meta.nlink(), meta.uid());
    if meta.is_file() {
        let content = std::fs::read(path).unwrap();
        state.push_str(&format!(" {} {content:?}", meta.mtime()));
    }
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            look(&entry.unwrap().path(), found);
        }
    }
    found.insert(path.into(), state);
}
