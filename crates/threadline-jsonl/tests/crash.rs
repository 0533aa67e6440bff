//! Exhaustive crashes: every workload dies at every operation, and every image that the crash may
//! leave is opened, checked, continued, and crashed again.

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

#[path = "crash/branches.rs"]
mod branches;
#[path = "crash/check.rs"]
mod check;
#[path = "crash/lineage.rs"]
mod lineage;
#[path = "crash/stores.rs"]
mod stores;
#[path = "crash/workloads.rs"]
mod workloads;
#[path = "crash/world.rs"]
mod world;

use std::{collections::BTreeMap, sync::Mutex};

use check::{Found, examine, recover};
use threadline_jsonl::sim::{Fate, Kept, MemVfs};
use workloads::{Workload, World, all};

/// Every how manyth image may be crashed again. Recovery has the same steps for most of them.
const SAMPLE: u64 = 50;

#[derive(Debug, Default)]
struct Counts {
    states: u64,
    double: u64,
    damaged: u64,
    /// What failed: how often, and where first.
    failures: BTreeMap<String, (u64, String)>,
}

impl Counts {
    fn add(&mut self, name: &str, other: Self) {
        self.states += other.states;
        self.double += other.double;
        self.damaged += other.damaged;
        for (what, (times, place)) in other.failures {
            self.failures
                .insert(format!("{name}: {what}"), (times, place));
        }
    }

    fn fail(&mut self, place: &str, what: &str) {
        self.failures
            .entry(what.into())
            .or_insert_with(|| (0, place.into()))
            .0 += 1;
    }
}

/// Checks one image: reads it, recovers, and cuts the power at the end, when everything
/// acknowledged must still be there.
fn check_image(image: &MemVfs, world: &World, fate: &Fate, place: &str, counts: &mut Counts) {
    let killed = !fate.is_power_cut();
    let place = format!("{place}, {fate}");
    if let Err(what) = world.secrets_gone(image, killed) {
        counts.fail(&place, &what);
    }
    if let Err(what) = world.blobs_kept(image) {
        counts.fail(&place, &what);
    }
    let mut recovered = Vec::new();
    for session in &world.sessions {
        let mut session = session.clone();
        let outcome = examine(image, &mut session, killed).and_then(|found| {
            if found == Found::Damaged {
                counts.damaged += 1;
                return Ok(());
            }
            recover(image, &mut session)?;
            examine(&image.power_cut(Kept::Nothing), &mut session, false)?;
            recovered.push(session);
            Ok(())
        });
        if let Err(what) = outcome {
            counts.fail(&place, &what);
        }
    }
    if recovered.len() > 1 {
        // What was done to one of them has changed none of the others.
        let image = image.power_cut(Kept::Nothing);
        for mut session in recovered {
            let events = session.next_seq();
            let outcome = examine(&image, &mut session, false);
            if outcome != Ok(Found::Fine) || session.next_seq() != events {
                let what = format!("after the recovery of all: {outcome:?}");
                counts.fail(&place, &what);
            }
        }
    }
    if !world.foreign_kept(image) {
        counts.fail(&place, "a foreign file was touched (I10)");
    }
}

/// Lets the recovery of one image die at each of its operations.
fn crash_again(image: &MemVfs, world: &World, fate: &Fate, place: &str, counts: &mut Counts) {
    for n in 1.. {
        let copy = image.fork();
        let mut world = world.clone();
        let mut fine = true;
        for session in &mut world.sessions {
            let found = examine(&copy, session, !fate.is_power_cut());
            fine &= matches!(found, Ok(Found::Fine | Found::Absent | Found::Unrepaired));
        }
        if !fine {
            // It is read-only, or was complained about already.
            return;
        }
        copy.freeze_at(n);
        for session in &mut world.sessions {
            let outcome = recover(&copy, session);
            if !copy.is_frozen()
                && let Err(what) = outcome
            {
                counts.fail(&format!("{place}, {fate}, recovery"), &what);
            }
        }
        if !copy.is_frozen() {
            return;
        }
        for (second, image) in copy.crash_states() {
            counts.double += 1;
            let place = format!("{place}, {fate}, then at {n}");
            check_image(&image, &world, &second, &place, counts);
        }
    }
}

/// Crashes a workload at each of its operations; some of its images are crashed again while they
/// are recovered.
fn crash_everywhere(workload: &Workload) -> Counts {
    let mut counts = Counts::default();
    for n in 1.. {
        let (vfs, mut world) = (workload.setup)();
        vfs.freeze_at(n);
        let outcome = (workload.run)(&vfs, &mut world);
        let place = format!("{} at {n}", workload.name);
        for (fate, image) in vfs.crash_states() {
            // As many as there are single ones, spread over all operations.
            if counts.states % SAMPLE == 0 && counts.double <= counts.states {
                crash_again(&image.fork(), &world, &fate, &place, &mut counts);
            }
            counts.states += 1;
            check_image(&image, &world, &fate, &place, &mut counts);
        }
        if !vfs.is_frozen() {
            if let Err(what) = outcome {
                counts.fail(workload.name, &what);
            }
            break;
        }
    }
    counts
}

/// Runs the workloads on all cores. What each counts does not depend on the others.
fn crash_all(workloads: Vec<Workload>) -> Vec<(&'static str, Counts)> {
    let left = Mutex::new(workloads);
    let done = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("the queue").pop();
                    let Some(workload) = next else {
                        return;
                    };
                    let counts = crash_everywhere(&workload);
                    let Counts { states, double, .. } = counts;
                    say!(
                        "{}: {states} crash states, {double} double crash states",
                        workload.name
                    );
                    let mut done = done.lock().expect("the results");
                    done.push((workload.name, counts));
                }
            });
        }
    });
    done.into_inner().expect("the results")
}

#[test]
fn no_crash_at_any_operation_loses_what_was_acknowledged() {
    let mut total = Counts::default();
    let only = std::env::var("THREADLINE_WORKLOAD").ok();
    let mut workloads: Vec<_> = all().into_iter().chain(branches::all()).collect();
    workloads.retain(|it| only.as_ref().is_none_or(|only| only == it.name));
    for (name, counts) in crash_all(workloads) {
        total.add(name, counts);
    }
    let Counts {
        states,
        double,
        damaged,
        failures,
    } = &total;
    let lost: u64 = failures.values().map(|(times, _)| times).sum();
    say!(
        "crash states: {states}, double crash states: {double}, read-only: {damaged}, \
         acknowledged events lost: {lost}"
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(
        only.is_some() || (*states >= 30_000 && *double >= 5_000),
        "{states} states, {double} double ones"
    );
}
