//! Claiming a session: its lock, who holds it, and taking it over.
//!
//! A session is claimed by the operating system's lock on a file, which ends with its holder. The
//! file is `lock`, or after take-overs the one of `lock-1`, `lock-2` … with the largest number.
//! Taking over means making the next one: whoever finds a lock file behind its own is fenced, and
//! looks for it before and after each append. What a fenced writer still gets into the file goes
//! nowhere, because the one that took over has moved the log to a new file by then.

use std::{
    io,
    path::{Path, PathBuf},
};

use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError, Holder};

use crate::{
    files::{Files, claim_failed},
    hint::Hint,
    index::IndexWriter,
    layout::{LOG, NEW_LOCK, TURNSTILE, lock_name},
    limits::LOCK_TRIES,
    log::LogWriter,
    vfs::{At as _, FileError, Mode, VfsFile},
};

/// A lock that is held.
pub(crate) struct Lock {
    pub(crate) file: Box<dyn VfsFile>,
    pub(crate) path: PathBuf,
    /// Its number; 0 for the first.
    pub(crate) number: u64,
}

impl Files {
    pub(crate) fn check_network(&self) -> Result<(), ClaimError> {
        let kind = self
            .vfs
            .network_kind(&self.root)
            .at("looking at", &self.root);
        match kind.map_err(claim_failed)? {
            Some(kind) if !self.allow_network => Err(ClaimError::Backend(BackendError::new(
                format!("opening {} for writing", self.root.display()),
                format!(
                    "it is on {kind}, where locks and appends do not hold between machines; use a \
                     local folder, or PostgreSQL for many machines"
                ),
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the number of the lock file in force.
    fn lock_number(&self, dir: &Path) -> Result<u64, FileError> {
        let mut number = 0;
        loop {
            let next = dir.join(lock_name(number + 1));
            if self.vfs.metadata(&next).at("looking at", &next)?.is_none() {
                return Ok(number);
            }
            number += 1;
        }
    }

    /// Returns the path of the lock file in force.
    pub(crate) fn lock_path(&self, dir: &Path) -> Result<PathBuf, FileError> {
        Ok(dir.join(lock_name(self.lock_number(dir)?)))
    }

    /// Probes the lock for an instant with a shared one, so that reading never needs it. Returns who
    /// holds it, and what its last holder has written into it.
    pub(crate) fn look_at_lock(&self, dir: &Path) -> (Option<Holder>, Option<Hint>) {
        let opened = self.lock_path(dir).ok();
        let Some(Ok(file)) = opened.map(|path| self.vfs.open(&path, Mode::Read)) else {
            return (None, None);
        };
        let hint = Hint::read(&*file);
        let held = matches!(file.try_lock(false), Ok(false));
        let holder = held.then(|| {
            hint.as_ref()
                .map_or_else(Hint::default, Clone::clone)
                .holder()
        });
        (holder, hint)
    }

    /// Takes the lock of a session's folder.
    pub(crate) fn lock(&self, dir: &Path) -> Result<Lock, ClaimError> {
        loop {
            let number = self.lock_number(dir).map_err(claim_failed)?;
            let path = dir.join(lock_name(number));
            let opened = self.vfs.open(&path, Mode::ReadWrite).at("opening", &path);
            let file = opened.map_err(claim_failed)?;
            if !self.try_hard(&*file, &path)? {
                let holder = Hint::read(&*file).unwrap_or_default().holder();
                return Err(ClaimError::Locked { holder });
            }
            // Somebody may have taken over between the look and the lock.
            if self.lock_number(dir).map_err(claim_failed)? == number {
                return Ok(Lock { file, path, number });
            }
        }
    }

    fn try_hard(&self, file: &dyn VfsFile, path: &Path) -> Result<bool, ClaimError> {
        for attempt in 0..LOCK_TRIES {
            if attempt > 0 {
                self.vfs.pause();
            }
            if file
                .try_lock(true)
                .at("locking", path)
                .map_err(claim_failed)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a writer that was fenced may still be alive.
    fn haunted(&self, dir: &Path, number: u64) -> bool {
        (0..number).any(|older| {
            let opened = self.vfs.open(&dir.join(lock_name(older)), Mode::ReadWrite);
            opened.is_ok_and(|file| !matches!(file.try_lock(true), Ok(true)))
        })
    }

    pub(crate) fn new_hint(&self, before: Option<&Hint>) -> Hint {
        Hint {
            pid: std::process::id(),
            host: self.vfs.host(),
            boot_id: self.vfs.boot_id(),
            epoch: before.map_or(0, |before| before.epoch) + 1,
            since: self.vfs.now_ms(),
            durable_seq: before.and_then(|before| before.durable_seq),
            failed: false,
            unsettled: false,
        }
    }

    fn check_there(&self, dir: &Path) -> Result<(), ClaimError> {
        let log = dir.join(LOG);
        let there = self.vfs.metadata(&log).at("looking at", &log);
        match there.map_err(claim_failed)? {
            Some(_) => Ok(()),
            None => Err(ClaimError::NotFound),
        }
    }

    fn claimed(&self, dir: PathBuf, lock: Lock) -> Result<LogWriter, ClaimError> {
        let before = Hint::load(&*lock.file).at("reading", &lock.path);
        let before = before.map_err(claim_failed)?;
        // Under the lock, and not when it begins: whoever takes over meanwhile puts another file
        // in its place, which is not this writer's to touch.
        let log = dir.join(LOG);
        let opened = self.vfs.open(&log, Mode::Append).at("opening", &log);
        let opened = opened.map_err(claim_failed)?;
        Ok(LogWriter {
            files: self.clone(),
            vfs: self.vfs.clone(),
            hint: self.new_hint(before.as_ref()),
            durable_seq: before.as_ref().and_then(|before| before.durable_seq),
            doubted: before.is_none_or(|before| before.failed || before.unsettled),
            opened: Some(opened),
            renew: self.haunted(&dir, lock.number),
            path: log,
            next_lock: dir.join(lock_name(lock.number + 1)),
            dir,
            file: None,
            lock,
            start: 0,
            len: 0,
            last_seq: None,
            index: IndexWriter::default(),
            dead: None,
        })
    }

    /// Claims an existing session. The lock's record stays as it is until [`LogWriter::begin`],
    /// because reading needs it as evidence.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(&self, id: &SessionId) -> Result<LogWriter, ClaimError> {
        let dir = self.dir(id);
        self.check_there(&dir)?;
        self.check_network()?;
        let lock = self.lock(&dir)?;
        // Deleted while the lock was waited for.
        self.check_there(&dir)?;
        self.claimed(dir, lock)
    }

    /// Claims an existing session, also when another writer has it.
    ///
    /// # Errors
    /// [`ClaimError`]; it is locked only while another take-over is under way.
    pub fn take_over(&self, id: &SessionId) -> Result<LogWriter, ClaimError> {
        let dir = self.dir(id);
        let held = match self.claim(id) {
            Err(ClaimError::Locked { holder }) => holder,
            claimed => return claimed,
        };
        let Some(_turn) = self.turnstile(&dir)? else {
            return Err(ClaimError::Locked { holder: held });
        };
        let number = self.lock_number(&dir).map_err(claim_failed)?;
        let record = Hint::load_at(&*self.vfs, &dir.join(lock_name(number)));
        let record = record.map_err(claim_failed)?;
        let path = dir.join(lock_name(number + 1));
        let file = self
            .next_lock(&dir, &path, record.as_ref())
            .map_err(claim_failed)?;
        // From here on the other one is fenced.
        let number = number + 1;
        let mut writer = self.claimed(dir, Lock { file, path, number })?;
        writer.renew = true;
        Ok(writer)
    }

    /// Makes a lock file that is locked, and that says what the one before it said, in one step:
    /// what was known of a failed sync must not be lost with whoever dies here.
    fn next_lock(
        &self,
        dir: &Path,
        path: &Path,
        record: Option<&Hint>,
    ) -> Result<Box<dyn VfsFile>, FileError> {
        let new = dir.join(NEW_LOCK);
        match self.vfs.remove_file(&new) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).at("removing", &new),
        }
        let file = self.vfs.open(&new, Mode::ReadWrite).at("creating", &new)?;
        if let Some(record) = record {
            // Until the log has been put into its place.
            let record = Hint {
                unsettled: true,
                ..record.clone()
            };
            record.write(&*file, &new)?;
        }
        file.sync_data().at("syncing", &new)?;
        if !file.try_lock(true).at("locking", &new)? {
            return Err(io::Error::from(io::ErrorKind::WouldBlock)).at("locking", &new);
        }
        self.vfs.rename(&new, path).at("renaming", &new)?;
        Ok(file)
    }

    /// Waits for the turn to change which files a log is made of, or to add a lock file: with it
    /// held, nobody is fenced between a look and the change. `None` when somebody else keeps it.
    pub(crate) fn turnstile(&self, dir: &Path) -> Result<Option<Box<dyn VfsFile>>, ClaimError> {
        let path = dir.join(TURNSTILE);
        let file = self.vfs.open(&path, Mode::ReadWrite).at("opening", &path);
        let file = file.map_err(claim_failed)?;
        Ok(self.try_hard(&*file, &path)?.then_some(file))
    }

    /// Who has fenced a writer off.
    pub(crate) fn successor(&self, dir: &Path) -> String {
        let record = self
            .lock_path(dir)
            .ok()
            .and_then(|path| Hint::load_at(&*self.vfs, &path).ok().flatten());
        record.map_or_else(
            || "a process that took the session over".into(),
            |record| record.holder().to_string(),
        )
    }
}
