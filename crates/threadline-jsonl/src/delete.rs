//! Deleting a session without taking anything from its forks.

use std::path::{Path, PathBuf};

use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError};

use crate::{
    files::{Files, claim_failed, failed},
    hint::Hint,
    layout::{DELETED, LOCK, LOG, NEW_LOG, QUARANTINE, index_of, is_base_name},
    pieces::Pieces,
    vfs::{At as _, FileError, Meta, Mode},
};

/// A file that is deleted here and that others go on using as their prefix.
struct Shared {
    from: PathBuf,
    /// How much of it they use together.
    bytes: u64,
    /// Their folders, and its name there.
    users: Vec<(PathBuf, String)>,
}

impl Files {
    /// Deletes a session. Forks keep what they share with it; what only it held is gone.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let mut claim = self.claim(id)?;
        let dir = claim.dir.clone();
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(ClaimError::NotFound);
        };
        let holder = || Hint::load_at(&*self.vfs, &claim.lock.path).ok().flatten();
        let locked = |holder: Option<Hint>| ClaimError::Locked {
            holder: holder.unwrap_or_default().holder(),
        };
        let Some(_turn) = self.turnstile(&dir)? else {
            return Err(locked(holder()));
        };
        if claim.check_taken().is_err() {
            return Err(locked(self.current_hint(&dir)));
        }
        for shared in self.shared(&dir).map_err(ClaimError::Backend)? {
            self.trim(&shared).map_err(claim_failed)?;
        }
        let gone = parent.join(format!("{DELETED}{}", name.to_string_lossy()));
        let remove = || -> Result<(), FileError> {
            self.remove_tree(&gone)?;
            self.vfs.rename(&dir, &gone).at("renaming", &dir)?;
            self.vfs.sync_dir(parent).at("syncing", parent)?;
            self.remove_tree(&gone)
        };
        remove().map_err(claim_failed)
    }

    fn current_hint(&self, dir: &Path) -> Option<Hint> {
        let path = self.lock_path(dir).ok()?;
        Hint::load_at(&*self.vfs, &path).ok().flatten()
    }

    /// Finds files of a session, logs from before a repair included, of which forks use a part.
    fn shared(&self, dir: &Path) -> Result<Vec<Shared>, BackendError> {
        let mut files = Vec::new();
        for folder in [dir.to_owned(), dir.join(QUARANTINE)] {
            for entry in self.vfs.list(&folder).unwrap_or_default() {
                let path = folder.join(&entry.name);
                let log = entry.name.to_string_lossy().ends_with(".jsonl");
                let meta = self.vfs.metadata(&path).at("looking at", &path);
                if let Some(meta) = meta.map_err(failed)?
                    && log
                    && meta.links > 1
                    && !files
                        .iter()
                        .any(|(_, known): &(_, Meta)| known.inode == meta.inode)
                {
                    files.push((path, meta));
                }
            }
        }
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let mut found: Vec<(Shared, bool)> = files
            .iter()
            .map(|(path, _)| {
                let shared = Shared {
                    from: path.clone(),
                    bytes: 0,
                    users: Vec::new(),
                };
                (shared, false)
            })
            .collect();
        for other in self.session_dirs()? {
            if other != dir {
                self.look_for(&files, &mut found, &other)?;
            }
        }
        Ok(found
            .into_iter()
            .zip(files)
            .filter(|((shared, owned), (_, meta))| {
                !owned && !shared.users.is_empty() && shared.bytes < meta.len
            })
            .map(|((shared, _), _)| shared)
            .collect())
    }

    /// Looks in another session's folder for the same files.
    fn look_for(
        &self,
        files: &[(PathBuf, Meta)],
        found: &mut [(Shared, bool)],
        other: &Path,
    ) -> Result<(), BackendError> {
        let mut pieces = None;
        for entry in self.vfs.list(other).unwrap_or_default() {
            let name = entry.name.to_string_lossy().into_owned();
            let path = other.join(&entry.name);
            if !name.ends_with(".jsonl") {
                continue;
            }
            let meta = self.vfs.metadata(&path).at("looking at", &path);
            let Some(meta) = meta.map_err(failed)? else {
                continue;
            };
            let at = files.iter().position(|(_, file)| file.inode == meta.inode);
            let Some((shared, owned)) = at.and_then(|at| found.get_mut(at)) else {
                continue;
            };
            if name == LOG {
                *owned = true;
                continue;
            }
            if pieces.is_none() {
                pieces = Some(Pieces::open(&*self.vfs, other).map_err(failed)?);
            }
            let Some(Some(pieces)) = &pieces else {
                // A fork that was never finished, by somebody who is gone: it uses nothing.
                if self.is_abandoned(other) {
                    let _ = self.remove_tree(other);
                }
                continue;
            };
            let base = pieces.0.iter().filter_map(|piece| piece.base.as_ref());
            if let Some(base) = base.into_iter().find(|base| base.file == name) {
                shared.bytes = shared.bytes.max(base.bytes);
                shared.users.push((other.to_owned(), name));
            } else {
                // Its header cannot be read, or it was repaired: what is kept there is not ours to
                // cut or to erase.
                *owned = true;
            }
        }
        Ok(())
    }

    /// Whether a folder holds only what a fork begins with, and nobody is making it. One that has
    /// lost its log by other means has more in it, and is left alone.
    fn is_abandoned(&self, dir: &Path) -> bool {
        let begun = |name: &str| {
            is_base_name(name) || name.ends_with(".index") || name == LOCK || name == NEW_LOG
        };
        let entries = self.vfs.list(dir).unwrap_or_default();
        if !entries
            .iter()
            .all(|entry| begun(&entry.name.to_string_lossy()))
        {
            return false;
        }
        let path = dir.join(LOCK);
        match self.vfs.open(&path, Mode::Read) {
            Ok(file) => matches!(file.try_lock(true), Ok(true)),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Gives the forks a copy that ends where the last of them does.
    fn trim(&self, shared: &Shared) -> Result<(), FileError> {
        let mut copy: Option<PathBuf> = None;
        for (dir, name) in &shared.users {
            let new = dir.join(format!("{name}.new"));
            match &copy {
                Some(copy) => drop(self.share(copy, &new, shared.bytes)?),
                None => {
                    let _ = self.vfs.remove_file(&new);
                    self.copy(&shared.from, &new, shared.bytes)?;
                }
            }
            let to = dir.join(name);
            self.vfs.rename(&new, &to).at("renaming", &new)?;
            // It tells of what lies behind the part that is kept.
            let _ = self.vfs.remove_file(&dir.join(index_of(name)));
            self.vfs.sync_dir(dir).at("syncing", dir)?;
            copy = Some(to);
        }
        Ok(())
    }

    pub(crate) fn remove_tree(&self, path: &Path) -> Result<(), FileError> {
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
