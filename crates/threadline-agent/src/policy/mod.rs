//! Who may do what without asking: pure rules over policy, sandbox and call.

mod safe;

use std::path::{Component, Path};

use serde_json::Value;
use threadline_session::payload::{ApprovalAsked, ApprovalPolicy, SandboxMode};

pub use safe::is_safe_shell;
pub(crate) use safe::safe_words;
pub use threadline_sandbox::{Protected, protected_name};

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
    /// another tool, and identical arguments of a tool that has no path or is of an MCP server,
    /// where a path may mean anything.
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
        if is_foreign(tool) {
            return self.arguments == *arguments;
        }
        match (text_of(&self.arguments, "path"), text_of(arguments, "path")) {
            (Some(granted), Some(asked)) => plain_path(granted) == plain_path(asked),
            (None, None) => self.arguments == *arguments,
            _ => false,
        }
    }
}

const SHELL: &str = "shell";

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
