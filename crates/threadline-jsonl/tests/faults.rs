//! Every operation fails in every way, once or from then on; nothing acknowledged is lost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

/// Prints past the test harness, which would keep what a passing test says to itself.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

#[path = "crash/check.rs"]
mod check;
#[path = "crash/lineage.rs"]
mod lineage;
#[path = "crash/promises.rs"]
mod promises;
#[path = "crash/sweeps.rs"]
mod sweeps;
#[path = "crash/world.rs"]
mod world;

use std::{collections::BTreeMap, sync::Mutex};

use check::{Found, examine, recover};
use sweeps::{DEEDS, Deed};
use threadline_jsonl::{
    LogWriter,
    sim::{Fault, FaultVfs, Kept, MemVfs, Op, Plan},
};
use threadline_store::WriteError;
use world::{Fallible, Session, files, text};

const OPS: [Op; 15] = [
    Op::Open,
    Op::Read,
    Op::Append,
    Op::WriteAt,
    Op::SetLen,
    Op::SyncData,
    Op::SyncDir,
    Op::Rename,
    Op::Remove,
    Op::CreateDir,
    Op::Look,
    Op::Lock,
    Op::Link,
    Op::Copy,
    Op::Touch,
];

/// Where a workload starts.
#[derive(Debug, Clone, Copy)]
enum Start {
    Nothing,
    Created,
    /// Torn in the middle of a batch.
    Torn,
    /// After a failed sync, whose record is on stable storage.
    Doubted,
    /// Without the lock file, as after a copy or a cleaning.
    Unlocked,
}

const STARTS: [Start; 5] = [
    Start::Nothing,
    Start::Created,
    Start::Torn,
    Start::Doubted,
    Start::Unlocked,
];

fn setup(start: Start) -> (MemVfs, Session) {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    if let Start::Nothing = start {
        return (vfs, session);
    }
    let files = files(&vfs).expect("a store");
    session.create(&files, 2).expect("a session");
    let mut log = vfs.content(&session.log()).expect("a log");
    match start {
        Start::Nothing | Start::Created => {}
        Start::Torn => {
            let torn = world::batch(2, 3, 0);
            log.extend_from_slice(&torn[0]);
            log.extend_from_slice(&torn[1][..20]);
            session.tried.push(torn);
            vfs.put(&session.log(), &log).expect("a torn log");
        }
        Start::Doubted => {
            let (fault, op) = (Fault::SyncForgotten, Some(Op::SyncData));
            let faulty = FaultVfs::new(
                vfs.clone(),
                Plan {
                    op,
                    nth: 1,
                    fault,
                    sticky: false,
                },
            );
            let mut writer = session.resume(&world::files(&faulty).expect("a store"));
            let writer = writer.as_mut().expect("a claim");
            assert!(session.append(writer, 3, true).is_err());
        }
        Start::Unlocked => {
            let bare = MemVfs::new();
            bare.put(&session.log(), &log).expect("a log");
            return (bare, session);
        }
    }
    (vfs, session)
}

/// Appends until the writer is dead or the work is done.
fn work(vfs: &FaultVfs, session: &mut Session, start: Start) -> Fallible<()> {
    let files = files(vfs)?;
    let mut writer = match start {
        Start::Nothing => session.create(&files, 2)?,
        _ => session.resume(&files)?,
    };
    session.put_summary(&files).ok();
    for (events, sync) in [(1, false), (3, false), (2, true), (4, true), (1, false)] {
        match session.append(&mut writer, events, sync) {
            Ok(()) => {}
            // The writer can go on; the next batch takes the same place.
            Err(WriteError::StorageFull { .. }) => {}
            Err(first) => return refuses(&mut writer, session, &first),
        }
    }
    match session.sync(&mut writer) {
        Ok(()) => Ok(()),
        Err(first) => refuses(&mut writer, session, &first),
    }
}

/// After a failure nothing more is taken, and nothing reaches the file.
fn refuses(writer: &mut LogWriter, session: &Session, first: &WriteError) -> Fallible<()> {
    if !matches!(
        first,
        WriteError::Poisoned { .. } | WriteError::Fenced { .. }
    ) {
        return Err(format!("an unexpected failure: {first}"));
    }
    let mut copy = session.clone();
    let append = copy.append(writer, 1, false);
    let synced = copy.append(writer, 1, true);
    let sync = copy.sync(writer);
    if append.is_ok() || synced.is_ok() || sync.is_ok() {
        return Err("a writer went on after a failed write or sync (I7)".into());
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    failures: BTreeMap<String, (u64, String)>,
}

fn run(start: Start, plan: Plan, counts: &mut Counts) -> bool {
    counts.runs += 1;
    let (vfs, mut session) = setup(start);
    let faulty = FaultVfs::new(vfs.clone(), plan);
    let worked = work(&faulty, &mut session, start);
    let hit = faulty.hits() > 0;
    let mut after = session.clone();
    let outcome = match worked {
        Err(what) if what.contains("(I") || what.contains("unexpected") => Err(what),
        Err(what) if !hit => Err(format!("failed without a fault: {what}")),
        _ => Ok(()),
    };
    let outcome = outcome.and_then(|()| {
        // A failed creation may have come to its end or not.
        match examine(&vfs, &mut after, false)? {
            Found::Damaged => return Err("damage after a fault (I4)".into()),
            Found::Absent | Found::Fine | Found::Unrepaired => {}
        }
        recover(&vfs, &mut after)?;
        power_cuts(&vfs, &after, Kept::Nothing)?;
        power_cuts(&vfs, &after, Kept::All)
    });
    // The power may also be cut at once.
    let outcome = outcome.and_then(|()| {
        let (vfs, mut session) = setup(start);
        let faulty = FaultVfs::new(vfs.clone(), plan);
        work(&faulty, &mut session, start).ok();
        for kept in [Kept::Nothing, Kept::All, Kept::Names] {
            power_cuts(&vfs, &session, kept)?;
        }
        Ok(())
    });
    if let Err(what) = outcome {
        let place = format!("{start:?} {plan:?}");
        counts.failures.entry(what).or_insert_with(|| (0, place)).0 += 1;
    }
    hit
}

fn power_cuts(vfs: &MemVfs, session: &Session, kept: Kept) -> Fallible<()> {
    let image = vfs.power_cut(kept);
    let mut session = session.clone();
    match examine(&image, &mut session, false)? {
        Found::Damaged => Err("damage after a fault and a power cut (I4)".into()),
        Found::Absent | Found::Fine | Found::Unrepaired => recover(&image, &mut session),
    }
}

/// All plans, each until its fault does not happen any more.
fn plans(mut run: impl FnMut(Plan) -> bool) {
    let mut each = |op, fault, sticky| {
        for nth in 1.. {
            let plan = Plan {
                op,
                nth,
                fault,
                sticky,
            };
            if !run(plan) {
                break;
            }
        }
    };
    for fault in Fault::ALL {
        for op in OPS.into_iter().filter(|op| fault.befalls(*op)) {
            each(Some(op), fault, false);
            each(Some(op), fault, true);
        }
        // From some operation on nothing of what it can befall works any more.
        each(None, fault, true);
    }
}

/// What is swept over: a start of the plain writer, or a deed.
#[derive(Debug, Clone, Copy)]
enum Part {
    Writing(Start),
    Deed(Deed),
}

fn sweep_part(part: Part) -> Counts {
    let mut counts = Counts::default();
    match part {
        Part::Writing(start) => plans(|plan| run(start, plan, &mut counts)),
        Part::Deed(deed) => plans(|plan| {
            counts.runs += 1;
            let (hit, outcome) = sweeps::run(deed, plan);
            if let Err(what) = outcome {
                let place = format!("{deed:?} {plan:?}");
                counts.failures.entry(what).or_insert_with(|| (0, place)).0 += 1;
            }
            hit
        }),
    }
    counts
}

/// Sweeps on all cores. What each part counts does not depend on the others.
fn sweep() -> Vec<(Part, Counts)> {
    let mut parts: Vec<_> = STARTS.into_iter().map(Part::Writing).collect();
    parts.extend(DEEDS.into_iter().map(Part::Deed));
    let (left, done) = (Mutex::new(parts), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("the queue").pop();
                    let Some(part) = next else {
                        return;
                    };
                    let counts = sweep_part(part);
                    done.lock().expect("the results").push((part, counts));
                }
            });
        }
    });
    done.into_inner().expect("the results")
}

#[test]
fn after_any_failure_the_writer_refuses_and_nothing_acknowledged_is_lost() {
    let mut runs = 0;
    let mut failures = BTreeMap::new();
    for (part, counts) in sweep() {
        say!("{part:?}: {} fault runs", counts.runs);
        runs += counts.runs;
        for (what, (times, place)) in counts.failures {
            failures.entry(what).or_insert((0, place)).0 += times;
        }
    }
    let lost: u64 = failures.values().map(|(times, _)| times).sum();
    say!("fault runs: {runs}, broken promises: {lost}");
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(runs >= 10_000, "{runs} runs");
}

#[test]
fn when_storage_is_full_nothing_remains_and_the_writer_goes_on_without_a_gap() {
    for fault in [Fault::Enospc, Fault::HalfThenEnospc] {
        let (vfs, mut session) = setup(Start::Created);
        let plan = Plan {
            op: Some(Op::Append),
            nth: 2,
            fault,
            sticky: false,
        };
        let faulty = FaultVfs::new(vfs.clone(), plan);
        let mut writer = session
            .resume(&files(&faulty).expect("a store"))
            .expect("a claim");
        session
            .append(&mut writer, 2, false)
            .expect("the first batch");
        let before = vfs.content(&session.log()).expect("a log");
        let full = session.append(&mut writer, 3, true);
        assert!(
            matches!(full, Err(WriteError::StorageFull { .. })),
            "{full:?}"
        );
        assert_eq!(vfs.content(&session.log()).expect("a log"), before);
        session
            .append(&mut writer, 3, true)
            .expect("there is space again");
        drop(writer);
        let mut after = session.clone();
        assert_eq!(examine(&vfs, &mut after, true), Ok(Found::Fine));
        assert_eq!(after.tried, session.tried);
        assert_eq!(power_cuts(&vfs, &session, Kept::Nothing), Ok(()));
    }
}

#[test]
fn what_a_failed_sync_left_readable_is_not_believed_by_the_next_writer() {
    let (vfs, mut session) = setup(Start::Created);
    let plan = Plan {
        op: Some(Op::SyncData),
        nth: 1,
        fault: Fault::SyncForgotten,
        sticky: false,
    };
    let faulty = FaultVfs::new(vfs.clone(), plan);
    let mut writer = session
        .resume(&files(&faulty).expect("a store"))
        .expect("a claim");
    let failed = session.append(&mut writer, 3, true);
    assert!(
        matches!(failed, Err(WriteError::Poisoned { .. })),
        "{failed:?}"
    );
    drop(writer);
    let found = world::read(&files(&vfs).expect("a store"), &session.id, 1 << 20).expect("a log");
    assert_eq!(found.lines.len(), 2);
    assert!(found.torn.is_some());
    session
        .resume(&files(&vfs).expect("a store"))
        .map(drop)
        .map_err(text)
        .expect("a new claim");
    assert_eq!(session.tried.len(), 1);
}
