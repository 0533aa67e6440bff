//! Who may do what without asking: pure rules over policy, sandbox and call.

mod prefix;
mod programs;
mod safe;

use std::path::{Component, Path};

use serde_json::Value;
use threadline_session::{
    Covers, SessionGrant,
    payload::{ApprovalPolicy, SandboxMode},
};

use crate::{limits::OUTSIDE_REASON_CHARS, tools::text::printable};

pub use prefix::{CommandPrefix, PrefixError, suggest};
pub use safe::is_safe_shell;
pub(crate) use safe::{looking_words, safe_words};
pub use threadline_sandbox::{Protected, protected_name};

pub use crate::tools::Effect;

/// What is to be done with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// It runs, and a person would be asked if a grant did not cover it.
    Granted {
        /// The grant, or one of those that cover it together.
        grant_id: String,
    },
    /// A person is asked first.
    Ask {
        /// Why, in one sentence for that person.
        reason: String,
    },
    /// A person is asked first, and the call then runs without the sandbox.
    AskOutside {
        /// Why, for that person.
        reason: String,
    },
    /// It does not run.
    Deny {
        /// Why, in one sentence for the model.
        reason: String,
    },
}

/// What a person approved for the rest of the session.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Its id in the log.
    pub id: String,
    /// What it covers.
    pub covers: Granted,
}

/// What a grant covers.
#[derive(Debug, Clone, PartialEq)]
pub enum Granted {
    /// The like of one call: the identical command of the shell, the same path of another tool,
    /// identical arguments of a tool that has no path or is of an MCP server, where a path may mean
    /// anything.
    Call {
        /// The tool.
        tool: String,
        /// The arguments it was asked with.
        arguments: Value,
    },
    /// Commands of the shell that begin with these words.
    Commands(CommandPrefix),
}

impl Grant {
    /// Reads a grant of a log; none when it is for nothing that could be called, or for words that
    /// nobody may be granted here.
    #[must_use]
    pub fn read(grant: &SessionGrant) -> Option<Self> {
        let covers = match &grant.covers {
            Covers::Commands { prefix } => {
                Granted::Commands(CommandPrefix::from_words(prefix.clone()).ok()?)
            }
            Covers::Call { name, arguments } => Granted::Call {
                tool: name.clone(),
                arguments: crate::tools::parse_arguments(arguments).ok()?,
            },
        };
        Some(Self {
            id: grant.id.clone(),
            covers,
        })
    }

    /// Returns whether it covers a call all by itself.
    #[must_use]
    pub fn covers(&self, tool: &str, arguments: &Value) -> bool {
        match &self.covers {
            Granted::Call {
                tool: granted,
                arguments: like,
            } => granted == tool && is_like(tool, like, arguments),
            Granted::Commands(prefix) => {
                tool == SHELL
                    && text_of(arguments, "command")
                        .is_some_and(|command| prefix::covers(&[prefix], command))
            }
        }
    }
}

fn is_like(tool: &str, granted: &Value, asked: &Value) -> bool {
    if tool == SHELL {
        let command = |value| text_of(value, "command");
        return matches!(
            (command(granted), command(asked)),
            (Some(granted), Some(asked)) if granted == asked
        );
    }
    if is_foreign(tool) {
        return granted == asked;
    }
    match (text_of(granted, "path"), text_of(asked, "path")) {
        (Some(granted), Some(asked)) => plain_path(granted) == plain_path(asked),
        (None, None) => granted == asked,
        _ => false,
    }
}

/// Returns the grant that covers a call, or one of several that do so together.
fn granted_by<'a>(grants: &'a [Grant], tool: &str, arguments: &Value) -> Option<&'a Grant> {
    if let Some(grant) = grants.iter().find(|grant| grant.covers(tool, arguments)) {
        return Some(grant);
    }
    let command = text_of(arguments, "command").filter(|_| tool == SHELL)?;
    let (mut first, mut prefixes) = (None, Vec::new());
    for grant in grants {
        if let Granted::Commands(prefix) = &grant.covers {
            first.get_or_insert(grant);
            prefixes.push(prefix);
        }
    }
    first.filter(|_| prefix::covers(&prefixes, command))
}

pub(crate) const SHELL: &str = "shell";

/// The argument by which a call of the shell asks to run without the sandbox.
pub(crate) const OUTSIDE: &str = "outside_sandbox";

/// What the names of tools of MCP servers begin with.
pub const FOREIGN: &str = "mcp__";

/// Returns whether a tool belongs to an MCP server, which runs outside of the sandbox.
#[must_use]
pub fn is_foreign(tool: &str) -> bool {
    tool.starts_with(FOREIGN)
}

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

/// Judges one call. A grant turns a question into permission, never a refusal, and never lets a
/// call leave the sandbox.
#[must_use]
pub fn judge(
    policy: ApprovalPolicy,
    sandbox: SandboxMode,
    effect: Effect,
    tool: &str,
    arguments: &Value,
    grants: &[Grant],
) -> Verdict {
    if tool == SHELL
        && sandbox != SandboxMode::DangerFullAccess
        && arguments.get(OUTSIDE) == Some(&Value::Bool(true))
    {
        return judge_outside(policy, text_of(arguments, "reason"));
    }
    let verdict = match effect {
        Effect::ReadOnly => Verdict::Allow,
        Effect::Writes => judge_write(policy, sandbox, tool),
        Effect::Executes => judge_command(policy, sandbox, tool, arguments),
    };
    match (verdict, granted_by(grants, tool, arguments)) {
        (Verdict::Ask { .. }, Some(grant)) => Verdict::Granted {
            grant_id: grant.id.clone(),
        },
        (verdict, _) => verdict,
    }
}

/// Returns what somebody else wrote so that it cannot look like something else to a person: on one
/// line, and without characters that turn its direction or are not seen.
fn plainly(text: &str) -> String {
    let unseen = |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    printable(text).replace(unseen, "\u{fffd}")
}

/// Judges a call that is to run without the sandbox: a person is asked each time, whatever was
/// granted and however safe the command looks.
fn judge_outside(policy: ApprovalPolicy, reason: Option<&str>) -> Verdict {
    let Some(reason) = reason.map(str::trim).filter(|reason| !reason.is_empty()) else {
        return Verdict::Deny {
            reason: format!(
                "a call with `{OUTSIDE}` needs `reason`: one sentence for the person who is asked"
            ),
        };
    };
    if policy == ApprovalPolicy::Never {
        return Verdict::Deny {
            reason: format!(
                "`{OUTSIDE}` needs a person's approval, and the approval policy never asks; do it \
                 without, or say in your answer what the person should run"
            ),
        };
    }
    let said: String = plainly(reason).chars().take(OUTSIDE_REASON_CHARS).collect();
    Verdict::AskOutside {
        reason: format!(
            "shell runs this command WITHOUT the sandbox, this once: it can change and read what \
             you can, and reach the network. The model says why: {said}"
        ),
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
    // The sandbox keeps such a command from writing all the same; it may do other things that a
    // person who wants nothing changed wants to know of. An MCP server it keeps from nothing.
    let doubtful = sandbox == SandboxMode::ReadOnly && !safe;
    let does = if is_foreign(tool) {
        "belongs to an MCP server, which runs outside of the sandbox, and"
    } else {
        "runs a command that"
    };
    match policy {
        ApprovalPolicy::Strict | ApprovalPolicy::OnRequest if doubtful => Verdict::Ask {
            reason: format!(
                "{tool} {does} is not known to only read, and the sandbox mode is read_only"
            ),
        },
        ApprovalPolicy::Strict if is_foreign(tool) => Verdict::Ask {
            reason: format!(
                "{tool} {does} is not known to only read, and the approval policy is strict"
            ),
        },
        ApprovalPolicy::Strict => Verdict::Ask {
            reason: format!("{tool} runs a command, and the approval policy is strict"),
        },
        ApprovalPolicy::OnRequest if safe || sandbox == SandboxMode::DangerFullAccess => {
            Verdict::Allow
        }
        ApprovalPolicy::OnRequest => Verdict::Ask {
            reason: format!("{tool} {does} is not known to only read"),
        },
        ApprovalPolicy::Never if doubtful => Verdict::Deny {
            reason: format!(
                "{tool} {does} is not known to only read; the sandbox mode is read_only, and the \
                 approval policy never asks"
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
