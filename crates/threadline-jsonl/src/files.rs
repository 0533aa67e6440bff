//! Sessions on a file system, synchronously: finding, reading, creating, claiming, deleting.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_session::{Header, Place, SessionId, codec::check_raw};
use threadline_store::{
    BackendError, Checkpoint, ClaimError, Damage, HeaderReadError, Page, ReadPos, Stamp, Stat,
    StoredHeader, Usage,
};

use crate::{
    hint::Hint,
    index,
    layout::{self, LOG, SUMMARY},
    limits::{MAX_LINE_BYTES, READ_BYTES},
    pieces::{Pieces, header_line},
    scan::{Evidence, Scanner},
    vfs::{At as _, FileError, Meta, Mode, Vfs, VfsFile},
};

/// The sessions below one folder.
#[derive(Debug, Clone)]
pub struct Files {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) root: PathBuf,
    pub(crate) allow_network: bool,
}

pub(crate) fn failed(error: FileError) -> BackendError {
    let what = format!("{} {}", error.deed, error.path.display());
    let denied = error.source.kind() == io::ErrorKind::PermissionDenied;
    let what = if denied {
        format!("{what} (check the owner and the permissions of the file)")
    } else {
        what
    };
    BackendError::new(what, error.source)
}

pub(crate) fn claim_failed(error: FileError) -> ClaimError {
    if error.is_full() {
        ClaimError::StorageFull {
            what: error.to_string(),
        }
    } else {
        ClaimError::Backend(failed(error))
    }
}

impl Files {
    pub(crate) fn dir(&self, id: &SessionId) -> PathBuf {
        layout::session_dir(&self.root, id)
    }

    fn open_log(&self, dir: &Path) -> Result<Option<Box<dyn VfsFile>>, FileError> {
        let path = dir.join(LOG);
        match self.vfs.open(&path, Mode::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error).at("opening", &path),
            },
        }
    }

    /// Reads a session's header.
    ///
    /// # Errors
    /// [`HeaderReadError`].
    pub fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        self.header_in(&self.dir(id))
    }

    pub(crate) fn header_in(&self, dir: &Path) -> Result<Option<StoredHeader>, HeaderReadError> {
        let path = dir.join(LOG);
        let Some(file) = self.open_log(dir).map_err(failed)? else {
            return Ok(None);
        };
        let line = header_line(&*file, &path).map_err(failed)?;
        let wrong = |source| HeaderReadError::Header {
            file: path.display().to_string(),
            source,
        };
        let Some(text) = line.strip_suffix(b"\n") else {
            let empty = file.len().at("measuring", &path).map_err(failed)? == 0;
            let reason = if empty {
                "the file is empty"
            } else {
                "the line has no end"
            };
            return Err(wrong(threadline_session::HeaderError::Invalid {
                reason: reason.into(),
            }));
        };
        let (header, verified) = Header::decode(text).map_err(wrong)?;
        Ok(Some(StoredHeader {
            header,
            line,
            verified,
        }))
    }

    /// Opens a session's log, which must exist.
    pub(crate) fn pieces(&self, dir: &Path) -> Result<Pieces, BackendError> {
        let pieces = Pieces::open(&*self.vfs, dir).map_err(failed)?;
        pieces.ok_or_else(|| {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            BackendError::new(format!("reading {}", dir.join(LOG).display()), missing)
        })
    }

    pub(crate) fn evidence(&self, dir: &Path) -> Result<Evidence, BackendError> {
        let lock = self.lock_path(dir).map_err(failed)?;
        let hint = Hint::load_at(&*self.vfs, &lock).map_err(failed)?;
        Ok(Evidence::of(hint.as_ref(), &self.vfs.boot_id()))
    }

    /// Reads a page of a session's log.
    ///
    /// # Errors
    /// [`BackendError`], also when there is no such session.
    pub fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let dir = self.dir(id);
        // The record first: what it says of a log holds for all that is read afterwards.
        let evidence = self.evidence(&dir)?;
        let pieces = self.pieces(&dir)?;
        let scanner = Scanner {
            pieces: &pieces,
            evidence,
        };
        scanner.page(from, max_bytes).map_err(failed)
    }

    /// Reads single lines by their places, in the order asked for.
    ///
    /// # Errors
    /// [`BackendError`], also when there is no such session.
    pub fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        let pieces = self.pieces(&self.dir(id))?;
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|at| wanted.get(*at).map(|(_, place)| place.at));
        let mut found = vec![None; wanted.len()];
        let mut window = Window::default();
        for at in order {
            let Some((seq, place)) = wanted.get(at) else {
                continue;
            };
            let line = window.line(&pieces, *seq, *place).map_err(failed)?;
            if let Some(slot) = found.get_mut(at) {
                *slot = Some(line);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the newest intact checkpoint that goes on at an event up to `limit`.
    ///
    /// # Errors
    /// [`BackendError`], also when there is no such session.
    pub fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        let dir = self.dir(id);
        let evidence = self.evidence(&dir)?;
        let pieces = self.pieces(&dir)?;
        // What may be lost, or is not to be believed, is for the decoder to look at.
        let limit = limit.min(evidence.trusted());
        index::newest(&*self.vfs, &dir, &pieces, limit).map_err(failed)
    }

    /// Returns what is known of a session without reading its log.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        let dir = self.dir(id);
        let path = dir.join(LOG);
        let Some(meta) = self
            .vfs
            .metadata(&path)
            .at("looking at", &path)
            .map_err(failed)?
        else {
            return Ok(None);
        };
        let (writer, hint) = self.look_at_lock(&dir);
        let people = self.people_stamp(&dir)?;
        Ok(Some(Stat {
            bytes: self.bytes(&dir, meta.len).map_err(failed)?,
            stamp: Stamp(meta.len, meta.mtime_ns),
            people,
            writer,
            acknowledged: hint.as_ref().and_then(|hint| hint.durable_seq),
            epoch: hint.map(|hint| hint.epoch),
        }))
    }

    /// Returns the stamps of a session in a folder, as in [`Stat`], and nothing else.
    pub(crate) fn stamps(&self, dir: &Path) -> Result<Option<(Stamp, Stamp)>, BackendError> {
        let path = dir.join(LOG);
        let meta = self.vfs.metadata(&path).at("looking at", &path);
        let Some(meta) = meta.map_err(failed)? else {
            return Ok(None);
        };
        let log = Stamp(meta.len, meta.mtime_ns);
        Ok(Some((log, self.people_stamp(dir)?)))
    }

    fn people_stamp(&self, dir: &Path) -> Result<Stamp, BackendError> {
        let path = dir.join(SUMMARY);
        let meta = self.vfs.metadata(&path).at("looking at", &path);
        // The file is replaced each time, and its time is coarser than two changes may be apart.
        let stamp = |meta: Meta| Stamp(meta.len ^ meta.inode.rotate_left(32), meta.mtime_ns);
        Ok(meta.map_err(failed)?.map_or_else(Stamp::default, stamp))
    }

    /// Returns the length of a whole log whose own file has a length.
    fn bytes(&self, dir: &Path, own: u64) -> Result<u64, FileError> {
        // Only a log with a prefix needs a look inside.
        let first = dir.join(layout::base_name(0));
        if self
            .vfs
            .metadata(&first)
            .at("looking at", &first)?
            .is_none()
        {
            return Ok(own);
        }
        Pieces::open(&*self.vfs, dir)?.map_or(Ok(own), |pieces| pieces.len())
    }

    /// Returns the bytes that a session takes up.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let dir = self.dir(id);
        let mut usage = Usage::default();
        for entry in self.vfs.list(&dir).at("listing", &dir).map_err(failed)? {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                usage.quarantine += self.bytes_below(&path).map_err(failed)?;
                continue;
            }
            let meta = self.vfs.metadata(&path).at("looking at", &path);
            let len = meta.map_err(failed)?.map_or(0, |meta| meta.len);
            let name = entry.name.to_string_lossy();
            let part = if name == LOG {
                &mut usage.log
            } else if layout::is_base_name(&name) {
                &mut usage.shared
            } else if name == layout::INDEX || name.ends_with(".index") {
                &mut usage.index
            } else {
                &mut usage.other
            };
            *part += len;
        }
        Ok(usage)
    }

    fn bytes_below(&self, dir: &Path) -> Result<u64, FileError> {
        let mut bytes = 0;
        for entry in self.vfs.list(dir).at("listing", dir)? {
            let path = dir.join(&entry.name);
            bytes += if entry.is_dir {
                self.bytes_below(&path)?
            } else {
                let meta = self.vfs.metadata(&path).at("looking at", &path)?;
                meta.map_or(0, |meta| meta.len)
            };
        }
        Ok(bytes)
    }

    /// Returns all ids, in no order.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        let mut found = Vec::new();
        for dir in self.session_dirs()? {
            let name = dir.file_name().and_then(|name| name.to_str());
            found.extend(self.id_of(&dir, name.unwrap_or_default())?);
        }
        Ok(found)
    }

    /// Returns the folders in which sessions are kept, or may be, in no order.
    pub(crate) fn session_dirs(&self) -> Result<Vec<PathBuf>, BackendError> {
        let top = self.root.join(layout::SESSIONS);
        let mut found = Vec::new();
        for first in self.folders(&top)? {
            let depth = if first == layout::OTHER { 2 } else { 3 };
            let mut level = vec![top.join(&first)];
            for _ in 0..depth {
                let mut below = Vec::new();
                for dir in level {
                    below.extend(self.folders(&dir)?.into_iter().map(|name| dir.join(name)));
                }
                level = below;
            }
            found.extend(level);
        }
        Ok(found)
    }

    fn id_of(&self, dir: &Path, name: &str) -> Result<Option<SessionId>, BackendError> {
        let log = dir.join(LOG);
        if self
            .vfs
            .metadata(&log)
            .at("looking at", &log)
            .map_err(failed)?
            .is_none()
        {
            return Ok(None);
        }
        let id = match layout::unescape(name) {
            Some(id) => Some(id),
            None => self
                .header_in(dir)
                .ok()
                .flatten()
                .map(|stored| stored.header.id),
        };
        // A folder that was put somewhere else is not found by its id, so it is not listed.
        Ok(id.filter(|id| self.dir(id) == dir))
    }

    pub(crate) fn folders(&self, dir: &Path) -> Result<Vec<String>, BackendError> {
        match self.vfs.list(dir) {
            Ok(entries) => Ok(entries
                .into_iter()
                .filter(|entry| entry.is_dir)
                .filter_map(|entry| entry.name.into_string().ok())
                .filter(|name| !name.starts_with('.'))
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed(FileError {
                deed: "listing",
                path: dir.to_owned(),
                source: error,
            })),
        }
    }
}

/// Bytes of a log around the last line that was asked for, so that neighbours cost one read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn line(
        &mut self,
        pieces: &Pieces,
        seq: u64,
        place: Place,
    ) -> Result<Result<Vec<u8>, Damage>, FileError> {
        let len = usize::try_from(place.len).unwrap_or(usize::MAX);
        if len <= MAX_LINE_BYTES {
            self.cover(pieces, place.at, len)?;
        }
        let from = usize::try_from(place.at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let bytes = from
            .checked_add(len)
            .and_then(|to| self.bytes.get(from..to))
            .and_then(|bytes| bytes.strip_suffix(b"\n"));
        let reason = match bytes {
            Some(line) => match check_raw(line, seq) {
                Ok(()) => return Ok(Ok(line.to_vec())),
                Err(error) => error.to_string(),
            },
            None => "the line is not where it was".to_owned(),
        };
        let piece = pieces.0.get(pieces.at(place.at));
        Ok(Err(Damage {
            file: piece.map_or_else(String::new, |piece| piece.path.display().to_string()),
            offset: piece.map_or(place.at, |piece| place.at - piece.start),
            bytes: u64::from(place.len),
            seq,
            reason,
        }))
    }

    /// Reads what is asked for, unless it is held. Lines that stand close together are read at
    /// once; what lies far behind is not.
    fn cover(&mut self, pieces: &Pieces, at: u64, len: usize) -> Result<(), FileError> {
        let end = at.saturating_add(len as u64);
        let held = self.start + self.bytes.len() as u64;
        if at >= self.start && end <= held {
            return Ok(());
        }
        // Whoever asks for neighbours gets more each time.
        let near = at >= self.start && at <= held.saturating_add(4 << 10) && !self.bytes.is_empty();
        let ahead = if near {
            self.bytes.len().saturating_mul(2).min(READ_BYTES)
        } else {
            4 << 10
        };
        self.bytes.resize(len.max(ahead), 0);
        let read = pieces.read(&mut self.bytes, at)?;
        self.bytes.truncate(read);
        self.start = at;
        Ok(())
    }
}
