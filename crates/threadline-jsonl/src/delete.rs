//! Deleting a session without taking anything from its forks.

use std::path::{Path, PathBuf};

use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError};

use crate::{
    files::{Files, claim_failed, failed},
    layout::{DELETED, LOG, base_index_name, base_name},
    pieces::Pieces,
    vfs::{At as _, FileError},
};

/// A file that is deleted here and that others go on using as their prefix.
struct Shared {
    /// Its number in their logs.
    number: usize,
    from: PathBuf,
    /// How much of it they use together.
    bytes: u64,
    /// Their folders.
    users: Vec<PathBuf>,
}

impl Files {
    /// Deletes a session. Forks keep what they share with it; what only it held is gone.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let claim = self.claim(id)?;
        let dir = claim.dir;
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(ClaimError::NotFound);
        };
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

    /// Finds files of a log of which forks use only a part.
    fn shared(&self, dir: &Path) -> Result<Vec<Shared>, BackendError> {
        // A damaged log may be deleted too; what cannot be read of it is shared with nobody.
        let Ok(Some(pieces)) = Pieces::open(&*self.vfs, dir) else {
            return Ok(Vec::new());
        };
        let mut shared = Vec::new();
        for (number, piece) in pieces.0.iter().enumerate() {
            let meta = self.vfs.metadata(&piece.path).at("looking at", &piece.path);
            let Some(meta) = meta.map_err(failed)?.filter(|meta| meta.links > 1) else {
                continue;
            };
            let mut users = Vec::new();
            let mut bytes = 0;
            let mut owned = false;
            for other in self.ids()? {
                let other = self.dir(&other);
                if other == dir {
                    continue;
                }
                let same = |name: &str| {
                    let found = self.vfs.metadata(&other.join(name)).ok().flatten();
                    found.is_some_and(|found| found.inode == meta.inode)
                };
                owned |= same(LOG);
                if same(&base_name(number)) {
                    let pieces = self.pieces(&other)?;
                    let base = pieces.0.get(number).and_then(|piece| piece.base.as_ref());
                    bytes = bytes.max(base.map_or(0, |base| base.bytes));
                    users.push(other);
                }
            }
            if !owned && !users.is_empty() && bytes < meta.len {
                shared.push(Shared {
                    number,
                    from: piece.path.clone(),
                    bytes,
                    users,
                });
            }
        }
        Ok(shared)
    }

    /// Gives the forks a copy that ends where the last of them does.
    fn trim(&self, shared: &Shared) -> Result<(), FileError> {
        let name = base_name(shared.number);
        let mut copy: Option<PathBuf> = None;
        for dir in &shared.users {
            let new = dir.join(format!("{name}.new"));
            match &copy {
                Some(copy) => self.share(copy, &new, shared.bytes)?,
                None => {
                    let _ = self.vfs.remove_file(&new);
                    self.copy(&shared.from, &new, shared.bytes)?;
                }
            }
            let to = dir.join(&name);
            self.vfs.rename(&new, &to).at("renaming", &new)?;
            // It tells of what lies behind the part that is kept.
            let _ = self
                .vfs
                .remove_file(&dir.join(base_index_name(shared.number)));
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
