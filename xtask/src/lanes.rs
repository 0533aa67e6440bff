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
    /// The npm packages of `tests/acp/`.
    Acp,
    /// The built page, which the server crate embeds.
    Page,
    /// The binary, as cargo builds it for development.
    Binary,
    /// Chromium.
    Chromium,
    /// The programs of a PostgreSQL server.
    Postgres,
    /// Programs of Debian packages that only root can use. Without them, tests skip and say so.
    Debian(&'static [DebianProgram]),
}

/// A program, and the Debian package that it is in.
pub(crate) type DebianProgram = (&'static str, &'static str);

/// The program of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// cargo, in the root of the repository.
    Cargo,
    /// A program of the page's packages, in `web/`.
    Npx,
    /// Node.js, in `tests/acp/`.
    Node,
    /// What [`crate::mutants`] does.
    Mutants,
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

const fn node(args: &'static str) -> Step {
    Step {
        program: Program::Node,
        args,
        env: &[("THREADLINE_BIN", Env::Binary)],
        // They count as cargo does.
        counter: Counter::CargoTest,
    }
}

const fn with(step: Step, env: &'static [(&'static str, Env)]) -> Step {
    Step { env, ..step }
}

const RUSTFMT: Need = Need::Component("fmt", "rustfmt");
const FILE_SYSTEMS: Need = Need::Debian(&[
    ("mount", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_io", "xfsprogs"),
]);
const TMUX: Need = Need::Debian(&[("tmux", "tmux")]);
const CLIPPY: Need = Need::Component("clippy", "clippy");

/// All lanes, in the order in which they run.
///
/// Lanes of one test binary name it for the whole workspace: cargo then takes what the lane before
/// has built. For one package alone it would build the libraries again, with other features.
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
        // A few kills at most: the kill lane does them in earnest. The disks lane has its tests to
        // itself.
        steps: &[with(
            cargo(
                "test --workspace --no-fail-fast -- --skip disks:: --skip contention::",
                Counter::CargoTest,
            ),
            &[("THREADLINE_KILLS", Env::Is("5"))],
        )],
    },
    Lane {
        name: "libs",
        about: "tests of the library crates; a part of the rust lane",
        when: When::Quick,
        needs: &[Need::Page],
        steps: &[cargo(
            "test --workspace --exclude threadline-cli --lib --bins --tests --no-fail-fast -- \
             --skip disks:: --skip contention::",
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
                "test --workspace --test kill -- --nocapture",
                Counter::CargoTest,
            ),
            &[("THREADLINE_KILLS", Env::Default("500"))],
        )],
    },
    Lane {
        name: "tui",
        about: "the terminal interface in a real terminal, driven through tmux",
        when: When::Full,
        needs: &[Need::Page, TMUX],
        steps: &[cargo(
            "test --workspace --test tui -- --ignored --test-threads=4",
            Counter::CargoTest,
        )],
    },
    Lane {
        name: "contention",
        about: "processes that fight for one session; THREADLINE_TAKEOVERS says how many holders \
                are killed",
        when: When::Full,
        needs: &[],
        steps: &[with(
            cargo(
                "test --workspace --test contention -- --ignored --nocapture \
                 --test-threads=1",
                Counter::CargoTest,
            ),
            &[("THREADLINE_TAKEOVERS", Env::Default("200"))],
        )],
    },
    Lane {
        name: "disks",
        about: "power cuts, full disks and failed syncs on loop images, as root; \
                THREADLINE_POWER_CUTS says how many cuts",
        when: When::Full,
        needs: &[FILE_SYSTEMS],
        steps: &[with(
            cargo(
                "test --workspace --test disks -- --ignored --nocapture",
                Counter::CargoTest,
            ),
            &[("THREADLINE_POWER_CUTS", Env::Default("50"))],
        )],
    },
    Lane {
        name: "mutants",
        about: "seeded bugs of the store, each of which a test must catch",
        when: When::Full,
        needs: &[],
        steps: &[Step {
            program: Program::Mutants,
            args: "",
            env: &[],
            counter: Counter::CargoTest,
        }],
    },
    Lane {
        name: "postgres",
        about: "contract and faults of the PostgreSQL backend, on clusters of its own",
        when: When::Full,
        needs: &[Need::Postgres, CLIPPY],
        // Its test binaries are left out of every run that does not name them.
        steps: &[
            cargo(
                "clippy -p threadline-postgres --no-deps --test contract --test faults -- -D warnings",
                Counter::Check,
            ),
            cargo(
                "test -p threadline-postgres --test contract --test faults --no-fail-fast",
                Counter::CargoTest,
            ),
        ],
    },
    Lane {
        name: "acp",
        about: "`threadline acp` against the schema of the official package, driven by three \
                clients of others, and replaying 100,000 events to a slow reader",
        when: When::Full,
        needs: &[Need::Acp, Need::Page, Need::Binary],
        steps: &[
            // Found as STRICT_MODEL_BIN, else where this puts it.
            cargo(
                "build -p threadline-strict-model -p threadline-sandbox",
                Counter::Check,
            ),
            node("conformance.mjs"),
            node("clients.mjs"),
            with(
                cargo(
                    "test --workspace --test it long:: -- --ignored --nocapture",
                    Counter::CargoTest,
                ),
                &[("THREADLINE_BIN", Env::Binary)],
            ),
        ],
    },
    Lane {
        name: "e2e",
        about: "the page in Chromium against the real binary",
        when: When::Full,
        needs: &[Need::Npm, Need::Chromium, Need::Page, Need::Binary],
        steps: &[
            // Found as STRICT_MODEL_BIN and BENCH_BIN, else where this puts them.
            cargo(
                "build -p threadline-strict-model -p threadline-bench",
                Counter::Check,
            ),
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

/// A benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) measures: Measures,
}

/// What measures.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measures {
    /// A program that prints JSON on stdout and a table for people on stderr. These are arguments
    /// of cargo, separated by spaces.
    Program(&'static str),
    /// Tests of the page that write JSON to the file that `BIG_REPORT` names. These are arguments
    /// of npx, separated by spaces.
    Page(&'static str),
}

/// All benchmarks.
pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "store",
        measures: Measures::Program("run --release -p threadline-bench --"),
    },
    Bench {
        name: "page",
        measures: Measures::Page("playwright test e2e/big.e2e --workers=1 --reporter=list"),
    },
];

/// Variables of the page's benchmark that say how large stores are, and their usual values.
pub(crate) const PAGE_SIZES: [(&str, &str); 2] =
    [("BIG_EVENTS", "1000000"), ("BIG_SESSIONS", "100000")];
