//! Opening a session again.

use std::time::Instant;

use serde_json::json;

use crate::{
    Bench, Outcome, child,
    data::{self, Log, Spec},
    measure,
    measure::{Both, Moment, Sides},
    raw,
    report::Figure,
};

const WARM: usize = 15;
const COLD: usize = 7;
/// Bytes read by logs of different sizes may differ by a fifth.
const SAME: f64 = 1.2;

/// Opens a session with a store of its own and closes it again, in seconds.
pub(crate) async fn load(log: &Log) -> Outcome<f64> {
    let id = log.id()?;
    let start = Instant::now();
    let store = data::store(&log.root)?;
    let loaded = store.load(&id).await?;
    drop(loaded);
    Ok(start.elapsed().as_secs_f64())
}

/// Counts what opening reads and syncs.
async fn cost(log: &Log) -> Outcome<(threadline_jsonl::Reads, u64)> {
    log.restore()?;
    let (store, vfs) = data::counted(&log.root)?;
    let id = log.id()?;
    drop(store.load(&id).await?);
    let counts = vfs.counts();
    Ok((vfs.reads(), counts.log_syncs + counts.other_syncs))
}

/// Measures opening in turns with reading as many bytes.
async fn rounds(log: &Log, cold: bool, count: usize, bytes: u64) -> Outcome<Sides> {
    let mut sides = Sides::default();
    let path = log.path()?;
    for _ in 0..count {
        log.restore()?;
        if cold {
            measure::drop_caches()?;
        }
        sides.ours.push(load(log).await?);
        log.restore()?;
        if cold {
            measure::drop_caches()?;
        }
        let (took, _) = measure::timed(|| raw::tail(&path, bytes))?;
        sides.raw.push(took);
    }
    log.restore()?;
    Ok(sides)
}

fn figure(what: String, sides: &Sides, bar: f64) -> Figure {
    let (low, high) = sides.spread();
    Figure::new("compacted", what)
        .bar(format!("<= {}", measure::time(bar)), sides.ours() <= bar)
        .ours(measure::time(sides.ours()))
        .raw(measure::time(sides.raw()), sides.ratio())
        .detail(json!({ "ours": sides.ours, "raw": sides.raw, "low": low, "high": high }))
}

/// Opening a log that was compacted near its end.
pub(crate) async fn compacted(bench: &Bench) -> Outcome<Vec<Figure>> {
    let mut specs = vec![data::OFTEN_50, data::OFTEN_500];
    if bench.big {
        specs.push(data::OFTEN_5000);
    }
    let mut figures = Vec::new();
    let mut reads = Vec::new();
    for spec in &specs {
        let log = data::log(&bench.data, *spec).await?;
        let (read, syncs) = cost(&log).await?;
        reads.push((spec.mega, read, log.surface_bytes(), syncs));
        if spec.mega < 500 {
            continue;
        }
        figures.extend(warm_and_cold(&log, *spec, read.bytes).await?);
    }
    figures.push(bytes_read(&reads));
    figures.extend(once(bench).await?);
    Ok(figures)
}

async fn warm_and_cold(log: &Log, spec: Spec, bytes: u64) -> Outcome<Vec<Figure>> {
    let name = format!("resume, {} MB compacted", spec.mega);
    let warm = rounds(log, false, WARM, bytes).await?;
    let mut figures = vec![figure(
        format!("{name}, warm; raw reads as much"),
        &warm,
        5e-3,
    )];
    let what = format!("{name}, cold");
    figures.push(match measure::drop_caches() {
        Ok(()) => figure(what, &rounds(log, true, COLD, bytes).await?, 20e-3),
        Err(why) => Figure::failed("compacted", what, &why),
    });
    Ok(figures)
}

/// What logs of different sizes read when they are opened. They end with the same turns, behind a
/// checkpoint at the same one; else it would be chance how far before the end it stands.
fn bytes_read(reads: &[(u64, threadline_jsonl::Reads, u64, u64)]) -> Figure {
    let bytes = || reads.iter().map(|(_, read, ..)| read.bytes as f64);
    let low = bytes().fold(f64::INFINITY, f64::min);
    let high = bytes().fold(0.0, f64::max);
    let each: Vec<_> = reads
        .iter()
        .map(|(mega, read, surface, syncs)| {
            json!({
                "mega": mega, "bytes": read.bytes, "reads": read.reads, "opens": read.opens,
                "surfaceBytes": surface, "syncs": syncs,
            })
        })
        .collect();
    let said: Vec<_> = reads
        .iter()
        .map(|(mega, read, ..)| format!("{mega}: {}", measure::bytes(read.bytes)))
        .collect();
    Figure::new(
        "compacted",
        format!("  bytes read, MB of log: {}", said.join(", ")),
    )
    .bar("differ by < 20 %", high <= low * SAME)
    .ours(format!("{high:.0} B"))
    .raw(format!("{low:.0} B"), high / low)
    .detail(json!(each))
}

/// A log that was compacted only once has large checkpoints, far apart, before that. The first one
/// behind the compaction is what spares opening all of it.
async fn once(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::ONCE_500).await?;
    let (read, _) = cost(&log).await?;
    let first = rounds(&log, false, COLD, read.bytes).await?;
    load(&log).await?;
    let mut again = Vec::new();
    for _ in 0..WARM {
        again.push(load(&log).await?);
    }
    log.restore()?;
    let what = "resume, 500 MB compacted only once, warm, first time".to_owned();
    let detail = json!({ "readBytes": read.bytes, "again": again });
    Ok(vec![
        figure(what, &first, 5e-3),
        Figure::new("compacted", "  the same, second time")
            .bar("<= 5 ms", measure::median(&again) <= 5e-3)
            .ours(measure::time(measure::median(&again)))
            .detail(detail),
    ])
}

/// Opening a log that was never compacted.
pub(crate) async fn plain(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::PLAIN_500).await?;
    let path = log.path()?;
    let (mut both, mut together) = (Both::default(), Both::default());
    for _ in 0..7 {
        log.restore()?;
        let since = Moment::now();
        load(&log).await?;
        both.ours(since);
        together.ours(since);
        let since = Moment::now();
        drop(raw::lines(&path, &log.surface)?);
        both.raw(since);
        let since = Moment::now();
        drop(raw::lines_together(&path, &log.surface)?);
        together.raw(since);
    }
    log.restore()?;
    let loaded = child::run("load", &log)?;
    log.restore()?;
    let surface = log.surface_bytes();
    let bar = measure::mb(loaded.peak_kib) * 1e6 - surface as f64;
    let (read, _) = cost(&log).await?;
    log.restore()?;
    let read = json!({
        "items": log.surface.len(), "surfaceBytes": surface, "readBytes": read.bytes,
        "reads": read.reads, "peakKib": loaded.peak_kib, "overBytes": bar,
    });
    Ok(vec![
        Figure::new("plain", "resume, 500 MB never compacted, warm")
            .bar("<= 2 x pread of its lines", both.ratio() <= 2.0)
            .both(&both),
        Figure::new("plain", "  the same, beside a reader that joins neighbours").both(&together),
        Figure::new("plain", "  memory of a process that only loads it")
            .bar("<= surface + 40 MB", bar <= 40e6)
            .ours(format!("{:.0} MB", measure::mb(loaded.peak_kib)))
            .raw(
                measure::bytes(surface),
                measure::mb(loaded.peak_kib) * 1e6 / surface as f64,
            )
            .detail(read),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Compaction, spec};

    #[tokio::test(flavor = "multi_thread")]
    async fn logs_of_different_sizes_end_alike() {
        let data = tempfile::tempdir().unwrap();
        let mut read = Vec::new();
        for wanted in [
            spec("short", 3, Compaction::Often),
            spec("long", 9, Compaction::Often),
        ] {
            let log = data::log(data.path(), wanted).await.unwrap();
            read.push((cost(&log).await.unwrap().0.bytes, log.surface.len()));
        }
        let (short, long) = (read[0], read[1]);
        assert_eq!(short.1, long.1);
        // Numbers have more digits, and nothing else is different.
        assert!(long.0.abs_diff(short.0) < short.0 / 20, "{read:?}");
    }
}
