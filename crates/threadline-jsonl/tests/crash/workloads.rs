//! What the process does when it dies.

use std::path::{Path, PathBuf};

use threadline_jsonl::{layout, sim::MemVfs};
use threadline_store::BlobId;

use crate::world::{Fallible, ROOT, Session, files, text};

/// The sessions of a workload, and a file that belongs to somebody else.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) sessions: Vec<Session>,
    pub(crate) blobs: Vec<Blob>,
    foreign: Vec<PathBuf>,
    /// Lines that only one session has, which is being deleted.
    secrets: Vec<(usize, Vec<Vec<u8>>)>,
}

/// A blob, and whether it must be there.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    pub(crate) id: BlobId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) kept: bool,
}

const FOREIGN: &[u8] = b"not ours\n";

impl World {
    fn new(sessions: u32) -> Self {
        Self::of((1..=sessions).map(Session::new).collect())
    }

    pub(crate) fn of(sessions: Vec<Session>) -> Self {
        Self {
            sessions,
            blobs: Vec::new(),
            foreign: Vec::new(),
            secrets: Vec::new(),
        }
    }

    /// Notes what must be nowhere once a session is deleted: the lines that no other one has.
    pub(crate) fn keep_secrets(&mut self, index: usize) {
        let others = || {
            let all = self.sessions.iter().enumerate();
            all.filter(|(at, other)| *at != index && !other.deleted)
        };
        let mut own = self.sessions[index].owned();
        own.retain(|line| !others().any(|(_, other)| other.owned().contains(line)));
        // A checkpoint holds them without LF.
        own.iter_mut()
            .for_each(|line| line.truncate(line.len() - 1));
        self.secrets.push((index, own));
    }

    /// Whether what only a deleted session had is in no file of another one; after a kill also in
    /// none at all.
    pub(crate) fn secrets_gone(&self, vfs: &MemVfs, killed: bool) -> Fallible<()> {
        for (index, lines) in &self.secrets {
            if !self.sessions[*index].deleted {
                continue;
            }
            for path in vfs.files() {
                let inside = self
                    .sessions
                    .iter()
                    .any(|session| path.starts_with(session.dir()));
                if !inside && !killed {
                    continue;
                }
                let content = vfs.content(&path).unwrap_or_default();
                if lines
                    .iter()
                    .any(|line| memchr::memmem::find(&content, line).is_some())
                {
                    let name = path.file_name().unwrap_or_default().display();
                    let of = if inside {
                        "a session's"
                    } else {
                        "no session's"
                    };
                    return Err(format!("what was deleted is still in {of} {name}"));
                }
            }
        }
        Ok(())
    }

    /// Whether all blobs that must be there are, also those that events name.
    pub(crate) fn blobs_kept(&self, vfs: &MemVfs) -> Fallible<()> {
        let store = files(vfs)?;
        for blob in &self.blobs {
            let found = store.get_blob(&blob.id).map_err(text)?;
            let named = vfs.files().into_iter().any(|path| {
                let log = path.file_name().is_some_and(|name| name == layout::LOG);
                let content = vfs.content(&path).filter(|_| log).unwrap_or_default();
                memchr::memmem::find(&content, blob.id.as_str().as_bytes()).is_some()
            });
            match found {
                Some(bytes) if bytes != blob.bytes => {
                    return Err("a blob has other bytes than its own".into());
                }
                None if blob.kept => return Err("an acknowledged blob is gone".into()),
                None if named => return Err("an event names a blob that is not there".into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn put_foreign(&mut self, vfs: &MemVfs, path: PathBuf) {
        vfs.put(&path, FOREIGN).expect("a foreign file");
        self.foreign.push(path);
    }

    pub(crate) fn foreign_kept(&self, vfs: &MemVfs) -> bool {
        let deleting = self
            .sessions
            .iter()
            .any(|it| it.deleting || it.deleted_before);
        deleting
            || self
                .foreign
                .iter()
                .all(|path| vfs.content(path).as_deref() == Some(FOREIGN))
    }
}

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) setup: fn() -> (MemVfs, World),
    pub(crate) run: fn(&MemVfs, &mut World) -> Fallible<()>,
}

pub(crate) fn all() -> Vec<Workload> {
    vec![
        Workload {
            name: "large batches",
            setup: one_created,
            run: large,
        },
        Workload {
            name: "many unsynced",
            setup: one_created,
            run: many_unsynced,
        },
        Workload {
            name: "two writers in turn",
            setup: one_torn,
            run: in_turn,
        },
        Workload {
            name: "garbled summary",
            setup: one_garbled,
            run: summary,
        },
        Workload {
            name: "lock file lost",
            setup: one_unlocked,
            run: append_unsynced,
        },
        Workload {
            name: "create",
            setup: nothing,
            run: create,
        },
        Workload {
            name: "create beside",
            setup: one_created,
            run: create_beside,
        },
        Workload {
            name: "append synced",
            setup: one_created,
            run: append_synced,
        },
        Workload {
            name: "append unsynced",
            setup: one_created,
            run: append_unsynced,
        },
        Workload {
            name: "mixed",
            setup: one_created,
            run: mixed,
        },
        Workload {
            name: "recover",
            setup: one_torn,
            run: recover,
        },
        Workload {
            name: "summary",
            setup: one_created,
            run: summary,
        },
        Workload {
            name: "delete",
            setup: one_created,
            run: delete,
        },
        Workload {
            name: "delete and create",
            setup: one_created,
            run: delete_and_create,
        },
        Workload {
            name: "two sessions",
            setup: two_created,
            run: two,
        },
    ]
}

fn nothing() -> (MemVfs, World) {
    (MemVfs::new(), World::new(1))
}

fn created(vfs: &MemVfs, count: u32) -> World {
    let mut world = World::new(count);
    let files = files(vfs).expect("a store");
    for session in &mut world.sessions {
        session.create(&files, 2).expect("a session");
    }
    let beside = world.sessions[0].dir().join("notes.txt");
    world.put_foreign(vfs, beside);
    world.put_foreign(vfs, Path::new(ROOT).join("sessions/README"));
    world
}

pub(crate) fn one_created() -> (MemVfs, World) {
    let vfs = MemVfs::new();
    let world = created(&vfs, 1);
    (vfs, world)
}

fn two_created() -> (MemVfs, World) {
    let vfs = MemVfs::new();
    let world = created(&vfs, 2);
    (vfs, world)
}

/// With two whole batches and a part of a third behind them, as a killed process leaves it.
fn one_torn() -> (MemVfs, World) {
    let (vfs, mut world) = one_created();
    let session = &mut world.sessions[0];
    let files = files(&vfs).expect("a store");
    let mut writer = session.resume(&files).expect("a claim");
    session.append(&mut writer, 3, true).expect("a batch");
    drop(writer);
    let mut log = vfs.content(&session.log()).expect("a log");
    let third = crate::world::batch(5, 3, 0);
    log.extend_from_slice(&third[0]);
    log.extend_from_slice(&third[1][..20]);
    vfs.put(&session.log(), &log).expect("a torn log");
    session.tried.push(third);
    (vfs, world)
}

/// With a summary that nobody can read.
fn one_garbled() -> (MemVfs, World) {
    let (vfs, world) = one_created();
    let path = world.sessions[0].dir().join(layout::SUMMARY);
    vfs.put(&path, b"{\"title\":").expect("a garbled summary");
    (vfs, world)
}

/// Without its lock file, as a copy may be.
fn one_unlocked() -> (MemVfs, World) {
    let (vfs, world) = one_created();
    let bare = MemVfs::new();
    let lock = world.sessions[0].dir().join(layout::LOCK);
    for path in vfs.files().into_iter().filter(|path| *path != lock) {
        bare.put(&path, &vfs.content(&path).expect("a file"))
            .expect("a copy");
    }
    (bare, world)
}

fn create(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    let mut writer = session.create(&files, 3)?;
    session.append(&mut writer, 1, true).map_err(text)
}

fn create_beside(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    world.sessions.push(Session::new(9));
    world.sessions[1].create(&files, 4).map(drop)
}

fn append_synced(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files(vfs)?)?;
    for events in 1..=4 {
        session.append(&mut writer, events, true).map_err(text)?;
    }
    Ok(())
}

fn append_unsynced(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files(vfs)?)?;
    for events in [1, 4, 2, 1, 3] {
        session.append(&mut writer, events, false).map_err(text)?;
    }
    session.sync(&mut writer).map_err(text)
}

fn mixed(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files)?;
    session.append(&mut writer, 2, false).map_err(text)?;
    session.append(&mut writer, 1, true).map_err(text)?;
    session.put_summary(&files)?;
    session.append(&mut writer, 3, false).map_err(text)?;
    session.append(&mut writer, 1, false).map_err(text)?;
    drop(writer);
    let mut writer = session.resume(&files)?;
    session.append(&mut writer, 4, false).map_err(text)?;
    session.append(&mut writer, 2, true).map_err(text)
}

fn recover(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files(vfs)?)?;
    session.append(&mut writer, 2, false).map_err(text)?;
    session.append(&mut writer, 3, true).map_err(text)
}

fn summary(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    session.put_summary(&files)?;
    session.put_summary(&files)
}

fn delete(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    session.put_summary(&files)?;
    session.delete(&files)
}

fn delete_and_create(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    session.delete(&files)?;
    // Until the new one is acknowledged, none is fine.
    session.forget();
    let mut writer = session.create(&files, 2)?;
    session.append(&mut writer, 2, true).map_err(text)
}

fn two(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let [first, second] = &mut world.sessions[..] else {
        return Err("two sessions".into());
    };
    let mut one = first.resume(&files)?;
    let mut two = second.resume(&files)?;
    first.append(&mut one, 2, false).map_err(text)?;
    second.append(&mut two, 1, true).map_err(text)?;
    first.append(&mut one, 1, false).map_err(text)?;
    second.append(&mut two, 3, false).map_err(text)?;
    first.sync(&mut one).map_err(text)
}

fn large(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files(vfs)?)?;
    session.append(&mut writer, 9, true).map_err(text)?;
    session.append(&mut writer, 12, false).map_err(text)?;
    session.append(&mut writer, 16, true).map_err(text)
}

fn many_unsynced(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    let mut writer = session.resume(&files(vfs)?)?;
    for round in 0..14 {
        session
            .append(&mut writer, 1 + round % 4, false)
            .map_err(text)?;
    }
    session.sync(&mut writer).map_err(text)
}

fn in_turn(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    for round in 1..=4 {
        let mut writer = session.resume(&files)?;
        session.append(&mut writer, round, false).map_err(text)?;
        session
            .append(&mut writer, 2, round % 2 == 0)
            .map_err(text)?;
    }
    Ok(())
}
