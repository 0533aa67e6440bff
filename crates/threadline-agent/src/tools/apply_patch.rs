//! `apply_patch`: changes in several files, all or none.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::ToolDefinition;

use super::arguments::{self, Arguments, Field, check_path};
use super::patch::{self, Change, PatchError};
use super::paths::{Access, PathRules};
use super::staging::{self, Staged};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, edit, failed, file, text};
use crate::limits::{DIFF_BYTES, FILE_BYTES, PATCH_BYTES, PATCH_HELD_BYTES};

const FIELDS: [Field; 1] = [Field::required(
    "patch",
    "string",
    "The patch: `*** Begin Patch`, then for each file `*** Add File: PATH`, `*** Delete File: \
     PATH` or `*** Update File: PATH` (with `*** Move to: PATH` below it to move it), then \
     `*** End Patch`. Lines of a new file begin with `+`. An update has hunks: a line `@@`, or \
     `@@ NAME` with a line above the place, then lines that begin with ` ` (stay), `-` (go) or \
     `+` (come). A unified diff is taken as well.",
)];

/// Applies a patch to several files. What it finds must fit exactly; where its numbers point is
/// only a hint.
#[derive(Debug, Clone, Copy)]
pub struct ApplyPatch;

#[async_trait]
impl Tool for ApplyPatch {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "apply_patch",
            "Adds, changes, moves and deletes files as a patch says, all of it or nothing. The \
             lines that stay and go must be in the file exactly. Returns the difference.",
            &FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::Writes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let patch = match parse(arguments) {
            Ok(patch) => patch,
            Err(error) => return error.into(),
        };
        super::blocking(ctx, move |ctx| {
            apply(ctx, &patch).unwrap_or_else(|refused| refused)
        })
        .await
    }
}

fn parse(value: &Value) -> Result<String, ArgumentError> {
    let arguments = Arguments::new("apply_patch", value, &FIELDS)?;
    let patch = arguments.string("patch")?;
    if patch.len() > PATCH_BYTES {
        return Err(ArgumentError::Invalid {
            field: "patch",
            problem: format!(
                "has {} bytes; at most {PATCH_BYTES} are taken, so send several",
                patch.len()
            ),
        });
    }
    Ok(patch.to_owned())
}

impl From<PatchError> for ToolOutput {
    fn from(error: PatchError) -> Self {
        Self::error(format!("{error}; nothing was changed"))
    }
}

fn apply(ctx: &ToolContext, patch: &str) -> Result<ToolOutput, ToolOutput> {
    let changes = patch::parse(patch)?;
    let mut files = Files {
        rules: PathRules::new(ctx)?,
        staged: Vec::new(),
        held: 0,
    };
    let mut done = Vec::new();
    for change in changes {
        if ctx.cancel.is_cancelled() {
            return Err(ToolOutput::cancelled());
        }
        done.push(files.take(change)?);
    }
    // A cancelled call must not change anything after it was told to be over.
    if ctx.cancel.is_cancelled() {
        return Err(ToolOutput::cancelled());
    }
    files.staged.retain(|file| file.before != file.after);
    if files.staged.is_empty() {
        return Err(ToolOutput::error("the patch changes nothing"));
    }
    if let Err((at, error)) = staging::apply(&files.staged) {
        let path = files.staged.get(at).map(|file| file.path.as_path());
        let path = path.map_or_else(String::new, |path| text::show(files.rules.relative(path)));
        let ToolOutput {
            content, outcome, ..
        } = failed("write", &path, &error);
        let why = threadline_session::payload::plain_text(&content);
        return Err(ToolOutput::new(
            outcome,
            format!("{why}; nothing was changed"),
        ));
    }
    Ok(ToolOutput::ok(format!(
        "{}{}",
        done.join("\n"),
        files.differences()
    )))
}

fn side(content: &Option<String>) -> &str {
    content.as_deref().unwrap_or_default()
}

/// The files as they will be. A file that the patch names twice is changed twice.
struct Files {
    rules: PathRules,
    staged: Vec<Staged>,
    /// Bytes of all contents.
    held: usize,
}

impl Files {
    /// Notes one change and returns what it is in words.
    fn take(&mut self, change: Change) -> Result<String, ToolOutput> {
        let shown = |path: &str| text::printable(path).into_owned();
        match change {
            Change::Add { path, content } => {
                let at = self.open(&path)?;
                if self.current(at).is_some() {
                    return Err(PatchError::File {
                        path,
                        problem: "exists already; change it with `*** Update File`".into(),
                    }
                    .into());
                }
                self.put(at, &path, Some(content))?;
                Ok(format!("added `{}`", shown(&path)))
            }
            Change::Delete { path } => {
                let at = self.open(&path)?;
                self.existing(at, &path)?;
                self.no_link(&path)?;
                self.put(at, &path, None)?;
                Ok(format!("deleted `{}`", shown(&path)))
            }
            Change::Update {
                path,
                move_to,
                hunks,
            } => {
                let at = self.open(&path)?;
                let before = self.existing(at, &path)?;
                let after = patch::apply(&path, before, &hunks)?;
                let Some(target) = move_to else {
                    self.put(at, &path, Some(after))?;
                    return Ok(format!("changed `{}`", shown(&path)));
                };
                self.no_link(&path)?;
                let to = self.open(&target)?;
                if self.current(to).is_some() {
                    return Err(PatchError::File {
                        path: target,
                        problem: format!(
                            "exists already, so `{}` cannot be moved there",
                            shown(&path)
                        ),
                    }
                    .into());
                }
                let source = self.staged.get(at).map(|file| file.path.clone());
                self.put(to, &target, Some(after))?;
                if let Some(file) = self.staged.get_mut(to) {
                    file.like = source;
                }
                self.put(at, &path, None)?;
                Ok(format!("moved `{}` to `{}`", shown(&path), shown(&target)))
            }
        }
    }

    /// Returns what is different, of many files as much as there is room for.
    fn differences(&self) -> String {
        let mut report = String::new();
        for (at, staged) in self.staged.iter().enumerate() {
            let Some(room) = DIFF_BYTES.checked_sub(report.len()) else {
                let left = self.staged.len() - at;
                report.push_str(&format!(
                    "\n[the differences of {left} more files are not shown]"
                ));
                break;
            };
            let name = text::show(self.rules.relative(&staged.path));
            let (before, after) = (side(&staged.before), side(&staged.after));
            let diff = edit::diff(&name, before, after, room);
            report.push('\n');
            report.push_str(diff.trim_end_matches('\n'));
        }
        report
    }

    /// The rules look at what a link leads to, and that is not what is to go.
    fn no_link(&self, path: &str) -> Result<(), PatchError> {
        let named = self.rules.root().join(path);
        match std::fs::symlink_metadata(named) {
            Ok(meta) if meta.is_symlink() => Err(PatchError::File {
                path: path.to_owned(),
                problem: "is a symbolic link, which a patch neither moves nor deletes".into(),
            }),
            _ => Ok(()),
        }
    }

    fn current(&self, at: usize) -> Option<&str> {
        self.staged.get(at)?.after.as_deref()
    }

    fn existing(&self, at: usize, path: &str) -> Result<&str, PatchError> {
        self.current(at).ok_or_else(|| PatchError::File {
            path: path.to_owned(),
            problem: "does not exist; make it with `*** Add File`".into(),
        })
    }

    fn put(&mut self, at: usize, path: &str, content: Option<String>) -> Result<(), PatchError> {
        let bytes = content.as_ref().map_or(0, String::len);
        if bytes > FILE_BYTES {
            return Err(PatchError::File {
                path: path.to_owned(),
                problem: format!("would have {bytes} bytes; at most {FILE_BYTES} are written"),
            });
        }
        self.hold(path, bytes)?;
        if let Some(file) = self.staged.get_mut(at) {
            file.after = content;
        }
        Ok(())
    }

    fn hold(&mut self, path: &str, bytes: usize) -> Result<(), PatchError> {
        self.held = self.held.saturating_add(bytes);
        if self.held > PATCH_HELD_BYTES {
            return Err(PatchError::File {
                path: path.to_owned(),
                problem: format!(
                    "the files of the patch have more than {PATCH_HELD_BYTES} bytes together; \
                     send several patches"
                ),
            });
        }
        Ok(())
    }

    /// Returns where a file is noted; it is read when it is named for the first time.
    fn open(&mut self, path: &str) -> Result<usize, ToolOutput> {
        check_path("patch", path)?;
        let target = self.rules.resolve(Path::new(path), Access::Write)?;
        if let Some(at) = self.staged.iter().position(|file| file.path == target) {
            return Ok(at);
        }
        if path.ends_with('/') {
            return Err(PatchError::File {
                path: path.to_owned(),
                problem: "names a folder".into(),
            }
            .into());
        }
        let before = read(&target, path)?;
        self.hold(path, before.as_ref().map_or(0, String::len))?;
        self.staged.push(Staged {
            path: target,
            after: before.clone(),
            before,
            like: None,
        });
        Ok(self.staged.len() - 1)
    }
}

/// Reads a file; nothing when there is none.
fn read(target: &Path, path: &str) -> Result<Option<String>, ToolOutput> {
    match file::open_regular(target) {
        Ok(_) => edit::read("apply_patch", path, target).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("change", path, &error)),
    }
}
