//! Logs and stores that are measured: made once, kept between runs, and put back to what they were
//! before each use.

use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde::{Deserialize, Serialize};
use threadline_jsonl::{CountingVfs, JsonlBackend, JsonlOptions, RealVfs, layout};
use threadline_session::{Header, OsPath, Payload, Place, SessionId, Transcript};
use threadline_store::{
    AppendOptions, Backend as _, Clock, Durability, SessionStore, SessionWriter, Shown,
    StoreOptions,
};

use crate::{Outcome, agent::Agent, measure};

/// First part of the stamp of the logs. It is raised when they are made differently, or when the
/// store writes beside them what the rows measure; logs with another stamp are made anew.
const FORMAT: u32 = 1;

/// Returns the stamp. Checkpoints are of no use to a store that freezes its state differently, and
/// rows would measure what it does without: so the state of an empty log is part of it.
fn format() -> String {
    let frozen = Transcript::new().freeze();
    format!(
        "{FORMAT}-{:08x}",
        threadline_session::codec::crc32c(&frozen)
    )
}
/// Events of one batch while data is made.
const BATCH: usize = 2_000;
/// Items that a compaction leaves.
const KEEP: usize = 40;
/// Items after which an agent with a limited context compacts.
const FULL: usize = 400;
/// Seed of the last part of logs that compact often. It is the same for all of them, so that they
/// differ in what comes before and in nothing else.
const END_SEED: u64 = 7;
/// Turns behind the last checkpoint of such a log, before its last compaction: about half of what
/// the store writes before it keeps another one.
const END_TURNS: usize = 8;

/// How often a session is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compaction {
    Never,
    /// Once, two turns before its end.
    Once,
    /// Whenever its context is full, and two turns before its end.
    Often,
}

/// A log that is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) mega: u64,
    pub(crate) compaction: Compaction,
}

pub(crate) const fn spec(name: &'static str, mega: u64, compaction: Compaction) -> Spec {
    Spec {
        name,
        mega,
        compaction,
    }
}

pub(crate) const OFTEN_50: Spec = spec("often-50", 50, Compaction::Often);
pub(crate) const OFTEN_500: Spec = spec("often-500", 500, Compaction::Often);
pub(crate) const OFTEN_1000: Spec = spec("often-1000", 1_000, Compaction::Often);
pub(crate) const OFTEN_5000: Spec = spec("often-5000", 5_000, Compaction::Often);
pub(crate) const ONCE_500: Spec = spec("once-500", 500, Compaction::Once);
pub(crate) const PLAIN_500: Spec = spec("plain-500", 500, Compaction::Never);

/// A log that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Log {
    /// The [`format()`] when it was made.
    #[serde(default)]
    format: String,
    /// Root of the store that holds it.
    pub(crate) root: PathBuf,
    pub(crate) id: String,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    index_bytes: u64,
    lock: Vec<u8>,
    /// What the model sees: numbers and places of lines.
    pub(crate) surface: Vec<(u64, Place)>,
}

/// Where the time of made data begins, in unix milliseconds.
pub(crate) const THEN: u64 = 1_700_000_000_000;

/// Milliseconds between two sessions.
const APART: u64 = 24 * 60 * 60 * 1_000 / 250;

/// A clock that counts its calls: a second each.
pub(crate) struct Steps(AtomicU64);

impl Steps {
    /// Makes one that begins at a time, in unix milliseconds.
    pub(crate) fn at(ms: u64) -> Self {
        Self(AtomicU64::new(ms))
    }

    /// Puts it to a time.
    pub(crate) fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

impl Clock for Steps {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1_000, Ordering::Relaxed)
    }
}

/// Opens a store as programs do.
pub(crate) fn store(root: &Path) -> Outcome<SessionStore> {
    let backend = JsonlBackend::open(root, JsonlOptions::default())?;
    Ok(SessionStore::new(
        Arc::new(backend),
        StoreOptions::default(),
    ))
}

/// Opens a store to make data in: without a catalogue, with a clock of its own, and with no more
/// syncs than it cannot do without.
pub(crate) fn maker(root: &Path, clock: Arc<Steps>) -> Outcome<SessionStore> {
    let vfs = Arc::new(RealVfs);
    let backend = JsonlBackend::with_vfs(vfs, root, JsonlOptions::default())?;
    let options = StoreOptions {
        durability: Durability::Os,
        clock,
        ..StoreOptions::default()
    };
    Ok(SessionStore::new(Arc::new(backend), options))
}

/// Returns the id and the time of the session of a number, in unix milliseconds: one after the
/// other, 250 in a day.
pub(crate) fn numbered(number: u64) -> Outcome<(SessionId, u64)> {
    let time = THEN + number * APART;
    let id = format!(
        "{:08x}-{:04x}-7000-8000-{number:012x}",
        time >> 16,
        time & 0xffff
    );
    Ok((SessionId::parse(id)?, time))
}

/// Opens a store whose reads, writes and syncs are counted. It has no catalogue.
pub(crate) fn counted(root: &Path) -> Outcome<(SessionStore, CountingVfs)> {
    let vfs = CountingVfs::new(Arc::new(RealVfs));
    let backend = JsonlBackend::with_vfs(Arc::new(vfs.clone()), root, JsonlOptions::default())?;
    let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
    Ok((store, vfs))
}

impl Log {
    pub(crate) fn id(&self) -> Outcome<SessionId> {
        Ok(SessionId::parse(self.id.clone())?)
    }

    fn dir(&self) -> Outcome<PathBuf> {
        Ok(layout::session_dir(&self.root, &self.id()?))
    }

    pub(crate) fn path(&self) -> Outcome<PathBuf> {
        Ok(self.dir()?.join(layout::LOG))
    }

    pub(crate) fn surface_bytes(&self) -> u64 {
        let lens = self.surface.iter().map(|(_, place)| u64::from(place.len));
        lens.sum()
    }

    fn aside(&self) -> PathBuf {
        aside(&self.root, &self.id)
    }

    /// Takes the index away, the newest frames of which [`restore`](Self::restore) gives back.
    pub(crate) fn lose_index(&self) -> Outcome<()> {
        let index = self.dir()?.join(layout::INDEX);
        if self.aside().exists() {
            if index.exists() {
                std::fs::remove_file(index)?;
            }
        } else {
            std::fs::rename(index, self.aside())?;
        }
        Ok(())
    }

    /// Makes the session what its last writer left.
    pub(crate) fn restore(&self) -> Outcome<()> {
        let dir = self.dir()?;
        let index = dir.join(layout::INDEX);
        if self.aside().exists() {
            std::fs::rename(self.aside(), &index)?;
        }
        for (path, bytes) in [(self.path()?, self.bytes), (index, self.index_bytes)] {
            let file = OpenOptions::new().write(true).open(&path)?;
            let len = file.metadata()?.len();
            if len < bytes {
                return Err(format!("{} was cut; use --fresh", path.display()).into());
            }
            if len > bytes {
                file.set_len(bytes)?;
                file.sync_data()?;
            }
        }
        let lock = OpenOptions::new()
            .write(true)
            .open(dir.join(layout::LOCK))?;
        lock.write_all_at(&self.lock, 0)?;
        Ok(())
    }
}

/// Returns what a marker says of a log that can still be used.
fn made(marker: &Path) -> Option<Log> {
    let text = std::fs::read_to_string(marker).ok()?;
    // One that cannot be read is of another version, too.
    let log: Log = serde_json::from_str(&text).ok()?;
    (log.format == format()).then_some(log)
}

/// Returns a log, and makes it first if it is not there or not of today's kind.
pub(crate) async fn log(data: &Path, spec: Spec) -> Outcome<Log> {
    let root = data.join("logs");
    let marker = root.join(format!("{}.json", spec.name));
    if let Some(log) = made(&marker) {
        log.restore()?;
        return Ok(log);
    }
    std::fs::create_dir_all(&root)?;
    let start = Instant::now();
    let id = SessionId::parse(format!("bench-{}", spec.name))?;
    let dir = layout::session_dir(&root, &id);
    forget(&root, &id, &marker)?;
    let events = write(&root, &id, spec).await?;
    let path = dir.join(layout::LOG);
    for name in [layout::LOG, layout::INDEX] {
        measure::settle(&dir.join(name))?;
    }
    let log = Log {
        format: format(),
        bytes: std::fs::metadata(&path)?.len(),
        index_bytes: std::fs::metadata(dir.join(layout::INDEX))?.len(),
        lock: std::fs::read(dir.join(layout::LOCK))?,
        surface: surface(&root, &id).await?,
        id: id.to_string(),
        root,
        events,
    };
    std::fs::write(&marker, serde_json::to_vec(&log)?)?;
    eprintln!(
        "  made {}: {}, {events} events, {} index, {} items of {} in {:.1} s",
        spec.name,
        measure::bytes(log.bytes),
        measure::bytes(log.index_bytes),
        log.surface.len(),
        measure::bytes(log.surface_bytes()),
        start.elapsed().as_secs_f64()
    );
    Ok(log)
}

/// Removes everything of a log, the marker first: what is left of one is never taken for a whole.
fn forget(root: &Path, id: &SessionId, marker: &Path) -> Outcome<()> {
    for file in [marker.to_owned(), aside(root, id.as_str())] {
        if file.exists() {
            std::fs::remove_file(file)?;
        }
    }
    let dir = layout::session_dir(root, id);
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Where the index is put while a row does without it.
fn aside(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{id}.index"))
}

/// A log in the making.
struct Making {
    writer: SessionWriter,
    path: PathBuf,
    agent: Agent,
    /// What was not recorded yet.
    batch: Vec<Payload>,
    events: u64,
}

impl Making {
    async fn record(&mut self) -> Outcome<()> {
        self.events += self.batch.len() as u64;
        let batch = std::mem::take(&mut self.batch);
        self.writer.record(batch, AppendOptions::default()).await?;
        Ok(())
    }

    /// Adds a turn, and compacts when the context is full of more than so many items.
    fn turn(&mut self, full: Option<usize>) -> Outcome<()> {
        self.agent.turn(&mut self.batch)?;
        if full.is_some_and(|full| self.agent.items() > full) {
            self.agent.compact(&mut self.batch, KEEP);
        }
        Ok(())
    }

    /// Fills the log up to a length.
    async fn fill(&mut self, bytes: u64, full: Option<usize>) -> Outcome<()> {
        loop {
            self.turn(full)?;
            if self.batch.len() >= BATCH {
                self.record().await?;
                if std::fs::metadata(&self.path)?.len() >= bytes {
                    return Ok(());
                }
            }
        }
    }

    /// Adds the part that all logs that compact often have in common: one batch that is worth a
    /// checkpoint by far, so that all have one at its end, and turns that are not worth another.
    /// Everything is counted in items, events and turns: the same turn has a few bytes more in a
    /// longer log, whose numbers have more digits.
    async fn common_end(&mut self) -> Outcome<()> {
        self.agent.reseed(END_SEED);
        // Nothing of what came before is to be on the surface.
        let before = self.agent.items();
        while self.agent.items() < before + 2 * KEEP {
            self.turn(None)?;
        }
        self.agent.compact(&mut self.batch, KEEP);
        while self.batch.len() < BATCH {
            self.turn(Some(FULL))?;
        }
        self.record().await?;
        for _ in 0..END_TURNS {
            self.turn(Some(FULL))?;
            self.record().await?;
        }
        Ok(())
    }
}

async fn write(root: &Path, id: &SessionId, spec: Spec) -> Outcome<u64> {
    let store = maker(root, Arc::new(Steps::at(THEN)))?;
    let header = Header::new(id.clone(), THEN, OsPath::from("/tmp"));
    let mut making = Making {
        writer: store.create(header).await?,
        path: layout::session_dir(root, id).join(layout::LOG),
        agent: Agent::new(spec.mega),
        batch: Vec::new(),
        events: 0,
    };
    let often = spec.compaction == Compaction::Often;
    making
        .fill(spec.mega * 1_000_000, often.then_some(FULL))
        .await?;
    if often {
        making.common_end().await?;
    }
    if spec.compaction != Compaction::Never {
        making.agent.compact(&mut making.batch, KEEP);
    }
    for _ in 0..2 {
        making.turn(None)?;
        making.record().await?;
    }
    // What was acknowledged is what a session of the usual durability has: everything.
    making.writer.flush().await?;
    Ok(making.events)
}

/// Returns what the model sees of a session, read from the log alone.
async fn surface(root: &Path, id: &SessionId) -> Outcome<Vec<(u64, Place)>> {
    let backend = JsonlBackend::open(root, JsonlOptions::default())?;
    let mut state = Transcript::new().bare();
    let mut failed = None;
    let from = threadline_store::ReadPos::default();
    backend
        .skim(id, from, &mut |shown| {
            let Shown::Line(raw, place) = shown else {
                return true;
            };
            let taken = threadline_session::codec::Line::decode(raw)
                .map_err(|error| error.to_string())
                .and_then(|line| {
                    let applied = state.apply_at(&line.event, place);
                    applied.map(drop).map_err(|error| error.to_string())
                });
            failed = taken.err();
            failed.is_none()
        })
        .await?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(state.with_items().missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_log_of_an_older_kind_is_made_anew_and_one_of_today_is_kept() {
        let data = tempfile::tempdir().unwrap();
        let wanted = spec("small", 1, Compaction::Once);
        let first = log(data.path(), wanted).await.unwrap();
        let mine = first.dir().unwrap().join("mine");
        std::fs::write(&mine, "").unwrap();
        log(data.path(), wanted).await.unwrap();
        assert!(mine.exists());
        // As it was before there was a stamp, with its index put aside.
        let marker = data.path().join("logs/small.json");
        let mut old = serde_json::to_value(&first).unwrap();
        old.as_object_mut().unwrap().remove("format");
        std::fs::write(&marker, old.to_string()).unwrap();
        std::fs::write(first.aside(), "old").unwrap();
        let again = log(data.path(), wanted).await.unwrap();
        assert!(!mine.exists());
        assert_eq!((again.bytes, again.events), (first.bytes, first.events));
        assert!(made(&marker).is_some() && !first.aside().exists());
    }
}
