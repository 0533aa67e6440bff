//! A file system in memory that knows what a crash would leave.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{
    crash::Wreck,
    disk::{Change, DirNode, Disk, FileNode, Ino, Node, errno},
    fate::{Fate, Kept},
    file::MemFile,
    stats::Stats,
};
use crate::vfs::{DirEntry, Meta, Mode, Vfs, VfsFile, append_all};

/// How much a copy writes at a time, as the system's does.
const COPY_CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) ino: Ino,
    pub(super) handle: u64,
    pub(super) exclusive: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) disk: Disk,
    pub(super) locks: Vec<Lock>,
    handles: u64,
    ops: u64,
    freeze_at: Option<u64>,
    pub(super) frozen: bool,
    pub(super) inflight: Option<(Ino, Change)>,
    pub(super) stats: Stats,
}

impl State {
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.frozen {
            Err(io::Error::other("the process is dead"))
        } else {
            Ok(())
        }
    }

    /// Counts a mutating operation. At the chosen one the process dies.
    pub(super) fn mutate(&mut self) -> io::Result<()> {
        self.alive()?;
        self.ops += 1;
        if self.freeze_at.is_some_and(|at| self.ops >= at) {
            self.frozen = true;
        }
        self.alive()
    }
}

/// A file system in memory. Clones are the same file system.
#[derive(Clone)]
pub struct MemVfs {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for MemVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemVfs")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Default for MemVfs {
    fn default() -> Self {
        Self::of(Disk::new())
    }
}

impl MemVfs {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn of(disk: Disk) -> Self {
        let state = State {
            disk,
            locks: Vec::new(),
            handles: 0,
            ops: 0,
            freeze_at: None,
            frozen: false,
            inflight: None,
            stats: Stats::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was asked for so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state().stats
    }

    /// Returns how many mutating operations there were so far, also failed ones.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Lets the process die at the `n`-th mutating operation from now, counted from 1. That one
    /// and everything after it fails.
    pub fn freeze_at(&self, n: u64) {
        let mut state = self.state();
        state.freeze_at = Some(state.ops + n);
    }

    /// Returns whether the process has died.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state().frozen
    }

    /// Returns a copy that goes its own way: the same machine, without its processes.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::of(self.state().disk.clone())
    }

    /// Returns what is there after a plain power cut, and a boot.
    #[must_use]
    pub fn power_cut(&self, kept: Kept) -> Self {
        let fate = Fate::PowerCut {
            kept,
            file: None,
            dir: None,
        };
        Self::of(self.wreck().image(&fate))
    }

    fn wreck(&self) -> Wreck {
        let state = self.state();
        Wreck {
            disk: state.disk.clone(),
            inflight: state.inflight.clone(),
        }
    }

    /// Returns every image that a crash at this moment may leave, each distinct one once.
    pub fn crash_states(&self) -> impl Iterator<Item = (Fate, Self)> + use<> {
        self.wreck()
            .images()
            .map(|(fate, disk)| (fate, Self::of(disk)))
    }

    /// Lets time pass.
    pub fn advance_ms(&self, ms: u64) {
        self.state().disk.clock += ms;
    }

    /// Returns a file's content as it is read now.
    #[must_use]
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let ino = state.disk.resolve(path).ok()?;
        state.disk.file(ino).ok().map(|file| file.cache.clone())
    }

    /// Puts a file there, with the folders above it, all on stable storage, uncounted.
    ///
    /// # Errors
    /// When a folder of the path is a file or the path a folder.
    pub fn put(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let disk = &mut state.disk;
        let above: Vec<_> = path.ancestors().skip(1).collect();
        for dir in above.into_iter().rev() {
            if disk.resolve(dir).is_err() {
                disk.link_new(dir, Node::Dir(DirNode::default()))?;
            }
        }
        let ino = match disk.resolve(path) {
            Ok(ino) => ino,
            Err(_) => disk.link_new(path, Node::File(FileNode::default()))?,
        };
        let mtime_ns = disk.stamp();
        *disk.file_mut(ino)? = FileNode::of(content, mtime_ns);
        for node in disk.nodes.values_mut() {
            if let Node::Dir(dir) = node {
                dir.sync();
            }
        }
        Ok(())
    }

    /// Returns the paths of all files, in a fixed order.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let state = self.state();
        let tree = state.disk.tree().into_iter();
        tree.filter(|(_, ino)| state.disk.file(*ino).is_ok())
            .map(|(path, _)| path)
            .collect()
    }

    pub(super) fn open_file(&self, path: &Path, mode: Mode) -> io::Result<MemFile> {
        let mut state = self.state();
        state.alive()?;
        let ino = match (state.disk.resolve(path), mode) {
            (Ok(_), Mode::CreateNew) => return errno(Errno::EXIST),
            (Ok(ino), _) => {
                state.disk.file(ino)?;
                ino
            }
            (Err(error), Mode::CreateNew | Mode::ReadWrite)
                if error.kind() == io::ErrorKind::NotFound =>
            {
                state.mutate()?;
                let node = FileNode::of(&[], state.disk.stamp());
                state.disk.link_new(path, Node::File(node))?
            }
            (Err(error), _) => return Err(error),
        };
        state.handles += 1;
        Ok(MemFile::new(self.clone(), ino, mode, state.handles))
    }
}

impl Vfs for MemVfs {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn VfsFile>> {
        Ok(Box::new(self.open_file(path, mode)?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state
            .disk
            .link_new(path, Node::Dir(DirNode::default()))
            .map(drop)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state.stats.dir_syncs += 1;
        let ino = state.disk.resolve(path)?;
        state.disk.dir_mut(ino)?.sync();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state.disk.rename(from, to)
    }

    fn hard_link(&self, original: &Path, link: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state.disk.link(original, link)
    }

    fn copy_prefix(&self, from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
        let content = {
            let state = self.state();
            state.alive()?;
            let file = state.disk.file(state.disk.resolve(from)?)?;
            let prefix = usize::try_from(bytes)
                .ok()
                .and_then(|n| file.cache.get(..n));
            prefix.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec()
        };
        let file = self.open_file(to, Mode::CreateNew)?;
        for chunk in content.chunks(COPY_CHUNK) {
            append_all(&file, chunk)?;
        }
        Ok(())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        let ino = state.disk.resolve(path)?;
        let mtime_ns = state.disk.stamp();
        state.disk.file_mut(ino)?.mtime_ns = mtime_ns;
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state.disk.unlink(path, false)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.mutate()?;
        state.disk.unlink(path, true)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state();
        state.alive()?;
        let dir = state.disk.dir(state.disk.resolve(path)?)?;
        let is_dir = |ino: &Ino| matches!(state.disk.nodes.get(ino), Some(Node::Dir(_)));
        let entries = dir.cache.iter();
        Ok(entries
            .map(|(name, ino)| DirEntry {
                name: name.clone(),
                is_dir: is_dir(ino),
            })
            .collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Meta>> {
        let state = self.state();
        state.alive()?;
        let Ok(ino) = state.disk.resolve(path) else {
            return Ok(None);
        };
        Ok(match state.disk.nodes.get(&ino) {
            Some(Node::File(file)) => {
                let len = file.cache.len() as u64;
                Some(Meta {
                    len,
                    mtime_ns: file.mtime_ns,
                    is_dir: false,
                    links: state.disk.links(ino),
                    inode: ino,
                })
            }
            Some(Node::Dir(_)) => Some(Meta {
                len: 0,
                mtime_ns: 0,
                is_dir: true,
                links: 1,
                inode: ino,
            }),
            None => None,
        })
    }

    fn network_kind(&self, _path: &Path) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.state().disk.boot)
    }

    fn host(&self) -> String {
        "mem".into()
    }

    fn now_ms(&self) -> u64 {
        self.state().disk.tick()
    }

    fn pause(&self) {
        self.state().stats.pauses += 1;
    }
}
