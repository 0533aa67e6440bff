//! Seeded bugs: each must make a test fail, else the tests prove less than they seem to.
//!
//! The workspace is copied into `target/mutants/src` and built in `target/mutants/build`. One bug
//! at a time is put into the copy by replacing a text that stands there once; the smallest test
//! that should catch it runs; the text is put back. A test that fails without any bug, a text that
//! is not there and a bug that does not compile prove nothing, so they fail the lane too.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    Failure, place,
    runner::{self, note, say},
    tally::{Counter, Tally},
};

/// What of the workspace is copied. Its manifest names every one of its members.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", "xtask"];
/// Folders that hold no sources.
const NO_SOURCES: [&str; 3] = ["target", "node_modules", "dist"];
/// How many of the last lines of a run that went wrong are shown.
const SHOWN: usize = 40;

/// A test, and what it needs to be quick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Check {
    /// Which test program of `threadline-jsonl` it is in.
    program: &'static str,
    test: &'static str,
    /// The one workload of the crash lane that is run.
    workload: Option<&'static str>,
}

/// A bug, as the replacement of a text in a file.
#[derive(Debug)]
struct Mutant {
    /// The number of the bug in the plan. A bug in two shapes is caught if both are.
    number: u8,
    bug: &'static str,
    file: &'static str,
    /// Stands once in the file.
    text: &'static str,
    instead: &'static str,
    check: Check,
}

const fn crash(workload: &'static str) -> Check {
    Check {
        program: "crash",
        test: "no_crash_at_any_operation_loses_what_was_acknowledged",
        workload: Some(workload),
    }
}

const fn plain(program: &'static str, test: &'static str) -> Check {
    Check {
        program,
        test,
        workload: None,
    }
}

impl Check {
    /// Adds to a sentence which workload it is about, if it is about one.
    fn named(&self, sentence: String) -> String {
        match self.workload {
            Some(workload) => format!("{sentence} (workload: {workload})"),
            None => sentence,
        }
    }
}

const LOG: &str = "crates/threadline-jsonl/src/log.rs";

const CODEC: &str = "crates/threadline-session/src/codec.rs";

/// All bugs, some in two shapes. Those outside of `threadline-jsonl` are the last ones: undoing
/// them costs most.
const MUTANTS: &[Mutant] = &[
    Mutant {
        number: 1,
        bug: "the log is never synced",
        file: LOG,
        text: r#"            Some(file) => file.sync_data().at("syncing", &self.path),
"#,
        instead: "            Some(_) => Ok(()),\n",
        check: crash("append synced"),
    },
    Mutant {
        number: 2,
        bug: "a batch is acknowledged before its sync",
        file: LOG,
        text: "        self.write(batch, last_seq)?;
        let kept = if sync {
            self.sync()
        } else {
            self.check_taken()
        };
",
        instead: "        // What was written before is synced, and the batch the next time.
        if sync {
            self.sync()?;
        }
        self.write(batch, last_seq)?;
        let kept = self.check_taken();
",
        check: crash("append synced"),
    },
    Mutant {
        number: 3,
        bug: "folders are not synced after a log was created and renamed",
        file: "crates/threadline-jsonl/src/create.rs",
        text: r#"self.vfs.rename(&new, &log).at("renaming", &new)?;
            self.sync_place(dir)?;
"#,
        instead: r#"self.vfs.rename(&new, &log).at("renaming", &new)?;
"#,
        check: crash("create"),
    },
    Mutant {
        number: 4,
        bug: "a failed sync is tried again",
        file: LOG,
        text: r#"            Some(file) => file.sync_data().at("syncing", &self.path),
"#,
        instead: r#"            Some(file) => file
                .sync_data()
                .or_else(|_| file.sync_data())
                .at("syncing", &self.path),
"#,
        check: plain(
            "faults",
            "what_a_failed_sync_left_readable_is_not_believed_by_the_next_writer",
        ),
    },
    Mutant {
        number: 4,
        bug: "a writer goes on after a failed sync",
        file: LOG,
        text: "                self.note_failed();
                Err(self.poison(&error))
",
        instead: "                self.note_failed();
                Err(WriteError::Poisoned {
                    reason: error.to_string(),
                })
",
        check: plain(
            "mutants",
            "after_a_failed_sync_the_writer_refuses_everything_and_the_log_stays_as_it_was",
        ),
    },
    Mutant {
        number: 5,
        bug: "a torn end is not cut off before the next append",
        file: LOG,
        text: r#"            file.set_len(torn.offset).at("cutting", path)?;
            file.sync_data().at("syncing", path)?;
            len = torn.offset;
"#,
        instead: "            len = len.max(torn.offset);\n",
        check: crash("recover"),
    },
    Mutant {
        number: 7,
        bug: "a checkpoint is believed although it does not fit the log",
        file: "crates/threadline-jsonl/src/index.rs",
        text: "trailer.next_seq <= limit && fits(&trailer, pieces)?",
        instead: "trailer.next_seq <= limit && (fits(&trailer, pieces)? || true)",
        check: plain(
            "garbled",
            "an_index_of_another_session_or_another_time_changes_no_answer",
        ),
    },
    Mutant {
        number: 8,
        bug: "what a failed write left stays, and the next batch has the same numbers",
        file: LOG,
        text: r#"                .set_len(self.len)
                .at("cutting", path)
"#,
        instead: r#"                .len()
                .map(|len| self.len = len)
                .at("cutting", path)
"#,
        check: plain(
            "faults",
            "when_storage_is_full_nothing_remains_and_the_writer_goes_on_without_a_gap",
        ),
    },
    Mutant {
        number: 9,
        bug: "a writer that was taken over goes on",
        file: LOG,
        text: "if taken.map_err(|error| self.poison(&error))?.is_none() {",
        instead: "if taken.map_err(|error| self.poison(&error))?.is_none() || true {",
        check: plain(
            "locks",
            "races::a_writer_that_is_fenced_before_it_begins_takes_nothing_from_its_successor",
        ),
    },
    Mutant {
        number: 9,
        bug: "a writer goes on in a log that somebody else has changed",
        file: LOG,
        text: "        if len == self.len {\n",
        instead: "        if len == self.len || true {\n",
        check: plain(
            "mutants",
            "a_writer_whose_log_somebody_else_has_changed_is_fenced_and_appends_nothing",
        ),
    },
    Mutant {
        number: 10,
        bug: "a reader cuts off a torn end",
        file: "crates/threadline-jsonl/src/files.rs",
        text: "        scanner.page(from, max_bytes).map_err(failed)\n",
        instead: r#"        let page = scanner.page(from, max_bytes).map_err(failed)?;
        if let Some(torn) = &page.torn {
            let path = dir.join(LOG);
            let file = self.vfs.open(&path, Mode::Append);
            let cut = file.and_then(|file| file.set_len(torn.offset));
            cut.at("cutting", &path).map_err(failed)?;
        }
        Ok(page)
"#,
        check: crash("recover"),
    },
    Mutant {
        number: 6,
        bug: "checksums are ignored",
        file: CODEC,
        text: "        if crc == Crc::Mismatch {\n            return Err(LineError::Checksum);\n",
        instead: "        if crc == Crc::Mismatch && raw.is_empty() {
            return Err(LineError::Checksum);\n",
        check: plain(
            "bytes",
            "a_changed_byte_costs_its_own_line_and_is_damage_unless_nothing_valid_follows",
        ),
    },
    Mutant {
        number: 6,
        bug: "checksums are ignored where lines are read by their places",
        file: CODEC,
        text: "        Crc::Mismatch => return Err(LineError::Checksum),
        Crc::Match => skim_seq(raw),
",
        instead: "        Crc::Mismatch | Crc::Match => skim_seq(raw),\n",
        check: plain(
            "mutants",
            "a_line_that_is_read_by_its_place_is_damage_once_a_byte_of_its_content_has_changed",
        ),
    },
];

/// Seeds every bug. What it counts as passed are shapes of bugs that were caught.
pub(crate) fn run() -> (Tally, Result<(), Failure>) {
    let copy = Workspace::new(place::target().join("mutants"));
    let mut tally = Tally::default();
    if let Err(failure) = copy.prepare() {
        return (tally, Err(failure));
    }
    let mut problems = Vec::new();
    let mut missed = BTreeSet::new();
    for (at, mutant) in MUTANTS.iter().enumerate() {
        if runner::stopping() {
            problems.push("stopped".to_owned());
            missed.extend(MUTANTS.iter().skip(at).map(|left| left.number));
            break;
        }
        let begun = Instant::now();
        let outcome = copy.seed(mutant);
        let time = begun.elapsed().as_secs_f64();
        let bug = format!("{:>2} {}", mutant.number, mutant.bug);
        match outcome {
            Ok(caught) => {
                tally.passed += 1;
                say(&format!("{bug}: caught by {caught} in {time:.1} s"));
            }
            Err(failure) => {
                tally.failed += 1;
                missed.insert(mutant.number);
                say(&format!("{bug}: {failure} ({time:.1} s)"));
                problems.push(format!("{}: {failure}", bug.trim_start()));
            }
        }
    }
    let all = numbers().len();
    say(&format!("mutants: {} of {all} caught", all - missed.len()));
    let outcome = match problems.as_slice() {
        [] => Ok(()),
        problems => Err(problems.join("; ")),
    };
    (tally, outcome)
}

/// Returns the numbers of all bugs.
fn numbers() -> BTreeSet<u8> {
    MUTANTS.iter().map(|mutant| mutant.number).collect()
}

/// What a run of cargo said.
struct Said {
    line: String,
    /// Whether it ended well.
    well: bool,
    tally: Tally,
    /// The tests that failed.
    failed: Vec<String>,
    lines: Vec<String>,
}

impl Said {
    fn show(&self) {
        let skipped = self.lines.len().saturating_sub(SHOWN);
        self.lines.iter().skip(skipped).for_each(|line| say(line));
    }
}

/// The copy that bugs are put into.
struct Workspace {
    sources: PathBuf,
    build: PathBuf,
}

impl Workspace {
    fn new(dir: PathBuf) -> Self {
        Self {
            sources: dir.join("src"),
            build: dir.join("build"),
        }
    }

    /// Copies, builds, and runs without any bug what is to catch them.
    fn prepare(&self) -> Result<(), Failure> {
        let failed = |e: io::Error| format!("the workspace cannot be copied: {e}");
        fs::create_dir_all(&self.sources).map_err(failed)?;
        for name in SOURCES {
            mirror(&place::root().join(name), &self.sources.join(name)).map_err(failed)?;
        }
        for mutant in MUTANTS {
            self.mutated(mutant)?;
        }
        let programs: BTreeSet<_> = MUTANTS.iter().map(|it| it.check.program).collect();
        let mut build = self.cargo();
        build.arg("--no-run");
        for program in programs {
            build.args(["--test", program]);
        }
        let begun = Instant::now();
        note(&format!("$ {}", runner::line_of(&build)));
        expect_well(&judge(build)?)?;
        note(&format!("built in {:.1} s", begun.elapsed().as_secs_f64()));
        let checks: BTreeSet<_> = MUTANTS.iter().map(|it| it.check).collect();
        for check in &checks {
            let said = judge(self.checking(check))?;
            expect_well(&said).map_err(|failure| check.named(failure))?;
            if said.tally.passed != 1 {
                said.show();
                return Err(format!("`{}` ran no test", said.line));
            }
        }
        note(&format!(
            "{} tests pass without a bug after {:.1} s",
            checks.len(),
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Returns a run of cargo in the copy, as far as all of them are the same.
    fn cargo(&self) -> Command {
        let mut cargo = runner::cargo();
        cargo
            .current_dir(&self.sources)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // A bug may leave something unused, which must not keep it from being built.
            .env("RUSTFLAGS", "--cap-lints warn")
            .args(["test", "--locked", "-p", "threadline-jsonl"]);
        cargo
    }

    fn checking(&self, check: &Check) -> Command {
        let mut cargo = self.cargo();
        cargo.args(["--test", check.program, "--", "--exact", check.test]);
        if let Some(workload) = check.workload {
            cargo.env("THREADLINE_WORKLOAD", workload);
        }
        cargo
    }

    /// Puts a bug in, runs its test, and puts the text back. Returns the test that failed.
    fn seed(&self, mutant: &Mutant) -> Result<String, Failure> {
        let (path, sound, mutated) = self.mutated(mutant)?;
        let failed = |e: io::Error| format!("{} cannot be written: {e}", path.display());
        fs::write(&path, mutated).map_err(failed)?;
        let said = judge(self.checking(&mutant.check));
        fs::write(&path, sound).map_err(failed)?;
        let said = said?;
        match said.failed.as_slice() {
            [] if said.well => {
                said.show();
                Err(format!("NOT CAUGHT by `{}`", said.line))
            }
            [test] if !said.well && said.tally.failed == 1 => {
                let caught = format!("{}::{test}", mutant.check.program);
                Ok(mutant.check.named(caught))
            }
            _ => {
                said.show();
                Err(format!("`{}` failed, and no test did", said.line))
            }
        }
    }

    /// Returns where a bug goes, and the file without it and with it.
    fn mutated(&self, mutant: &Mutant) -> Result<(PathBuf, String, String), Failure> {
        let path = self.sources.join(mutant.file);
        let sound = fs::read_to_string(&path)
            .map_err(|e| format!("{} cannot be read: {e}", mutant.file))?;
        let mutated = mutate(&sound, mutant)?;
        Ok((path, sound, mutated))
    }
}

fn mutate(sound: &str, mutant: &Mutant) -> Result<String, Failure> {
    match sound.matches(mutant.text).count() {
        1 => Ok(sound.replacen(mutant.text, mutant.instead, 1)),
        times => Err(format!(
            "{}: the text that bug {} replaces stands there {times} times; adapt it in \
             xtask/src/mutants.rs",
            mutant.file, mutant.number
        )),
    }
}

/// Runs cargo and reads what it says.
fn judge(command: Command) -> Result<Said, Failure> {
    let line = runner::line_of(&command);
    let (status, lines) = runner::captured(command)?;
    if runner::stopping() {
        return Err(format!("`{line}` was stopped"));
    }
    let mut tally = Tally::default();
    lines
        .iter()
        .for_each(|line| tally.read(Counter::CargoTest, line));
    Ok(Said {
        line,
        well: status.success(),
        tally,
        failed: lines.iter().filter_map(|line| failed_test(line)).collect(),
        lines,
    })
}

/// Returns the test that a line like `test some::name ... FAILED` names.
fn failed_test(line: &str) -> Option<String> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (outcome == "FAILED").then(|| name.to_owned())
}

fn expect_well(said: &Said) -> Result<(), Failure> {
    if said.well {
        return Ok(());
    }
    said.show();
    Err(format!("`{}` fails without any bug", said.line))
}

/// Makes a copy of a file or a folder. What is the same already is left alone, so that cargo does
/// not build it again; what is gone goes.
fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let bytes = fs::read(from)?;
        let same = fs::read(to).is_ok_and(|old| old == bytes);
        return if same { Ok(()) } else { fs::write(to, bytes) };
    }
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if !NO_SOURCES.iter().any(|skipped| name == *skipped) {
            mirror(&from.join(&name), &to.join(&name))?;
            names.insert(name);
        }
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if names.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_that_a_bug_replaces_stands_in_its_file_once() {
        for mutant in MUTANTS {
            let sound = fs::read_to_string(place::root().join(mutant.file)).unwrap();
            let mutated = mutate(&sound, mutant).unwrap();
            assert_ne!(mutated, sound, "{}", mutant.number);
            assert!(mutate("", mutant).is_err());
        }
    }

    #[test]
    fn there_are_ten_bugs() {
        assert_eq!(numbers(), (1..=10).collect());
    }

    #[test]
    fn failed_tests_are_known_by_their_lines() {
        let failed = failed_test("test races::a_writer_is_fenced ... FAILED");
        assert_eq!(failed.as_deref(), Some("races::a_writer_is_fenced"));
        for line in [
            "test races::a_writer_is_fenced ... ok",
            "test result: FAILED. 0 passed; 1 failed",
            "error: could not compile `threadline-jsonl` (lib)",
        ] {
            assert_eq!(failed_test(line), None);
        }
    }
}
