//! Finding where an event stands.

use threadline_session::codec::skim_seq;

use crate::{
    limits::{LINEAR_BYTES, MAX_BATCH_EVENTS},
    lines::{Lines, Raw},
    pieces::Piece,
    scan::Scanner,
    vfs::FileError,
};

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

impl Scanner<'_> {
    /// Finds where event `seq` starts, or belongs: behind the last line with a lower number. Lines
    /// that are no records are not passed over at the end, so that a page starts in front of damage
    /// and of torn bytes. The first event of a piece starts with the header line before it.
    ///
    /// When that is inside a batch, where the batch began and its last event come with it.
    pub(crate) fn find(&self, seq: u64) -> Result<(u64, Option<(u64, u64)>), FileError> {
        let number = self.pieces.holding(seq);
        let Some(piece) = self.pieces.0.get(number) else {
            return Ok((0, None));
        };
        if seq <= self.pieces.first_seq(number) {
            return Ok((piece.start, None));
        }
        // A batch that is durable, or in a frozen piece, is complete or meant to be as it is.
        let settled = piece.base.is_some() || self.evidence.is_durable(seq);
        let mut lines = Lines::new(piece, near(piece, seq, settled)?);
        if lines.offset() == piece.start {
            // The header.
            lines.next()?;
        }
        let mut at = lines.offset();
        let mut last = None;
        let mut batch = None;
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

/// Returns a place in a piece from which event `seq` is not far, by halving the file: numbers only
/// grow. Unless that is settled, it is early enough that a batch that holds the event begins behind
/// it.
fn near(piece: &Piece, seq: u64, settled: bool) -> Result<u64, FileError> {
    let len = piece.len()?;
    if len <= LINEAR_BYTES {
        return Ok(piece.start);
    }
    // Whether a batch is complete is a question only near the end of the file.
    let near_end = || -> Result<bool, FileError> {
        let last = last_number(piece, len)?;
        Ok(last.is_none_or(|last| last < seq.saturating_add(MAX_BATCH_EVENTS)))
    };
    let wanted = if !settled && near_end()? {
        seq.saturating_sub(MAX_BATCH_EVENTS)
    } else {
        seq
    };
    let (mut low, mut high) = (0, len);
    while high - low > LINEAR_BYTES / 4 {
        let middle = low + (high - low) / 2;
        match number_behind(piece, middle, high)? {
            Some((at, found)) if found < wanted => low = at,
            Some(_) | None => high = middle,
        }
    }
    Ok(piece.start + low)
}

/// Finds the first line behind an offset of the file that shows a number: where it starts, and the
/// number.
fn number_behind(piece: &Piece, from: u64, to: u64) -> Result<Option<(u64, u64)>, FileError> {
    let mut lines = Lines::new(piece, piece.start + from);
    // The rest of a line that begins before.
    lines.next()?;
    while lines.offset() - piece.start < to {
        match lines.next()? {
            Some(Raw::Line { start, bytes, .. }) => {
                if let Some(found) = skim_seq(&bytes) {
                    return Ok(Some((start - piece.start, found)));
                }
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

/// Returns the last number that the end of a file shows.
fn last_number(piece: &Piece, len: u64) -> Result<Option<u64>, FileError> {
    let mut lines = Lines::new(piece, piece.start + len.saturating_sub(LINEAR_BYTES));
    lines.next()?;
    let mut last = None;
    while let Some(raw) = lines.next()? {
        if let Raw::Line { bytes, .. } = raw {
            last = skim_seq(&bytes).or(last);
        }
    }
    Ok(last)
}
