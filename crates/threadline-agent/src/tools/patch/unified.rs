//! Unified diffs, as `diff -u` and git make them.
//!
//! The numbers in hunk headers are hints: models count badly. So a file ends where the next one
//! begins, and not where the numbers say.

use super::{BEGIN, Change, Hunk, HunkLine, PatchError, numbers};

const NOTHING: &str = "/dev/null";
const GIT: &str = "diff --git ";

fn wrong(line: usize, problem: impl Into<String>) -> PatchError {
    PatchError::Syntax {
        line,
        problem: problem.into(),
    }
}

/// What the lines before the hunks of a file say.
#[derive(Default)]
struct Head {
    /// Line of the patch where the file begins, from 1.
    line: usize,
    old: Option<String>,
    new: Option<String>,
    moved: bool,
    added: bool,
    deleted: bool,
}

pub(super) fn parse(lines: &[&str]) -> Result<Vec<Change>, PatchError> {
    let mut changes = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        // What stands before the first file, such as a commit message, is passed over.
        if !begins(lines, at) {
            at += 1;
            continue;
        }
        let head = head(lines, &mut at)?;
        let mut hunks: Vec<(usize, Hunk)> = Vec::new();
        while at < lines.len() && !begins(lines, at) {
            if lines.get(at).is_some_and(|line| line.starts_with("@@")) {
                hunks.push((at + 1, hunk(lines, &mut at)?));
            } else {
                // Between files there is nothing that counts.
                at += 1;
            }
        }
        changes.push(change(head, hunks)?);
    }
    if changes.is_empty() {
        return Err(wrong(
            1,
            format!(
                "this is neither a patch that begins with `{BEGIN}` nor a unified diff with \
                 `--- a/PATH`, `+++ b/PATH` and `@@` lines"
            ),
        ));
    }
    Ok(changes)
}

/// Whether a file begins here. A removed line can look like the first line of a header, so the
/// ones after it count too.
fn begins(lines: &[&str], at: usize) -> bool {
    let line = |more: usize| lines.get(at + more).copied().unwrap_or_default();
    line(0).starts_with(GIT)
        || (line(0).starts_with("--- ")
            && line(1).starts_with("+++ ")
            && (line(2).starts_with("@@") || line(2).is_empty()))
}

/// Whether a line that may begin a file does so also when the hunk above is short of lines: badly
/// counted hunks are more common than removed lines that look like this.
fn is_sure(lines: &[&str], at: usize) -> bool {
    let path = |more: usize| {
        let line = lines.get(at + more).copied().unwrap_or_default();
        line.get(4..).unwrap_or_default()
    };
    let (old, new) = (path(0), path(1));
    lines.get(at).is_some_and(|line| line.starts_with(GIT))
        || ((old.starts_with("a/") || old == NOTHING) && (new.starts_with("b/") || new == NOTHING))
}

fn head(lines: &[&str], at: &mut usize) -> Result<Head, PatchError> {
    let mut head = Head {
        line: *at + 1,
        ..Head::default()
    };
    let git = lines.get(*at).is_some_and(|line| line.starts_with(GIT));
    while let Some(line) = lines.get(*at) {
        let next_file = *at + 1 > head.line && line.starts_with(GIT);
        if line.starts_with("@@") || next_file {
            break;
        }
        *at += 1;
        if let Some(path) = line.strip_prefix("--- ") {
            head.old = Some(stripped(path, "a/"));
        } else if let Some(path) = line.strip_prefix("+++ ") {
            head.new = Some(stripped(path, "b/"));
            break;
        } else if let Some(path) = line.strip_prefix("rename from ") {
            head.old = Some(path.to_owned());
        } else if let Some(path) = line.strip_prefix("rename to ") {
            head.new = Some(path.to_owned());
            head.moved = true;
        } else if line.starts_with("new file mode") {
            head.added = true;
        } else if line.starts_with("deleted file mode") {
            head.deleted = true;
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            return Err(wrong(*at, "binary files cannot be patched"));
        } else if let Some(paths) = line.strip_prefix(GIT).filter(|_| git) {
            // Only what follows it is sure; an empty file has nothing else.
            if let Some((old, new)) = paths.split_once(" b/") {
                head.old = Some(stripped(old, "a/"));
                head.new = Some(new.to_owned());
            }
        }
    }
    Ok(head)
}

/// Returns a path without its prefix, its quotes and the time behind it.
fn stripped(path: &str, prefix: &str) -> String {
    let path = path.split('\t').next().unwrap_or(path).trim_end();
    let path = path
        .strip_prefix('"')
        .and_then(|path| path.strip_suffix('"'))
        .unwrap_or(path);
    path.strip_prefix(prefix).unwrap_or(path).to_owned()
}

fn hunk(lines: &[&str], at: &mut usize) -> Result<Hunk, PatchError> {
    let header = lines.get(*at).copied().unwrap_or_default();
    let begin = *at + 1;
    *at += 1;
    let numbers = numbers(header);
    let mut hunk = Hunk {
        hint: numbers.map(|(start, _)| start),
        ..Hunk::default()
    };
    while let Some(line) = lines.get(*at) {
        let full = numbers.is_none_or(|(_, count)| hunk.old().len() >= count);
        if line.starts_with("@@") || (begins(lines, *at) && (full || is_sure(lines, *at))) {
            break;
        }
        *at += 1;
        if line.starts_with('\\') {
            match hunk.lines.last() {
                Some(HunkLine::Add(_)) => hunk.new_open = true,
                Some(HunkLine::Remove(_)) => hunk.old_open = true,
                Some(HunkLine::Keep(_)) => (hunk.old_open, hunk.new_open) = (true, true),
                None => {}
            }
            continue;
        }
        let parsed = HunkLine::parse(line).ok_or_else(|| {
            wrong(
                *at,
                "every line of a hunk begins with ` `, `-` or `+`, and a hunk with `@@`",
            )
        })?;
        hunk.lines.push(parsed);
    }
    // The line feed at the end of the patch, and empty lines between files, are not part of it.
    let counted = numbers.map_or(0, |(_, count)| count);
    while at
        .checked_sub(1)
        .and_then(|last| lines.get(last))
        .is_some_and(|line| line.is_empty())
        && matches!(hunk.lines.last(), Some(HunkLine::Keep(line)) if line.is_empty())
        && hunk.old().len() > counted
    {
        hunk.lines.pop();
        *at -= 1;
    }
    while lines.get(*at).is_some_and(|line| line.is_empty()) {
        *at += 1;
    }
    if !hunk.lines.iter().any(HunkLine::changes) {
        return Err(wrong(
            begin,
            "the hunk changes nothing: it has no line that begins with `-` or `+`",
        ));
    }
    Ok(hunk)
}

fn change(head: Head, hunks: Vec<(usize, Hunk)>) -> Result<Change, PatchError> {
    let real = |path: Option<String>| path.filter(|path| path != NOTHING && !path.is_empty());
    let added = head.added || head.old.as_deref() == Some(NOTHING);
    let deleted = head.deleted || head.new.as_deref() == Some(NOTHING);
    let (old, new) = (real(head.old), real(head.new));
    match (old, new) {
        (_, Some(path)) if added => added_file(path, hunks),
        (Some(path), _) if deleted => Ok(Change::Delete { path }),
        (Some(path), Some(new)) => {
            let move_to = (new != path).then_some(new);
            if hunks.is_empty() && !(head.moved && move_to.is_some()) {
                return Err(wrong(head.line, "the file has no hunk"));
            }
            Ok(Change::Update {
                path,
                move_to,
                hunks: hunks.into_iter().map(|(_, hunk)| hunk).collect(),
            })
        }
        _ => Err(wrong(head.line, "the header names no path")),
    }
}

fn added_file(path: String, hunks: Vec<(usize, Hunk)>) -> Result<Change, PatchError> {
    let mut content = String::new();
    let mut open = false;
    for (line, hunk) in hunks {
        open = hunk.new_open;
        for hunk_line in hunk.lines {
            let HunkLine::Add(added) = hunk_line else {
                return Err(wrong(line, "a new file has only lines that begin with `+`"));
            };
            content.push_str(&added);
            content.push('\n');
        }
    }
    if open {
        content.pop();
    }
    Ok(Change::Add { path, content })
}
