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
    let mut buf = vec![0; READ_BYTES];
    // The bytes of `buf` before `held` are read and not shown yet, from `at` in the file on.
    let (mut at, mut held) = (from - piece.start, 0);
    loop {
        let room = len.saturating_sub(at + held as u64);
        let want = (buf.len() - held).min(usize::try_from(room).unwrap_or(usize::MAX));
        let fresh = buf.get_mut(held..held + want).unwrap_or_default();
        let read = piece.read(fresh, at + held as u64)?;
        let filled = buf.get(..held + read).unwrap_or_default();
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', filled) {
            let offset = piece.start + at + begin as u64;
            let shown = if offset == piece.start {
                Shown::Header(filled.get(begin..=end).unwrap_or_default())
            } else {
                let place = Place {
                    at: offset,
                    len: u32::try_from(end + 1 - begin).unwrap_or(u32::MAX),
                };
                Shown::Line(filled.get(begin..end).unwrap_or_default(), place)
            };
            if !visit(shown) {
                return Ok((offset, false));
            }
            begin = end + 1;
        }
        at += begin as u64;
        held = filled.len() - begin;
        if read == 0 {
            return Ok((piece.start + at, held == 0 && at >= len));
        }
        buf.copy_within(begin..begin + held, 0);
        if held == buf.len() {
            // One line fills the buffer.
            if buf.len() > MAX_LINE_BYTES {
                return Ok((piece.start + at, false));
            }
            buf.resize(buf.len() * 2, 0);
        }
    }
}
