//! `cargo xtask bench store`: every bar of the store as a ratio against a raw baseline.
//!
//! Both sides are measured in turns in the same run, because an absolute time says more about the
//! machine and its load than about the program. The table goes to standard error, JSON to standard
//! output and to `target/bench/store.json`. A bar that is not met is said, and is no failure.
//!
//! `cargo xtask make` comes here, too: [`make`] writes the large stores that the page is measured on.

mod agent;
mod child;
mod data;
mod lively;
mod make;
mod measure;
mod raw;
mod report;
mod rows;
mod text;

use std::{
    error::Error,
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use tempfile::TempDir;

use crate::{report::Figure, rows as r};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const HELP: &str = "\
Measure the store against raw baselines

Usage: cargo xtask bench store [--big] [--fresh] [--list] [ROW]...

  --big    also a log of 5 GB (5 GB of disk, about two minutes to make)
  --fresh  make the data anew; data of an older kind is made anew without it
  --list   print the rows

Arguments are also taken from the variable THREADLINE_BENCH. THREADLINE_BIN names a `threadline` to
measure instead of one that is built now.
";

/// Where things are, and how much is measured.
pub(crate) struct Bench {
    /// What is kept between runs.
    pub(crate) data: PathBuf,
    pub(crate) big: bool,
    base: PathBuf,
}

impl Bench {
    /// Makes a folder on the disk of the repository: it is the disk that is measured, and not a
    /// file system in memory.
    pub(crate) fn scratch(&self) -> Outcome<TempDir> {
        let dir = tempfile::Builder::new()
            .prefix("scratch-")
            .tempdir_in(&self.base)?;
        Ok(dir)
    }
}

const ROWS: [(&str, &str); 13] = [
    ("turn", "turn commit"),
    ("sessions", "64 sessions at once"),
    ("durable", "1,000 durable turns beside SQLite"),
    ("compacted", "resume of a compacted log"),
    ("process", "the whole program to its first request"),
    ("plain", "resume of a log that was never compacted"),
    ("index", "resume without an index"),
    ("fork", "fork of 1 GB"),
    ("verify", "verify of 1 GB"),
    ("memory", "peak memory on 1 GB"),
    ("list", "lists of 100,000 sessions"),
    ("sqlite", "SQLite backend"),
    ("start", "start-up beside /bin/true"),
];
const LATE: [(&str, &str); 2] = [("postgres", "PostgreSQL backend"), ("big", "a log of 5 GB")];

const OPTIONS: [&str; 5] = ["--big", "--fresh", "--list", "--help", "-h"];

fn rows() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    ROWS.iter().chain(&LATE)
}

async fn row(name: &str, bench: &Bench) -> Outcome<Vec<Figure>> {
    match name {
        "turn" => r::commit::turn(bench).await,
        "sessions" => r::commit::sessions(bench).await,
        "durable" => r::commit::durable(bench).await,
        "compacted" => r::resume::compacted(bench).await,
        "process" => r::process::process(bench).await,
        "plain" => r::resume::plain(bench).await,
        "index" => r::index::index(bench).await,
        "fork" => r::fork::fork(bench).await,
        "verify" => r::verify::verify(bench).await,
        "memory" => r::memory::memory(bench).await,
        "list" => r::list::list(bench).await,
        "sqlite" => r::sqlite::sqlite(bench).await,
        "start" => r::start::start(bench).await,
        "postgres" => r::postgres::postgres(bench).await,
        "big" => r::big::big(bench).await,
        other => Err(Refused::Row(other.to_owned()).into()),
    }
}

/// Returns why an error came to be, cause by cause.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

async fn measure_all(bench: &Bench, wanted: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, about) in rows() {
        if !wanted.is_empty() && !wanted.iter().any(|row| row == name) {
            continue;
        }
        let start = Instant::now();
        eprintln!("{name}: {about}");
        match row(name, bench).await {
            Ok(more) => figures.extend(more),
            Err(error) => figures.push(Figure::failed(name, *about, &chain(&*error))),
        }
        eprintln!("  {:.1} s", start.elapsed().as_secs_f64());
    }
    figures
}

async fn run(args: &[String]) -> Outcome<()> {
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let wanted: Vec<String> = args
        .iter()
        .filter(|arg| !arg.starts_with('-'))
        .cloned()
        .collect();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&base)?;
    let base = base.canonicalize()?;
    let bench = Bench {
        data: base.join("data"),
        big: flag("--big"),
        base,
    };
    if flag("--fresh") && bench.data.exists() {
        std::fs::remove_dir_all(&bench.data)?;
    }
    std::fs::create_dir_all(&bench.data)?;
    let before = measure::load_average();
    let figures = measure_all(&bench, &wanted).await;
    report::table(&figures);
    let json = serde_json::to_string_pretty(&report::json(&figures, before))?;
    std::fs::write(bench.base.join("store.json"), format!("{json}\n"))?;
    println!("{json}");
    Ok(())
}

/// An argument that cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Option(String),
    Row(String),
}

impl Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(option) => write!(
                f,
                "`{option}` is not an option (there are {}); --help tells what they do",
                OPTIONS.join(", ")
            ),
            Self::Row(row) => {
                let names: Vec<_> = rows().map(|(name, _)| *name).collect();
                write!(
                    f,
                    "`{row}` is not a row (there are {}); --list tells what they measure",
                    names.join(", ")
                )
            }
        }
    }
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Help,
    List,
    Measure,
}

/// Reads the arguments.
fn asked(args: &[String]) -> Result<Asked, Refused> {
    for arg in args {
        if arg.starts_with('-') {
            if !OPTIONS.contains(&arg.as_str()) {
                return Err(Refused::Option(arg.clone()));
            }
        } else if !rows().any(|(name, _)| name == arg) {
            return Err(Refused::Row(arg.clone()));
        }
    }
    let given = |names: &[&str]| args.iter().any(|arg| names.contains(&arg.as_str()));
    Ok(if given(&["--help", "-h"]) {
        Asked::Help
    } else if given(&["--list"]) {
        Asked::List
    } else {
        Asked::Measure
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.split_first() {
        Some((first, rest)) if first == child::ARGUMENT => child::be(rest).await,
        Some((first, rest)) if first == make::ARGUMENT => match make::Wanted::read(rest) {
            Ok(wanted) => make::make(wanted).await,
            Err(refused) => {
                eprintln!("error: {refused}");
                return ExitCode::from(2);
            }
        },
        _ => {
            let more = std::env::var("THREADLINE_BENCH").unwrap_or_default();
            args.extend(more.split_whitespace().map(str::to_owned));
            match asked(&args) {
                Ok(Asked::Help) => {
                    print!("{HELP}");
                    Ok(())
                }
                Ok(Asked::List) => {
                    rows().for_each(|(name, about)| println!("{name:10} {about}"));
                    Ok(())
                }
                Ok(Asked::Measure) => run(&args).await,
                Err(refused) => {
                    eprintln!("error: {refused}");
                    return ExitCode::from(2);
                }
            }
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> Result<Asked, Refused> {
        let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
        asked(&args)
    }

    #[test]
    fn rows_and_options_are_read_and_anything_else_is_refused_by_name() {
        assert_eq!(read(""), Ok(Asked::Measure));
        assert_eq!(read("fork --big verify --fresh"), Ok(Asked::Measure));
        assert_eq!(read("--list"), Ok(Asked::List));
        assert_eq!(read("-h fork"), Ok(Asked::Help));
        assert_eq!(read("--large"), Err(Refused::Option("--large".into())));
        let refused = read("fork spoon").unwrap_err();
        assert_eq!(refused, Refused::Row("spoon".into()));
        let said = refused.to_string();
        assert!(
            said.contains("`spoon`") && said.contains("compacted"),
            "{said}"
        );
    }

    #[test]
    fn row_names_are_unique() {
        let names: Vec<_> = rows().map(|(name, _)| name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(name), "{name}");
        }
    }
}
