//! Who may do what without asking: pure rules over policy, sandbox and call.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path};

use serde_json::Value;
use threadline_session::payload::{ApprovalAsked, ApprovalPolicy, SandboxMode};

pub use crate::tools::Effect;

/// What is to be done with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person is asked first.
    Ask {
        /// Why, in one sentence for that person.
        reason: String,
    },
    /// It does not run.
    Deny {
        /// Why, in one sentence for the model.
        reason: String,
    },
}

/// A call that a person approved for the rest of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The tool.
    pub tool: String,
    /// The arguments it was asked with.
    pub arguments: Value,
}

impl Grant {
    /// Makes the grant of an answered question; none when its arguments are no JSON object.
    #[must_use]
    pub fn from_asked(asked: &ApprovalAsked) -> Option<Self> {
        let arguments = crate::tools::parse_arguments(&asked.arguments).ok()?;
        Some(Self {
            tool: asked.name.clone(),
            arguments,
        })
    }

    /// Returns whether it covers a call: the identical command of the shell, the same path of
    /// another tool, and identical arguments of a tool that has no path.
    #[must_use]
    pub fn covers(&self, tool: &str, arguments: &Value) -> bool {
        if self.tool != tool {
            return false;
        }
        if tool == SHELL {
            let command = |value: &Value| text_of(value, "command").map(str::to_owned);
            return matches!(
                (command(&self.arguments), command(arguments)),
                (Some(granted), Some(asked)) if granted == asked
            );
        }
        match (text_of(&self.arguments, "path"), text_of(arguments, "path")) {
            (Some(granted), Some(asked)) => plain_path(granted) == plain_path(asked),
            (None, None) => self.arguments == *arguments,
            _ => false,
        }
    }
}

const SHELL: &str = "shell";

fn text_of<'a>(arguments: &'a Value, field: &str) -> Option<&'a str> {
    arguments.get(field).and_then(Value::as_str)
}

/// `./a//b` and `a/b` are the same file whatever the links; `a/../b` need not be `b`.
fn plain_path(path: &str) -> Vec<Component<'_>> {
    Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// Judges one call. A grant turns a question into permission, never a refusal.
#[must_use]
pub fn judge(
    policy: ApprovalPolicy,
    sandbox: SandboxMode,
    effect: Effect,
    tool: &str,
    arguments: &Value,
    grants: &[Grant],
) -> Verdict {
    let verdict = match effect {
        Effect::ReadOnly => Verdict::Allow,
        Effect::Writes => judge_write(policy, sandbox, tool),
        Effect::Executes => judge_command(policy, sandbox, tool, arguments),
    };
    match verdict {
        Verdict::Ask { .. } if grants.iter().any(|grant| grant.covers(tool, arguments)) => {
            Verdict::Allow
        }
        verdict => verdict,
    }
}

fn judge_write(policy: ApprovalPolicy, sandbox: SandboxMode, tool: &str) -> Verdict {
    match (sandbox, policy) {
        (SandboxMode::ReadOnly, _) => Verdict::Deny {
            reason: format!("{tool} changes files, and the sandbox mode is read_only"),
        },
        (_, ApprovalPolicy::Strict) => Verdict::Ask {
            reason: format!("{tool} changes files, and the approval policy is strict"),
        },
        (_, ApprovalPolicy::OnRequest | ApprovalPolicy::Never) => Verdict::Allow,
    }
}

fn judge_command(
    policy: ApprovalPolicy,
    sandbox: SandboxMode,
    tool: &str,
    arguments: &Value,
) -> Verdict {
    let safe = tool == SHELL && text_of(arguments, "command").is_some_and(is_safe_shell);
    let leaves = sandbox == SandboxMode::ReadOnly && !safe;
    match policy {
        ApprovalPolicy::Strict | ApprovalPolicy::OnRequest if leaves => Verdict::Ask {
            reason: format!(
                "{tool} runs a command that is not known to only read, which leaves the \
                 read_only sandbox"
            ),
        },
        ApprovalPolicy::Strict => Verdict::Ask {
            reason: format!("{tool} runs a command, and the approval policy is strict"),
        },
        ApprovalPolicy::OnRequest if safe || sandbox == SandboxMode::DangerFullAccess => {
            Verdict::Allow
        }
        ApprovalPolicy::OnRequest => Verdict::Ask {
            reason: format!("{tool} runs a command that is not known to only read"),
        },
        ApprovalPolicy::Never if leaves => Verdict::Deny {
            reason: format!(
                "{tool} runs a command that is not known to only read; the sandbox mode is \
                 read_only, and the approval policy never asks"
            ),
        },
        ApprovalPolicy::Never => Verdict::Allow,
    }
}

/// A policy and a sandbox mode together.
pub type Bounds = (ApprovalPolicy, SandboxMode);

/// Returns how much a policy lets through without a person, least first.
fn freedom(policy: ApprovalPolicy) -> u8 {
    match policy {
        ApprovalPolicy::Strict => 0,
        ApprovalPolicy::OnRequest => 1,
        ApprovalPolicy::Never => 2,
    }
}

/// Returns whether the second bounds let anything through that the first do not.
#[must_use]
pub fn widens(from: Bounds, to: Bounds) -> bool {
    freedom(to.0) > freedom(from.0) || to.1 > from.1
}

/// Returns what was asked for, cut down to a ceiling in both respects.
#[must_use]
pub fn narrow(asked: Bounds, ceiling: Bounds) -> Bounds {
    (
        narrow_policy(asked.0, ceiling.0),
        narrow_sandbox(asked.1, ceiling.1),
    )
}

/// Returns the policy that was asked for, or the ceiling when that lets less through.
#[must_use]
pub fn narrow_policy(asked: ApprovalPolicy, ceiling: ApprovalPolicy) -> ApprovalPolicy {
    if freedom(asked) > freedom(ceiling) {
        ceiling
    } else {
        asked
    }
}

/// Returns the sandbox mode that was asked for, or the ceiling when that opens less.
#[must_use]
pub fn narrow_sandbox(asked: SandboxMode, ceiling: SandboxMode) -> SandboxMode {
    asked.min(ceiling)
}

/// Why a name is closed to tools in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    /// It belongs to git.
    Git,
    /// It holds the environment of a program, and so its secrets.
    Environment,
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Git => "part of git's own data (`.git`)",
            Self::Environment => "an environment file (`.env*`)",
        })
    }
}

/// Endings of environment files that are made to be shared.
const SHARED: [&str; 3] = [".example", ".sample", ".template"];

/// Returns why one component of a path is closed to tools, if it is. Case does not matter,
/// because on some file systems it does not.
#[must_use]
pub fn protected_name(name: &OsStr) -> Option<Protected> {
    let name = name.to_string_lossy().to_ascii_lowercase();
    if name == ".git" {
        Some(Protected::Git)
    } else if name.starts_with(".env") && !SHARED.iter().any(|ending| name.ends_with(ending)) {
        Some(Protected::Environment)
    } else {
        None
    }
}

/// What one safe command may be given.
struct SafeCommand {
    name: &'static str,
    /// Letters of short options without risk.
    letters: &'static str,
    /// Whether other words, paths that stay inside, may follow.
    words: bool,
}

const SAFE: [SafeCommand; 8] = [
    SafeCommand {
        name: "ls",
        letters: "1AFGRSUXacdfghilmnopqrstux",
        words: true,
    },
    SafeCommand {
        name: "pwd",
        letters: "LP",
        words: false,
    },
    SafeCommand {
        name: "cat",
        letters: "AbeEnstTuv",
        words: true,
    },
    SafeCommand {
        name: "head",
        letters: "cnqv",
        words: true,
    },
    // Not -f and -F, which never end.
    SafeCommand {
        name: "tail",
        letters: "cnqv",
        words: true,
    },
    SafeCommand {
        name: "wc",
        letters: "Lclmw",
        words: true,
    },
    SafeCommand {
        name: "echo",
        letters: "neE",
        words: true,
    },
    // Not -s, which sets the clock, and no -f and -r, which read files.
    SafeCommand {
        name: "date",
        letters: "uIR",
        words: false,
    },
];

const SAFE_GIT: [&str; 3] = ["status", "log", "diff"];

const SAFE_GIT_OPTIONS: [&str; 20] = [
    "--all",
    "--branch",
    "--cached",
    "--decorate",
    "--graph",
    "--long",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-ext-diff",
    "--no-merges",
    "--no-textconv",
    "--numstat",
    "--oneline",
    "--patch",
    "--porcelain",
    "--short",
    "--shortstat",
    "--staged",
    "--stat",
];

/// Returns whether a shell command is a single simple one that only looks, inside the workspace
/// as far as its text can tell. What is not known to be safe is not safe.
///
/// The text cannot tell where a symbolic link leads; the shell tool checks that when it runs.
#[must_use]
pub fn is_safe_shell(command: &str) -> bool {
    safe_words(command).is_some()
}

/// Returns the words of a safe command that may be paths.
pub(crate) fn safe_words(command: &str) -> Option<Vec<&str>> {
    // Only characters that mean themselves in every shell; `~` is looked at per word.
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || " _-./:,+@%^~".contains(c)
            || (!c.is_ascii() && c.is_alphabetic())
    };
    if !command.chars().all(plain) {
        return None;
    }
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let name = words.next()?;
    let rest: Vec<&str> = words.collect();
    let safe = if name == "git" {
        safe_git(&rest)
    } else {
        let known = SAFE.iter().find(|known| known.name == name)?;
        rest.iter().all(|word| match word.strip_prefix('-') {
            Some(option) => short_option(option, known.letters),
            None if known.name == "date" => word.starts_with('+'),
            None => known.words && stays_inside(word),
        })
    };
    safe.then(|| {
        rest.into_iter()
            .filter(|word| !word.starts_with('-'))
            .collect()
    })
}

/// Letters of the list, with a number after them or alone as in `head -20`.
fn short_option(option: &str, letters: &str) -> bool {
    let letter_part = option.trim_end_matches(|c: char| c.is_ascii_digit());
    !option.is_empty() && letter_part.chars().all(|c| letters.contains(c))
}

fn safe_git(rest: &[&str]) -> bool {
    let Some((command, rest)) = rest.split_first() else {
        return false;
    };
    SAFE_GIT.contains(command)
        && rest.iter().all(|word| {
            if word.starts_with("--") {
                *word == "--" || SAFE_GIT_OPTIONS.contains(word)
            } else if let Some(option) = word.strip_prefix('-') {
                short_option(option, "bnpsuz")
            } else {
                stays_inside(word)
            }
        })
}

/// Returns whether a word, taken as a path or as git's `revision:path`, names nothing outside the
/// workspace and nothing protected.
fn stays_inside(word: &str) -> bool {
    !word.starts_with(['/', '~'])
        && !word.contains("..")
        && !word.contains(":/")
        && word
            .split(['/', ':'])
            .all(|part| protected_name(OsStr::new(part)).is_none())
}
