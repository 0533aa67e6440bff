//! Checking a whole log.

use serde_json::json;

use crate::{
    Bench, Outcome, data,
    measure::{Both, Moment},
    raw,
    report::Figure,
};

const ROUNDS: usize = 5;

/// `verify` of a log of 1 GB, beside a checksum of each of its lines.
pub(crate) async fn verify(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::OFTEN_1000).await?;
    let (id, path) = (log.id()?, log.path()?);
    let store = data::store(&log.root)?;
    let mut both = Both::default();
    for _ in 0..ROUNDS {
        let since = Moment::now();
        let report = store.verify(&id).await?;
        both.ours(since);
        if !report.ok || report.events != log.events {
            return Err(format!("it found {:?}", report.findings.first()).into());
        }
        let since = Moment::now();
        raw::checksums(&path)?;
        both.raw(since);
    }
    let (wall, cpu) = (&both.wall, &both.cpu);
    let gbs = |seconds: f64| log.bytes as f64 / seconds / 1e9;
    let said = |seconds: f64| format!("{:.2} GB/s", gbs(seconds));
    Ok(vec![
        Figure::new(
            "verify",
            "verify, 1 GB, per core; raw is crc32c of each line",
        )
        .bar(">= 0.8 GB/s", gbs(cpu.ours()) >= 0.8)
        .ours(said(cpu.ours()))
        .raw(said(cpu.raw()), cpu.ratio())
        .detail(json!({ "cpu": cpu.ours, "rawCpu": cpu.raw, "events": log.events })),
        Figure::new("verify", "  by the clock on the wall")
            .ours(said(wall.ours()))
            .raw(said(wall.raw()), wall.ratio())
            .detail(json!({ "wall": wall.ours, "rawWall": wall.raw })),
    ])
}
