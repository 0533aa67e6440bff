//! Walking folders for `find` and `grep`, and the lists they make.

use std::fs::FileType;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::paths::PathRules;
use super::{ToolContext, ToolOutput};
use crate::limits::{NOTE_BYTES, RESULT_BYTES, WALK_ENTRIES};

/// Lines of a result, within its bounds.
#[derive(Debug)]
pub(crate) struct Lines {
    text: String,
    count: u64,
    most: u64,
    full: bool,
}

impl Lines {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            text: String::new(),
            count: 0,
            most,
            full: false,
        }
    }

    /// Adds a line; false means that it did not fit and no more will.
    pub(crate) fn push(&mut self, line: &str) -> bool {
        let bytes = self.text.len() + line.len() + 1;
        if self.full || self.count >= self.most || bytes > RESULT_BYTES - NOTE_BYTES {
            self.full = true;
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.count += 1;
        true
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the lines and then the notes, each in square brackets.
    pub(crate) fn finish(mut self, notes: &[String]) -> String {
        for note in notes {
            self.text.push_str(&format!("[{note}]\n"));
        }
        self.text.truncate(self.text.trim_end_matches('\n').len());
        self.text
    }
}

/// What a walk could not do.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    unreadable: u64,
    too_many: bool,
    cancelled: bool,
}

impl Gaps {
    pub(crate) fn unreadable(&mut self) {
        self.unreadable += 1;
    }

    pub(crate) fn cancelled(&mut self) {
        self.cancelled = true;
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unreadable > 0 {
            notes.push(format!("{} places could not be read", self.unreadable));
        }
        if self.too_many {
            notes.push(format!(
                "stopped after {WALK_ENTRIES} files and folders; name a smaller `path`"
            ));
        }
        notes
    }

    /// Returns the result of a call that was cancelled on the way, if it was.
    pub(crate) fn end(&self) -> Option<ToolOutput> {
        self.cancelled.then(ToolOutput::cancelled)
    }
}

/// Visits everything below a resolved path in the order of the names, hidden files included,
/// without what `.gitignore` and `.ignore` files name and without what the rules close. Links are
/// shown and not followed. The visitor returns false to stop.
pub(crate) fn walk(
    rules: &PathRules,
    start: &Path,
    ctx: &ToolContext,
    mut visit: impl FnMut(&Path, FileType, &mut Gaps) -> bool,
) -> Gaps {
    let mut gaps = Gaps::default();
    let filter = rules.clone();
    let entries = WalkBuilder::new(start)
        .hidden(false)
        .follow_links(false)
        // A folder that is no repository yet has its .gitignore honoured all the same, and the
        // user's own global list must not make two machines differ.
        .require_git(false)
        .git_global(false)
        .sort_by_file_name(Ord::cmp)
        .filter_entry(move |entry| filter.allows_found(entry.path()))
        .build();
    for (seen, entry) in entries.enumerate() {
        if ctx.cancel.is_cancelled() {
            gaps.cancelled = true;
            break;
        }
        if seen >= WALK_ENTRIES {
            gaps.too_many = true;
            break;
        }
        match entry {
            Err(_) => gaps.unreadable += 1,
            Ok(entry) => {
                let Some(kind) = entry.file_type() else {
                    continue;
                };
                if !visit(entry.path(), kind, &mut gaps) {
                    break;
                }
            }
        }
    }
    gaps
}

/// Resolves where a search starts.
pub(crate) fn start(
    ctx: &ToolContext,
    path: Option<&str>,
) -> Result<(PathRules, PathBuf), ToolOutput> {
    let rules = PathRules::new(ctx)?;
    let given = path.unwrap_or(".");
    let start = rules.resolve(Path::new(given), super::Access::Read)?;
    match std::fs::symlink_metadata(&start) {
        Ok(_) => Ok((rules, start)),
        Err(error) => Err(super::failed("look at", given, &error)),
    }
}
