//! A file system that counts what is done to it, so that tests assert costs instead of times.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    ops::{AddAssign, Sub},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    layout::{LOG, NEW_LOG},
    vfs::{DirEntry, Meta, Mode, Vfs, VfsFile},
};

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Reads of logs.
    pub log_reads: u64,
    /// Bytes read from logs.
    pub log_read_bytes: u64,
    /// Writes to logs.
    pub log_writes: u64,
    /// Bytes written to logs.
    pub log_written_bytes: u64,
    /// Syncs of logs.
    pub log_syncs: u64,
    /// Writes to any other file.
    pub other_writes: u64,
    /// Syncs of any other file and of folders.
    pub other_syncs: u64,
}

/// What was read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Files opened, for reading or writing.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read. What the system copies by itself is not among them.
    pub bytes: u64,
}

impl AddAssign for Reads {
    fn add_assign(&mut self, more: Self) {
        self.opens += more.opens;
        self.reads += more.reads;
        self.bytes += more.bytes;
    }
}

impl Sub for Reads {
    type Output = Self;

    /// What came in between; `before` is what was read so far at an earlier time.
    fn sub(self, before: Self) -> Self {
        Self {
            opens: self.opens - before.opens,
            reads: self.reads - before.reads,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// What was done so far to files as a whole, without opening them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    /// Second names given.
    pub links: u64,
    /// Copies made.
    pub copies: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Times renewed.
    pub touches: u64,
}

impl Sub for Shares {
    type Output = Self;

    /// What came in between; `before` is what was done so far at an earlier time.
    fn sub(self, before: Self) -> Self {
        Self {
            links: self.links - before.links,
            copies: self.copies - before.copies,
            copied_bytes: self.copied_bytes - before.copied_bytes,
            touches: self.touches - before.touches,
        }
    }
}

#[derive(Debug, Default)]
struct ReadCells {
    opens: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl ReadCells {
    fn get(&self) -> Reads {
        Reads {
            opens: get(&self.opens),
            reads: get(&self.reads),
            bytes: get(&self.bytes),
        }
    }
}

#[derive(Debug, Default)]
struct Cells {
    /// By file name.
    reads: Mutex<BTreeMap<OsString, Arc<ReadCells>>>,
    links: AtomicU64,
    copies: AtomicU64,
    copied_bytes: AtomicU64,
    touches: AtomicU64,
    log_reads: AtomicU64,
    log_read_bytes: AtomicU64,
    log_writes: AtomicU64,
    log_written_bytes: AtomicU64,
    log_syncs: AtomicU64,
    other_writes: AtomicU64,
    other_syncs: AtomicU64,
}

impl Cells {
    fn reads(&self) -> MutexGuard<'_, BTreeMap<OsString, Arc<ReadCells>>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn get(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

fn add(cell: &AtomicU64, n: u64) {
    cell.fetch_add(n, Ordering::Relaxed);
}

/// Counts what goes through to another file system.
#[derive(Debug, Clone)]
pub struct CountingVfs {
    below: Arc<dyn Vfs>,
    cells: Arc<Cells>,
}

impl CountingVfs {
    /// Counts on top of another file system.
    #[must_use]
    pub fn new(below: Arc<dyn Vfs>) -> Self {
        Self {
            below,
            cells: Arc::default(),
        }
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            log_reads: get(&self.cells.log_reads),
            log_read_bytes: get(&self.cells.log_read_bytes),
            log_writes: get(&self.cells.log_writes),
            log_written_bytes: get(&self.cells.log_written_bytes),
            log_syncs: get(&self.cells.log_syncs),
            other_writes: get(&self.cells.other_writes),
            other_syncs: get(&self.cells.other_syncs),
        }
    }

    /// Returns what was read so far from all files.
    #[must_use]
    pub fn reads(&self) -> Reads {
        let mut sum = Reads::default();
        for cells in self.cells.reads().values() {
            sum += cells.get();
        }
        sum
    }

    /// Returns what was read so far from files that had this name when they were opened, whatever
    /// folder they are in.
    #[must_use]
    pub fn reads_of(&self, name: impl AsRef<OsStr>) -> Reads {
        let files = self.cells.reads();
        files
            .get(name.as_ref())
            .map(|cells| cells.get())
            .unwrap_or_default()
    }

    /// Returns what was linked, copied and renewed so far.
    #[must_use]
    pub fn shares(&self) -> Shares {
        Shares {
            links: get(&self.cells.links),
            copies: get(&self.cells.copies),
            copied_bytes: get(&self.cells.copied_bytes),
            touches: get(&self.cells.touches),
        }
    }
}

struct CountingFile {
    below: Box<dyn VfsFile>,
    cells: Arc<Cells>,
    reads: Arc<ReadCells>,
    is_log: bool,
}

impl CountingFile {
    fn written(&self, bytes: usize) {
        if self.is_log {
            add(&self.cells.log_writes, 1);
            add(&self.cells.log_written_bytes, bytes as u64);
        } else {
            add(&self.cells.other_writes, 1);
        }
    }
}

impl VfsFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.below.read_at(buf, offset)?;
        add(&self.reads.reads, 1);
        add(&self.reads.bytes, read as u64);
        if self.is_log {
            add(&self.cells.log_reads, 1);
            add(&self.cells.log_read_bytes, read as u64);
        }
        Ok(read)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.below.append(bytes)?;
        self.written(taken);
        Ok(taken)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let taken = self.below.write_at(bytes, offset)?;
        self.written(taken);
        Ok(taken)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        add(
            if self.is_log {
                &self.cells.log_syncs
            } else {
                &self.cells.other_syncs
            },
            1,
        );
        self.below.sync_data()
    }

    fn try_lock(&self, exclusive: bool) -> io::Result<bool> {
        self.below.try_lock(exclusive)
    }
}

impl Vfs for CountingVfs {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>> {
        let name = path.file_name().unwrap_or_default();
        let is_log = name == LOG || name == NEW_LOG;
        let below = self.below.open(path, mode)?;
        let reads = Arc::clone(self.cells.reads().entry(name.to_owned()).or_default());
        add(&reads.opens, 1);
        Ok(Box::new(CountingFile {
            below,
            cells: self.cells.clone(),
            reads,
            is_log,
        }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        add(&self.cells.other_syncs, 1);
        self.below.sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        self.below.hard_link(original, link)?;
        add(&self.cells.links, 1);
        Ok(())
    }

    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
        self.below.copy_prefix(from, to, bytes)?;
        add(&self.cells.copies, 1);
        add(&self.cells.copied_bytes, bytes);
        Ok(())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.below.touch(path)?;
        add(&self.cells.touches, 1);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.below.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.below.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.below.list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>> {
        self.below.metadata(path)
    }

    fn network_kind(&self, path: &Path) -> io::Result<Option<String>> {
        self.below.network_kind(path)
    }

    fn boot_id(&self) -> String {
        self.below.boot_id()
    }

    fn host(&self) -> String {
        self.below.host()
    }

    fn now_ms(&self) -> u64 {
        self.below.now_ms()
    }

    fn pause(&self) {
        self.below.pause();
    }
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::*;
    use crate::{sim::MemVfs, vfs::read_full};

    #[test]
    fn reads_are_counted_by_name_and_copies_apart_from_them() {
        let mem = MemVfs::new();
        mem.put(Path::new("/a/log.jsonl"), &[7; 100]).unwrap();
        mem.put(Path::new("/b/log.jsonl"), &[7; 100]).unwrap();
        mem.put(Path::new("/a/lock"), b"hint").unwrap();
        let vfs = CountingVfs::new(Arc::new(mem));
        let read = |path: &str, len: usize| {
            let file = vfs.open(Path::new(path), Mode::Read).unwrap();
            read_full(&*file, &mut vec![0; len], 0).unwrap()
        };
        assert_eq!(
            read("/a/log.jsonl", 60) + read("/b/log.jsonl", 40) + read("/a/lock", 4),
            104
        );
        assert!(vfs.open(Path::new("/a/none"), Mode::Read).is_err());
        let before = vfs.reads();
        let all = Reads {
            opens: 3,
            reads: 3,
            bytes: 104,
        };
        assert_eq!(before, all);
        let logs = Reads {
            opens: 2,
            reads: 2,
            bytes: 100,
        };
        assert_eq!(vfs.reads_of("log.jsonl"), logs);
        assert_eq!(vfs.reads_of("none"), Reads::default());

        let (log, copy) = (Path::new("/a/log.jsonl"), Path::new("/a/copy"));
        vfs.copy_prefix(log, copy, 50).unwrap();
        vfs.hard_link(log, Path::new("/a/link")).unwrap();
        vfs.touch(copy).unwrap();
        assert!(vfs.hard_link(log, copy).is_err());
        let shares = Shares {
            links: 1,
            copies: 1,
            copied_bytes: 50,
            touches: 1,
        };
        assert_eq!(vfs.shares(), shares);
        assert_eq!(vfs.reads() - before, Reads::default());
    }
}
