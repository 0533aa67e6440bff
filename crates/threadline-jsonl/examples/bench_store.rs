//! `cargo xtask bench store`: the cost of committing a turn, against the same bytes by hand.
//!
//! Every figure is a ratio of two things measured in turns in the same run, because the absolute
//! cost of a sync says more about the machine and its load than about the program. The table goes
//! to standard error, JSON to standard output.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr)]

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use threadline_jsonl::{CountingVfs, JsonlBackend, JsonlOptions, RealVfs};
use threadline_session::{
    Header, OsPath, Payload, SessionId,
    payload::{ContentPart, UserMessage, UserSource},
};
use threadline_store::{AppendOptions, SessionStore, SessionWriter, StoreOptions};

const EVENTS_PER_TURN: usize = 16;
const EVENT_TEXT: usize = 800;
const ROUNDS: usize = 400;

fn event(round: usize, at: usize) -> Payload {
    let text = format!("{round}.{at} ").repeat(EVENT_TEXT / 8);
    Payload::UserMessage(UserMessage {
        content: vec![ContentPart::text(text)],
        source: UserSource::Context,
    })
}

async fn turn(writer: &SessionWriter, round: usize) -> Result<Duration, Box<dyn Error>> {
    let payloads = (0..EVENTS_PER_TURN).map(|at| event(round, at)).collect();
    let start = Instant::now();
    writer.record(payloads, AppendOptions::barrier()).await?;
    Ok(start.elapsed())
}

fn raw(file: &mut File, bytes: &[u8]) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    file.write_all(bytes)?;
    file.sync_data()?;
    Ok(start.elapsed())
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

async fn open(root: &Path) -> Result<(SessionWriter, CountingVfs), Box<dyn Error>> {
    let vfs = CountingVfs::new(Arc::new(RealVfs));
    let backend = JsonlBackend::with_vfs(Arc::new(vfs.clone()), root, JsonlOptions::default())?;
    let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
    let id = SessionId::parse("bench")?;
    let writer = store.create(Header::new(id, 0, OsPath::from("/"))).await?;
    writer
        .record(vec![event(0, 0)], AppendOptions::barrier())
        .await?;
    Ok((writer, vfs))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Beside the build, so that it is the disk that is measured and not a memory file system.
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let dir = tempfile::Builder::new()
        .prefix("bench-store-")
        .tempdir_in(base)?;
    let (writer, vfs) = open(&dir.path().join("store")).await?;
    let raw_path = dir.path().join("raw");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(raw_path)?;

    let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
    let before = vfs.counts();
    for round in 0..ROUNDS {
        let written = vfs.counts().log_written_bytes;
        ours.push(turn(&writer, round).await?);
        let bytes = vfs.counts().log_written_bytes - written;
        by_hand.push(raw(&mut file, &vec![b'x'; usize::try_from(bytes)?])?);
    }
    let after = vfs.counts();
    let rounds = ROUNDS as u64;
    let (ours, by_hand) = (median(&mut ours), median(&mut by_hand));
    let ratio = ours / by_hand;
    let syncs = (after.log_syncs - before.log_syncs) as f64 / rounds as f64;
    let writes = (after.log_writes - before.log_writes) as f64 / rounds as f64;
    let bytes = (after.log_written_bytes - before.log_written_bytes) / rounds;

    eprintln!("turn commit, {EVENTS_PER_TURN} events, {bytes} bytes, median of {ROUNDS} in turns");
    eprintln!("  threadline           {ours:>9.1} us   {syncs} syncs, {writes} writes");
    eprintln!("  append + fdatasync   {by_hand:>9.1} us");
    eprintln!("  ratio                {ratio:>9.2}      bar 1.5");
    println!(
        "{}",
        serde_json::json!({
            "turnCommit": {
                "events": EVENTS_PER_TURN, "bytes": bytes, "rounds": ROUNDS,
                "medianUs": ours, "rawMedianUs": by_hand, "ratio": ratio, "bar": 1.5,
                "syncsPerTurn": syncs, "writesPerTurn": writes,
            }
        })
    );
    Ok(())
}
