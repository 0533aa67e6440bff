//! What lies in a session's folder, file by file: what it is, what a crash left, and why that is
//! fine. Everything here only reads.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;
use threadline_jsonl::{
    Hint, JsonlBackend, JsonlOptions, RealVfs,
    layout::{INDEX, LOCK, LOG, QUARANTINE, SUMMARY, session_dir},
    limits::{HINT_BYTES, MAX_HEADER_BYTES},
    vfs::Vfs as _,
};
use threadline_session::{
    Base, Header, SessionId,
    codec::{Crc, check_crc},
};
use threadline_store::{Damage, Holder, Torn, UserSummary};

use crate::text;

/// How a file stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// A crash, or somebody, left it so; nothing that was acknowledged depends on it.
    Left,
    /// Something is missing or broken.
    Wrong,
}

/// One file of a session.
#[derive(Debug, Serialize)]
pub(super) struct FileReport {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) state: State,
    pub(super) says: String,
    /// The invariant that makes it so.
    pub(super) invariant: &'static str,
}

/// What is known of the session besides its files.
pub(super) struct Known<'a> {
    pub(super) id: &'a SessionId,
    pub(super) last_seq: Option<u64>,
    pub(super) writer: Option<&'a Holder>,
    pub(super) torn: Option<&'a Torn>,
    pub(super) damage: &'a [Damage],
    /// Events that opening would append.
    pub(super) unstored: usize,
}

struct Look<'a> {
    root: &'a Path,
    dir: PathBuf,
    known: &'a Known<'a>,
    /// The frozen prefixes that the log continues, by name.
    bases: BTreeMap<String, Base>,
    /// Number of the lock file in force.
    lock: u64,
}

/// Looks at all files of a session that is kept in a folder below `root`.
pub(super) fn look(root: &Path, known: &Known<'_>) -> Vec<FileReport> {
    let dir = session_dir(root, known.id);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        if let Ok(meta) = entry.metadata() {
            found.insert(entry.file_name().to_string_lossy().into_owned(), meta);
        }
    }
    let look = Look {
        root,
        bases: bases(&dir),
        lock: found
            .keys()
            .filter_map(|name| lock_number(name))
            .max()
            .unwrap_or(0),
        dir,
        known,
    };
    let mut reports: Vec<_> = found
        .iter()
        .map(|(name, meta)| look.file(name, meta))
        .collect();
    for (name, base) in &look.bases {
        if !found.contains_key(name) {
            reports.push(FileReport {
                name: name.clone(),
                bytes: 0,
                state: State::Wrong,
                says: format!("is missing, and with it the events up to {}", base.last_seq),
                invariant: "I1",
            });
        }
    }
    reports.sort_by_key(|report| rank(&report.name));
    reports
}

/// The log first, then what it continues, then what is derived, then what people set.
fn rank(name: &str) -> (usize, String) {
    let kinds: [fn(&str) -> bool; 5] = [
        |name| name == LOG,
        |name| name.starts_with("base-") && name.ends_with(".jsonl"),
        |name| name == INDEX || name.ends_with(".index"),
        |name| lock_number(name).is_some(),
        |name| name.starts_with("summary"),
    ];
    let kind = kinds.iter().position(|is| is(name)).unwrap_or(kinds.len());
    (kind, name.to_owned())
}

fn lock_number(name: &str) -> Option<u64> {
    match name.strip_prefix(LOCK)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

/// Reads a header by its file; `None` when it cannot be read.
fn header(path: &Path) -> Option<Header> {
    let limit = u64::try_from(MAX_HEADER_BYTES).unwrap_or(u64::MAX);
    let mut line = Vec::new();
    let mut reader = BufReader::new(fs::File::open(path).ok()?.take(limit));
    reader.read_until(b'\n', &mut line).ok()?;
    let (header, _) = Header::decode(line.strip_suffix(b"\n")?).ok()?;
    Some(header)
}

fn bases(dir: &Path) -> BTreeMap<String, Base> {
    let mut found = BTreeMap::new();
    let mut next = header(&dir.join(LOG)).and_then(|header| header.base);
    while let Some(base) = next {
        // A file that is named twice would go round for ever.
        if found.contains_key(&base.file) || base.file.contains('/') {
            break;
        }
        next = header(&dir.join(&base.file)).and_then(|header| header.base);
        found.insert(base.file.clone(), base);
    }
    found
}

type Verdict = (State, &'static str, String);

impl Look<'_> {
    fn file(&self, name: &str, meta: &Metadata) -> FileReport {
        let mut bytes = meta.len();
        let (state, invariant, says) = match name {
            LOG => self.log(),
            INDEX => self.index(),
            SUMMARY => self.summary(),
            QUARANTINE => {
                let (files, size) = below(&self.dir.join(QUARANTINE));
                bytes = size;
                let says = format!(
                    "{} that recovery or repair moved aside; nothing reads them",
                    text::count(files, "file", "files")
                );
                (State::Fine, "I10", says)
            }
            "summary.lock" => (State::Fine, "I8", "guards changes of summary.json".into()),
            "log.jsonl.new" | "summary.json.new" => (
                State::Left,
                "I10",
                "a change that was cut short before it counted; the next one removes it".into(),
            ),
            name if lock_number(name).is_some() => self.lock(name),
            name if name.ends_with(".index") => (
                State::Fine,
                "I6",
                "checkpoints of a frozen prefix; may be deleted".into(),
            ),
            name if name.starts_with("base-") && name.ends_with(".jsonl") => self.base(name, meta),
            _ => (
                State::Left,
                "I10",
                "no file of Threadline's; it is left alone".into(),
            ),
        };
        FileReport {
            name: name.to_owned(),
            bytes,
            state,
            says,
            invariant,
        }
    }

    fn damage_in(&self, name: &str) -> Option<Verdict> {
        let path = self.dir.join(name).display().to_string();
        let damage = self.known.damage.iter().find(|d| d.file == path)?;
        let says = format!(
            "damaged at byte {}, where event {} belongs: {}",
            damage.offset, damage.seq, damage.reason
        );
        Some((State::Wrong, "I4", says))
    }

    fn log(&self) -> Verdict {
        if let Some(wrong) = self.damage_in(LOG) {
            return wrong;
        }
        let last = match self.known.last_seq {
            Some(last) => format!("whole up to event {last}"),
            None => "holds no event".into(),
        };
        if let Some(torn) = self.known.torn {
            let says = format!(
                "{last}; then {} of an unfinished write ({}), which the next run moves aside",
                text::count(torn.bytes, "byte", "bytes"),
                torn.reason
            );
            return (State::Left, "I3", says);
        }
        if self.known.unstored > 0 && self.known.writer.is_none() {
            let says = format!(
                "{last}; its turn was cut short, and the next run appends {} that close it",
                text::count(self.known.unstored as u64, "event", "events")
            );
            return (State::Left, "I5", says);
        }
        (State::Fine, "I2", last)
    }

    fn base(&self, name: &str, meta: &Metadata) -> Verdict {
        if let Some(wrong) = self.damage_in(name) {
            return wrong;
        }
        let Some(base) = self.bases.get(name) else {
            let says = "no part of the log: a fork or a take-over that was cut short left it";
            return (State::Left, "I10", says.into());
        };
        if meta.len() < base.bytes {
            let says = format!(
                "has {} bytes of the {} that hold the events up to {}",
                meta.len(),
                base.bytes,
                base.last_seq
            );
            return (State::Wrong, "I1", says);
        }
        let shared = match meta.nlink().saturating_sub(1) {
            0 => "no other session has it".to_owned(),
            names => format!(
                "shared with {}",
                text::count(names, "other file", "other files")
            ),
        };
        let says = format!(
            "the log up to event {}, {} of it; {shared}",
            base.last_seq,
            text::count(base.bytes, "byte", "bytes")
        );
        (State::Fine, "I2", says)
    }

    fn index(&self) -> Verdict {
        let checkpoint = JsonlBackend::open(self.root, JsonlOptions::default())
            .and_then(|backend| backend.files().checkpoint(self.known.id, u64::MAX));
        match checkpoint {
            Ok(Some(checkpoint)) => {
                let says = format!(
                    "a checkpoint before event {}: opening reads what stands behind it; may be \
                     deleted",
                    checkpoint.next.seq
                );
                (State::Fine, "I11", says)
            }
            Ok(None) | Err(_) => (
                State::Left,
                "I6",
                "no usable checkpoint: cut short, stale or garbled; opening reads the log instead"
                    .into(),
            ),
        }
    }

    fn summary(&self) -> Verdict {
        let bytes = fs::read(self.dir.join(SUMMARY)).unwrap_or_default();
        match serde_json::from_slice::<UserSummary>(&bytes) {
            Ok(summary) => (
                State::Fine,
                "I6",
                format!("what people set, revision {}", summary.revision),
            ),
            Err(error) => (
                State::Left,
                "I6",
                format!(
                    "garbled ({error}): what people set is missing; the next change moves the file \
                     to {QUARANTINE}/"
                ),
            ),
        }
    }

    fn lock(&self, name: &str) -> Verdict {
        if lock_number(name) != Some(self.lock) {
            let says = "of a writer that was taken over; it stores nothing any more";
            return (State::Fine, "I8", says.into());
        }
        if let Some(holder) = self.known.writer {
            let since = text::moment(holder.since);
            return (State::Fine, "I8", format!("{holder} writes since {since}"));
        }
        let Some(hint) = hint(&self.dir.join(name)) else {
            let says = "nobody writes; its record is empty or torn, so it is no evidence";
            return (State::Left, "I6", says.into());
        };
        let durable = match hint.durable_seq {
            Some(seq) => format!("durable up to event {seq}"),
            None => "nothing was durable".into(),
        };
        let writer = format!("writer {} on {}", hint.pid, hint.host);
        if hint.failed {
            let says = format!(
                "{writer} could not sync: {durable}, and what stands behind that is not believed"
            );
            return (State::Left, "I7", says);
        }
        if hint.boot_id != RealVfs.boot_id() {
            let says = format!(
                "{writer} is gone (boot id differs); {durable}, and what was not synced may be gone"
            );
            return (State::Fine, "I1", says);
        }
        let cut = self.known.torn.is_some() || self.known.unstored > 0;
        let (state, end) = match cut {
            true => (State::Left, "died"),
            false => (State::Fine, "is done"),
        };
        (state, "I1", format!("{writer} {end}; {durable}"))
    }
}

/// Reads the record of a lock file; `None` when no checksum vouches for it.
fn hint(path: &Path) -> Option<Hint> {
    let mut record = Vec::new();
    let limit = u64::try_from(HINT_BYTES).unwrap_or(u64::MAX);
    let file = fs::File::open(path).ok()?;
    file.take(limit).read_to_end(&mut record).ok()?;
    let line = record.trim_ascii_end();
    (check_crc(line) == Crc::Match).then(|| serde_json::from_slice(line).ok())?
}

/// Returns how many files are below a folder, and their size.
fn below(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else {
            continue;
        };
        let (more, size) = if meta.is_dir() {
            below(&entry.path())
        } else {
            (1, meta.len())
        };
        files += more;
        bytes += size;
    }
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stand_in_the_order_of_what_counts() {
        let mut names = [
            "quarantine",
            "summary.json",
            "lock-1",
            "index",
            "base-0.index",
            "base-0.jsonl",
            "lock",
            "log.jsonl",
        ];
        names.sort_by_key(|name| rank(name));
        assert_eq!(
            names,
            [
                "log.jsonl",
                "base-0.jsonl",
                "base-0.index",
                "index",
                "lock",
                "lock-1",
                "summary.json",
                "quarantine",
            ]
        );
        assert_eq!(lock_number("lock-12"), Some(12));
        assert_eq!(lock_number("locker"), None);
    }
}
