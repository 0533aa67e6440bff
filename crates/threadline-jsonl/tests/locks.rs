//! Locks between real processes, and writers that were fenced at the worst moment.

#![allow(
    clippy::disallowed_methods,
    reason = "real files and processes are the matter"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

#[path = "crash/lineage.rs"]
mod lineage;
#[path = "crash/races.rs"]
mod races;
#[path = "crash/world.rs"]
mod world;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use threadline_jsonl::{Files, JsonlBackend, JsonlOptions};
use threadline_store::{ClaimError, ReadPos};
use world::{Session, read_from};

const ROLE: &str = "THREADLINE_TEST_LOCK_ROOT";

fn store(root: &Path) -> Files {
    let backend = JsonlBackend::open(root, JsonlOptions::default()).expect("a store");
    backend.files().clone()
}

/// The other process: claims the session, says so, and appends a batch for every line it is told.
#[test]
fn the_other_process_writes_what_it_is_told() {
    let Some(root) = std::env::var_os(ROLE) else {
        return;
    };
    let files = store(Path::new(&root));
    let mut session = Session::new(1);
    let log = read_from(&files, &session.id, ReadPos::default(), 1 << 20).expect("a log");
    for line in &log.lines {
        session.tried.push(vec![line.clone()]);
    }
    let mut writer = session.resume(&files).expect("a claim");
    println!("\nclaimed");
    for _ in std::io::stdin().lock().lines() {
        session.append(&mut writer, 2, true).expect("a batch");
        println!("\nappended");
    }
}

struct Other {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(root: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "the_other_process_writes_what_it_is_told",
                "--nocapture",
            ])
            .env(ROLE, root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        let mut other = Self { child, lines };
        other.wait_for("claimed");
        other
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            let read = self.lines.read_line(&mut line).expect("a line");
            assert!(read > 0, "it ended before it said {word}");
        }
    }

    fn append(&mut self) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(b"go\n").expect("a word to it");
        self.wait_for("appended");
    }

    /// Kills it without a chance to clean up, and waits until it is gone.
    fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("its end");
    }
}

fn shared() -> (tempfile::TempDir, Files, Session) {
    let root = tempfile::tempdir().expect("a folder");
    let files = store(root.path());
    let mut session = Session::new(1);
    session.create(&files, 1).map(drop).expect("a session");
    (root, files, session)
}

#[test]
fn a_session_that_another_process_writes_is_refused_with_its_pid_and_free_once_it_is_killed() {
    let (root, files, session) = shared();
    let mut other = Other::start(root.path());
    other.append();
    let pid = other.child.id();
    match files.claim(&session.id) {
        Err(ClaimError::Locked { holder }) => assert_eq!(holder.pid, pid),
        outcome => panic!("{outcome:?}"),
    }
    assert!(matches!(
        files.delete(&session.id),
        Err(ClaimError::Locked { .. })
    ));
    let stat = files.stat(&session.id).expect("a stat").expect("a session");
    assert_eq!(stat.writer.map(|holder| holder.pid), Some(pid));
    other.kill();
    files
        .claim(&session.id)
        .map(drop)
        .expect("a claim, at once");
    let stat = files.stat(&session.id).expect("a stat").expect("a session");
    assert_eq!(stat.writer, None);
}

#[test]
fn reading_works_while_another_process_writes_and_sees_every_batch_it_acknowledged() {
    let (root, files, session) = shared();
    let mut other = Other::start(root.path());
    let mut next = ReadPos::default();
    let mut seen = 0;
    for round in 0..50 {
        other.append();
        let log = read_from(&files, &session.id, next, 600).expect("a log");
        assert!(log.damage.is_empty() && log.torn.is_none());
        assert_eq!(log.seqs, (seen..3 + 2 * round).collect::<Vec<u64>>());
        seen = 3 + 2 * round;
        next = log.next;
    }
    other.kill();
}

#[test]
fn looking_who_writes_never_makes_a_claim_or_an_append_fail() {
    let (_root, files, mut session) = shared();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    files.stat(&session_id()).expect("a stat");
                }
            });
        }
        for _ in 0..100 {
            let outcome = session.resume(&files).and_then(|mut writer| {
                session
                    .append(&mut writer, 1, false)
                    .map_err(|error| error.to_string())
            });
            if outcome.is_err() {
                stop.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            assert_eq!(outcome, Ok(()));
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

fn session_id() -> threadline_session::SessionId {
    Session::new(1).id
}
