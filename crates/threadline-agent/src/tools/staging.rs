//! Changing several files, all or none.
//!
//! New contents are written beside their places first, and what they replace is kept beside it
//! too. Then everything is renamed into place. If a rename fails, those before it are taken back.
//! A crash in between leaves each file whole, old or new; no more can be promised without a
//! journal, and the call's outcome is then told as unknown.
//!
//! What a client takes is written through it in between, when all that is on disk is ready: a
//! client is likelier to fail than a rename.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::file;

/// What is to become of one resolved path.
pub(super) struct Staged {
    pub(super) path: PathBuf,
    /// What is on disk, as far as the caller knows; nothing when it must not exist.
    pub(super) before: Option<String>,
    /// What it shall hold; nothing when it shall go.
    pub(super) after: Option<String>,
    /// The file whose mode a new one takes.
    pub(super) like: Option<PathBuf>,
}

/// A change of which everything is ready but the last rename.
struct Ready {
    at: usize,
    folder: OwnedFd,
    name: std::ffi::OsString,
    /// The new content.
    fresh: Option<String>,
    /// The old file under another name.
    kept: Option<String>,
}

/// Why nothing on disk was changed.
#[derive(Debug)]
pub(super) enum Unapplied<E> {
    /// The number of the change that failed, and why.
    Disk(usize, io::Error),
    /// What was to be done in between failed.
    Between(E),
}

/// Applies all changes, or none, and does something in between: when they are ready and none is
/// made.
///
/// # Errors
/// [`Unapplied`]. Nothing is changed then; what was done in between is the caller's.
pub(super) fn apply<E>(
    changes: &[Staged],
    between: impl FnOnce() -> Result<(), E>,
) -> Result<(), Unapplied<E>> {
    let mut made = Vec::new();
    let mut ready: Vec<Ready> = Vec::new();
    let mut placed = 0;
    let mut outcome = Ok(());
    for (at, change) in changes.iter().enumerate() {
        match prepare(at, change, &mut made) {
            Ok(done) => ready.push(done),
            Err(error) => {
                outcome = Err(Unapplied::Disk(at, error));
                break;
            }
        }
    }
    if outcome.is_ok() {
        outcome = between().map_err(Unapplied::Between);
    }
    if outcome.is_ok() {
        for done in &ready {
            if let Err(error) = place(done) {
                outcome = Err(Unapplied::Disk(done.at, error));
                break;
            }
            placed += 1;
        }
    }
    if outcome.is_err() {
        for done in ready.iter().take(placed).rev() {
            take_back(done);
        }
    }
    for done in &ready {
        for leftover in [&done.fresh, &done.kept].into_iter().flatten() {
            let _ = rustix::fs::unlinkat(&done.folder, leftover, AtFlags::empty());
        }
    }
    if outcome.is_err() {
        // Folders that were made for nothing; one that holds something meanwhile stays.
        for folder in made.iter().rev() {
            remove_folder(folder);
        }
    }
    outcome
}

fn prepare(at: usize, change: &Staged, made: &mut Vec<PathBuf>) -> io::Result<Ready> {
    let (Some(parent), Some(name)) = (change.path.parent(), change.path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    made.extend(missing(parent));
    let folder = file::open_folder_creating(parent)?;
    let old = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let mut ready = Ready {
        at,
        folder,
        name: name.to_owned(),
        fresh: None,
        kept: None,
    };
    match (&old, &change.before) {
        (Some(stat), Some(before)) => {
            file::may_replace(&ready.folder, name, FileType::from_raw_mode(stat.st_mode))?;
            keep(&mut ready, before, stat)?;
        }
        (None, None) => {}
        (Some(_), None) => return Err(io::ErrorKind::AlreadyExists.into()),
        (None, Some(_)) => return Err(io::ErrorKind::NotFound.into()),
    }
    if let Some(after) = &change.after {
        let like = change
            .like
            .as_deref()
            .and_then(|path| rustix::fs::stat(path).ok());
        let made = write(&mut ready, after, old.as_ref().or(like.as_ref()));
        if let Err(error) = made {
            clear(&ready);
            return Err(error);
        }
    }
    Ok(ready)
}

fn write(ready: &mut Ready, content: &str, like: Option<&Stat>) -> io::Result<()> {
    let (name, file) = file::temporary(&ready.folder)?;
    ready.fresh = Some(name);
    file::fill(file, content.as_bytes(), like)
}

/// Keeps the old file under another name: itself where the file system has links, else a copy.
fn keep(ready: &mut Ready, before: &str, stat: &Stat) -> io::Result<()> {
    let (name, file) = file::temporary(&ready.folder)?;
    let _ = rustix::fs::unlinkat(&ready.folder, &name, AtFlags::empty());
    let linked = rustix::fs::linkat(
        &ready.folder,
        &ready.name,
        &ready.folder,
        &name,
        AtFlags::empty(),
    );
    drop(file);
    ready.kept = Some(name);
    if linked.is_ok() {
        return Ok(());
    }
    let copied = file::temporary(&ready.folder).and_then(|(name, file)| {
        ready.kept = Some(name);
        file::fill(file, before.as_bytes(), Some(stat))
    });
    if copied.is_err() {
        clear(ready);
    }
    copied
}

fn clear(ready: &Ready) {
    for name in [&ready.fresh, &ready.kept].into_iter().flatten() {
        let _ = rustix::fs::unlinkat(&ready.folder, name, AtFlags::empty());
    }
}

fn place(ready: &Ready) -> io::Result<()> {
    match &ready.fresh {
        Some(fresh) if ready.kept.is_some() => {
            rustix::fs::renameat(&ready.folder, fresh, &ready.folder, &ready.name)?;
        }
        // Nobody's file is replaced that appeared meanwhile.
        Some(fresh) => {
            let linked = rustix::fs::linkat(
                &ready.folder,
                fresh,
                &ready.folder,
                &ready.name,
                AtFlags::empty(),
            );
            match linked {
                Ok(()) => {}
                Err(Errno::EXIST) => return Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => {
                    rustix::fs::renameat(&ready.folder, fresh, &ready.folder, &ready.name)?;
                }
            }
        }
        None => rustix::fs::unlinkat(&ready.folder, &ready.name, AtFlags::empty())?,
    }
    Ok(())
}

fn take_back(ready: &Ready) {
    let done = match &ready.kept {
        Some(kept) => rustix::fs::renameat(&ready.folder, kept, &ready.folder, &ready.name),
        None => rustix::fs::unlinkat(&ready.folder, &ready.name, AtFlags::empty()),
    };
    if let Err(error) = done {
        tracing::error!(%error, name = ?ready.name, "a file could not be put back");
    }
}

/// Returns the folders that have to be made for one to be there, outermost first.
pub(super) fn missing(folder: &Path) -> Vec<PathBuf> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.exists())
        .collect();
    missing.into_iter().rev().map(Path::to_owned).collect()
}

/// Removes a file that has just been made.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = file::open_folder(parent)?;
    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a folder that is empty.
pub(super) fn remove_folder(folder: &Path) {
    if let (Some(parent), Some(name)) = (folder.parent(), folder.file_name())
        && let Ok(parent) = file::open_folder(parent)
    {
        let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_placed_is_taken_back_when_a_later_rename_fails() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("old"), "old").unwrap();
        std::fs::write(root.join("gone"), "gone").unwrap();
        let staged = |name: &str, before: Option<&str>, after: Option<&str>| Staged {
            path: root.join(name),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
            like: None,
        };
        let changes = [
            staged("old", Some("old"), Some("new")),
            staged("gone", Some("gone"), None),
            staged("deep/fresh", None, Some("one")),
            // As if somebody made it in between.
            staged("deep/fresh", None, Some("two")),
        ];
        let nothing = || Ok::<(), ()>(());
        let Err(Unapplied::Disk(at, error)) = apply(&changes, nothing) else {
            panic!("a rename has to fail");
        };
        assert_eq!((at, error.kind()), (3, io::ErrorKind::AlreadyExists));
        let mut names: Vec<_> = std::fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["gone", "old"]);
        assert_eq!(std::fs::read_to_string(root.join("old")).unwrap(), "old");
        assert_eq!(std::fs::read_to_string(root.join("gone")).unwrap(), "gone");
        let refused = apply(&changes[..3], || {
            assert_eq!(std::fs::read_to_string(root.join("old")).unwrap(), "old");
            Err("refused")
        });
        assert!(matches!(refused, Err(Unapplied::Between("refused"))));
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2);
        apply(&changes[..3], nothing).unwrap();
        assert_eq!(std::fs::read_to_string(root.join("old")).unwrap(), "new");
        assert_eq!(
            std::fs::read_to_string(root.join("deep/fresh")).unwrap(),
            "one"
        );
        assert!(!root.join("gone").exists());
        assert_eq!(std::fs::read_dir(root.join("deep")).unwrap().count(), 1);
    }
}
