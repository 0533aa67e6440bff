//! Exhaustive crashes: every workload dies at every operation, and every image that the crash may
//! leave is opened, checked, continued, and crashed again.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "crash/check.rs"]
mod check;
#[path = "crash/workloads.rs"]
mod workloads;
#[path = "crash/world.rs"]
mod world;

use std::collections::BTreeMap;

use check::{Found, examine, recover};
use threadline_jsonl::sim::{Fate, Kept, MemVfs};
use workloads::{World, all};

#[derive(Debug, Default)]
struct Counts {
    states: u64,
    double: u64,
    damaged: u64,
    /// What failed: how often, and where first.
    failures: BTreeMap<String, (u64, String)>,
}

impl Counts {
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
    for session in &world.sessions {
        let mut session = session.clone();
        let outcome = examine(image, &mut session, killed).and_then(|found| {
            if found == Found::Damaged {
                counts.damaged += 1;
                return Ok(());
            }
            recover(image, &mut session)?;
            examine(&image.power_cut(Kept::Nothing), &mut session, false).map(drop)
        });
        if let Err(what) = outcome {
            counts.fail(&format!("{place}, {fate}"), &what);
        }
    }
    if !world.foreign_kept(image) {
        counts.fail(
            &format!("{place}, {fate}"),
            "a foreign file was touched (I10)",
        );
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
            fine &= matches!(found, Ok(Found::Fine | Found::Absent));
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

fn crash_everywhere(sample: u64) -> Counts {
    let mut counts = Counts::default();
    for workload in all() {
        for n in 1.. {
            let (vfs, mut world) = (workload.setup)();
            vfs.freeze_at(n);
            let outcome = (workload.run)(&vfs, &mut world);
            let place = format!("{} at {n}", workload.name);
            for (fate, image) in vfs.crash_states() {
                if counts.states % sample == 0 {
                    crash_again(&image.fork(), &world, &fate, &place, &mut counts);
                }
                counts.states += 1;
                check_image(&image, &world, &fate, &place, &mut counts);
            }
            if !vfs.is_frozen() {
                assert_eq!(outcome, Ok(()), "{}", workload.name);
                break;
            }
        }
    }
    counts
}

#[test]
fn no_crash_at_any_operation_loses_what_was_acknowledged() {
    let counts = crash_everywhere(150);
    let Counts {
        states,
        double,
        damaged,
        failures,
    } = &counts;
    let lost: u64 = failures.values().map(|(times, _)| times).sum();
    println!(
        "crash states: {states}, double crash states: {double}, read-only: {damaged}, \
         acknowledged events lost: {lost}"
    );
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(
        *states >= 5_000 && *double >= 1_000,
        "{states} states, {double} double ones"
    );
}
