//! How long the program takes to say something: beside the smallest program there is.

use std::{path::Path, process::Command};

use serde_json::json;
use threadline_session::{Header, OsPath, SessionId};
use threadline_store::AppendOptions;

use crate::{Bench, Outcome, agent::Agent, child, data, measure, measure::Sides, report::Figure};

const ROUNDS: usize = 41;
const SESSIONS: u64 = 100;
const SMALLEST: &str = "/bin/true";

/// `--version` and `ls`, each in turns with `/bin/true`.
pub(crate) async fn start(bench: &Bench) -> Outcome<Vec<Figure>> {
    let program = child::threadline()?;
    let dir = bench.scratch()?;
    let store = data::store(dir.path())?;
    for number in 0..SESSIONS {
        let id = SessionId::parse(format!("01900000-0000-7000-8000-{number:012x}"))?;
        let header = Header::new(id, 1_700_000_000_000 + number, OsPath::from("/work"));
        let writer = store.create(header).await?;
        let mut turn = Vec::new();
        Agent::new(1).small_turn(&mut turn)?;
        writer.record(turn, AppendOptions::barrier()).await?;
    }
    store.catch_up().await?;
    drop(store);
    let figures = [
        ("`threadline --version`", vec!["--version"]),
        ("`threadline ls` of 100 sessions", vec!["ls"]),
    ];
    let figures = figures.into_iter().map(|(what, args)| {
        let sides = sides(&program, &args, dir.path())?;
        let figure = Figure::new("start", format!("{what}; raw is `{SMALLEST}`"))
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), sides.ratio())
            .detail(json!({ "ours": sides.ours, "raw": sides.raw }));
        Ok(figure)
    });
    figures.collect()
}

fn sides(program: &Path, args: &[&str], home: &Path) -> Outcome<Sides> {
    let call = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("THREADLINE_HOME", home);
        command.env("XDG_CONFIG_HOME", home.join("no-config"));
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
    };
    let mut sides = Sides::default();
    for _ in 0..ROUNDS {
        let ours = measure::timed(|| call(program, args))?;
        let raw = measure::timed(|| call(Path::new(SMALLEST), &[]))?;
        sides.ours.push(ours.0);
        sides.raw.push(raw.0);
    }
    Ok(sides)
}
