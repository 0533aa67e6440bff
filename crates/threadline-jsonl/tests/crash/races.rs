//! Writers that were fenced between the steps of opening, deleting or repairing a session, in every
//! order that two processes can be in.

use threadline_jsonl::{
    LogWriter,
    sim::{Kept, MemVfs},
};
use threadline_store::{LogEnd, WriteError};

use crate::world::{Fallible, Session, batch, files, read, text};

/// A session with three events, and with a torn batch behind them if asked for.
fn start(torn: bool) -> (MemVfs, Session) {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let store = files(&vfs).expect("a store");
    session.create(&store, 3).map(drop).expect("a session");
    if torn {
        let mut log = vfs.content(&session.log()).expect("a log");
        log.extend_from_slice(&batch(3, 2, 5)[0]);
        log.extend_from_slice(b"{\"v\":1,\"seq\":4");
        vfs.put(&session.log(), &log).expect("a torn log");
    }
    (vfs, session)
}

/// What was acknowledged is there, now and after the power was cut.
fn whole(vfs: &MemVfs, session: &Session) -> Fallible<()> {
    for image in [vfs.fork(), vfs.power_cut(Kept::Nothing)] {
        let log = read(&files(&image)?, &session.id, 1 << 20)?;
        if let Some(damage) = log.damage.first() {
            return Err(text(damage));
        }
        let expected = session.owned();
        if log.lines.get(..session.synced) != expected.get(..session.synced) {
            return Err(format!(
                "{} events of {} acknowledged ones (I1)",
                log.lines.len(),
                session.synced
            ));
        }
        if log.lines.len() > expected.len() {
            return Err("more events than the one in force attempted (I8)".into());
        }
    }
    Ok(())
}

/// Whoever was fenced must be told so, now or at its first append.
fn is_fenced(
    begun: Result<threadline_store::Begun, WriteError>,
    writer: &mut LogWriter,
) -> Fallible<()> {
    let late = batch(50, 1, 99).concat();
    let outcome = begun.and_then(|_| writer.append(&late, 50, true));
    match outcome {
        Err(WriteError::Fenced { .. }) => Ok(()),
        other => Err(format!("not fenced, but {other:?} (I8)")),
    }
}

/// The first one claims and reads; another one takes over and appends; the first one begins.
fn fenced_before_it_began(torn: bool) -> Fallible<()> {
    let (vfs, mut session) = start(torn);
    let store = files(&vfs)?;
    let mut first = store.claim(&session.id).map_err(text)?;
    let end: LogEnd = session.end(&store)?;
    let mut second = session.take_over(&store)?;
    session.append(&mut second, 2, true).map_err(text)?;
    let begun = first.begin(end);
    is_fenced(begun, &mut first)?;
    session.append(&mut second, 1, true).map_err(text)?;
    whole(&vfs, &session)
}

#[test]
fn a_writer_that_is_fenced_before_it_begins_takes_nothing_from_its_successor() {
    assert_eq!(fenced_before_it_began(false), Ok(()));
}

#[test]
fn a_writer_that_is_fenced_before_it_cuts_a_torn_end_takes_nothing_from_its_successor() {
    assert_eq!(fenced_before_it_began(true), Ok(()));
}

/// A holder is taken over by one that is itself taken over before it begins.
fn overtaken_while_taking_over(begins: &[u8]) -> Fallible<()> {
    let (vfs, mut session) = start(false);
    let store = files(&vfs)?;
    let mut holder = session.resume(&store)?;
    session.append(&mut holder, 1, true).map_err(text)?;
    let mut second = store.take_over(&session.id).map_err(text)?;
    let end = session.end(&store)?;
    session.renewed = true;
    for step in begins {
        match step {
            b'3' => {
                let mut third = session.take_over(&store)?;
                session.append(&mut third, 2, true).map_err(text)?;
            }
            _ => {
                let begun = second.begin(end.clone());
                is_fenced(begun, &mut second)?;
            }
        }
    }
    whole(&vfs, &session)
}

#[test]
fn a_take_over_that_is_itself_taken_over_before_it_begins_takes_nothing_from_its_successor() {
    assert_eq!(overtaken_while_taking_over(b"32"), Ok(()));
}

#[test]
fn a_repair_that_was_taken_over_takes_nothing_from_its_successor() {
    let outcome = || -> Fallible<()> {
        let (vfs, mut session) = start(false);
        let store = files(&vfs)?;
        let mut repair = store.replace(&session.id).map_err(text)?;
        repair.header(&session.header).map_err(text)?;
        let lines = session.owned().concat();
        repair.lines(&lines, 2).map_err(text)?;
        let mut second = session.take_over(&store)?;
        session.append(&mut second, 2, true).map_err(text)?;
        let finished = repair.finish();
        whole(&vfs, &session)?;
        match finished {
            Err(_) => Ok(()),
            Ok(()) => Err("a fenced repair was acknowledged (I8)".into()),
        }
    };
    assert_eq!(outcome(), Ok(()));
}

#[test]
fn a_take_over_that_dies_half_way_leaves_what_was_known_of_a_failed_sync() {
    use threadline_jsonl::sim::{Fault, FaultVfs, Op, Plan};
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    for n in 1..=4 {
        let (vfs, mut session) = start(false);
        let faulty = FaultVfs::new(vfs.clone(), plan);
        let mut holder = session
            .resume(&files(&faulty).expect("a store"))
            .expect("a claim");
        session
            .append(&mut holder, 2, true)
            .expect_err("the sync fails");
        vfs.freeze_at(n);
        let store = files(&vfs).expect("a store");
        store.take_over(&session.id).map(drop).ok();
        // Nobody else has died; the taker's handles are gone with it.
        let image = vfs.fork();
        let mut after = session.clone();
        let outcome = || -> Fallible<()> {
            let store = files(&image)?;
            let mut third = after.resume(&store)?;
            after.append(&mut third, 2, true).map_err(text)?;
            whole(&image, &after)
        };
        let mut outcome = outcome;
        assert_eq!(outcome(), Ok(()), "the take-over died at {n}");
    }
}
