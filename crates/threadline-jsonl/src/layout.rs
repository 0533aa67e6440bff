//! Where things are kept.
//!
//! ```text
//! <root>/sessions/2026/11/30/<id>/          ids that are UUIDs of version 7, by their own time in UTC
//! <root>/sessions/other/<hh>/<escaped id>/  all other ids; hh are 2 hex digits of a hash
//! ```
//! A session is found by its id alone: no scan, no folder of a project, no zone.

use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};
use threadline_session::SessionId;

use crate::limits::MAX_NAME_BYTES;

/// The log inside a session's folder.
pub const LOG: &str = "log.jsonl";
/// Locked by whoever changes which files a log is made of, or adds a lock file.
pub(crate) const TURNSTILE: &str = "turnstile";
/// A lock file that is being made.
pub(crate) const NEW_LOCK: &str = "lock.new";

/// A frozen prefix that a log continues, by its number in the log.
pub(crate) fn base_name(number: usize) -> String {
    format!("base-{number}.jsonl")
}

/// Whether a header names a file that can be such a prefix.
pub(crate) fn is_base_name(name: &str) -> bool {
    let number = name
        .strip_prefix("base-")
        .and_then(|rest| rest.strip_suffix(".jsonl"));
    number.is_some_and(|number| {
        !number.is_empty() && number.len() <= 9 && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The checkpoints of a log, and those of a prefix by its number.
pub const INDEX: &str = "index";
/// Returns the name of the checkpoints of a prefix.
pub(crate) fn index_of(base_file: &str) -> String {
    let stem = base_file.strip_suffix(".jsonl").unwrap_or(base_file);
    format!("{stem}.index")
}

/// A log that is being created.
pub(crate) const NEW_LOG: &str = "log.jsonl.new";
/// The lock; after take-overs the one with the largest number is in force.
pub const LOCK: &str = "lock";
pub(crate) fn lock_name(number: u64) -> String {
    match number {
        0 => LOCK.into(),
        number => format!("{LOCK}-{number}"),
    }
}
/// What people set.
pub const SUMMARY: &str = "summary.json";
pub(crate) const NEW_SUMMARY: &str = "summary.json.new";
pub(crate) const SUMMARY_LOCK: &str = "summary.lock";
/// Damaged bytes that were moved aside.
pub const QUARANTINE: &str = "quarantine";
/// Where a repaired log is written before it takes the place of the old one.
pub(crate) const REPAIR: &str = ".repair";
/// How the name of a folder begins that is being deleted.
pub(crate) const DELETED: &str = ".deleted-";
/// Where the blobs of all sessions are.
pub const BLOBS: &str = "blobs";
/// Rows of all sessions, for lists.
pub const CATALOGUE: &str = "catalogue.sqlite";
pub(crate) const SESSIONS: &str = "sessions";
pub(crate) const OTHER: &str = "other";
/// Stands before the hash in the name of an id that is too long to be spelled out.
const CUT: char = '~';

/// Returns the folders from the root down to a session's own.
pub(crate) fn parts(id: &SessionId) -> Vec<String> {
    match by_date(id) {
        Some(mut date) => {
            date.insert(0, SESSIONS.into());
            date.push(id.to_string());
            date
        }
        None => {
            let hash = blake3::hash(id.as_str().as_bytes()).to_hex();
            let short = hash.get(..2).unwrap_or("00").to_owned();
            vec![SESSIONS.into(), OTHER.into(), short, escape(id.as_str())]
        }
    }
}

/// Returns a session's folder.
#[must_use]
pub fn session_dir(root: &Path, id: &SessionId) -> PathBuf {
    parts(id)
        .iter()
        .fold(root.to_owned(), |path, part| path.join(part))
}

fn by_date(id: &SessionId) -> Option<Vec<String>> {
    let uuid = id.as_uuid().filter(|uuid| uuid.get_version_num() == 7)?;
    let (secs, _) = uuid.get_timestamp()?.to_unix();
    let time = Timestamp::from_second(i64::try_from(secs).ok()?).ok()?;
    let date = TimeZone::UTC.to_datetime(time).date();
    (0..=9999).contains(&date.year()).then(|| {
        vec![
            format!("{:04}", date.year()),
            format!("{:02}", date.month()),
            format!("{:02}", date.day()),
        ]
    })
}

/// Spells an id so that no two ids meet on a file system that ignores case.
fn escape(id: &str) -> String {
    let mut name = String::new();
    for byte in id.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > MAX_NAME_BYTES {
        let hash = blake3::hash(id.as_bytes()).to_hex();
        let head: String = name.chars().take(MAX_NAME_BYTES / 2).collect();
        name = format!("{head}{CUT}{}", hash.get(..32).unwrap_or_default());
    }
    name
}

/// Reads an id from the name of its folder; `None` when only the header tells it.
pub(crate) fn unescape(name: &str) -> Option<SessionId> {
    if name.contains(CUT) {
        return None;
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (hex, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*byte);
        }
    }
    SessionId::parse(String::from_utf8(bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    #[test]
    fn a_uuid_of_version_7_is_kept_by_its_own_day_in_utc() {
        let at = session_dir(Path::new("/r"), &id("019ad2c4-3800-7000-8000-000000000001"));
        assert_eq!(
            at,
            Path::new("/r/sessions/2025/11/30/019ad2c4-3800-7000-8000-000000000001")
        );
    }

    #[test]
    fn other_ids_are_spelled_so_that_they_can_be_read_back_and_never_meet() {
        let long = "x".repeat(200);
        let capitals = "X".repeat(200);
        let all = [
            "a", "A", "a/b", "..", ".", "a%2Fb", "\u{e9}", "a b", &long, &capitals, "~",
        ];
        let mut names = Vec::new();
        for text in all {
            let parts = parts(&id(text));
            let name = parts.last().unwrap().to_lowercase();
            assert!(name.len() <= 255 && !name.contains('/') && !name.starts_with('.'));
            assert!(!names.contains(&name), "{text} meets another");
            if let Some(back) = unescape(parts.last().unwrap()) {
                assert_eq!(back, id(text));
            } else {
                assert!(text.len() > 60);
            }
            names.push(name);
        }
    }
}
