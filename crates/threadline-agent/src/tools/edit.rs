//! `edit`: an exact replacement in a file.

use std::io::{self, Read as _};
use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use similar::TextDiff;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::paths::{Access, PathRules};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, failed, file, text};
use crate::limits::{DIFF_BYTES, DIFF_TIME, FILE_BYTES, NEAR_LINES};

const FIELDS: [Field; 4] = [
    Field::required(
        "path",
        "string",
        "The file, relative to the working directory.",
    ),
    Field::required(
        "old_string",
        "string",
        "The exact text to replace, with its white space and without line numbers.",
    ),
    Field::required("new_string", "string", "What to put in its place."),
    Field::optional(
        "replace_all",
        "boolean",
        "Whether to replace every occurrence; default false, and then there must be exactly one.",
    ),
];

/// Replaces exact text in a file and shows the difference.
#[derive(Debug, Clone, Copy)]
pub struct Edit;

#[async_trait]
impl Tool for Edit {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "edit",
            "Replaces an exact text in a file; it must occur exactly once unless `replace_all` is \
             given. Returns the difference.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::Writes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        match Request::parse(arguments) {
            Ok(request) => {
                super::blocking(ctx, move |ctx| {
                    request.run(ctx).unwrap_or_else(|refused| refused)
                })
                .await
            }
            Err(error) => error.into(),
        }
    }
}

struct Request {
    path: String,
    old: String,
    new: String,
    all: bool,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("edit", value, &FIELDS)?;
        let request = Self {
            path: arguments.path("path")?.to_owned(),
            old: arguments.string("old_string")?.to_owned(),
            new: arguments.string("new_string")?.to_owned(),
            all: arguments.flag("replace_all")?,
        };
        if request.old.is_empty() {
            return Err(ArgumentError::Invalid {
                field: "old_string",
                problem: "is empty; use `write` to make a file".into(),
            });
        }
        if request.old == request.new {
            return Err(ArgumentError::Invalid {
                field: "new_string",
                problem: "is the same as `old_string`, so nothing would change".into(),
            });
        }
        Ok(request)
    }

    fn run(&self, ctx: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let rules = PathRules::new(ctx)?;
        let target = rules.resolve(Path::new(&self.path), Access::Write)?;
        let name = text::printable(&self.path);
        let before = self.read(&target)?;
        let places = places(&before, &self.old);
        match places.len() {
            0 => return Err(ToolOutput::error(self.not_found(&before))),
            1 => {}
            _ if self.all => {}
            count => {
                return Err(ToolOutput::error(format!(
                    "`old_string` occurs {count} times in `{name}`, near {}; give more of the \
                     text around the one you mean, or set `replace_all`",
                    line_list(&places)
                )));
            }
        }
        let after = before.replace(&self.old, &self.new);
        if after.len() > FILE_BYTES {
            return Err(ToolOutput::error(format!(
                "`{name}` would have {} bytes; at most {FILE_BYTES} are written",
                after.len()
            )));
        }
        let replaced = before.matches(self.old.as_str()).count();
        // A cancelled call must not change anything after it was told to be over.
        if ctx.cancel.is_cancelled() {
            return Err(ToolOutput::cancelled());
        }
        file::replace(&target, after.as_bytes()).map_err(|e| failed("write", &self.path, &e))?;
        let diff = diff(&name, &before, &after);
        let times = if replaced == 1 { "time" } else { "times" };
        Ok(ToolOutput::ok(format!(
            "replaced {replaced} {times} in `{name}`\n{diff}"
        )))
    }

    fn read(&self, target: &Path) -> Result<String, ToolOutput> {
        let fail = |error: io::Error| failed("edit", &self.path, &error);
        let name = text::printable(&self.path);
        let file = file::open_regular(target).map_err(fail)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        if bytes.len() > FILE_BYTES {
            return Err(ToolOutput::error(format!(
                "`{name}` has more than {FILE_BYTES} bytes, too many for `edit`"
            )));
        }
        // Replacing invalid bytes would change parts of the file that nobody asked to change.
        String::from_utf8(bytes).map_err(|_| {
            ToolOutput::error(format!("`{name}` is not UTF-8 text; it was not changed"))
        })
    }

    fn not_found(&self, before: &str) -> String {
        let name = text::printable(&self.path);
        let mut message = format!("`old_string` occurs 0 times in `{name}`");
        if before.contains("\r\n") && before.contains(&self.old.replace('\n', "\r\n")) {
            message.push_str("; the file's lines end in \\r\\n and those of `old_string` do not");
            return message;
        }
        let wanted = self
            .old
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty());
        let near: Vec<usize> = wanted.map_or_else(Vec::new, |wanted| {
            let numbered = before.lines().zip(1..);
            numbered
                .filter(|(line, _)| line.contains(wanted))
                .map(|(_, number)| number)
                .collect()
        });
        if near.is_empty() {
            message.push_str("; read the file again and copy the text exactly");
        } else {
            message.push_str(&format!(
                "; its first line is near {}, but what follows or the white space differs",
                line_list(&near)
            ));
        }
        message
    }
}

/// Returns the line of every occurrence. One that overlaps the only other makes it ambiguous, so
/// it counts too.
fn places(text: &str, wanted: &str) -> Vec<usize> {
    let mut starts: Vec<usize> = text.match_indices(wanted).map(|(at, _)| at).collect();
    if let [only] = starts.as_slice() {
        let from = only + wanted.chars().next().map_or(1, char::len_utf8);
        let again = text.get(from..).and_then(|rest| rest.find(wanted));
        starts.extend(again.map(|found| from + found));
    }
    let mut line = 1;
    let mut counted = 0;
    let number = |at: usize| {
        line += text
            .get(counted..at)
            .map_or(0, |part| part.matches('\n').count());
        counted = at;
        line
    };
    starts.into_iter().map(number).collect()
}

fn line_list(lines: &[usize]) -> String {
    let mut distinct: Vec<usize> = lines.to_vec();
    distinct.dedup();
    let shown: Vec<String> = distinct
        .iter()
        .take(NEAR_LINES)
        .map(usize::to_string)
        .collect();
    let more = if distinct.len() > NEAR_LINES {
        " and more"
    } else {
        ""
    };
    let word = if distinct.len() == 1 { "line" } else { "lines" };
    format!("{word} {}{more}", shown.join(", "))
}

fn diff(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(before, after);
    let full = diff
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string();
    let safe = text::harmless(&full);
    if safe.len() <= DIFF_BYTES {
        return safe.into_owned();
    }
    format!(
        "{}\n[the difference has {} bytes; its first {DIFF_BYTES} are shown]",
        text::head(&safe, DIFF_BYTES),
        safe.len()
    )
}
