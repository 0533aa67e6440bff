//! The private folder for temporary files of one command.
//!
//! Whoever uses one holds a lock on it, which the kernel takes back with the process. So a folder
//! that a killed agent left behind is known by its free lock, and the next agent removes it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use tempfile::TempDir;

use crate::limits::PRIVATE_TRIES;

const PREFIX: &str = "threadline-private-";

/// A folder that only this user can enter. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Private {
    dir: TempDir,
    _lock: OwnedFd,
}

impl Private {
    /// Makes a folder, and once per process removes those that were left behind.
    pub(crate) fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        // Mounts are told apart by it, and the kernel names them without links.
        let above = std::env::temp_dir().canonicalize()?;
        SWEPT.call_once(|| sweep(&above));
        let mut tries = 0;
        loop {
            let made = Self::make(&above);
            tries += 1;
            // Another agent's sweep can take it before it is locked.
            if made.is_ok() || tries >= PRIVATE_TRIES {
                return made;
            }
        }
    }

    fn make(above: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(above)?;
        let lock = lock(dir.path())?;
        // The lock could be one on a folder that is gone.
        dir.path().symlink_metadata()?;
        Ok(Self { dir, _lock: lock })
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn lock(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, folder, flags, Mode::empty())?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// Removes the folders of agents that are gone. What it cannot remove stays for the system's own
/// cleaning of temporary files.
fn sweep(above: &Path) {
    let left: Vec<PathBuf> = std::fs::read_dir(above)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect();
    for folder in left {
        // Another user's cannot be opened, and one in use cannot be locked.
        if let Ok(held) = lock(&folder) {
            let _ = std::fs::remove_dir_all(&folder);
            drop(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_agent_left_is_removed_and_what_is_in_use_stays() {
        let above = tempfile::tempdir().unwrap();
        let used = Private::make(above.path()).unwrap();
        let left = above.path().join(format!("{PREFIX}left"));
        std::fs::create_dir_all(left.join("deep")).unwrap();
        let other = above.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let link = above.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        sweep(above.path());
        assert!(used.path().is_dir() && other.is_dir() && !left.exists());
        let path = used.path().to_path_buf();
        drop(used);
        assert!(!path.exists());
    }
}
