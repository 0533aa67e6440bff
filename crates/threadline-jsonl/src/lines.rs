//! Splitting a file at LF, a bounded buffer at a time.

use crate::{
    limits::{FIRST_READ_BYTES, MAX_LINE_BYTES, READ_BYTES},
    pieces::Piece,
    vfs::FileError,
};

/// What stands between two line feeds. Offsets count over the whole log.
pub(crate) enum Raw {
    /// A complete line, without its LF.
    Line {
        start: u64,
        end: u64,
        bytes: Vec<u8>,
    },
    /// A line too long to be a record.
    Long { start: u64, end: u64 },
    /// Bytes up to the end of the piece without an LF.
    Rest { start: u64, end: u64 },
}

/// Reads the lines of a piece.
pub(crate) struct Lines<'a> {
    piece: &'a Piece,
    /// Where to stop, in the file.
    end: Option<u64>,
    buf: Vec<u8>,
    /// File offset of `buf[0]`.
    base: u64,
    /// Where the next line starts in `buf`.
    at: usize,
    /// Bytes to read at once; doubled up to a limit, since many readers want only a little.
    step: usize,
}

impl<'a> Lines<'a> {
    /// Starts at an offset of the log that lies in the piece.
    pub(crate) fn new(piece: &'a Piece, offset: u64) -> Self {
        Self {
            piece,
            end: piece.base.as_ref().map(|base| base.bytes),
            buf: Vec::new(),
            base: offset - piece.start,
            at: 0,
            step: FIRST_READ_BYTES,
        }
    }

    /// Returns where the next line starts.
    pub(crate) fn offset(&self) -> u64 {
        self.piece.start + self.base + self.at as u64
    }

    /// Reads more behind the buffer. Returns whether there was any.
    fn more(&mut self) -> Result<bool, FileError> {
        self.buf.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let held = self.buf.len();
        let offset = self.base + held as u64;
        let room = self.end.map_or(u64::MAX, |end| end.saturating_sub(offset));
        let want = self.step.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.step = (self.step * 2).min(READ_BYTES);
        self.buf.resize(held + want, 0);
        let fresh = self.buf.get_mut(held..).unwrap_or_default();
        let read = self.piece.read(fresh, offset)?;
        self.buf.truncate(held + read);
        Ok(read > 0)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Raw>, FileError> {
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
                self.at = self.buf.len();
                let end = self.offset();
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
