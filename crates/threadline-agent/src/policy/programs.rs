//! Programs that a grant of words must be careful with.
//!
//! A grant lets the model put anything behind the granted words. So a program that runs another one
//! which an argument names is no use as a grant, unless the words already say what it runs.

/// Words of the shell, and programs, that run whatever comes behind them, however many words stand
/// before.
const RUN_ANYTHING: [&str; 101] = [
    // The shell's own.
    "!",
    ".",
    "alias",
    "bind",
    "break",
    "builtin",
    "case",
    "cd",
    "command",
    "complete",
    "continue",
    "coproc",
    "declare",
    "do",
    "done",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fi",
    "for",
    "function",
    "hash",
    "if",
    "in",
    "let",
    "local",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "then",
    "time",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "until",
    "while",
    // Wrappers.
    "at",
    "batch",
    "busybox",
    "bwrap",
    "chroot",
    "chrt",
    "crontab",
    "doas",
    "env",
    "expect",
    "fakeroot",
    "firejail",
    "flock",
    "ionice",
    "nice",
    "nohup",
    "nsenter",
    "parallel",
    "pkexec",
    "proot",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "timeout",
    "toybox",
    "unshare",
    "watch",
    "xargs",
    // An option or a word of a program of theirs runs another.
    "awk",
    "ed",
    "ex",
    "find",
    "fd",
    "gawk",
    "gdb",
    "less",
    "man",
    "mawk",
    "nawk",
    "sed",
    "tar",
    "threadline",
];

/// Programs that run what a file or an option says; what comes behind the file is the file's.
const INTERPRETERS: [&str; 50] = [
    "ash",
    "bash",
    "clojure",
    "csh",
    "dash",
    "elixir",
    "emacs",
    "erl",
    "escript",
    "fish",
    "ghci",
    "groovy",
    "guile",
    "irb",
    "java",
    "jshell",
    "julia",
    "ksh",
    "lldb",
    "lua",
    "luajit",
    "mksh",
    "mysql",
    "node",
    "nodejs",
    "nvim",
    "octave",
    "osascript",
    "perl",
    "php",
    "powershell",
    "psql",
    "pwsh",
    "pypy",
    "python",
    "R",
    "racket",
    "Rscript",
    "ruby",
    "runghc",
    "scala",
    "sh",
    "sqlite",
    "swipl",
    "tclsh",
    "ts-node",
    "tsx",
    "vi",
    "vim",
    "zsh",
];

/// Programs whose first word says what they do.
const DRIVERS: [&str; 60] = [
    "ansible",
    "apt",
    "apt-get",
    "aws",
    "az",
    "bazel",
    "brew",
    "bun",
    "bundle",
    "bunx",
    "cargo",
    "cmake",
    "composer",
    "conda",
    "deno",
    "docker",
    "dotnet",
    "gcloud",
    "gem",
    "gh",
    "git",
    "go",
    "gradle",
    "gradlew",
    "helm",
    "hg",
    "just",
    "kubectl",
    "make",
    "meson",
    "mix",
    "mvn",
    "mvnw",
    "ninja",
    "nix",
    "npm",
    "npx",
    "pdm",
    "pip",
    "pipenv",
    "pipx",
    "pnpm",
    "pnpx",
    "podman",
    "poetry",
    "rake",
    "rsync",
    "rustup",
    "rye",
    "sbt",
    "scp",
    "svn",
    "swift",
    "systemctl",
    "task",
    "terraform",
    "uv",
    "uvx",
    "yarn",
    "zig",
];

/// First words of drivers behind which a program, or something that runs one, is named.
const RUNNERS: [(&str, &[&str]); 21] = [
    ("bun", &["exec", "run", "x"]),
    ("bundle", &["exec"]),
    ("composer", &["exec", "run", "run-script"]),
    ("conda", &["run"]),
    ("dotnet", &["exec", "run", "tool"]),
    ("deno", &["run", "serve", "task"]),
    ("docker", &["compose"]),
    ("go", &["run", "tool"]),
    ("mix", &["cmd", "run"]),
    ("npm", &["run", "run-script"]),
    ("pdm", &["run"]),
    ("pipenv", &["run"]),
    ("pipx", &["run"]),
    ("pnpm", &["run"]),
    ("podman", &["compose"]),
    ("poetry", &["run"]),
    ("rye", &["run"]),
    ("swift", &["run"]),
    ("uv", &["run"]),
    ("yarn", &["run"]),
    ("zig", &["run"]),
];

/// First words of drivers that run anything, or that an option of theirs makes do so.
const DRIVEN_TO_ANYTHING: [(&str, &[&str]); 15] = [
    ("cargo", &["config", "install"]),
    ("cmake", &["env"]),
    ("deno", &["eval", "repl"]),
    ("docker", &["buildx", "container", "exec", "run"]),
    ("gh", &["alias", "codespace", "extension"]),
    (
        "git",
        &[
            "archive",
            "bisect",
            "clone",
            "config",
            "daemon",
            "difftool",
            "fetch",
            "filter-branch",
            "grep",
            "hook",
            "instaweb",
            "ls-remote",
            "mergetool",
            "pull",
            "push",
            "rebase",
            "remote",
            "send-email",
            "submodule",
            "var",
            "worktree",
        ],
    ),
    ("hg", &["bisect", "config"]),
    ("kubectl", &["debug", "exec", "plugin", "run"]),
    ("nix", &["develop", "run", "shell"]),
    ("npm", &["config", "exec", "explore", "set", "x"]),
    ("pnpm", &["config", "dlx", "exec"]),
    ("podman", &["container", "exec", "run", "unshare"]),
    ("rustup", &["run"]),
    ("uv", &["tool"]),
    ("yarn", &["config", "dlx", "exec", "node"]),
];

/// What a person may be offered: programs with these first words build, check and test.
const OFFERED: [(&str, &[&str]); 20] = [
    (
        "cargo",
        &[
            "bench", "build", "check", "clippy", "doc", "fmt", "nextest", "run", "test", "tree",
        ],
    ),
    ("npm", &["test"]),
    ("pnpm", &["test"]),
    ("yarn", &["test"]),
    ("bun", &["test"]),
    ("deno", &["check", "fmt", "lint", "test"]),
    ("go", &["build", "fmt", "test", "vet"]),
    ("dotnet", &["build", "format", "test"]),
    ("swift", &["build", "test"]),
    ("zig", &["build", "fmt", "test"]),
    ("mix", &["compile", "format", "test"]),
    ("mvn", &["compile", "test", "verify"]),
    ("gradle", &["assemble", "build", "check", "test"]),
    ("./gradlew", &["assemble", "build", "check", "test"]),
    ("bazel", &["build", "test"]),
    (
        "make",
        &[
            "all", "build", "check", "clippy", "fmt", "format", "lint", "test", "tests",
        ],
    ),
    (
        "just",
        &[
            "build", "check", "clippy", "fmt", "format", "lint", "test", "tests",
        ],
    ),
    ("rake", &["build", "lint", "test", "spec"]),
    ("meson", &["compile", "test"]),
    ("sbt", &["compile", "test"]),
];

/// Of these whatever follows is offered: they only build, check and test.
const OFFERED_ALONE: [&str; 17] = [
    "black",
    "ctest",
    "eslint",
    "flake8",
    "gofmt",
    "jest",
    "mypy",
    "prettier",
    "pylint",
    "pyright",
    "pytest",
    "rspec",
    "ruff",
    "rustfmt",
    "shellcheck",
    "tsc",
    "vitest",
];

fn has(words: &[&str], word: &str) -> bool {
    // On some file systems case does not matter.
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn of<'a>(table: &[(&str, &'a [&'a str])], name: &str) -> &'a [&'a str] {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map_or(&[], |(_, words)| words)
}

/// Returns the program that a word names: without its folder and without its version, as in
/// `/usr/bin/python3.12`.
fn program(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if bare.is_empty() { name } else { bare }
}

/// How far the words of a prefix are from saying what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// They say it.
    Bounded,
    /// A further word may say it.
    More,
    /// No word that follows could.
    Anything,
}

/// Returns how far words reach: what could be run by a command that begins with them.
pub(super) fn reach(words: &[String]) -> Reach {
    let Some((first, rest)) = words.split_first() else {
        return Reach::More;
    };
    let name = program(first);
    if has(&RUN_ANYTHING, name) || has(&RUN_ANYTHING, first) {
        return Reach::Anything;
    }
    let second = rest.first().map(String::as_str);
    let third = rest.get(1).map(String::as_str);
    if has(&INTERPRETERS, name) {
        return match second {
            None => Reach::More,
            // A module of Python's path.
            Some("-m") if name == "python" || name == "pypy" => named(third),
            // An option can say what runs.
            word => named(word),
        };
    }
    if !has(&DRIVERS, name) {
        return Reach::Bounded;
    }
    match second {
        Some(word) if has(of(&DRIVEN_TO_ANYTHING, name), word) => Reach::Anything,
        Some(word) if has(of(&RUNNERS, name), word) => match third {
            // Of Python's runners: whatever may not follow alone may not follow them either.
            Some(word) if !word.starts_with('-') => reach(rest.get(1..).unwrap_or_default()),
            word => named(word),
        },
        word => named(word),
    }
}

/// A word that is an option names nothing, and lets another word say what runs.
fn named(word: Option<&str>) -> Reach {
    match word {
        None => Reach::More,
        Some(word) if word.is_empty() || word.starts_with(['-', '+']) || word.contains('=') => {
            Reach::Anything
        }
        Some(_) => Reach::Bounded,
    }
}

/// Returns how many words of a command are worth being offered as a grant.
pub(super) fn offered(words: &[String]) -> Option<usize> {
    let word = |at: usize| words.get(at).map(String::as_str);
    let first = word(0)?;
    if has(&OFFERED_ALONE, first) {
        return Some(1);
    }
    let second = word(1)?;
    if has(of(&OFFERED, first), second) {
        return Some(2);
    }
    let third = word(2)?;
    let runs = matches!(
        (first, second),
        ("npm" | "pnpm" | "yarn" | "bun", "run")
            | ("uv" | "poetry" | "pipenv" | "pdm" | "rye", "run")
            | ("bundle", "exec")
    );
    if runs && is_name(third) {
        let scripts = matches!(first, "npm" | "pnpm" | "yarn" | "bun");
        return (scripts || has(&OFFERED_ALONE, third)).then_some(3);
    }
    let module = matches!(first, "python" | "python3") && second == "-m";
    (module && (has(&OFFERED_ALONE, third) || third == "unittest")).then_some(3)
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c))
}
