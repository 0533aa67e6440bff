//! Tasks and calls as people see them on a page.

use threadline_session::{
    OsPath, Payload,
    payload::{
        AssistantPart, ContentPart, Outcome as CallOutcome, OutputStream, ToolOutput, ToolResult,
        ToolStart,
    },
};

use crate::text::{self, Pool};

const VERBS: [&str; 8] = [
    "Fix", "Explain", "Refactor", "Test", "Document", "Speed up", "Review", "Remove",
];
const WHATS: [&str; 12] = [
    "the flaky test",
    "the parser",
    "error handling",
    "the retry loop",
    "pagination",
    "the cache",
    "logging",
    "the build script",
    "input validation",
    "time zones",
    "the migration",
    "the search index",
];
const WHERE: [&str; 10] = [
    "billing",
    "the importer",
    "checkout",
    "the gateway",
    "the scheduler",
    "reports",
    "the mail queue",
    "accounts",
    "the editor",
    "uploads",
];

/// Returns what a person asks for.
pub(crate) fn task(pool: &mut Pool) -> String {
    let dice = pool.dice();
    let (verb, what, place) = (
        dice.one_of(&VERBS),
        dice.one_of(&WHATS),
        dice.one_of(&WHERE),
    );
    format!("{verb} {what} in {place}")
}

/// A call of a tool, and what came of it.
#[derive(Debug)]
pub(crate) struct Call {
    id: String,
    name: &'static str,
    arguments: String,
    /// Its result.
    pub(crate) text: String,
}

/// Most bytes of output in one event of a [`call`].
const PART: u64 = 1_500;

/// Makes a call: mostly a command, else a file that is read or changed.
pub(crate) fn call(pool: &mut Pool, id: String) -> Call {
    let file = pool.dice().between(1, 400);
    let (name, arguments, text) = match pool.dice().between(0, 9) {
        0 | 1 => {
            let (old, new) = (pool.cut(120), pool.cut(140));
            let path = format!("src/part_{file}.rs");
            let arguments =
                serde_json::json!({ "path": path, "old_string": old, "new_string": new });
            ("edit", arguments, "Replaced 1 occurrence.".to_owned())
        }
        2 | 3 => {
            let arguments = serde_json::json!({ "path": format!("src/part_{file}.rs") });
            let size = pool.dice().skewed(500, 9_000);
            ("read", arguments, pool.cut(size))
        }
        _ => {
            let command = format!("cargo test part_{file} -- --nocapture");
            let size = pool.dice().skewed(40, 20_000);
            let text = format!("{}\n[exit code 0]", pool.cut(size));
            ("shell", serde_json::json!({ "command": command }), text)
        }
    };
    let mut call = Call::new(id, name, arguments.to_string());
    call.text = text;
    call
}

impl Call {
    pub(crate) fn new(id: String, name: &'static str, arguments: String) -> Self {
        Self {
            id,
            name,
            arguments,
            text: String::new(),
        }
    }

    /// The part of a message that asks for it.
    pub(crate) fn asked(&self) -> AssistantPart {
        AssistantPart::ToolCall {
            call_id: self.id.clone(),
            name: self.name.into(),
            arguments: self.arguments.clone(),
        }
    }

    pub(crate) fn start(&self) -> Payload {
        Payload::ToolStart(ToolStart {
            call_id: self.id.clone(),
            name: self.name.into(),
            cwd: OsPath::from("/tmp"),
            outside_sandbox: false,
            grant_id: None,
        })
    }

    /// The result in parts as it comes, if the tool tells what it does.
    pub(crate) fn parts(&self) -> Vec<&str> {
        let mut parts = Vec::new();
        let mut rest = self.text.as_str();
        while self.name == "shell" && !rest.is_empty() {
            let (part, more) = rest.split_at(text::boundary(rest, PART));
            parts.push(part);
            rest = more;
        }
        parts
    }

    pub(crate) fn output(&self, delta: &str) -> Payload {
        Payload::ToolOutput(ToolOutput {
            call_id: self.id.clone(),
            stream: OutputStream::Stdout,
            delta: delta.to_owned(),
        })
    }

    pub(crate) fn result(&self) -> Payload {
        Payload::ToolResult(ToolResult {
            call_id: self.id.clone(),
            name: self.name.into(),
            content: vec![ContentPart::text(self.text.clone())],
            is_error: false,
            outcome: CallOutcome::Ok,
            full: None,
            synthetic: false,
        })
    }
}
