//! What the model is told of its surroundings: the folder, the date, the state of the repository,
//! and what the folder's AGENTS.md says.
//!
//! The system prompt and everything said before stay byte for byte as they are, so that a
//! provider's prompt cache keeps matching: what has changed since it was last told is told in a new
//! message, and what has not changed is not told again. All of it is in the log.

use std::{
    collections::HashMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, tz::TimeZone};
use threadline_session::{
    Item, Transcript,
    payload::{ContentPart, UserMessage, UserSource},
};

use crate::{
    limits::{CONTEXT_FOLDERS, GIT_FILE_BYTES, INSTRUCTIONS_BYTES},
    prompt,
};

/// File whose words are told to the model.
const INSTRUCTIONS: &str = "AGENTS.md";

/// Subject of what is told of tools that come from elsewhere.
const SOURCES: &str = "Servers";
/// Takes back what was told of them.
const SOURCES_WELL: &str =
    "no tool server is missing any more; the tools are those you are offered now";

/// Returns what a message of the harness is about: its text up to the colon.
pub(crate) fn subject(part: &ContentPart) -> Option<&str> {
    let ContentPart::Text { text } = part else {
        return None;
    };
    text.split_once(':').map(|(subject, _)| subject)
}

/// Returns the message that tells what is not on the surface yet, or no longer holds.
pub(crate) fn news(transcript: &Transcript, cwd: &Path, now_ms: u64) -> Option<UserMessage> {
    let told = told(transcript);
    let now = [
        ("Environment", Some(prompt::environment(cwd)), ""),
        ("Date", date(now_ms), ""),
        (
            "Repository",
            repository(cwd),
            "the working directory is in no git repository",
        ),
        (
            "Instructions",
            instructions(cwd),
            "there is no AGENTS.md for the working directory any more; what it said no longer holds",
        ),
    ];
    changed(&told, now)
}

/// Returns the message that tells what holds of the tools that come from elsewhere, if the model
/// was told something else, or nothing yet.
pub(crate) fn sources_news(transcript: &Transcript, now: Option<String>) -> Option<UserMessage> {
    let now = now.map(|now| format!("{SOURCES}: {now}"));
    changed(&told(transcript), [(SOURCES, now, SOURCES_WELL)])
}

/// Returns what the model was told last of each subject.
fn told(transcript: &Transcript) -> HashMap<String, String> {
    let mut told = HashMap::new();
    for (_, item) in transcript.surface() {
        let Item::User(message) = item else {
            continue;
        };
        if message.source != UserSource::Context {
            continue;
        }
        for part in &message.content {
            if let (Some(subject), ContentPart::Text { text }) = (subject(part), part) {
                told.insert(subject.to_owned(), text.clone());
            }
        }
    }
    told
}

/// Returns the message about those subjects of which something else was told. Each has what holds
/// now, or else what takes back what was told.
fn changed<'a>(
    told: &HashMap<String, String>,
    now: impl IntoIterator<Item = (&'a str, Option<String>, &'a str)>,
) -> Option<UserMessage> {
    let content: Vec<ContentPart> = now
        .into_iter()
        .filter_map(|(subject, now, gone)| {
            let before = told.get(subject);
            let now = match (now, before) {
                (Some(now), _) => now,
                // Nothing to take back.
                (None, None) => return None,
                (None, Some(_)) => format!("{subject}: {gone}."),
            };
            (before != Some(&now)).then(|| ContentPart::text(now))
        })
        .collect();
    (!content.is_empty()).then_some(UserMessage {
        content,
        source: UserSource::Context,
    })
}

fn date(now_ms: u64) -> Option<String> {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    let now = TimeZone::system().to_datetime(now);
    Some(format!("Date: {}.", now.strftime("%A, %Y-%m-%d")))
}

/// Reads the branch and the commit from the files themselves: to run git in a folder is to run what
/// its configuration names.
fn repository(cwd: &Path) -> Option<String> {
    let (root, git) = ancestors(cwd).find_map(|folder| {
        let git = git_folder(&folder.join(".git"))?;
        Some((folder.to_owned(), git))
    })?;
    let head = read(&git.join("HEAD"), GIT_FILE_BYTES)?;
    let head = head.trim();
    let place = root.display();
    let Some(name) = head.strip_prefix("ref: ") else {
        let commit = short(head)?;
        return Some(format!(
            "Repository: git, at commit {commit} on no branch, root {place}."
        ));
    };
    let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
    let at = match commit_of(&git, name) {
        Some(commit) => format!("at commit {commit}"),
        None => "without a commit yet".into(),
    };
    Some(format!(
        "Repository: git, branch {branch} {at}, root {place}."
    ))
}

/// Follows the file that stands for the folder in worktrees and submodules.
fn git_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = read(path, GIT_FILE_BYTES)?;
    let target = text.trim().strip_prefix("gitdir: ")?;
    Some(path.parent()?.join(target))
}

fn commit_of(git: &Path, name: &str) -> Option<String> {
    if name.split('/').any(|part| part == "..") {
        return None;
    }
    // A worktree keeps its branches with the repository that it belongs to.
    let common = read(&git.join("commondir"), GIT_FILE_BYTES);
    let common = common.map_or_else(|| git.to_owned(), |path| git.join(path.trim()));
    if let Some(commit) = read(&common.join(name), GIT_FILE_BYTES) {
        return short(commit.trim());
    }
    let packed = read(&common.join("packed-refs"), GIT_FILE_BYTES)?;
    let line = packed
        .lines()
        .find(|line| line.split_once(' ').is_some_and(|(_, found)| found == name))?;
    short(line)
}

fn short(commit: &str) -> Option<String> {
    let hex: String = commit
        .chars()
        .take_while(char::is_ascii_hexdigit)
        .take(12)
        .collect();
    (hex.len() == 12).then_some(hex)
}

/// Returns what AGENTS.md says in the folder and in those above it up to the repository's root, the
/// outermost first.
fn instructions(cwd: &Path) -> Option<String> {
    // Outside of a repository only the folder itself speaks.
    let above = ancestors(cwd).position(|folder| folder.join(".git").exists());
    let mut found = Vec::new();
    for folder in ancestors(cwd).take(above.unwrap_or(0) + 1) {
        let path = folder.join(INSTRUCTIONS);
        // A link could lead to a key, and nobody is asked before this is sent.
        if path.is_symlink() {
            continue;
        }
        if let Some(text) = read(&path, INSTRUCTIONS_BYTES).filter(|text| !text.trim().is_empty()) {
            let text = text.trim_end();
            found.push(format!("From {}:\n\n{text}", path.display()));
        }
    }
    found.reverse();
    (!found.is_empty()).then(|| format!("Instructions: {}", found.join("\n\n")))
}

fn ancestors(cwd: &Path) -> impl Iterator<Item = &Path> {
    cwd.ancestors().take(CONTEXT_FOLDERS)
}

/// Reads the beginning of a plain file as text.
fn read(path: &Path, most: u64) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(most)
        .read_to_end(&mut bytes)
        .ok()?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if meta.len() > most {
        text.push_str("\n[the rest of the file is left out]");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        reason = "a test may fail so"
    )]

    use threadline_session::{Event, Payload, payload::plain_text};

    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    struct Told(Transcript);

    impl Told {
        fn tell(&mut self, cwd: &Path, now_ms: u64) -> Option<String> {
            let message = news(&self.0, cwd, now_ms)?;
            let text = plain_text(&message.content);
            let seq = self.0.next_seq();
            let event = Event::new(seq, now_ms, &Payload::UserMessage(message)).unwrap();
            self.0.apply(&event).unwrap();
            Some(text)
        }
    }

    #[test]
    fn each_thing_is_told_once_and_again_only_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        let mut told = Told(Transcript::new());
        let first = told.tell(cwd, DAY).unwrap();
        assert!(
            first.contains("Environment:") && first.contains("1970-01-0"),
            "{first}"
        );
        assert!(!first.contains("Repository") && !first.contains("Instructions"));
        assert_eq!(told.tell(cwd, DAY), None);
        assert_eq!(told.tell(cwd, 3 * DAY).unwrap().matches(':').count(), 1);
        std::fs::write(cwd.join(INSTRUCTIONS), "Use tabs.\n").unwrap();
        let rules = told.tell(cwd, 3 * DAY).unwrap();
        assert!(rules.starts_with("Instructions:") && rules.ends_with("Use tabs."));
        std::fs::remove_file(cwd.join(INSTRUCTIONS)).unwrap();
        assert!(told.tell(cwd, 3 * DAY).unwrap().contains("no longer holds"));
        assert_eq!(told.tell(cwd, 3 * DAY), None);
    }

    #[test]
    fn a_repository_is_read_and_never_run() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("src");
        std::fs::create_dir_all(&cwd).unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads")).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert!(
            repository(&cwd)
                .unwrap()
                .contains("branch main without a commit")
        );
        let commit = "0123456789abcdef0123456789abcdef01234567";
        std::fs::write(
            git.join("packed-refs"),
            format!("# x\n{commit} refs/heads/main\n"),
        )
        .unwrap();
        assert!(repository(&cwd).unwrap().contains("at commit 0123456789ab"));
        std::fs::write(git.join("HEAD"), format!("{commit}\n")).unwrap();
        assert!(repository(&cwd).unwrap().contains("on no branch"));
        std::fs::write(git.join("HEAD"), "ref: refs/../../../secret\n").unwrap();
        assert!(repository(&cwd).unwrap().contains("without a commit"));
        // The rules of the whole repository, then those of the folder.
        std::fs::write(dir.path().join(INSTRUCTIONS), "outer").unwrap();
        std::fs::write(cwd.join(INSTRUCTIONS), "inner").unwrap();
        let rules = instructions(&cwd).unwrap();
        assert!(rules.find("outer").unwrap() < rules.find("inner").unwrap());
        // What a link leads to is not for the model.
        std::fs::remove_file(cwd.join(INSTRUCTIONS)).unwrap();
        std::fs::write(dir.path().join(".env"), "KEY=1").unwrap();
        std::os::unix::fs::symlink("../.env", cwd.join(INSTRUCTIONS)).unwrap();
        assert!(!instructions(&cwd).unwrap().contains("KEY"));
    }
}
