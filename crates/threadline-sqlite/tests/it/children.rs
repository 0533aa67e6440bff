//! Processes that are killed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use threadline_store::{
    AppendOptions, Backend as _, ClaimError,
    contract::script::{user, vendor},
};

use crate::support::{Db, id, lines, load, open, store};

const DB: &str = "THREADLINE_SQLITE_TEST_DB";

/// The child: appends for ever and says what was acknowledged. It is no test of its own.
#[tokio::test]
#[ignore = "run by the tests that kill it"]
async fn child() {
    let Some(path) = std::env::var_os(DB) else {
        return;
    };
    let store = store(open(Path::new(&path)));
    let writer = store
        .create(crate::support::header(&id("s")))
        .await
        .unwrap();
    let mut out = std::io::stdout();
    for n in 0.. {
        let next = writer.next_seq().await;
        // Batches of several pages each, so that a kill can hit the middle of one.
        let size = 1 + n % 7;
        let text = format!("{{\"n\":{n},\"fill\":\"{}\"}}", "x".repeat(3000));
        let batch = (next..next + size)
            .map(|seq| vendor(seq, &text, true))
            .collect();
        let options = AppendOptions {
            key: None,
            barrier: n % 3 == 0,
        };
        let appended = writer.append(next, batch, options).await.unwrap();
        writeln!(out, "ack {}", appended.last_seq).unwrap();
        out.flush().unwrap();
    }
}

fn spawn(db: &Db) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["children::child", "--exact", "--ignored", "--nocapture"])
        .env(DB, db.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads what the child acknowledged until it has done so `acks` times; then kills it, and reads
/// the rest.
fn killed_after(child: &mut Child, acks: usize) -> u64 {
    let mut last = None;
    let mut seen = 0;
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    loop {
        line.clear();
        if told.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // A line that the kill has cut was not received.
        let Some(seq) = line
            .strip_suffix('\n')
            .and_then(|line| line.strip_prefix("ack "))
        else {
            continue;
        };
        last = Some(seq.parse().unwrap());
        seen += 1;
        if seen == acks {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(seen >= acks, "the child ended by itself");
    last.unwrap()
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    for round in 0..8 {
        let db = Db::new();
        let mut child = spawn(&db);
        let acked = killed_after(&mut child, 1 + round * 5);
        let store = db.store();
        let report = store.verify(&id("s")).await.unwrap();
        assert!(report.ok, "{:?}", report.findings);
        assert!(report.events > acked, "{} of {acked}", report.events);
        // The log ends with a whole batch.
        let all = lines(&*db.open(), "s").await;
        let mut at = 0;
        while at < all.len() {
            at += all[at].batch.unwrap_or(1);
        }
        assert_eq!(at, all.len());
        // Nobody holds it any more, and it goes on.
        let writer = load(&store, "s").await.unwrap();
        writer
            .record(vec![user("go on")], AppendOptions::barrier())
            .await
            .ok();
        drop(writer);
        assert!(store.verify(&id("s")).await.unwrap().ok);
        let check: String = db
            .raw()
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
    }
}

#[tokio::test]
async fn a_session_of_a_living_process_is_locked_until_that_is_dead() {
    let db = Db::new();
    let mut child = spawn(&db);
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ack") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0);
    }
    // Its output is full soon, so that it stands still in the middle of its work.
    let backend = db.open();
    let Err(ClaimError::Locked { holder }) = backend.claim(&id("s")).await else {
        panic!("it is locked");
    };
    assert_eq!(holder.pid, child.id());
    child.kill().unwrap();
    // Dead, even before anybody has asked for its exit code.
    loop {
        match backend.claim(&id("s")).await {
            Ok(_) => break,
            Err(ClaimError::Locked { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
    child.wait().unwrap();
}

#[tokio::test]
async fn who_was_taken_over_by_another_process_is_fenced() {
    let db = Db::new();
    let mut child = spawn(&db);
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("ack") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0);
    }
    let backend = db.open();
    let writer = backend.take_over(&id("s")).await.unwrap();
    let at = backend.stat(&id("s")).await.unwrap().unwrap().bytes;
    // It ends with the error that its next append gets.
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut told, &mut rest).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(backend.stat(&id("s")).await.unwrap().unwrap().bytes, at);
    drop(writer);
}
