//! Installs what is missing and builds what is stale, and says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Failure,
    lanes::{DebianProgram, Need},
    place::{self, Hash},
    runner::{self, Mode, cargo, command, note},
};

/// Where Debian puts Chromium.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Gets what lanes need, each thing once.
#[derive(Debug)]
pub(crate) struct Setup {
    mode: Mode,
    done: Vec<(Need, Result<(), Failure>)>,
}

impl Setup {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            mode,
            done: Vec::new(),
        }
    }

    /// Gets one thing, or says again why it could not be got.
    ///
    /// # Errors
    /// A sentence with what to do.
    pub(crate) fn ensure(&mut self, need: Need) -> Result<(), Failure> {
        if let Some((_, outcome)) = self.done.iter().find(|(known, _)| *known == need) {
            return outcome.clone();
        }
        let outcome = match need {
            Need::Component(subcommand, name) => self.component(subcommand, name),
            Need::Npm => self.npm(&place::web(), "the page's packages"),
            Need::Acp => self.npm(&place::acp(), "the packages of the ACP checks"),
            Need::Page => self.ensure(Need::Npm).and_then(|()| self.page()),
            Need::Binary => self.ensure(Need::Page).and_then(|()| self.binary(true)),
            Need::Chromium => self.chromium(),
            Need::Postgres => self.postgres(),
            Need::Debian(programs) => {
                self.debian(programs);
                Ok(())
            }
        };
        self.done.push((need, outcome.clone()));
        outcome
    }

    /// Builds the binary; the page must be there.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn binary(&self, dev: bool) -> Result<(), Failure> {
        let mut build = cargo();
        build.args(["build", "-p", "threadline-cli"]);
        if !dev {
            build.arg("--release");
        }
        runner::run(self.mode, build)
    }

    fn component(&self, subcommand: &str, name: &str) -> Result<(), Failure> {
        let mut probe = cargo();
        probe.args([subcommand, "--version"]);
        if answers(probe) {
            return Ok(());
        }
        note(&format!(
            "`cargo {subcommand}` is missing; installing {name}"
        ));
        let mut add = command("rustup");
        add.args(["component", "add", name]);
        runner::run(self.mode, add).map_err(|e| {
            format!("{name} is not installed and could not be: {e}; install it and run again")
        })
    }

    fn npm(&self, dir: &Path, what: &str) -> Result<(), Failure> {
        let lock = read(&dir.join("package-lock.json"))?;
        let mut hash = Hash::new();
        hash.add(&lock);
        // The stamp goes with the packages: who removes them removes it.
        let stamp = dir.join("node_modules/.threadline-lock");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == hash.to_string()) {
            return Ok(());
        }
        let mut probe = command("npm");
        probe.arg("--version");
        if !answers(probe) {
            return Err(
                "npm is not installed: install Node.js 20.19 or newer (https://nodejs.org) and \
                 run again"
                    .into(),
            );
        }
        note(&format!(
            "{what} are missing or not those of the lock file; installing them"
        ));
        let mut ci = command("npm");
        ci.args(["ci", "--no-audit", "--no-fund"])
            .current_dir(dir)
            .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
        runner::run(self.mode, ci)?;
        write(&stamp, &hash.to_string())
    }

    fn page(&self) -> Result<(), Failure> {
        let stamp = place::target().join("xtask/page");
        let dist = place::web().join("dist");
        let inputs = page_inputs()?;
        let wanted = format!("{inputs} {}", tree(&dist, &[])?);
        if dist.join("index.html").is_file()
            && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted)
        {
            note("the page is up to date");
            return Ok(());
        }
        let mut build = command("npm");
        build.args(["run", "build"]).current_dir(place::web());
        runner::run(self.mode, build)?;
        if !dist.join("index.html").is_file() {
            return Err("the page was built, but web/dist/index.html is not there".into());
        }
        write(&stamp, &format!("{inputs} {}", tree(&dist, &[])?))
    }

    fn chromium(&self) -> Result<(), Failure> {
        if let Some(path) = std::env::var_os("CHROMIUM") {
            return if Path::new(&path).is_file() {
                Ok(())
            } else {
                Err(format!(
                    "CHROMIUM names {}, which is not a file",
                    path.display()
                ))
            };
        }
        if Path::new(CHROMIUM).is_file() {
            return Ok(());
        }
        note(&format!(
            "{CHROMIUM} is missing; installing Debian's chromium and fonts-liberation"
        ));
        let failed = |e: Failure| {
            format!(
                "Chromium is not installed and could not be: {e}; install it, or name it in the \
                 variable CHROMIUM, and run again"
            )
        };
        self.install(&["chromium", "fonts-liberation"])
            .map_err(failed)?;
        if Path::new(CHROMIUM).is_file() {
            Ok(())
        } else {
            Err(failed(format!("apt-get has not put it at {CHROMIUM}")))
        }
    }

    fn postgres(&self) -> Result<(), Failure> {
        if has_postgres() {
            return Ok(());
        }
        note("PostgreSQL's server is missing; installing Debian's postgresql");
        let failed = |e: Failure| {
            format!(
                "PostgreSQL's server is not installed and could not be: {e}; install it, with \
                 initdb and postgres in the PATH, and run again"
            )
        };
        self.install(&["postgresql"]).map_err(failed)?;
        if has_postgres() {
            Ok(())
        } else {
            Err(failed(
                "apt-get has not put it in /usr/lib/postgresql".into(),
            ))
        }
    }

    /// Installs what is missing. Where that fails, the tests count what they had to skip.
    fn debian(&self, programs: &[DebianProgram]) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut packages: Vec<&str> = programs
            .iter()
            .filter(|(program, _)| !installed(program))
            .map(|(_, package)| *package)
            .collect();
        packages.dedup();
        if packages.is_empty() {
            return;
        }
        let named = packages.join(", ");
        note(&format!("missing; installing Debian's {named}"));
        if let Err(failure) = self.install(&packages) {
            note(&format!("{named} could not be installed: {failure}"));
        }
    }

    fn install(&self, packages: &[&str]) -> Result<(), Failure> {
        let install = ["install", "-y", "--no-install-recommends"];
        runner::run(self.mode, apt(&["update"]))?;
        runner::run(self.mode, apt(&[&install[..], packages].concat()))
    }
}

/// Returns the path of Chromium that tests use.
pub(crate) fn chromium_path() -> PathBuf {
    std::env::var_os("CHROMIUM").map_or_else(|| CHROMIUM.into(), PathBuf::from)
}

/// Returns whether a program is where the system keeps its own.
fn installed(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file())
}

/// Returns whether the programs of a PostgreSQL server are where Debian puts them, or in the PATH.
fn has_postgres() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = versions
        .map(|version| version.path().join("bin"))
        .chain(std::env::split_paths(&path));
    let complete = |folder: PathBuf| {
        ["initdb", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    folders.into_iter().any(complete)
}

fn apt(args: &[&str]) -> Command {
    let mut apt = if rustix::process::geteuid().is_root() {
        command("apt-get")
    } else {
        // `-n`: where a password would be asked for, it fails at once.
        let mut sudo = command("sudo");
        sudo.args(["-n", "apt-get"]);
        sudo
    };
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// Hashes everything in `web/` but what builds and tests make there.
fn page_inputs() -> Result<Hash, Failure> {
    let made = [
        "node_modules",
        "dist",
        "test-results",
        "playwright-report",
        "coverage",
    ];
    tree(&place::web(), &made)
}

fn tree(dir: &Path, skip: &[&str]) -> Result<Hash, Failure> {
    let mut hash = Hash::new();
    hash.add_tree(dir, skip)
        .map_err(|e| format!("{} cannot be read: {e}", dir.display()))?;
    Ok(hash)
}

/// Reads a file.
///
/// # Errors
/// A sentence.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

/// Writes a file, with its folders.
///
/// # Errors
/// A sentence.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text))
        .map_err(|e| format!("{} cannot be written: {e}", path.display()))
}

fn answers(mut probe: Command) -> bool {
    probe
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
