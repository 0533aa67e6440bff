//! A PostgreSQL cluster of the tests' own, on a socket in a temporary folder.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    io::Write,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use threadline_postgres::{PostgresBackend, PostgresOptions};

/// Nothing of a cluster takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a shell does for a cluster whose tests end in any other way than by dropping it.
const GUARD: &str = "read -r _ && exit; kill -QUIT \"$0\" 2>/dev/null; \
    while kill -0 \"$0\" 2>/dev/null; do sleep 0.1; done; rm -rf \"$1\"";

/// A cluster. It is stopped when it is dropped, and also when this process ends in any other way.
pub(crate) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(String, u32, u32)>,
    server: Option<Server>,
}

struct Server {
    postmaster: Child,
    /// When the input of this shell ends without a word, it stops the server and removes its folder.
    guard: Child,
}

impl Cluster {
    /// Makes a cluster and starts it.
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("threadline-pg-")
            .tempdir()
            .unwrap();
        let mut cluster = Self {
            user: geteuid().is_root().then(other_user),
            programs: programs(),
            folder,
            server: None,
        };
        if let Some((_, uid, gid)) = &cluster.user {
            chown(cluster.folder.path(), Some(*uid), Some(*gid)).unwrap();
        }
        let made = cluster
            .command("initdb")
            .arg("-D")
            .arg(cluster.data())
            .args([
                "-A",
                "trust",
                "-U",
                "threadline",
                "-E",
                "UTF8",
                "--locale=C",
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {made:?}");
        cluster.run();
        cluster
    }

    /// Starts the server, and waits until it takes connections.
    pub(crate) fn run(&mut self) {
        assert!(self.server.is_none());
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k");
        command.arg(self.folder.path());
        for setting in [
            "listen_addresses=",
            "fsync=on",
            "max_connections=400",
            "max_wal_size=4GB",
        ] {
            command.args(["-c", setting]);
        }
        // In groups of their own, so that what stops the tests stops the server in its order.
        let postmaster = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let guard = Command::new("sh")
            .arg("-c")
            .arg(GUARD)
            .arg(postmaster.id().to_string())
            .arg(self.folder.path())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        self.server = Some(Server { postmaster, guard });
        let started = Instant::now();
        while !self.ready() {
            assert!(started.elapsed() < PATIENCE, "{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ready(&self) -> bool {
        let state = std::fs::read_to_string(self.data().join("postmaster.pid"));
        state.is_ok_and(|state| state.lines().any(|line| line.trim() == "ready"))
    }

    /// Stops the server as a crash does: no checkpoint, every connection cut.
    pub(crate) fn crash(&mut self) {
        self.stop(Signal::QUIT);
    }

    fn stop(&mut self, signal: Signal) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let pid = Pid::from_child(&server.postmaster);
        kill_process(pid, signal).unwrap();
        server.postmaster.wait().unwrap();
        let mut word = server.guard.stdin.take().unwrap();
        word.write_all(b"stopped\n").unwrap();
        server.guard.wait().unwrap();
    }

    /// Returns what the server has written.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the folder of its socket.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its address.
    pub(crate) fn url(&self) -> String {
        url(self.folder.path())
    }

    /// Returns options with a schema that nobody has used.
    pub(crate) fn options(&self) -> PostgresOptions {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        PostgresOptions {
            schema: format!("t{}", SCHEMAS.fetch_add(1, Ordering::Relaxed)),
            ..PostgresOptions::default()
        }
    }

    /// Opens a connection beside the backend, with its schema as the default.
    pub(crate) async fn sql(&self, schema: &str) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        let sql = format!("SET search_path TO \"{schema}\"");
        client.batch_execute(&sql).await.unwrap();
        client
    }

    /// Connects a backend.
    pub(crate) async fn backend(&self, options: &PostgresOptions) -> PostgresBackend {
        PostgresBackend::connect(&self.url(), options.clone())
            .await
            .unwrap()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match &self.user {
            None => Command::new(program),
            Some((_, uid, gid)) => {
                let mut command = Command::new("setpriv");
                command
                    .args([format!("--reuid={uid}"), format!("--regid={gid}")])
                    .arg("--clear-groups")
                    .arg(program);
                command
            }
        };
        command.current_dir("/");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(Signal::QUIT);
    }
}

/// Returns the address of a server whose socket is in a folder.
pub(crate) fn url(folder: &Path) -> String {
    let host = folder.display().to_string().replace('/', "%2F");
    format!("postgres://threadline@{host}/postgres")
}

/// Returns who runs the server when root runs the tests: the server refuses to be root's.
fn other_user() -> (String, u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let found = ["postgres", "nobody"].into_iter().find_map(|wanted| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((wanted.to_owned(), uid, gid))
    });
    found.expect("a user who is not root")
}

/// Returns the folder of the server's programs.
fn programs() -> PathBuf {
    let mut folders = Vec::new();
    if let Ok(told) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&told.stdout).trim()));
    }
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    folders.into_iter().find(complete).expect(
        "PostgreSQL's server is not installed; `cargo xtask test` installs it (Debian's postgresql)",
    )
}

/// Waits until something is as wanted.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
