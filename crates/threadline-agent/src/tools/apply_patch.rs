//! `apply_patch`: changes in several files, all or none.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::payload::{Outcome, ToolDefinition};

use super::arguments::{self, Arguments, Field, check_path};
use super::files::{Held, Named, Unsent};
use super::patch::{self, Change, PatchError};
use super::paths::{Access, PathRules};
use super::staging::{self, Staged, Unapplied};
use super::{ArgumentError, Effect, Tool, ToolContext, ToolOutput, edit, failed, noted, text};
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
    let rules = PathRules::new(ctx)?;
    let mut files = Files {
        ctx,
        rules: &rules,
        files: Vec::new(),
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
    files.files.retain(|file| file.held.text != file.after);
    if files.files.is_empty() {
        return Err(ToolOutput::error("the patch changes nothing"));
    }
    let notes = files.put()?;
    let output = ToolOutput::ok(format!("{}{}", done.join("\n"), files.differences()));
    Ok(notes
        .iter()
        .fold(output, |output, note| noted(output, Some(note))))
}

fn side(content: &Option<String>) -> &str {
    content.as_deref().unwrap_or_default()
}

/// One file of a patch.
struct Changed {
    path: PathBuf,
    /// As the patch names it.
    given: String,
    held: Held,
    /// What it shall hold; nothing when it shall go.
    after: Option<String>,
    /// The file whose mode a new one takes.
    like: Option<PathBuf>,
}

/// The files as they will be. A file that the patch names twice is changed twice.
struct Files<'a> {
    ctx: &'a ToolContext,
    rules: &'a PathRules,
    files: Vec<Changed>,
    /// Bytes of all contents.
    held: usize,
}

impl Files<'_> {
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
                self.set(at, &path, Some(content))?;
                Ok(format!("added `{}`", shown(&path)))
            }
            Change::Delete { path } => {
                let at = self.open(&path)?;
                self.existing(at, &path)?;
                self.no_link(&path)?;
                self.not_blindly(at)?;
                self.set(at, &path, None)?;
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
                    self.set(at, &path, Some(after))?;
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
                let source = self.files.get(at).map(|file| file.path.clone());
                self.set(to, &target, Some(after))?;
                if let Some(file) = self.files.get_mut(to) {
                    file.like = source;
                }
                self.set(at, &path, None)?;
                Ok(format!("moved `{}` to `{}`", shown(&path), shown(&target)))
            }
        }
    }

    /// Returns what is different, of many files as much as there is room for.
    fn differences(&self) -> String {
        let mut report = String::new();
        for (at, file) in self.files.iter().enumerate() {
            let Some(room) = DIFF_BYTES.checked_sub(report.len()) else {
                let left = self.files.len() - at;
                report.push_str(&format!(
                    "\n[the differences of {left} more files are not shown]"
                ));
                break;
            };
            let name = text::show(self.rules.relative(&file.path));
            let (before, after) = (side(&file.held.text), side(&file.after));
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
        self.files.get(at)?.after.as_deref()
    }

    fn existing(&self, at: usize, path: &str) -> Result<&str, PatchError> {
        self.current(at).ok_or_else(|| PatchError::File {
            path: path.to_owned(),
            problem: "does not exist; make it with `*** Add File`".into(),
        })
    }

    /// What a person has typed and nobody has seen is not deleted.
    fn not_blindly(&self, at: usize) -> Result<(), ToolOutput> {
        match self.files.get(at) {
            // It was found by its lines, in a part of the patch before.
            Some(file) if file.held.text != file.after => Ok(()),
            Some(file) => self.ctx.files.not_blindly(&self.named(file), &file.held),
            None => Ok(()),
        }
    }

    fn named<'a>(&'a self, file: &'a Changed) -> Named<'a> {
        Named {
            given: &file.given,
            target: &file.path,
            rules: self.rules,
            access: Access::Write,
        }
    }

    fn set(&mut self, at: usize, path: &str, content: Option<String>) -> Result<(), PatchError> {
        let bytes = content.as_ref().map_or(0, String::len);
        if bytes > FILE_BYTES {
            return Err(PatchError::File {
                path: path.to_owned(),
                problem: format!("would have {bytes} bytes; at most {FILE_BYTES} are written"),
            });
        }
        self.hold(path, bytes)?;
        if let Some(file) = self.files.get_mut(at) {
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
        if let Some(at) = self.files.iter().position(|file| file.path == target) {
            return Ok(at);
        }
        if path.ends_with('/') {
            return Err(PatchError::File {
                path: path.to_owned(),
                problem: "names a folder".into(),
            }
            .into());
        }
        let disk = edit::read("apply_patch", "change", path, &target)?;
        let file = Named {
            given: path,
            target: &target,
            rules: self.rules,
            access: Access::Write,
        };
        let held = self.ctx.files.held(self.ctx, &file, disk)?;
        let disk = held.disk.iter().flatten();
        let bytes = held.text.iter().chain(disk).map(String::len).sum();
        self.hold(path, bytes)?;
        self.files.push(Changed {
            path: target,
            given: path.to_owned(),
            after: held.text.clone(),
            held,
            like: None,
        });
        Ok(self.files.len() - 1)
    }

    /// Puts everything in place, on disk or through the client. Returns what the model is to know
    /// besides.
    fn put(&self) -> Result<Vec<String>, ToolOutput> {
        let (mut staged, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut notes = Vec::new();
        for file in &self.files {
            // A file that is moved keeps its mode, and no client can delete one.
            let client = file.like.is_none()
                && file.after.is_some()
                && self
                    .ctx
                    .files
                    .taken_by_client(&self.named(file), &file.held)?;
            if client {
                theirs.push(file);
                continue;
            }
            notes.extend(file.held.note.clone());
            let disk = file.held.disk.as_ref();
            ours.push(file);
            staged.push(Staged {
                path: file.path.clone(),
                before: disk.unwrap_or(&file.held.text).clone(),
                after: file.after.clone(),
                like: file.like.clone(),
            });
        }
        let mut sent = Sent {
            files: self,
            written: Vec::new(),
            unclear: Vec::new(),
            made: Vec::new(),
        };
        let applied = staging::apply(&staged, || {
            theirs
                .iter()
                .try_for_each(|file| sent.write(file, &mut notes))
        });
        match applied {
            Ok(()) => Ok(notes),
            Err(Unapplied::Disk(at, error)) => {
                let path = ours
                    .get(at)
                    .map_or_else(String::new, |file| self.shown(file));
                Err(sent.undone(failed("write", &path, &error)))
            }
            Err(Unapplied::Between(output)) => Err(sent.undone(output)),
        }
    }

    fn shown(&self, file: &Changed) -> String {
        text::show(self.rules.relative(&file.path))
    }
}

/// What a client was given of a patch.
struct Sent<'a> {
    files: &'a Files<'a>,
    written: Vec<&'a Changed>,
    /// What it may hold or not.
    unclear: Vec<&'a Changed>,
    /// Folders that were made for it.
    made: Vec<PathBuf>,
}

impl<'a> Sent<'a> {
    /// Has the client write one file; a new one that it refuses is written on disk.
    fn write(&mut self, file: &'a Changed, notes: &mut Vec<String>) -> Result<(), ToolOutput> {
        let (Some(after), ctx) = (&file.after, self.files.ctx) else {
            return Ok(());
        };
        let named = self.files.named(file);
        if let Some(parent) = file.path.parent() {
            self.made.extend(staging::missing(parent));
        }
        let unsent = match ctx.files.send(ctx, &named, &file.held, after) {
            Ok(note) => {
                notes.extend(note);
                self.written.push(file);
                return Ok(());
            }
            Err(unsent) => unsent,
        };
        let name = self.files.shown(file);
        Err(match unsent {
            Unsent::Refused(_) if file.held.text.is_none() => {
                match super::file::replace(&file.path, after.as_bytes()) {
                    Ok(_) => {
                        notes.push(format!(
                            "`{name}` was written on disk; the editor refused it"
                        ));
                        self.written.push(file);
                        return Ok(());
                    }
                    Err(error) => failed("write", &name, &error),
                }
            }
            Unsent::Refused(why) => ToolOutput::error(format!(
                "the editor, which holds `{name}`, was asked to write it, and {why}"
            )),
            Unsent::Unclear(why) => {
                self.unclear.push(file);
                ToolOutput::error(format!("the editor was asked to write `{name}`, and {why}"))
            }
            Unsent::Disk(error) => failed("write", &name, &error),
            Unsent::Moved { sent } => {
                self.unclear.extend(sent.then_some(file));
                ToolOutput::error(format!("`{name}` has come to lead elsewhere meanwhile"))
            }
        })
    }

    /// Takes everything back, and says in the result of the failure whether that was possible.
    fn undone(self, failure: ToolOutput) -> ToolOutput {
        let ctx = self.files.ctx;
        let mut left = Vec::new();
        let written = self.written.iter().map(|file| (file, false));
        let unclear = self.unclear.iter().map(|file| (file, true));
        for (file, unclear) in written.chain(unclear).rev() {
            let back = match &file.held.text {
                Some(before) => ctx.files.take_back(ctx, &self.files.named(file), before),
                // One that comes late would be made again.
                None => staging::remove_file(&file.path).is_ok() && !unclear,
            };
            if !back {
                left.push(format!("`{}`", self.files.shown(file)));
            }
        }
        for folder in self.made.iter().rev() {
            staging::remove_folder(folder);
        }
        let why = failure.text();
        if left.is_empty() {
            return ToolOutput::new(failure.outcome, format!("{why}; nothing was changed"));
        }
        ToolOutput::new(
            Outcome::Unknown,
            format!(
                "{why}; all else is as it was, but what the editor holds of {} is not known: \
                 `read` it before you go on",
                left.join(", ")
            ),
        )
    }
}
