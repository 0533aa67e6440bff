//! How a tool call is shown: title, kind, places, differences and output.
//!
//! Everything comes from the item of the read model, so that a call looks the same whether it is
//! seen live or replayed.

use std::path::{Component, Path, PathBuf};

use agent_client_protocol_schema::v1::{
    Content, Diff, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, Terminal, TerminalId,
    ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolKind,
};
use serde_json::{Map, Value, json};
use threadline_session::{
    ToolItem,
    payload::{ContentPart, Outcome},
};

use crate::{
    images::Images,
    limits::{
        DIFF_BYTES, LIVE_OUTPUT_BYTES, LOCATIONS, RAW_INPUT_BYTES, RESULT_BYTES, TITLE_CHARS,
    },
    text,
};

/// Shows a call as it stands.
pub(crate) fn show(
    item: &ToolItem,
    cwd: &Path,
    images: &Images,
    terminal: Option<&TerminalId>,
) -> ToolCall {
    let arguments: Value = serde_json::from_str(&item.arguments).unwrap_or_default();
    let raw = (item.arguments.len() <= RAW_INPUT_BYTES).then(|| arguments.clone());
    ToolCall::new(item.id.clone(), title(&item.name, &arguments))
        .name(item.name.clone())
        .kind(kind(&item.name))
        .status(status(item))
        .locations(locations(&item.name, &arguments, cwd))
        .content(content(item, &arguments, cwd, images, terminal))
        .raw_input(raw.filter(|raw| !raw.is_null()))
        .meta(meta(item))
}

/// Shows a call that only a question tells of.
pub(crate) fn asked(id: String, name: &str, arguments: &str, cwd: &Path) -> ToolCall {
    let parsed: Value = serde_json::from_str(arguments).unwrap_or_default();
    ToolCall::new(id, title(name, &parsed))
        .name(name.to_owned())
        .kind(kind(name))
        .locations(locations(name, &parsed, cwd))
        .content(differences(name, &parsed, cwd))
        .raw_input((arguments.len() <= RAW_INPUT_BYTES).then_some(parsed))
}

/// What this protocol has no word for: how the call ended, exactly.
fn meta(item: &ToolItem) -> Option<Map<String, Value>> {
    let outcome = item.outcome?;
    let told = json!({ "outcome": outcome, "synthetic": item.synthetic });
    Some(Map::from_iter([("threadline".to_owned(), told)]))
}

fn status(item: &ToolItem) -> ToolCallStatus {
    match item.outcome {
        Some(Outcome::Ok) => ToolCallStatus::Completed,
        Some(_) => ToolCallStatus::Failed,
        None if item.start_seq.is_some() => ToolCallStatus::InProgress,
        None => ToolCallStatus::Pending,
    }
}

fn kind(name: &str) -> ToolKind {
    match name {
        "read" | "read_output" => ToolKind::Read,
        "ls" | "find" | "grep" => ToolKind::Search,
        "edit" | "write" | "apply_patch" => ToolKind::Edit,
        "shell" | "job_start" | "job_status" | "job_kill" => ToolKind::Execute,
        "todo" => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

fn field<'a>(arguments: &'a Value, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

fn title(name: &str, arguments: &Value) -> String {
    let of = |field_name: &str| field(arguments, field_name).unwrap_or_default();
    let title = match name {
        "shell" | "job_start" if !of("command").is_empty() => of("command").to_owned(),
        "read" => format!("Read {}", of("path")),
        "ls" => format!("List {}", field(arguments, "path").unwrap_or(".")),
        "find" => format!("Find {}", of("pattern")),
        "grep" => format!("Search for {}", of("pattern")),
        "edit" => format!("Edit {}", of("path")),
        "write" => format!("Write {}", of("path")),
        "apply_patch" => "Apply a patch".into(),
        "todo" => "Update the list of steps".into(),
        "agent" => format!("Subagent: {}", of("task")),
        name => name.to_owned(),
    };
    text::one_line(&title, TITLE_CHARS)
}

/// Returns an absolute path without `.` and `..`; nothing is looked up.
fn absolute(cwd: &Path, path: &str) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                whole.pop();
            }
            part => whole.push(part),
        }
    }
    whole
}

fn locations(name: &str, arguments: &Value, cwd: &Path) -> Vec<ToolCallLocation> {
    if name == "apply_patch" {
        let patch = field(arguments, "patch").unwrap_or_default();
        let named = patch.lines().filter_map(|line| {
            let (verb, path) = line.strip_prefix("*** ")?.split_once(": ")?;
            let file = matches!(verb, "Add File" | "Update File" | "Delete File" | "Move to");
            file.then(|| ToolCallLocation::new(absolute(cwd, path.trim())))
        });
        return named.take(LOCATIONS).collect();
    }
    let known = matches!(name, "read" | "ls" | "find" | "grep" | "edit" | "write");
    let Some(path) = field(arguments, "path").filter(|_| known) else {
        return Vec::new();
    };
    let line = (arguments.get("offset").filter(|_| name == "read"))
        .and_then(Value::as_u64)
        .and_then(|line| u32::try_from(line).ok());
    vec![ToolCallLocation::new(absolute(cwd, path)).line(line)]
}

fn content(
    item: &ToolItem,
    arguments: &Value,
    cwd: &Path,
    images: &Images,
    terminal: Option<&TerminalId>,
) -> Vec<ToolCallContent> {
    let mut shown = differences(&item.name, arguments, cwd);
    if item.outcome.is_none() {
        // Only as long as the command runs: what is shown at its end is what a replay shows.
        if let Some(id) = terminal {
            shown.push(ToolCallContent::Terminal(Terminal::new(id.clone())));
        } else if !item.output.is_empty() {
            shown.push(plain(text::end(&item.output, LIVE_OUTPUT_BYTES)));
        }
        return shown;
    }
    for part in &item.content {
        match part {
            ContentPart::Text { text } if !text.is_empty() => {
                shown.push(plain(text::ends(text, RESULT_BYTES)));
            }
            ContentPart::Text { .. } => {}
            ContentPart::Image { .. } | ContentPart::Unknown => {
                let block = images.block(part);
                shown.push(ToolCallContent::Content(Content::new(block)));
            }
        }
    }
    shown
}

fn plain(text: String) -> ToolCallContent {
    ToolCallContent::Content(Content::new(text))
}

/// What a call changes, as far as its arguments tell.
fn differences(name: &str, arguments: &Value, cwd: &Path) -> Vec<ToolCallContent> {
    let Some(path) = field(arguments, "path") else {
        return Vec::new();
    };
    let path = absolute(cwd, path);
    match name {
        "write" => field(arguments, "content")
            .map(|new| difference(path, None, new))
            .into_iter()
            .collect(),
        "edit" => {
            let several = arguments.get("edits").and_then(Value::as_array);
            std::iter::once(arguments)
                .chain(several.into_iter().flatten())
                .filter_map(|edit| Some((field(edit, "old_string")?, field(edit, "new_string")?)))
                .map(|(old, new)| difference(path.clone(), Some(old), new))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn difference(path: PathBuf, old: Option<&str>, new: &str) -> ToolCallContent {
    let biggest = new.len().max(old.map_or(0, str::len));
    if biggest > DIFF_BYTES {
        return plain(format!(
            "[{}: the change has {biggest} bytes and is not shown]",
            path.display()
        ));
    }
    ToolCallContent::Diff(Diff::new(path, new).old_text(old.map(str::to_owned)))
}

/// Returns the plan that a call has set; `None` for any other call.
pub(crate) fn plan(item: &ToolItem) -> Option<Plan> {
    if item.name != "todo" || item.outcome != Some(Outcome::Ok) {
        return None;
    }
    let arguments: Value = serde_json::from_str(&item.arguments).ok()?;
    let steps = arguments.get("todos")?.as_array()?;
    let entries = steps.iter().filter_map(|step| {
        let status = match field(step, "status")? {
            "in_progress" => PlanEntryStatus::InProgress,
            "done" => PlanEntryStatus::Completed,
            _ => PlanEntryStatus::Pending,
        };
        let step = field(step, "step")?;
        Some(PlanEntry::new(step, PlanEntryPriority::Medium, status))
    });
    Some(Plan::new(entries.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(name: &str, arguments: Value) -> Vec<String> {
        locations(name, &arguments, Path::new("/work/here"))
            .into_iter()
            .map(|location| location.path.display().to_string())
            .collect()
    }

    #[test]
    fn places_are_absolute_and_without_detours() {
        assert_eq!(paths("read", json!({"path": "./a/../b"})), ["/work/here/b"]);
        assert_eq!(paths("ls", json!({"path": "/etc"})), ["/etc"]);
        assert_eq!(paths("shell", json!({"path": "a"})), [""; 0]);
        let patch = "*** Begin Patch\n*** Add File: n\n+x\n*** Update File: o\n*** Move to: p\n";
        let found = paths("apply_patch", json!({ "patch": patch }));
        assert_eq!(found, ["/work/here/n", "/work/here/o", "/work/here/p"]);
    }

    #[test]
    fn a_change_at_the_limit_is_shown_and_one_past_it_is_told_by_its_size() {
        let of = |bytes: usize| {
            let arguments = json!({"path": "a", "content": "x".repeat(bytes)});
            differences("write", &arguments, Path::new("/"))
        };
        assert!(matches!(of(DIFF_BYTES)[..], [ToolCallContent::Diff(_)]));
        assert!(matches!(
            of(DIFF_BYTES + 1)[..],
            [ToolCallContent::Content(_)]
        ));
    }

    #[test]
    fn several_edits_are_several_differences() {
        let arguments = json!({"path": "a", "edits": [
            {"old_string": "1", "new_string": "2"}, {"old_string": "3", "new_string": "4"}]});
        assert_eq!(differences("edit", &arguments, Path::new("/")).len(), 2);
    }

    #[test]
    fn wild_arguments_are_shown_without_a_panic() {
        for arguments in [json!(null), json!([1]), json!({"path": 3, "edits": {}})] {
            for name in ["edit", "write", "apply_patch", "read", "shell", "todo", "x"] {
                let _ = asked("id".into(), name, &arguments.to_string(), Path::new("/"));
            }
        }
    }
}
