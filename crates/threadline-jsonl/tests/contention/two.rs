//! Two processes append to one session at once, each from what it knows of it.

use std::{
    io::BufRead as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_store::{AppendError, AppendOptions, OpenError, SessionStore, StoreOptions};

use super::{
    Ledger, Writer, check_log, event,
    process::{Other, say},
    store,
};
use crate::world::{Fallible, Session, text};

/// How often each opens the session.
const ROUNDS: u64 = 40;
/// How long a process holds on to it now and then: longer than the other one waits for a lock.
const LONG: Duration = Duration::from_millis(400);
/// How often somebody looks whether the other one has had its turn.
const LOOKS: u32 = 2_000;

/// Appends what it was to store in one opening, from what it knows of the session.
async fn append(
    store: &SessionStore,
    known: &mut u64,
    who: Writer,
    at_least: Duration,
) -> Fallible<&'static str> {
    let loaded = match store.load(&Session::new(1).id).await {
        Ok(loaded) => loaded,
        Err(OpenError::Locked { .. }) => return Ok("locked"),
        Err(other) => return Err(text(other)),
    };
    let since = Instant::now();
    for n in 0.. {
        let next = event(*known, who, n);
        let options = AppendOptions::barrier();
        match loaded.writer.append(*known, vec![next], options).await {
            Ok(appended) => {
                say(&format!("stored {} {}", appended.last_seq, who.pid));
                *known = appended.last_seq + 1;
                if since.elapsed() >= at_least {
                    break;
                }
            }
            Err(AppendError::Conflict { expected, actual }) => {
                if expected != *known || actual <= expected {
                    return Err(format!("a conflict of {expected} and {actual}"));
                }
                *known = actual;
                return Ok("conflict");
            }
            Err(other) => return Err(text(other)),
        }
    }
    Ok("")
}

/// Opens and appends again and again, and says what came of each attempt.
pub(super) fn child(root: &Path) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(text)?;
    runtime.block_on(async {
        let backend = JsonlBackend::open(root, JsonlOptions::default()).map_err(text)?;
        let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
        let id = Session::new(1).id;
        let who = Writer {
            pid: u64::from(std::process::id()),
            epoch: 0,
        };
        say("ready");
        std::io::stdin().lock().lines().next();
        let (mut known, mut round) = (1, 0);
        while round < ROUNDS {
            let long = if round % 10 == 9 {
                LONG
            } else {
                Duration::ZERO
            };
            let outcome = append(&store, &mut known, who, long).await?;
            if outcome.is_empty() {
                round += 1;
            } else {
                say(outcome);
            }
            let before = store.stat(&id).await.map_err(text)?.bytes;
            for _ in 0..LOOKS {
                if store.stat(&id).await.map_err(text)?.bytes != before {
                    break;
                }
                std::thread::yield_now();
            }
        }
        say("done");
        Ok(())
    })
}

#[derive(Debug, Default)]
struct Heard {
    stored: Vec<(u64, u64)>,
    locked: u64,
    conflicts: u64,
}

fn hear(mut other: Other) -> Fallible<Heard> {
    let mut heard = Heard::default();
    while let Some(said) = other.next() {
        let mut words = said.split(' ');
        match words.next() {
            Some("stored") => {
                let mut number = || words.next().and_then(|it| it.parse().ok());
                let pair = number().zip(number());
                heard.stored.push(pair.ok_or("no number")?);
            }
            Some("locked") => heard.locked += 1,
            Some("conflict") => heard.conflicts += 1,
            Some("done") => return Ok(heard),
            _ => return Err(said),
        }
    }
    Err("it ended before it was done".into())
}

#[test]
#[ignore = "cargo xtask test contention"]
fn of_two_processes_that_append_at_once_each_stores_what_it_was_told_and_loses_with_a_reason() {
    let root = tempfile::tempdir().expect("a folder");
    let mut session = Session::new(1);
    // What the events of the others are like: any program may pass over them.
    let first = event(0, Writer { pid: 0, epoch: 0 }, 0);
    let encoder = threadline_session::codec::Encoder::new(threadline_session::chain::Chain::new());
    let mut encoder = encoder;
    let batch = encoder.batch(0, &[first], None).expect("a batch").bytes;
    let new = threadline_store::NewLog {
        header_line: session.header.clone(),
        batch: batch.clone(),
        last_seq: Some(0),
        parent: None,
    };
    drop(
        store(root.path())
            .create(&session.id, &new)
            .expect("a session"),
    );
    session.tried = vec![vec![batch]];
    let started = Instant::now();
    let mut others = [1, 2].map(|_| Other::start(root.path(), "two"));
    for other in &mut others {
        assert_eq!(other.next().as_deref(), Some("ready"));
    }
    others.iter_mut().for_each(|other| other.tell("go"));
    let others = others.map(|other| std::thread::spawn(move || hear(other)));
    let heard = others.map(|it| it.join().expect("a reader").expect("a child"));
    let mut stored: Vec<_> = heard.iter().flat_map(|it| it.stored.clone()).collect();
    stored.sort_unstable();
    let lines = check_log(root.path(), &Ledger::new()).expect("the log");
    let found: Vec<_> = lines
        .iter()
        .zip(0_u64..)
        .skip(1)
        .map(|(line, seq)| (seq, super::writer_of(line).pid))
        .collect();
    assert_eq!(found, stored);
    assert!(heard.iter().any(|it| it.locked > 0) && heard.iter().any(|it| it.conflicts > 0));
    let losses: Vec<_> = heard.iter().map(|it| (it.locked, it.conflicts)).collect();
    println!(
        "\ncontention: two processes stored {} events; refused (locked, conflict): {losses:?}, in \
         {:.1} s",
        stored.len(),
        started.elapsed().as_secs_f64()
    );
}
