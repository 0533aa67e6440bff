//! Which folders of sessions have changed, and which sessions in them may be new, other or gone.
//!
//! A folder's time changes whenever a session's folder in it comes or goes. It does not when a log
//! grows: for that a writer marks the row. What an earlier process found is looked at once more,
//! some sessions with each list, because marks may be lost when the machine loses power.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use threadline_catalogue::Known;
use threadline_session::SessionId;
use threadline_store::Stamp;

use crate::{
    files::Files,
    layout::{self, OTHER, SESSIONS},
};

/// A folder changed so recently, in milliseconds, may change again without its time changing.
const RACY: u64 = 2_000;
/// Sessions of earlier processes that one list looks at once more.
const RECHECKED: usize = 256;
/// Up to so many sessions in one folder are looked at one by one when the folder has changed.
const FEW: usize = 1_000;
/// So many new sessions are looked at for their order, when a list finds them at once.
const ORDERED: usize = 2_000;

/// Returns the folder of a session below that of all sessions.
pub(super) fn place_of(id: &SessionId) -> String {
    let parts = layout::parts(id);
    let above = parts.len().saturating_sub(1);
    parts.get(1..above).unwrap_or_default().join("/")
}

#[derive(Debug, Default)]
struct Folder {
    /// Time of the last change, nanoseconds; 0 when the folder is to be listed.
    mtime: u64,
    /// Whether it was so young when it was listed that it is listed again.
    racy: bool,
    /// Whether an earlier process looked at it, and not this one.
    inherited: bool,
    /// Whether the database knows that it was looked at.
    saved: bool,
    /// Sessions that are still to be looked at, and about when they changed, milliseconds.
    pending: HashMap<SessionId, u64>,
}

impl Folder {
    fn is_finished(&self) -> bool {
        self.pending.is_empty() && !self.racy && !self.inherited && self.mtime > 0
    }
}

/// The folders that hold sessions.
#[derive(Debug, Default)]
pub(super) struct Folders {
    loaded: bool,
    /// By their places, so that the newest days come last.
    folders: BTreeMap<String, Folder>,
    /// Whether some may be finished and not saved.
    progress: bool,
}

impl Folders {
    /// Returns whether what earlier processes found was taken over.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// Takes over the places of rows, and the times of folders that earlier processes looked at.
    pub(super) fn load(&mut self, saved: Vec<(String, u64)>) {
        self.loaded = true;
        for (place, mtime) in saved {
            let folder = self.folders.entry(place).or_default();
            if folder.mtime == 0 && folder.pending.is_empty() && mtime > 0 {
                *folder = Folder {
                    mtime,
                    inherited: true,
                    saved: true,
                    ..Folder::default()
                };
            }
        }
    }

    /// Looks for folders that have changed, and into those.
    pub(super) fn look(
        &mut self,
        files: &Files,
        mut known_at: impl FnMut(&str) -> HashMap<SessionId, Known>,
    ) {
        let there = walk(files);
        let mut recheck = RECHECKED;
        let mut ordered = ORDERED;
        for (place, dir) in there.iter().rev() {
            let meta = files.vfs.metadata(dir).ok().flatten();
            let Some(mtime) = meta.filter(|meta| meta.is_dir).map(|meta| meta.mtime_ns) else {
                continue;
            };
            let folder = self.folders.get(place);
            let changed = folder.is_none_or(|folder| folder.racy || folder.mtime != mtime.max(1));
            let inherited = folder.is_some_and(|folder| folder.inherited);
            if !changed && (!inherited || recheck == 0) {
                continue;
            }
            let now = files.vfs.now_ms();
            let Ok(names) = files.folders(dir) else {
                continue;
            };
            if !changed {
                recheck = recheck.saturating_sub(names.len());
            }
            let known = known_at(place);
            let pending = suspects_in(files, place, dir, &names, known, &mut ordered);
            let folder = self.folders.entry(place.clone()).or_default();
            *folder = Folder {
                mtime: mtime.max(1),
                racy: now.saturating_sub(mtime / 1_000_000) < RACY,
                inherited: false,
                saved: folder.saved && folder.mtime == mtime.max(1),
                pending,
            };
            self.progress = true;
        }
        for (place, folder) in &mut self.folders {
            // Gone with all its sessions. Its time is kept away from that of any other.
            if folder.mtime != u64::MAX && !there.contains_key(place) {
                let known = known_at(place).into_iter();
                let pending = known.filter(|(_, known)| !known.missing);
                *folder = Folder {
                    mtime: u64::MAX,
                    saved: true,
                    pending: pending.map(|(id, _)| (id, 0)).collect(),
                    ..Folder::default()
                };
            }
        }
    }

    /// Returns the sessions that are to be looked at, and about when they changed.
    pub(super) fn suspects(&self) -> impl Iterator<Item = (SessionId, u64)> {
        let pending = self.folders.values().flat_map(|folder| &folder.pending);
        pending.map(|(id, time)| (id.clone(), *time))
    }

    /// Notes that a session was looked at.
    pub(super) fn settle(&mut self, id: &SessionId) {
        if let Some(folder) = self.folders.get_mut(&place_of(id))
            && folder.pending.remove(id).is_some()
            && folder.pending.is_empty()
        {
            self.progress = true;
        }
    }

    /// Returns the folders that have been looked at in full since the last call.
    pub(super) fn finished(&mut self) -> Vec<(String, u64)> {
        if !std::mem::take(&mut self.progress) {
            return Vec::new();
        }
        let folders = self.folders.iter_mut();
        let finished = folders.filter(|(_, folder)| folder.is_finished() && !folder.saved);
        finished
            .map(|(place, folder)| {
                folder.saved = true;
                (place.clone(), folder.mtime)
            })
            .collect()
    }
}

/// Returns the folders that hold sessions, by their places. One that cannot be listed is passed
/// over: what is known of its sessions stays as it is.
fn walk(files: &Files) -> BTreeMap<String, PathBuf> {
    let top = files.root.join(SESSIONS);
    let mut found = BTreeMap::new();
    let below = |dir: &Path| files.folders(dir).unwrap_or_default();
    for first in below(&top) {
        let dir = top.join(&first);
        for second in below(&dir) {
            let dir = dir.join(&second);
            if first == OTHER {
                found.insert(format!("{first}/{second}"), dir);
                continue;
            }
            for third in below(&dir) {
                found.insert(format!("{first}/{second}/{third}"), dir.join(&third));
            }
        }
    }
    found
}

fn suspects_in(
    files: &Files,
    place: &str,
    dir: &Path,
    names: &[String],
    mut known: HashMap<SessionId, Known>,
    ordered: &mut usize,
) -> HashMap<SessionId, u64> {
    let mut pending = HashMap::new();
    for name in names {
        let dir = dir.join(name);
        let id = match layout::unescape(name) {
            Some(id) => Some(id),
            None => files.header_in(&dir).ok().flatten().map(|it| it.header.id),
        };
        // A folder that was put somewhere else is not found by its id, so it is not listed.
        let Some(id) = id.filter(|id| is_at(id, place, name)) else {
            continue;
        };
        match known.remove(&id) {
            Some(row) if !row.missing && names.len() > FEW => {}
            Some(row) => match files.stamps(&dir) {
                Ok(Some((stamp, people))) => {
                    if row.missing || (stamp, people) != (row.stamp, row.people) {
                        pending.insert(id, millis(stamp));
                    }
                }
                // The folder is there and the log is gone.
                Ok(None) if row.missing => {}
                Ok(None) | Err(_) => drop(pending.insert(id, 0)),
            },
            None if *ordered > 0 => {
                *ordered -= 1;
                // A folder without a log is no session.
                match files.stamps(&dir) {
                    Ok(Some((stamp, _))) => drop(pending.insert(id, millis(stamp))),
                    Ok(None) => {}
                    Err(_) => drop(pending.insert(id, 0)),
                }
            }
            // Its creation tells about when it was changed.
            None => {
                let time = id.as_uuid().and_then(|uuid| uuid.get_timestamp());
                let secs = time.map_or(0, |time| time.to_unix().0);
                pending.insert(id, secs.saturating_mul(1_000));
            }
        }
    }
    let gone = known.into_iter().filter(|(_, row)| !row.missing);
    pending.extend(gone.map(|(id, _)| (id, 0)));
    pending
}

fn millis(log: Stamp) -> u64 {
    log.1 / 1_000_000
}

fn is_at(id: &SessionId, place: &str, name: &str) -> bool {
    place_of(id) == place && layout::parts(id).last().is_some_and(|last| last == name)
}
