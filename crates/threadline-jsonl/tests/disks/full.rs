//! Disks without room: `StorageFull` is said, the log stays valid, and the same writer goes on once
//! there is room.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use threadline_jsonl::layout;
use threadline_store::{AppendError, ListFilter, OpenError, SessionStore, SessionWriter};

use super::{
    Fallible, check, conclude,
    ledger::Ledger,
    machine::Machine,
    rng::{Rng, seed},
    runtime, tell, tell_skipped, text,
    volume::{Filler, Fs, Volume, try_out, unable},
};

const SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Tmpfs];
const RUNS: u64 = 3;
/// What a disk takes at most that has only a little room left.
const MOST_BATCHES: u32 = 10_000;
/// Refusals of one writer.
const REFUSALS: u64 = 20;

#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    acknowledged: u64,
    refused: u64,
    creations: u64,
}

/// Appends until the disk is full, several times over.
async fn fill_up(
    ledger: &mut Ledger,
    writer: &SessionWriter,
    root: &Path,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Fallible<()> {
    let mut refused = 0;
    for _ in 0..MOST_BATCHES {
        let barrier = rng.one_in(3);
        match ledger.append_loose(writer, rng, barrier).await? {
            Ok(_) => continue,
            Err(AppendError::StorageFull { .. }) => {}
            Err(error) => return Err(format!("a full disk is not typed: {}", text(error))),
        }
        check(ledger.file(root)? == ledger.bytes(), || {
            "a refused batch has left something, or taken something".into()
        })?;
        refused += 1;
        counts.refused += 1;
        if refused == REFUSALS {
            return Ok(());
        }
    }
    Err("the disk does not get full".into())
}

/// Creates sessions until there is no room for one; returns it.
async fn create_in_vain(
    store: &SessionStore,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Fallible<(Ledger, SessionWriter)> {
    for _ in 0..MOST_BATCHES {
        let mut ledger = Ledger::new(rng);
        let writer = store.begin(ledger.header.clone()).map_err(text)?;
        match ledger.append_loose(&writer, rng, true).await? {
            Ok(_) => continue,
            Err(AppendError::StorageFull { .. }) => {}
            Err(error) => return Err(format!("creating: not typed: {}", text(error))),
        }
        counts.creations += 1;
        let id = ledger.id();
        check(!store.has(id).await.map_err(text)?, || {
            "a session that could not be created is there".into()
        })?;
        let filter = ListFilter::default();
        let rows = store.list(&filter, None, 500).await.map_err(text)?;
        let listed = rows.sessions.iter().any(|row| row.id == *id);
        let ids = store.ids().await.map_err(text)?;
        check(!listed && !ids.contains(id), || {
            "a session that could not be created is listed".into()
        })?;
        return Ok((ledger, writer));
    }
    Err("there is always room for one more session".into())
}

/// A torn end cannot be moved aside on a full disk; nothing is cut then.
async fn open_torn_in_vain(
    ledger: &mut Ledger,
    store: &SessionStore,
    root: &Path,
    filler: &mut Filler,
    rng: &mut Rng,
) -> Fallible<()> {
    let log = ledger.dir(root).join(layout::LOG);
    let torn = "{\"seq\":".repeat(2_000);
    let mut options = OpenOptions::new();
    let mut file = options.append(true).open(&log).map_err(text)?;
    file.write_all(torn.as_bytes()).map_err(text)?;
    file.sync_all().map_err(text)?;
    drop(file);
    filler.fill()?;
    let before = ledger.file(root)?;
    match store.load(ledger.id()).await {
        Err(OpenError::StorageFull { .. }) => {}
        Ok(_) => return Err("torn bytes were moved to where there is no room".into()),
        Err(error) => return Err(format!("opening: not typed: {}", text(error))),
    }
    check(ledger.file(root)? == before, || {
        "an opening that failed has changed the log".into()
    })?;
    filler.give(4 << 20)?;
    ledger.examine(store).await?;
    ledger.recover(store, root, rng).await
}

async fn run(fs: Fs, volume: &mut Volume, rng: &mut Rng, counts: &mut Counts) -> Fallible<()> {
    volume.mount()?;
    let root = volume.root();
    let store = Machine::boot(0).store(&root)?;
    let mut ledger = Ledger::new(rng);
    let writer = store.begin(ledger.header.clone()).map_err(text)?;
    for barrier in [true, false, true, false] {
        let appended = ledger.append_loose(&writer, rng, barrier).await?;
        appended.map_err(text)?;
    }
    ledger.retitle(&store, rng).await?;
    let mut filler = Filler::new(volume.point())?;
    filler.give(rng.below(64) * 4096)?;

    fill_up(&mut ledger, &writer, &root, rng, counts).await?;
    filler.fill()?;
    let (mut late, late_writer) = create_in_vain(&store, rng, counts).await?;
    ledger.retitle(&store, rng).await?;
    let events = ledger.events();
    ledger.examine(&store).await?;
    check(ledger.events() == events, || {
        "a running process cannot read what it has written".into()
    })?;

    filler.free()?;
    for barrier in [false, true, false, true] {
        let appended = ledger.append_loose(&writer, rng, barrier).await?;
        appended.map_err(|e| format!("the writer does not go on: {}", text(e)))?;
        let appended = late.append_loose(&late_writer, rng, barrier).await?;
        appended.map_err(|e| format!("creating again: {}", text(e)))?;
    }
    let durable = (ledger.durable(), late.durable());
    check(durable == (ledger.events(), late.events()), || {
        "a barrier is not durable".into()
    })?;
    drop((writer, late_writer, store));
    if fs != Fs::Tmpfs {
        // What was acknowledged on the full disk must be on it, not only in memory.
        if unable(&["xfs_io"]).is_ok() {
            volume.cut(false)?;
        }
        volume.unmount()?;
        volume.mount()?;
    }
    let store = Machine::boot(1).store(&root)?;
    for ledger in [&mut ledger, &mut late] {
        counts.acknowledged += ledger.durable() as u64;
        ledger.examine(&store).await?;
        ledger.recover(&store, &root, rng).await?;
    }
    let mut filler = Filler::new(volume.point())?;
    filler.give(1 << 20)?;
    open_torn_in_vain(&mut ledger, &store, &root, &mut filler, rng).await?;
    drop((store, filler));
    volume.unmount()
}

#[test]
#[ignore = "mounts file systems as root: cargo xtask test disks"]
fn a_full_disk_is_said_and_the_same_writer_goes_on_once_there_is_room() {
    let name = "full disks";
    if let Err(why) = unable(&[]) {
        tell_skipped(name, 0, RUNS * SYSTEMS.len() as u64, &why);
        return;
    }
    let (seed, runtime) = (seed(), runtime());
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut skipped = Vec::new();
    let mut each = Vec::new();
    for fs in SYSTEMS {
        if let Err(why) = try_out(fs, false) {
            skipped.push(format!("{fs}: {why}"));
            continue;
        }
        each.push(format!("{RUNS} {fs}"));
        for number in 0..RUNS {
            counts.runs += 1;
            let mut rng = Rng::new(seed, fs as u64, number);
            let done = Volume::new(fs).and_then(|mut volume| {
                runtime.block_on(run(fs, &mut volume, &mut rng, &mut counts))
            });
            if let Err(what) = done {
                failures.push(format!("{fs} run {number}, seed {seed}: {what}"));
            }
        }
    }
    for why in skipped {
        tell_skipped(name, counts.runs, RUNS, &why);
    }
    tell(&format!(
        "full disks: {} runs ({}), {} appends and {} creations refused, {} acknowledged events, {} \
         failed",
        counts.runs,
        each.join(", "),
        counts.refused,
        counts.creations,
        counts.acknowledged,
        failures.len(),
    ));
    conclude(name, &failures);
}
