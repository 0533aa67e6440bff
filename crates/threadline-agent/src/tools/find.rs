//! `find`: paths by glob.

use std::path::Path;

use async_trait::async_trait;
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::walk::{Lines, start, walk};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, text};
use crate::limits::{FIND_PATHS, PATTERN_BYTES};

const FIELDS: [Field; 3] = [
    Field::required(
        "pattern",
        "string",
        "A glob. Without a / it is matched against names at any depth (`*.rs`), with one against \
         the path from where the search starts (`src/**/*.rs`).",
    ),
    Field::optional(
        "path",
        "string",
        "Where to search; default the working directory.",
    ),
    Field::optional(
        "limit",
        "integer",
        "Most paths to show; default and most 1000.",
    ),
];

/// Finds files and folders by glob.
#[derive(Debug, Clone, Copy)]
pub struct Find;

#[async_trait]
impl Tool for Find {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "find",
            "Finds files and folders by glob, in the order of the names; folders end in /. What \
             .gitignore names is passed over.",
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

/// A glob over a name or over a whole relative path.
pub(crate) struct Pattern {
    glob: GlobMatcher,
    whole: bool,
}

impl Pattern {
    pub(crate) fn parse(field: &'static str, pattern: &str) -> Result<Self, ArgumentError> {
        let invalid = |problem: String| ArgumentError::Invalid { field, problem };
        let pattern = pattern.trim_start_matches("./");
        if pattern.is_empty() {
            return Err(invalid("is empty".into()));
        }
        if pattern.len() > PATTERN_BYTES {
            return Err(invalid(format!("has more than {PATTERN_BYTES} bytes")));
        }
        if pattern.starts_with('/') {
            return Err(invalid(
                "must be relative; name the folder in `path`".into(),
            ));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .map_err(|error| invalid(format!("is no glob: {}", error.kind())))?;
        Ok(Self {
            glob: glob.compile_matcher(),
            whole: pattern.contains('/'),
        })
    }

    pub(crate) fn matches(&self, start: &Path, path: &Path) -> bool {
        if self.whole {
            let below = path.strip_prefix(start).unwrap_or(path);
            self.glob.is_match(below)
        } else {
            path.file_name()
                .is_some_and(|name| self.glob.is_match(name))
        }
    }
}

struct Request {
    pattern: Pattern,
    path: Option<String>,
    limit: u64,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("find", value, &FIELDS)?;
        Ok(Self {
            pattern: Pattern::parse("pattern", arguments.string("pattern")?)?,
            path: arguments.optional_path("path")?.map(str::to_owned),
            limit: arguments.count("limit", FIND_PATHS)?.unwrap_or(FIND_PATHS),
        })
    }

    fn run(&self, ctx: &ToolContext) -> ToolOutput {
        let (rules, start) = match start(ctx, self.path.as_deref()) {
            Ok(found) => found,
            Err(output) => return output,
        };
        let mut lines = Lines::new(self.limit);
        let gaps = walk(&rules, &start, ctx, |path, kind, _| {
            if path == start && kind.is_dir() || !self.pattern.matches(&start, path) {
                return true;
            }
            let slash = if kind.is_dir() { "/" } else { "" };
            lines.push(&format!("{}{slash}", text::show(rules.relative(path))))
        });
        if let Some(output) = gaps.end() {
            return output;
        }
        let mut notes = gaps.notes();
        if lines.is_full() {
            notes.insert(
                0,
                format!("the first {} are shown; there are more", lines.count()),
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
