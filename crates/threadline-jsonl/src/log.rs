//! The one writer of a session: recovering, appending, syncing, and refusing after a failure.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_store::{LogEnd, Recovered, WriteError};

use crate::{
    files::Files,
    hint::Hint,
    layout::{LOCK, LOG, QUARANTINE},
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, append_all, read_full},
};

/// The one writer of a session. Dropping it frees the session.
pub struct LogWriter {
    pub(crate) files: Files,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) dir: PathBuf,
    pub(crate) file: Option<Box<dyn VfsFile>>,
    pub(crate) lock: Box<dyn VfsFile>,
    /// Length of the log up to the last whole record.
    pub(crate) len: u64,
    pub(crate) hint: Hint,
    pub(crate) durable_seq: Option<u64>,
    /// Whether the record on stable storage says, or may say, that a sync failed.
    pub(crate) doubted: bool,
    pub(crate) last_seq: Option<u64>,
    /// The first failure, after which nothing is written any more.
    pub(crate) dead: Option<WriteError>,
}

impl std::fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogWriter")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl LogWriter {
    fn poison(&mut self, error: &FileError) -> WriteError {
        let dead = WriteError::Poisoned {
            reason: error.to_string(),
        };
        self.dead.get_or_insert(dead).clone()
    }

    /// Continues behind the end of the log, moving torn bytes aside first.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn begin(&mut self, end: LogEnd) -> Result<Option<Recovered>, WriteError> {
        let path = self.dir.join(LOG);
        match self.recover(&path, end) {
            Ok(recovered) => Ok(recovered),
            Err(error) if error.is_full() => Err(WriteError::StorageFull {
                what: error.to_string(),
            }),
            Err(error) => Err(self.poison(&error)),
        }
    }

    fn recover(&mut self, path: &Path, end: LogEnd) -> Result<Option<Recovered>, FileError> {
        let file = self.vfs.open(path, Mode::Append).at("opening", path)?;
        let mut recovered = None;
        let mut len = file.len().at("measuring", path)?;
        if let Some(torn) = end.torn {
            let kept = self.quarantine(&*file, path, torn.offset, len)?;
            file.set_len(torn.offset).at("cutting", path)?;
            file.sync_data().at("syncing", path)?;
            len = torn.offset;
            recovered = Some(Recovered {
                torn,
                moved_to: kept.display().to_string(),
            });
        }
        self.len = len;
        self.last_seq = end.next.seq.checked_sub(1);
        // The record may claim more than a log that was cut since it was copied here.
        self.durable_seq = self.durable_seq.min(self.last_seq);
        self.hint.durable_seq = self.hint.durable_seq.min(self.last_seq);
        if self.durable_seq.is_none() {
            // Whoever created the session may have died before it was on stable storage, or the
            // record is lost: without one, a failed sync would leave no line to doubt from.
            file.sync_data().at("syncing", path)?;
            self.files.sync_place(&self.dir)?;
            self.durable_seq = self.last_seq;
            self.hint.durable_seq = self.last_seq;
        }
        self.file = Some(file);
        let lock = self.dir.join(LOCK);
        let mut noted = self.hint.write(&*self.lock, &lock);
        if self.doubted {
            // Else the old record is back after a power cut, and what is acknowledged from here on
            // would be doubted.
            noted = noted.and_then(|()| self.lock.sync_data().at("syncing", &lock));
            if noted.is_err() {
                self.hint.failed = true;
                self.note();
            }
        }
        noted?;
        Ok(recovered)
    }

    /// Copies bytes aside, durably, before they are cut off.
    fn quarantine(
        &self,
        file: &dyn VfsFile,
        path: &Path,
        offset: u64,
        end: u64,
    ) -> Result<PathBuf, FileError> {
        let dir = self.dir.join(QUARANTINE);
        match self.vfs.create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).at("creating", &dir),
        }
        // Also when it is not new: whoever made it may have died before syncing it.
        self.vfs.sync_dir(&self.dir).at("syncing", &self.dir)?;
        let mut attempt = 0;
        let (kept, copy) = loop {
            let name = match attempt {
                0 => format!("log-{offset}.bin"),
                n => format!("log-{offset}-{n}.bin"),
            };
            let kept = dir.join(name);
            match self.vfs.open(&kept, Mode::CreateNew) {
                Ok(copy) => break (kept, copy),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(error).at("creating", &kept),
            }
        };
        let mut buf = vec![0; 64 << 10];
        let mut at = offset;
        while at < end {
            let read = read_full(file, &mut buf, at).at("reading", path)?;
            if read == 0 {
                break;
            }
            append_all(&*copy, buf.get(..read).unwrap_or_default()).at("writing", &kept)?;
            at += read as u64;
        }
        copy.sync_data().at("syncing", &kept)?;
        self.vfs.sync_dir(&dir).at("syncing", &dir)?;
        Ok(kept)
    }

    /// Appends the lines of one batch, and syncs if asked to.
    ///
    /// # Errors
    /// [`WriteError`]. After [`WriteError::StorageFull`] nothing of the batch remains and the
    /// writer can go on; after anything else it refuses everything.
    pub fn append(&mut self, batch: &[u8], last_seq: u64, sync: bool) -> Result<(), WriteError> {
        self.write(batch, last_seq)?;
        if sync { self.sync() } else { Ok(()) }
    }

    /// Writes a batch without syncing.
    pub(crate) fn write(&mut self, batch: &[u8], last_seq: u64) -> Result<(), WriteError> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        self.check_fence()?;
        let path = self.dir.join(LOG);
        let Some(file) = &self.file else {
            return Err(WriteError::Poisoned {
                reason: "appended before begin".into(),
            });
        };
        match append_all(&**file, batch).at("writing", &path) {
            Ok(()) => {
                self.len += batch.len() as u64;
                self.last_seq = Some(last_seq);
                Ok(())
            }
            Err(error) => Err(self.roll_back(&path, &error)),
        }
    }

    /// Cuts off what a failed write may have left. Never tries the record again: on some file
    /// systems the next write succeeds behind a torn one.
    fn roll_back(&mut self, path: &Path, error: &FileError) -> WriteError {
        let cut = match &self.file {
            Some(file) => file
                .set_len(self.len)
                .at("cutting", path)
                .and_then(|()| file.sync_data().at("syncing", path)),
            None => Ok(()),
        };
        match cut {
            Ok(()) if error.is_full() => {
                // What had been written before the failed record was synced with the cut.
                self.durable_seq = self.last_seq;
                self.note_durable();
                WriteError::StorageFull {
                    what: error.to_string(),
                }
            }
            Ok(()) => self.poison(error),
            Err(second) => {
                self.note_failed();
                let both = format!("{error}; then {second}");
                self.dead
                    .get_or_insert(WriteError::Poisoned { reason: both })
                    .clone()
            }
        }
    }

    fn check_fence(&mut self) -> Result<(), WriteError> {
        let path = self.dir.join(LOG);
        let len = match &self.file {
            Some(file) => file.len().at("measuring", &path),
            None => Ok(self.len),
        };
        let len = len.map_err(|error| self.poison(&error))?;
        let record = Hint::read(&*self.lock);
        let taken = record
            .as_ref()
            .is_some_and(|record| record.epoch > self.hint.epoch);
        if len == self.len && !taken {
            return Ok(());
        }
        let by = match record.filter(|_| taken) {
            Some(record) => record.holder().to_string(),
            None => format!(
                "someone who changed {} from {} to {len} bytes",
                path.display(),
                self.len
            ),
        };
        Err(self.dead.get_or_insert(WriteError::Fenced { by }).clone())
    }

    /// Brings everything written so far to stable storage.
    ///
    /// # Errors
    /// [`WriteError::Poisoned`]: after a failed sync the system may drop the data and say nothing
    /// of it the next time, so nothing is tried again.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        let path = self.dir.join(LOG);
        let synced = match &self.file {
            Some(file) => file.sync_data().at("syncing", &path),
            None => Ok(()),
        };
        match synced {
            Ok(()) => {
                self.durable_seq = self.last_seq.max(self.durable_seq);
                self.note_durable();
                Ok(())
            }
            Err(error) => {
                self.note_failed();
                Err(self.poison(&error))
            }
        }
    }

    fn note_durable(&mut self) {
        self.hint.durable_seq = self.durable_seq;
        self.note();
    }

    /// The next writer must not believe what it can read behind the last good sync.
    fn note_failed(&mut self) {
        self.hint.failed = true;
        self.note();
        let _ = self.lock.sync_data();
    }

    fn note(&self) {
        if let Err(error) = self.hint.write(&*self.lock, &self.dir.join(LOCK)) {
            tracing::warn!(%error, "the lock record could not be written");
        }
    }
}
