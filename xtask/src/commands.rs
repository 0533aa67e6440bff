//! The chores themselves.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Failure,
    lanes::{BENCHES, Bench, Env, LANES, Lane, Measures, Need, PAGE_SIZES, Program, Step, When},
    mutants, place,
    runner::{self, Mode, cargo, command, note, say},
    setup::{self, Setup},
    tally::{Counter, Tally},
    usage,
};

/// What shells take for a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// What programs end with that do not know an argument.
const USAGE: i32 = 2;

type Outcome = Result<ExitCode, Failure>;

/// Builds everything and becomes `threadline serve`.
pub(crate) fn run(args: &[&str]) -> Outcome {
    let (dev, args) = match args {
        ["--dev", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let args = match args {
        [] => args,
        ["--", rest @ ..] => rest,
        [other, ..] => {
            return Ok(usage(&format!(
                "`{other}` is not an option of run: what `threadline serve` is to get comes \
                 after `--`"
            )));
        }
    };
    build_all(dev)?;
    let binary = place::binary(dev);
    let mut serve = command(&binary.to_string_lossy());
    // The caller's folder: it is where the agent works.
    if let Ok(here) = std::env::current_dir() {
        serve.current_dir(here);
    }
    serve.arg("serve").args(args);
    note(&format!("$ {}", runner::line_of(&serve)));
    // Becoming it leaves signals and the exit code to it alone.
    let error = serve.exec();
    Err(format!("{} cannot be started: {error}", binary.display()))
}

/// Builds page and binary.
pub(crate) fn build(args: &[&str]) -> Outcome {
    let dev = match args {
        [] => false,
        ["--dev"] => true,
        [other, ..] => return Ok(usage(&format!("`{other}` is not an option of build"))),
    };
    build_all(dev)?;
    say(&place::binary(dev).display().to_string());
    Ok(ExitCode::SUCCESS)
}

fn build_all(dev: bool) -> Result<(), Failure> {
    runner::watch_signals()?;
    let mut setup = Setup::new(Mode::Attached);
    setup.ensure(Need::Page)?;
    setup.binary(dev)
}

/// Builds the page.
pub(crate) fn web() -> Outcome {
    runner::watch_signals()?;
    Setup::new(Mode::Attached).ensure(Need::Page)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page's types from the server's OpenAPI document. It needs no page, which could not be
/// built while its types are those of yesterday; the server compiles with an empty one.
pub(crate) fn types() -> Outcome {
    runner::watch_signals()?;
    let mut test = cargo();
    test.args([
        "test",
        "-p",
        "threadline-server",
        "--test",
        "http",
        "types::",
    ])
    .env("THREADLINE_WRITE_TYPES", "1");
    runner::run(Mode::Attached, test)?;
    Ok(ExitCode::SUCCESS)
}

/// Formats the Rust sources.
pub(crate) fn fmt() -> Outcome {
    runner::watch_signals()?;
    Setup::new(Mode::Attached).ensure(Need::Component("fmt", "rustfmt"))?;
    let mut fmt = cargo();
    fmt.args(["fmt", "--all"]);
    runner::run(Mode::Attached, fmt)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the lanes that check the sources.
pub(crate) fn lint() -> Outcome {
    test(&["fmt", "clippy"])
}

/// Runs lanes, all of them even if one fails, and prints the counts.
pub(crate) fn test(args: &[&str]) -> Outcome {
    let lanes = match choose(args) {
        Ok(Some(lanes)) => lanes,
        Ok(None) => {
            list_lanes();
            return Ok(ExitCode::SUCCESS);
        }
        Err(problem) => return Ok(usage(&problem)),
    };
    runner::watch_signals()?;
    let mut setup = Setup::new(Mode::Streamed);
    let mut reports = Vec::new();
    for lane in lanes {
        say(&format!("\n==== {}: {}", lane.name, lane.about));
        let report = run_lane(lane, &mut setup);
        say(&format!(
            "==== {}: {} in {:.1} s",
            lane.name,
            report.word(),
            report.time.as_secs_f64()
        ));
        reports.push(report);
        if runner::stopping() {
            note("stopped; what was running has been ended");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    Ok(conclude(&reports))
}

/// Returns the lanes that some arguments name; `None` asks for their list.
fn choose(args: &[&str]) -> Result<Option<Vec<&'static Lane>>, String> {
    let mut quick = false;
    let mut named = Vec::new();
    for arg in args {
        match *arg {
            "--quick" => quick = true,
            "--list" => return Ok(None),
            name => named.push(name),
        }
    }
    if quick && !named.is_empty() {
        return Err("--quick chooses the lanes itself; name lanes or give --quick".into());
    }
    for name in &named {
        if !LANES.iter().any(|lane| lane.name == *name) {
            let names: Vec<_> = LANES.iter().map(|lane| lane.name).collect();
            return Err(format!(
                "`{name}` is not a lane (there are {})",
                names.join(", ")
            ));
        }
    }
    let chosen = LANES.iter().filter(|lane| match lane.when {
        _ if !named.is_empty() => named.contains(&lane.name),
        When::Always => true,
        When::Full => !quick,
        When::Quick => quick,
    });
    Ok(Some(chosen.collect()))
}

fn list_lanes() {
    for lane in LANES {
        let when = match lane.when {
            When::Always => "full, quick",
            When::Full => "full",
            When::Quick => "quick",
        };
        say(&format!("{:<8} {:<12} {}", lane.name, when, lane.about));
    }
}

/// How a lane went.
#[derive(Debug)]
struct Report {
    name: &'static str,
    tally: Tally,
    problems: Vec<Failure>,
    time: Duration,
}

impl Report {
    fn word(&self) -> &'static str {
        if self.tally.failed == 0 {
            "ok"
        } else {
            "FAILED"
        }
    }
}

fn run_lane(lane: &Lane, setup: &mut Setup) -> Report {
    let begun = Instant::now();
    let mut tally = Tally::default();
    let mut problems = Vec::new();
    let needs: Result<(), Failure> = lane.needs.iter().try_for_each(|need| setup.ensure(*need));
    match needs {
        Err(failure) => problems.push(failure),
        Ok(()) => {
            for step in lane.steps {
                if runner::stopping() {
                    break;
                }
                let (counts, outcome) = run_step(step);
                tally += counts;
                problems.extend(outcome.err());
            }
            if !tally.ran() && problems.is_empty() {
                problems.push("no test ran".into());
            }
        }
    }
    // A lane that failed without a failed test (it did not compile, or could not start) must not
    // look like a lane without failures.
    if !problems.is_empty() && tally.failed == 0 {
        tally.failed = 1;
    }
    for problem in &problems {
        say(&format!("{}: {problem}", lane.name));
    }
    Report {
        name: lane.name,
        tally,
        problems,
        time: begun.elapsed(),
    }
}

fn run_step(step: &Step) -> (Tally, Result<(), Failure>) {
    let Some(mut program) = step_command(step) else {
        return mutants::run();
    };
    let line = runner::line_of(&program);
    for (name, value) in step.env {
        match value {
            Env::Is(value) => program.env(name, value),
            Env::Default(_) | Env::Binary if std::env::var_os(name).is_some() => &mut program,
            Env::Default(value) => program.env(name, value),
            Env::Binary => program.env(name, place::binary(true)),
            Env::Chromium => program.env(name, setup::chromium_path()),
        };
    }
    note(&format!("$ {line}"));
    let mut tally = Tally::default();
    let ended = runner::streamed(program, |text| tally.read(step.counter, text));
    let outcome = ended.and_then(|status| runner::judge(&line, status));
    if step.counter == Counter::Check {
        match outcome {
            Ok(()) => tally.passed = 1,
            Err(_) => tally.failed = 1,
        }
        return (tally, outcome);
    }
    let outcome = match outcome {
        Ok(()) if tally.failed > 0 => Err(format!("`{line}` names failed tests but exits with 0")),
        Ok(()) if !tally.ran() => Err(format!("`{line}` ran no test")),
        outcome => outcome,
    };
    (tally, outcome)
}

/// Returns the program of a step; `None` for the step that this program takes itself.
fn step_command(step: &Step) -> Option<Command> {
    let mut program = match step.program {
        Program::Cargo => cargo(),
        Program::Npx => npx(),
        Program::Node => {
            let mut node = command("node");
            node.current_dir(place::acp());
            node
        }
        Program::Mutants => return None,
    };
    program.args(step.args.split_whitespace());
    Some(program)
}

fn npx() -> Command {
    let mut npx = command("npx");
    // Never fetched on the way: what runs is what the lock file names.
    npx.arg("--no-install").current_dir(place::web());
    npx
}

/// Prints the table and, as the very last line, the sums.
fn conclude(reports: &[Report]) -> ExitCode {
    let mut sum = Tally::default();
    say(&format!(
        "\n{:<8} {:<7} {:>7} {:>7} {:>8} {:>9}",
        "lane", "result", "passed", "failed", "skipped", "time"
    ));
    for report in reports {
        sum += report.tally;
        say(&format!(
            "{:<8} {:<7} {:>7} {:>7} {:>8} {:>7.1} s",
            report.name,
            report.word(),
            report.tally.passed,
            report.tally.failed,
            report.tally.skipped,
            report.time.as_secs_f64()
        ));
    }
    for report in reports {
        for problem in &report.problems {
            say(&format!("{}: {problem}", report.name));
        }
    }
    let failed: Vec<_> = reports
        .iter()
        .filter(|report| report.tally.failed > 0)
        .map(|report| report.name)
        .collect();
    if !failed.is_empty() {
        say(&format!("again: cargo xtask test {}", failed.join(" ")));
    }
    say("");
    say(&format!(
        "{} passed, {} failed, {} skipped",
        sum.passed, sum.failed, sum.skipped
    ));
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs benchmarks, all of them or one with arguments of its own, and keeps their JSON.
pub(crate) fn bench(args: &[&str]) -> Outcome {
    let Some((name, rest)) = args.split_first() else {
        for bench in BENCHES {
            let code = run_bench(bench, &[])?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    match BENCHES.iter().find(|bench| bench.name == *name) {
        Some(bench) => run_bench(bench, rest),
        None => Ok(usage(&unknown_bench(name))),
    }
}

fn unknown_bench(name: &str) -> String {
    let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
    format!(
        "`{name}` is not a benchmark (there are {}); rows come after one, as in \
         `cargo xtask bench store fork`",
        names.join(", ")
    )
}

fn bench_command(cargo_args: &str, args: &[&str]) -> Command {
    let mut program = cargo();
    program
        .args(cargo_args.split_whitespace())
        .args(args)
        .stderr(Stdio::inherit());
    program
}

fn run_bench(bench: &Bench, args: &[&str]) -> Outcome {
    match bench.measures {
        Measures::Program(cargo_args) => run_program(bench, cargo_args, args),
        Measures::Page(npx_args) => run_page(bench, npx_args, args),
    }
}

fn run_program(bench: &Bench, cargo_args: &str, args: &[&str]) -> Outcome {
    let mut program = bench_command(cargo_args, args);
    let line = runner::line_of(&program);
    note(&format!("$ {line}"));
    let output = program
        .output()
        .map_err(|e| format!("`{line}` cannot be run: {e}"))?;
    if output.status.code() == Some(USAGE) {
        // It has said which argument it does not know, and which there are.
        return Ok(ExitCode::from(2));
    }
    runner::judge(&line, output.status)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.trim().is_empty() {
        return Err(format!("`{line}` printed no JSON"));
    }
    say(text.trim_end());
    // Its list of rows and its help are for people; what was measured last stays.
    if text.starts_with('{') {
        let path = place::bench_report(bench.name);
        setup::write(&path, &text)?;
        note(&format!("written to {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures the page in a browser, over stores that are made once and kept.
fn run_page(bench: &Bench, npx_args: &str, args: &[&str]) -> Outcome {
    let dev = match args {
        [] => false,
        ["--dev"] => true,
        [other, ..] => {
            return Ok(usage(&format!(
                "`{other}` is not an option of bench {} (there is --dev)",
                bench.name
            )));
        }
    };
    runner::watch_signals()?;
    let mut setup = Setup::new(Mode::Attached);
    setup.ensure(Need::Chromium)?;
    setup.ensure(Need::Page)?;
    let mut tests = npx();
    if std::env::var_os("THREADLINE_BIN").is_none() {
        setup.binary(dev)?;
        tests.env("THREADLINE_BIN", place::binary(dev));
    }
    // In this profile: the crates that make logs are optimised in it.
    let mut build = cargo();
    build.args(["build", "-p", "threadline-bench"]);
    runner::run(Mode::Attached, build)?;
    for (name, usual) in PAGE_SIZES {
        if std::env::var_os(name).is_none() {
            tests.env(name, usual);
        }
    }
    let path = place::bench_report(bench.name);
    setup::write(&path, "{}\n")?;
    tests
        .args(npx_args.split_whitespace())
        .env("BIG_DIR", place::target().join("bench/data/page"))
        .env("BIG_REPORT", &path)
        .env("CHROMIUM", setup::chromium_path())
        .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    let measured = runner::run(Mode::Attached, tests);
    // What was measured before a bound was broken is worth reading, too.
    let figures = setup::read(&path)?;
    say(String::from_utf8_lossy(&figures).trim_end());
    note(&format!("written to {}", path.display()));
    measured.map(|()| ExitCode::SUCCESS)
}

/// Makes a store of a size.
pub(crate) fn make(args: &[&str]) -> Outcome {
    runner::watch_signals()?;
    let mut make = cargo();
    // The caller's folder: names of folders are meant from there.
    if let Ok(here) = std::env::current_dir() {
        make.current_dir(here);
    }
    make.args(["run", "--quiet", "-p", "threadline-bench", "--", "make"])
        .args(args);
    runner::run(Mode::Attached, make)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &[&str]) -> Vec<&'static str> {
        let lanes = choose(args).unwrap().unwrap();
        lanes.iter().map(|lane| lane.name).collect()
    }

    #[test]
    fn lanes_are_chosen_by_name_or_by_kind_of_run() {
        let full = names(&[]);
        assert!(full.contains(&"rust") && !full.contains(&"libs"));
        let quick = names(&["--quick"]);
        assert!(quick.contains(&"libs") && !quick.contains(&"rust") && !quick.contains(&"e2e"));
        assert_eq!(names(&["web", "fmt"]), ["fmt", "web"]);
        assert!(choose(&["nothing"]).is_err());
        assert!(choose(&["--quick", "web"]).is_err());
    }

    #[test]
    fn words_after_a_benchmark_are_its_own() {
        let Measures::Program(store) = BENCHES[0].measures else {
            panic!("the store's benchmark is a program");
        };
        let line = runner::line_of(&bench_command(store, &["fork", "--big"]));
        assert!(
            line.ends_with("-p threadline-bench -- fork --big"),
            "{line}"
        );
        let unknown = unknown_bench("verify");
        assert!(unknown.contains("`verify`"), "{unknown}");
        assert_eq!(bench(&["verify"]), Ok(ExitCode::from(2)));
        assert_eq!(bench(&["page", "fork"]), Ok(ExitCode::from(2)));
    }

    #[test]
    fn lane_names_are_unique_and_every_lane_counts_something() {
        for (at, lane) in LANES.iter().enumerate() {
            assert!(LANES[at + 1..].iter().all(|other| other.name != lane.name));
            assert!(!lane.steps.is_empty(), "{}", lane.name);
        }
    }
}
