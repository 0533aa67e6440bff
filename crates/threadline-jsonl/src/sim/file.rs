//! Open files of the file system in memory.

use std::io;

use rustix::io::Errno;

use super::{
    disk::{Change, Ino, errno},
    mem::{Lock, MemVfs},
};
use crate::vfs::{Mode, VfsFile};

/// An open file of a [`MemVfs`].
pub(super) struct MemFile {
    vfs: MemVfs,
    ino: Ino,
    mode: Mode,
    handle: u64,
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.vfs
            .state()
            .locks
            .retain(|lock| lock.handle != self.handle);
    }
}

impl MemFile {
    pub(super) fn new(vfs: MemVfs, ino: Ino, mode: Mode, handle: u64) -> Self {
        Self {
            vfs,
            ino,
            mode,
            handle,
        }
    }

    /// Forgets what was not synced, as a failed sync does: it is gone at once, or it can still be
    /// read but will never reach the disk.
    pub(super) fn lose_unsynced(&self, readable: bool) {
        let mut state = self.vfs.state();
        if let Ok(file) = state.disk.file_mut(self.ino) {
            file.pending.clear();
            if !readable {
                file.cache.clone_from(&file.durable);
            }
        }
    }

    fn write(&self, bytes: &[u8], offset: Option<usize>) -> io::Result<usize> {
        let mut guard = self.vfs.state();
        let state = &mut *guard;
        let end = state.disk.file(self.ino)?.cache.len();
        let change = Change::Write {
            offset: offset.unwrap_or(end),
            bytes: bytes.to_vec(),
        };
        let was_alive = !state.frozen;
        if let Err(error) = state.mutate() {
            if was_alive {
                state.inflight = Some((self.ino, change));
            }
            return Err(error);
        }
        state.stats.writes += 1;
        state.stats.bytes_written += bytes.len() as u64;
        let mtime_ns = state.disk.stamp();
        state.disk.file_mut(self.ino)?.change(change, mtime_ns);
        Ok(bytes.len())
    }
}

fn size(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| Errno::FBIG.into())
}

impl VfsFile for MemFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.vfs.state();
        state.alive()?;
        Ok(state.disk.file(self.ino)?.cache.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut guard = self.vfs.state();
        let state = &mut *guard;
        state.alive()?;
        let file = state.disk.file(self.ino)?;
        let rest = file.cache.get(size(offset)?..).unwrap_or_default();
        let read = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..read), rest.get(..read)) {
            to.copy_from_slice(from);
        }
        state.stats.reads += 1;
        state.stats.bytes_read += read as u64;
        Ok(read)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.mode {
            Mode::Append | Mode::CreateNew => self.write(bytes, None),
            Mode::Read | Mode::ReadWrite => errno(Errno::BADF),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.mode {
            Mode::ReadWrite => self.write(bytes, Some(size(offset)?)),
            Mode::Read | Mode::Append | Mode::CreateNew => errno(Errno::BADF),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.mode == Mode::Read {
            return errno(Errno::INVAL);
        }
        let mut state = self.vfs.state();
        state.mutate()?;
        let mtime_ns = state.disk.stamp();
        state
            .disk
            .file_mut(self.ino)?
            .change(Change::SetLen(size(len)?), mtime_ns);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.vfs.state();
        state.mutate()?;
        state.stats.syncs += 1;
        state.disk.file_mut(self.ino)?.sync();
        Ok(())
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        let mut state = self.vfs.state();
        state.alive()?;
        let (ino, handle) = (self.ino, self.handle);
        let mut others = state
            .locks
            .iter()
            .filter(|l| l.ino == ino && l.handle != handle);
        if others.any(|lock| exclusive || lock.exclusive) {
            return Ok(false);
        }
        state.locks.retain(|lock| lock.handle != handle);
        state.locks.push(Lock {
            ino,
            handle,
            exclusive,
        });
        Ok(true)
    }
}
