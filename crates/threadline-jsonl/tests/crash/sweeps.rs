//! The error sweep over the workloads of the crash lane: every operation fails in every way.

use threadline_jsonl::sim::{Fault, FaultVfs, Kept, MemVfs, Op, Plan};

use crate::{
    check::{Found, examine, recover},
    lineage::{At, spoil, two_pieces},
    world::{Fallible, Repair, Session, batch, files, text},
};

/// Sessions and blobs, and what is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Fork,
    ForkOfFork,
    DeleteParent,
    DeleteMiddle,
    TakeOver,
    Checkpoint,
    Import,
    Blob,
    DeleteFork,
    ForkTakenOver,
    Repair,
    Summary,
}

pub(crate) const DEEDS: [Deed; 12] = [
    Deed::Fork,
    Deed::ForkOfFork,
    Deed::DeleteParent,
    Deed::DeleteMiddle,
    Deed::TakeOver,
    Deed::Checkpoint,
    Deed::Import,
    Deed::Blob,
    Deed::DeleteFork,
    Deed::ForkTakenOver,
    Deed::Repair,
    Deed::Summary,
];

const BLOB: &[u8] = &[0x5a; 700];

/// What is known of the store.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) vfs: MemVfs,
    pub(crate) sessions: Vec<Session>,
    pub(crate) blob_kept: bool,
}

fn fork(store: &mut Store, of: usize, seq: u64, closing: usize) -> Fallible<()> {
    let files = files(&store.vfs)?;
    let parent = store.sessions.get(of).ok_or("no parent")?.clone();
    let mut fork = Session::new_fork(40 + store.sessions.len() as u32);
    let at = At {
        parent: &parent,
        seq,
    };
    let writer = fork.fork(&files, &at, closing)?;
    drop(writer);
    let mut writer = fork.resume(&files)?;
    fork.append(&mut writer, 2, true).map_err(text)?;
    store.sessions.push(fork);
    Ok(())
}

pub(crate) fn setup(deed: Deed) -> Store {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let store = files(&vfs).expect("a store");
    let mut writer = session.create(&store, 2).expect("a session");
    session.append(&mut writer, 3, true).expect("a batch");
    drop(writer);
    let sessions = vec![session];
    let mut store = Store {
        vfs,
        sessions,
        blob_kept: false,
    };
    match deed {
        Deed::ForkOfFork => fork(&mut store, 0, 3, 1).expect("a fork"),
        Deed::Repair => damage(&store.vfs, &mut store.sessions[0]),
        Deed::DeleteParent | Deed::DeleteMiddle | Deed::DeleteFork => {
            fork(&mut store, 0, 3, 1).expect("a fork");
            fork(&mut store, 1, 4, 0).expect("a fork");
        }
        _ => {}
    }
    store
}

/// Event 2 is damaged, and repaired by another one.
fn damage(vfs: &MemVfs, session: &mut Session) {
    let path = session.log();
    let content = vfs.content(&path).expect("a log");
    let mut lines = session.owned();
    let spoiled = spoil(&lines[2], &content).expect("a line");
    vfs.put(&path, &spoiled).expect("damage");
    lines[2] = batch(2, 1, 33).remove(0);
    let new = vec![(session.header.clone(), lines.concat(), 4)];
    session.tried = vec![lines];
    session.repair = Some(Repair {
        old: vec![(path, spoiled)],
        new,
    });
}

/// Does what is to be done through a file system with faults.
pub(crate) fn perform(deed: Deed, faulty: &FaultVfs, store: &mut Store) -> Fallible<()> {
    let files = files(faulty)?;
    match deed {
        Deed::Fork | Deed::ForkOfFork => {
            let of = store.sessions.len() - 1;
            let parent = store.sessions[of].clone();
            store.sessions.push(Session::new_fork(60));
            let at = At {
                parent: &parent,
                seq: 4,
            };
            let fork = store.sessions.last_mut().ok_or("no fork")?;
            let mut writer = fork.fork(&files, &at, 2)?;
            fork.append(&mut writer, 1, true).map_err(text)
        }
        Deed::DeleteParent => store.sessions[0].delete(&files),
        Deed::DeleteMiddle => store.sessions[1].delete(&files),
        Deed::DeleteFork => store.sessions[2].delete(&files),
        Deed::Repair => store.sessions[0].mend(&files).map_err(text),
        Deed::Summary => {
            let session = &mut store.sessions[0];
            session.put_summary(&files)?;
            session.put_summary(&files)
        }
        Deed::ForkTakenOver => {
            let session = &mut store.sessions[0];
            let old = session.resume(&files)?;
            let mut new = session.take_over(&files)?;
            session.append(&mut new, 2, true).map_err(text)?;
            drop(old);
            let parent = session.clone();
            store.sessions.push(Session::new_fork(62));
            let at = At {
                parent: &parent,
                seq: 6,
            };
            let fork = store.sessions.last_mut().ok_or("no fork")?;
            fork.fork(&files, &at, 1).map(drop)
        }
        Deed::TakeOver => {
            let session = &mut store.sessions[0];
            let old = session.resume(&crate::world::files(&store.vfs)?)?;
            let mut new = session.take_over(&files)?;
            session.append(&mut new, 2, true).map_err(text)?;
            drop(old);
            session.append(&mut new, 1, true).map_err(text)
        }
        Deed::Checkpoint => {
            let session = &mut store.sessions[0];
            let mut writer = session.resume(&files)?;
            for sync in [true, false, true] {
                session.append(&mut writer, 1, sync).map_err(text)?;
                // It may fail, and that hurts nobody.
                session.checkpoint(&mut writer).ok();
            }
            Ok(())
        }
        Deed::Import => {
            let (session, pieces) = two_pieces(Session::new(61).id)?;
            store.sessions.push(session);
            let session = store.sessions.last_mut().ok_or("no session")?;
            session.import(&files, &pieces).map_err(text)
        }
        Deed::Blob => {
            let id = threadline_store::BlobId::of(BLOB);
            files.put_blob(&id, BLOB).map_err(text)?;
            store.blob_kept = true;
            let session = &mut store.sessions[0];
            let mut writer = session.resume(&files)?;
            session.append_naming(&mut writer, id.as_str())?;
            files.put_blob(&id, BLOB).map_err(text)
        }
    }
}

fn blob(vfs: &MemVfs, store: &Store) -> Fallible<()> {
    let id = threadline_store::BlobId::of(BLOB);
    match files(vfs)?.get_blob(&id).map_err(text)? {
        Some(bytes) if bytes != BLOB => Err("a blob has other bytes than its own".into()),
        None if store.blob_kept => Err("an acknowledged blob is gone".into()),
        _ => Ok(()),
    }
}

/// Everything is as it must be, can be gone on with, and stays so.
fn sound(vfs: &MemVfs, store: &Store) -> Fallible<()> {
    blob(vfs, store)?;
    let mut sessions = store.sessions.clone();
    for session in &mut sessions {
        match examine(vfs, session, false)? {
            Found::Damaged => return Err("damage after a fault (I4)".into()),
            Found::Absent | Found::Fine | Found::Unrepaired => {}
        }
        recover(vfs, session)?;
    }
    let image = vfs.power_cut(Kept::Nothing);
    for session in &mut sessions {
        let events = session.next_seq();
        if examine(&image, session, false)? != Found::Fine || session.next_seq() != events {
            return Err("what was done to one session has changed another one".into());
        }
    }
    Ok(())
}

/// Runs one plan. Returns whether its fault happened, and what is wrong.
pub(crate) fn run(deed: Deed, plan: Plan) -> (bool, Fallible<()>) {
    let mut store = setup(deed);
    let faulty = FaultVfs::new(store.vfs.clone(), plan);
    let done = perform(deed, &faulty, &mut store);
    let hit = faulty.hits() > 0;
    let refused = matches!(
        plan.fault,
        Fault::LinkEperm | Fault::LinkEmlink | Fault::LinkExdev
    );
    let outcome = match done {
        Err(what) if what.contains("(I") => Err(what),
        Err(what) if !hit => Err(format!("failed without a fault: {what}")),
        Err(what) if refused => Err(format!("a refused link is no failure: {what}")),
        _ => Ok(()),
    };
    let outcome = outcome.and_then(|()| {
        for kept in [Kept::Nothing, Kept::All, Kept::Names] {
            sound(&store.vfs.power_cut(kept), &store)?;
        }
        sound(&store.vfs.fork(), &store)
    });
    (hit, outcome)
}

/// Whatever step of it finds no space: nothing is listed, and what was there is as it was.
fn full(deed: Deed) -> Fallible<u64> {
    let mut runs = 0;
    for fault in [Fault::Enospc, Fault::HalfThenEnospc] {
        for nth in 1.. {
            let mut store = setup(deed);
            let before: Vec<_> = store.sessions.iter().map(Session::log).collect();
            let content =
                |vfs: &MemVfs| -> Vec<_> { before.iter().map(|path| vfs.content(path)).collect() };
            let old = content(&store.vfs);
            let plan = Plan {
                op: None,
                nth,
                fault,
                sticky: true,
            };
            let faulty = FaultVfs::new(store.vfs.clone(), plan);
            let known = store.sessions.len();
            let done = perform(deed, &faulty, &mut store);
            if faulty.hits() == 0 {
                done?;
                break;
            }
            runs += 1;
            let listed = files(&store.vfs)?.ids().map_err(text)?;
            for session in &store.sessions[known..] {
                if !session.created && listed.contains(&session.id) {
                    return Err(format!("{deed:?} {nth}: what failed is listed"));
                }
            }
            if content(&store.vfs) != old {
                return Err(format!("{deed:?} {nth}: what was there has changed"));
            }
        }
    }
    Ok(runs)
}

#[test]
fn when_storage_is_full_no_part_of_a_fork_or_an_import_is_listed_and_the_parent_is_untouched() {
    for deed in [Deed::Fork, Deed::ForkOfFork, Deed::Import] {
        let runs = full(deed);
        assert!(matches!(runs, Ok(1..)), "{deed:?}: {runs:?}");
        say!("{deed:?} on full storage: {} runs", runs.unwrap_or(0));
    }
}

#[test]
fn when_storage_is_full_no_part_of_a_blob_is_listed() {
    for fault in [Fault::Enospc, Fault::HalfThenEnospc] {
        for nth in 1..30 {
            let store = setup(Deed::Blob);
            let plan = Plan {
                op: None,
                nth,
                fault,
                sticky: true,
            };
            let faulty = FaultVfs::new(store.vfs.clone(), plan);
            let id = threadline_store::BlobId::of(BLOB);
            let put = files(&faulty).expect("a store").put_blob(&id, BLOB);
            let blobs = files(&store.vfs).expect("a store").blobs();
            let blobs = blobs.expect("a list");
            if put.is_ok() {
                assert_eq!(blobs.len(), 1);
            }
            for stat in blobs {
                let found = files(&store.vfs).expect("a store").get_blob(&stat.id);
                assert_eq!(found.expect("a blob").as_deref(), Some(BLOB));
            }
        }
    }
}

/// A fork that was copied because its files could not be linked has nothing of the parent's later
/// content, also not once the parent is deleted.
#[test]
fn a_fork_that_was_copied_keeps_nothing_that_only_the_parent_had() {
    for fault in [Fault::LinkEperm, Fault::LinkEmlink, Fault::LinkExdev] {
        for sticky in [false, true] {
            let vfs = MemVfs::new();
            let store = files(&vfs).expect("a store");
            let mut parent = Session::new(1);
            let mut writer = parent.create(&store, 3).expect("a session");
            parent.checkpoint(&mut writer).expect("a checkpoint");
            let plan = Plan {
                op: Some(Op::Link),
                nth: 1,
                fault,
                sticky,
            };
            let faulty = FaultVfs::new(vfs.clone(), plan);
            let mut fork = Session::new_fork(2);
            let at = At {
                parent: &parent,
                seq: 2,
            };
            let made = fork.fork(&files(&faulty).expect("a store"), &at, 0);
            drop(made.expect("a fork"));
            let secret = batch(3, 2, 70);
            parent
                .append_lines(&mut writer, secret.clone(), true)
                .expect("a batch");
            parent.checkpoint(&mut writer).expect("a checkpoint");
            drop(writer);
            parent.delete(&store).expect("a deletion");
            for path in vfs.files() {
                let content = vfs.content(&path).unwrap_or_default();
                let has = secret
                    .iter()
                    .any(|line| memchr::memmem::find(&content, &line[..line.len() - 1]).is_some());
                assert!(!has, "{fault:?}, sticky {sticky}: {}", path.display());
            }
        }
    }
}
