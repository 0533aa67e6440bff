//! A sync fails because the disk under the file system has no room: the system then drops what was
//! to be written, and says nothing of it the next time.

use std::path::Path;

use threadline_store::{AppendError, OpenError, ReadError, SessionStore, SessionWriter};

use super::{
    Fallible, check, conclude,
    ledger::Ledger,
    machine::Machine,
    rng::{Rng, seed},
    runtime, tell, tell_skipped, text,
    volume::{Filler, Fs, Volume, try_out, unable},
};

const NAME: &str = "failed syncs";
const RUNS: u64 = 8;
/// What the file system believes to have.
const SIZE: u64 = 64 << 20;
/// What there is.
const ROOM: u64 = 16 << 20;
/// Where mkfs puts tables and journal of such an image: at its start. With room for them only the
/// data is lost and the file system lives on; without, its journal breaks.
const TABLES_AND_JOURNAL: u64 = 9 << 20;
const MOST_BATCHES: u32 = 10_000;

#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    acknowledged: u64,
    failed: u64,
    reopened: u64,
    refused: u64,
    repaired: u64,
}

/// Appends until a sync fails.
async fn until_a_sync_fails(
    ledger: &mut Ledger,
    writer: &SessionWriter,
    rng: &mut Rng,
) -> Fallible<()> {
    for _ in 0..MOST_BATCHES {
        let barrier = rng.one_in(3);
        match ledger.append_loose(writer, rng, barrier).await? {
            Ok(_) => {}
            Err(AppendError::Poisoned { .. }) => return Ok(()),
            Err(error) => return Err(format!("not typed as poisoned: {}", text(error))),
        }
    }
    Err("no sync has failed".into())
}

/// A new writer in the same mount: it goes on, or says why not.
async fn open_at_once(
    ledger: &mut Ledger,
    store: &SessionStore,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Fallible<()> {
    let loaded = match store.load(ledger.id()).await {
        Ok(loaded) => loaded,
        Err(
            OpenError::StorageFull { .. }
            | OpenError::Recovery { .. }
            | OpenError::Read(ReadError::Backend(_)),
        ) => {
            counts.refused += 1;
            return Ok(());
        }
        Err(error) => return Err(format!("opening at once: {}", text(error))),
    };
    counts.reopened += 1;
    // Opening has cut off what is in doubt.
    let durable = ledger.durable();
    ledger.examine(store).await?;
    check(ledger.events() == durable, || {
        format!(
            "{} events are believed, {durable} were durable",
            ledger.events()
        )
    })?;
    for barrier in [false, true] {
        if ledger
            .append_loose(&loaded.writer, rng, barrier)
            .await?
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Mounts again, as after a start of the machine with room.
fn mount_again(volume: &mut Volume, counts: &mut Counts) -> Fallible<()> {
    volume.unmount()?;
    if volume.mount().is_ok() {
        return Ok(());
    }
    counts.repaired += 1;
    volume.repair();
    volume.mount()
}

async fn run(rng: &mut Rng, counts: &mut Counts) -> Fallible<()> {
    let kept = rng.one_in(2).then_some(TABLES_AND_JOURNAL);
    let mut volume = Volume::on_too_small_a_disk(SIZE, ROOM, kept)?;
    volume.mount()?;
    let root = volume.root();
    let store = Machine::boot(0).store(&root)?;
    let mut ledger = Ledger::new(rng);
    let writer = store.begin(ledger.header.clone()).map_err(text)?;
    for _ in 0..1 + rng.below(20) {
        let barrier = rng.one_in(2);
        let appended = ledger.append_loose(&writer, rng, barrier).await?;
        appended.map_err(text)?;
    }
    let mut filler = Filler::new(volume.below())?;
    filler.give(rng.below(32) * 4096)?;
    until_a_sync_fails(&mut ledger, &writer, rng).await?;
    counts.failed += 1;
    ledger.refused(&writer, rng).await?;
    drop(writer);

    // In the same mount, whatever the page cache shows.
    let mut seen = ledger.clone();
    let seen = seen.examine(&store).await;
    seen.map_err(|what| format!("in the same mount: {what}"))?;
    counts.acknowledged += ledger.durable() as u64;
    // In half of the runs there is room again, but what the system has dropped is still dropped.
    let mut filler = Some(filler);
    if rng.one_in(2)
        && let Some(filler) = filler.take()
    {
        filler.free()?;
    }
    let at_once = open_at_once(&mut ledger, &store, rng, counts).await;
    at_once.map_err(|what| format!("opened at once: {what}"))?;
    drop(store);

    if let Some(filler) = filler {
        filler.free()?;
    }
    mount_again(&mut volume, counts)?;
    let recovered = recover(&mut ledger, &root, rng).await;
    let recovered = recovered.map_err(|what| format!("mounted again: {what}"));
    volume.unmount()?;
    recovered
}

async fn recover(ledger: &mut Ledger, root: &Path, rng: &mut Rng) -> Fallible<()> {
    let store = Machine::boot(1).store(root)?;
    let there = ledger.examine(&store).await?;
    check(there, || "the session is gone".into())?;
    ledger.recover(&store, root, rng).await
}

#[test]
#[ignore = "mounts file systems as root: cargo xtask test disks"]
fn after_a_failed_sync_nothing_is_acknowledged_and_nothing_acknowledged_is_lost() {
    let able = unable(&["mkfs.ext4", "e2fsck"]).and_then(|()| try_out(Fs::Ext4, false));
    if let Err(why) = able {
        tell_skipped(NAME, 0, RUNS, &why);
        return;
    }
    let (seed, runtime) = (seed(), runtime());
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    for number in 0..RUNS {
        counts.runs += 1;
        let mut rng = Rng::new(seed, 9, number);
        if let Err(what) = runtime.block_on(run(&mut rng, &mut counts)) {
            failures.push(format!("run {number}, seed {seed}: {what}"));
        }
    }
    tell(&format!(
        "failed syncs: {} runs, {} writers poisoned, {} acknowledged events, {} failed; opened \
         again at once: {}, refused with a type: {}; repaired before mounting: {}",
        counts.runs,
        counts.failed,
        counts.acknowledged,
        failures.len(),
        counts.reopened,
        counts.refused,
        counts.repaired,
    ));
    conclude(NAME, &failures);
    assert_eq!(counts.failed, counts.runs);
}
