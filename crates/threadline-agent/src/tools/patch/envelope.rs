//! The form between `*** Begin Patch` and `*** End Patch`.

use super::{Change, Hunk, HunkLine, PatchError, numbers};

const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Lines with the number of the next.
struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    /// Takes the next line if it is no header of a file.
    fn body(&mut self) -> Option<&'a str> {
        let line = self.peek().filter(|line| !line.starts_with("*** "))?;
        self.at += 1;
        Some(line)
    }

    /// An error about the line that was taken last.
    fn wrong(&self, problem: impl Into<String>) -> PatchError {
        PatchError::Syntax {
            line: self.at,
            problem: problem.into(),
        }
    }
}

pub(super) fn parse(lines: &[&str], first: usize) -> Result<Vec<Change>, PatchError> {
    let mut reader = Reader {
        lines,
        at: first + 1,
    };
    let mut changes = Vec::new();
    loop {
        let Some(line) = reader.peek() else {
            return Err(reader.wrong(format!("the patch does not end with `{END}`")));
        };
        reader.at += 1;
        let header = |name| line.strip_prefix(name).map(str::trim);
        if line.trim() == END {
            break;
        } else if let Some(path) = header(ADD) {
            let path = named(&reader, path)?;
            changes.push(add(&mut reader, path)?);
        } else if let Some(path) = header(DELETE) {
            let path = named(&reader, path)?;
            changes.push(Change::Delete { path });
        } else if let Some(path) = header(UPDATE) {
            let path = named(&reader, path)?;
            changes.push(update(&mut reader, path)?);
        } else if !line.trim().is_empty() {
            return Err(reader.wrong(format!(
                "expected `{ADD} PATH`, `{UPDATE} PATH`, `{DELETE} PATH` or `{END}`"
            )));
        }
    }
    if changes.is_empty() {
        return Err(reader.wrong("the patch changes nothing"));
    }
    Ok(changes)
}

fn named(reader: &Reader<'_>, path: &str) -> Result<String, PatchError> {
    if path.is_empty() {
        return Err(reader.wrong("the header names no path"));
    }
    Ok(path.to_owned())
}

fn add(reader: &mut Reader<'_>, path: String) -> Result<Change, PatchError> {
    let mut content = String::new();
    while let Some(line) = reader.body() {
        let Some(line) = line.strip_prefix('+') else {
            return Err(reader.wrong("every line of a new file begins with `+`"));
        };
        content.push_str(line);
        content.push('\n');
    }
    Ok(Change::Add { path, content })
}

fn update(reader: &mut Reader<'_>, path: String) -> Result<Change, PatchError> {
    let header = reader.at;
    let mut move_to = None;
    if let Some(target) = reader.peek().and_then(|line| line.strip_prefix(MOVE)) {
        reader.at += 1;
        move_to = Some(named(reader, target.trim())?);
    }
    let mut hunks: Vec<Hunk> = Vec::new();
    while let Some(hunk) = hunk(reader)? {
        hunks.push(hunk);
    }
    if hunks.is_empty() && move_to.is_none() {
        return Err(PatchError::Syntax {
            line: header,
            problem: "the file has no hunk: give `@@` and lines that begin with ` `, `-` or `+`"
                .into(),
        });
    }
    Ok(Change::Update {
        path,
        move_to,
        hunks,
    })
}

fn hunk(reader: &mut Reader<'_>) -> Result<Option<Hunk>, PatchError> {
    let begin = reader.at + 1;
    let mut hunk = Hunk::default();
    while let Some(line) = reader.peek().filter(|line| line.starts_with("@@")) {
        reader.at += 1;
        if let Some((start, _)) = numbers(line) {
            hunk.hint = Some(start);
            continue;
        }
        let anchor = line.trim_start_matches('@').trim();
        let anchor = anchor.strip_suffix("@@").unwrap_or(anchor).trim_end();
        if !anchor.is_empty() {
            hunk.anchors.push(anchor.to_owned());
        }
    }
    while reader.peek().is_some_and(|line| !line.starts_with("@@")) {
        let Some(line) = reader.body() else {
            break;
        };
        hunk.lines.push(HunkLine::parse(line).ok_or_else(|| {
            reader.wrong("every line of a hunk begins with ` `, `-` or `+`, and a hunk with `@@`")
        })?);
    }
    let end = reader.peek().is_some_and(|line| line.trim() == END_OF_FILE);
    if end {
        reader.at += 1;
        hunk.at_end = true;
    }
    if !hunk.lines.iter().any(HunkLine::changes) {
        // Empty lines before the next header are no hunk.
        if begin > reader.at || hunk == blank(&hunk) {
            return Ok(None);
        }
        return Err(PatchError::Syntax {
            line: begin,
            problem: "the hunk changes nothing: it has no line that begins with `-` or `+`".into(),
        });
    }
    Ok(Some(hunk))
}

/// The same hunk if it had nothing but empty lines.
fn blank(hunk: &Hunk) -> Hunk {
    Hunk {
        lines: vec![HunkLine::Keep(String::new()); hunk.lines.len()],
        ..Hunk::default()
    }
}
