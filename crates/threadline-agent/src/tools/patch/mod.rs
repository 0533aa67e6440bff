//! Patches: what they say, and what becomes of a text that they change.
//!
//! Two forms are read, the one that begins with `*** Begin Patch` and unified diffs, into the same
//! [`Change`]s. Nothing here touches a file.

mod envelope;
mod place;
mod unified;

use super::text;
use crate::limits::{PATCH_FILES, PATCH_HUNKS};

pub(super) use place::apply;

/// How a patch begins that is no unified diff.
pub(super) const BEGIN: &str = "*** Begin Patch";

/// A patch cannot be used; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatchError {
    /// It cannot be read.
    #[error("line {line} of the patch: {problem}")]
    Syntax {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// One of its files cannot be changed as it says.
    #[error("`{}`: {problem}", text::printable(path))]
    File {
        /// The file.
        path: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// One of its hunks does not fit.
    #[error("`{}`, hunk {hunk}: {problem}", text::printable(path))]
    Hunk {
        /// The file.
        path: String,
        /// Which hunk of the file, from 1.
        hunk: usize,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It is new.
    Add { path: String, content: String },
    /// It goes.
    Delete { path: String },
    /// Its text changes, or its name, or both.
    Update {
        path: String,
        move_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// Neighbouring lines and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hunk {
    /// Lines that come before it, outermost first.
    pub(super) anchors: Vec<String>,
    pub(super) lines: Vec<HunkLine>,
    /// Line of the old text where it is said to begin, from 1. For a hunk without old lines, the
    /// line after which it is said to come.
    pub(super) hint: Option<usize>,
    /// Whether its last old line is the last of the text.
    pub(super) at_end: bool,
    /// Whether the old text is said to have no line feed at its end.
    pub(super) old_open: bool,
    /// Whether the new text is said to have none.
    pub(super) new_open: bool,
}

/// A line of a hunk, without its line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HunkLine {
    Keep(String),
    Remove(String),
    Add(String),
}

impl HunkLine {
    /// Reads a line of a hunk. An empty one stands for an empty line that stays, because editors
    /// and models drop the space at its start.
    fn parse(line: &str) -> Option<Self> {
        let Some(first) = line.chars().next() else {
            return Some(Self::Keep(String::new()));
        };
        let rest = line.get(first.len_utf8()..).unwrap_or_default().to_owned();
        match first {
            ' ' => Some(Self::Keep(rest)),
            '-' => Some(Self::Remove(rest)),
            '+' => Some(Self::Add(rest)),
            _ => None,
        }
    }

    /// Returns the line of the old text, if it is one.
    fn old(&self) -> Option<&str> {
        match self {
            Self::Keep(line) | Self::Remove(line) => Some(line),
            Self::Add(_) => None,
        }
    }

    fn changes(&self) -> bool {
        !matches!(self, Self::Keep(_))
    }
}

impl Hunk {
    fn old(&self) -> Vec<&str> {
        self.lines.iter().filter_map(HunkLine::old).collect()
    }
}

/// The numbers of `@@ -START,COUNT +START,COUNT @@`, of the old text.
fn numbers(header: &str) -> Option<(usize, usize)> {
    let rest = header.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    rest.contains(" @@").then_some(())?;
    let (start, count) = old.split_once(',').unwrap_or((old, "1"));
    Some((start.parse().ok()?, count.parse().ok()?))
}

/// Reads a patch of either form.
///
/// # Errors
/// [`PatchError::Syntax`], with the line.
pub(super) fn parse(patch: &str) -> Result<Vec<Change>, PatchError> {
    let mut lines: Vec<&str> = patch
        .strip_suffix('\n')
        .unwrap_or(patch)
        .split('\n')
        .collect();
    // A patch that was saved with the line ends of another system.
    let content = lines.iter().filter(|line| !line.is_empty());
    if content.clone().count() > 0 && content.clone().all(|line| line.ends_with('\r')) {
        for line in &mut lines {
            *line = line.strip_suffix('\r').unwrap_or(line);
        }
    }
    let first = lines.iter().position(|line| !line.trim().is_empty());
    let begins = first.and_then(|first| lines.get(first)).copied();
    let changes = if begins.is_some_and(|line| line.trim() == BEGIN) {
        envelope::parse(&lines, first.unwrap_or(0))?
    } else {
        unified::parse(&lines)?
    };
    let hunks = changes.iter().map(|change| match change {
        Change::Update { hunks, .. } => hunks.len(),
        Change::Add { .. } | Change::Delete { .. } => 0,
    });
    for (count, most, what) in [
        (changes.len(), PATCH_FILES, "files"),
        (hunks.sum(), PATCH_HUNKS, "hunks"),
    ] {
        if count > most {
            return Err(PatchError::Syntax {
                line: 1,
                problem: format!(
                    "the patch has {count} {what}; at most {most} are taken, so send several"
                ),
            });
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(line: &str) -> HunkLine {
        HunkLine::Keep(line.into())
    }

    fn remove(line: &str) -> HunkLine {
        HunkLine::Remove(line.into())
    }

    fn add(line: &str) -> HunkLine {
        HunkLine::Add(line.into())
    }

    #[test]
    fn the_envelope_is_read() {
        let patch = "\n*** Begin Patch\n*** Add File: new\n+one\n+\n*** Delete File: gone\n\
                     *** Update File: a\n*** Move to: b c\n@@ fn f()\n@@\n x\n\n-y\n+z\n@@\n-q\n\
                     *** End of File\n*** End Patch\n";
        let hunks = vec![
            Hunk {
                anchors: vec!["fn f()".into()],
                lines: vec![keep("x"), keep(""), remove("y"), add("z")],
                ..Hunk::default()
            },
            Hunk {
                lines: vec![remove("q")],
                at_end: true,
                ..Hunk::default()
            },
        ];
        let wanted = vec![
            Change::Add {
                path: "new".into(),
                content: "one\n\n".into(),
            },
            Change::Delete {
                path: "gone".into(),
            },
            Change::Update {
                path: "a".into(),
                move_to: Some("b c".into()),
                hunks,
            },
        ];
        assert_eq!(parse(patch), Ok(wanted.clone()));
        assert_eq!(parse(&patch.replace('\n', "\r\n")), Ok(wanted));
    }

    #[test]
    fn a_unified_diff_is_read() {
        let patch = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ fn f\n \
                     a\n--- old\n+++ new\n@@ -9 +9 @@\n-l\n\\ No newline at end of file\n+m\n\
                     --- /dev/null\n+++ b/dir/new\n@@ -0,0 +1 @@\n+n\n\
                     \\ No newline at end of file\n--- a/gone\t2026-01-01\n+++ /dev/null\n\
                     @@ -1 +0,0 @@\n-n\ndiff --git a/p b/q\nsimilarity index 100%\nrename from p\n\
                     rename to q\n";
        let hunks = vec![
            Hunk {
                lines: vec![keep("a"), remove("-- old"), add("++ new")],
                hint: Some(3),
                ..Hunk::default()
            },
            Hunk {
                lines: vec![remove("l"), add("m")],
                hint: Some(9),
                old_open: true,
                ..Hunk::default()
            },
        ];
        let wanted = vec![
            Change::Update {
                path: "x".into(),
                move_to: None,
                hunks,
            },
            Change::Add {
                path: "dir/new".into(),
                content: "n".into(),
            },
            Change::Delete {
                path: "gone".into(),
            },
            Change::Update {
                path: "p".into(),
                move_to: Some("q".into()),
                hunks: Vec::new(),
            },
        ];
        assert_eq!(parse(patch), Ok(wanted));
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (patch, line, wanted) in [
            ("", 1, "neither"),
            ("hello\nworld", 1, "neither"),
            ("*** Begin Patch\n*** End Patch", 2, "changes nothing"),
            ("*** Begin Patch\n*** Add File: a\n+x", 3, "*** End Patch"),
            (
                "*** Begin Patch\n*** Add File: a\nx\n*** End Patch",
                3,
                "`+`",
            ),
            (
                "*** Begin Patch\nx\n*** End Patch",
                2,
                "`*** Update File: PATH`",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n*** End Patch",
                2,
                "no hunk",
            ),
            (
                "*** Begin Patch\n*** Update File: \n@@\n-a\n*** End Patch",
                2,
                "no path",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n@@\n*a\n*** End Patch",
                4,
                "` `, `-` or `+`",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n@@\n a\n*** End Patch",
                3,
                "changes nothing",
            ),
            (
                "*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch",
                3,
                "`*** Update File: PATH`",
            ),
            ("--- a/x\n+++ b/x\n", 1, "no hunk"),
            (
                "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n?b",
                5,
                "` `, `-` or `+`",
            ),
            ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n a\n+b", 3, "new"),
            (
                "diff --git a/x b/x\nBinary files a/x and b/x differ",
                2,
                "binary",
            ),
        ] {
            match parse(patch) {
                Err(PatchError::Syntax { line: at, problem }) => {
                    assert!(
                        at == line && problem.contains(wanted),
                        "{patch}: {at} {problem}"
                    );
                }
                other => panic!("{patch}: {other:?}"),
            }
        }
    }

    /// Numbers that are the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_041);
            usize::try_from(self.0 >> 33).unwrap() % most
        }

        fn text(&mut self, end: &str) -> String {
            let lines = ["a", "b", "", "-- c", "+ d", "\u{e4}", "@@", "*** e", "\\ f"];
            let count = self.below(30);
            let mut text: String = (0..count)
                .map(|_| format!("{}{end}", lines[self.below(lines.len())]))
                .collect();
            if self.below(4) == 0 {
                text.truncate(text.trim_end_matches(['\n', '\r']).len());
            }
            text
        }
    }

    #[test]
    fn what_a_diff_program_makes_is_applied_exactly() {
        let mut numbers = Numbers(7);
        for round in 0..500 {
            let end = if round % 5 == 0 { "\r\n" } else { "\n" };
            let (old, mut new) = (numbers.text(end), numbers.text(end));
            if round % 2 == 0 {
                // Small changes in a long text.
                new = format!("{old}{new}");
            }
            let diff = similar::TextDiff::from_lines(&old, &new);
            let patch = diff
                .unified_diff()
                .context_radius(numbers.below(4))
                .header("a/f", "b/f")
                .to_string();
            if patch.is_empty() {
                continue;
            }
            let changes = parse(&patch).unwrap();
            let [Change::Update { hunks, .. }] = changes.as_slice() else {
                panic!("{patch}: {changes:?}");
            };
            let applied = apply("f", &old, hunks);
            assert!(
                applied.as_ref() == Ok(&new),
                "{round} {patch:?}\n{old:?}\n{new:?}\n{applied:?}"
            );
        }
    }

    #[test]
    fn nothing_that_a_model_sends_breaks_it() {
        let pieces = [
            "*** Begin Patch\n",
            "*** End Patch\n",
            "*** Update File: f\n",
            "*** Add File: g\n",
            "*** Move to: h\n",
            "*** End of File\n",
            "@@\n",
            "@@ a\n",
            "@@ -1,2 +3 @@\n",
            "@@ -99999999999999999999 +1 @@\n",
            "@@ -18446744073709551615,1 +0 @@\n",
            "--- a/f\n",
            "+++ b/f\n",
            "--- /dev/null\n",
            "diff --git a/f b/f\n",
            " a\n",
            "-b\n",
            "+c\n",
            "\n",
            "\\ No newline at end of file\n",
            "\u{e4}\n",
            "rename from x\n",
            "\r\n",
            "+",
            "-\u{e4}",
        ];
        let mut numbers = Numbers(11);
        for _ in 0..20_000 {
            let count = numbers.below(12);
            let mut patch: String = if numbers.below(2) == 0 {
                "*** Begin Patch\n*** Update File: f\n".into()
            } else {
                "--- a/f\n+++ b/f\n".into()
            };
            for _ in 0..count {
                patch.push_str(pieces[numbers.below(pieces.len())]);
            }
            let text = numbers.text("\n");
            for change in parse(&patch).unwrap_or_default() {
                if let Change::Update { hunks, .. } = change {
                    let _ = apply("f", &text, &hunks);
                }
            }
        }
    }
}
