//! Showing the lines of a log as fast as they can be told apart.

use threadline_session::{Place, SessionId};
use threadline_store::{BackendError, ReadPos, Shown, Visit};

use crate::{
    files::{Files, failed},
    limits::{MAX_LINE_BYTES, READ_BYTES},
    pieces::Piece,
    vfs::FileError,
};

impl Files {
    /// Shows complete lines until `visit` wants no more or there are none.
    ///
    /// # Errors
    /// [`BackendError`], also when there is no such session.
    pub fn skim(
        &self,
        id: &SessionId,
        from: ReadPos,
        visit: &mut Visit<'_>,
    ) -> Result<ReadPos, BackendError> {
        let pieces = self.pieces(&self.dir(id))?;
        let mut offset = match (from.hint, from.seq) {
            (Some(hint), _) => hint,
            (None, 0) => 0,
            // Nobody asks for it; to read from there is right, only slower.
            (None, _) => return Ok(from),
        };
        let mut number = pieces.at(offset);
        while let Some(piece) = pieces.0.get(number) {
            let (to, whole) = show(piece, offset, visit).map_err(failed)?;
            offset = to;
            if !whole || piece.base.is_none() {
                break;
            }
            number += 1;
        }
        Ok(ReadPos {
            seq: from.seq,
            hint: Some(offset),
        })
    }
}

/// Shows the lines of a piece from an offset of the log. Returns where it stopped, and whether that
/// is the end of what counts of the piece.
fn show(piece: &Piece, from: u64, visit: &mut Visit<'_>) -> Result<(u64, bool), FileError> {
    let len = piece.len()?;
    let mut at = from - piece.start;
    let mut lines = Lines {
        first: piece.start,
        offset: from,
        part: Vec::new(),
    };
    // One block that stays in the processor's cache.
    let mut block = vec![0; READ_BYTES];
    loop {
        let room = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX);
        let want = block.get_mut(..room.min(READ_BYTES)).unwrap_or_default();
        let read = piece.read(want, at)?;
        if read == 0 {
            let whole = lines.part.is_empty() && at >= len;
            return Ok((lines.offset, whole));
        }
        at += read as u64;
        if !lines.show(block.get(..read).unwrap_or_default(), visit) {
            return Ok((lines.offset, false));
        }
    }
}

/// Puts the lines of a piece together from its blocks.
struct Lines {
    /// Where the piece begins in the log, and with it its header line.
    first: u64,
    /// Where the first line begins that was not shown yet.
    offset: u64,
    /// What has been read of that line.
    part: Vec<u8>,
}

impl Lines {
    /// Shows the lines that end in a block. Returns false if no more is wanted, or the line that
    /// begins last is too long to be one.
    fn show(&mut self, block: &[u8], visit: &mut Visit<'_>) -> bool {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            let line = block.get(begin..=end).unwrap_or_default();
            begin = end + 1;
            let wanted = if self.part.is_empty() {
                self.line(line, visit)
            } else {
                let mut part = std::mem::take(&mut self.part);
                part.extend_from_slice(line);
                let wanted = self.line(&part, visit);
                part.clear();
                self.part = part;
                wanted
            };
            if !wanted {
                return false;
            }
        }
        self.part
            .extend_from_slice(block.get(begin..).unwrap_or_default());
        self.part.len() <= MAX_LINE_BYTES
    }

    /// Shows a line with its LF.
    fn line(&mut self, line: &[u8], visit: &mut Visit<'_>) -> bool {
        let shown = if self.offset == self.first {
            Shown::Header(line)
        } else {
            let place = Place {
                at: self.offset,
                len: u32::try_from(line.len()).unwrap_or(u32::MAX),
            };
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            Shown::Line(text, place)
        };
        if !visit(shown) {
            return false;
        }
        self.offset += line.len() as u64;
        true
    }
}
