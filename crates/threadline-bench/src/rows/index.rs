//! Opening a session whose index is gone.

use serde_json::json;

use super::resume::load;
use crate::{
    Bench, Outcome, data,
    data::Log,
    measure,
    measure::{Both, Moment},
    raw,
    report::Figure,
};

const ROUNDS: usize = 7;
const COLD: usize = 5;

async fn rounds(log: &Log, count: usize, cold: bool) -> Outcome<Both> {
    let mut both = Both::default();
    let path = log.path()?;
    for _ in 0..count {
        log.lose_index()?;
        if cold {
            measure::drop_caches()?;
        }
        let since = Moment::now();
        load(log).await?;
        both.ours(since);
        if cold {
            measure::drop_caches()?;
        }
        let since = Moment::now();
        raw::newlines(&path)?;
        both.raw(since);
    }
    Ok(both)
}

async fn measured(log: &Log) -> Outcome<Vec<Figure>> {
    let warm = rounds(log, ROUNDS, false).await?;
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        again.push(load(log).await?);
    }
    let gbs = |seconds: f64| log.bytes as f64 / seconds / 1e9;
    let cold = match measure::drop_caches() {
        Ok(()) => {
            let cold = rounds(log, COLD, true).await?;
            let wall = &cold.wall;
            let (ours, disk) = (gbs(wall.ours()), gbs(wall.raw()));
            let what = format!("  cold: {ours:.2} GB/s, the disk {disk:.2} GB/s");
            Figure::new("index", what)
                .bar("disk speed (<= 1.25 x)", wall.ratio() <= 1.25)
                .both(&cold)
        }
        Err(why) => Figure::failed("index", "  cold", &why),
    };
    Ok(vec![
        Figure::new("index", "index deleted, 1 GB, warm; raw is a newline scan")
            .bar("<= 2 x newline scan", warm.ratio() <= 2.0)
            .both(&warm),
        cold,
        Figure::new("index", "  opened again after that, warm")
            .bar("<= 5 ms", measure::median(&again) <= 5e-3)
            .ours(measure::time(measure::median(&again)))
            .detail(json!({ "ours": again })),
    ])
}

/// A log of 1 GB without its index.
pub(crate) async fn index(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::OFTEN_1000).await?;
    let figures = measured(&log).await;
    log.restore()?;
    figures
}
