//! Reading a log: lines, damage and torn ends. The one decoder of this crate.

use threadline_session::{
    Header, Place,
    codec::{Line, skim_seq},
};
use threadline_store::{Damage, Entry, Page, ReadPos, Torn};

use crate::{
    hint::Hint,
    limits::MAX_LINE_BYTES,
    lines::{Lines, Raw},
    pieces::{Piece, Pieces},
    vfs::FileError,
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

    /// Returns the first event that must not be taken for granted though it can be read.
    pub(crate) fn trusted(&self) -> u64 {
        if self.failed || self.rebooted {
            self.durable_seq.map_or(0, |durable| durable + 1)
        } else {
            u64::MAX
        }
    }

    /// Whether event `seq` is known to be on stable storage.
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        self.durable_seq.is_some_and(|durable| seq <= durable)
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

/// Reads one log.
pub(crate) struct Scanner<'a> {
    pub(crate) pieces: &'a Pieces,
    /// About the file that is written. The others are frozen, and were durable before they were.
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

/// Where reading goes on.
enum Step {
    /// With the next line.
    On,
    /// At the next valid record, behind damage.
    At(u64),
    /// With the next piece.
    Piece,
    /// Nowhere: nothing behind counts.
    Stop(Page),
}

/// What is known of bytes that are no record.
struct Bad {
    start: u64,
    end: u64,
    reason: String,
}

impl<'a> Scanner<'a> {
    /// Reads a page that starts with event `from.seq`.
    pub(crate) fn page(&self, from: ReadPos, max_bytes: usize) -> Result<Page, FileError> {
        let (offset, inside) = match from.hint {
            Some(hint) if self.starts_here(hint, from.seq)? => (hint, None),
            _ => self.find(from.seq)?,
        };
        let mut number = self.pieces.at(offset);
        let Some(mut piece) = self.pieces.0.get(number) else {
            return Ok(Page::default());
        };
        let mut lines = Lines::new(piece, offset);
        let mut building = Building::new(from, inside);
        loop {
            let full = building.bytes >= max_bytes && building.batch.is_none();
            if full && lines.offset() != piece.start {
                building.page.next = ReadPos {
                    seq: building.expected,
                    hint: Some(lines.offset()),
                };
                return Ok(building.page);
            }
            let step = match lines.next()? {
                Some(Raw::Line { start, end, bytes }) if start == piece.start => {
                    building.header(piece, start, end, bytes);
                    Step::On
                }
                Some(raw) => self.take(&mut building, piece, number, raw)?,
                None => self.piece_end(&mut building, piece, lines.offset())?,
            };
            match step {
                Step::On => {}
                Step::At(offset) => lines = Lines::new(piece, offset),
                Step::Stop(page) => return Ok(page),
                Step::Piece => {
                    number += 1;
                    let Some(next) = self.pieces.0.get(number) else {
                        return Ok(building.page);
                    };
                    piece = next;
                    lines = Lines::new(piece, piece.start);
                }
            }
        }
    }

    fn is_own(&self, number: usize) -> bool {
        number + 1 >= self.pieces.0.len()
    }

    /// Goes on to the next piece, or ends the page with the last one.
    fn piece_end(
        &self,
        building: &mut Building,
        piece: &Piece,
        offset: u64,
    ) -> Result<Step, FileError> {
        let Some(base) = &piece.base else {
            let taken = std::mem::replace(building, Building::new(ReadPos::default(), None));
            return Ok(Step::Stop(taken.torn(piece, offset, offset, "nothing")));
        };
        let wanted = base.last_seq.saturating_add(1);
        let missing = (piece.start + base.bytes).saturating_sub(offset);
        // A fork may cut a batch in two, and its part is all there is.
        building.batch = None;
        if building.expected < wanted || missing > 0 {
            let reason = if missing > 0 {
                format!("{missing} bytes of the prefix that this log continues are missing")
            } else {
                format!(
                    "the prefix that this log continues lacks events up to {}",
                    base.last_seq
                )
            };
            building.damage(piece, offset, missing, reason);
        }
        building.expected = building.expected.max(wanted);
        Ok(Step::Piece)
    }

    /// Takes one line of events.
    fn take(
        &self,
        building: &mut Building,
        piece: &Piece,
        number: usize,
        raw: Raw,
    ) -> Result<Step, FileError> {
        let own = self.is_own(number);
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
            Ok(line) if own && self.evidence.in_doubt(line.event.seq) => {
                let taken = std::mem::replace(building, Building::new(ReadPos::default(), None));
                let end = piece.start + piece.len()?;
                let reason = "written before a failed sync";
                return Ok(Step::Stop(taken.torn(piece, start, end, reason)));
            }
            // The place was looked for behind the end, and somebody appended since.
            Ok(line) if building.untouched() && line.event.seq < building.expected => {
                return Ok(Step::On);
            }
            Ok(line) => {
                building.line(piece, start, end, line);
                return Ok(Step::On);
            }
            Err(reason) => reason,
        };
        self.bad(building, piece, own, Bad { start, end, reason })
    }

    /// Tells damage, which has valid records behind it, from a torn end.
    fn bad(
        &self,
        building: &mut Building,
        piece: &Piece,
        own: bool,
        bad: Bad,
    ) -> Result<Step, FileError> {
        let lost = own && self.evidence.unsynced(building.expected);
        let next = if lost {
            None
        } else {
            next_valid(piece, bad.end)?
        };
        match next {
            Some((valid_at, seq)) => {
                building.damage(piece, bad.start, valid_at - bad.start, bad.reason);
                building.expected = seq;
                Ok(Step::At(valid_at))
            }
            None if own => {
                let taken = std::mem::replace(building, Building::new(ReadPos::default(), None));
                let end = piece.start + piece.len()?;
                Ok(Step::Stop(taken.torn(piece, bad.start, end, &bad.reason)))
            }
            None => {
                let end = piece.start + piece.len()?;
                building.damage(piece, bad.start, end.saturating_sub(bad.start), bad.reason);
                let wanted = piece.base.as_ref().map_or(0, |base| base.last_seq + 1);
                building.expected = building.expected.max(wanted);
                Ok(Step::Piece)
            }
        }
    }

    /// Whether reading at an offset starts with event `seq`: its line is there, or a header line
    /// before it, or the log ends there.
    fn starts_here(&self, offset: u64, seq: u64) -> Result<bool, FileError> {
        let number = self.pieces.at(offset);
        let Some(piece) = self.pieces.0.get(number) else {
            return Ok(false);
        };
        if offset == piece.start {
            return Ok(self.pieces.first_seq(number) == seq);
        }
        let mut before = [0];
        let fits = piece.read(&mut before, offset - piece.start - 1)? == 1 && before == *b"\n";
        if !fits {
            return Ok(false);
        }
        Ok(match Lines::new(piece, offset).next()? {
            Some(Raw::Line { bytes, .. }) => skim_seq(&bytes) == Some(seq),
            // The writer has not appended since, or is in the middle of it.
            Some(Raw::Rest { .. }) | None => self.is_own(number),
            Some(Raw::Long { .. }) => false,
        })
    }
}

/// Finds the next valid record of a piece at or behind an offset: where it starts, and its number.
fn next_valid(piece: &Piece, offset: u64) -> Result<Option<(u64, u64)>, FileError> {
    let mut lines = Lines::new(piece, offset);
    while let Some(raw) = lines.next()? {
        if let Raw::Line { start, bytes, .. } = raw
            && let Ok(line) = Line::decode(&bytes)
        {
            return Ok(Some((start, line.event.seq)));
        }
    }
    Ok(None)
}

impl Building {
    fn new(from: ReadPos, inside: Option<(u64, u64)>) -> Self {
        Self {
            page: Page {
                next: from,
                ..Page::default()
            },
            from_seq: from.seq,
            bytes: 0,
            expected: from.seq,
            // Who starts inside a batch sees the rest of it only if it is complete.
            batch: inside.map(|(began, last)| (began, 0, last)),
        }
    }

    fn untouched(&self) -> bool {
        self.page.entries.is_empty() && self.expected == self.from_seq
    }

    fn header(&mut self, piece: &Piece, start: u64, end: u64, mut bytes: Vec<u8>) {
        let fine = match &piece.base {
            Some(_) => Header::decode(&bytes).map(drop),
            // Whoever reads a log has looked at its own header before.
            None => Ok(()),
        };
        match fine {
            Ok(()) => {
                bytes.push(b'\n');
                self.page.entries.push(Entry::Header(bytes));
            }
            Err(error) => self.damage(piece, start, end - start, error.to_string()),
        }
        self.page.next = ReadPos {
            seq: self.expected,
            hint: Some(end),
        };
    }

    fn damage(&mut self, piece: &Piece, start: u64, bytes: u64, reason: String) {
        self.batch = None;
        self.page.entries.push(Entry::Damage(Damage {
            file: piece.path.display().to_string(),
            offset: start - piece.start,
            bytes,
            seq: self.expected,
            reason,
        }));
    }

    fn line(&mut self, piece: &Piece, start: u64, end: u64, line: Line) {
        let seq = line.event.seq;
        if seq != self.expected {
            let reason = format!("event {seq} stands where event {} belongs", self.expected);
            self.damage(piece, start, 0, reason);
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
        let place = Place {
            at: start,
            len: u32::try_from(end - start).unwrap_or(u32::MAX),
        };
        self.page.entries.push(Entry::Line(line, place));
        self.page.next = ReadPos {
            seq: self.expected,
            hint: Some(end),
        };
    }

    /// Ends the page, and the log, in front of bytes that do not count.
    fn torn(mut self, piece: &Piece, offset: u64, end: u64, reason: &str) -> Page {
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
                Entry::Line(line, _) => Some(line.event.seq + 1),
                Entry::Damage(_) | Entry::Header(_) => None,
            });
        let seq = next.unwrap_or(self.from_seq);
        self.page.next = ReadPos {
            seq,
            hint: Some(offset),
        };
        self.page.end = true;
        if end > offset {
            self.page.torn = Some(Torn {
                file: piece.path.display().to_string(),
                offset: offset - piece.start,
                bytes: end - offset,
                reason,
            });
        }
        self.page
    }
}
