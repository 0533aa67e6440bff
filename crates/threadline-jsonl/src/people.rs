//! `summary.json`: what people set.

use std::path::Path;

use threadline_session::SessionId;
use threadline_store::{BackendError, UserSummary};

use crate::{
    files::{Files, failed},
    layout::{NEW_SUMMARY, QUARANTINE, SUMMARY, SUMMARY_LOCK},
    limits::{LOCK_TRIES, MAX_SUMMARY_BYTES},
    vfs::{At as _, FileError, Mode, append_all, read_full},
};

enum Found {
    Nothing,
    Summary(UserSummary),
    /// It is there and cannot be read as what it should be.
    Garbled,
}

impl Files {
    /// Returns what people set; the default when the file is missing or garbled.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        let dir = self.dir(id);
        match self.read_summary(&dir).map_err(failed)? {
            Found::Summary(summary) => Ok(summary),
            Found::Nothing => Ok(UserSummary::default()),
            Found::Garbled => Ok(UserSummary {
                damaged: Some(dir.join(SUMMARY).display().to_string()),
                ..UserSummary::default()
            }),
        }
    }

    fn read_summary(&self, dir: &Path) -> Result<Found, FileError> {
        let path = dir.join(SUMMARY);
        let Some(meta) = self.vfs.metadata(&path).at("looking at", &path)? else {
            return Ok(Found::Nothing);
        };
        if meta.is_dir || meta.len > MAX_SUMMARY_BYTES {
            return Ok(Found::Garbled);
        }
        let file = self.vfs.open(&path, Mode::Read).at("opening", &path)?;
        let mut bytes = vec![0; usize::try_from(meta.len).unwrap_or(0)];
        let read = read_full(&*file, &mut bytes, 0).at("reading", &path)?;
        bytes.truncate(read);
        Ok(serde_json::from_slice(&bytes).map_or(Found::Garbled, Found::Summary))
    }

    /// Replaces what people set if the revision is still the expected one. A lock of its own
    /// makes this safe between processes, also while another one writes the log.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let dir = self.dir(id);
        let lock_path = dir.join(SUMMARY_LOCK);
        let lock = self
            .vfs
            .open(&lock_path, Mode::ReadWrite)
            .at("opening", &lock_path);
        let lock = lock.map_err(failed)?;
        let mut tries = 0;
        while !lock
            .try_lock(true)
            .at("locking", &lock_path)
            .map_err(failed)?
        {
            tries += 1;
            if tries >= LOCK_TRIES {
                let what = format!("locking {}", lock_path.display());
                return Err(BackendError::new(
                    what,
                    "another process holds it; try again",
                ));
            }
            self.vfs.pause();
        }
        let found = self.read_summary(&dir).map_err(failed)?;
        let garbled = matches!(found, Found::Garbled);
        let current = match found {
            Found::Summary(summary) => summary,
            Found::Nothing | Found::Garbled => UserSummary::default(),
        };
        if current.revision != expected {
            return Ok(Err(current));
        }
        self.replace_summary(&dir, summary, garbled)
            .map_err(failed)?;
        Ok(Ok(()))
    }

    fn replace_summary(
        &self,
        dir: &Path,
        summary: &UserSummary,
        garbled: bool,
    ) -> Result<(), FileError> {
        let (path, new) = (dir.join(SUMMARY), dir.join(NEW_SUMMARY));
        if garbled {
            self.put_aside(dir, &path)?;
        }
        let mut bytes = serde_json::to_vec_pretty(summary)
            .map_err(std::io::Error::other)
            .at("encoding", &path)?;
        bytes.push(b'\n');
        if self.vfs.metadata(&new).at("looking at", &new)?.is_some() {
            self.vfs.remove_file(&new).at("removing", &new)?;
        }
        let file = self.vfs.open(&new, Mode::CreateNew).at("creating", &new)?;
        append_all(&*file, &bytes).at("writing", &new)?;
        file.sync_data().at("syncing", &new)?;
        self.vfs.rename(&new, &path).at("renaming", &new)?;
        self.vfs.sync_dir(dir).at("syncing", dir)
    }

    fn put_aside(&self, dir: &Path, path: &Path) -> Result<(), FileError> {
        let quarantine = dir.join(QUARANTINE);
        match self.vfs.create_dir(&quarantine) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).at("creating", &quarantine),
        }
        let mut kept = quarantine.join(SUMMARY);
        let mut count = 1;
        while self.vfs.metadata(&kept).at("looking at", &kept)?.is_some() {
            kept = quarantine.join(format!("summary-{count}.json"));
            count += 1;
        }
        self.vfs.rename(path, &kept).at("renaming", path)?;
        self.vfs.sync_dir(&quarantine).at("syncing", &quarantine)
    }
}
