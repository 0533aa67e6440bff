//! `write`: a whole file.

use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::file::Replaced;
use super::files::{self, Held, Named};
use super::paths::{Access, PathRules};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, noted, text};
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
                super::blocking(ctx, move |ctx| {
                    write(ctx, &path, &content).unwrap_or_else(|refused| refused)
                })
                .await
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

fn write(ctx: &ToolContext, path: &str, content: &str) -> Result<ToolOutput, ToolOutput> {
    let rules = PathRules::new(ctx)?;
    let target = rules.resolve(Path::new(path), Access::Write)?;
    let name = text::printable(path);
    // A cancelled call must not change anything after it was told to be over.
    if ctx.cancel.is_cancelled() {
        return Err(ToolOutput::cancelled());
    }
    if path.ends_with('/') {
        return Err(ToolOutput::error(format!("`{name}` names a folder")));
    }
    let file = Named {
        given: path,
        target: &target,
        rules: &rules,
        access: Access::Write,
    };
    let held = held(ctx, &file)?;
    ctx.files.not_blindly(&file, &held)?;
    if ctx.cancel.is_cancelled() {
        return Err(ToolOutput::cancelled());
    }
    let (replaced, note) = ctx.files.put(ctx, &file, &held, content)?;
    let output = ToolOutput::ok(format!(
        "wrote {} bytes to {} `{name}`",
        content.len(),
        match replaced {
            Replaced::New => "the new file",
            Replaced::Old => "the existing file",
        },
    ));
    Ok(noted(output, note.as_deref()))
}

/// What is on disk matters only to a client that holds texts.
fn held(ctx: &ToolContext, file: &Named<'_>) -> Result<Held, ToolOutput> {
    if !ctx.files.are_lent() {
        return Ok(Held::on_disk(None));
    }
    match files::text_to_replace(file.target) {
        Ok(disk) => ctx.files.held(ctx, file, disk),
        Err(why) => Ok(Held {
            note: Some(format!("written on disk: {why}")),
            ..Held::on_disk(None)
        }),
    }
}
