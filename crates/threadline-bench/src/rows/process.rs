//! The program as people run it: from its start to its first request.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;
use threadline_strict_model::{Reply, StrictModel};

use crate::{
    Bench, Outcome, child,
    data::{self, Log},
    measure,
    measure::Sides,
    report::Figure,
};

const ROUNDS: usize = 9;
const COLD: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);
const GATE: &str = "answer";

/// Whole processes that go on with a compacted session.
pub(crate) async fn process(bench: &Bench) -> Outcome<Vec<Figure>> {
    let program = child::threadline()?;
    let mut specs = vec![data::OFTEN_500];
    if bench.big {
        specs.push(data::OFTEN_5000);
    }
    let mut figures = Vec::new();
    for spec in specs {
        let log = data::log(&bench.data, spec).await?;
        let warm = rounds(&program, &log, ROUNDS, false).await;
        log.restore()?;
        figures.extend(shown(&warm?, &format!("{} MB", spec.mega)));
        if measure::drop_caches().is_ok() {
            let cold = rounds(&program, &log, COLD, true).await;
            log.restore()?;
            let (sides, _) = cold?;
            figures.push(
                Figure::new("process", "  the same, cold; program and libraries too")
                    .ours(measure::time(sides.ours()))
                    .raw(measure::time(sides.raw()), sides.ratio())
                    .detail(json!({ "ours": sides.ours, "raw": sides.raw })),
            );
        }
    }
    Ok(figures)
}

fn shown((sides, peaks): &(Sides, Vec<f64>), size: &str) -> [Figure; 2] {
    let peak = measure::median(peaks);
    let what = format!("`threadline run` on {size}, start to first request; raw is `--version`");
    [
        Figure::new("process", what)
            .bar("<= 60 ms", sides.ours() <= 60e-3)
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), sides.ratio())
            .detail(json!({ "ours": sides.ours, "raw": sides.raw })),
        Figure::new("process", "  its memory while the model answers")
            .bar("<= 40 MB", peak <= 40.0)
            .ours(format!("{peak:.1} MB"))
            .detail(json!({ "mb": peaks })),
    ]
}

async fn rounds(program: &Path, log: &Log, count: usize, cold: bool) -> Outcome<(Sides, Vec<f64>)> {
    let (mut sides, mut peaks) = (Sides::default(), Vec::new());
    for _ in 0..count {
        log.restore()?;
        if cold {
            measure::drop_caches()?;
        }
        let (took, peak) = one(program, log).await?;
        sides.ours.push(took);
        peaks.push(peak);
        if cold {
            measure::drop_caches()?;
        }
        let version = || Ok(Command::new(program).arg("--version").output()?);
        sides.raw.push(measure::timed(version)?.0);
    }
    Ok((sides, peaks))
}

fn spawn(program: &Path, log: &Log, model: &StrictModel) -> Outcome<Child> {
    let child = Command::new(program)
        .arg("run")
        .args(["--session", &log.id])
        .arg("--store")
        .arg(&log.root)
        .args(["--provider", "openai-chat", "--model", "bench"])
        .args(["--base-url", &model.base_url()])
        .args(["--approval", "never", "--cwd", "/tmp"])
        .arg("go on")
        .env("OPENAI_API_KEY", "none")
        .env("XDG_CONFIG_HOME", log.root.join("no-config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// Runs one turn. Returns the seconds to the first request and the peak of memory in MB.
async fn one(program: &Path, log: &Log) -> Outcome<(f64, f64)> {
    let script = format!(r#"[{{"steps": [{{"gate": "{GATE}"}}, {{"text": "done"}}]}}]"#);
    let model = StrictModel::start(Reply::from_json(&script)?).await?;
    let start = Instant::now();
    let mut child = spawn(program, log, &model)?;
    let arrived = tokio::time::timeout(PATIENCE, model.wait_requests(1)).await;
    let took = start.elapsed().as_secs_f64();
    let peak = measure::peak_kib(child.id());
    model.gate(GATE).open();
    if arrived.is_err() {
        child.kill()?;
    }
    let output = tokio::task::block_in_place(|| child.wait_with_output())?;
    let violations = model.violations();
    model.stop().await;
    if let Some(violation) = violations.first() {
        return Err(format!("the request broke a rule: {violation:?}").into());
    }
    if arrived.is_err() || !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`threadline run`: {}: {}", output.status, said.trim()).into());
    }
    let peak = peak.ok_or("the process ended before its memory was looked at")?;
    Ok((took, measure::mb(peak)))
}
