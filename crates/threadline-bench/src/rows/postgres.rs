//! The PostgreSQL backend: a fenced batch beside one plain statement.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::json;
use tempfile::TempDir;
use threadline_postgres::{PostgresBackend, PostgresOptions};
use threadline_session::SessionId;
use threadline_store::{Backend as _, NewLog};
use tokio_postgres::{Client, NoTls};

use super::sqlite::{Batches, EVENTS, rows};
use crate::{Bench, Outcome, measure, measure::Sides, report::Figure};

const BATCHES: usize = 400;
const PATIENCE: Duration = Duration::from_secs(60);
const WHAT: &str = "PostgreSQL, batch of 12 fenced";

/// A cluster on a socket in a folder of its own, which goes with it.
struct Cluster {
    folder: TempDir,
    postmaster: Option<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            // There is nobody to tell, and the folder goes anyway.
            let _ = kill_process(Pid::from_child(&postmaster), Signal::QUIT);
            let _ = postmaster.wait();
        }
    }
}

impl Cluster {
    fn start(programs: &Path) -> Outcome<Self> {
        // A socket's path is short, and others must be able to reach the folder.
        let folder = tempfile::Builder::new()
            .prefix("threadline-bench-pg-")
            .tempdir()?;
        let user = geteuid().is_root().then(other_user).transpose()?;
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let data = folder.path().join("data");
        let made = command(programs, "initdb", user)
            .arg("-D")
            .arg(&data)
            .args(["-A", "trust", "-U", "threadline", "-E", "UTF8"])
            .arg("--locale=C")
            .output()?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("initdb: {}", said.trim()).into());
        }
        let mut server = command(programs, "postgres", user);
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        for setting in ["listen_addresses=", "fsync=on", "max_wal_size=4GB"] {
            server.args(["-c", setting]);
        }
        let postmaster = server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let cluster = Self {
            folder,
            postmaster: Some(postmaster),
        };
        let started = Instant::now();
        while !ready(&data) {
            if started.elapsed() > PATIENCE {
                return Err("the server does not start".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(cluster)
    }

    fn url(&self) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://threadline@{host}/postgres")
    }
}

fn ready(data: &Path) -> bool {
    let state = fs::read_to_string(data.join("postmaster.pid"));
    state.is_ok_and(|state| state.lines().any(|line| line.trim() == "ready"))
}

fn command(programs: &Path, name: &str, user: Option<(u32, u32)>) -> Command {
    let program = programs.join(name);
    let mut command = match user {
        None => Command::new(program),
        Some((uid, gid)) => {
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

/// Returns who runs the server when root runs this: the server refuses to be root's.
fn other_user() -> Outcome<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let find = |wanted: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = ["postgres", "nobody"].into_iter().find_map(find);
    found.ok_or_else(|| "there is no user who is not root".into())
}

fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    folders.sort();
    folders.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    folders.into_iter().find(complete)
}

/// A batch of 12 under the fence, durable.
pub(crate) async fn postgres(_bench: &Bench) -> Outcome<Vec<Figure>> {
    let Some(programs) = programs() else {
        let why = "PostgreSQL's server is not installed";
        return Ok(vec![Figure::failed("postgres", WHAT, why)]);
    };
    let cluster = tokio::task::block_in_place(|| Cluster::start(&programs))?;
    let backend = PostgresBackend::connect(&cluster.url(), PostgresOptions::default()).await?;
    let (client, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
    let connection = tokio::spawn(connection);
    let sides = rounds(&backend, &client).await?;
    drop(client);
    connection.abort();
    let ratio = sides.ratio();
    Ok(vec![
        Figure::new("postgres", WHAT)
            .bar("<= 1.3 x plain unnest", ratio <= 1.3)
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), ratio)
            .detail(json!({ "ours": sides.ours(), "raw": sides.raw(), "rounds": BATCHES })),
    ])
}

async fn rounds(backend: &PostgresBackend, client: &Client) -> Outcome<Sides> {
    client
        .batch_execute(
            "CREATE TABLE plain (session bigint NOT NULL, seq bigint NOT NULL, \
             body text NOT NULL, PRIMARY KEY (session, seq))",
        )
        .await?;
    let insert = client
        .prepare(
            "INSERT INTO plain (session, seq, body) \
             SELECT 1, u.seq, u.body FROM unnest($1::bigint[], $2::text[]) AS u (seq, body)",
        )
        .await?;
    let id = SessionId::parse("bench-postgres")?;
    let mut batches = Batches::new(&id)?;
    let (batch, last_seq) = batches.next()?;
    let new = NewLog {
        header_line: batches.header_line.clone(),
        batch,
        last_seq: Some(last_seq),
        parent: None,
    };
    let mut writer = backend.create(&id, new).await?;
    let mut sides = Sides::default();
    for _ in 0..BATCHES {
        let (batch, last_seq) = batches.next()?;
        let bodies = rows(&batch)?;
        let first = i64::try_from(last_seq + 1 - EVENTS)?;
        let seqs: Vec<i64> = (first..=i64::try_from(last_seq)?).collect();
        let start = Instant::now();
        writer.append(batch, last_seq, true).await?;
        sides.ours.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        client.execute(&insert, &[&seqs, &bodies]).await?;
        sides.raw.push(start.elapsed().as_secs_f64());
    }
    Ok(sides)
}
