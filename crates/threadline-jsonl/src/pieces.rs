//! One log out of several files.
//!
//! A fork, and a session that was taken over, continue a frozen prefix of another file: the base
//! that their header names, which may have a base of its own. Read one after the other, header
//! lines included, the pieces are one log; offsets count over all of them.

use std::{
    io,
    path::{Path, PathBuf},
};

use threadline_session::{Base, Header};

use crate::{
    layout::{LOG, is_base_name},
    limits::{MAX_HEADER_BYTES, MAX_PIECES},
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, read_full},
};

/// A file's part of a log.
pub(crate) struct Piece {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn VfsFile>,
    /// Where it begins in the log.
    pub(crate) start: u64,
    /// What counts of a frozen prefix; `None` for the file that is written.
    pub(crate) base: Option<Base>,
    /// Its header line, LF included; empty when there is none.
    pub(crate) header_line: Vec<u8>,
}

impl Piece {
    /// Returns how many bytes of the file count.
    pub(crate) fn len(&self) -> Result<u64, FileError> {
        let len = self.file.len().at("measuring", &self.path)?;
        Ok(self.base.as_ref().map_or(len, |base| base.bytes.min(len)))
    }

    /// Reads bytes of the file that count: a prefix may be a part of a file that goes on.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> Result<usize, FileError> {
        let counts = self.base.as_ref().map_or(u64::MAX, |base| base.bytes);
        let room = usize::try_from(counts.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buf.len().min(room);
        let buf = buf.get_mut(..len).unwrap_or_default();
        read_full(&*self.file, buf, offset).at("reading", &self.path)
    }
}

/// The files of a log, from the oldest prefix to the one that is written.
pub(crate) struct Pieces(pub(crate) Vec<Piece>);

impl Pieces {
    /// Opens the log in a session's folder; `None` when there is none.
    pub(crate) fn open(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>, FileError> {
        let path = dir.join(LOG);
        let file = match vfs.open(&path, Mode::Read) {
            Ok(file) => file,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                    _ => Err(error).at("opening", &path),
                };
            }
        };
        let header_line = header_line(&*file, &path)?;
        let mut below = base_of(&header_line);
        let mut pieces = vec![Piece {
            path,
            file,
            start: 0,
            base: None,
            header_line,
        }];
        while let Some(base) = below {
            let piece = open_base(vfs, dir, base)?;
            // A file that is named twice would go round for ever.
            let known = pieces.iter().any(|other| other.path == piece.path);
            if known || pieces.len() >= MAX_PIECES {
                break;
            }
            below = base_of(&piece.header_line);
            pieces.push(piece);
        }
        pieces.reverse();
        let mut start = 0_u64;
        for piece in &mut pieces {
            piece.start = start;
            start = start.saturating_add(piece.base.as_ref().map_or(0, |base| base.bytes));
        }
        Ok(Some(Self(pieces)))
    }

    /// Returns the file that is written.
    pub(crate) fn own(&self) -> Option<&Piece> {
        self.0.last()
    }

    /// Returns the number of the piece that an offset lies in. At the border of two it is the
    /// second one.
    pub(crate) fn at(&self, offset: u64) -> usize {
        self.0
            .partition_point(|piece| piece.start <= offset)
            .saturating_sub(1)
    }

    /// Returns the number of the piece that holds an event, or would hold it.
    pub(crate) fn holding(&self, seq: u64) -> usize {
        self.0
            .iter()
            .position(|piece| piece.base.as_ref().is_none_or(|base| seq <= base.last_seq))
            .unwrap_or_else(|| self.0.len().saturating_sub(1))
    }

    /// Returns the first event of a piece, as the bases before it tell.
    pub(crate) fn first_seq(&self, number: usize) -> u64 {
        let before = number.checked_sub(1).and_then(|at| self.0.get(at));
        let base = before.and_then(|piece| piece.base.as_ref());
        base.map_or(0, |base| base.last_seq.saturating_add(1))
    }

    /// Returns the length of the whole log.
    pub(crate) fn len(&self) -> Result<u64, FileError> {
        self.own()
            .map_or(Ok(0), |own| Ok(own.start.saturating_add(own.len()?)))
    }

    /// Reads bytes of the log, which must lie in one piece.
    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> Result<usize, FileError> {
        let Some(piece) = self.0.get(self.at(offset)) else {
            return Ok(0);
        };
        piece.read(buf, offset - piece.start)
    }
}

fn open_base(vfs: &dyn Vfs, dir: &Path, base: Base) -> Result<Piece, FileError> {
    let path = dir.join(&base.file);
    let opened = if is_base_name(&base.file) {
        vfs.open(&path, Mode::Read)
    } else {
        Err(io::ErrorKind::NotFound.into())
    };
    let file = match opened {
        Ok(file) => file,
        // Its events are reported as damage where they are missed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Box::new(Gone),
        Err(error) => return Err(error).at("opening", &path),
    };
    let header_line = header_line(&*file, &path)?;
    Ok(Piece {
        path,
        file,
        start: 0,
        base: Some(base),
        header_line,
    })
}

fn base_of(header_line: &[u8]) -> Option<Base> {
    let line = header_line.strip_suffix(b"\n")?;
    Header::decode(line).ok()?.0.base
}

/// Reads the first line of a file, LF included; empty when it has no end within the limit.
pub(crate) fn header_line(file: &dyn VfsFile, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    for size in [4 << 10, MAX_HEADER_BYTES] {
        bytes.resize(size, 0);
        let read = read_full(file, &mut bytes, 0).at("reading", path)?;
        if let Some(end) = memchr::memchr(b'\n', bytes.get(..read).unwrap_or_default()) {
            bytes.truncate(end + 1);
            return Ok(bytes);
        }
        if read < size {
            break;
        }
    }
    Ok(Vec::new())
}

/// A file that should be there and is not.
struct Gone;

impl VfsFile for Gone {
    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    fn append(&self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn try_lock(&self, _: bool) -> io::Result<bool> {
        Err(io::ErrorKind::NotFound.into())
    }
}
