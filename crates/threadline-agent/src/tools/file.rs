//! Opening and replacing files by resolved paths, never through a link.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// Opens an existing path of which no part is a link.
pub(crate) fn open_resolved(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    match rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        rustix::fs::ResolveFlags::NO_SYMLINKS,
    ) {
        // Old kernels do not have it and some containers forbid it.
        Err(Errno::NOSYS | Errno::PERM) => {}
        done => return Ok(done?),
    }
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens a regular file for reading.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // NONBLOCK keeps the open of a pipe from waiting for a writer that never comes.
    let fd = open_resolved(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let file = File::from(fd);
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is not a regular file",
        ));
    }
    Ok(file)
}

/// Opens a folder of which no part is a link.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    open_resolved(path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a folder and makes what is missing of it.
pub(super) fn open_folder_creating(path: &Path) -> io::Result<OwnedFd> {
    let mut there = path;
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut folder = loop {
        match open_folder(there) {
            Ok(folder) => break folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(Component::Normal(name))) =
                    (there.parent(), there.components().next_back())
                else {
                    return Err(error);
                };
                missing.push(name);
                there = parent;
            }
            Err(error) => return Err(error),
        }
    };
    for name in missing.into_iter().rev() {
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = rustix::fs::openat(
            &folder,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
    }
    Ok(folder)
}

/// Whether a file was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaced {
    New,
    Old,
}

/// Puts a file in place whole: readers see the old content or the new, never a part. The mode of
/// an existing file is kept; missing folders are made.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<Replaced> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = open_folder_creating(parent)?;
    let old = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(stat) = &old {
        may_replace(&folder, name, FileType::from_raw_mode(stat.st_mode))?;
    }
    let (temporary, file) = temporary(&folder)?;
    let placed = fill(file, content, old.as_ref()).and_then(|()| {
        rustix::fs::renameat(&folder, &temporary, &folder, name).map_err(io::Error::from)
    });
    if let Err(error) = placed {
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
        return Err(error);
    }
    Ok(if old.is_some() {
        Replaced::Old
    } else {
        Replaced::New
    })
}

pub(super) fn fill(mut file: File, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    file.write_all(content)?;
    if let Some(old) = old {
        // Only a privileged agent can keep a foreign owner, and only for it does it matter.
        let owner = Some(Uid::from_raw(old.st_uid));
        let _ = rustix::fs::fchown(&file, owner, Some(Gid::from_raw(old.st_gid)));
        rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode))?;
    }
    file.sync_data()
}

/// Checks that a file, if there is one, may be replaced.
pub(super) fn may_change(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = open_folder(parent)?;
    match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => may_replace(&folder, name, FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A rename would get around a write protection that a person may have set on purpose.
pub(super) fn may_replace(folder: &OwnedFd, name: &OsStr, kind: FileType) -> io::Result<()> {
    match kind {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        FileType::Symlink => return Err(Errno::LOOP.into()),
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "this is not a regular file",
            ));
        }
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        // A program that is running can be replaced, though not written.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn temporary(folder: &OwnedFd) -> io::Result<(String, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut tries = 0;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".threadline-{}-{number}.tmp", std::process::id());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o666)) {
            Ok(fd) => return Ok((name, File::from(fd))),
            // Left by a process of the same number that was killed.
            Err(Errno::EXIST) if tries < 1000 => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}
