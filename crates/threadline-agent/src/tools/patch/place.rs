//! Finding where hunks belong, and making the new text.

use super::{Hunk, HunkLine, PatchError};
use crate::limits::{NEAR_LINES, PATCH_NEAR_LINES, PATCH_NEAR_PLACES};
use crate::tools::text;

/// A text by lines, with what is needed to find lines in it and to put it together again.
struct Lines<'a> {
    lines: Vec<&'a str>,
    /// Whether each ends in `\r\n`.
    carriage: Vec<bool>,
    /// Whether the last one ends in a line feed.
    closed: bool,
    /// All lines, each between line feeds, so that a search finds whole lines only.
    joined: String,
    /// Where each line begins in `joined`, with its line feed before it.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(content: &'a str) -> Self {
        let closed = content.is_empty() || content.ends_with('\n');
        let (mut lines, mut carriage) = (Vec::new(), Vec::new());
        for line in content.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let cut = bare.strip_suffix('\r').filter(|_| line.ends_with('\n'));
            carriage.push(cut.is_some());
            lines.push(cut.unwrap_or(bare));
        }
        let mut joined = String::with_capacity(content.len() + 2);
        let mut starts = Vec::with_capacity(lines.len());
        for line in &lines {
            starts.push(joined.len());
            joined.push('\n');
            joined.push_str(line);
        }
        joined.push('\n');
        Self {
            lines,
            carriage,
            closed,
            joined,
            starts,
        }
    }

    /// Where a line begins in `joined`; past the last, its end.
    fn offset(&self, line: usize) -> usize {
        let end = self.joined.len().saturating_sub(1);
        self.starts.get(line).copied().unwrap_or(end)
    }

    fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start < offset)
    }

    /// The first place from a line on.
    fn find(&self, needle: &str, from: usize) -> Option<usize> {
        let offset = self.offset(from);
        let found = self.joined.get(offset..)?.find(needle)?;
        Some(self.line_at(offset + found))
    }

    /// The last place that begins between two lines, the second one included.
    fn find_back(&self, needle: &str, from: usize, to: usize) -> Option<usize> {
        let end = self
            .offset(to)
            .saturating_add(needle.len())
            .min(self.joined.len());
        let end = self.joined.floor_char_boundary(end);
        let start = self.offset(from);
        let found = self.joined.get(start..end)?.rfind(needle)?;
        Some(self.line_at(start + found))
    }

    fn is_at(&self, place: usize, wanted: &[&str]) -> bool {
        let end = place.saturating_add(wanted.len());
        self.lines
            .get(place..end)
            .is_some_and(|lines| lines == wanted)
    }
}

fn needle(lines: &[&str]) -> String {
    let mut needle = String::from("\n");
    for line in lines {
        needle.push_str(line);
        needle.push('\n');
    }
    needle
}

/// Applies the hunks of a file to its text, all or none. They follow one another from top to
/// bottom, and each must fit exactly; how lines end does not count.
///
/// # Errors
/// [`PatchError::Hunk`] for the first that does not fit.
pub(in crate::tools) fn apply(
    path: &str,
    content: &str,
    hunks: &[Hunk],
) -> Result<String, PatchError> {
    let text = Lines::new(content);
    // A new line ends as most lines of the file do.
    let carriage = text.carriage.iter().filter(|is| **is).count() * 2 > text.lines.len();
    // Diff programs leave the first half of such a line end in the line.
    let any = text.carriage.contains(&true);
    let bare = |line| strip_carriage(line, any);
    let mut out = Out {
        text: String::with_capacity(content.len()),
        carriage,
    };
    let mut done = 0;
    let mut closed = text.closed;
    for (hunk, number) in hunks.iter().zip(1..) {
        let old: Vec<&str> = hunk.old().into_iter().map(bare).collect();
        let place = place(&text, hunk, &old, done).map_err(|problem| PatchError::Hunk {
            path: path.to_owned(),
            hunk: number,
            problem,
        })?;
        out.copy(&text, done, place);
        let mut at = place;
        for line in &hunk.lines {
            match line {
                HunkLine::Keep(_) => {
                    out.copy(&text, at, at + 1);
                    at += 1;
                }
                HunkLine::Remove(_) => at += 1,
                HunkLine::Add(line) => out.push(bare(line), carriage),
            }
        }
        done = at;
        if done == text.lines.len() && (hunk.old_open || hunk.new_open) {
            closed = !hunk.new_open;
        }
    }
    out.copy(&text, done, text.lines.len());
    let mut text = out.text;
    if !closed {
        let bare = text.strip_suffix('\n').map_or(text.len(), |bare| {
            bare.strip_suffix('\r')
                .filter(|_| carriage)
                .unwrap_or(bare)
                .len()
        });
        text.truncate(bare);
    }
    Ok(text)
}

fn strip_carriage(line: &str, strip: bool) -> &str {
    line.strip_suffix('\r').filter(|_| strip).unwrap_or(line)
}

struct Out {
    text: String,
    carriage: bool,
}

impl Out {
    fn push(&mut self, line: &str, carriage: bool) {
        self.text.push_str(line);
        self.text.push_str(if carriage { "\r\n" } else { "\n" });
    }

    fn copy(&mut self, from: &Lines<'_>, start: usize, end: usize) {
        for at in start..end.min(from.lines.len()) {
            let (Some(line), Some(carriage)) = (from.lines.get(at), from.carriage.get(at)) else {
                continue;
            };
            // A last line without an end gets one, in case another follows it.
            let last = at + 1 == from.lines.len() && !from.closed;
            self.push(line, if last { self.carriage } else { *carriage });
        }
    }
}

/// Returns the line, from 0, at which a hunk belongs, or what is wrong.
fn place(text: &Lines<'_>, hunk: &Hunk, old: &[&str], done: usize) -> Result<usize, String> {
    let mut from = done;
    for anchor in &hunk.anchors {
        from = find_anchor(text, anchor, from).ok_or_else(|| {
            format!(
                "no line from {} on is `{}`, which its `@@` names; {}",
                from + 1,
                shown(anchor),
                nearest(text, &[anchor.as_str()])
            )
        })? + 1;
    }
    let count = text.lines.len();
    if old.is_empty() {
        return Ok(match (hunk.anchors.is_empty(), hunk.hint) {
            (false, _) if !hunk.at_end => from,
            (true, Some(line)) if !hunk.at_end => line.clamp(done, count),
            _ => count,
        });
    }
    if hunk.at_end {
        let place = count.checked_sub(old.len()).filter(|place| *place >= from);
        return place
            .filter(|place| text.is_at(*place, old))
            .ok_or_else(|| {
                format!(
                    "the file does not end with its old lines; {}",
                    nearest(text, old)
                )
            });
    }
    let needle = needle(old);
    let found = match (hunk.anchors.is_empty(), hunk.hint) {
        (false, _) => text.find(&needle, from),
        (true, Some(line)) => by_hint(text, &needle, from, line.saturating_sub(1))?,
        (true, None) => only(text, &needle, from)?,
    };
    found.ok_or_else(|| match text.find(&needle, 0) {
        Some(line) => format!(
            "its old lines stand at line {}, above line {} where they may begin; the hunks of a \
             file go from top to bottom",
            line + 1,
            from + 1
        ),
        None => format!("its old lines are not in the file; {}", nearest(text, old)),
    })
}

/// A line that is the anchor, or else one that holds it. Indentation does not count.
fn find_anchor(text: &Lines<'_>, anchor: &str, from: usize) -> Option<usize> {
    let rest = text.lines.get(from..)?;
    let found = rest
        .iter()
        .position(|line| line.trim() == anchor.trim())
        .or_else(|| rest.iter().position(|line| line.contains(anchor)))?;
    Some(from + found)
}

/// The place nearest to the line that the hunk names.
fn by_hint(
    text: &Lines<'_>,
    needle: &str,
    from: usize,
    hint: usize,
) -> Result<Option<usize>, String> {
    let hint = hint.clamp(from, text.lines.len());
    let after = text.find(needle, hint);
    let before = text.find_back(needle, from, hint);
    match (before, after) {
        (Some(before), Some(after)) if before != after => {
            let (up, down) = (hint.abs_diff(before), after.abs_diff(hint));
            if up == down {
                return Err(ambiguous(&[before, after]));
            }
            Ok(Some(if up < down { before } else { after }))
        }
        (before, after) => Ok(after.or(before)),
    }
}

/// The only place there is.
fn only(text: &Lines<'_>, needle: &str, from: usize) -> Result<Option<usize>, String> {
    let mut places = Vec::new();
    let mut at = from;
    while places.len() <= NEAR_LINES
        && let Some(place) = text.find(needle, at)
    {
        places.push(place);
        at = place + 1;
    }
    match places.as_slice() {
        [] => Ok(None),
        [place] => Ok(Some(*place)),
        _ => Err(ambiguous(&places)),
    }
}

fn ambiguous(places: &[usize]) -> String {
    let lines: Vec<usize> = places.iter().map(|place| place + 1).collect();
    format!(
        "its old lines fit more than once, at {}; give more lines around them, or name the \
         function they are in with `@@`",
        crate::tools::edit::line_list(&lines)
    )
}

/// Says which lines of the file are most like the ones that were not found.
fn nearest(text: &Lines<'_>, old: &[&str]) -> String {
    let score = |place: usize| {
        let lines = text.lines.get(place..).unwrap_or_default();
        let same = |(a, b): &(&&str, &&str)| a.trim() == b.trim();
        lines
            .iter()
            .zip(old)
            .take(PATCH_NEAR_LINES)
            .filter(same)
            .count()
    };
    let telling = old
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let mut best: Option<(usize, usize)> = None;
    // Each line of the hunk says where it could begin; few lines and few places are enough.
    for (index, wanted) in telling.take(NEAR_LINES) {
        let places = text
            .lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.trim() == wanted.trim())
            .filter_map(|(line, _)| line.checked_sub(index));
        for place in places.take(PATCH_NEAR_PLACES) {
            let found = score(place);
            if best.is_none_or(|(_, most)| found > most) {
                best = Some((place, found));
            }
        }
    }
    let Some((place, _)) = best else {
        return "no line of the file is like them; read it again".into();
    };
    let lines = text.lines.get(place..).unwrap_or_default();
    let differing = old
        .iter()
        .enumerate()
        .find(|(index, wanted)| lines.get(*index) != Some(wanted));
    match differing {
        Some((index, wanted)) => {
            let line = place + index + 1;
            let found = lines.get(index).map_or_else(
                || "the file ends".to_owned(),
                |found| format!("the file has `{}`", shown(found)),
            );
            format!(
                "the nearest match begins at line {}, but at line {line} {found} and the hunk \
                 `{}`",
                place + 1,
                shown(wanted)
            )
        }
        None => format!("they stand at line {}", place + 1),
    }
}

fn shown(line: &str) -> String {
    text::shorten(&text::printable(line), 200)
}
