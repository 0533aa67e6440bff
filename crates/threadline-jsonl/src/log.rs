//! The one writer of a session: recovering, appending, syncing, and refusing after a failure.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_session::{Base, Header};
use threadline_store::{Begun, ClaimError, LogEnd, Recovered, WriteError};

use crate::{
    claims::Lock,
    files::Files,
    hint::Hint,
    index::IndexWriter,
    layout::{QUARANTINE, base_name},
    pieces::Pieces,
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, append_all, read_full},
};

/// The one writer of a session. Dropping it frees the session.
pub struct LogWriter {
    pub(crate) files: Files,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) dir: PathBuf,
    /// The log's path.
    pub(crate) path: PathBuf,
    /// The lock file that whoever takes over makes.
    pub(crate) next_lock: PathBuf,
    pub(crate) file: Option<Box<dyn VfsFile>>,
    pub(crate) lock: Lock,
    /// Where the file begins in the log, behind the prefix that it continues.
    pub(crate) start: u64,
    /// Length of the file up to the last whole record.
    pub(crate) len: u64,
    pub(crate) hint: Hint,
    pub(crate) durable_seq: Option<u64>,
    /// Whether the record on stable storage says, or may say, that a sync failed.
    pub(crate) doubted: bool,
    /// The log as it was when the session was claimed, until the writer begins.
    pub(crate) opened: Option<Box<dyn VfsFile>>,
    /// Whether the log goes on in a new file, because a fenced writer may still have this one.
    pub(crate) renew: bool,
    pub(crate) last_seq: Option<u64>,
    pub(crate) index: IndexWriter,
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
    pub fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        let path = self.path.clone();
        let _turn = if self.renew || end.torn.is_some() {
            let turn = self.files.turnstile(&self.dir);
            let turn = turn.map_err(|error| match error {
                ClaimError::StorageFull { what } => WriteError::StorageFull { what },
                error => self.not_begun(&error.to_string()),
            })?;
            if turn.is_none() {
                let by = "a process that is taking the session over".into();
                return Err(self.dead.get_or_insert(WriteError::Fenced { by }).clone());
            }
            turn
        } else {
            None
        };
        self.check_taken()?;
        let begun = if self.renew {
            self.go_on_elsewhere(&path, &end).map(|line| Begun {
                recovered: None,
                header_line: Some(line),
            })
        } else {
            self.recover(&path, end).map(|recovered| Begun {
                recovered,
                header_line: None,
            })
        };
        match begun {
            Ok(begun) => Ok(begun),
            Err(error) if error.is_full() => Err(WriteError::StorageFull {
                what: error.to_string(),
            }),
            Err(error) => Err(self.poison(&error)),
        }
    }

    fn not_begun(&mut self, reason: &str) -> WriteError {
        let reason = reason.to_owned();
        self.dead
            .get_or_insert(WriteError::Poisoned { reason })
            .clone()
    }

    fn recover(&mut self, path: &Path, end: LogEnd) -> Result<Option<Recovered>, FileError> {
        let again = || io::Error::other("the writer has begun before");
        let file = self.opened.take().ok_or_else(again).at("opening", path)?;
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
        let pieces = Pieces::open(&*self.vfs, &self.dir)?;
        self.start = pieces
            .as_ref()
            .and_then(Pieces::own)
            .map_or(0, |own| own.start);
        self.len = len;
        self.note_end(end.next.seq);
        if self.doubted || self.durable_seq.is_none() {
            // Whoever put the log into its place may have died before that was durable.
            self.files.sync_place(&self.dir)?;
        }
        if self.durable_seq.is_none() {
            // Whoever created the session may have died before it was on stable storage, or the
            // record is lost: without one, a failed sync would leave no line to doubt from.
            file.sync_data().at("syncing", path)?;
            self.durable_seq = self.last_seq;
            self.hint.durable_seq = self.last_seq;
        }
        self.file = Some(file);
        self.note_begun()?;
        Ok(recovered)
    }

    fn note_end(&mut self, next_seq: u64) {
        self.last_seq = next_seq.checked_sub(1);
        // The record may claim more than a log that was cut since it was copied here.
        self.durable_seq = self.durable_seq.min(self.last_seq);
        self.hint.durable_seq = self.hint.durable_seq.min(self.last_seq);
    }

    fn note_begun(&mut self) -> Result<(), FileError> {
        // Else the old record is back after a power cut, and what is acknowledged from here on
        // would be doubted. Who finds the record unsettled has to see to it too.
        self.hint.unsettled = self.doubted;
        let mut noted = self.hint.write(&*self.lock.file, &self.lock.path);
        if self.doubted {
            noted = noted.and_then(|()| {
                let synced = self.lock.file.sync_data();
                synced.at("syncing", &self.lock.path)
            });
            self.hint.unsettled = false;
            if noted.is_err() {
                self.hint.failed = true;
                self.note();
            } else {
                self.note();
            }
        }
        noted
    }

    /// Makes what the log holds the frozen prefix of a new file, out of reach of a fenced writer
    /// that may still append to the old one. Returns the new file's header line.
    fn go_on_elsewhere(&mut self, path: &Path, end: &LogEnd) -> Result<Vec<u8>, FileError> {
        let wrong = |why: String| FileError {
            deed: "taking over",
            path: path.to_owned(),
            source: io::Error::other(why),
        };
        let pieces = Pieces::open(&*self.vfs, &self.dir)?;
        let pieces = pieces.ok_or_else(|| wrong("the log is gone".into()))?;
        let own = pieces
            .own()
            .ok_or_else(|| wrong("the log is gone".into()))?;
        let until = end.next.hint.unwrap_or(0).max(own.start);
        let line = own.header_line.strip_suffix(b"\n").unwrap_or_default();
        let (mut header, _) = Header::decode(line).map_err(|error| wrong(error.to_string()))?;
        let base = Base {
            file: base_name(pieces.0.len() - 1),
            bytes: until - own.start,
            last_seq: end.next.seq.saturating_sub(1),
        };
        own.file.sync_data().at("syncing", path)?;
        if let Some(torn) = &end.torn {
            // They stay where they are, unless the prefix has to be copied.
            self.quarantine(
                &*own.file,
                path,
                torn.offset,
                own.file.len().at("measuring", path)?,
            )?;
        }
        self.files
            .share(path, &self.dir.join(&base.file), base.bytes)?;
        self.vfs.sync_dir(&self.dir).at("syncing", &self.dir)?;
        // Whoever finds the new file without knowing that it is durable there has to see to it.
        let record = Hint::load(&*self.lock.file).at("reading", &self.lock.path)?;
        if let Some(record) = record {
            let record = Hint {
                unsettled: true,
                ..record
            };
            record.write(&*self.lock.file, &self.lock.path)?;
        }
        header.base = Some(base);
        let line = header.encode().map_err(|error| wrong(error.to_string()))?;
        self.file = Some(self.files.replace_log(&self.dir, &line)?);
        self.start = until;
        self.len = line.len() as u64;
        self.note_end(end.next.seq);
        // All of it was synced with the file.
        self.durable_seq = self.last_seq;
        self.hint.durable_seq = self.last_seq;
        self.doubted = true;
        self.note_begun()?;
        Ok(line)
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
    pub fn append(&mut self, batch: &[u8], last_seq: u64, sync: bool) -> Result<u64, WriteError> {
        let at = self.start + self.len;
        self.write(batch, last_seq)?;
        let kept = if sync {
            self.sync()
        } else {
            self.check_taken()
        };
        match kept {
            Ok(()) => Ok(at),
            // It was written while somebody took over, before or behind the point where the log
            // goes on elsewhere.
            Err(WriteError::Fenced { by }) => Err(WriteError::UnknownOutcome {
                reason: format!("{by} has taken the session over while the batch was written"),
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes a batch without syncing.
    pub(crate) fn write(&mut self, batch: &[u8], last_seq: u64) -> Result<(), WriteError> {
        if let Some(dead) = &self.dead {
            return Err(dead.clone());
        }
        self.check_fence()?;
        let Some(file) = &self.file else {
            return Err(WriteError::Poisoned {
                reason: "appended before begin".into(),
            });
        };
        match append_all(&**file, batch).at("writing", &self.path) {
            Ok(()) => {
                self.len += batch.len() as u64;
                self.last_seq = Some(last_seq);
                Ok(())
            }
            Err(error) => Err(self.roll_back(&error)),
        }
    }

    /// Cuts off what a failed write may have left. Never tries the record again: on some file
    /// systems the next write succeeds behind a torn one.
    fn roll_back(&mut self, error: &FileError) -> WriteError {
        let path = &self.path;
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
        self.check_taken()?;
        let len = match &self.file {
            Some(file) => file.len().at("measuring", &self.path),
            None => Ok(self.len),
        };
        let len = len.map_err(|error| self.poison(&error))?;
        if len == self.len {
            return Ok(());
        }
        let by = format!(
            "someone who changed {} from {} to {len} bytes",
            self.path.display(),
            self.len
        );
        Err(self.dead.get_or_insert(WriteError::Fenced { by }).clone())
    }

    /// Refuses to go on once somebody has taken over.
    pub(crate) fn check_taken(&mut self) -> Result<(), WriteError> {
        let next = &self.next_lock;
        let taken = self.vfs.metadata(next).at("looking at", next);
        if taken.map_err(|error| self.poison(&error))?.is_none() {
            return Ok(());
        }
        let by = self.files.successor(&self.dir);
        Err(self.dead.get_or_insert(WriteError::Fenced { by }).clone())
    }

    /// Keeps a checkpoint of the log as it stands.
    ///
    /// # Errors
    /// [`FileError`], which hurts nobody: the log is read instead.
    pub fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), FileError> {
        let next_seq = self.last_seq.map_or(0, |last| last + 1);
        let mut index = std::mem::take(&mut self.index);
        let put = index.put(&*self.vfs, &self.dir, next_seq, state);
        self.index = index;
        put
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
        let synced = match &self.file {
            Some(file) => file.sync_data().at("syncing", &self.path),
            None => Ok(()),
        };
        match synced {
            Ok(()) => {
                // What was written while somebody took over may not be in the log, so it is not
                // acknowledged.
                self.check_taken()?;
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
        let _ = self.lock.file.sync_data();
    }

    fn note(&self) {
        if let Err(error) = self.hint.write(&*self.lock.file, &self.lock.path) {
            tracing::warn!(%error, "the lock record could not be written");
        }
    }
}
