//! Sessions on a file system, synchronously: finding, reading, creating, claiming, deleting.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_session::{Header, SessionId};
use threadline_store::{
    BackendError, ClaimError, HeaderReadError, Holder, Page, ReadPos, Stamp, Stat, StoredHeader,
};

use crate::{
    hint::Hint,
    layout::{self, DELETED, LOCK, LOG, NEW_LOG},
    limits::{LOCK_TRIES, MAX_HEADER_BYTES},
    log::LogWriter,
    scan::{Evidence, Scanner},
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, append_all, read_full},
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
        let mut bytes = vec![0; MAX_HEADER_BYTES];
        let read = read_full(&*file, &mut bytes, 0)
            .at("reading", &path)
            .map_err(failed)?;
        bytes.truncate(read);
        let wrong = |source| HeaderReadError::Header {
            file: path.display().to_string(),
            source,
        };
        let Some(end) = memchr::memchr(b'\n', &bytes) else {
            let reason = if bytes.is_empty() {
                "the file is empty"
            } else {
                "the line has no end"
            };
            return Err(wrong(threadline_session::HeaderError::Invalid {
                reason: reason.into(),
            }));
        };
        bytes.truncate(end + 1);
        let line = bytes.get(..end).unwrap_or_default();
        let (header, verified) = Header::decode(line).map_err(wrong)?;
        Ok(Some(StoredHeader {
            header,
            line: bytes,
            verified,
        }))
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
        let path = dir.join(LOG);
        let Some(file) = self.open_log(&dir).map_err(failed)? else {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(BackendError::new(
                format!("reading {}", path.display()),
                missing,
            ));
        };
        let hint = Hint::load_at(&*self.vfs, &dir.join(LOCK)).map_err(failed)?;
        let evidence = Evidence::of(hint.as_ref(), &self.vfs.boot_id());
        let scanner = Scanner {
            file: &*file,
            path: &path,
            evidence,
        };
        scanner.page(from, max_bytes).map_err(failed)
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
        let (writer, acknowledged) = self.look_at_lock(&dir);
        Ok(Some(Stat {
            bytes: meta.len,
            stamp: Stamp(meta.len, meta.mtime_ns),
            writer,
            acknowledged,
        }))
    }

    /// Probes the lock for an instant with a shared one, so that reading never needs it.
    fn look_at_lock(&self, dir: &Path) -> (Option<Holder>, Option<u64>) {
        let Ok(file) = self.vfs.open(&dir.join(LOCK), Mode::Read) else {
            return (None, None);
        };
        let hint = Hint::read(&*file);
        let held = matches!(file.try_lock(false), Ok(false));
        let holder = held.then(|| {
            hint.as_ref()
                .map_or_else(Hint::default, Clone::clone)
                .holder()
        });
        (holder, hint.and_then(|hint| hint.durable_seq))
    }

    /// Returns all ids, in no order.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        let top = self.root.join(layout::SESSIONS);
        let mut found = Vec::new();
        for first in self.folders(&top)? {
            let depth = if first == layout::OTHER { 1 } else { 2 };
            let mut level = vec![top.join(&first)];
            for _ in 0..depth {
                let mut below = Vec::new();
                for dir in level {
                    below.extend(self.folders(&dir)?.into_iter().map(|name| dir.join(name)));
                }
                level = below;
            }
            for dir in level {
                for name in self.folders(&dir)? {
                    found.extend(self.id_of(&dir.join(&name), &name)?);
                }
            }
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

    fn folders(&self, dir: &Path) -> Result<Vec<String>, BackendError> {
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

    fn check_network(&self) -> Result<(), ClaimError> {
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

    /// Makes a session's folder.
    fn make_dirs(&self, id: &SessionId) -> Result<PathBuf, FileError> {
        let mut path = self.root.clone();
        self.make_root(&path)?;
        for part in layout::parts(id) {
            path.push(part);
            self.make_dir(&path)?;
        }
        Ok(path)
    }

    /// Makes the root folder and those above it that are missing. When it is missing, all above it
    /// are synced: how far an attempt got that died here cannot be seen.
    fn make_root(&self, path: &Path) -> Result<(), FileError> {
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

    fn make_dir(&self, path: &Path) -> Result<(), FileError> {
        match self.vfs.create_dir(path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error).at("creating", path),
        }
    }

    /// Takes the lock of a session's folder.
    fn lock(&self, dir: &Path) -> Result<Box<dyn VfsFile>, ClaimError> {
        let path = dir.join(LOCK);
        let file = self.vfs.open(&path, Mode::ReadWrite).at("opening", &path);
        let file = file.map_err(claim_failed)?;
        for attempt in 0..LOCK_TRIES {
            if attempt > 0 {
                self.vfs.pause();
            }
            if file
                .try_lock(true)
                .at("locking", &path)
                .map_err(claim_failed)?
            {
                return Ok(file);
            }
        }
        let holder = Hint::read(&*file).unwrap_or_default().holder();
        Err(ClaimError::Locked { holder })
    }

    /// Stores a new session, durably, and claims it.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn create(
        &self,
        id: &SessionId,
        header_line: &[u8],
        batch: &[u8],
        last_seq: u64,
    ) -> Result<LogWriter, ClaimError> {
        self.check_network()?;
        let exists = || {
            let log = self.dir(id).join(LOG);
            let there = self
                .vfs
                .metadata(&log)
                .at("looking at", &log)
                .map_err(claim_failed)?;
            there.map_or(Ok(()), |_| Err(ClaimError::AlreadyExists))
        };
        // Before the lock, because whoever is writing the session holds it; and under the lock,
        // because somebody may have created it between.
        exists()?;
        let dir = self.make_dirs(id).map_err(claim_failed)?;
        let lock = self.lock(&dir)?;
        exists()?;
        let mut bytes = header_line.to_vec();
        bytes.extend_from_slice(batch);
        let mut writer = self.write_new(&dir, lock, &bytes).map_err(claim_failed)?;
        writer.durable_seq = Some(last_seq);
        writer.hint.durable_seq = Some(last_seq);
        // Synced once, so that after a power cut there is evidence of what was acknowledged.
        let path = dir.join(LOCK);
        let noted = writer
            .hint
            .write(&*writer.lock, &path)
            .and_then(|()| writer.lock.sync_data().at("syncing", &path));
        if let Err(error) = noted {
            tracing::warn!(%error, "the lock record could not be written");
        }
        Ok(writer)
    }

    /// Writes a whole log beside its place, then moves it there: it exists with its header and its
    /// first batch, or not at all.
    fn write_new(
        &self,
        dir: &Path,
        lock: Box<dyn VfsFile>,
        bytes: &[u8],
    ) -> Result<LogWriter, FileError> {
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
        match write() {
            Ok(file) => {
                let hint = self.new_hint(None);
                Ok(LogWriter {
                    files: self.clone(),
                    vfs: self.vfs.clone(),
                    dir: dir.to_owned(),
                    file: Some(file),
                    lock,
                    len: bytes.len() as u64,
                    hint,
                    durable_seq: None,
                    doubted: false,
                    last_seq: None,
                    dead: None,
                })
            }
            Err(error) => {
                // Best effort: what is left is removed by the next attempt too.
                let _ = self.vfs.remove_file(&new);
                Err(error)
            }
        }
    }

    fn new_hint(&self, before: Option<&Hint>) -> Hint {
        Hint {
            pid: std::process::id(),
            host: self.vfs.host(),
            boot_id: self.vfs.boot_id(),
            epoch: before.map_or(0, |before| before.epoch) + 1,
            since: self.vfs.now_ms(),
            durable_seq: before.and_then(|before| before.durable_seq),
            failed: false,
        }
    }

    /// Claims an existing session. The lock's record stays as it is until [`LogWriter::begin`],
    /// because reading needs it as evidence.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim(&self, id: &SessionId) -> Result<LogWriter, ClaimError> {
        let dir = self.dir(id);
        let log = dir.join(LOG);
        let there = self
            .vfs
            .metadata(&log)
            .at("looking at", &log)
            .map_err(claim_failed)?;
        if there.is_none() {
            return Err(ClaimError::NotFound);
        }
        self.check_network()?;
        let lock = self.lock(&dir)?;
        let before = Hint::load(&*lock)
            .at("reading", &dir.join(LOCK))
            .map_err(claim_failed)?;
        Ok(LogWriter {
            files: self.clone(),
            vfs: self.vfs.clone(),
            hint: self.new_hint(before.as_ref()),
            durable_seq: before.as_ref().and_then(|before| before.durable_seq),
            doubted: before.is_none_or(|before| before.failed),
            dir,
            file: None,
            lock,
            len: 0,
            last_seq: None,
            dead: None,
        })
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let claim = self.claim(id)?;
        let dir = claim.dir;
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(ClaimError::NotFound);
        };
        let gone = parent.join(format!("{DELETED}{}", name.to_string_lossy()));
        let remove = || -> Result<(), FileError> {
            self.remove_tree(&gone)?;
            self.vfs.rename(&dir, &gone).at("renaming", &dir)?;
            self.vfs.sync_dir(parent).at("syncing", parent)?;
            self.remove_tree(&gone)
        };
        remove().map_err(claim_failed)
    }

    fn remove_tree(&self, path: &Path) -> Result<(), FileError> {
        if self.vfs.metadata(path).at("looking at", path)?.is_none() {
            return Ok(());
        }
        for entry in self.vfs.list(path).at("listing", path)? {
            let below = path.join(&entry.name);
            if entry.is_dir {
                self.remove_tree(&below)?;
            } else {
                self.vfs.remove_file(&below).at("removing", &below)?;
            }
        }
        self.vfs.remove_dir(path).at("removing", path)
    }
}
