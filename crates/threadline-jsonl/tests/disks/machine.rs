//! The machine as it is after a power cut: the same disks, another boot.

use std::{io, path::Path, sync::Arc};

use threadline_jsonl::{
    JsonlBackend, JsonlOptions, RealVfs,
    vfs::{DirEntry, Meta, Mode, Vfs, VfsFile},
};
use threadline_store::{SessionStore, StoreOptions};

use super::{Fallible, text};

/// The operating system's files under a boot id of our own. The shutdown of a file system leaves
/// the machine running, but what it loses is what a power cut loses, and the boot id is how the
/// store tells that from damage.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    boot: String,
}

impl Machine {
    pub(crate) fn boot(number: u64) -> Self {
        Self {
            boot: format!("boot-{number}"),
        }
    }

    /// Opens the store in a folder, as a new process does.
    pub(crate) fn store(&self, root: &Path) -> Fallible<SessionStore> {
        let vfs: Arc<dyn Vfs> = Arc::new(self.clone());
        let backend = JsonlBackend::with_vfs(vfs, root, JsonlOptions::default()).map_err(text)?;
        Ok(SessionStore::new(
            Arc::new(backend),
            StoreOptions::default(),
        ))
    }
}

impl Vfs for Machine {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>> {
        RealVfs.open(path, mode)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealVfs.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealVfs.sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealVfs.rename(from, to)
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        RealVfs.hard_link(original, link)
    }

    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
        RealVfs.copy_prefix(from, to, bytes)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        RealVfs.touch(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealVfs.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealVfs.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        RealVfs.list(path)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>> {
        RealVfs.metadata(path)
    }

    fn network_kind(&self, path: &Path) -> io::Result<Option<String>> {
        RealVfs.network_kind(path)
    }

    fn boot_id(&self) -> String {
        self.boot.clone()
    }

    fn host(&self) -> String {
        RealVfs.host()
    }

    fn now_ms(&self) -> u64 {
        RealVfs.now_ms()
    }

    fn pause(&self) {
        RealVfs.pause();
    }
}
