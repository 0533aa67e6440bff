//! A file system whose chosen operation fails in a chosen way.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

use super::{file::MemFile, mem::MemVfs};
use crate::vfs::{DirEntry, Meta, Mode, Vfs, VfsFile};

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Opening a file.
    Open,
    /// Reading, or measuring.
    Read,
    /// Appending.
    Append,
    /// Overwriting.
    WriteAt,
    /// Cutting or extending.
    SetLen,
    /// Syncing a file.
    SyncData,
    /// Syncing a folder.
    SyncDir,
    /// Renaming.
    Rename,
    /// Removing a file or a folder.
    Remove,
    /// Making a folder.
    CreateDir,
    /// Listing or looking up.
    Look,
    /// Taking a lock.
    Lock,
    /// Giving a file a second name.
    Link,
    /// Copying the beginning of a file.
    Copy,
    /// Renewing the time of a file.
    Touch,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device fails; nothing is done.
    Eio,
    /// There is no space; nothing is done.
    Enospc,
    /// A signal interrupts; nothing is done. When sticky, every second operation is interrupted:
    /// a program that tries again gets on.
    Eintr,
    /// A write takes its first byte only. Other operations work.
    ShortOne,
    /// A write takes half. Other operations work.
    ShortHalf,
    /// A write takes all but its last byte. Other operations work.
    ShortLast,
    /// A write takes half, and the next finds no space; a copy stops half-way for want of it. Other
    /// operations work.
    HalfThenEnospc,
    /// A sync fails, and what was not synced is gone at once. Other operations work.
    SyncLost,
    /// A sync fails, and what was not synced can still be read but never reaches the disk, as on
    /// Linux. Other operations work.
    SyncForgotten,
    /// The file system knows no second names. Other operations work.
    LinkEperm,
    /// The file has as many names as it may. Other operations work.
    LinkEmlink,
    /// The second name would be on another file system. Other operations work.
    LinkExdev,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Eio,
        Self::Enospc,
        Self::Eintr,
        Self::ShortOne,
        Self::ShortHalf,
        Self::ShortLast,
        Self::HalfThenEnospc,
        Self::SyncLost,
        Self::SyncForgotten,
        Self::LinkEperm,
        Self::LinkEmlink,
        Self::LinkExdev,
    ];

    /// Returns whether the fault can befall an operation.
    #[must_use]
    pub fn befalls(self, op: Op) -> bool {
        match self {
            Self::Eio | Self::Eintr => true,
            Self::Enospc => !matches!(op, Op::Read | Op::Look | Op::Lock | Op::Remove | Op::Touch),
            Self::ShortOne | Self::ShortHalf | Self::ShortLast => {
                matches!(op, Op::Append | Op::WriteAt)
            }
            // A block that is overwritten in place is there already: no space is found out before
            // any of it is taken.
            Self::HalfThenEnospc => matches!(op, Op::Append | Op::Copy),
            Self::SyncLost | Self::SyncForgotten => op == Op::SyncData,
            Self::LinkEperm | Self::LinkEmlink | Self::LinkExdev => op == Op::Link,
        }
    }
}

/// Which operation fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The kind of operation that is counted; `None` counts all that the fault can befall.
    pub op: Option<Op>,
    /// Which of them fails first, counted from 1.
    pub nth: u64,
    /// How.
    pub fault: Fault,
    /// Whether those after it fail as well.
    pub sticky: bool,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    seen: AtomicU64,
    hits: AtomicU64,
}

/// A [`MemVfs`] with faults. Clones share the plan and its counter.
#[derive(Debug, Clone)]
pub struct FaultVfs {
    inner: MemVfs,
    shared: Arc<Shared>,
}

impl FaultVfs {
    /// Puts faults over a file system. The one underneath stays usable without them.
    #[must_use]
    pub fn new(inner: MemVfs, plan: Plan) -> Self {
        let (seen, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            inner,
            shared: Arc::new(Shared { plan, seen, hits }),
        }
    }

    /// Returns how many faults there were.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Counts an operation. Returns the fault that befalls it.
    fn next(&self, op: Op) -> Option<Fault> {
        let Plan {
            op: wanted,
            nth,
            fault,
            sticky,
        } = self.plan;
        if wanted.is_some_and(|wanted| wanted != op) || !fault.befalls(op) {
            return None;
        }
        let seen = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        // Space that has run out has run out for the rest of the same write.
        let lasts = u64::from(fault == Fault::HalfThenEnospc);
        let due = if sticky {
            seen >= nth
        } else {
            (nth..=nth + lasts).contains(&seen)
        };
        let fault = match fault {
            _ if !due => return None,
            Fault::Eintr if (seen - nth) % 2 == 1 => return None,
            Fault::HalfThenEnospc if seen > nth => Fault::Enospc,
            fault => fault,
        };
        self.hits.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    /// Counts an operation that fails as a whole or not at all.
    fn gate(&self, op: Op) -> io::Result<()> {
        let errno = match self.next(op) {
            None => return Ok(()),
            Some(Fault::Enospc) => Errno::NOSPC,
            Some(Fault::Eintr) => Errno::INTR,
            Some(Fault::LinkEperm) => Errno::PERM,
            Some(Fault::LinkEmlink) => Errno::MLINK,
            Some(Fault::LinkExdev) => Errno::XDEV,
            Some(_) => Errno::IO,
        };
        Err(errno.into())
    }

    /// Counts a write. Returns how many bytes of it are taken.
    fn write(&self, op: Op, len: usize) -> io::Result<usize> {
        match self.next(op) {
            None => Ok(len),
            Some(Fault::ShortOne) => Ok(len.min(1)),
            Some(Fault::ShortHalf | Fault::HalfThenEnospc) => Ok(len.div_ceil(2)),
            Some(Fault::ShortLast) => Ok(len.saturating_sub(1).max(1).min(len)),
            Some(Fault::Enospc) => Err(Errno::NOSPC.into()),
            Some(Fault::Eintr) => Err(Errno::INTR.into()),
            Some(_) => Err(Errno::IO.into()),
        }
    }
}

struct FaultFile {
    inner: MemFile,
    shared: Arc<Shared>,
}

impl VfsFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        self.shared.gate(Op::Read)?;
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.shared.gate(Op::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.shared.write(Op::Append, bytes.len())?;
        self.inner.append(bytes.get(..taken).unwrap_or(bytes))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let taken = self.shared.write(Op::WriteAt, bytes.len())?;
        self.inner
            .write_at(bytes.get(..taken).unwrap_or(bytes), offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.gate(Op::SetLen)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let errno = match self.shared.next(Op::SyncData) {
            None => return self.inner.sync_data(),
            Some(Fault::Enospc) => Errno::NOSPC,
            Some(Fault::Eintr) => Errno::INTR,
            Some(fault) => {
                if fault != Fault::Eio {
                    self.inner.lose_unsynced(fault == Fault::SyncForgotten);
                }
                Errno::IO
            }
        };
        Err(errno.into())
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        self.shared.gate(Op::Lock)?;
        self.inner.try_lock(exclusive)
    }
}

impl Vfs for FaultVfs {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>> {
        self.shared.gate(Op::Open)?;
        let inner = self.inner.open_file(path, mode)?;
        Ok(Box::new(FaultFile {
            inner,
            shared: Arc::clone(&self.shared),
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.gate(Op::CreateDir)?;
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.gate(Op::SyncDir)?;
        self.inner.sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.gate(Op::Rename)?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        self.shared.gate(Op::Link)?;
        self.inner.hard_link(original, link)
    }

    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
        let errno = match self.shared.next(Op::Copy) {
            None => return self.inner.copy_prefix(from, to, bytes),
            Some(Fault::HalfThenEnospc) => {
                self.inner.copy_prefix(from, to, bytes / 2)?;
                Errno::NOSPC
            }
            Some(Fault::Enospc) => Errno::NOSPC,
            Some(Fault::Eintr) => Errno::INTR,
            Some(_) => Errno::IO,
        };
        Err(errno.into())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.shared.gate(Op::Touch)?;
        self.inner.touch(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.shared.gate(Op::Remove)?;
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.gate(Op::Remove)?;
        self.inner.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.shared.gate(Op::Look)?;
        self.inner.list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>> {
        self.shared.gate(Op::Look)?;
        self.inner.metadata(path)
    }

    fn network_kind(&self, path: &Path) -> io::Result<Option<String>> {
        self.inner.network_kind(path)
    }

    fn boot_id(&self) -> String {
        self.inner.boot_id()
    }

    fn host(&self) -> String {
        self.inner.host()
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    fn pause(&self) {
        self.inner.pause();
    }
}
