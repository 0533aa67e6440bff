//! What a list costs: the newest 50 of many sessions, and making a lost catalogue anew.
//!
//! `cargo run --release --example bench_list -- 1000 20000` prints a table.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use threadline_jsonl::{JsonlBackend, JsonlOptions, layout};
use threadline_session::{Header, OsPath, SessionId};
use threadline_store::{
    AppendOptions, Durability, ListFilter, SessionStore, StoreOptions, contract::script::whole_turn,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Milliseconds between two sessions: 250 in a day.
const APART: u64 = 24 * 60 * 60 * 1_000 / 250;
const THEN: u64 = 1_700_000_000_000;
const ROUNDS: usize = 40;

fn open(root: &Path) -> Outcome<SessionStore> {
    let backend = JsonlBackend::open(root, JsonlOptions::default())?;
    let options = StoreOptions {
        durability: Durability::Os,
        ..StoreOptions::default()
    };
    Ok(SessionStore::new(Arc::new(backend), options))
}

async fn fill(store: &SessionStore, sessions: u64) -> Outcome<()> {
    for number in 0..sessions {
        let time = THEN + number * APART;
        let id = format!(
            "{:08x}-{:04x}-7000-8000-{number:012x}",
            time >> 16,
            time & 0xffff
        );
        let header = Header::new(SessionId::parse(id)?, time, OsPath::from("/work"));
        let mut events = whole_turn(0, 1, "fix the parser");
        for event in &mut events {
            event.time = time;
        }
        let writer = store.create(header).await?;
        writer.append(0, events, AppendOptions::default()).await?;
    }
    Ok(())
}

fn remove_catalogue(root: &Path) -> Outcome<()> {
    for suffix in ["", "-wal", "-shm"] {
        let path = root.join(format!("{}{suffix}", layout::CATALOGUE));
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

async fn newest(store: &SessionStore, query: Option<&str>) -> Outcome<Duration> {
    let filter = ListFilter {
        query: query.map(Into::into),
        ..ListFilter::default()
    };
    let start = Instant::now();
    let page = store.list(&filter, None, 50).await?;
    let took = start.elapsed();
    assert!(query.is_some() || page.sessions.len() == 50, "a short page");
    Ok(took)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let sizes: Vec<u64> = std::env::args().skip(1).flat_map(|n| n.parse()).collect();
    println!("sessions  first list  rows/s  newest 50 (median, worst)  fresh process  rare word");
    for sessions in sizes {
        let root = tempfile::tempdir()?;
        fill(&open(root.path())?, sessions).await?;
        remove_catalogue(root.path())?;
        let store = open(root.path())?;
        let first = newest(&store, None).await?;
        // From nothing, and with nobody else at it.
        drop(store);
        remove_catalogue(root.path())?;
        let store = open(root.path())?;
        let start = Instant::now();
        store.catch_up().await?;
        let rate = sessions as f64 / start.elapsed().as_secs_f64();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(newest(&store, None).await?);
        }
        times.sort_unstable();
        let word = newest(&store, Some("nowhere")).await?;
        drop(store);
        let fresh = newest(&open(root.path())?, None).await?;
        println!(
            "{sessions:8}  {:7.1} ms  {rate:6.0}  {:9.2} ms {:9.2} ms  {:10.2} ms  {:7.1} ms",
            ms(first),
            ms(times[ROUNDS / 2]),
            ms(times[ROUNDS - 1]),
            ms(fresh),
            ms(word),
        );
    }
    Ok(())
}
