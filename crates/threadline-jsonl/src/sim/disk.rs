//! The simulated disk: what is cached, what is on stable storage, and what lies between.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;

pub(super) type Ino = u64;
pub(super) const ROOT: Ino = 1;
/// When the clock of every disk starts, unix milliseconds.
const START_MS: u64 = 1_764_460_800_000;

/// A change of a file's content that was not synced yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Change {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => content.resize(*len, 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                if let Some(target) = content.get_mut(*offset..end) {
                    target.copy_from_slice(bytes);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) cache: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
    pub(super) mtime_ns: u64,
    /// The time that is on stable storage.
    pub(super) durable_mtime_ns: u64,
}

impl FileNode {
    /// A file whose content is on stable storage.
    pub(super) fn of(content: &[u8], mtime_ns: u64) -> Self {
        Self {
            cache: content.to_vec(),
            durable: content.to_vec(),
            pending: Vec::new(),
            mtime_ns,
            durable_mtime_ns: mtime_ns,
        }
    }

    pub(super) fn change(&mut self, change: Change, mtime_ns: u64) {
        change.apply(&mut self.cache);
        self.pending.push(change);
        self.mtime_ns = mtime_ns;
    }

    /// Writes what is pending. Pages that a failed sync has forgotten are not among it.
    pub(super) fn sync(&mut self) {
        // A sync of data does not bring a time to stable storage for its own sake.
        if !self.pending.is_empty() {
            self.durable_mtime_ns = self.mtime_ns;
        }
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }
}

/// A change of a folder that was not synced yet.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Link(OsString, Ino),
    Unlink(OsString),
    /// Within one folder, and atomic there.
    Rename(OsString, OsString),
}

impl Step {
    pub(super) fn apply(&self, entries: &mut BTreeMap<OsString, Ino>) {
        match self {
            Self::Link(name, ino) => {
                entries.insert(name.clone(), *ino);
            }
            Self::Unlink(name) => {
                entries.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(ino) = entries.remove(from) {
                    entries.insert(to.clone(), ino);
                }
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct DirNode {
    pub(super) cache: BTreeMap<OsString, Ino>,
    pub(super) durable: BTreeMap<OsString, Ino>,
    pub(super) pending: Vec<Step>,
}

impl DirNode {
    fn change(&mut self, step: Step) {
        step.apply(&mut self.cache);
        self.pending.push(step);
    }

    pub(super) fn sync(&mut self) {
        for step in std::mem::take(&mut self.pending) {
            step.apply(&mut self.durable);
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<Ino, Node>,
    pub(super) next: Ino,
    pub(super) clock: u64,
    pub(super) boot: u32,
}

pub(super) fn errno<T>(errno: Errno) -> io::Result<T> {
    Err(errno.into())
}

impl Disk {
    pub(super) fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::Dir(DirNode::default()))]);
        Self {
            nodes,
            next: ROOT + 1,
            clock: 0,
            boot: 1,
        }
    }

    /// Returns the time, unix milliseconds, which is never the same twice.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        START_MS + self.clock
    }

    /// Returns the time as files have it, which is never the same twice either.
    pub(super) fn stamp(&mut self) -> u64 {
        self.tick() * 1_000_000
    }

    pub(super) fn resolve(&self, path: &Path) -> io::Result<Ino> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::Normal(name) => match self.dir(at)?.cache.get(name) {
                    Some(ino) => at = *ino,
                    None => return errno(Errno::NOENT),
                },
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return errno(Errno::INVAL),
            }
        }
        Ok(at)
    }

    /// Returns the folder that a path is in, and its name there.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> io::Result<(Ino, &'a OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return errno(Errno::INVAL);
        };
        let ino = self.resolve(parent)?;
        self.dir(ino)?;
        Ok((ino, name))
    }

    pub(super) fn dir(&self, ino: Ino) -> io::Result<&DirNode> {
        match self.nodes.get(&ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => errno(Errno::NOTDIR),
            None => errno(Errno::STALE),
        }
    }

    pub(super) fn dir_mut(&mut self, ino: Ino) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => errno(Errno::NOTDIR),
            None => errno(Errno::STALE),
        }
    }

    pub(super) fn file(&self, ino: Ino) -> io::Result<&FileNode> {
        match self.nodes.get(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => errno(Errno::ISDIR),
            None => errno(Errno::STALE),
        }
    }

    pub(super) fn file_mut(&mut self, ino: Ino) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => errno(Errno::ISDIR),
            None => errno(Errno::STALE),
        }
    }

    /// Puts a new node into a folder.
    pub(super) fn link_new(&mut self, path: &Path, node: Node) -> io::Result<Ino> {
        let (parent, name) = self.parent(path)?;
        if self.dir(parent)?.cache.contains_key(name) {
            return errno(Errno::EXIST);
        }
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        self.dir_mut(parent)?
            .change(Step::Link(name.to_owned(), ino));
        Ok(ino)
    }

    /// Gives a file one more name.
    pub(super) fn link(&mut self, original: &Path, link: &Path) -> io::Result<()> {
        let ino = self.resolve(original)?;
        if self.dir(ino).is_ok() {
            return errno(Errno::PERM);
        }
        let (parent, name) = self.parent(link)?;
        if self.dir(parent)?.cache.contains_key(name) {
            return errno(Errno::EXIST);
        }
        self.dir_mut(parent)?
            .change(Step::Link(name.to_owned(), ino));
        Ok(())
    }

    /// Returns how many names a file has now.
    pub(super) fn links(&self, ino: Ino) -> u64 {
        let names = self.nodes.values().map(|node| match node {
            Node::Dir(dir) => dir.cache.values().filter(|there| **there == ino).count(),
            Node::File(_) => 0,
        });
        names.sum::<usize>() as u64
    }

    pub(super) fn unlink(&mut self, path: &Path, want_dir: bool) -> io::Result<()> {
        let ino = self.resolve(path)?;
        match self.nodes.get(&ino) {
            Some(Node::Dir(dir)) if want_dir => {
                if !dir.cache.is_empty() {
                    return errno(Errno::NOTEMPTY);
                }
            }
            Some(Node::File(_)) if !want_dir => {}
            Some(Node::Dir(_)) => return errno(Errno::ISDIR),
            Some(Node::File(_)) => return errno(Errno::NOTDIR),
            None => return errno(Errno::STALE),
        }
        let (parent, name) = self.parent(path)?;
        self.dir_mut(parent)?.change(Step::Unlink(name.to_owned()));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ino = self.resolve(from)?;
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        if let Some(there) = self.dir(to_dir)?.cache.get(to_name) {
            if *there == ino {
                // So it is in POSIX: of two names of one file, both remain.
                return Ok(());
            }
            match (self.nodes.get(&ino), self.nodes.get(there)) {
                (Some(Node::Dir(_)), Some(Node::Dir(dir))) if !dir.cache.is_empty() => {
                    return errno(Errno::NOTEMPTY);
                }
                (Some(Node::Dir(_)), Some(Node::File(_))) => return errno(Errno::NOTDIR),
                (Some(Node::File(_)), Some(Node::Dir(_))) => return errno(Errno::ISDIR),
                _ => {}
            }
        }
        if from_dir == to_dir {
            let step = Step::Rename(from_name.to_owned(), to_name.to_owned());
            self.dir_mut(from_dir)?.change(step);
        } else {
            self.dir_mut(to_dir)?
                .change(Step::Link(to_name.to_owned(), ino));
            self.dir_mut(from_dir)?
                .change(Step::Unlink(from_name.to_owned()));
        }
        Ok(())
    }

    /// Returns everything that can be reached, with its path; folders before what is in them.
    pub(super) fn tree(&self) -> Vec<(PathBuf, Ino)> {
        let mut found = vec![(PathBuf::from("/"), ROOT)];
        let mut at = 0;
        while let Some((path, ino)) = found.get(at).cloned() {
            if let Ok(dir) = self.dir(ino) {
                found.extend(dir.cache.iter().map(|(name, ino)| (path.join(name), *ino)));
            }
            at += 1;
        }
        found
    }

    /// Forgets what no path leads to.
    pub(super) fn prune(&mut self) {
        let mut seen = BTreeSet::new();
        let mut todo = vec![ROOT];
        while let Some(ino) = todo.pop() {
            if seen.insert(ino)
                && let Ok(dir) = self.dir(ino)
            {
                todo.extend(dir.cache.values().chain(dir.durable.values()));
                // Entries on their way are not to dangle when a later crash keeps a prefix.
                todo.extend(dir.pending.iter().filter_map(|step| match step {
                    Step::Link(_, ino) => Some(*ino),
                    Step::Unlink(_) | Step::Rename(..) => None,
                }));
            }
        }
        self.nodes.retain(|ino, _| seen.contains(ino));
    }
}
