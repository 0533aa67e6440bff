//! Workloads of forks, take-overs, checkpoints, imports, repairs and blobs.

use threadline_jsonl::{
    Files, LogWriter,
    sim::{Fault, FaultVfs, MemVfs, Op, Plan},
    vfs::{Mode, Vfs as _},
};
use threadline_store::{BlobId, WriteError};

use crate::{
    lineage::{At, spoil, two_pieces},
    workloads::{Blob, Workload, World, one_created},
    world::{Fallible, Repair, Session, batch, files, text},
};

pub(crate) fn all() -> Vec<Workload> {
    let workload = |name, setup, run| Workload { name, setup, run };
    vec![
        workload("fork at the end", one_grown, fork_at_end),
        workload("fork inside a batch", one_grown, fork_inside),
        workload("fork of what is not synced", one_grown, fork_unsynced),
        workload("fork with closers", one_grown, fork_with_closers),
        workload("fork of a fork", one_forked, fork_of_fork),
        workload("fork while the parent is written", one_grown, fork_written),
        workload("append in forks", family, append_in_family),
        workload("delete the parent", family, delete_parent),
        workload("delete the fork", family, delete_fork),
        workload("delete the middle one", family, delete_middle),
        workload("delete all", family, delete_all),
        workload(
            "delete a parent with checkpoints",
            noted_pair,
            delete_parent,
        ),
        workload("fork, then delete the parent", one_noted, fork_and_delete),
        workload("take-over", one_grown, take_over),
        workload("take-over of a failed sync", one_doubted, take_over_doubted),
        workload("recovery from a failed sync", one_doubted, recover_doubted),
        workload("two take-overs", one_grown, take_over_twice),
        workload(
            "take-over of a fork that is forked",
            one_forked,
            take_over_parent,
        ),
        workload("take-over, then delete", one_noted, take_over_forked_delete),
        workload("checkpoints", one_created, checkpoints),
        workload("checkpoints of a fork", noted_pair, checkpoints_in_fork),
        workload("import", nothing_yet, import),
        workload("import of two pieces", nothing_yet, import_pieces),
        workload("repair", one_damaged, mend),
        workload("repair of a forked session", forked_damaged, mend),
        workload("repair of a fork", fork_damaged, mend),
        workload("blobs", one_created, blobs),
        workload("blob put again", one_with_blob, blobs),
        workload("blob deleted", one_with_blob, delete_blob),
    ]
}

fn grow(session: &mut Session, files: &Files) -> LogWriter {
    let mut writer = session.resume(files).expect("a claim");
    session.append(&mut writer, 3, true).expect("a batch");
    session.append(&mut writer, 1, true).expect("a batch");
    writer
}

fn one_grown() -> (MemVfs, World) {
    let (vfs, mut world) = one_created();
    grow(&mut world.sessions[0], &files(&vfs).expect("a store"));
    (vfs, world)
}

/// With a checkpoint.
fn one_noted() -> (MemVfs, World) {
    let (vfs, mut world) = one_created();
    let session = &mut world.sessions[0];
    let mut writer = grow(session, &files(&vfs).expect("a store"));
    session.checkpoint(&mut writer).expect("a checkpoint");
    drop(writer);
    settle_indexes(&vfs);
    (vfs, world)
}

fn fork_into(
    world: &mut World,
    files: &Files,
    of: usize,
    seq: u64,
    closing: usize,
) -> Fallible<()> {
    let number = 20 + world.sessions.len() as u32;
    let parent = world.sessions[of].clone();
    world.sessions.push(Session::new_fork(number));
    let fork = world.sessions.last_mut().ok_or("no fork")?;
    let at = At {
        parent: &parent,
        seq,
    };
    fork.fork(files, &at, closing).map(drop)
}

/// A parent and its fork at event 3.
fn one_forked() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    let files = files(&vfs).expect("a store");
    fork_into(&mut world, &files, 0, 3, 1).expect("a fork");
    (vfs, world)
}

fn grow_family(vfs: &MemVfs, world: &mut World) {
    let files = files(vfs).expect("a store");
    fork_into(world, &files, 0, 3, 1).expect("a fork");
    fork_into(world, &files, 0, 1, 0).expect("another fork");
    let writer = grow(&mut world.sessions[1], &files);
    drop(writer);
    fork_into(world, &files, 1, 6, 2).expect("a fork of a fork");
    for session in &mut world.sessions {
        drop(grow(session, &files));
    }
}

/// A parent, two forks of it, and a fork of the first fork; each has gone on since.
fn family() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    grow_family(&vfs, &mut world);
    (vfs, world)
}

/// A parent and a fork, both with checkpoints that are on stable storage.
fn noted_pair() -> (MemVfs, World) {
    let (vfs, mut world) = one_noted();
    let store = files(&vfs).expect("a store");
    fork_into(&mut world, &store, 0, 3, 1).expect("a fork");
    for session in &mut world.sessions {
        let mut writer = grow(session, &store);
        session.checkpoint(&mut writer).expect("a checkpoint");
    }
    settle_indexes(&vfs);
    (vfs, world)
}

fn settle_indexes(vfs: &MemVfs) {
    for path in vfs.files() {
        if path.to_string_lossy().ends_with("index") {
            let content = vfs.content(&path).expect("an index");
            vfs.put(&path, &content).expect("an index");
        }
    }
}

fn nothing_yet() -> (MemVfs, World) {
    (MemVfs::new(), World::of(Vec::new()))
}

/// Begins to write the fork after it was made.
fn write_in(world: &mut World, files: &Files, index: usize) -> Fallible<()> {
    let session = world.sessions.get_mut(index).ok_or("no such session")?;
    let mut writer = session.resume(files)?;
    session.append(&mut writer, 1, false).map_err(text)?;
    session.append(&mut writer, 2, true).map_err(text)
}

fn fork_at_end(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let last = world.sessions[0].next_seq() as u64 - 1;
    fork_into(world, &files, 0, last, 0)?;
    write_in(world, &files, 1)?;
    write_in(world, &files, 0)
}

fn fork_inside(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    fork_into(world, &files, 0, 3, 0)?;
    write_in(world, &files, 1)?;
    write_in(world, &files, 0)
}

fn fork_unsynced(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let parent = &mut world.sessions[0];
    let mut writer = parent.resume(&files)?;
    parent.append(&mut writer, 2, false).map_err(text)?;
    parent.append(&mut writer, 3, false).map_err(text)?;
    let last = parent.next_seq() as u64 - 1;
    fork_into(world, &files, 0, last - 3, 1)?;
    fork_into(world, &files, 0, last, 0)?;
    let parent = &mut world.sessions[0];
    parent.append(&mut writer, 1, true).map_err(text)
}

fn fork_with_closers(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    fork_into(world, &files, 0, 4, 3)?;
    write_in(world, &files, 1)
}

fn fork_of_fork(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    fork_into(world, &files, 1, 4, 2)?;
    fork_into(world, &files, 1, 2, 1)?;
    write_in(world, &files, 2)?;
    fork_into(world, &files, 2, 7, 0)?;
    write_in(world, &files, 4)
}

fn fork_written(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let parent = &mut world.sessions[0];
    let mut writer = parent.resume(&files)?;
    parent.append(&mut writer, 2, true).map_err(text)?;
    fork_into(world, &files, 0, 6, 1)?;
    let parent = &mut world.sessions[0];
    parent.append(&mut writer, 2, false).map_err(text)?;
    write_in(world, &files, 1)?;
    let parent = &mut world.sessions[0];
    parent.append(&mut writer, 1, true).map_err(text)?;
    fork_into(world, &files, 0, 7, 0)
}

fn append_in_family(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    for index in [3, 0, 1, 2] {
        write_in(world, &files, index)?;
    }
    Ok(())
}

fn delete(world: &mut World, files: &Files, index: usize) -> Fallible<()> {
    world.keep_secrets(index);
    world.sessions[index].delete(files)
}

fn delete_parent(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    delete(world, &files, 0)?;
    write_in(world, &files, 1)
}

fn delete_fork(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    delete(world, &files, 3)?;
    delete(world, &files, 2)?;
    write_in(world, &files, 0)
}

fn delete_middle(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    delete(world, &files, 1)?;
    write_in(world, &files, 3)
}

fn delete_all(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    for index in [1, 0, 3, 2] {
        delete(world, &files, index)?;
    }
    Ok(())
}

/// Forks at the end, where nothing has to be cut off when the parent goes.
fn fork_and_delete(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let last = world.sessions[0].next_seq() as u64 - 1;
    fork_into(world, &files, 0, last, 0)?;
    delete(world, &files, 0)?;
    write_in(world, &files, 1)
}

/// What a writer does that does not know yet that it was fenced.
fn stale(session: &Session, writer: &mut LogWriter) -> Fallible<()> {
    let mut copy = session.clone();
    match copy.append(writer, 2, true) {
        Ok(()) => Err("a fenced writer acknowledged (I8)".into()),
        Err(WriteError::Fenced { .. }) => Ok(()),
        Err(other) => Err(text(other)),
    }
}

fn take_over(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    let mut old = session.resume(&files)?;
    session.append(&mut old, 2, true).map_err(text)?;
    session.append(&mut old, 1, false).map_err(text)?;
    // A write of the old one that is on its way and arrives late.
    let late = vfs.open(&session.log(), Mode::Append).map_err(text)?;
    let bytes = batch(session.next_seq() as u64, 2, 555).concat();
    let mut new = session.take_over(&files)?;
    stale(session, &mut old)?;
    late.append(&bytes).map_err(text)?;
    session.append(&mut new, 2, true).map_err(text)?;
    stale(session, &mut old)?;
    session.append(&mut new, 1, false).map_err(text)?;
    session.append(&mut new, 3, true).map_err(text)?;
    drop(new);
    // The old one still lives, so the log goes on elsewhere once more.
    session.renewed = true;
    let mut third = session.resume(&files)?;
    session.append(&mut third, 1, true).map_err(text)
}

/// A sync has failed, and what can be read behind the last good one is not on stable storage.
fn one_doubted() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    fail_sync(&vfs, &mut world.sessions[0]).expect("a failed sync");
    (vfs, world)
}

fn recover_doubted(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    for round in 1..=2 {
        let mut writer = session.resume(&files)?;
        session.append(&mut writer, round, true).map_err(text)?;
    }
    Ok(())
}

/// Returns the writer whose sync has failed.
fn fail_sync(vfs: &MemVfs, session: &mut Session) -> Fallible<LogWriter> {
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    let mut writer = session.resume(&files(&FaultVfs::new(vfs.clone(), plan))?)?;
    match session.append(&mut writer, 2, true) {
        Ok(()) => Err("a failed sync was acknowledged".into()),
        Err(_) => {
            // What was not synced before is in doubt too, and the next writer does not believe it.
            session.written = session.synced;
            Ok(writer)
        }
    }
}

fn take_over_doubted(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let session = &mut world.sessions[0];
    // Somebody holds the session and has not begun.
    let _old = files(vfs)?.claim(&session.id).map_err(text)?;
    let mut new = session.take_over(&files(vfs)?)?;
    session.append(&mut new, 2, true).map_err(text)?;
    session.append(&mut new, 1, true).map_err(text)
}

fn take_over_twice(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    let mut first = session.resume(&files)?;
    session.append(&mut first, 1, true).map_err(text)?;
    let mut second = session.take_over(&files)?;
    session.append(&mut second, 2, true).map_err(text)?;
    let mut third = session.take_over(&files)?;
    stale(session, &mut second)?;
    stale(session, &mut first)?;
    session.append(&mut third, 1, true).map_err(text)
}

fn take_over_parent(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[1];
    let mut old = session.resume(&files)?;
    session.append(&mut old, 1, true).map_err(text)?;
    let mut new = session.take_over(&files)?;
    session.append(&mut new, 2, true).map_err(text)?;
    let last = session.next_seq() as u64 - 1;
    fork_into(world, &files, 1, last, 0)?;
    fork_into(world, &files, 1, 4, 1)?;
    stale(&world.sessions[1], &mut old)?;
    write_in(world, &files, 2)
}

/// The fork shares a file that is frozen by the take-over, and that nothing is cut from.
fn take_over_forked_delete(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let last = world.sessions[0].next_seq() as u64 - 1;
    fork_into(world, &files, 0, last, 0)?;
    let session = &mut world.sessions[0];
    let old = session.resume(&files)?;
    let mut new = session.take_over(&files)?;
    session.append(&mut new, 2, true).map_err(text)?;
    session.checkpoint(&mut new)?;
    drop((old, new));
    delete(world, &files, 0)?;
    write_in(world, &files, 1)
}

fn checkpoints(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let session = &mut world.sessions[0];
    for round in 1..=2 {
        let mut writer = session.resume(&files)?;
        session.append(&mut writer, round, false).map_err(text)?;
        session.checkpoint(&mut writer)?;
        session.append(&mut writer, 2, true).map_err(text)?;
        session.checkpoint(&mut writer)?;
        session.append(&mut writer, 1, false).map_err(text)?;
    }
    Ok(())
}

fn checkpoints_in_fork(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    for index in [1, 0] {
        let session = &mut world.sessions[index];
        let mut writer = session.resume(&files)?;
        session.append(&mut writer, 1, false).map_err(text)?;
        session.checkpoint(&mut writer)?;
        session.append(&mut writer, 1, true).map_err(text)?;
        session.checkpoint(&mut writer)?;
    }
    Ok(())
}

fn import(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let mut session = Session::new(30);
    let lines = batch(0, 5, 0);
    let pieces = [(session.header.clone(), lines.concat(), 4)];
    session.tried = vec![lines];
    world.sessions.push(session);
    world.sessions[0]
        .import(&files(vfs)?, &pieces)
        .map_err(text)?;
    write_in(world, &files(vfs)?, 0)
}

fn import_pieces(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let (session, pieces) = two_pieces(Session::new(31).id)?;
    world.sessions.push(session);
    world.sessions[0]
        .import(&files(vfs)?, &pieces)
        .map_err(text)?;
    write_in(world, &files(vfs)?, 0)
}

/// Damages event 2 of a piece's file, and says how it is repaired: it is replaced by another one.
fn damage(vfs: &MemVfs, session: &mut Session, file: usize) {
    let mut lines = session.owned();
    let mut old = Vec::new();
    let pieces: &[&str] = if session.header.windows(6).any(|it| it == b"\"base\"") {
        &["base-0.jsonl", "log.jsonl"]
    } else {
        &["log.jsonl"]
    };
    let path = session.dir().join(pieces[file]);
    let content = vfs.content(&path).expect("a piece");
    let spoiled = spoil(&lines[2], &content).expect("a line");
    vfs.put(&path, &spoiled).expect("damage");
    for name in pieces {
        let path = session.dir().join(name);
        old.push((path.clone(), vfs.content(&path).expect("a piece")));
    }
    lines[2] = batch(2, 1, 33).remove(0);
    session.tried = vec![lines];
    session.synced = session.next_seq();
    session.repair = Some(Repair {
        old,
        new: Vec::new(),
    });
}

fn one_damaged() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    let session = &mut world.sessions[0];
    damage(&vfs, session, 0);
    let lines = session.owned();
    let last = lines.len() as u64 - 1;
    let new = vec![(session.header.clone(), lines.concat(), last)];
    session.repair.as_mut().expect("a repair").new = new;
    (vfs, world)
}

/// The parent of a fork is damaged where the fork has no part of it.
fn forked_damaged() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    fork_into(&mut world, &files(&vfs).expect("a store"), 0, 1, 1).expect("a fork");
    let session = &mut world.sessions[0];
    damage(&vfs, session, 0);
    let lines = session.owned();
    let last = lines.len() as u64 - 1;
    let new = vec![(session.header.clone(), lines.concat(), last)];
    session.repair.as_mut().expect("a repair").new = new;
    (vfs, world)
}

/// A fork whose prefix is damaged; its parent is gone.
fn fork_damaged() -> (MemVfs, World) {
    let (vfs, mut world) = one_grown();
    let store = files(&vfs).expect("a store");
    fork_into(&mut world, &store, 0, 3, 2).expect("a fork");
    world.sessions[0].delete(&store).expect("a deletion");
    let session = &mut world.sessions[1];
    damage(&vfs, session, 0);
    // What is repaired is one file, under the session's own header.
    let line = session.header.strip_suffix(b"\n").expect("a header");
    let (mut header, _) = threadline_session::Header::decode(line).expect("a header");
    header.base = None;
    session.header = header.encode().expect("a header");
    let lines = session.owned();
    let last = lines.len() as u64 - 1;
    let new = vec![(session.header.clone(), lines.concat(), last)];
    session.repair.as_mut().expect("a repair").new = new;
    (vfs, world)
}

fn mend(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    let damaged = world.sessions.iter().position(|it| it.repair.is_some());
    let index = damaged.ok_or("nothing to repair")?;
    world.sessions[index].mend(&files).map_err(text)?;
    write_in(world, &files, index)
}

const BLOB: &[u8] = &[0x5a; 1_300];

fn one_with_blob() -> (MemVfs, World) {
    let (vfs, mut world) = one_created();
    let id = BlobId::of(BLOB);
    files(&vfs)
        .expect("a store")
        .put_blob(&id, BLOB)
        .expect("a blob");
    world.blobs.push(Blob {
        id,
        bytes: BLOB.to_vec(),
        kept: true,
    });
    (vfs, world)
}

fn blobs(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let files = files(vfs)?;
    for bytes in [BLOB, b"small", BLOB] {
        let id = BlobId::of(bytes);
        if !world.blobs.iter().any(|blob| blob.id == id) {
            world.blobs.push(Blob {
                id: id.clone(),
                bytes: bytes.to_vec(),
                kept: false,
            });
        }
        files.put_blob(&id, bytes).map_err(text)?;
        let mut blobs = world.blobs.iter_mut();
        blobs.find(|blob| blob.id == id).ok_or("no blob")?.kept = true;
        let session = &mut world.sessions[0];
        let mut writer = session.resume(&files)?;
        session.append_naming(&mut writer, id.as_str())?;
    }
    Ok(())
}

fn delete_blob(vfs: &MemVfs, world: &mut World) -> Fallible<()> {
    let store = files(vfs)?;
    let stat = store.blobs().map_err(text)?.remove(0);
    world.blobs[0].kept = false;
    if !store.delete_blob(&stat).map_err(text)? {
        return Err("the blob was not deleted".into());
    }
    // It is put again before an event names it.
    blobs(vfs, world)
}
