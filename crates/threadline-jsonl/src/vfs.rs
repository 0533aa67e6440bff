//! The seam below every file access of this crate.
//!
//! The real implementation is [`RealVfs`](crate::RealVfs); the simulated ones (feature
//! `test-util`) crash, forget and fail on command.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and appending; every write goes to its end.
    Append,
    /// A file that must not exist yet, for reading and appending.
    CreateNew,
    /// An existing or new file, for reading and writing in place.
    ReadWrite,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change, unix nanoseconds: what [`Vfs::now_ms`] counts, in finer steps. Zero
    /// when before 1970. A clock that was set, or a power cut, may take it back.
    pub mtime_ns: u64,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// How many names the file has; of no meaning for a folder.
    pub links: u64,
    /// Which file it is: equal for the names of one file. Another file may have it later, once this
    /// one is gone.
    pub inode: u64,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: OsString,
    /// Whether it is a folder; links are not followed.
    pub is_dir: bool,
}

/// An open file.
pub trait VfsFile: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads at an offset; fewer bytes than asked for, also none, mean the end or an interruption.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Appends to a file opened with [`Mode::Append`] or [`Mode::CreateNew`]; may take only part.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Overwrites in a file opened with [`Mode::ReadWrite`]; may take only part.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Brings the data, and the length, to stable storage.
    fn sync_data(&self) -> io::Result<()>;

    /// Tries to take the file's lock, which ends with the handle. Returns whether it was taken.
    fn try_lock(&self, exclusive: bool) -> io::Result<bool>;
}

/// A file system and the machine it belongs to.
pub trait Vfs: Send + Sync + fmt::Debug + 'static {
    /// Opens a file; new ones are readable by their owner only.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>>;

    /// Makes a folder, readable by its owner only.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Brings a folder's entries to stable storage.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must not be taken. The new name is durable once its folder
    /// is synced.
    ///
    /// Some file systems cannot, some not between these two folders, and some only so often:
    /// callers copy then.
    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()>;

    /// Makes a file that must not exist yet, readable by its owner only, of the first bytes of
    /// another, sharing their blocks where the system can. Nothing of it is synced.
    ///
    /// When the other is shorter, that is an [`io::ErrorKind::UnexpectedEof`]. After a failure the
    /// new file may be there with a part of the bytes.
    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()>;

    /// Makes now the time of a file's last change. A power cut may take it back, also after a sync.
    fn touch(&self, path: &Path) -> io::Result<()>;

    /// Removes a name of a file, and with the last one the file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Lists a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Returns what is known of a path; `None` when nothing is there.
    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>>;

    /// Returns the kind of the network file system that a path is on; `None` for a local one.
    fn network_kind(&self, path: &Path) -> io::Result<Option<String>>;

    /// Returns what changes at every boot: data that was not synced before it may be lost.
    fn boot_id(&self) -> String;

    /// Returns the name of the machine.
    fn host(&self) -> String;

    /// Returns the time, unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Waits a moment for a lock that somebody holds.
    fn pause(&self);
}

/// A failure with the path and the deed.
#[derive(Debug, thiserror::Error)]
#[error("{deed} {}: {source}", path.display())]
pub struct FileError {
    /// What was being done, as in "reading".
    pub deed: &'static str,
    /// To which path.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Returns whether there is no space, no quota, or a limit on file sizes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

/// Adds the path and the deed to a failure.
pub(crate) trait At<T> {
    fn at(self, deed: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, deed: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError {
            deed,
            path: path.to_owned(),
            source,
        })
    }
}

/// Reads as much as there is, up to the buffer's length.
pub(crate) fn read_full(file: &dyn VfsFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Appends all bytes, with as many writes as the system takes.
pub(crate) fn append_all(file: &dyn VfsFile, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match file.append(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
