//! Reading a log: lines, damage and torn ends. The one decoder of this crate.

use std::path::Path;

use threadline_session::codec::Line;
use threadline_store::{Damage, Entry, Page, ReadPos, Torn};

use crate::{
    hint::Hint,
    limits::{MAX_LINE_BYTES, READ_BYTES},
    vfs::{At as _, FileError, VfsFile, read_full},
};

/// What the lock file says about bytes that cannot be read, or must not be believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Highest event known to be on stable storage, when a record says so.
    durable_seq: Option<u64>,
    /// Whether the machine was started anew since: what was not synced may be lost in any order.
    rebooted: bool,
    /// Whether a sync failed: everything behind `durable_seq` is in doubt.
    failed: bool,
}

impl Evidence {
    pub(crate) fn of(hint: Option<&Hint>, boot_id: &str) -> Self {
        hint.map_or_else(Self::default, |hint| Self {
            durable_seq: hint.durable_seq,
            rebooted: hint.boot_id != boot_id,
            failed: hint.failed,
        })
    }

    /// Whether damage where event `seq` belongs lies in what was never acknowledged.
    fn unsynced(&self, seq: u64) -> bool {
        self.rebooted && self.durable_seq.is_some_and(|durable| seq > durable)
    }

    /// Whether event `seq` must not be believed although it can be read.
    fn in_doubt(&self, seq: u64) -> bool {
        self.failed && self.durable_seq.is_some_and(|durable| seq > durable)
    }
}

enum Raw {
    /// A complete line, without its LF.
    Line {
        start: u64,
        end: u64,
        bytes: Vec<u8>,
    },
    /// A line too long to be a record.
    Long { start: u64, end: u64 },
    /// Bytes up to the end of the file without an LF.
    Rest { start: u64, end: u64 },
}

/// Splits a file at LF, a bounded buffer at a time.
struct Lines<'a> {
    file: &'a dyn VfsFile,
    path: &'a Path,
    buf: Vec<u8>,
    /// File offset of `buf[0]`.
    base: u64,
    /// Where the next line starts in `buf`.
    at: usize,
}

impl<'a> Lines<'a> {
    fn new(file: &'a dyn VfsFile, path: &'a Path, offset: u64) -> Self {
        Self {
            file,
            path,
            buf: Vec::new(),
            base: offset,
            at: 0,
        }
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Reads more behind the buffer. Returns whether there was any.
    fn more(&mut self) -> Result<bool, FileError> {
        self.buf.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let held = self.buf.len();
        let offset = self.base + held as u64;
        let mut fresh = vec![0; READ_BYTES];
        let read = read_full(self.file, &mut fresh, offset).at("reading", self.path)?;
        self.buf
            .extend_from_slice(fresh.get(..read).unwrap_or_default());
        Ok(read > 0)
    }

    fn next(&mut self) -> Result<Option<Raw>, FileError> {
        let start = self.offset();
        let mut searched = 0;
        loop {
            let pending = self.buf.get(self.at..).unwrap_or_default();
            if let Some(found) = memchr::memchr(b'\n', pending.get(searched..).unwrap_or_default())
            {
                let bytes = pending.get(..searched + found).unwrap_or_default().to_vec();
                self.at += bytes.len() + 1;
                return Ok(Some(Raw::Line {
                    start,
                    end: self.offset(),
                    bytes,
                }));
            }
            searched = pending.len();
            if searched > MAX_LINE_BYTES {
                return self.skip_long(start).map(Some);
            }
            if !self.more()? {
                let end = self.base + self.buf.len() as u64;
                self.at = self.buf.len();
                return Ok((end > start).then_some(Raw::Rest { start, end }));
            }
        }
    }

    fn skip_long(&mut self, start: u64) -> Result<Raw, FileError> {
        loop {
            let pending = self.buf.get(self.at..).unwrap_or_default();
            if let Some(found) = memchr::memchr(b'\n', pending) {
                self.at += found + 1;
                return Ok(Raw::Long {
                    start,
                    end: self.offset(),
                });
            }
            self.at = self.buf.len();
            if !self.more()? {
                return Ok(Raw::Rest {
                    start,
                    end: self.offset(),
                });
            }
        }
    }
}

/// Returns the sequence number at the fixed start of an event line, without parsing the line.
fn skim_seq(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    if digits.get(end) != Some(&b',') {
        return None;
    }
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Returns how many events the batch has that begins at a line, without parsing the line. The key
/// stands behind the data, with nothing but a chain value and the checksum after it.
fn skim_batch(line: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b",\"batch\":";
    let tail = line.get(line.len().saturating_sub(160)..)?;
    let at = memchr::memmem::rfind(tail, KEY)?;
    let digits = tail.get(at + KEY.len()..)?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    let rest = digits.get(end..)?;
    if !rest.starts_with(b",\"crc\":") && !rest.starts_with(b",\"chain\":") {
        return None;
    }
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Reads one log.
pub(crate) struct Scanner<'a> {
    pub(crate) file: &'a dyn VfsFile,
    pub(crate) path: &'a Path,
    pub(crate) evidence: Evidence,
}

/// A page in the making.
struct Building {
    page: Page,
    from_seq: u64,
    bytes: usize,
    expected: u64,
    /// The batch that is not complete yet: where it began, its first entry, its last event.
    batch: Option<(u64, usize, u64)>,
}

impl Building {
    fn torn(mut self, path: &Path, offset: u64, end: u64, reason: &str) -> Page {
        // Complete lines of a batch that is not complete go with what is torn: all or nothing.
        let (offset, reason) = match self.batch.take() {
            Some((began, first, last)) => {
                self.page.entries.truncate(first);
                let missing = last.saturating_add(1).saturating_sub(self.expected);
                (began, format!("a batch lacks its last {missing} events"))
            }
            None => (offset, reason.to_owned()),
        };
        let next = self
            .page
            .entries
            .iter()
            .rev()
            .find_map(|entry| match entry {
                Entry::Line(line) => Some(line.event.seq + 1),
                Entry::Damage(_) => None,
            });
        let seq = next.unwrap_or(self.from_seq);
        self.page.next = ReadPos {
            seq,
            hint: Some(offset),
        };
        self.page.end = true;
        if end > offset {
            self.page.torn = Some(Torn {
                file: path.display().to_string(),
                offset,
                bytes: end - offset,
                reason,
            });
        }
        self.page
    }
}

impl<'a> Scanner<'a> {
    /// Reads a page that starts with event `from.seq`.
    pub(crate) fn page(&self, from: ReadPos, max_bytes: usize) -> Result<Page, FileError> {
        let (offset, inside) = match from.hint.filter(|_| from.seq > 0) {
            Some(hint) if self.starts_here(hint, from.seq)? => (hint, None),
            _ => self.find(from.seq)?,
        };
        let mut lines = Lines::new(self.file, self.path, offset);
        let mut building = Building {
            page: Page {
                next: from,
                ..Page::default()
            },
            from_seq: from.seq,
            bytes: 0,
            expected: from.seq,
            // Who starts inside a batch sees the rest of it only if it is complete.
            batch: inside.map(|(began, last)| (began, 0, last)),
        };
        loop {
            if building.bytes >= max_bytes && building.batch.is_none() {
                building.page.next = ReadPos {
                    seq: building.expected,
                    hint: Some(lines.offset()),
                };
                return Ok(building.page);
            }
            let Some(raw) = lines.next()? else {
                let end = lines.offset();
                return Ok(building.torn(self.path, end, end, "nothing"));
            };
            if let Some(page) = self.take(&mut building, &mut lines, raw)? {
                return Ok(page);
            }
        }
    }

    /// Takes one line. Returns the page when nothing behind it counts.
    fn take(
        &self,
        building: &mut Building,
        lines: &mut Lines<'a>,
        raw: Raw,
    ) -> Result<Option<Page>, FileError> {
        let (start, end, decoded) = match raw {
            Raw::Line { start, end, bytes } => (
                start,
                end,
                Line::decode(&bytes).map_err(|error| error.to_string()),
            ),
            Raw::Long { start, end } => (
                start,
                end,
                Err(format!("a line longer than {MAX_LINE_BYTES} bytes")),
            ),
            Raw::Rest { start, end } => (start, end, Err("the line has no end".into())),
        };
        let reason = match decoded {
            Ok(line) if self.evidence.in_doubt(line.event.seq) => {
                let taken = std::mem::replace(building, Building::empty());
                let end = self.len()?;
                return Ok(Some(taken.torn(
                    self.path,
                    start,
                    end,
                    "written before a failed sync",
                )));
            }
            // The place was looked for behind the end, and somebody appended since.
            Ok(line) if building.untouched() && line.event.seq < building.expected => {
                return Ok(None);
            }
            Ok(line) => {
                building.line(self.path, start, end, line);
                return Ok(None);
            }
            Err(reason) => reason,
        };
        let expected = building.expected;
        let next = if self.evidence.unsynced(expected) {
            None
        } else {
            self.next_valid(end)?
        };
        let Some((valid_at, seq)) = next else {
            let taken = std::mem::replace(building, Building::empty());
            return Ok(Some(taken.torn(self.path, start, self.len()?, &reason)));
        };
        building.page.entries.push(Entry::Damage(Damage {
            file: self.path.display().to_string(),
            offset: start,
            bytes: valid_at - start,
            seq: expected,
            reason,
        }));
        building.batch = None;
        building.expected = seq;
        *lines = Lines::new(self.file, self.path, valid_at);
        Ok(None)
    }

    fn len(&self) -> Result<u64, FileError> {
        self.file.len().at("measuring", self.path)
    }

    /// Finds the next valid record at or behind an offset: where it starts, and its number.
    fn next_valid(&self, offset: u64) -> Result<Option<(u64, u64)>, FileError> {
        let mut lines = Lines::new(self.file, self.path, offset);
        while let Some(raw) = lines.next()? {
            if let Raw::Line { start, bytes, .. } = raw
                && let Ok(line) = Line::decode(&bytes)
            {
                return Ok(Some((start, line.event.seq)));
            }
        }
        Ok(None)
    }

    /// Whether the line at an offset is event `seq`, or the log ends there and the line before it
    /// is event `seq - 1`.
    fn starts_here(&self, offset: u64, seq: u64) -> Result<bool, FileError> {
        let mut before = [0];
        let fits = offset > 0
            && read_full(self.file, &mut before, offset - 1).at("reading", self.path)? == 1
            && before == *b"\n";
        if !fits {
            return Ok(false);
        }
        let mut lines = Lines::new(self.file, self.path, offset);
        Ok(match lines.next()? {
            Some(Raw::Line { bytes, .. }) => skim_seq(&bytes) == Some(seq),
            // The writer has not appended since, or is in the middle of it.
            Some(Raw::Rest { .. }) | None => true,
            Some(Raw::Long { .. }) => false,
        })
    }

    /// Finds where event `seq` starts, or belongs, by skimming from the front: behind the last line
    /// with a lower number. Lines that are no records are not passed over at the end, so that a
    /// page starts in front of damage and of torn bytes.
    ///
    /// When that is inside a batch, where the batch began and its last event come with it.
    fn find(&self, seq: u64) -> Result<(u64, Option<(u64, u64)>), FileError> {
        let mut lines = Lines::new(self.file, self.path, 0);
        // The header.
        lines.next()?;
        let mut at = lines.offset();
        let mut last = None;
        let mut batch = None;
        if seq == 0 {
            return Ok((at, batch));
        }
        while let Some(raw) = lines.next()? {
            let Raw::Line { start, end, bytes } = raw else {
                continue;
            };
            match skim_seq(&bytes) {
                Some(found) if found >= seq => break,
                Some(found) if last.is_none_or(|last| found > last) => {
                    last = Some(found);
                    at = end;
                    if let Some(count) = skim_batch(&bytes).filter(|count| *count > 1) {
                        batch = Some((start, found.saturating_add(count - 1)));
                    }
                }
                Some(_) | None => {}
            }
        }
        Ok((at, batch.filter(|(_, last)| *last >= seq)))
    }
}

impl Building {
    fn empty() -> Self {
        Self {
            page: Page::default(),
            from_seq: 0,
            bytes: 0,
            expected: 0,
            batch: None,
        }
    }

    fn untouched(&self) -> bool {
        self.page.entries.is_empty() && self.expected == self.from_seq
    }

    fn line(&mut self, path: &Path, start: u64, end: u64, line: Line) {
        let seq = line.event.seq;
        if seq != self.expected {
            self.batch = None;
            self.page.entries.push(Entry::Damage(Damage {
                file: path.display().to_string(),
                offset: start,
                bytes: 0,
                seq: self.expected,
                reason: format!("event {seq} stands where event {} belongs", self.expected),
            }));
        }
        if self.batch.is_none()
            && let Some(count) = line.batch
        {
            let last = seq.saturating_add(count as u64 - 1);
            self.batch = Some((start, self.page.entries.len(), last));
        }
        self.bytes += line.raw.len() + 1;
        self.expected = seq.saturating_add(1);
        if self.batch.is_some_and(|(_, _, last)| seq >= last) {
            self.batch = None;
        }
        self.page.entries.push(Entry::Line(line));
        self.page.next = ReadPos {
            seq: self.expected,
            hint: Some(end),
        };
    }
}
