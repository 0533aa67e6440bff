//! Promises that seeded bugs break, each alone: no other test, or only a long sweep, catches those.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

#[path = "crash/world.rs"]
mod world;

use threadline_jsonl::sim::{Fault, FaultVfs, MemVfs, Op, Plan};
use threadline_session::Place;
use threadline_store::WriteError;
use world::{Session, batch, files};

/// A session with three events.
fn start() -> (MemVfs, Session) {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let store = files(&vfs).expect("a store");
    session.create(&store, 3).map(drop).expect("a session");
    (vfs, session)
}

#[test]
fn after_a_failed_sync_the_writer_refuses_everything_and_the_log_stays_as_it_was() {
    let (vfs, mut session) = start();
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    let store = files(&FaultVfs::new(vfs.clone(), plan)).expect("a store");
    let mut writer = session.resume(&store).expect("a claim");
    let failed = session.append(&mut writer, 2, true);
    let left = vfs.content(&session.log()).expect("a log");
    let outcomes = [
        failed,
        session.clone().append(&mut writer, 1, false),
        session.clone().append(&mut writer, 1, true),
        session.sync(&mut writer),
    ];
    for outcome in outcomes {
        let refused = matches!(outcome, Err(WriteError::Poisoned { .. }));
        assert!(refused, "{outcome:?}");
    }
    assert_eq!(vfs.content(&session.log()), Some(left));
}

#[test]
fn a_writer_whose_log_somebody_else_has_changed_is_fenced_and_appends_nothing() {
    let (vfs, session) = start();
    let log = vfs.content(&session.log()).expect("a log");
    let longer = [log.clone(), batch(3, 1, 9).concat()].concat();
    let shorter = log[..log.len() - 1].to_vec();
    for changed in [longer, shorter] {
        vfs.put(&session.log(), &log).expect("the log");
        let mut session = session.clone();
        let store = files(&vfs).expect("a store");
        let mut writer = session.resume(&store).expect("a claim");
        vfs.put(&session.log(), &changed).expect("a change");
        for sync in [true, false] {
            let outcome = session.clone().append(&mut writer, 2, sync);
            let fenced = matches!(outcome, Err(WriteError::Fenced { .. }));
            assert!(fenced, "{outcome:?}");
        }
        assert_eq!(vfs.content(&session.log()), Some(changed));
    }
}

#[test]
fn a_line_that_is_read_by_its_place_is_damage_once_a_byte_of_its_content_has_changed() {
    let (vfs, session) = start();
    let mut at = session.header.len();
    let places = session.lines().into_iter().zip(0..).map(|(line, seq)| {
        let place = Place {
            at: at as u64,
            len: u32::try_from(line.len()).expect("a short line"),
        };
        at += line.len();
        (seq, place)
    });
    let places: Vec<_> = places.collect();
    let read = || {
        let store = files(&vfs).expect("a store");
        store.lines(&session.id, &places).expect("lines")
    };
    assert!(read().iter().all(Result::is_ok));
    let mut log = vfs.content(&session.log()).expect("a log");
    // It still is the line of an event, and of this one.
    let from = usize::try_from(places[1].1.at).expect("a short log");
    let filler = memchr::memmem::find(&log[from..], b"filler").expect("its data");
    log[from + filler] = b'F';
    vfs.put(&session.log(), &log).expect("a change");
    let found = read();
    let sound: Vec<_> = found.iter().map(Result::is_ok).collect();
    assert_eq!(sound, [true, false, true]);
    let damage = found[1].as_ref().expect_err("damage");
    assert_eq!((damage.seq, damage.offset), (1, places[1].1.at));
}
