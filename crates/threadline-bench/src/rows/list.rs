//! Lists of many sessions.
//!
//! The sessions are written as files, a hundred thousand of them: each a folder with a log of a
//! header and one small turn, and the lock file of a session that the store itself has made.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::json;
use threadline_jsonl::layout;
use threadline_session::{Event, Header, OsPath, chain::Chain, codec::Encoder};
use threadline_store::{AppendOptions, ListFilter, SessionStore};

use crate::{Bench, Outcome, agent::Agent, data, measure, report::Figure};

/// Stamp of the sessions, raised when they are made differently. Markers without one are of 1.
const FORMAT: u32 = 1;
const ROUNDS: usize = 40;
const PAGE: usize = 50;
const FIRSTS: usize = 5;

/// Returns the lock file of a session that was closed.
async fn closed_lock(bench: &Bench) -> Outcome<Vec<u8>> {
    let dir = bench.scratch()?;
    let store = data::store(dir.path())?;
    let (id, time) = data::numbered(0)?;
    let writer = store
        .create(Header::new(id.clone(), time, OsPath::from("/work")))
        .await?;
    let mut turn = Vec::new();
    Agent::new(1).small_turn(&mut turn)?;
    writer.record(turn, AppendOptions::barrier()).await?;
    drop(writer);
    let lock = layout::session_dir(dir.path(), &id).join(layout::LOCK);
    Ok(fs::read(lock)?)
}

fn one(root: &Path, number: u64, agent: &mut Agent, lock: &[u8]) -> Outcome<()> {
    let (id, time) = data::numbered(number)?;
    let header = Header::new(id.clone(), time, OsPath::from("/work")).encode()?;
    let mut encoder = Encoder::new(Chain::new());
    encoder.header(&header);
    let mut turn = Vec::new();
    agent.small_turn(&mut turn)?;
    let events: Vec<Event> = (0..)
        .zip(&turn)
        .map(|(seq, payload)| Event::new(seq, time, payload))
        .collect::<Result<_, _>>()?;
    let mut log = header;
    log.extend_from_slice(&encoder.batch(0, &events, None)?.bytes);
    let dir = layout::session_dir(root, &id);
    if dir.join(layout::LOCK).exists() {
        // It comes last: an earlier run made this one whole.
        return Ok(());
    }
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(layout::LOG), log)?;
    Ok(fs::write(dir.join(layout::LOCK), lock)?)
}

/// Returns the root of a store with so many sessions, made first if it is not there.
async fn sessions(bench: &Bench, count: u64) -> Outcome<PathBuf> {
    let root = bench.data.join(format!("list-{count}"));
    let marker = bench.data.join(format!("list-{count}.made"));
    match fs::read_to_string(&marker) {
        Ok(text) if text.trim().parse().unwrap_or(1) == FORMAT => return Ok(root),
        Ok(_) => {
            fs::remove_file(&marker)?;
            fs::remove_dir_all(&root)?;
        }
        Err(_) => {}
    }
    let start = Instant::now();
    let lock = closed_lock(bench).await?;
    let mut agent = Agent::new(count);
    for number in 0..count {
        agent = agent.anew();
        one(&root, number, &mut agent, &lock)?;
    }
    fs::write(marker, FORMAT.to_string())?;
    eprintln!(
        "  made {count} sessions in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(root)
}

fn lose_catalogue(root: &Path) -> Outcome<()> {
    for suffix in ["", "-wal", "-shm"] {
        let path = root.join(format!("{}{suffix}", layout::CATALOGUE));
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

async fn newest(store: &SessionStore) -> Outcome<(f64, Option<u64>)> {
    let start = Instant::now();
    let page = store.list(&ListFilter::default(), None, PAGE).await?;
    let took = start.elapsed().as_secs_f64();
    if page.sessions.len() != PAGE {
        return Err(format!("a list of {} sessions", page.sessions.len()).into());
    }
    Ok((took, page.rebuilding))
}

/// Searches for a word that no session has, so that every row is looked at.
async fn nowhere(store: &SessionStore) -> Outcome<f64> {
    let filter = ListFilter {
        query: Some("nowhere".into()),
        ..ListFilter::default()
    };
    let start = Instant::now();
    let page = store.list(&filter, None, PAGE).await?;
    let took = start.elapsed().as_secs_f64();
    match page.sessions.first() {
        None => Ok(took),
        Some(row) => Err(format!("a word that no session has is in {}", row.id).into()),
    }
}

struct Lists {
    /// First list without a catalogue.
    first: Vec<f64>,
    /// Sessions per second that the catalogue is made anew with.
    rate: f64,
    warm: Vec<f64>,
    /// First list of a process, with a catalogue.
    fresh: Vec<f64>,
    /// Searches for a word that no session has.
    word: Vec<f64>,
}

async fn lists(root: &Path, count: u64) -> Outcome<Lists> {
    let mut first = Vec::new();
    for _ in 0..FIRSTS {
        lose_catalogue(root)?;
        first.push(newest(&data::store(root)?).await?.0);
    }
    lose_catalogue(root)?;
    let store = data::store(root)?;
    let start = Instant::now();
    store.catch_up().await?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let (mut warm, mut fresh, mut word) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        warm.push(newest(&store).await?.0);
    }
    for _ in 0..FIRSTS {
        word.push(nowhere(&store).await?);
    }
    drop(store);
    for _ in 0..FIRSTS {
        fresh.push(newest(&data::store(root)?).await?.0);
    }
    Ok(Lists {
        first,
        rate,
        warm,
        fresh,
        word,
    })
}

/// The newest 50 of few and of many sessions, with and without a catalogue.
pub(crate) async fn list(bench: &Bench) -> Outcome<Vec<Figure>> {
    let few = lists(&sessions(bench, 1_000).await?, 1_000).await?;
    let many = lists(&sessions(bench, 100_000).await?, 100_000).await?;
    let (warm, base) = (measure::median(&many.warm), measure::median(&few.warm));
    let first = measure::median(&many.first);
    Ok(vec![
        Figure::new("list", "newest 50 of 100,000, warm")
            .bar("<= 5 ms", warm <= 5e-3)
            .ours(measure::time(warm))
            .detail(json!({ "ours": many.warm, "freshProcess": many.fresh })),
        Figure::new("list", "  raw is the newest 50 of 1,000")
            .bar("<= 5 x of 1,000", warm <= base * 5.0)
            .ours(measure::time(warm))
            .raw(measure::time(base), warm / base)
            .detail(json!({ "raw": few.warm, "freshProcess": few.fresh })),
        Figure::new("list", "  first list of a process; raw of 1,000")
            .ours(measure::time(measure::median(&many.fresh)))
            .raw(
                measure::time(measure::median(&few.fresh)),
                measure::median(&many.fresh) / measure::median(&few.fresh),
            ),
        Figure::new("list", "  a word that none has; raw of 1,000")
            .ours(measure::time(measure::median(&many.word)))
            .raw(
                measure::time(measure::median(&few.word)),
                measure::median(&many.word) / measure::median(&few.word),
            )
            .detail(json!({ "ours": many.word, "raw": few.word })),
        Figure::new(
            "list",
            "catalogue deleted, 100,000: first list; raw of 1,000",
        )
        .bar("at once (<= 1 s)", first <= 1.0)
        .ours(measure::time(first))
        .raw(
            measure::time(measure::median(&few.first)),
            first / measure::median(&few.first),
        )
        .detail(json!({ "ours": many.first, "raw": few.first })),
        Figure::new("list", "  made anew, sessions per second")
            .bar(">= 2,000/s", many.rate >= 2_000.0)
            .ours(format!("{:.0}/s", many.rate))
            .detail(json!({ "of100000": many.rate, "of1000": few.rate })),
    ])
}
