//! Small cases of what the sweeps are about, each of them alone.

use threadline_jsonl::sim::{Fault, FaultVfs, Kept, MemVfs, Op, Plan};

use crate::{
    check::{Found, examine, recover},
    lineage::{At, two_pieces},
    world::{Fallible, Session, files, text},
};

fn start() -> (MemVfs, Session) {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let store = files(&vfs).expect("a store");
    session.create(&store, 3).map(drop).expect("a session");
    (vfs, session)
}

/// Goes on in what is there, and cuts the power.
fn goes_on(vfs: &MemVfs, session: &Session) -> Fallible<()> {
    let mut session = session.clone();
    examine(vfs, &mut session, true)?;
    recover(vfs, &mut session)?;
    match examine(&vfs.power_cut(Kept::Nothing), &mut session, false)? {
        Found::Fine => Ok(()),
        other => Err(format!("{other:?} after a power cut")),
    }
}

/// Lets something die at each of its operations, and goes on in what a kill has left.
fn killed_everywhere(work: impl Fn(&MemVfs, &mut Session) -> Fallible<()>) {
    for n in 1.. {
        let (vfs, mut session) = start();
        vfs.freeze_at(n);
        work(&vfs, &mut session).ok();
        if !vfs.is_frozen() {
            return;
        }
        let outcome = goes_on(&vfs.fork(), &session);
        assert_eq!(outcome, Ok(()), "killed at {n}");
    }
}

#[test]
fn whoever_goes_on_after_a_take_over_was_killed_loses_nothing_at_a_power_cut() {
    killed_everywhere(|vfs, session| {
        let store = files(vfs)?;
        let mut old = session.resume(&store)?;
        session.append(&mut old, 2, true).map_err(text)?;
        session.take_over(&store).map(drop)
    });
}

#[test]
fn whoever_goes_on_after_an_import_was_killed_loses_nothing_at_a_power_cut() {
    killed_everywhere(|vfs, session| {
        let (imported, pieces) = two_pieces(Session::new(5).id)?;
        *session = imported;
        session.import(&files(vfs)?, &pieces).map_err(text)
    });
}

/// A sync of the log fails, and what it was to bring is lost in silence.
fn fail_a_sync(vfs: &MemVfs, session: &mut Session) -> Fallible<()> {
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    let mut writer = session.resume(&files(&FaultVfs::new(vfs.clone(), plan))?)?;
    match session.append(&mut writer, 2, true) {
        Ok(()) => Err("a failed sync was acknowledged".into()),
        Err(_) => Ok(()),
    }
}

#[test]
fn whoever_goes_on_after_a_recovery_from_a_failed_sync_was_killed_loses_nothing_at_a_power_cut() {
    for n in 1.. {
        let (vfs, mut session) = start();
        fail_a_sync(&vfs, &mut session).expect("a failed sync");
        vfs.freeze_at(n);
        let resumed = files(&vfs).and_then(|store| session.resume(&store).map(drop));
        if !vfs.is_frozen() {
            assert_eq!(resumed, Ok(()));
            return;
        }
        let outcome = goes_on(&vfs.fork(), &session);
        assert_eq!(outcome, Ok(()), "killed at {n}");
    }
}

#[test]
fn a_checkpoint_of_what_a_failed_sync_has_lost_is_not_believed() {
    let (vfs, mut session) = start();
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    let store = files(&FaultVfs::new(vfs.clone(), plan)).expect("a store");
    let mut writer = session.resume(&store).expect("a claim");
    session.append(&mut writer, 1, false).expect("a batch");
    session.checkpoint(&mut writer).expect("a checkpoint");
    session
        .append(&mut writer, 1, true)
        .expect_err("the sync fails");
    drop(writer);
    let store = files(&vfs).expect("a store");
    let found = store.checkpoint(&session.id, u64::MAX).expect("an index");
    assert!(
        found.as_ref().is_none_or(|it| it.next.seq <= 3),
        "it goes on at {:?}, and what is known to be durable ends before event 3",
        found.map(|it| it.next)
    );
}

#[test]
fn a_checkpoint_behind_a_hole_that_a_power_cut_has_left_is_not_believed() {
    let (vfs, mut session) = start();
    let store = files(&vfs).expect("a store");
    let mut writer = session.resume(&store).expect("a claim");
    session.append(&mut writer, 1, false).expect("a batch");
    session.append(&mut writer, 1, false).expect("a batch");
    session.checkpoint(&mut writer).expect("a checkpoint");
    drop(writer);
    for (fate, image) in vfs.crash_states() {
        let mut after = session.clone();
        let outcome = examine(&image, &mut after, !fate.is_power_cut()).map(drop);
        assert_eq!(outcome, Ok(()), "{fate}");
    }
}

/// Whether what only the deleted parent had is in any file.
fn has_secrets(vfs: &MemVfs, parent: &Session, from: usize) -> Option<String> {
    let secrets = &parent.owned()[from..];
    let with = vfs.files().into_iter().find(|path| {
        let content = vfs.content(path).unwrap_or_default();
        let has =
            |line: &Vec<u8>| memchr::memmem::find(&content, &line[..line.len() - 1]).is_some();
        secrets.iter().any(has)
    });
    with.map(|path| path.display().to_string())
}

#[test]
fn what_a_fork_that_was_never_finished_has_of_a_deleted_session_is_gone_too() {
    for n in 1.. {
        let (vfs, mut parent) = start();
        let mut fork = Session::new_fork(2);
        vfs.freeze_at(n);
        let at = At {
            parent: &parent,
            seq: 1,
        };
        let made = files(&vfs).and_then(|store| fork.fork(&store, &at, 0).map(drop));
        if !vfs.is_frozen() {
            assert_eq!(made, Ok(()));
            return;
        }
        let image = vfs.fork();
        let store = files(&image).expect("a store");
        parent.delete(&store).expect("a deletion");
        assert_eq!(has_secrets(&image, &parent, 2), None, "killed at {n}");
    }
}

#[test]
fn a_fork_whose_header_is_damaged_keeps_its_prefix_when_the_parent_is_deleted() {
    let (vfs, mut parent) = start();
    let store = files(&vfs).expect("a store");
    let mut fork = Session::new_fork(2);
    let at = At {
        parent: &parent,
        seq: 1,
    };
    drop(fork.fork(&store, &at, 0).expect("a fork"));
    let prefix = fork.dir().join("base-0.jsonl");
    let before = vfs.content(&prefix).expect("a prefix");
    let mut damaged = vfs.content(&fork.log()).expect("a log");
    damaged[2] ^= 1;
    vfs.put(&fork.log(), &damaged).expect("damage");
    parent.delete(&store).expect("a deletion");
    assert_eq!(vfs.content(&prefix), Some(before));
}

#[test]
fn what_a_deleted_session_had_before_its_repair_is_not_kept_by_its_forks() {
    let (vfs, mut parent) = start();
    let store = files(&vfs).expect("a store");
    let mut fork = Session::new_fork(2);
    let at = At {
        parent: &parent,
        seq: 1,
    };
    drop(fork.fork(&store, &at, 0).expect("a fork"));
    let mut repair = store.replace(&parent.id).expect("a claim");
    repair.header(&parent.header).expect("a header");
    let lines = parent.owned().concat();
    repair.lines(&lines, 2).expect("lines");
    repair.finish().expect("a repair");
    parent.delete(&store).expect("a deletion");
    assert_eq!(has_secrets(&vfs, &parent, 2), None);
}

#[test]
fn what_a_session_wrote_after_it_was_taken_over_is_not_kept_by_its_forks() {
    let (vfs, mut parent) = start();
    let store = files(&vfs).expect("a store");
    let mut old = parent.resume(&store).expect("a claim");
    parent.checkpoint(&mut old).expect("a checkpoint");
    let mut fork = Session::new_fork(2);
    let at = At {
        parent: &parent,
        seq: 2,
    };
    drop(fork.fork(&store, &at, 0).expect("a fork"));
    let mut new = parent.take_over(&store).expect("a take-over");
    parent.append(&mut new, 2, true).expect("a batch");
    parent.checkpoint(&mut new).expect("a checkpoint");
    drop((old, new));
    parent.delete(&store).expect("a deletion");
    assert_eq!(has_secrets(&vfs, &parent, 3), None);
}

/// A fenced writer's record is behind the base's end, and torn bytes may be there too.
#[test]
fn torn_bytes_of_a_log_that_is_taken_over_and_cannot_be_linked_are_kept() {
    let (vfs, mut session) = start();
    let mut log = vfs.content(&session.log()).expect("a log");
    log.extend_from_slice(b"{\"v\":1,torn");
    vfs.put(&session.log(), &log).expect("a torn log");
    let plan = Plan {
        op: Some(Op::Link),
        nth: 1,
        fault: Fault::LinkEperm,
        sticky: true,
    };
    let faulty = FaultVfs::new(vfs.clone(), plan);
    let _holder = files(&vfs)
        .expect("a store")
        .claim(&session.id)
        .expect("a claim");
    let taken = session.take_over(&files(&faulty).expect("a store"));
    drop(taken.expect("a take-over"));
    let kept = vfs.files().into_iter().any(|path| {
        let content = vfs.content(&path).unwrap_or_default();
        memchr::memmem::find(&content, b",torn").is_some()
    });
    assert!(kept, "damaged bytes are moved aside, never deleted (I10)");
}
