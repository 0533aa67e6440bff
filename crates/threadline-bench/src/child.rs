//! Doing one thing in a process of its own, so that its memory can be told.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use threadline_session::SessionId;
use threadline_store::Followed;

use crate::{Outcome, data, data::Log, measure};

/// The argument that makes this program such a process.
pub(crate) const ARGUMENT: &str = "--child";

/// The exit code of a check that found something.
const FINDINGS: i32 = 5;

/// What a process took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) cpu: f64,
    pub(crate) peak_kib: u64,
}

/// Does something to a log in a process of its own.
pub(crate) fn run(what: &str, log: &Log) -> Outcome<Took> {
    let output = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .arg(what)
        .arg(&log.root)
        .arg(&log.id)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("a process that was to {what}: {}", said.trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Is that process.
pub(crate) async fn be(args: &[String]) -> Outcome<()> {
    let [what, root, id] = args else {
        return Err("a child needs something to do, a root and an id".into());
    };
    let id = SessionId::parse(id.clone())?;
    let start = Instant::now();
    let store = data::store(Path::new(root))?;
    match what.as_str() {
        "load" => drop(store.load(&id).await?),
        "verify" => {
            let report = store.verify(&id).await?;
            if !report.ok {
                return Err(format!("it is damaged: {:?}", report.findings.first()).into());
            }
        }
        "follow" => {
            let mut follow = store.follow(&id, None);
            while let Followed::Line(_) = follow.next().await? {}
        }
        "inspect" => drop(store.inspect(&id).await?),
        "fork" => {
            let child = SessionId::parse("bench-child-fork")?;
            store.fork(&id, None, child.clone()).await?;
            store.delete(&child).await?;
        }
        other => return Err(format!("nobody knows how to {other}").into()),
    }
    let took = Took {
        seconds: start.elapsed().as_secs_f64(),
        cpu: measure::cpu_seconds(),
        peak_kib: measure::peak_kib(std::process::id()).unwrap_or_default(),
    };
    println!("{}", serde_json::to_string(&took)?);
    Ok(())
}

/// Runs a program to its end and watches its memory. What it takes in its last millisecond may be
/// missed. An end with code 5 is fine: the requests of the logs here are made up, so that
/// `verify --requests` has findings about them.
pub(crate) fn watch(command: &mut Command) -> Outcome<Took> {
    let start = Instant::now();
    let mut child: Child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut peak_kib = 0;
    let status = loop {
        peak_kib = measure::peak_kib(child.id())
            .unwrap_or_default()
            .max(peak_kib);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if !status.success() && status.code() != Some(FINDINGS) {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {status}: {}", said.trim()).into());
    }
    Ok(Took {
        seconds: start.elapsed().as_secs_f64(),
        cpu: 0.0,
        peak_kib,
    })
}

/// Returns the program that people run: what `THREADLINE_BIN` names, else it is built as they get it.
pub(crate) fn threadline() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("THREADLINE_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program is in no folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = folder.parent().ok_or("this program is in no folder")?;
    eprintln!("  building threadline-cli");
    let output = Command::new(cargo)
        .args(["build", "--release", "-q", "-p", "threadline-cli"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    let program = folder.join("threadline");
    if !output.status.success() || !program.is_file() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("threadline-cli cannot be built: {}", said.trim()).into());
    }
    Ok(program)
}
