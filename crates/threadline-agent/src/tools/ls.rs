//! `ls`: what is in a folder.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType};
use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field};
use super::paths::{Access, PathRules};
use super::walk::Lines;
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, failed, file, text};
use crate::limits::{LS_ENTRIES, WALK_ENTRIES};

const FIELDS: [Field; 1] = [Field::optional(
    "path",
    "string",
    "The folder, relative to the working directory; default the working directory itself.",
)];

/// Lists a folder in the order of the names.
///
/// What is closed to tools is listed by name, so that the model knows it is there, and marked.
#[derive(Debug, Clone, Copy)]
pub struct Ls;

#[async_trait]
impl Tool for Ls {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "ls",
            "Lists a folder: folders end in /, links show where they point, files their size.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        match path_of(arguments) {
            Ok(path) => super::blocking(ctx, move |ctx| list(ctx, &path)).await,
            Err(error) => error.into(),
        }
    }
}

fn path_of(value: &Value) -> Result<String, ArgumentError> {
    let arguments = Arguments::new("ls", value, &FIELDS)?;
    Ok(arguments.optional_path("path")?.unwrap_or(".").to_owned())
}

fn list(ctx: &ToolContext, path: &str) -> ToolOutput {
    let (rules, target) = match PathRules::new(ctx).and_then(|rules| {
        let target = rules.resolve(Path::new(path), Access::Read)?;
        Ok((rules, target))
    }) {
        Ok(found) => found,
        Err(error) => return error.into(),
    };
    let folder = match file::open_folder(&target) {
        Ok(folder) => folder,
        Err(error) => return failed("list", path, &error),
    };
    let names = match names(&folder, ctx) {
        Ok(Some(names)) => names,
        Ok(None) => return ToolOutput::cancelled(),
        Err(error) => return failed("list", path, &error),
    };
    if names.is_empty() {
        return ToolOutput::ok("[the folder is empty]");
    }
    let mut lines = Lines::new(LS_ENTRIES as u64);
    for name in &names {
        let name = OsStr::from_bytes(name);
        let open = rules.allows_found(&target.join(name));
        if !lines.push(&entry(&folder, name, open)) {
            break;
        }
    }
    let mut notes = Vec::new();
    if names.len() >= WALK_ENTRIES {
        notes.push(format!("only {WALK_ENTRIES} entries were looked at"));
    }
    if lines.is_full() {
        notes.push(format!(
            "the first {} of {} entries are shown; use `find` to narrow it down",
            lines.count(),
            names.len()
        ));
    }
    ToolOutput::ok(lines.finish(&notes))
}

fn names(folder: &OwnedFd, ctx: &ToolContext) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut names = Vec::new();
    for found in Dir::read_from(folder)? {
        if ctx.cancel.is_cancelled() {
            return Ok(None);
        }
        let name = found?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
        if names.len() >= WALK_ENTRIES {
            break;
        }
    }
    names.sort_unstable();
    Ok(Some(names))
}

fn entry(folder: &OwnedFd, name: &OsStr, open: bool) -> String {
    let shown = text::show(Path::new(name));
    let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return shown;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if open => format!("{shown}/"),
        FileType::Directory => format!("{shown}/ (closed to tools)"),
        _ if !open => format!("{shown} (closed to tools)"),
        FileType::RegularFile => format!("{shown} ({} bytes)", stat.st_size),
        FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
            Ok(target) => {
                let target = target.to_string_lossy();
                format!("{shown} -> {}", text::printable(&target))
            }
            Err(_) => format!("{shown} (link)"),
        },
        _ => format!("{shown} (special file)"),
    }
}
