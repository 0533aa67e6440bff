//! The `index` file: checkpoints of a log, one behind the other.
//!
//! Each frame is the state's bytes and a trailer of fixed size, so that the newest is found from
//! the end of the file and older ones by walking back. The file is never synced and never
//! believed: a frame counts only if its own checksums hold and the log still has, right before
//! where the frame says it goes on, the very line that stood there.

use std::{io, path::Path};

use threadline_session::codec::crc32c;
use threadline_store::{Checkpoint, ReadPos};

use crate::{
    layout::{INDEX, index_of},
    limits::{MAX_CHECKPOINT_BYTES, MAX_LINE_BYTES},
    pieces::Pieces,
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, append_all, read_full},
};

const MAGIC: &[u8; 8] = b"TLINDEX1";
const TRAILER: usize = 60;

/// The end of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trailer {
    /// Length of the state before it.
    state_len: u32,
    state_crc: u32,
    next_seq: u64,
    /// Where the log goes on.
    next_at: u64,
    /// The line before that: its length with LF, and the checksum of all its bytes.
    line_len: u32,
    line_crc: u32,
    /// Checksum of the line that opens the log.
    header_crc: u32,
    /// End of the frame before, in this file; 0 for the first.
    previous: u64,
}

impl Trailer {
    fn encode(&self) -> [u8; TRAILER] {
        let mut bytes = [0; TRAILER];
        let mut parts = Vec::with_capacity(TRAILER);
        parts.extend_from_slice(MAGIC);
        parts.extend_from_slice(&self.state_len.to_le_bytes());
        parts.extend_from_slice(&self.state_crc.to_le_bytes());
        parts.extend_from_slice(&self.next_seq.to_le_bytes());
        parts.extend_from_slice(&self.next_at.to_le_bytes());
        parts.extend_from_slice(&self.line_len.to_le_bytes());
        parts.extend_from_slice(&self.line_crc.to_le_bytes());
        parts.extend_from_slice(&self.header_crc.to_le_bytes());
        parts.extend_from_slice(&self.previous.to_le_bytes());
        parts.extend_from_slice(&[0; 4]);
        parts.extend_from_slice(&crc32c(&parts).to_le_bytes());
        bytes.copy_from_slice(&parts);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if bytes.len() != TRAILER || crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let long = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        Some(Self {
            state_len: short(0)?,
            state_crc: short(4)?,
            next_seq: long(8)?,
            next_at: long(16)?,
            line_len: short(24)?,
            line_crc: short(28)?,
            header_crc: short(32)?,
            previous: long(36)?,
        })
    }
}

/// Reads the trailer that ends at an offset of the file.
fn trailer_at(file: &dyn VfsFile, end: u64) -> io::Result<Option<Trailer>> {
    let Some(start) = end.checked_sub(TRAILER as u64) else {
        return Ok(None);
    };
    let mut bytes = [0; TRAILER];
    let read = read_full(file, &mut bytes, start)?;
    Ok(Trailer::decode(bytes.get(..read).unwrap_or_default())
        .filter(|trailer| u64::from(trailer.state_len) <= start && trailer.previous < end))
}

/// Whether the log still is what it was when the frame was made, as far as its last line tells.
fn fits(trailer: &Trailer, pieces: &Pieces) -> Result<bool, FileError> {
    let root = pieces.0.first().map(|piece| piece.header_line.as_slice());
    if root.map(crc32c) != Some(trailer.header_crc) || pieces.len()? < trailer.next_at {
        return Ok(false);
    }
    let len = usize::try_from(trailer.line_len).unwrap_or(usize::MAX);
    let start = trailer.next_at.checked_sub(u64::from(trailer.line_len));
    let Some(start) = start.filter(|_| len > 0 && len <= MAX_LINE_BYTES) else {
        return Ok(false);
    };
    let mut line = vec![0; len];
    let read = pieces.read(&mut line, start)?;
    Ok(read == len && crc32c(&line) == trailer.line_crc)
}

/// Returns the newest intact checkpoint of a log that goes on at an event up to `limit`.
pub(crate) fn newest(
    vfs: &dyn Vfs,
    dir: &Path,
    pieces: &Pieces,
    limit: u64,
) -> Result<Option<Checkpoint>, FileError> {
    let below = pieces
        .0
        .iter()
        .rev()
        .filter_map(|piece| piece.base.as_ref());
    let names = std::iter::once(INDEX.to_owned()).chain(below.map(|base| index_of(&base.file)));
    for name in names {
        let path = dir.join(name);
        // A cache that is not to be had is as good as none.
        let Ok(file) = vfs.open(&path, Mode::Read) else {
            continue;
        };
        match newest_in(&*file, pieces, limit) {
            Ok(Some(checkpoint)) => return Ok(Some(checkpoint)),
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "an index cannot be read");
            }
        }
    }
    Ok(None)
}

fn newest_in(
    file: &dyn VfsFile,
    pieces: &Pieces,
    limit: u64,
) -> Result<Option<Checkpoint>, FileError> {
    let path = Path::new(INDEX);
    let mut end = file.len().at("measuring", path)?;
    while let Some(trailer) = trailer_at(file, end).at("reading", path)? {
        if trailer.next_seq <= limit && fits(&trailer, pieces)? {
            let len = usize::try_from(trailer.state_len).unwrap_or(usize::MAX);
            if len > MAX_CHECKPOINT_BYTES {
                return Ok(None);
            }
            let mut state = vec![0; len];
            let start = end - TRAILER as u64 - u64::from(trailer.state_len);
            let read = read_full(file, &mut state, start).at("reading", path)?;
            if read == len && crc32c(&state) == trailer.state_crc {
                return Ok(Some(Checkpoint {
                    next: ReadPos {
                        seq: trailer.next_seq,
                        hint: Some(trailer.next_at),
                    },
                    state,
                }));
            }
        }
        end = trailer.previous;
    }
    Ok(None)
}

/// A writer's hand on the index of its log.
#[derive(Default)]
pub(crate) struct IndexWriter {
    file: Option<Box<dyn VfsFile>>,
    /// End of the last frame.
    end: u64,
}

impl IndexWriter {
    /// Adds a checkpoint of the log as it stands. What cannot be continued is begun anew.
    pub(crate) fn put(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        next_seq: u64,
        state: &[u8],
    ) -> Result<(), FileError> {
        let path = dir.join(INDEX);
        if state.len() > MAX_CHECKPOINT_BYTES {
            return Ok(());
        }
        let Some(pieces) = Pieces::open(vfs, dir)? else {
            return Ok(());
        };
        let next_at = pieces.len()?;
        let Some(line) = last_line(&pieces, next_at)? else {
            return Ok(());
        };
        let root = pieces.0.first().map(|piece| piece.header_line.as_slice());
        // A fork may share the file by now, and what is written from here on is not for it.
        let meta = vfs.metadata(&path).at("looking at", &path)?;
        let ours = meta.is_some_and(|meta| meta.links < 2 && meta.len == self.end);
        let (file, end) = match self.file.take().filter(|_| ours) {
            Some(file) => (file, self.end),
            None => open(vfs, &path)?,
        };
        let trailer = Trailer {
            state_len: u32::try_from(state.len()).unwrap_or(0),
            state_crc: crc32c(state),
            next_seq,
            next_at,
            line_len: u32::try_from(line.len()).unwrap_or(0),
            line_crc: crc32c(&line),
            header_crc: crc32c(root.unwrap_or_default()),
            previous: end,
        };
        let mut frame = state.to_vec();
        frame.extend_from_slice(&trailer.encode());
        // A frame that is written in part hides those before it until the file is begun anew.
        append_all(&*file, &frame).at("writing", &path)?;
        self.end = end + frame.len() as u64;
        self.file = Some(file);
        Ok(())
    }
}

/// Opens an index for appending: the one that is there if its end is intact, else a new one.
fn open(vfs: &dyn Vfs, path: &Path) -> Result<(Box<dyn VfsFile>, u64), FileError> {
    let shared = vfs.metadata(path).at("looking at", path)?;
    if shared.is_none_or(|meta| meta.links < 2)
        && let Ok(file) = vfs.open(path, Mode::Append)
    {
        let len = file.len().at("measuring", path)?;
        if len == 0 || trailer_at(&*file, len).at("reading", path)?.is_some() {
            return Ok((file, len));
        }
    }
    match vfs.remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("removing", path),
    }
    let file = vfs.open(path, Mode::CreateNew).at("creating", path)?;
    Ok((file, 0))
}

/// Reads the line that ends at an offset of the log, LF included.
fn last_line(pieces: &Pieces, end: u64) -> Result<Option<Vec<u8>>, FileError> {
    let number = pieces.at(end.saturating_sub(1));
    let Some(piece) = pieces.0.get(number) else {
        return Ok(None);
    };
    let mut size = 4 << 10;
    loop {
        let from = end.saturating_sub(size).max(piece.start);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        let read = pieces.read(&mut bytes, from)?;
        bytes.truncate(read);
        let Some(body) = bytes.strip_suffix(b"\n") else {
            return Ok(None);
        };
        if let Some(before) = memchr::memrchr(b'\n', body) {
            return Ok(Some(bytes.split_off(before + 1)));
        }
        if from == piece.start {
            return Ok(Some(bytes));
        }
        size = size.saturating_mul(4);
        if size > MAX_LINE_BYTES as u64 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_survives_and_any_changed_byte_makes_it_none() {
        let trailer = Trailer {
            state_len: 1,
            state_crc: 2,
            next_seq: 3,
            next_at: 4,
            line_len: 5,
            line_crc: 6,
            header_crc: 7,
            previous: 8,
        };
        let bytes = trailer.encode();
        assert_eq!(Trailer::decode(&bytes), Some(trailer));
        for at in 0..TRAILER {
            let mut bad = bytes;
            bad[at] ^= 0x10;
            assert_eq!(Trailer::decode(&bad), None, "byte {at}");
        }
        assert_eq!(Trailer::decode(&bytes[1..]), None);
    }
}
