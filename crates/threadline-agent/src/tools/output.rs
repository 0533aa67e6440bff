//! `read_output`: parts of an earlier output that was too long to be shown whole.

use async_trait::async_trait;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, SearcherBuilder, sinks::Lossy};
use serde_json::Value;
use threadline_session::payload::ToolDefinition;
use threadline_store::{BlobId, error_chain};

use super::arguments::{self, Arguments, Field};
use super::{ArgumentError, CallSession, Effect, Tool, ToolContext, ToolOutput, grep, text};
use crate::limits::{GREP_LINE_BYTES, GREP_LINES, NOTE_BYTES, READ_LINES, RESULT_BYTES};
use crate::outputs::NAME_DIGITS;

const FIELDS: [Field; 6] = [
    Field::required(
        "name",
        "string",
        "The name of the output, as the shortened result tells it.",
    ),
    Field::optional(
        "offset",
        "integer",
        "First line (or byte) to show, counted from 1; default 1.",
    ),
    Field::optional(
        "limit",
        "integer",
        "Most lines (or bytes) to show; at most 2000 lines or 32 KiB at once.",
    ),
    Field::optional(
        "unit",
        "string",
        "Whether offset and limit count `lines` or `bytes`; default `lines`.",
    ),
    Field::optional(
        "pattern",
        "string",
        "A regular expression: only lines that match it are shown, at most 500.",
    ),
    Field::optional(
        "ignore_case",
        "boolean",
        "Whether case does not matter to the pattern; default false.",
    ),
];

/// Bytes of the text that one result shows, its notes not counted.
const ROOM: usize = RESULT_BYTES - NOTE_BYTES;

/// Reads on in an output of this session that was kept as a blob.
///
/// Which blobs those are is told by the session's log: a name that a result of another session
/// has, or that stands in a text, opens nothing.
#[derive(Debug, Clone, Copy)]
pub struct ReadOutput;

#[async_trait]
impl Tool for ReadOutput {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "read_output",
            "Shows a part of an earlier tool result that was too long and was shown with its \
             middle left out: some lines, some bytes, or the lines that match a pattern. Every \
             line begins with its number and a tab, which are not part of the output.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let request = match Request::parse(arguments) {
            Ok(request) => request,
            Err(error) => return error.into(),
        };
        let Some(session) = &ctx.session else {
            return ToolOutput::error("there is no session here, so no output was kept");
        };
        let found = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return ToolOutput::cancelled(),
            found = fetch(session, &request.name) => found,
        };
        match found {
            Ok(full) => super::blocking(ctx, move |_| request.show(&full)).await,
            Err(output) => output,
        }
    }
}

async fn fetch(session: &CallSession, name: &str) -> Result<String, ToolOutput> {
    let named = |result: &threadline_session::payload::ToolResult| {
        let blob = BlobId::parse(&result.full.as_ref()?.blob).ok()?;
        blob.as_str().starts_with(name).then_some(blob)
    };
    let mut found = session.pick_results(named).await.map_err(|error| {
        ToolOutput::error(format!(
            "the session's log cannot be read: {}",
            error_chain(&error)
        ))
    })?;
    found.sort_unstable();
    found.dedup();
    let blob = match found.as_slice() {
        [blob] => blob,
        [] => {
            return Err(ToolOutput::error(format!(
                "no result of this session has an output named `{name}`; a shortened result ends \
                 with the name of its output"
            )));
        }
        _ => {
            let names: Vec<&str> = found.iter().map(BlobId::as_str).collect();
            return Err(ToolOutput::error(format!(
                "`{name}` is the start of several names; give one of them whole: {}",
                text::shorten(&names.join(", "), NOTE_BYTES)
            )));
        }
    };
    match session.store().get_blob(blob).await {
        // The blob was made from a text.
        Ok(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
        Err(error) => Err(ToolOutput::error(format!(
            "the output cannot be read: {}; make the call again that gave it",
            error_chain(&error)
        ))),
    }
}

enum Part {
    Lines,
    Bytes,
    Matches(RegexMatcher),
}

struct Request {
    name: String,
    part: Part,
    offset: u64,
    limit: u64,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("read_output", value, &FIELDS)?;
        let unit = arguments.optional_string("unit")?.unwrap_or("lines");
        let ignore_case = arguments.flag("ignore_case")?;
        let pattern = arguments.optional_string("pattern")?;
        let (part, most) = match (pattern, unit) {
            (Some(pattern), "lines") => (
                Part::Matches(grep::matcher(pattern, ignore_case)?),
                GREP_LINES,
            ),
            (Some(_), "bytes") => {
                return Err(ArgumentError::Invalid {
                    field: "unit",
                    problem: "must be `lines` when a pattern is given".into(),
                });
            }
            (None, "lines") => (Part::Lines, READ_LINES),
            (None, "bytes") => (Part::Bytes, ROOM as u64),
            (_, other) => {
                return Err(ArgumentError::Invalid {
                    field: "unit",
                    problem: format!(
                        "must be `lines` or `bytes`, not `{}`",
                        text::shorten(&text::printable(other), 100)
                    ),
                });
            }
        };
        Ok(Self {
            name: name(arguments.string("name")?)?,
            part,
            offset: arguments.count("offset", u64::MAX)?.unwrap_or(1),
            // More than is shown at once is no mistake worth an error: the note says where to go on.
            limit: arguments
                .count("limit", u64::MAX)?
                .map_or(most, |limit| limit.min(most)),
        })
    }

    fn show(&self, full: &str) -> ToolOutput {
        match &self.part {
            Part::Lines => self.lines(full),
            Part::Bytes => self.bytes(full),
            Part::Matches(matcher) => self.matches(full, matcher),
        }
    }

    fn lines(&self, full: &str) -> ToolOutput {
        let mut shown = String::new();
        let (mut last, mut at, mut count) = (0, 0, 0);
        let mut note = None;
        for (line, number) in full.split_inclusive('\n').zip(1_u64..) {
            let begin = at;
            at += line.len();
            last = number;
            if number < self.offset {
                continue;
            }
            let numbered = numbered(number, line);
            if count == self.limit || shown.len() + numbered.len() > ROOM {
                note = Some(if shown.is_empty() {
                    shown.push_str(text::head(&numbered, ROOM));
                    format!(
                        "line {number} is too long and only its start is shown; read it with unit \
                         `bytes` from offset {} on; the next line has offset {}",
                        begin + 1,
                        number + 1
                    )
                } else {
                    format!(
                        "lines {} to {} are shown and more follow; read on with offset {number}",
                        self.offset,
                        number - 1
                    )
                });
                break;
            }
            shown.push_str(&numbered);
            count += 1;
        }
        if shown.is_empty() {
            return self.past_the_end(&format!("{last} lines"));
        }
        finish(shown, note)
    }

    fn bytes(&self, full: &str) -> ToolOutput {
        let from = usize::try_from(self.offset - 1).unwrap_or(usize::MAX);
        if from >= full.len() {
            return self.past_the_end(&format!("{} bytes", full.len()));
        }
        // A part of a character is shown with the part that it begins in.
        let from = full.floor_char_boundary(from);
        let rest = full.get(from..).unwrap_or_default();
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut shown = text::head(rest, limit);
        if shown.is_empty() {
            // Reading must get on by at least one character.
            shown = text::head(rest, rest.ceil_char_boundary(1));
        }
        let end = from + shown.len();
        let note = (end < full.len()).then(|| {
            format!(
                "bytes {} to {end} of {} are shown; read on with offset {}",
                from + 1,
                full.len(),
                end + 1
            )
        });
        finish(shown.to_owned(), note)
    }

    fn matches(&self, full: &str, matcher: &RegexMatcher) -> ToolOutput {
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::none())
            .build();
        let mut shown = String::new();
        let (mut count, mut note) = (0, None);
        let sink = Lossy(|number, line: &str| {
            if number < self.offset {
                return Ok(true);
            }
            let cut = text::shorten(line.trim_end_matches(['\n', '\r']), GREP_LINE_BYTES);
            let numbered = numbered(number, &cut);
            if count == self.limit || shown.len() + numbered.len() > ROOM {
                note = Some(format!(
                    "{count} lines are shown and more match; read on with offset {number}"
                ));
                return Ok(false);
            }
            shown.push_str(&numbered);
            count += 1;
            Ok(true)
        });
        if let Err(error) = searcher.search_slice(matcher, full.as_bytes(), sink) {
            return ToolOutput::error(format!("the output cannot be searched: {error}"));
        }
        if shown.is_empty() {
            return ToolOutput::ok(format!("[no line from {} on matches]", self.offset));
        }
        finish(shown, note)
    }

    fn past_the_end(&self, length: &str) -> ToolOutput {
        ToolOutput::error(format!(
            "`offset` {} is past the end: the output has {length}",
            self.offset
        ))
    }
}

/// Reads a name as the shortened result tells it, or more digits of it.
fn name(given: &str) -> Result<String, ArgumentError> {
    let name = given.trim().trim_end_matches(['\u{2026}', '.']);
    let digits = name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if digits && (NAME_DIGITS..=64).contains(&name.len()) {
        return Ok(name.to_owned());
    }
    Err(ArgumentError::Invalid {
        field: "name",
        problem: format!(
            "is no name of an output: `{}`; a shortened result ends with the name, at least \
             {NAME_DIGITS} digits and letters from a to f",
            text::shorten(&text::printable(given), 100)
        ),
    })
}

fn numbered(number: u64, line: &str) -> String {
    format!("{number:>6}\t{}\n", line.trim_end_matches('\n'))
}

fn finish(mut shown: String, note: Option<String>) -> ToolOutput {
    match note {
        Some(note) => {
            if !shown.ends_with('\n') {
                shown.push('\n');
            }
            shown.push_str(&format!("[{note}]"));
        }
        None => shown.truncate(shown.trim_end_matches('\n').len()),
    }
    ToolOutput::ok(shown)
}
