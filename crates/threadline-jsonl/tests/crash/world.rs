//! What was attempted, what was acknowledged, and what must therefore be there.

#![allow(
    dead_code,
    reason = "shared by several test binaries, each of which uses a part"
)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_jsonl::{Files, JsonlBackend, JsonlOptions, LogWriter, layout, vfs::Vfs};
use threadline_session::{Event, Header, SessionId, chain::Chain, codec::Encoder};
use threadline_store::{
    Damage, Entry, LogEnd, NewLog, Page, ReadPos, Torn, UserSummary, WriteError,
};

pub(crate) const ROOT: &str = "/home/store";

pub(crate) type Fallible<T> = Result<T, String>;

pub(crate) fn files(vfs: &(impl Vfs + Clone)) -> Fallible<Files> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let backend = JsonlBackend::with_vfs(vfs, ROOT, JsonlOptions::default());
    Ok(backend.map_err(text)?.files().clone())
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The lines of a batch, each with its LF.
pub(crate) type Batch = Vec<Vec<u8>>;

/// Encodes a batch whose lines tell their number and their attempt apart. Sizes vary around one
/// and several sectors.
pub(crate) fn batch(first: u64, events: usize, attempt: u32) -> Batch {
    let event = |index: usize| {
        let seq = first + index as u64;
        let filler = "\u{e9}x".repeat(match (seq + u64::from(attempt)) % 4 {
            0 => 3,
            1 => 150,
            2 => 40,
            _ => 350,
        });
        let data = format!("{{\"n\":{seq},\"attempt\":{attempt},\"filler\":\"{filler}\"}}");
        Event::from_json(seq, 1_000 + seq, "test/event", &data, false).expect("an event")
    };
    let events: Vec<_> = (0..events).map(event).collect();
    let encoded = Encoder::new(Chain::new())
        .batch(first, &events, None)
        .expect("a batch");
    let mut start = 0;
    let mut lines = Vec::new();
    for end in encoded.ends {
        lines.push(encoded.bytes[start..end].to_vec());
        start = end;
    }
    lines
}

/// What a checkpoint behind some lines holds: all of them. It has no LF, around which a crash would
/// have a fate of its own.
pub(crate) fn state_of(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut state = lines.concat();
    state
        .iter_mut()
        .filter(|b| **b == b'\n')
        .for_each(|b| *b = b' ');
    state
}

/// One session as its writer knows it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) header: Vec<u8>,
    /// All batches that a write was begun for, in order.
    pub(crate) tried: Vec<Batch>,
    /// Events that the system took.
    pub(crate) written: usize,
    /// Events acknowledged as durable.
    pub(crate) synced: usize,
    /// Counts recoveries, so that what is written after one differs from what was lost.
    pub(crate) attempt: u32,
    pub(crate) created: bool,
    pub(crate) deleting: bool,
    pub(crate) deleted: bool,
    /// Whether an earlier session of the same id was deleted, with all that was in its folder.
    pub(crate) deleted_before: bool,
    /// Summaries that were begun to be put, and how many of them were acknowledged.
    pub(crate) summaries: Vec<UserSummary>,
    pub(crate) summaries_kept: usize,
    /// Whether somebody took it over, so that its header may tell of one more base.
    pub(crate) renewed: bool,
    /// How its damage is repaired, if it has any.
    pub(crate) repair: Option<Repair>,
}

/// A damaged log, and the one that takes its place.
#[derive(Debug, Clone)]
pub(crate) struct Repair {
    /// The files of the damaged log.
    pub(crate) old: Vec<(PathBuf, Vec<u8>)>,
    /// The pieces of the new one.
    pub(crate) new: Vec<Given>,
}

/// A piece of a log as it is given to an import: header line, lines, last event.
pub(crate) type Given = (Vec<u8>, Vec<u8>, u64);

impl Session {
    pub(crate) fn new(number: u32) -> Self {
        let id = format!("019ad2c4-3800-7000-8000-{number:012}");
        Self::with_id(SessionId::parse(id).expect("an id"))
    }

    pub(crate) fn with_id(id: SessionId) -> Self {
        let cwd = Path::new("/w").into();
        let header = Header::new(id.clone(), 7, cwd).encode().expect("a header");
        Self {
            id,
            header,
            tried: Vec::new(),
            written: 0,
            synced: 0,
            attempt: 0,
            created: false,
            deleting: false,
            deleted: false,
            deleted_before: false,
            summaries: Vec::new(),
            summaries_kept: 0,
            renewed: false,
            repair: None,
        }
    }

    /// Takes it that the session was never created, or is deleted.
    pub(crate) fn forget(&mut self) {
        let deleted_before = self.deleted_before || self.deleting;
        let attempt = self.attempt + 100;
        *self = Self {
            deleted_before,
            attempt,
            ..Self::with_id(self.id.clone())
        };
    }

    pub(crate) fn dir(&self) -> PathBuf {
        layout::session_dir(Path::new(ROOT), &self.id)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir().join(layout::LOG)
    }

    /// All lines that were attempted, as they are kept.
    pub(crate) fn owned(&self) -> Batch {
        self.tried.concat()
    }

    /// All lines that were attempted.
    pub(crate) fn lines(&self) -> Vec<&[u8]> {
        self.tried.iter().flatten().map(Vec::as_slice).collect()
    }

    pub(crate) fn next_seq(&self) -> usize {
        self.tried.iter().map(Vec::len).sum()
    }

    /// Begins a batch. Returns its bytes and its last event.
    fn begin_batch(&mut self, events: usize) -> (Vec<u8>, u64) {
        let first = self.next_seq();
        self.begin_lines(batch(first as u64, events, self.attempt))
    }

    fn begin_lines(&mut self, batch: Batch) -> (Vec<u8>, u64) {
        let last = (self.next_seq() + batch.len()).saturating_sub(1);
        let bytes = batch.concat();
        self.tried.push(batch);
        (bytes, last as u64)
    }

    pub(crate) fn create(&mut self, files: &Files, events: usize) -> Fallible<LogWriter> {
        let (batch, last) = self.begin_batch(events);
        let new = NewLog {
            header_line: self.header.clone(),
            batch,
            last_seq: Some(last),
            parent: None,
        };
        let writer = files.create(&self.id, &new).map_err(text)?;
        self.created = true;
        self.written = self.next_seq();
        self.synced = self.written;
        Ok(writer)
    }

    pub(crate) fn append(
        &mut self,
        writer: &mut LogWriter,
        events: usize,
        sync: bool,
    ) -> Result<(), WriteError> {
        let first = self.next_seq() as u64;
        self.append_lines(writer, batch(first, events, self.attempt), sync)
    }

    pub(crate) fn append_lines(
        &mut self,
        writer: &mut LogWriter,
        lines: Batch,
        sync: bool,
    ) -> Result<(), WriteError> {
        let (bytes, last) = self.begin_lines(lines);
        match writer.append(&bytes, last, sync) {
            Ok(_) => {
                self.written = self.next_seq();
                if sync {
                    self.synced = self.written;
                }
                Ok(())
            }
            Err(error) => {
                if let WriteError::StorageFull { .. } = error {
                    // Nothing of it remains, says the contract.
                    self.tried.pop();
                    self.attempt += 1;
                }
                Err(error)
            }
        }
    }

    pub(crate) fn sync(&mut self, writer: &mut LogWriter) -> Result<(), WriteError> {
        writer.sync()?;
        self.synced = self.written;
        Ok(())
    }

    pub(crate) fn put_summary(&mut self, files: &Files) -> Fallible<()> {
        let revision = self.summaries.len() as u64;
        let mut summary = UserSummary {
            revision: revision + 1,
            ..UserSummary::default()
        };
        summary.title = Some(format!("title {revision} {}", "y".repeat(600)));
        self.summaries.push(summary.clone());
        let put = files
            .put_summary(&self.id, revision, &summary)
            .map_err(text)?;
        put.map_err(|found| format!("revision {} is in force", found.revision))?;
        self.summaries_kept = self.summaries.len();
        Ok(())
    }

    pub(crate) fn delete(&mut self, files: &Files) -> Fallible<()> {
        self.deleting = true;
        files.delete(&self.id).map_err(text)?;
        self.deleted = true;
        Ok(())
    }

    /// Claims the session, reads its log and goes on behind it. Torn bytes must be put aside.
    pub(crate) fn resume(&mut self, files: &Files) -> Fallible<LogWriter> {
        let mut writer = files.claim(&self.id).map_err(text)?;
        let log = read(files, &self.id, 1 << 20)?;
        if let Some(damage) = log.damage.first() {
            return Err(text(damage));
        }
        self.found(log.lines.len())?;
        let end = LogEnd {
            next: log.next,
            torn: log.torn,
        };
        writer.begin(end).map_err(text)?;
        Ok(writer)
    }

    /// Takes what was found as what is there: what was attempted behind it never happened.
    pub(crate) fn found(&mut self, events: usize) -> Fallible<()> {
        let mut sum = 0;
        let mut batches = 0;
        while sum < events {
            let batch = self
                .tried
                .get(batches)
                .ok_or("more events than were attempted")?;
            sum += batch.len();
            batches += 1;
        }
        if sum != events {
            return Err(format!("{events} events end inside a batch (I3)"));
        }
        if self.tried.len() > batches {
            self.attempt += 1;
        }
        self.tried.truncate(batches);
        self.written = events;
        self.created |= events > 0;
        Ok(())
    }
}

/// A whole log as a reader sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) lines: Vec<Vec<u8>>,
    pub(crate) seqs: Vec<u64>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) torn: Option<Torn>,
    pub(crate) next: ReadPos,
}

impl Log {
    fn take(&mut self, page: Page) {
        for entry in page.entries {
            match entry {
                Entry::Header(_) => {}
                Entry::Line(line, _) => {
                    self.seqs.push(line.event.seq);
                    self.lines.push([line.raw.as_slice(), b"\n"].concat());
                }
                Entry::Damage(damage) => self.damage.push(damage),
            }
        }
        self.torn = page.torn;
        self.next = page.next;
    }
}

/// Reads a log to its end, a page after the other.
pub(crate) fn read(files: &Files, id: &SessionId, page_bytes: usize) -> Fallible<Log> {
    read_from(files, id, ReadPos::default(), page_bytes)
}

pub(crate) fn read_from(
    files: &Files,
    id: &SessionId,
    from: ReadPos,
    page_bytes: usize,
) -> Fallible<Log> {
    let mut log = Log {
        next: from,
        ..Log::default()
    };
    loop {
        let page = files.page(id, log.next, page_bytes).map_err(text)?;
        let (end, empty, before) = (page.end, page.entries.is_empty(), log.next);
        log.take(page);
        if end {
            return Ok(log);
        }
        if empty || log.next == before {
            return Err(format!("the page at {before:?} goes nowhere (I4)"));
        }
    }
}
