//! A backend that keeps everything in memory.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use threadline_session::{
    Base, Header, Place, SessionId,
    codec::{Line, check_raw, line_end},
};

use crate::{
    Backend, BackendError, Begun, BlobId, BlobStat, Catalogue, Checkpoint, ClaimError, Damage,
    Entry, HeaderReadError, Holder, Import, LogEnd, MemoryCatalogue, MemoryRows, NewLog, Page,
    ReadPos, Stamp, Stat, StoredHeader, Usage, UserSummary, WriteError, Writer, blob::names_in,
};

/// A line, LF included, and where it begins.
#[derive(Debug, Clone)]
struct Record {
    at: u64,
    /// Its event's number; `None` for a header.
    seq: Option<u64>,
    bytes: Arc<[u8]>,
}

impl Record {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn text(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes)
    }

    fn entry(&self, id: &SessionId, seq: u64) -> Entry {
        match Line::decode(self.text()) {
            Ok(line) => Entry::Line(
                line,
                Place {
                    at: self.at,
                    len: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
                },
            ),
            Err(error) => Entry::Damage(Damage {
                file: id.to_string(),
                offset: self.at,
                bytes: self.bytes.len() as u64,
                seq,
                reason: error.to_string(),
            }),
        }
    }
}

/// A log: header lines and events, one after the other.
#[derive(Debug, Clone, Default)]
struct Log(Vec<Record>);

impl Log {
    fn len(&self) -> u64 {
        self.0.last().map_or(0, Record::end)
    }

    fn next_seq(&self) -> u64 {
        let last = self.0.iter().rev().find_map(|record| record.seq);
        last.map_or(0, |last| last + 1)
    }

    fn header(&mut self, line: &[u8]) {
        let at = self.len();
        self.0.push(Record {
            at,
            seq: None,
            bytes: line.into(),
        });
    }

    fn lines(&mut self, batch: &[u8]) {
        let (mut at, mut from) = (self.len(), 0);
        let mut seq = self.next_seq();
        while let Some(end) = line_end(batch, from) {
            let bytes: Arc<[u8]> = batch.get(from..end).unwrap_or_default().into();
            let len = bytes.len() as u64;
            self.0.push(Record {
                at,
                seq: Some(seq),
                bytes,
            });
            at += len;
            seq += 1;
            from = end;
        }
    }

    fn own_header(&self) -> Option<&Record> {
        self.0.iter().rev().find(|record| record.seq.is_none())
    }

    /// Returns the index of the first record that reading from a position gives.
    fn index(&self, from: ReadPos) -> usize {
        match from.hint {
            Some(hint) => self.0.partition_point(|record| record.at < hint),
            None => {
                let mut index = self
                    .0
                    .iter()
                    .position(|record| record.seq.is_some_and(|seq| seq >= from.seq))
                    .unwrap_or(self.0.len());
                while index > 0 && self.0.get(index - 1).is_some_and(|r| r.seq.is_none()) {
                    index -= 1;
                }
                index
            }
        }
    }
}

#[derive(Debug, Default)]
struct Held {
    log: Log,
    summary: UserSummary,
    people: u64,
    claimed: bool,
    /// Counts the writers; only the newest may append.
    epoch: u64,
    acknowledged: Option<u64>,
    version: u64,
    checkpoints: Vec<Checkpoint>,
    /// Logs from before a repair.
    replaced: Vec<Log>,
}

/// Returns a number never given before, so that a session made again under an old id has a stamp
/// of its own.
fn next_version() -> u64 {
    static VERSION: AtomicU64 = AtomicU64::new(0);
    VERSION.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Default)]
struct Kept {
    sessions: HashMap<SessionId, Held>,
    blobs: HashMap<BlobId, (Vec<u8>, u64)>,
}

type Shared = Arc<Mutex<Kept>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Kept> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn missing(id: &SessionId) -> BackendError {
    BackendError::new(format!("reading {id}"), "there is no such session")
}

/// Keeps sessions for as long as it lives: for tests, and for embedders that want no persistence.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    shared: Shared,
    rows: Arc<tokio::sync::Mutex<MemoryRows>>,
    checkpoint_every: Option<u64>,
}

impl MemoryBackend {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a checkpoint after so many bytes of log.
    #[must_use]
    pub fn with_checkpoints_every(mut self, bytes: u64) -> Self {
        self.checkpoint_every = Some(bytes);
        self
    }
}

fn this_process() -> Holder {
    Holder {
        pid: std::process::id(),
        host: "this process".into(),
        since: 0,
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn address(&self) -> String {
        "memory:".into()
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        let rows = Arc::clone(&self.rows);
        Some(Arc::new(MemoryCatalogue::sharing(
            Arc::new(self.clone()),
            rows,
        )))
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        let kept = lock(&self.shared);
        let record = kept.sessions.get(id).and_then(|held| held.log.own_header());
        let Some(record) = record else {
            return Ok(None);
        };
        let decoded = Header::decode(record.text());
        let (header, verified) = decoded.map_err(|source| HeaderReadError::Header {
            file: id.to_string(),
            source,
        })?;
        Ok(Some(StoredHeader {
            header,
            line: record.bytes.to_vec(),
            verified,
        }))
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let kept = lock(&self.shared);
        let log = &kept.sessions.get(id).ok_or_else(|| missing(id))?.log;
        let mut page = Page {
            next: from,
            ..Page::default()
        };
        let (mut bytes, mut events) = (0, 0);
        let start = log.index(from);
        for record in log.0.iter().skip(start) {
            if bytes >= max_bytes && events > 0 && record.seq.is_some() {
                return Ok(page);
            }
            bytes += record.bytes.len();
            match record.seq {
                None => page.entries.push(Entry::Header(record.bytes.to_vec())),
                Some(seq) => {
                    events += 1;
                    page.next.seq = seq + 1;
                    page.entries.push(record.entry(id, seq));
                }
            }
            page.next.hint = Some(record.end());
        }
        page.end = true;
        Ok(page)
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        let kept = lock(&self.shared);
        let log = &kept.sessions.get(id).ok_or_else(|| missing(id))?.log;
        let found = wanted.iter().map(|(seq, place)| {
            let record = log
                .0
                .get(log.0.partition_point(|record| record.at < place.at));
            let text = record.map(Record::text).unwrap_or_default();
            match check_raw(text, *seq) {
                Ok(()) => Ok(text.to_vec()),
                Err(error) => Err(Damage {
                    file: id.to_string(),
                    offset: place.at,
                    bytes: u64::from(place.len),
                    seq: *seq,
                    reason: error.to_string(),
                }),
            }
        });
        Ok(found.collect())
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        let kept = lock(&self.shared);
        let held = kept.sessions.get(id).ok_or_else(|| missing(id))?;
        let newest = held.checkpoints.iter().rev();
        Ok(newest.into_iter().find(|c| c.next.seq <= limit).cloned())
    }

    fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every
            .unwrap_or(crate::limits::CHECKPOINT_BYTES)
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        Ok(lock(&self.shared).sessions.get(id).map(|held| Stat {
            bytes: held.log.len(),
            stamp: Stamp(held.log.len(), held.version),
            people: Stamp(held.people, 0),
            writer: held.claimed.then(this_process),
            acknowledged: held.acknowledged,
            epoch: Some(held.epoch),
        }))
    }

    async fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let kept = lock(&self.shared);
        let held = kept.sessions.get(id);
        Ok(held.map_or_else(Usage::default, |held| Usage {
            log: held.log.len(),
            quarantine: held.replaced.iter().map(Log::len).sum(),
            ..Usage::default()
        }))
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        Ok(lock(&self.shared).sessions.keys().cloned().collect())
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        let mut kept = lock(&self.shared);
        if kept.sessions.contains_key(id) {
            return Err(ClaimError::AlreadyExists);
        }
        let line = new.header_line.strip_suffix(b"\n").unwrap_or_default();
        let base = Header::decode(line)
            .ok()
            .and_then(|(header, _)| header.base);
        let mut held = Held {
            claimed: true,
            epoch: 1,
            acknowledged: new.last_seq,
            version: next_version(),
            ..Held::default()
        };
        if let (Some(base), Some(parent)) = (base, &new.parent) {
            let parent = kept.sessions.get(parent).ok_or(ClaimError::NotFound)?;
            let shared = |record: &&Record| record.seq.is_none_or(|seq| seq <= base.last_seq);
            held.log.0 = parent.log.0.iter().take_while(shared).cloned().collect();
            while held.log.0.last().is_some_and(|record| record.seq.is_none()) {
                held.log.0.pop();
            }
        }
        held.log.header(&new.header_line);
        held.log.lines(&new.batch);
        kept.sessions.insert(id.clone(), held);
        Ok(Box::new(self.writer(id, 1)))
    }

    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        let kept = lock(&self.shared);
        let log = &kept.sessions.get(id).ok_or_else(|| missing(id))?.log;
        let at = log.0.iter().position(|r| r.seq == Some(last_seq));
        let Some((at, record)) = at.and_then(|at| Some((at, log.0.get(at)?))) else {
            return Ok(None);
        };
        let before = log.0.get(..at).unwrap_or_default();
        let headers = || before.iter().filter(|record| record.seq.is_none());
        let opened = headers().next_back().map_or(0, |record| record.at);
        Ok(Some(Base {
            file: format!("base-{}.jsonl", headers().count().saturating_sub(1)),
            bytes: record.end() - opened,
            last_seq,
        }))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(self.claim_as(id, false)?))
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(self.claim_as(id, true)?))
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        let kept = lock(&self.shared);
        let held = kept.sessions.get(id);
        Ok(held.map(|held| held.summary.clone()).unwrap_or_default())
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let mut kept = lock(&self.shared);
        let held = kept.sessions.get_mut(id).ok_or_else(|| missing(id))?;
        if held.summary.revision != expected {
            return Ok(Err(held.summary.clone()));
        }
        held.summary = summary.clone();
        held.people = next_version();
        Ok(Ok(()))
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let mut kept = lock(&self.shared);
        match kept.sessions.get(id) {
            None => Err(ClaimError::NotFound),
            Some(held) if held.claimed => Err(ClaimError::Locked {
                holder: this_process(),
            }),
            Some(_) => {
                kept.sessions.remove(id);
                Ok(())
            }
        }
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        let mut kept = lock(&self.shared);
        kept.blobs.insert(id.clone(), (bytes.to_vec(), now_ms()));
        Ok(())
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        let kept = lock(&self.shared);
        Ok(kept.blobs.get(id).map(|(bytes, _)| bytes.clone()))
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        let kept = lock(&self.shared);
        let stats = kept.blobs.iter().map(|(id, (bytes, put_at))| BlobStat {
            id: id.clone(),
            bytes: bytes.len() as u64,
            put_at: *put_at,
        });
        Ok(stats.collect())
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        let mut kept = lock(&self.shared);
        let same = kept
            .blobs
            .get(&stat.id)
            .is_some_and(|(_, put_at)| *put_at == stat.put_at);
        Ok(same && kept.blobs.remove(&stat.id).is_some())
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        let kept = lock(&self.shared);
        let held = kept.sessions.get(id).ok_or_else(|| missing(id))?;
        let logs = held.replaced.iter().chain([&held.log]);
        logs.flat_map(|log| &log.0)
            .for_each(|record| names_in(&record.bytes, found));
        Ok(())
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        if lock(&self.shared).sessions.contains_key(id) {
            return Err(ClaimError::AlreadyExists);
        }
        Ok(Box::new(MemoryImport {
            shared: self.shared.clone(),
            id: id.clone(),
            log: Log::default(),
            claim: None,
        }))
    }

    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        let claim = self.claim_as(id, false)?;
        Ok(Box::new(MemoryImport {
            shared: self.shared.clone(),
            id: id.clone(),
            log: Log::default(),
            claim: Some(claim),
        }))
    }
}

impl MemoryBackend {
    fn claim_as(&self, id: &SessionId, by_force: bool) -> Result<MemoryWriter, ClaimError> {
        let mut kept = lock(&self.shared);
        let held = kept.sessions.get_mut(id).ok_or(ClaimError::NotFound)?;
        if held.claimed && !by_force {
            return Err(ClaimError::Locked {
                holder: this_process(),
            });
        }
        held.claimed = true;
        held.epoch += 1;
        Ok(self.writer(id, held.epoch))
    }

    fn writer(&self, id: &SessionId, epoch: u64) -> MemoryWriter {
        MemoryWriter {
            shared: self.shared.clone(),
            id: id.clone(),
            epoch,
        }
    }
}

struct MemoryImport {
    shared: Shared,
    id: SessionId,
    log: Log,
    /// The claim on the session whose log is replaced.
    claim: Option<MemoryWriter>,
}

#[async_trait]
impl Import for MemoryImport {
    async fn header(&mut self, line: &[u8]) -> Result<(), BackendError> {
        if self.claim.is_some() && !self.log.0.is_empty() {
            let what = format!("repairing session {}", self.id);
            return Err(BackendError::new(what, "a repaired log has one header"));
        }
        self.log.header(line);
        Ok(())
    }

    async fn lines(&mut self, lines: &[u8], _: u64) -> Result<(), BackendError> {
        self.log.lines(lines);
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<(), ClaimError> {
        let mut kept = lock(&self.shared);
        if let Some(claim) = &self.claim {
            if self.log.own_header().is_none() {
                let what = format!("repairing session {}", self.id);
                return Err(BackendError::new(what, "a log begins with its header").into());
            }
            let held = claim.held(&mut kept).map_err(|_| ClaimError::Locked {
                holder: this_process(),
            })?;
            held.acknowledged = self.log.next_seq().checked_sub(1);
            held.version = next_version();
            held.epoch += 1;
            held.claimed = false;
            held.checkpoints.clear();
            held.replaced
                .push(std::mem::replace(&mut held.log, self.log));
            return Ok(());
        }
        if kept.sessions.contains_key(&self.id) {
            return Err(ClaimError::AlreadyExists);
        }
        let held = Held {
            acknowledged: self.log.next_seq().checked_sub(1),
            version: next_version(),
            log: self.log,
            ..Held::default()
        };
        kept.sessions.insert(self.id, held);
        Ok(())
    }
}

struct MemoryWriter {
    shared: Shared,
    id: SessionId,
    epoch: u64,
}

impl MemoryWriter {
    fn held<'a>(&self, kept: &'a mut Kept) -> Result<&'a mut Held, WriteError> {
        let Some(held) = kept.sessions.get_mut(&self.id) else {
            return Err(WriteError::Fenced {
                by: "whoever deleted the session".into(),
            });
        };
        if held.epoch != self.epoch {
            return Err(WriteError::Fenced {
                by: this_process().to_string(),
            });
        }
        Ok(held)
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if let Ok(held) = self.held(&mut lock(&self.shared)) {
            held.claimed = false;
        }
    }
}

#[async_trait]
impl Writer for MemoryWriter {
    async fn begin(&mut self, _: LogEnd) -> Result<Begun, WriteError> {
        Ok(Begun::default())
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        let mut kept = lock(&self.shared);
        let held = self.held(&mut kept)?;
        let start = held.log.len();
        held.log.lines(&batch);
        held.version = next_version();
        if sync {
            held.acknowledged = Some(last_seq);
        }
        Ok(start)
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        let mut kept = lock(&self.shared);
        let held = self.held(&mut kept)?;
        held.acknowledged = held.log.next_seq().checked_sub(1);
        Ok(())
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        let mut kept = lock(&self.shared);
        let Ok(held) = self.held(&mut kept) else {
            return Ok(());
        };
        held.checkpoints.push(Checkpoint {
            next: ReadPos {
                seq: held.log.next_seq(),
                hint: Some(held.log.len()),
            },
            state: state.to_vec(),
        });
        Ok(())
    }
}
