//! `read`: a page of a text file, or an image.

use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use threadline_model::{Images, limits::MAX_IMAGE_BYTES};
use threadline_session::payload::ToolDefinition;
use tokio_util::sync::CancellationToken;

use super::arguments::{self, Arguments, Field};
use super::files::{Named, Source};
use super::paths::{Access, PathRules};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, failed, file, noted, text};
use crate::limits::{NOTE_BYTES, READ_LINES, RESULT_BYTES, SNIFF_BYTES};

const FIELDS: [Field; 3] = [
    Field::required(
        "path",
        "string",
        "The file, relative to the working directory.",
    ),
    Field::optional(
        "offset",
        "integer",
        "First line to show, counted from 1; default 1.",
    ),
    Field::optional(
        "limit",
        "integer",
        "Most lines to show; default and most 2000.",
    ),
];

/// Shows lines of a text file, each with its number and a tab before it, or an image as one.
///
/// The numbers are there because `offset`, `grep` and the errors of `edit` speak of lines.
#[derive(Debug, Clone, Copy)]
pub struct Read;

#[async_trait]
impl Tool for Read {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "read",
            "Shows a text file, at most 2000 lines or 32 KiB at once, and says how to read on. \
             Every line begins with its number and a tab, which are not part of the file. A PNG, \
             JPEG, GIF or WebP file is shown whole as an image; `offset` and `limit` are for text.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
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
    offset: u64,
    limit: u64,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new("read", value, &FIELDS)?;
        Ok(Self {
            path: arguments.path("path")?.to_owned(),
            offset: arguments.count("offset", u64::MAX)?.unwrap_or(1),
            limit: arguments.count("limit", READ_LINES)?.unwrap_or(READ_LINES),
        })
    }

    fn run(&self, ctx: &ToolContext) -> Result<ToolOutput, ToolOutput> {
        let rules = PathRules::new(ctx)?;
        let target = rules.resolve(Path::new(&self.path), Access::Read)?;
        let file = Named {
            given: &self.path,
            target: &target,
            rules: &rules,
            access: Access::Read,
        };
        let (output, note) = match ctx.files.source(ctx, &file)? {
            Source::Disk { note } => (self.show_disk(ctx, &target), note),
            Source::Client { text, note } => (self.show_text(ctx, &mut text.as_bytes()), note),
        };
        Ok(noted(output, note.as_deref()))
    }

    fn show_text(&self, ctx: &ToolContext, reader: &mut impl BufRead) -> ToolOutput {
        match reader.fill_buf() {
            Ok([]) => return ToolOutput::ok("[the file is empty]"),
            Ok(_) => {}
            Err(error) => return failed("read", &self.path, &error),
        }
        match page(reader, self.offset, self.limit, &ctx.cancel) {
            Ok(Some(page)) => page.render(self.offset),
            Ok(None) => ToolOutput::cancelled(),
            Err(error) => failed("read", &self.path, &error),
        }
    }

    fn show_disk(&self, ctx: &ToolContext, target: &Path) -> ToolOutput {
        let name = text::printable(&self.path);
        let fail = |error: &io::Error| failed("read", &self.path, error);
        let file = match file::open_regular(target) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return ToolOutput::error(format!("`{name}` is a folder; use `ls`"));
            }
            Err(error) => return fail(&error),
        };
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        let mut reader = BufReader::with_capacity(SNIFF_BYTES, file);
        match reader.fill_buf() {
            Ok(start) if Images::is_image(start) && !is_text(start) => {
                return image(reader, &name).unwrap_or_else(|error| fail(&error));
            }
            Ok(start) if start.contains(&0) => {
                return ToolOutput::error(format!(
                    "`{name}` is a binary file of {bytes} bytes; `read` shows text only"
                ));
            }
            Ok(_) => {}
            Err(error) => return fail(&error),
        }
        self.show_text(ctx, &mut reader)
    }
}

/// Returns whether the start of a file is text: a text may begin like a GIF or a WebP.
fn is_text(start: &[u8]) -> bool {
    let valid = match std::str::from_utf8(start) {
        Ok(_) => true,
        // The last character may be cut in two.
        Err(error) => error.error_len().is_none(),
    };
    valid && !start.contains(&0)
}

/// Reads an image, and never more of it than a model can be shown.
fn image(reader: impl io::Read, name: &str) -> io::Result<ToolOutput> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_IMAGE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(match Images::check(&bytes) {
        Ok(media_type) => {
            let about = format!("`{name}`: {media_type}, {} bytes", bytes.len());
            ToolOutput::ok(about).with_image(media_type, bytes)
        }
        Err(_) if bytes.len() > MAX_IMAGE_BYTES => ToolOutput::error(format!(
            "`{name}` is an image of more than {MAX_IMAGE_BYTES} bytes, which is the most that a \
             model can be shown; make a smaller copy of it and read that"
        )),
        Err(error) => ToolOutput::error(format!("`{name}` cannot be shown: {error}")),
    })
}

/// Numbered lines and what comes after them.
struct Page {
    text: String,
    /// Number of the line after the last one shown or skipped.
    next: u64,
    more: bool,
    /// Whether the last line shown is only a part of it.
    part: bool,
}

impl Page {
    fn render(self, offset: u64) -> ToolOutput {
        let Self {
            mut text,
            next,
            more,
            part,
        } = self;
        let last = next.saturating_sub(1);
        if text.is_empty() {
            return ToolOutput::error(format!(
                "`offset` {offset} is past the end: the file has {last} lines"
            ));
        }
        if part {
            text.push_str(&format!(
                "[line {last} is too long and only its start is shown; use `shell` for the rest]\n"
            ));
        }
        if more {
            text.push_str(&format!(
                "[lines {offset} to {last} are shown and more follow; read on with offset {next}]\n"
            ));
        }
        text.truncate(text.trim_end_matches('\n').len());
        ToolOutput::ok(text)
    }
}

/// Reads a page without ever holding more than a page; none when it was cancelled.
fn page(
    reader: &mut impl BufRead,
    offset: u64,
    limit: u64,
    cancel: &CancellationToken,
) -> io::Result<Option<Page>> {
    let budget = RESULT_BYTES - NOTE_BYTES;
    let mut page = Page {
        text: String::new(),
        next: 1,
        more: false,
        part: false,
    };
    let mut line: Vec<u8> = Vec::new();
    let mut begun = false;
    let mut shown = 0;
    loop {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if shown == limit && !piece.is_empty() {
            page.more = true;
            return Ok(Some(page));
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let content = end.and_then(|end| piece.get(..end)).unwrap_or(piece);
        if page.next >= offset {
            // One byte more than can be shown is enough to know that it is too long.
            let room = (budget + 1).saturating_sub(line.len());
            line.extend(content.iter().take(room));
        }
        let at_end = piece.is_empty();
        begun |= !at_end;
        let used = end.map_or(piece.len(), |end| end + 1);
        reader.consume(used);
        if end.is_none() && !at_end {
            continue;
        }
        if begun {
            if page.next >= offset && !page.add(&line, budget) {
                return Ok(Some(page));
            }
            shown += u64::from(page.next >= offset);
            page.next = page.next.saturating_add(1);
            line.clear();
            begun = false;
        }
        if at_end {
            return Ok(Some(page));
        }
    }
}

impl Page {
    /// Adds a line; false when it ends the page.
    fn add(&mut self, line: &[u8], budget: usize) -> bool {
        let decoded = String::from_utf8_lossy(line);
        let numbered = format!("{:>6}\t{}\n", self.next, text::harmless(&decoded));
        if self.text.len() + numbered.len() <= budget {
            self.text.push_str(&numbered);
            return true;
        }
        self.more = true;
        if self.text.is_empty() {
            // A page must get on by at least one line, or reading on would never end.
            self.text.push_str(text::head(&numbered, budget - 1));
            self.text.push('\n');
            self.part = true;
            self.next = self.next.saturating_add(1);
        }
        false
    }
}
