//! The power is cut while sessions are written, then everything acknowledged is looked for.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use threadline_store::{AppendError, AppendOptions, SessionStore, SessionWriter};
use tokio::runtime::Runtime;

use super::{
    Fallible, check, conclude,
    ledger::Ledger,
    machine::Machine,
    number,
    rng::{Rng, seed},
    runtime,
    script::Script,
    tell, tell_skipped, text,
    volume::{Fs, Volume, cut, try_out, unable},
};

/// Cycles on one file system before it is made anew.
const CYCLES_PER_IMAGE: u64 = 5;
/// Sessions that are taken along from one cycle to the next.
const SESSIONS_KEPT: usize = 4;
/// What a workload does at most once the power should be gone.
const MOST_OPS: i64 = 100_000;

/// Cuts the power once enough has been done.
#[derive(Debug)]
struct Switch {
    point: PathBuf,
    flush_log: bool,
    /// Whether the workload goes on while the power is cut. If not, the cut is exactly where the
    /// seed puts it.
    aside: bool,
    left: AtomicI64,
    begun: Arc<AtomicBool>,
    outcome: Mutex<Vec<std::thread::JoinHandle<Fallible<()>>>>,
}

impl Switch {
    /// Notes that something is about to be done. Returns whether the workload should give up
    /// waiting for the power to go.
    fn tick(&self) -> bool {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left == 0 {
            self.begun.store(true, Ordering::SeqCst);
            let (point, flush_log) = (self.point.clone(), self.flush_log);
            let thread = std::thread::spawn(move || cut(&point, flush_log));
            let thread = if self.aside {
                thread
            } else {
                let done = thread.join().expect("the cut");
                std::thread::spawn(move || done)
            };
            self.outcome.lock().expect("no panic").push(thread);
        }
        left < -MOST_OPS
    }

    /// Takes an error for the end if the power may be gone.
    fn excuse(&self, error: impl std::error::Error) -> Fallible<()> {
        check(self.begun.load(Ordering::SeqCst), || {
            format!("failed before the power was cut: {}", text(error))
        })
    }
}

/// Writes sessions until the power is gone.
struct Worker {
    store: SessionStore,
    switch: Arc<Switch>,
    rng: Rng,
    /// The one that is written is the first.
    ledgers: VecDeque<Ledger>,
}

/// A session that is open for writing.
struct Open {
    writer: SessionWriter,
    script: Script,
    /// Whether the session was created: one that could not be may be tried again.
    stored: bool,
}

impl Worker {
    async fn work(mut self) -> Fallible<VecDeque<Ledger>> {
        let mut open = None;
        loop {
            if self.switch.tick() {
                return Err("the power was not cut".into());
            }
            let Some(current) = &mut open else {
                open = self.open().await?;
                if open.is_none() {
                    return Ok(self.ledgers);
                }
                continue;
            };
            match self.step(current).await? {
                Next::Same => {}
                Next::Other => open = None,
                Next::End => return Ok(self.ledgers),
            }
        }
    }

    /// Opens an old session or begins a new one. `None` is the end.
    async fn open(&mut self) -> Fallible<Option<Open>> {
        let count = self.ledgers.len();
        if count == 0 || (count < SESSIONS_KEPT && self.rng.one_in(3)) {
            let mut ledger = Ledger::new(&mut self.rng);
            ledger.cut_by(self.switch.begun.clone());
            let writer = self.store.begin(ledger.header.clone()).map_err(text)?;
            self.ledgers.push_front(ledger);
            let script = Script::after(0);
            return Ok(Some(Open {
                writer,
                script,
                stored: false,
            }));
        }
        let at = self.rng.below(count as u64) as usize;
        self.ledgers.swap(0, at);
        let loaded = match self.store.load(self.ledgers[0].id()).await {
            Ok(loaded) => loaded,
            Err(error) => return self.switch.excuse(error).map(|()| None),
        };
        check(loaded.closed == 0, || "an ended turn was closed".into())?;
        let script = Script::after(loaded.writer.facts().turns);
        let writer = loaded.writer;
        Ok(Some(Open {
            writer,
            script,
            stored: true,
        }))
    }

    async fn step(&mut self, open: &mut Open) -> Fallible<Next> {
        let ledger = &mut self.ledgers[0];
        let stored = open.stored;
        if stored && open.script.between_turns() && self.rng.one_in(4) {
            return Ok(Next::Other);
        }
        match self.rng.below(12) {
            0 if stored => {
                let done = ledger.retitle(&self.store, &mut self.rng).await?;
                check(done || self.switch.begun.load(Ordering::SeqCst), || {
                    "setting a title failed before the power was cut".into()
                })?;
                return Ok(if done { Next::Same } else { Next::End });
            }
            1 if stored => match open.writer.flush().await {
                Ok(durable) => {
                    ledger.acknowledged(durable);
                    return check(ledger.claimed() == ledger.events(), || {
                        "a flush is not durable".into()
                    })
                    .map(|()| Next::Same);
                }
                Err(error) => return self.refused(open, error).await,
            },
            _ => {}
        }
        let first = ledger.events() as u64;
        let (payloads, barrier) = open.script.next(&mut self.rng);
        let events = threadline_store::contract::script::events_from(first, &payloads);
        let key = self.rng.one_in(6).then(|| format!("key-{first}"));
        let options = AppendOptions { key, barrier };
        match ledger.append(&open.writer, events, options).await? {
            Ok(_) => {
                open.stored = true;
                Ok(Next::Same)
            }
            Err(error) => self.refused(open, error).await,
        }
    }

    /// After a failure the writer must take nothing more.
    async fn refused(&mut self, open: &Open, error: AppendError) -> Fallible<Next> {
        check(matches!(error, AppendError::Poisoned { .. }), || {
            format!("not typed as poisoned: {}", text(&error))
        })?;
        self.switch.excuse(error)?;
        if open.stored {
            let ledger = &self.ledgers[0];
            ledger.refused(&open.writer, &mut self.rng).await?;
        }
        Ok(Next::End)
    }
}

enum Next {
    Same,
    Other,
    End,
}

/// What the cycles of one file system showed.
#[derive(Debug, Default)]
struct Counts {
    cycles: u64,
    acknowledged: u64,
    recoveries: u64,
    /// Acknowledgements that are not counted, see [`Ledger::acknowledged`].
    in_flight: u64,
    in_flight_lost: u64,
    /// Events that were not acknowledged and are gone, which is allowed.
    dropped: u64,
    failures: Vec<String>,
}

struct Cycles<'a> {
    runtime: &'a Runtime,
    seed: u64,
    fs: Fs,
    counts: Counts,
}

impl Cycles<'_> {
    fn run(&mut self, cycles: u64) {
        let mut images = 0..cycles.div_ceil(CYCLES_PER_IMAGE);
        for image in &mut images {
            let first = image * CYCLES_PER_IMAGE;
            let last = cycles.min(first + CYCLES_PER_IMAGE);
            if let Err(what) = self.image(first, last) {
                let at = format!("{} cycle {}", self.fs, self.counts.cycles);
                self.counts
                    .failures
                    .push(format!("{at}, seed {}: {what}", self.seed));
            }
        }
    }

    fn image(&mut self, first: u64, last: u64) -> Fallible<()> {
        let mut volume = Volume::new(self.fs)?;
        let mut ledgers = Vec::new();
        for cycle in first..last {
            self.counts.cycles += 1;
            ledgers = self.cycle(&mut volume, cycle, ledgers)?;
        }
        Ok(())
    }

    fn cycle(
        &mut self,
        volume: &mut Volume,
        cycle: u64,
        ledgers: Vec<Ledger>,
    ) -> Fallible<Vec<Ledger>> {
        let mut rng = Rng::new(self.seed, self.fs as u64, cycle);
        let aside = rng.one_in(2);
        let switch = Arc::new(Switch {
            point: volume.point().to_owned(),
            flush_log: rng.one_in(5),
            aside,
            left: AtomicI64::new(rng.below(120) as i64),
            begun: Arc::default(),
            outcome: Mutex::new(Vec::new()),
        });
        volume.mount()?;
        let store = Machine::boot(2 * cycle).store(&volume.root())?;
        let mut hands = vec![VecDeque::new()];
        if rng.one_in(2) {
            hands.push(VecDeque::new());
        }
        let count = hands.len();
        for (at, mut ledger) in ledgers.into_iter().enumerate() {
            ledger.cut_by(switch.begun.clone());
            hands[at % count].push_back(ledger);
        }
        let tasks: Vec<_> = hands
            .into_iter()
            .map(|ledgers| Worker {
                store: store.clone(),
                switch: switch.clone(),
                rng: Rng::new(rng.next(), 0, 0),
                ledgers,
            })
            .map(|worker| self.runtime.spawn(worker.work()))
            .collect();
        let mut ledgers = Vec::new();
        for task in tasks {
            let ended = self.runtime.block_on(task);
            ledgers.extend(ended.map_err(|e| format!("a panic (I4): {e}"))??);
        }
        let cut = std::mem::take(&mut *switch.outcome.lock().expect("no panic"));
        for thread in cut {
            thread.join().expect("the cut")?;
        }
        drop(store);
        volume.unmount()?;
        volume.mount()?;
        let store = Machine::boot(2 * cycle + 1).store(&volume.root())?;
        let checked = self.look(&store, volume, &mut rng, ledgers);
        drop(store);
        let mut ledgers = checked?;
        if rng.one_in(2) {
            // All that the recovery has acknowledged must stand a second cut.
            volume.cut(false)?;
            volume.unmount()?;
            volume.mount()?;
            let store = Machine::boot(2 * cycle + 2).store(&volume.root())?;
            for ledger in &mut ledgers {
                self.runtime.block_on(ledger.examine(&store))?;
            }
        }
        volume.unmount()?;
        ledgers.truncate(SESSIONS_KEPT);
        Ok(ledgers)
    }

    /// Looks for everything, recovers, and goes on.
    fn look(
        &mut self,
        store: &SessionStore,
        volume: &Volume,
        rng: &mut Rng,
        ledgers: Vec<Ledger>,
    ) -> Fallible<Vec<Ledger>> {
        let mut kept = Vec::new();
        for mut ledger in ledgers {
            let (sure, claimed) = (ledger.durable(), ledger.claimed());
            self.counts.in_flight += u64::from(ledger.cut_done());
            self.counts.acknowledged += sure as u64;
            let before = ledger.events();
            if self.runtime.block_on(ledger.examine(store))? {
                self.counts.in_flight_lost += u64::from(ledger.events() < claimed);
                self.counts.dropped += (before - ledger.events()) as u64;
                let root = volume.root();
                self.runtime.block_on(ledger.recover(store, &root, rng))?;
                self.counts.recoveries += 1;
                kept.push(ledger);
            }
        }
        Ok(kept)
    }
}

#[test]
#[ignore = "mounts file systems as root: cargo xtask test disks"]
fn no_power_cut_loses_what_was_acknowledged() {
    let wanted = number("THREADLINE_POWER_CUTS").unwrap_or(50);
    let share = |fs| match fs {
        Fs::Ext4 => wanted.div_ceil(2),
        _ => wanted / 2,
    };
    if let Err(why) = unable(&["xfs_io"]) {
        tell_skipped("power cuts", 0, wanted, &why);
        return;
    }
    let mut skipped = Vec::new();
    let mut usable = Vec::new();
    for fs in [Fs::Ext4, Fs::Xfs] {
        match try_out(fs, true) {
            Ok(()) => usable.push(fs),
            Err(why) => skipped.push((share(fs), format!("{fs}: {why}"))),
        }
    }
    let seed = seed();
    tell(&format!(
        "seed {seed}; replay with THREADLINE_SEED={seed} THREADLINE_POWER_CUTS={wanted} cargo \
         xtask test disks"
    ));
    let runtime = runtime();
    let counts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = usable
            .iter()
            .map(|fs| {
                let mut cycles = Cycles {
                    runtime: &runtime,
                    seed,
                    fs: *fs,
                    counts: Counts::default(),
                };
                scope.spawn(move || {
                    cycles.run(share(*fs));
                    cycles.counts
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let run = sum(|c| c.cycles);
    for (count, why) in skipped {
        tell_skipped("power cuts", run, count, &why);
    }
    let failures: Vec<_> = counts.iter().flat_map(|c| c.failures.clone()).collect();
    let each: Vec<_> = usable
        .iter()
        .zip(&counts)
        .map(|(fs, counts)| format!("{} {fs}", counts.cycles))
        .collect();
    tell(&format!(
        "power cuts: {run} cycles ({}), {} acknowledged events, {} lost; {} recoveries, {} events \
         dropped that were not acknowledged; {} syncs returned while the file system was shut down \
         and are not counted ({} of them came to nothing)",
        each.join(", "),
        sum(|c| c.acknowledged),
        failures.iter().filter(|what| what.contains("(I1)")).count(),
        sum(|c| c.recoveries),
        sum(|c| c.dropped),
        sum(|c| c.in_flight),
        sum(|c| c.in_flight_lost),
    ));
    conclude("power cuts", &failures);
    assert!(run == 0 || sum(|c| c.acknowledged) > 0);
}
