//! How much memory it takes to look at a large log.

use std::process::Command;

use serde_json::json;

use crate::{
    Bench, Outcome, child,
    child::Took,
    data::{self, Log},
    measure,
    report::Figure,
};

pub(crate) fn shown(row: &'static str, what: String, took: Took) -> Figure {
    Figure::new(row, what)
        .ours(format!("{:.0} MB", measure::mb(took.peak_kib)))
        .raw(measure::time(took.seconds), f64::NAN)
        .detail(json!(took))
}

/// Peaks of processes that look at a log of 1 GB. The time stands in the column of the raw side.
pub(crate) async fn memory(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::OFTEN_1000).await?;
    let program = child::threadline()?;
    let mut figures = Vec::new();
    for what in ["verify", "follow", "inspect"] {
        let name = format!("peak memory and time, {what} of 1 GB, library");
        figures.push(match child::run(what, &log) {
            Ok(took) => shown("memory", name, took),
            Err(error) => Figure::failed("memory", name, &error.to_string()),
        });
    }
    for args in [
        &["verify"][..],
        &["verify", "--requests"],
        &["show"],
        &["show", "--raw"],
        &["show", "--history"],
    ] {
        let name = format!(
            "peak memory and time, `threadline {}` of 1 GB",
            args.join(" ")
        );
        figures.push(match cli(&program, args, &log) {
            Ok(took) => shown("memory", name, took),
            Err(error) => Figure::failed("memory", name, &error.to_string()),
        });
    }
    Ok(figures)
}

pub(crate) fn cli(program: &std::path::Path, args: &[&str], log: &Log) -> Outcome<Took> {
    let mut command = Command::new(program);
    command
        .args(args)
        .arg(&log.id)
        .arg("--store")
        .arg(&log.root);
    child::watch(&mut command)
}
