//! Bringing in a session from another store.
//!
//! Its files are written into a folder beside the place of the session, which is renamed when all
//! of them are durable: the session exists whole, or not at all.

use std::path::{Path, PathBuf};

use threadline_session::{Base, Header, SessionId};
use threadline_store::{BackendError, ClaimError};

use crate::{
    files::{Files, claim_failed, failed},
    hint::Hint,
    layout::{INDEX, LOCK, LOG, QUARANTINE, REPAIR, index_of, is_base_name},
    log::LogWriter,
    pieces::Pieces,
    vfs::{At as _, FileError, Mode, VfsFile, append_all},
};

struct Piece {
    /// Its name in the end, as the header behind it says.
    name: Option<String>,
    path: PathBuf,
    file: Box<dyn VfsFile>,
    bytes: u64,
    last_seq: Option<u64>,
}

/// A session in the making. Dropped before its end it leaves nothing.
pub struct LogImport {
    files: Files,
    id: SessionId,
    /// Where the files are until all of them are durable.
    dir: PathBuf,
    pieces: Vec<Piece>,
    /// The claim on the session whose log is replaced; none for one that comes from elsewhere.
    claim: Option<LogWriter>,
    finished: bool,
}

impl Files {
    /// Begins to bring in a session.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn import(&self, id: &SessionId) -> Result<LogImport, ClaimError> {
        self.check_network()?;
        self.check_free(id)?;
        let place = self.dir(id);
        let (Some(above), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(ClaimError::NotFound);
        };
        // Readers pass over names that begin with a dot, and so does an import that died.
        let name = format!(".import-{}-{}", name.to_string_lossy(), std::process::id());
        let dir = above.join(name);
        let make = || -> Result<(), FileError> {
            self.make_parents(id)?;
            self.remove_tree(&dir)?;
            self.vfs.create_dir(&dir).at("creating", &dir)
        };
        make().map_err(claim_failed)?;
        Ok(LogImport {
            files: self.clone(),
            id: id.clone(),
            dir,
            pieces: Vec::new(),
            claim: None,
            finished: false,
        })
    }

    /// Begins to replace the log of a session, which is claimed until the end.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn replace(&self, id: &SessionId) -> Result<LogImport, ClaimError> {
        let claim = self.claim(id)?;
        let dir = self.dir(id).join(REPAIR);
        let make = || -> Result<(), FileError> {
            self.remove_tree(&dir)?;
            self.vfs.create_dir(&dir).at("creating", &dir)
        };
        make().map_err(claim_failed)?;
        Ok(LogImport {
            files: self.clone(),
            id: id.clone(),
            dir,
            pieces: Vec::new(),
            claim: Some(claim),
            finished: false,
        })
    }
}

impl LogImport {
    fn invalid(&self, why: String) -> BackendError {
        BackendError::new(format!("importing session {}", self.id), why)
    }

    /// Takes a header line, LF included, which opens the next piece of the log.
    ///
    /// # Errors
    /// [`BackendError`], also when the header does not continue the piece before.
    pub fn header(&mut self, line: &[u8]) -> Result<(), BackendError> {
        if self.claim.is_some() && !self.pieces.is_empty() {
            return Err(self.invalid("a repaired log is one file".into()));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let (header, _) = Header::decode(text).map_err(|error| self.invalid(error.to_string()))?;
        let known = |name: &String| self.pieces.iter().any(|p| p.name.as_ref() == Some(name));
        let wanted = header.base.as_ref().map(|base| base.file.clone());
        let name = wanted.filter(|name| is_base_name(name) && !known(name));
        let before = self.pieces.last().map(|piece| Base {
            file: name.clone().unwrap_or_default(),
            bytes: piece.bytes,
            last_seq: piece.last_seq.unwrap_or(0),
        });
        let continues = match (&header.base, &before) {
            (None, None) => true,
            // A piece without events of its own ends where the one before it does.
            (Some(wanted), Some(given)) => {
                wanted.file == given.file
                    && wanted.bytes == given.bytes
                    && self.pieces.last().is_some_and(|piece| {
                        piece.last_seq.is_none_or(|seq| seq == wanted.last_seq)
                    })
            }
            _ => false,
        };
        if !continues {
            return Err(self.invalid(format!(
                "its header continues {:?}, and what came before is {before:?}",
                header.base
            )));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.name = name;
        }
        let path = self.dir.join(format!("piece-{}", self.pieces.len()));
        let file = self.files.vfs.open(&path, Mode::CreateNew);
        let file = file.at("creating", &path).map_err(failed)?;
        self.pieces.push(Piece {
            name: None,
            path,
            file,
            bytes: 0,
            last_seq: None,
        });
        self.write(line, None)
    }

    /// Takes whole lines that follow the last ones.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn lines(&mut self, lines: &[u8], last_seq: u64) -> Result<(), BackendError> {
        self.write(lines, Some(last_seq))
    }

    fn write(&mut self, bytes: &[u8], last_seq: Option<u64>) -> Result<(), BackendError> {
        let Some(piece) = self.pieces.last_mut() else {
            return Err(self.invalid("it does not begin with a header".into()));
        };
        let written = append_all(&*piece.file, bytes).at("writing", &piece.path);
        written.map_err(failed)?;
        piece.bytes += bytes.len() as u64;
        piece.last_seq = last_seq.or(piece.last_seq);
        Ok(())
    }

    /// Makes the session visible, durably.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn finish(mut self) -> Result<(), ClaimError> {
        let Some(own) = self.pieces.len().checked_sub(1) else {
            return Err(ClaimError::Backend(
                self.invalid("it does not begin with a header".into()),
            ));
        };
        if let Some(claim) = &mut self.claim {
            let dir = self.files.dir(&self.id);
            let turn = self.files.turnstile(&dir)?;
            if turn.is_none() || claim.check_taken().is_err() {
                let holder = Hint::load_at(
                    &*self.files.vfs,
                    &self.files.lock_path(&dir).map_err(claim_failed)?,
                );
                let holder = holder.map_err(claim_failed)?.unwrap_or_default().holder();
                return Err(ClaimError::Locked { holder });
            }
            self.swap(own).map_err(claim_failed)?;
            let _ = self.files.remove_tree(&self.dir);
        } else {
            self.files.check_free(&self.id)?;
            self.place(own).map_err(claim_failed)?;
        }
        self.finished = true;
        Ok(())
    }

    fn place(&self, own: usize) -> Result<(), FileError> {
        let vfs = &self.files.vfs;
        for (number, piece) in self.pieces.iter().enumerate() {
            piece.file.sync_data().at("syncing", &piece.path)?;
            let name = piece.name.as_deref().filter(|_| number != own);
            let to = self.dir.join(name.unwrap_or(LOG));
            vfs.rename(&piece.path, &to).at("renaming", &piece.path)?;
        }
        vfs.sync_dir(&self.dir).at("syncing", &self.dir)?;
        let place = self.files.dir(&self.id);
        // What a creation that died has left holds no log, or the session would not be free.
        self.files.remove_tree(&place)?;
        vfs.rename(&self.dir, &place).at("renaming", &self.dir)?;
        if let Err(error) = self.files.sync_place(&place) {
            // Best effort: whoever asked is told that nothing was brought in.
            let _ = self.files.remove_tree(&place);
            return Err(error);
        }
        // Behind all else: the record says what is on stable storage. Without one it is only less
        // evidence.
        if let Err(error) = self.note(&place.join(LOCK)) {
            tracing::warn!(%error, "the lock record could not be written");
        }
        Ok(())
    }
}

impl LogImport {
    fn last_seq(&self) -> Option<u64> {
        self.pieces.iter().rev().find_map(|piece| piece.last_seq)
    }

    /// Writes a record that all is durable. Without one, or with one that says less, what is read
    /// would be doubted after a failed sync.
    fn note(&self, lock: &Path) -> Result<(), FileError> {
        self.write_note(lock, false)
    }

    fn write_note(&self, lock: &Path, unsettled: bool) -> Result<(), FileError> {
        let vfs = &self.files.vfs;
        let file = vfs.open(lock, Mode::ReadWrite).at("creating", lock)?;
        let before = Hint::load(&*file).at("reading", lock)?;
        let mut hint = self.files.new_hint(before.as_ref());
        hint.durable_seq = self.last_seq();
        hint.unsettled = unsettled;
        if unsettled {
            // It still tells of the old log.
            hint.durable_seq = before.as_ref().and_then(|before| before.durable_seq);
            hint.failed = before.is_some_and(|before| before.failed);
        }
        hint.write(&*file, lock)?;
        file.sync_data().at("syncing", lock)
    }

    /// Keeps the old files aside and puts the new ones in their place, the log itself last.
    fn swap(&self, own: usize) -> Result<(), FileError> {
        let (files, vfs) = (&self.files, &self.files.vfs);
        let dir = files.dir(&self.id);
        for piece in &self.pieces {
            piece.file.sync_data().at("syncing", &piece.path)?;
        }
        let quarantine = dir.join(QUARANTINE);
        files.make_dir(&quarantine)?;
        let mut generation = 1;
        let kept = |generation: u32, name: &str| quarantine.join(format!("{generation}-{name}"));
        while vfs
            .metadata(&kept(generation, LOG))
            .at("looking at", &quarantine)?
            .is_some()
        {
            generation += 1;
        }
        let old = Pieces::open(&**vfs, &dir)?;
        for piece in old.iter().flat_map(|old| &old.0) {
            let name = piece.path.file_name().unwrap_or_default();
            let to = kept(generation, &name.to_string_lossy());
            if vfs
                .metadata(&piece.path)
                .at("looking at", &piece.path)?
                .is_some()
            {
                let len = piece.file.len().at("measuring", &piece.path)?;
                files.share(&piece.path, &to, len)?;
            }
        }
        vfs.sync_dir(&quarantine).at("syncing", &quarantine)?;
        vfs.sync_dir(&dir).at("syncing", &dir)?;
        self.write_note(&files.lock_path(&dir)?, true)?;
        // The checkpoints are of another log.
        let _ = vfs.remove_file(&dir.join(INDEX));
        if let Some(piece) = self.pieces.get(own) {
            let to = dir.join(LOG);
            vfs.rename(&piece.path, &to).at("renaming", &piece.path)?;
        }
        // The new log is one file, which needs none of these any more.
        for base in old
            .iter()
            .flat_map(|old| &old.0)
            .filter_map(|p| p.base.as_ref())
        {
            let _ = vfs.remove_file(&dir.join(&base.file));
            let _ = vfs.remove_file(&dir.join(index_of(&base.file)));
        }
        self.note(&files.lock_path(&dir)?)?;
        files.sync_place(&dir)
    }
}

impl Drop for LogImport {
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.files.remove_tree(&self.dir);
        }
    }
}
