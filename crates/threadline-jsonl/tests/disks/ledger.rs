//! What was attempted and what was acknowledged of one session, and the check of what is there.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use threadline_jsonl::layout;
use threadline_session::{Event, Header, OsPath, SessionId, chain::Chain, codec::Encoder};
use threadline_store::{
    AppendError, AppendOptions, Appended, Damage, Entry, ReadPos, SessionStore, SessionWriter,
    SummaryPatch,
};

use super::{Fallible, check, rng::Rng, script, text};

/// A batch that an append was begun with.
#[derive(Debug, Clone)]
struct Batch {
    /// Its lines, without LF.
    lines: Vec<Vec<u8>>,
    /// The encoder before it: what is lost is encoded anew.
    before: Encoder,
}

/// One session, as the process that wrote it knows it.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) header: Header,
    line: Vec<u8>,
    encoder: Encoder,
    tried: Vec<Batch>,
    /// Events that were acknowledged as durable.
    durable: usize,
    /// Events of a later acknowledgement whose sync may have been under way at the cut.
    doubtful: Option<usize>,
    /// Set once the cut has begun, at some moment after which it happens.
    cutting: Arc<AtomicBool>,
    /// Titles that were set, each with whether that was acknowledged.
    titles: Vec<(String, bool)>,
    revision: u64,
}

/// What a read of a whole log gives.
struct Log {
    lines: Vec<Vec<u8>>,
    events: Vec<Event>,
    damage: Vec<Damage>,
}

async fn read(store: &SessionStore, id: &SessionId) -> Fallible<Log> {
    let mut log = Log {
        lines: Vec::new(),
        events: Vec::new(),
        damage: Vec::new(),
    };
    let mut from = ReadPos::default();
    loop {
        let page = store.read(id, from, usize::MAX).await.map_err(text)?;
        for entry in page.entries {
            match entry {
                Entry::Line(line, ..) => {
                    log.lines.push(line.raw);
                    log.events.push(line.event);
                }
                Entry::Damage(damage) => log.damage.push(damage),
                Entry::Header(_) => {}
            }
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(log),
        }
    }
}

impl Ledger {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        // A session id of the usual kind, of a random time between 2020 and 2030.
        let ms = 1_577_836_800_000 + rng.below(315_000_000_000);
        let id = format!(
            "{:08x}-{:04x}-7{:03x}-8{:03x}-{:012x}",
            ms >> 16,
            ms & 0xffff,
            rng.below(1 << 12),
            rng.below(1 << 12),
            rng.below(1 << 48)
        );
        let id = SessionId::parse(id).expect("an id");
        let header = Header::new(id, ms, OsPath::from("/work"));
        let line = header.encode().expect("a header");
        let mut encoder = Encoder::new(Chain::new());
        encoder.header(&line);
        Self {
            header,
            line,
            encoder,
            tried: Vec::new(),
            durable: 0,
            doubtful: None,
            cutting: Arc::default(),
            titles: Vec::new(),
            revision: 0,
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.header.id
    }

    /// Events that were attempted and not known to be lost.
    pub(crate) fn events(&self) -> usize {
        self.tried.iter().map(|batch| batch.lines.len()).sum()
    }

    pub(crate) fn durable(&self) -> usize {
        self.durable
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.tried.iter().flat_map(|batch| &batch.lines)
    }

    /// The whole log as it must stand in its file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let lines = self.lines().flat_map(|line| [line.as_slice(), b"\n"]);
        [self.line.as_slice()].into_iter().chain(lines).fold(
            Vec::new(),
            |mut all: Vec<u8>, part| {
                all.extend_from_slice(part);
                all
            },
        )
    }

    fn begin(&mut self, events: &[Event], key: Option<&str>) -> Fallible<()> {
        let before = self.encoder.clone();
        let first = self.events() as u64;
        let encoded = self.encoder.batch(first, events, key).map_err(text)?;
        let mut start = 0;
        let mut lines = Vec::new();
        for end in encoded.ends {
            lines.push(encoded.bytes[start..end - 1].to_vec());
            start = end;
        }
        self.tried.push(Batch { lines, before });
        Ok(())
    }

    fn withdraw(&mut self) {
        if let Some(batch) = self.tried.pop() {
            self.encoder = batch.before;
        }
    }

    /// Appends a batch and takes down what comes of it. The inner result is the store's.
    pub(crate) async fn append(
        &mut self,
        writer: &SessionWriter,
        events: Vec<Event>,
        options: AppendOptions,
    ) -> Fallible<Result<Appended, AppendError>> {
        let first = self.events() as u64;
        let barrier = options.barrier;
        self.begin(&events, options.key.as_deref())?;
        let outcome = writer.append(first, events, options).await;
        match &outcome {
            Ok(appended) => {
                check(appended.last_seq + 1 == self.events() as u64, || {
                    "the acknowledged number is another".into()
                })?;
                self.acknowledged(appended.durable_seq);
                check(!barrier || self.claimed() == self.events(), || {
                    "a barrier was acknowledged without being durable".into()
                })?;
            }
            // Nothing of it remains, says the contract.
            Err(AppendError::StorageFull { .. }) => self.withdraw(),
            Err(_) => {}
        }
        Ok(outcome)
    }

    /// Appends some events that depend on no others.
    pub(crate) async fn append_loose(
        &mut self,
        writer: &SessionWriter,
        rng: &mut Rng,
        barrier: bool,
    ) -> Fallible<Result<Appended, AppendError>> {
        let events = script::loose(self.events() as u64, rng);
        let options = AppendOptions { key: None, barrier };
        self.append(writer, events, options).await
    }

    /// After a failure the writer must take nothing more, with or without waiting for it.
    pub(crate) async fn refused(&self, writer: &SessionWriter, rng: &mut Rng) -> Fallible<()> {
        for barrier in [false, true, true] {
            let next = writer.next_seq().await;
            let options = AppendOptions { key: None, barrier };
            let more = writer.append(next, script::loose(next, rng), options).await;
            check(matches!(more, Err(AppendError::Poisoned { .. })), || {
                format!("a poisoned writer said {more:?} (I7)")
            })?;
        }
        let flushed = writer.flush().await;
        let nothing = match &flushed {
            // It says again what it had said before.
            Ok(seq) => seq.map_or(0, |seq| seq as usize + 1) == self.claimed(),
            Err(error) => matches!(error, AppendError::Poisoned { .. }),
        };
        check(nothing, || {
            format!("a poisoned writer flushed: {flushed:?} (I7)")
        })
    }

    /// Takes down what was acknowledged as durable.
    ///
    /// Linux lets a sync that is under way while a file system is shut down return success without
    /// having stored anything (a bare append-and-fdatasync loop shows it on ext4 and XFS, in 1 to 3
    /// of 100 shutdowns). No machine without power returns from a sync, so the last acknowledgement
    /// that comes after the cut has begun is not counted. All before it are: the next sync began
    /// on a living file system.
    pub(crate) fn acknowledged(&mut self, durable_seq: Option<u64>) {
        let durable = durable_seq.map_or(0, |seq| seq as usize + 1);
        if durable <= self.claimed() {
            return;
        }
        if self.cutting.load(Ordering::SeqCst) {
            if let Some(earlier) = self.doubtful.replace(durable) {
                self.durable = earlier;
            }
        } else {
            self.durable = durable;
        }
    }

    /// Events that the store has called durable, also where that does not count.
    pub(crate) fn claimed(&self) -> usize {
        self.doubtful.unwrap_or(self.durable)
    }

    pub(crate) fn cut_by(&mut self, cutting: Arc<AtomicBool>) {
        self.cutting = cutting;
    }

    /// The cut is over. Returns whether an acknowledgement was not counted.
    pub(crate) fn cut_done(&mut self) -> bool {
        self.cutting = Arc::default();
        self.doubtful.take().is_some()
    }

    /// Sets another title. Returns whether that was acknowledged.
    pub(crate) async fn retitle(&mut self, store: &SessionStore, rng: &mut Rng) -> Fallible<bool> {
        let title = format!("title {:x}", rng.next());
        self.titles.push((title.clone(), false));
        let patch = SummaryPatch {
            title: Some(Some(title)),
            ..SummaryPatch::default()
        };
        let updated = store.update(self.id(), patch, self.revision).await;
        let Ok(row) = updated else { return Ok(false) };
        self.revision = row.revision;
        if let Some((_, acknowledged)) = self.titles.last_mut() {
            *acknowledged = !self.cutting.load(Ordering::SeqCst);
        }
        Ok(true)
    }

    /// Compares what is there with what may and what must be, and takes it as what is there.
    /// Returns whether the session is there at all.
    pub(crate) async fn examine(&mut self, store: &SessionStore) -> Fallible<bool> {
        let outcome = self.compare(store).await;
        outcome.map_err(|what| format!("session {}: {what}", self.id()))
    }

    async fn compare(&mut self, store: &SessionStore) -> Fallible<bool> {
        let listed = store.ids().await.map_err(text)?.contains(self.id());
        let there = store.has(self.id()).await.map_err(text)?;
        check(listed == there, || {
            "listed and not there, or the reverse".into()
        })?;
        if !there {
            check(self.durable == 0, || {
                format!("all {} acknowledged events are lost (I1)", self.durable)
            })?;
            return Ok(false);
        }
        let header = store.header(self.id()).await.map_err(text)?;
        check(header.line == self.line && header.verified, || {
            "the header differs".into()
        })?;
        self.compare_title(store).await?;
        let log = read(store, self.id()).await?;
        if let Some(damage) = log.damage.first() {
            return Err(format!("damaged (I4): {damage}"));
        }
        for (seq, (found, tried)) in log.lines.iter().zip(self.lines()).enumerate() {
            check(found == tried, || {
                format!("event {seq} differs from what was attempted (I1, I2)")
            })?;
        }
        let found = log.lines.len();
        check(found >= self.durable, || {
            format!("{found} events of {} acknowledged ones (I1)", self.durable)
        })?;
        self.keep(found)?;
        Ok(true)
    }

    async fn compare_title(&mut self, store: &SessionStore) -> Fallible<()> {
        let row = store.summary(self.id()).await.map_err(text)?;
        check(row.error.is_none(), || format!("listed as {:?}", row.error))?;
        let at = match &row.title {
            None => 0,
            Some(title) => {
                let tried = self.titles.iter().position(|(tried, _)| tried == title);
                tried.ok_or("a title that nobody has set")? + 1
            }
        };
        let lost = self.titles[at..]
            .iter()
            .any(|(_, acknowledged)| *acknowledged);
        check(!lost, || "an acknowledged title is lost".into())?;
        self.titles.truncate(at);
        self.revision = row.revision;
        Ok(())
    }

    /// Takes the first events as what is there; the batches behind them never happened.
    fn keep(&mut self, events: usize) -> Fallible<()> {
        while self.events() > events {
            self.withdraw();
        }
        check(self.events() == events, || {
            format!("{events} events end inside a batch, or are more than were attempted (I3)")
        })
    }

    pub(crate) fn dir(&self, root: &Path) -> PathBuf {
        layout::session_dir(root, self.id())
    }

    /// The log as it stands in its file.
    pub(crate) fn file(&self, root: &Path) -> Fallible<Vec<u8>> {
        let path = self.dir(root).join(layout::LOG);
        fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Opens the session as a new process does, appends, and opens it again. It must have been
    /// examined before.
    pub(crate) async fn recover(
        &mut self,
        store: &SessionStore,
        root: &Path,
        rng: &mut Rng,
    ) -> Fallible<()> {
        let outcome = self.open_twice(store, root, rng).await;
        outcome.map_err(|what| format!("session {}, recovery: {what}", self.id()))
    }

    async fn open_twice(
        &mut self,
        store: &SessionStore,
        root: &Path,
        rng: &mut Rng,
    ) -> Fallible<()> {
        let before = self.file(root)?;
        let kept = self.bytes();
        let behind = before.get(kept.len()..).unwrap_or_default();
        let loaded = store.load(self.id()).await.map_err(text)?;
        let writer = loaded.writer;
        match writer.recovered() {
            None => check(behind.is_empty(), || "torn bytes were not moved".into())?,
            Some(recovered) => {
                let aside = fs::read(&recovered.moved_to).map_err(text)?;
                check(aside == behind, || "torn bytes were lost (I10)".into())?;
            }
        }
        self.take_closers(store, loaded.closed).await?;
        self.append_loose(&writer, rng, true).await?.map_err(text)?;
        check(self.durable == self.events(), || {
            "the barrier after the recovery is not durable".into()
        })?;
        drop(writer);
        check(self.file(root)? == self.bytes(), || {
            "the log differs after the recovery".into()
        })?;
        let report = store.verify(self.id()).await.map_err(text)?;
        check(report.findings.is_empty(), || {
            format!("verify finds {:?}", report.findings)
        })?;
        let first = self.traces(root)?;
        let again = store.load(self.id()).await.map_err(text)?;
        check(
            again.closed == 0 && again.writer.recovered().is_none(),
            || "a second opening has recovered again (I5)".into(),
        )?;
        drop(again);
        check(self.traces(root)? == first, || {
            "a second opening has written (I5)".into()
        })
    }

    /// Takes over the events that opening has appended to close a turn.
    pub(crate) async fn take_closers(
        &mut self,
        store: &SessionStore,
        closed: usize,
    ) -> Fallible<()> {
        let log = read(store, self.id()).await?;
        let had = self.events();
        check(log.lines.len() == had + closed, || {
            format!("{} events instead of {had} and {closed}", log.lines.len())
        })?;
        if closed > 0 {
            self.begin(&log.events[had..], None)?;
            self.durable = self.events();
        }
        check(self.lines().eq(&log.lines), || {
            "closing a turn has changed other events".into()
        })
    }

    /// All files of the session but the lock, whose record names the last writer.
    fn traces(&self, root: &Path) -> Fallible<Vec<(PathBuf, u64, SystemTime)>> {
        let mut found = Vec::new();
        let mut left = vec![self.dir(root)];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(&dir).map_err(text)? {
                let path = entry.map_err(text)?.path();
                let meta = fs::metadata(&path).map_err(text)?;
                if meta.is_dir() {
                    left.push(path);
                } else if !path.ends_with(layout::LOCK) {
                    let changed = meta.modified().map_err(text)?;
                    found.push((path, meta.len(), changed));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}
