//! `grep`: lines by regular expression.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde_json::Value;
use threadline_session::payload::ToolDefinition;
use tokio_util::sync::CancellationToken;

use super::arguments::{self, Arguments, Field};
use super::find::Pattern;
use super::walk::{Lines, start, walk};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, file, text};
use crate::limits::{
    GREP_HEAP_BYTES, GREP_LINE_BYTES, GREP_LINES, PATTERN_BYTES, PATTERN_COMPILED_BYTES,
};

const FIELDS: [Field; 5] = [
    Field::required(
        "pattern",
        "string",
        "A regular expression, matched within one line.",
    ),
    Field::optional(
        "path",
        "string",
        "The file or folder to search; default the working directory.",
    ),
    Field::optional(
        "glob",
        "string",
        "Only files that match this glob, such as `*.rs`.",
    ),
    Field::optional(
        "ignore_case",
        "boolean",
        "Whether case does not matter; default false.",
    ),
    Field::optional(
        "limit",
        "integer",
        "Most lines to show; default and most 500.",
    ),
];

/// Finds lines of text files by regular expression.
#[derive(Debug, Clone, Copy)]
pub struct Grep;

#[async_trait]
impl Tool for Grep {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "grep",
            "Finds lines by regular expression and shows them as file:line:text, in the order of \
             the names. Binary files and what .gitignore names are passed over.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        match Request::parse(arguments) {
            Ok(request) => super::blocking(ctx, move |ctx| request.run(ctx)).await,
            Err(error) => error.into(),
        }
    }
}

struct Request {
    matcher: RegexMatcher,
    path: Option<String>,
    glob: Option<Pattern>,
    limit: u64,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("grep", value, &FIELDS)?;
        let pattern = arguments.string("pattern")?;
        let glob = arguments.optional_string("glob")?;
        Ok(Self {
            matcher: matcher(pattern, arguments.flag("ignore_case")?)?,
            path: arguments.optional_path("path")?.map(str::to_owned),
            glob: glob.map(|glob| Pattern::parse("glob", glob)).transpose()?,
            limit: arguments.count("limit", GREP_LINES)?.unwrap_or(GREP_LINES),
        })
    }

    fn run(&self, ctx: &ToolContext) -> ToolOutput {
        let (rules, start) = match start(ctx, self.path.as_deref()) {
            Ok(found) => found,
            Err(output) => return output,
        };
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(GREP_HEAP_BYTES))
            .build();
        let mut lines = Lines::new(self.limit);
        let gaps = walk(&rules, &start, ctx, |path, kind, gaps| {
            let wanted = self
                .glob
                .as_ref()
                .is_none_or(|glob| glob.matches(&start, path));
            if !kind.is_file() || !wanted {
                return true;
            }
            let sink = Found {
                name: text::show(rules.relative(path)),
                lines: &mut lines,
            };
            match search(&mut searcher, &self.matcher, path, &ctx.cancel, sink) {
                Ok(()) => {}
                Err(_) if ctx.cancel.is_cancelled() => gaps.cancelled(),
                Err(_) => gaps.unreadable(),
            }
            !lines.is_full()
        });
        if let Some(output) = gaps.end() {
            return output;
        }
        let mut notes = gaps.notes();
        if lines.is_full() {
            notes.insert(
                0,
                format!(
                    "the first {} lines are shown; there are more",
                    lines.count()
                ),
            );
        } else if lines.count() == 0 {
            notes.insert(
                0,
                "nothing matches; what .gitignore names is passed over".into(),
            );
        }
        ToolOutput::ok(lines.finish(&notes))
    }
}

pub(super) fn matcher(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, ArgumentError> {
    let invalid = |problem: String| ArgumentError::Invalid {
        field: "pattern",
        problem,
    };
    if pattern.is_empty() {
        return Err(invalid("is empty".into()));
    }
    if pattern.len() > PATTERN_BYTES {
        return Err(invalid(format!("has more than {PATTERN_BYTES} bytes")));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(PATTERN_COMPILED_BYTES)
        .dfa_size_limit(PATTERN_COMPILED_BYTES)
        .build(pattern)
        .map_err(|error| invalid(format!("is no usable regular expression: {error}")))
}

fn search(
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    path: &Path,
    cancel: &CancellationToken,
    sink: Found<'_>,
) -> io::Result<()> {
    let inner = file::open_regular(path)?;
    searcher.search_reader(matcher, Stoppable { inner, cancel }, sink)
}

/// A reader that fails once the call is cancelled, because one file can be large.
struct Stoppable<'a, R> {
    inner: R,
    cancel: &'a CancellationToken,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}

/// Takes the matching lines of one file.
struct Found<'a> {
    name: String,
    lines: &'a mut Lines,
}

impl fmt::Debug for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Sink for Found<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = String::from_utf8_lossy(found.bytes());
        let line = text::shorten(line.trim_end_matches(['\n', '\r']), GREP_LINE_BYTES);
        let number = found.line_number().unwrap_or(0);
        let entry = format!("{}:{number}:{}", self.name, text::harmless(&line));
        Ok(self.lines.push(&entry))
    }
}
