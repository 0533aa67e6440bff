//! Counts of tests, read out of what test programs print.

use std::ops::AddAssign;

/// How the tests of a step are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// The step as a whole is one check.
    Check,
    /// `test result:` lines of cargo test.
    CargoTest,
    /// The `Tests` line of vitest.
    Vitest,
    /// The closing lines of Playwright's list reporter.
    Playwright,
}

/// Numbers of tests by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Tests that have said they could do nothing, and that cargo has not counted yet.
    idle: u64,
    /// Tests that have said so in all.
    excused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.excused += other.excused;
    }
}

impl Tally {
    /// Returns whether at least one test ran to its end, or all have said why not.
    pub(crate) fn ran(&self) -> bool {
        self.passed + self.failed + self.excused > 0
    }

    /// Takes a line like `power cuts: 0 run, 50 skipped: needs root`. To cargo, a test that finds
    /// nothing to run on has passed.
    fn read_skipped(&mut self, line: &str) {
        let skipped = || {
            let (_, rest) = line.split_once(": ")?;
            let (run, rest) = rest.split_once(" run, ")?;
            let (skipped, _) = rest.split_once(" skipped: ")?;
            Some((run.parse::<u64>().ok()?, skipped.parse::<u64>().ok()?))
        };
        if let Some((run, skipped)) = skipped() {
            self.skipped += skipped;
            self.idle += u64::from(run == 0);
        }
    }

    /// Adds what a printed line says of tests.
    pub(crate) fn read(&mut self, counter: Counter, line: &str) {
        let line = plain(line);
        if counter == Counter::CargoTest {
            self.read_skipped(&line);
        }
        let words = match counter {
            Counter::Check => return,
            Counter::CargoTest => line.strip_prefix("test result: "),
            Counter::Vitest => line.trim_start().strip_prefix("Tests  "),
            // Details and code frames are indented deeper.
            Counter::Playwright => line.strip_prefix("  ").filter(|l| !l.starts_with(' ')),
        };
        let Some(words) = words else { return };
        // `ok. 3 passed; 0 failed`, `1 failed | 2 passed (3)`, `  2 passed (4.0s)`
        let words: Vec<&str> = words
            .split([' ', ';', '|', '.', '(', ')'])
            .filter(|word| !word.is_empty())
            .collect();
        if counter == Counter::Playwright && !words.first().is_some_and(|w| is_number(w)) {
            return;
        }
        for pair in words.windows(2) {
            let [count, outcome] = pair else { continue };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match *outcome {
                // A flaky test has passed in the end; Playwright names it apart.
                "passed" | "flaky" => {
                    let idle = count.min(self.idle);
                    self.passed += count - idle;
                    self.excused += idle;
                    self.idle -= idle;
                }
                "failed" | "interrupted" => self.failed += count,
                // `did` is Playwright's `did not run`.
                "ignored" | "skipped" | "todo" | "did" => self.skipped += count,
                _ => {}
            }
            if counter == Counter::Playwright {
                return;
            }
        }
    }
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

/// Returns a line without the escape sequences of colours.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // `ESC [ ... letter`
            if chars.next() == Some('[') {
                for c in chars.by_ref() {
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(counter: Counter, text: &str) -> (u64, u64, u64) {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.read(counter, line));
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn cargo_test_results_are_summed_over_binaries() {
        let text = "running 2 tests\ntest a ... ok\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: \u{1b}[31mFAILED\u{1b}[0m. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s\n\
            said in passing: 9 passed; 9 failed\n";
        assert_eq!(tally(Counter::CargoTest, text), (15, 2, 1));
    }

    #[test]
    fn a_test_that_could_do_nothing_is_skipped_and_not_passed() {
        let text = "power cuts: 0 run, 50 skipped: needs root\n\
            full disks: 6 run, 3 skipped: xfs: mount: unknown filesystem type\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(tally(Counter::CargoTest, text), (4, 0, 53));
        let mut tally = Tally::default();
        let alone = "a: 0 run, 5 skipped: needs root\ntest result: ok. 1 passed; 0 failed\n";
        alone
            .lines()
            .for_each(|line| tally.read(Counter::CargoTest, line));
        assert!(tally.ran() && tally.passed == 0);
    }

    #[test]
    fn vitest_counts_tests_and_not_files() {
        let text = " Test Files  1 failed | 2 passed (3)\n\
            \u{1b}[2m      Tests \u{1b}[22m \u{1b}[1m\u{1b}[31m1 failed\u{1b}[39m\u{1b}[22m | 7 passed | 2 skipped | 1 todo (11)\n\
            Duration  1.02s\n";
        assert_eq!(tally(Counter::Vitest, text), (7, 1, 3));
    }

    #[test]
    fn playwright_closing_lines_are_counted_once() {
        let text = "Running 9 tests using 1 worker\n\
            \u{20} 1 failed\n    [chromium] > a.spec.ts:3:1 > 2 passed by\n\
            \u{20} 1 flaky\n    [chromium] > b.spec.ts\n\
            \u{20} 2 skipped\n  1 did not run\n  5 passed (12.3s)\n\
            \u{20} ok  1 [chromium] > c.spec.ts:1:1 > 3 passed (1.0s)\n";
        assert_eq!(tally(Counter::Playwright, text), (6, 1, 3));
    }
}
