//! A file system that counts what is done to it, so that tests assert costs instead of times.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
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

#[derive(Debug, Default)]
struct Cells {
    log_reads: AtomicU64,
    log_read_bytes: AtomicU64,
    log_writes: AtomicU64,
    log_written_bytes: AtomicU64,
    log_syncs: AtomicU64,
    other_writes: AtomicU64,
    other_syncs: AtomicU64,
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
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
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
}

struct CountingFile {
    below: Box<dyn VfsFile>,
    cells: Arc<Cells>,
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
        let is_log = path
            .file_name()
            .is_some_and(|name| name == LOG || name == NEW_LOG);
        let below = self.below.open(path, mode)?;
        Ok(Box::new(CountingFile {
            below,
            cells: self.cells.clone(),
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
