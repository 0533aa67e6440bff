//! Making sessions: folders, the first batch, and the prefix that a fork shares.

use std::{
    io,
    path::{Path, PathBuf},
};

use threadline_session::{Base, Header, SessionId};
use threadline_store::{BackendError, ClaimError, Entry, NewLog, ReadPos};

use crate::{
    claims::Lock,
    files::{Files, claim_failed, failed},
    index::IndexWriter,
    layout::{self, INDEX, LOG, NEW_LOG, base_name, index_of, lock_name},
    log::LogWriter,
    pieces::{Piece, Pieces},
    scan::{Evidence, Scanner},
    vfs::{At as _, FileError, Mode, VfsFile, append_all},
};

impl Files {
    /// Makes a session's folder.
    pub(crate) fn make_dirs(&self, id: &SessionId) -> Result<PathBuf, FileError> {
        self.make_parents(id)?;
        let dir = self.dir(id);
        self.make_dir(&dir)?;
        Ok(dir)
    }

    /// Makes the folders that lead to a session's.
    pub(crate) fn make_parents(&self, id: &SessionId) -> Result<(), FileError> {
        let mut path = self.root.clone();
        self.make_root(&path)?;
        let parts = layout::parts(id);
        for part in parts.iter().take(parts.len().saturating_sub(1)) {
            path.push(part);
            self.make_dir(&path)?;
        }
        Ok(())
    }

    /// Makes the root folder and those above it that are missing. When it is missing, all above it
    /// are synced: how far an attempt got that died here cannot be seen.
    pub(crate) fn make_root(&self, path: &Path) -> Result<(), FileError> {
        if self.vfs.metadata(path).at("looking at", path)?.is_some() {
            return Ok(());
        }
        let above = path
            .ancestors()
            .skip(1)
            .filter(|path| !path.as_os_str().is_empty());
        let above: Vec<_> = above.collect();
        for parent in above.iter().rev() {
            if self
                .vfs
                .metadata(parent)
                .at("looking at", parent)?
                .is_none()
            {
                self.make_dir(parent)?;
            }
        }
        above
            .iter()
            .try_for_each(|parent| self.sync_leading(parent))?;
        self.make_dir(path)
    }

    /// Returns the folders whose entries lead to a session's own, deepest first. They are synced
    /// also when they are not new: whoever made them may have died before syncing them.
    fn leading(&self, dir: &Path) -> Vec<PathBuf> {
        let inside = dir
            .ancestors()
            .skip(1)
            .take_while(|path| path.starts_with(&self.root));
        let above = self
            .root
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        inside.chain(above).map(Path::to_owned).collect()
    }

    /// Syncs a session's folder and those that lead to it.
    pub(crate) fn sync_place(&self, dir: &Path) -> Result<(), FileError> {
        self.vfs.sync_dir(dir).at("syncing", dir)?;
        self.leading(dir)
            .iter()
            .try_for_each(|path| self.sync_leading(path))
    }

    /// Syncs a folder. One above the root may be closed to us or read-only, and is then not ours to
    /// care for.
    fn sync_leading(&self, path: &Path) -> Result<(), FileError> {
        use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
        match self.vfs.sync_dir(path) {
            Err(error) if !path.starts_with(&self.root) => match error.kind() {
                InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported => Ok(()),
                _ => Err(error).at("syncing", path),
            },
            synced => synced.at("syncing", path),
        }
    }

    pub(crate) fn make_dir(&self, path: &Path) -> Result<(), FileError> {
        match self.vfs.create_dir(path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error).at("creating", path),
        }
    }

    /// Stores a new session, durably, and claims it.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn create(&self, id: &SessionId, new: &NewLog) -> Result<LogWriter, ClaimError> {
        self.check_network()?;
        // Before the lock, because whoever is writing the session holds it; and under the lock,
        // because somebody may have created it between.
        self.check_free(id)?;
        let prefix = self.prefix(new)?;
        let dir = self.make_dirs(id).map_err(claim_failed)?;
        let lock = self.lock(&dir)?;
        self.check_free(id)?;
        if let Some((pieces, parent)) = &prefix {
            self.link_prefix(&dir, parent, pieces)
                .map_err(claim_failed)?;
        }
        let mut bytes = new.header_line.clone();
        bytes.extend_from_slice(&new.batch);
        let mut writer = self.write_new(&dir, lock, &bytes).map_err(claim_failed)?;
        let shared = prefix.iter().flat_map(|(pieces, _)| pieces);
        writer.start = shared.map(|(_, base)| base.bytes).sum();
        writer.last_seq = new.last_seq;
        writer.durable_seq = new.last_seq;
        writer.hint.durable_seq = new.last_seq;
        // Synced once, so that after a power cut there is evidence of what was acknowledged.
        let path = &writer.lock.path;
        let noted = writer
            .hint
            .write(&*writer.lock.file, path)
            .and_then(|()| writer.lock.file.sync_data().at("syncing", path));
        if let Err(error) = noted {
            tracing::warn!(%error, "the lock record could not be written");
        }
        Ok(writer)
    }

    pub(crate) fn check_free(&self, id: &SessionId) -> Result<(), ClaimError> {
        let log = self.dir(id).join(LOG);
        let there = self.vfs.metadata(&log).at("looking at", &log);
        match there.map_err(claim_failed)? {
            None => Ok(()),
            Some(_) => Err(ClaimError::AlreadyExists),
        }
    }

    /// Returns the files of the parent that a new log continues, and what counts of each.
    #[expect(clippy::type_complexity, reason = "read once, right above")]
    fn prefix(&self, new: &NewLog) -> Result<Option<(Vec<(PathBuf, Base)>, PathBuf)>, ClaimError> {
        let line = new.header_line.strip_suffix(b"\n").unwrap_or_default();
        let base = Header::decode(line)
            .ok()
            .and_then(|(header, _)| header.base);
        let (Some(base), Some(parent)) = (base, &new.parent) else {
            return Ok(None);
        };
        let parent = self.dir(parent);
        let pieces = Pieces::open(&*self.vfs, &parent).map_err(claim_failed)?;
        let pieces = pieces.ok_or(ClaimError::NotFound)?;
        let mut shared = Vec::new();
        for (number, piece) in pieces.0.iter().enumerate() {
            if fork_name(piece, number) == base.file {
                shared.push((piece.path.clone(), base));
                return Ok(Some((shared, parent)));
            }
            if let Some(below) = &piece.base {
                shared.push((piece.path.clone(), below.clone()));
            }
        }
        Err(ClaimError::Backend(BackendError::new(
            format!("forking {}", parent.display()),
            format!("its log has no part named {}", base.file),
        )))
    }

    /// Gives the files of a prefix a second name in a session's folder, or copies them where the
    /// file system refuses that. Durable on return.
    fn link_prefix(
        &self,
        dir: &Path,
        parent: &Path,
        shared: &[(PathBuf, Base)],
    ) -> Result<(), FileError> {
        for (from, base) in shared {
            let linked = self.share(from, &dir.join(&base.file), base.bytes)?;
            // Best effort: the checkpoints of the prefix spare the fork reading it. Whoever writes
            // the index begins another one once it is shared.
            let name = from.file_name().unwrap_or_default().to_string_lossy();
            let index = match name.as_ref() {
                LOG => parent.join(INDEX),
                base => parent.join(index_of(base)),
            };
            let own = dir.join(index_of(&base.file));
            let _ = self.vfs.remove_file(&own);
            if linked {
                let _ = self.vfs.hard_link(&index, &own);
            }
        }
        // Before the log that needs them.
        self.vfs.sync_dir(dir).at("syncing", dir)
    }

    /// Gives a file a second name, or copies its first bytes durably where that is refused. Returns
    /// whether it is the same file.
    pub(crate) fn share(&self, from: &Path, to: &Path, bytes: u64) -> Result<bool, FileError> {
        // An attempt that died here may have left one.
        match self.vfs.remove_file(to) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).at("removing", to),
        }
        match self.vfs.hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error).at("linking", from),
            Err(_) => self.copy(from, to, bytes).map(|()| false),
        }
    }

    /// Copies the first bytes of a file, durably.
    pub(crate) fn copy(&self, from: &Path, to: &Path, bytes: u64) -> Result<(), FileError> {
        let copied = self.vfs.copy_prefix(from, to, bytes).at("copying", from);
        let synced = copied.and_then(|()| {
            let file = self.vfs.open(to, Mode::Read).at("opening", to)?;
            file.sync_data().at("syncing", to)
        });
        if synced.is_err() {
            let _ = self.vfs.remove_file(to);
        }
        synced
    }

    /// Writes a whole log beside its place, then moves it there: it exists with its header and its
    /// first batch, or not at all.
    fn write_new(&self, dir: &Path, lock: Lock, bytes: &[u8]) -> Result<LogWriter, FileError> {
        let file = match self.replace_log(dir, bytes) {
            Ok(file) => file,
            Err(error) => {
                // It may be in its place and not durable there. Best effort: whoever asked is told
                // that nothing was made.
                let _ = self.vfs.remove_file(&dir.join(LOG));
                return Err(error);
            }
        };
        Ok(LogWriter {
            files: self.clone(),
            vfs: self.vfs.clone(),
            dir: dir.to_owned(),
            path: dir.join(LOG),
            next_lock: dir.join(lock_name(lock.number + 1)),
            file: Some(file),
            lock,
            start: 0,
            len: bytes.len() as u64,
            hint: self.new_hint(None),
            durable_seq: None,
            doubted: false,
            opened: None,
            renew: false,
            last_seq: None,
            index: IndexWriter::default(),
            dead: None,
        })
    }

    /// Puts a log with some first bytes in the place of what is there, durably.
    pub(crate) fn replace_log(
        &self,
        dir: &Path,
        bytes: &[u8],
    ) -> Result<Box<dyn VfsFile>, FileError> {
        let (new, log) = (dir.join(NEW_LOG), dir.join(LOG));
        let write = || -> Result<Box<dyn VfsFile>, FileError> {
            if self.vfs.metadata(&new).at("looking at", &new)?.is_some() {
                self.vfs.remove_file(&new).at("removing", &new)?;
            }
            let file = self.vfs.open(&new, Mode::CreateNew).at("creating", &new)?;
            append_all(&*file, bytes).at("writing", &new)?;
            file.sync_data().at("syncing", &new)?;
            self.vfs.rename(&new, &log).at("renaming", &new)?;
            self.sync_place(dir)?;
            Ok(file)
        };
        let written = write();
        if written.is_err() {
            // Best effort: what is left is removed by the next attempt too.
            let _ = self.vfs.remove_file(&new);
        }
        written
    }

    /// Returns the base of a fork that ends with an event, which is durable on return; `None` when
    /// the log has no such event.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        let dir = self.dir(id);
        let evidence = self.evidence(&dir)?;
        let pieces = self.pieces(&dir)?;
        cut_of(&pieces, evidence, last_seq).map_err(failed)
    }
}

fn cut_of(pieces: &Pieces, evidence: Evidence, last_seq: u64) -> Result<Option<Base>, FileError> {
    let number = pieces.holding(last_seq);
    let Some(piece) = pieces.0.get(number) else {
        return Ok(None);
    };
    // As a reader sees it: nothing torn, nothing in doubt, no part of a batch that is not whole.
    let scanner = Scanner { pieces, evidence };
    let page = scanner.page(ReadPos::at(last_seq), 1)?;
    let end = page.entries.iter().find_map(|entry| match entry {
        Entry::Line(line, place) if line.event.seq == last_seq => {
            Some(place.at + u64::from(place.len))
        }
        _ => None,
    });
    let Some(end) = end else {
        return Ok(None);
    };
    if piece.base.is_none() {
        piece.file.sync_data().at("syncing", &piece.path)?;
    }
    Ok(Some(Base {
        file: fork_name(piece, number),
        bytes: end - piece.start,
        last_seq,
    }))
}

/// Returns the name that a part of a log has in the folder of a fork.
fn fork_name(piece: &Piece, number: usize) -> String {
    piece
        .base
        .as_ref()
        .map_or_else(|| base_name(number), |base| base.file.clone())
}
