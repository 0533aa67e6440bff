//! Kills at random moments, many of them, over sessions that grow.

use std::{
    collections::BTreeMap,
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::trial::Worker;

/// Kills that run at the same time.
const WORKERS: u64 = 2;

/// A small generator: the same seed gives the same moments.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// What all kills together showed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) acknowledged: u64,
    pub(crate) resumed: u64,
    pub(crate) moments: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.lost += other.lost;
        self.refused += other.refused;
        self.acknowledged += other.acknowledged;
        self.resumed += other.resumed;
        for (moment, count) in other.moments {
            *self.moments.entry(moment).or_default() += count;
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Past the capture of the test runner: these lines are the result.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn random_kills_lose_nothing_and_every_next_request_is_valid() {
    let wanted = number("THREADLINE_KILLS").unwrap_or(500);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("THREADLINE_SEED").unwrap_or(now.as_secs());
    tell(&format!(
        "seed {seed}; replay with THREADLINE_SEED={seed} THREADLINE_KILLS={wanted} \
         cargo test -p threadline-cli --test kill random"
    ));
    let threads: Vec<_> = (0..WORKERS)
        .map(|number| {
            let share = wanted / WORKERS + u64::from(number < wanted % WORKERS);
            std::thread::spawn(move || {
                let mut worker = Worker::new(number, seed);
                while worker.tally.kills < share {
                    worker.trial();
                }
                worker.tally
            })
        })
        .collect();
    let mut tally = Tally::default();
    for thread in threads {
        match thread.join() {
            Ok(part) => tally.add(part),
            Err(panic) => {
                tell(&format!("failed with seed {seed}"));
                std::panic::resume_unwind(panic);
            }
        }
    }
    for (moment, count) in &tally.moments {
        tell(&format!("  {count:>4}  {moment}"));
    }
    tell(&format!(
        "  {} acknowledged events checked, {} sessions resumed",
        tally.acknowledged, tally.resumed
    ));
    tell(&format!(
        "kills: {}, acknowledged events lost: {}, requests refused: {}",
        tally.kills, tally.lost, tally.refused
    ));
    assert_eq!((tally.lost, tally.refused), (0, 0));
    assert!(tally.kills >= wanted);
    assert!(tally.resumed > 0 && tally.acknowledged > 0);
}
