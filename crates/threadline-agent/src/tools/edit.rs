//! `edit`: exact replacements in a file.

use std::io::{self, Read as _};
use std::path::Path;

use async_trait::async_trait;
use serde_json::{Value, json};
use similar::TextDiff;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::files::Named;
use super::paths::{Access, PathRules};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, failed, file, noted, text};
use crate::limits::{DIFF_BYTES, DIFF_TIME, EDIT_PLACES, FILE_BYTES, NEAR_LINES};

const EDITS: &str = "edits";

const PATH: Field = Field::required(
    "path",
    "string",
    "The file, relative to the working directory.",
);

const REPLACEMENT: [Field; 3] = [
    Field::optional(
        "old_string",
        "string",
        "The exact text to replace, with its white space and without line numbers.",
    ),
    Field::optional("new_string", "string", "What to put in its place."),
    Field::optional(
        "replace_all",
        "boolean",
        "Whether to replace every occurrence; default false, and then there must be exactly one.",
    ),
];

const SEVERAL: Field = Field::optional(
    EDITS,
    "array",
    "Several replacements instead of one, made one after the other, all or none.",
);

/// Replaces exact text in a file and shows the difference.
#[derive(Debug, Clone, Copy)]
pub struct Edit;

#[async_trait]
impl Tool for Edit {
    fn definition(&self) -> ToolDefinition {
        let fields = fields();
        let mut definition = arguments::definition(
            "edit",
            "Replaces an exact text in a file; it must occur exactly once unless `replace_all` is \
             given. Give `old_string` and `new_string`, or `edits` for several places. Returns \
             the difference.",
            &fields,
        );
        let mut one = arguments::definition("", "", &REPLACEMENT).parameters;
        if let Some(required) = one.get_mut("required") {
            *required = json!(["old_string", "new_string"]);
        }
        let several = definition.parameters.pointer_mut("/properties/edits");
        if let Some(Value::Object(schema)) = several {
            schema.insert("items".into(), one);
        }
        definition
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

fn fields() -> Vec<Field> {
    let mut fields = vec![PATH];
    fields.extend(REPLACEMENT);
    fields.push(SEVERAL);
    fields
}

/// One replacement.
struct Replacement {
    old: String,
    new: String,
    all: bool,
}

impl Replacement {
    fn parse(arguments: &Arguments<'_>) -> Result<Self, ArgumentError> {
        let parsed = Self {
            old: arguments.string("old_string")?.to_owned(),
            new: arguments.string("new_string")?.to_owned(),
            all: arguments.flag("replace_all")?,
        };
        if parsed.old.is_empty() {
            return Err(ArgumentError::Invalid {
                field: "old_string",
                problem: "is empty; use `write` to make a file".into(),
            });
        }
        if parsed.old == parsed.new {
            return Err(ArgumentError::Invalid {
                field: "new_string",
                problem: "is the same as `old_string`, so nothing would change".into(),
            });
        }
        Ok(parsed)
    }

    /// Makes the replacement in a text. Returns how many there were.
    fn apply(&self, name: &str, before: &str) -> Result<(String, usize), String> {
        let (old, new) = if ends_in_carriage(before) {
            // Models send line feeds; in such a file they stand for its line ends.
            (with_carriage(&self.old), with_carriage(&self.new))
        } else {
            (self.old.clone(), self.new.clone())
        };
        let places = places(before, &old);
        match places.len() {
            0 => return Err(self.not_found(name, before)),
            1 => {}
            _ if self.all => {}
            count => {
                return Err(format!(
                    "`old_string` occurs {count} times in `{name}`, near {}; give more of the \
                     text around the one you mean, or set `replace_all`",
                    line_list(&places)
                ));
            }
        }
        let count = before.matches(old.as_str()).count();
        let bytes = (before.len() - count * old.len()).saturating_add(count * new.len());
        if bytes > FILE_BYTES {
            return Err(format!(
                "`{name}` would have {bytes} bytes; at most {FILE_BYTES} are written"
            ));
        }
        Ok((before.replace(&old, &new), count))
    }

    fn not_found(&self, name: &str, before: &str) -> String {
        let mut message = format!("`old_string` occurs 0 times in `{name}`");
        if before.contains("\r\n") && before.contains(&with_carriage(&self.old)) {
            message.push_str(
                "; some of the file's lines end in \\r\\n and those of `old_string` do not",
            );
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

/// Whether every line of a text ends in `\r\n`.
fn ends_in_carriage(text: &str) -> bool {
    let feeds = text.matches('\n').count();
    feeds > 0 && text.matches("\r\n").count() == feeds
}

fn with_carriage(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

struct Request {
    path: String,
    edits: Vec<Replacement>,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("edit", value, &fields())?;
        let path = arguments.path("path")?.to_owned();
        let invalid = |problem: String| ArgumentError::Invalid {
            field: EDITS,
            problem,
        };
        let Some(list) = arguments.list(EDITS)? else {
            let edits = vec![Replacement::parse(&arguments)?];
            return Ok(Self { path, edits });
        };
        if arguments.optional_string("old_string")?.is_some()
            || arguments.optional_string("new_string")?.is_some()
        {
            return Err(invalid(
                "cannot be given together with `old_string` and `new_string`".into(),
            ));
        }
        if list.is_empty() || list.len() > EDIT_PLACES {
            return Err(invalid(format!(
                "must have from 1 to {EDIT_PLACES} replacements, not {}",
                list.len()
            )));
        }
        let edits = list
            .iter()
            .zip(1..)
            .map(|(edit, number)| {
                Arguments::new("edit", edit, &REPLACEMENT)
                    .and_then(|edit| Replacement::parse(&edit))
                    .map_err(|error| invalid(format!("number {number}: {error}")))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { path, edits })
    }

    fn run(&self, ctx: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let rules = PathRules::new(ctx)?;
        let target = rules.resolve(Path::new(&self.path), Access::Write)?;
        let name = text::printable(&self.path);
        let file = Named {
            given: &self.path,
            target: &target,
            rules: &rules,
            access: Access::Write,
        };
        let disk = read("edit", "edit", &self.path, &target)?;
        let held = ctx.files.held(ctx, &file, disk)?;
        let Some(before) = held.text.clone() else {
            return Err(failed("edit", &self.path, &io::ErrorKind::NotFound.into()));
        };
        let mut after = before.clone();
        let mut replaced = 0;
        for (edit, number) in self.edits.iter().zip(1..) {
            let (next, count) = edit.apply(&name, &after).map_err(|problem| {
                ToolOutput::error(if self.edits.len() == 1 {
                    problem
                } else {
                    format!("edit {number}: {problem}; nothing was changed")
                })
            })?;
            after = next;
            replaced += count;
        }
        if after == before {
            return Err(ToolOutput::error(format!(
                "the edits undo one another, so `{name}` would not change"
            )));
        }
        // A cancelled call must not change anything after it was told to be over.
        if ctx.cancel.is_cancelled() {
            return Err(ToolOutput::cancelled());
        }
        let (_, note) = ctx.files.put(ctx, &file, &held, &after)?;
        let diff = diff(&name, &before, &after, DIFF_BYTES);
        let times = if replaced == 1 { "time" } else { "times" };
        let output = ToolOutput::ok(format!("replaced {replaced} {times} in `{name}`\n{diff}"));
        Ok(noted(output, note.as_deref()))
    }
}

/// Reads a text file on disk that a tool is to change; nothing when there is none.
pub(super) fn read(
    tool: &str,
    doing: &str,
    path: &str,
    target: &Path,
) -> Result<Option<String>, ToolOutput> {
    let fail = |error: io::Error| failed(doing, path, &error);
    let name = text::printable(path);
    let file = match file::open_regular(target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() > FILE_BYTES {
        return Err(ToolOutput::error(format!(
            "`{name}` has more than {FILE_BYTES} bytes, too many for `{tool}`"
        )));
    }
    // Replacing invalid bytes would change parts of the file that nobody asked to change.
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| ToolOutput::error(format!("`{name}` is not UTF-8 text; it was not changed")))
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

pub(super) fn line_list(lines: &[usize]) -> String {
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

/// Returns a unified diff of at most about `most` bytes.
pub(super) fn diff(name: &str, before: &str, after: &str, most: usize) -> String {
    let diff = TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(before, after);
    let full = diff
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string();
    let safe = text::harmless(&full);
    if safe.len() <= most {
        return safe.into_owned();
    }
    format!(
        "{}\n[the difference has {} bytes; its first {most} are shown]",
        text::head(&safe, most),
        safe.len()
    )
}
