//! The table of test lanes and benchmarks. A lane is one row.

use crate::tally::Counter;

/// When a lane runs without being named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// In the full run and in the quick one.
    Always,
    /// In the full run only.
    Full,
    /// In the quick run only; it is a part of another lane.
    Quick,
}

/// What must be there before a lane starts. [`crate::setup`] knows how to get each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A cargo component: its subcommand and its name in rustup.
    Component(&'static str, &'static str),
    /// The npm packages of `web/`.
    Npm,
    /// The built page, which the server crate embeds.
    Page,
    /// The binary, as cargo builds it for development.
    Binary,
    /// Chromium.
    Chromium,
}

/// The program of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// cargo, in the root of the repository.
    Cargo,
    /// A program of the page's packages, in `web/`.
    Npx,
}

/// A variable that a step's program sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Env {
    /// A fixed value.
    Is(&'static str),
    /// A value that the caller's environment may override.
    Default(&'static str),
    /// The path of the binary, unless the caller's environment names one.
    Binary,
    /// The path of Chromium.
    Chromium,
}

/// One program of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) program: Program,
    /// Arguments, separated by spaces.
    pub(crate) args: &'static str,
    pub(crate) env: &'static [(&'static str, Env)],
    /// How its tests are counted.
    pub(crate) counter: Counter,
}

/// A lane: steps that are run one after the other, all of them even if one fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) when: When,
    pub(crate) needs: &'static [Need],
    pub(crate) steps: &'static [Step],
}

const fn cargo(args: &'static str, counter: Counter) -> Step {
    Step {
        program: Program::Cargo,
        args,
        env: &[],
        counter,
    }
}

const fn npx(args: &'static str, counter: Counter) -> Step {
    Step {
        program: Program::Npx,
        args,
        env: &[],
        counter,
    }
}

const fn with(step: Step, env: &'static [(&'static str, Env)]) -> Step {
    Step { env, ..step }
}

const RUSTFMT: Need = Need::Component("fmt", "rustfmt");
const CLIPPY: Need = Need::Component("clippy", "clippy");

/// All lanes, in the order in which they run.
pub(crate) const LANES: &[Lane] = &[
    Lane {
        name: "fmt",
        about: "formatting of the Rust sources",
        when: When::Always,
        needs: &[RUSTFMT],
        steps: &[cargo("fmt --all --check", Counter::Check)],
    },
    Lane {
        name: "clippy",
        about: "lints, warnings denied",
        when: When::Full,
        needs: &[CLIPPY, Need::Page],
        steps: &[cargo(
            "clippy --workspace --all-targets -- -D warnings",
            Counter::Check,
        )],
    },
    Lane {
        name: "rust",
        about: "unit, contract, integration and documentation tests",
        when: When::Full,
        needs: &[Need::Page],
        // A few kills at most: the kill lane does them in earnest.
        steps: &[with(
            cargo("test --workspace --no-fail-fast", Counter::CargoTest),
            &[("THREADLINE_KILLS", Env::Is("5"))],
        )],
    },
    Lane {
        name: "libs",
        about: "tests of the library crates; a part of the rust lane",
        when: When::Quick,
        needs: &[Need::Page],
        steps: &[cargo(
            "test --workspace --exclude threadline-cli --lib --bins --tests --no-fail-fast",
            Counter::CargoTest,
        )],
    },
    Lane {
        name: "docs",
        about: "documentation builds, warnings denied",
        when: When::Full,
        needs: &[Need::Page],
        steps: &[with(
            cargo("doc --workspace --no-deps --all-features", Counter::Check),
            &[("RUSTDOCFLAGS", Env::Is("-D warnings"))],
        )],
    },
    Lane {
        name: "web",
        about: "types and unit tests of the page",
        when: When::Always,
        needs: &[Need::Npm],
        steps: &[
            npx("tsc --noEmit", Counter::Check),
            npx("tsc --noEmit -p e2e", Counter::Check),
            npx("vitest run", Counter::Vitest),
        ],
    },
    Lane {
        name: "kill",
        about: "SIGKILL of the real binary, then resume; THREADLINE_KILLS says how often",
        when: When::Full,
        needs: &[Need::Page],
        steps: &[with(
            cargo(
                "test -p threadline-cli --test kill -- --nocapture",
                Counter::CargoTest,
            ),
            &[("THREADLINE_KILLS", Env::Default("200"))],
        )],
    },
    Lane {
        name: "e2e",
        about: "the page in Chromium against the real binary",
        when: When::Full,
        needs: &[Need::Npm, Need::Chromium, Need::Page, Need::Binary],
        steps: &[
            // Found as STRICT_MODEL_BIN, else where this puts it.
            cargo("build -p threadline-strict-model", Counter::Check),
            with(
                npx("playwright test --reporter=list", Counter::Playwright),
                &[
                    ("THREADLINE_BIN", Env::Binary),
                    ("CHROMIUM", Env::Chromium),
                    ("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", Env::Is("1")),
                ],
            ),
        ],
    },
];

/// A benchmark: a program that prints JSON on stdout and a table for people on stderr.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    /// Arguments of cargo, separated by spaces.
    pub(crate) args: &'static str,
}

/// All benchmarks.
pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "store",
    args: "run --release -p threadline-jsonl --example bench_store",
}];
