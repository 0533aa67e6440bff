//! The images that a crash may leave behind.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use super::{
    disk::{Change, Disk, FileNode, Ino, Node},
    fate::{Fate, FileFate, Kept},
};

const SECTOR: usize = 512;

/// A disk at the moment of a crash, with the write that was in flight.
#[derive(Debug, Clone)]
pub(super) struct Wreck {
    pub(super) disk: Disk,
    pub(super) inflight: Option<(Ino, Change)>,
}

impl Wreck {
    /// Returns every fate with its image, each distinct image once, in a fixed order.
    pub(super) fn images(self) -> impl Iterator<Item = (Fate, Disk)> {
        let mut seen = HashSet::new();
        let fates = self.fates();
        fates.into_iter().filter_map(move |fate| {
            let image = self.image(&fate);
            seen.insert(digest(&image)).then_some((fate, image))
        })
    }

    fn fates(&self) -> Vec<Fate> {
        let mut fates = self.killed();
        for kept in [Kept::Nothing, Kept::All, Kept::Data, Kept::Names] {
            fates.push(Fate::PowerCut {
                kept,
                file: None,
                dir: None,
            });
        }
        let full = self.with_inflight();
        let mut seen = HashSet::new();
        for (path, ino) in full.tree() {
            match full.nodes.get(&ino) {
                // Another name of a file that had its fates.
                Some(Node::File(_)) if !seen.insert(ino) => {}
                Some(Node::File(file)) => {
                    for fate in file_fates(file) {
                        for kept in [Kept::All, Kept::Names] {
                            let file = Some((path.clone(), fate));
                            fates.push(Fate::PowerCut {
                                kept,
                                file,
                                dir: None,
                            });
                        }
                    }
                }
                Some(Node::Dir(dir)) => {
                    for steps in 0..dir.pending.len() {
                        for kept in [Kept::All, Kept::Names, Kept::Data] {
                            let dir = Some((path.clone(), steps));
                            fates.push(Fate::PowerCut {
                                kept,
                                file: None,
                                dir,
                            });
                        }
                    }
                }
                None => {}
            }
        }
        fates
    }

    fn killed(&self) -> Vec<Fate> {
        let mut arrived = vec![0];
        if let Some((_, Change::Write { bytes, .. })) = &self.inflight {
            let len = bytes.len();
            arrived.extend([1, len / 2, len.saturating_sub(1), len]);
            arrived.extend(around_lines(bytes));
            arrived.retain(|n| *n <= len);
            arrived.sort_unstable();
            arrived.dedup();
        }
        arrived
            .into_iter()
            .map(|arrived| Fate::Killed { arrived })
            .collect()
    }

    /// The disk with the write in flight as one more unsynced change.
    fn with_inflight(&self) -> Disk {
        let mut disk = self.disk.clone();
        if let Some((ino, change)) = &self.inflight {
            let mtime = disk.stamp();
            if let Ok(file) = disk.file_mut(*ino) {
                file.change(change.clone(), mtime);
            }
        }
        disk
    }

    pub(super) fn image(&self, fate: &Fate) -> Disk {
        match fate {
            Fate::Killed { arrived } => self.after_kill(*arrived),
            Fate::PowerCut { kept, file, dir } => {
                self.after_power_cut(*kept, file.as_ref(), dir.as_ref())
            }
        }
    }

    fn after_kill(&self, arrived: usize) -> Disk {
        let mut disk = self.disk.clone();
        if let Some((ino, Change::Write { offset, bytes })) = &self.inflight
            && let Some(part) = bytes.get(..arrived).filter(|part| !part.is_empty())
        {
            let mtime = disk.stamp();
            if let Ok(file) = disk.file_mut(*ino) {
                file.change(
                    Change::Write {
                        offset: *offset,
                        bytes: part.to_vec(),
                    },
                    mtime,
                );
            }
        }
        disk
    }

    fn after_power_cut(
        &self,
        kept: Kept,
        file: Option<&(PathBuf, FileFate)>,
        dir: Option<&(PathBuf, usize)>,
    ) -> Disk {
        let mut disk = self.with_inflight();
        let special = |path: &Path| disk.resolve(path).unwrap_or_default();
        let own_file = file.map(|(path, fate)| (special(path), *fate));
        let own_dir = dir.map(|(path, steps)| (special(path), *steps));
        for (ino, node) in &mut disk.nodes {
            match node {
                Node::File(file) => {
                    match own_file.filter(|(own, _)| own == ino) {
                        Some((_, fate)) => settle(file, fate),
                        None if kept.data() => file.sync(),
                        None => settle(file, FileFate::Prefix(0)),
                    }
                    file.cache.clone_from(&file.durable);
                    file.durable_mtime_ns = file.mtime_ns;
                }
                Node::Dir(dir) => {
                    let steps = match own_dir.filter(|(own, _)| own == ino) {
                        Some((_, steps)) => steps,
                        None if kept.names() => usize::MAX,
                        None => 0,
                    };
                    dir.pending.truncate(steps);
                    dir.sync();
                    dir.cache.clone_from(&dir.durable);
                }
            }
        }
        disk.boot += 1;
        disk.prune();
        disk
    }
}

fn file_fates(file: &FileNode) -> Vec<FileFate> {
    let pending = file.pending.len();
    let mut fates: Vec<_> = (0..=pending).map(FileFate::Prefix).collect();
    fates.extend((0..pending).map(FileFate::Without));
    if let Some(Change::Write { offset, bytes }) = file.pending.last() {
        let first = SECTOR - offset % SECTOR;
        let sectors: Vec<_> = (first..bytes.len()).step_by(SECTOR).collect();
        let mut cuts = around_lines(bytes);
        cuts.extend(&sectors);
        cuts.retain(|at| *at < bytes.len());
        cuts.sort_unstable();
        cuts.dedup();
        fates.extend(cuts.into_iter().map(FileFate::Torn));
        fates.extend(sectors.iter().copied().map(FileFate::TornZeros));
        fates.extend((0..=sectors.len()).map(FileFate::Hole));
    }
    if pending > 0 {
        fates.push(FileFate::Zeros);
    }
    fates
}

/// Offsets just before, at and just behind the end of every line.
fn around_lines(bytes: &[u8]) -> Vec<usize> {
    memchr::memchr_iter(b'\n', bytes)
        .flat_map(|lf| [lf.saturating_sub(1), lf, lf + 1, lf + 2])
        .collect()
}

/// Brings the durable content to what a fate leaves of the pending changes.
fn settle(file: &mut FileNode, fate: FileFate) {
    let before = file.durable.clone();
    let mut pending = std::mem::take(&mut file.pending);
    let final_len = {
        let mut all = file.durable.clone();
        pending.iter().for_each(|change| change.apply(&mut all));
        all.len()
    };
    let mut extend = false;
    match fate {
        FileFate::Prefix(n) => pending.truncate(n),
        FileFate::Without(n) if n < pending.len() => {
            pending.remove(n);
        }
        FileFate::Without(_) => {}
        FileFate::Zeros => {
            pending.retain(|change| matches!(change, Change::SetLen(_)));
            extend = true;
        }
        FileFate::Torn(at) | FileFate::TornZeros(at) => {
            if let Some(Change::Write { bytes, .. }) = pending.last_mut() {
                bytes.truncate(at);
            }
            extend = matches!(fate, FileFate::TornZeros(_));
        }
        FileFate::Hole(index) => {
            if let Some(Change::Write { offset, bytes }) = pending.last_mut() {
                let first = SECTOR - *offset % SECTOR;
                let start = if index == 0 {
                    0
                } else {
                    first + (index - 1) * SECTOR
                };
                let end = (first + index * SECTOR).min(bytes.len());
                if let Some(block) = bytes.get_mut(start..end) {
                    block.fill(0);
                }
            }
        }
    }
    for change in &pending {
        change.apply(&mut file.durable);
    }
    if extend && file.durable.len() < final_len {
        file.durable.resize(final_len, 0);
    }
    // The time is kept with any trace of a change, and lost with the last.
    if file.durable == before {
        file.mtime_ns = file.durable_mtime_ns;
    }
}

/// A digest of what can be seen, and of what a further crash may still take away.
fn digest(disk: &Disk) -> u64 {
    let mut hasher = DefaultHasher::new();
    disk.boot.hash(&mut hasher);
    for (path, ino) in disk.tree() {
        path.hash(&mut hasher);
        match disk.nodes.get(&ino) {
            Some(Node::File(file)) => (&file.cache, &file.durable, file.mtime_ns).hash(&mut hasher),
            Some(Node::Dir(dir)) => (&dir.durable, dir.pending.len()).hash(&mut hasher),
            None => {}
        }
    }
    hasher.finish()
}
