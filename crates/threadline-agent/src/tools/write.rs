//! `write`: a whole file.

use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::file::{self, Replaced};
use super::paths::{Access, PathRules};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, failed, text};
use crate::limits::FILE_BYTES;

const FIELDS: [Field; 2] = [
    Field::required(
        "path",
        "string",
        "The file, relative to the working directory.",
    ),
    Field::required("content", "string", "All that the file will hold."),
];

/// Writes a whole file, old or new, at once or not at all.
#[derive(Debug, Clone, Copy)]
pub struct Write;

#[async_trait]
impl Tool for Write {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "write",
            "Writes a whole file, replacing what it held; missing folders are made. To change a \
             part of a file use `edit`.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::Writes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        match parse(arguments) {
            Ok((path, content)) => {
                super::blocking(ctx, move |ctx| write(ctx, &path, &content)).await
            }
            Err(error) => error.into(),
        }
    }
}

fn parse(value: &Value) -> Result<(String, String), ArgumentError> {
    let arguments = Arguments::new("write", value, &FIELDS)?;
    let content = arguments.string("content")?;
    if content.len() > FILE_BYTES {
        return Err(ArgumentError::Invalid {
            field: "content",
            problem: format!(
                "has {} bytes; at most {FILE_BYTES} are taken",
                content.len()
            ),
        });
    }
    Ok((arguments.path("path")?.to_owned(), content.to_owned()))
}

fn write(ctx: &ToolContext, path: &str, content: &str) -> ToolOutput {
    let target =
        match PathRules::new(ctx).and_then(|rules| rules.resolve(Path::new(path), Access::Write)) {
            Ok(target) => target,
            Err(error) => return error.into(),
        };
    // A cancelled call must not change anything after it was told to be over.
    if ctx.cancel.is_cancelled() {
        return ToolOutput::cancelled();
    }
    if path.ends_with('/') {
        return ToolOutput::error(format!("`{}` names a folder", text::printable(path)));
    }
    match file::replace(&target, content.as_bytes()) {
        Ok(replaced) => ToolOutput::ok(format!(
            "wrote {} bytes to {} `{}`",
            content.len(),
            match replaced {
                Replaced::New => "the new file",
                Replaced::Old => "the existing file",
            },
            text::printable(path)
        )),
        Err(error) => failed("write", path, &error),
    }
}
