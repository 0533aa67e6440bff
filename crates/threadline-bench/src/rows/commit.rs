//! Appending: one session, many at once, and beside SQLite.

use std::{
    fs::File,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use serde_json::json;
use threadline_session::{Event, Header, OsPath, SessionId, payload::UserSource};
use threadline_store::{AppendOptions, SessionStore, SessionWriter};

use crate::{Bench, Outcome, agent::Agent, data, measure, measure::Sides, raw, report::Figure};

const EVENTS: usize = 16;
const TURNS: usize = 400;
const SESSIONS: usize = 64;
const BURST: Duration = Duration::from_millis(400);
const ROUNDS: usize = 9;

async fn writer(store: &SessionStore, id: &str) -> Outcome<SessionWriter> {
    let header = Header::new(SessionId::parse(id)?, 0, OsPath::from("/"));
    let writer = store.create(header).await?;
    let first = Agent::new(1).user(20, UserSource::Context);
    writer.record(vec![first], AppendOptions::barrier()).await?;
    Ok(writer)
}

/// The cost of a turn that is committed at once.
pub(crate) async fn turn(bench: &Bench) -> Outcome<Vec<Figure>> {
    let dir = bench.scratch()?;
    let (store, vfs) = data::counted(&dir.path().join("store"))?;
    let writer = writer(&store, "turns").await?;
    let mut file = raw::appending(&dir.path().join("raw"))?;
    let mut agent = Agent::new(2);
    let mut sides = Sides::default();
    let before = vfs.counts();
    for round in 0..TURNS {
        let payloads = (0..EVENTS)
            .map(|_| agent.user(800, UserSource::Context))
            .collect();
        let written = vfs.counts().log_written_bytes;
        let start = Instant::now();
        writer.record(payloads, AppendOptions::barrier()).await?;
        sides.ours.push(start.elapsed().as_secs_f64());
        let bytes = vfs.counts().log_written_bytes - written;
        let bytes = vec![b'x'; usize::try_from(bytes)?];
        let (took, ()) = measure::timed(|| raw::append(&mut file, &bytes))?;
        sides.raw.push(took);
        if round == 0 {
            // The first one makes the raw file grow from nothing.
            sides = Sides::default();
        }
    }
    let after = vfs.counts();
    let rounds = TURNS as f64;
    let syncs = (after.log_syncs - before.log_syncs) as f64 / rounds;
    let others = (after.other_syncs - before.other_syncs) as f64 / rounds;
    let bytes = (after.log_written_bytes - before.log_written_bytes) as f64 / rounds;
    let ratio = sides.ratio();
    let detail = json!({
        "events": EVENTS, "bytes": bytes, "rounds": TURNS, "ours": sides.ours(),
        "raw": sides.raw(), "logSyncs": syncs, "otherSyncs": others,
        "writes": (after.log_writes - before.log_writes) as f64 / rounds,
    });
    Ok(vec![
        Figure::new("turn", "turn commit, 16 events of 0.9 KB")
            .bar("<= 1.5 x append+fdatasync", ratio <= 1.5)
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), ratio)
            .detail(detail),
        Figure::new("turn", "  syncs per barrier, log and all other files")
            .bar("exactly 1", syncs == 1.0 && others == 0.0)
            .ours(format!("{:.3}", syncs + others)),
    ])
}

/// Many sessions, each of which waits for its own event.
pub(crate) async fn sessions(bench: &Bench) -> Outcome<Vec<Figure>> {
    let dir = bench.scratch()?;
    let (store, vfs) = data::counted(&dir.path().join("store"))?;
    let (mut writers, mut files) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        writers.push(Arc::new(writer(&store, &format!("many-{number}")).await?));
        let mut file = raw::appending(&dir.path().join(format!("raw-{number}")))?;
        raw::append(&mut file, b"{}\n")?;
        files.push(file);
    }
    let text = Agent::new(3).user(700, UserSource::Context);
    let before = vfs.counts();
    let mut sides = Sides::default();
    let mut size = 0;
    for _ in 0..ROUNDS {
        let rate = burst(&writers, &text).await?;
        sides.ours.push(rate);
        let counts = vfs.counts();
        let written = counts.log_written_bytes - before.log_written_bytes;
        size = written / (counts.log_writes - before.log_writes).max(1);
        let line = vec![b'x'; usize::try_from(size)?];
        sides.raw.push(raw_burst(&mut files, &line)?);
    }
    let ratio = sides.ratio();
    let rate = |rate: f64| format!("{rate:.0} ev/s");
    Ok(vec![
        Figure::new("sessions", "64 sessions at once, each waiting")
            .bar(">= 0.8 x 64 raw files", ratio >= 0.8)
            .ours(rate(sides.ours()))
            .raw(rate(sides.raw()), ratio)
            .detail(json!({
                "sessions": SESSIONS, "rounds": ROUNDS, "bytes": size,
                "ours": sides.ours, "raw": sides.raw,
            })),
    ])
}

async fn burst(
    writers: &[Arc<SessionWriter>],
    payload: &threadline_session::Payload,
) -> Outcome<f64> {
    let start = Instant::now();
    let tasks: Vec<_> = writers
        .iter()
        .map(|writer| {
            let (writer, payload) = (Arc::clone(writer), payload.clone());
            tokio::spawn(async move {
                let mut events = 0_u64;
                while start.elapsed() < BURST {
                    let one = vec![payload.clone()];
                    writer.record(one, AppendOptions::barrier()).await?;
                    events += 1;
                }
                Ok::<_, threadline_store::AppendError>(events)
            })
        })
        .collect();
    let mut events = 0;
    for task in tasks {
        events += task.await??;
    }
    Ok(events as f64 / start.elapsed().as_secs_f64())
}

fn raw_burst(files: &mut [File], line: &[u8]) -> Outcome<f64> {
    let start = Instant::now();
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter_mut()
            .map(|file| {
                scope.spawn(move || {
                    let mut events = 0_u64;
                    while start.elapsed() < BURST {
                        raw::append(file, line)?;
                        events += 1;
                    }
                    Ok(events)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(events) => events,
            Err(_) => Err("a thread failed".into()),
        });
        joined.collect::<Outcome<Vec<u64>>>()
    })?;
    let events: u64 = counts.iter().sum();
    Ok(events as f64 / start.elapsed().as_secs_f64())
}

const DURABLE_TURNS: usize = 1_000;
const DURABLE_ROUNDS: usize = 7;
const ITEMS: usize = 4;
const ITEM_BYTES: u64 = 2_048;

/// A thousand turns beside SQLite with the same rows.
pub(crate) async fn durable(bench: &Bench) -> Outcome<Vec<Figure>> {
    let dir = bench.scratch()?;
    let mut agent = Agent::new(4);
    let mut sides = Sides::default();
    let (mut size, mut sqlite_size, mut payload) = (0, 0, 0);
    for round in 0..DURABLE_ROUNDS {
        let root = dir.path().join(format!("store-{round}"));
        let store = data::store(&root)?;
        let writer = writer(&store, "durable").await?;
        let path = dir.path().join(format!("raw-{round}.sqlite"));
        let mut db = raw_database(&path)?;
        let (mut ours, mut raw) = (0.0, 0.0);
        payload = 0;
        for turn in 0..DURABLE_TURNS {
            let items: Vec<_> = (0..ITEMS)
                .map(|_| agent.user(ITEM_BYTES, UserSource::Context))
                .collect();
            let rows: Vec<String> = items
                .iter()
                .map(|item| Event::new(0, 0, item).map(|event| event.data.get().to_owned()))
                .collect::<Result<_, _>>()?;
            payload += rows.iter().map(String::len).sum::<usize>();
            let start = Instant::now();
            writer.record(items, AppendOptions::barrier()).await?;
            ours += start.elapsed().as_secs_f64();
            let (took, ()) = measure::timed(|| insert(&mut db, turn * ITEMS, &rows))?;
            raw += took;
        }
        sides.ours.push(ours);
        sides.raw.push(raw);
        let log = threadline_jsonl::layout::session_dir(&root, writer.id());
        size = std::fs::metadata(log.join(threadline_jsonl::layout::LOG))?.len();
        drop(db);
        sqlite_size = std::fs::metadata(&path)?.len();
    }
    let ratio = sides.ratio();
    let growth = size as f64 / payload as f64;
    Ok(vec![
        Figure::new("durable", "1,000 turns x 4 items x 2 KB, durable")
            .bar("<= 1.1 x raw SQLite, FULL", ratio <= 1.1)
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), ratio)
            .detail(json!({ "ours": sides.ours, "raw": sides.raw, "rounds": DURABLE_ROUNDS })),
        Figure::new("durable", "  size of the log; raw is SQLite's file")
            .bar("<= 1.2 x payload", growth <= 1.2)
            .ours(measure::bytes(size))
            .raw(measure::bytes(sqlite_size), growth)
            .detail(json!({ "log": size, "sqlite": sqlite_size, "payload": payload })),
    ])
}

/// Opens a database as durable as an append to the log.
pub(crate) fn raw_database(path: &Path) -> Outcome<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch(
        "CREATE TABLE events (num INTEGER PRIMARY KEY, session INTEGER NOT NULL, \
         seq INTEGER NOT NULL, body TEXT NOT NULL) STRICT; \
         CREATE UNIQUE INDEX events_place ON events (session, seq);",
    )?;
    Ok(db)
}

/// Stores some rows in one transaction.
pub(crate) fn insert(db: &mut Connection, first: usize, rows: &[String]) -> Outcome<()> {
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    {
        let mut statement = transaction
            .prepare_cached("INSERT INTO events (session, seq, body) VALUES (1, ?1, ?2)")?;
        for (seq, row) in (first..).zip(rows) {
            statement.execute(params![i64::try_from(seq)?, row])?;
        }
    }
    Ok(transaction.commit()?)
}
