//! A log of 5 GB: opened, forked, followed, checked.

use super::memory::shown;
use crate::{Bench, Outcome, child, data, report::Figure};

/// Each in a process of its own, with its peak of memory.
pub(crate) async fn big(bench: &Bench) -> Outcome<Vec<Figure>> {
    if !bench.big {
        let why = "it needs 5 GB of disk: --big";
        return Ok(vec![Figure::failed("big", "a log of 5 GB", why)]);
    }
    let log = data::log(&bench.data, data::OFTEN_5000).await?;
    let mut figures = Vec::new();
    for what in ["load", "fork", "verify", "follow"] {
        let name = format!("peak memory and time, {what} of 5 GB");
        figures.push(match child::run(what, &log) {
            Ok(took) => shown("big", name, took),
            Err(error) => Figure::failed("big", name, &error.to_string()),
        });
    }
    log.restore()?;
    Ok(figures)
}
