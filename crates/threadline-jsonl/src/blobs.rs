//! Blobs: `blobs/ab/<hash>`, each written once and durable before anything names it.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
};

use threadline_session::SessionId;
use threadline_store::{BackendError, BlobId, BlobStat, blob::names_in};

use crate::{
    files::{Files, failed},
    layout::BLOBS,
    limits::READ_BYTES,
    vfs::{At as _, FileError, Mode, append_all, read_full},
};

impl Files {
    fn blob_path(&self, id: &BlobId) -> PathBuf {
        let name = id.as_str();
        let short = name.get(..2).unwrap_or_default();
        self.root.join(BLOBS).join(short).join(name)
    }

    /// Stores a blob, durably. One that is there already counts as put again.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        self.write_blob(id, bytes).map_err(failed)
    }

    fn write_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.blob_path(id);
        let Some(dir) = path.parent() else {
            return Ok(());
        };
        // Compared, and not only measured: putting the right bytes again mends a damaged blob.
        if self.has_bytes(&path, bytes)? {
            self.vfs.touch(&path).at("touching", &path)?;
            // Whoever put it first may have died before syncing its folder.
            return self.sync_place(dir);
        }
        self.make_root(&self.root)?;
        self.make_dir(&self.root.join(BLOBS))?;
        self.make_dir(dir)?;
        let mut attempt = 0;
        let (new, file) = loop {
            let new = dir.join(format!(".{id}-{}-{attempt}", std::process::id()));
            match self.vfs.open(&new, Mode::CreateNew) {
                Ok(file) => break (new, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(error).at("creating", &new),
            }
        };
        let written = append_all(&*file, bytes)
            .at("writing", &new)
            .and_then(|()| file.sync_data().at("syncing", &new))
            .and_then(|()| self.vfs.rename(&new, &path).at("renaming", &new));
        if written.is_err() {
            let _ = self.vfs.remove_file(&new);
        }
        written?;
        self.sync_place(dir)
    }

    fn has_bytes(&self, path: &Path, bytes: &[u8]) -> Result<bool, FileError> {
        let file = match self.vfs.open(path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).at("opening", path),
        };
        if file.len().at("measuring", path)? != bytes.len() as u64 {
            return Ok(false);
        }
        let mut held = vec![0; bytes.len()];
        let read = read_full(&*file, &mut held, 0).at("reading", path)?;
        Ok(held.get(..read) == Some(bytes))
    }

    /// Reads a blob; `None` when there is none.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        let path = self.blob_path(id);
        let file = match self.vfs.open(&path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at("opening", &path).map_err(failed),
        };
        let len = file.len().at("measuring", &path).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = read_full(&*file, &mut bytes, 0).at("reading", &path);
        bytes.truncate(read.map_err(failed)?);
        Ok(Some(bytes))
    }

    /// Returns all blobs, in no order.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        let top = self.root.join(BLOBS);
        let mut found = Vec::new();
        for short in self.folders(&top)? {
            let dir = top.join(short);
            for entry in self.vfs.list(&dir).at("listing", &dir).map_err(failed)? {
                let Some(Ok(id)) = entry.name.to_str().map(BlobId::parse) else {
                    continue;
                };
                let path = dir.join(&entry.name);
                let meta = self.vfs.metadata(&path).at("looking at", &path);
                if let Some(meta) = meta.map_err(failed)? {
                    found.push(BlobStat {
                        id,
                        bytes: meta.len,
                        put_at: meta.mtime_ns / 1_000_000,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Deletes a blob if it was not put again since it was looked at. Returns whether it did.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        let path = self.blob_path(&stat.id);
        let meta = self.vfs.metadata(&path).at("looking at", &path);
        let same = meta
            .map_err(failed)?
            .is_some_and(|meta| meta.mtime_ns / 1_000_000 == stat.put_at);
        if same {
            let removed = self.vfs.remove_file(&path).at("removing", &path);
            removed.map_err(failed)?;
        }
        Ok(same)
    }

    /// Adds the names of all blobs that any file of a session may mention.
    ///
    /// # Errors
    /// [`BackendError`].
    pub fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        self.names_below(&self.dir(id), found).map_err(failed)
    }

    fn names_below(&self, dir: &Path, found: &mut HashSet<BlobId>) -> Result<(), FileError> {
        for entry in self.vfs.list(dir).at("listing", dir)? {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                self.names_below(&path, found)?;
                continue;
            }
            let file = self.vfs.open(&path, Mode::Read).at("opening", &path)?;
            let mut bytes = vec![0; READ_BYTES];
            let mut at = 0;
            loop {
                let read = read_full(&*file, &mut bytes, at).at("reading", &path)?;
                names_in(bytes.get(..read).unwrap_or_default(), found);
                if read < bytes.len() {
                    break;
                }
                // A name may lie across the border of two pieces.
                at += (read - OVERLAP) as u64;
            }
        }
        Ok(())
    }
}

/// Bytes that are looked at twice: more than a name and what stands before and behind it.
const OVERLAP: usize = 128;
