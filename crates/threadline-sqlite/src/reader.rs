//! Reading logs. Everything a function returns is of one moment.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_session::{
    Base, Header, Place, SessionId,
    codec::{Line, check_raw},
};
use threadline_store::{
    BlobId, Damage, Entry, HeaderReadError, Page, ReadPos, Stamp, Stat, StoredHeader, Usage,
    blob::names_in,
};

use crate::{
    error::Fail,
    leases::Held,
    limits::READERS,
    log::{Part, Session, parts, session, text},
    number::{length, signed, unsigned},
    schema::Target,
};

/// Connections for reading: each is used by one at a time.
#[derive(Debug)]
pub(crate) struct Readers {
    target: Target,
    idle: Mutex<Vec<Connection>>,
    /// Looks for commits of others, for all who follow a session.
    watch: Mutex<Option<Connection>>,
}

impl Readers {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            idle: Mutex::new(Vec::new()),
            watch: Mutex::new(None),
        }
    }

    /// Returns a connection that nobody uses.
    fn take(&self) -> Result<Connection, Fail> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        idle.map_or_else(|| self.target.reading().map_err(Fail::Open), Ok)
    }

    /// Gives a connection back.
    fn give(&self, conn: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < READERS {
            idle.push(conn);
        }
    }

    /// Reads something, all of it as of one moment.
    pub(crate) fn read<R>(
        &self,
        work: impl FnOnce(&Connection) -> Result<R, Fail>,
    ) -> Result<R, Fail> {
        let conn = self.take()?;
        let outcome = conn
            .unchecked_transaction()
            .map_err(Fail::from)
            .and_then(|tx| work(&tx));
        if !outcome.as_ref().is_err_and(Fail::spoils) {
            self.give(conn);
        }
        outcome
    }

    /// Returns a number that changes whenever anybody has committed; `None` when that cannot be told.
    pub(crate) fn version(&self) -> Option<i64> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            *watch = self.target.reading().ok();
        }
        // It counts what all other connections do, and this one does nothing.
        let version = watch.as_ref().and_then(|conn| {
            let mut query = conn.prepare_cached("PRAGMA data_version").ok()?;
            query.query_row([], |row| row.get(0)).ok()
        });
        if version.is_none() {
            *watch = None;
        }
        version
    }

    pub(crate) fn path(&self) -> &Path {
        &self.target.path
    }
}

fn missing(id: &SessionId) -> Fail {
    Fail::Refused(format!("there is no session {id}"))
}

fn found(conn: &Connection, id: &SessionId) -> Result<Session, Fail> {
    session(conn, id)?.ok_or_else(|| missing(id))
}

/// Returns a session's own header line, with its LF.
pub(crate) fn header_line(conn: &Connection, id: &SessionId) -> Result<Option<Vec<u8>>, Fail> {
    let mut query = conn.prepare_cached(
        "SELECT g.header FROM sessions s JOIN segments g ON g.num = s.segment WHERE s.id = ?1",
    )?;
    let line = query
        .query_row([id.as_str()], |row| Ok(text(row, 0)?.to_vec()))
        .optional()?;
    Ok(line.map(|mut line| {
        line.push(b'\n');
        line
    }))
}

pub(crate) fn decode_header(file: String, line: Vec<u8>) -> Result<StoredHeader, HeaderReadError> {
    let decoded = Header::decode(line.strip_suffix(b"\n").unwrap_or(&line));
    let (header, verified) = decoded.map_err(|source| HeaderReadError::Header { file, source })?;
    Ok(StoredHeader {
        header,
        line,
        verified,
    })
}

/// Names the log of a session for people.
pub(crate) fn file_of(path: &Path, id: &SessionId) -> String {
    format!("{} (session {id})", path.display())
}

/// Judges one row of the events.
fn entry(file: &str, seq: u64, at: u64, body: &[u8]) -> Entry {
    let damage = |reason: String| {
        Entry::Damage(Damage {
            file: file.to_owned(),
            offset: at,
            bytes: length(body) + 1,
            seq,
            reason,
        })
    };
    match Line::decode(body) {
        Ok(line) if line.event.seq == seq => Entry::Line(
            line,
            Place {
                at,
                len: u32::try_from(length(body) + 1).unwrap_or(u32::MAX),
            },
        ),
        Ok(line) => damage(format!(
            "the line is that of event {}, but it stands at {seq}",
            line.event.seq
        )),
        Err(error) => damage(error.to_string()),
    }
}

/// Reads a page, as [`threadline_store::Backend::page`] says.
pub(crate) fn page(
    conn: &Connection,
    path: &Path,
    id: &SessionId,
    from: ReadPos,
    max_bytes: usize,
) -> Result<Page, Fail> {
    let session = found(conn, id)?;
    let parts = parts(conn, &session)?;
    let mut building = Building {
        file: file_of(path, id),
        page: Page {
            next: from,
            ..Page::default()
        },
        // Who is ahead of the log is given what stands at its end.
        expected: from.seq.min(session.next_seq),
        at: from.hint,
        bytes: 0,
        events: 0,
        max_bytes,
    };
    let ahead = from.seq > session.next_seq;
    for (index, part) in parts.iter().enumerate() {
        let end = parts
            .get(index + 1)
            .map_or(session.bytes, |next| next.start);
        let is_wanted = match from.hint {
            Some(hint) => part.start >= hint,
            None => part.first_seq >= from.seq.min(session.next_seq),
        };
        if is_wanted {
            building.header(part);
        }
        if !building.events(conn, part, end)? {
            return Ok(building.page);
        }
    }
    building.page.end = true;
    if !ahead {
        building.page.next = ReadPos {
            seq: session.next_seq,
            hint: Some(session.bytes),
        };
    }
    Ok(building.page)
}

/// A page in the making.
struct Building {
    file: String,
    page: Page,
    /// Number of the event that comes next.
    expected: u64,
    /// Where it begins, as far as is known.
    at: Option<u64>,
    bytes: usize,
    events: usize,
    max_bytes: usize,
}

impl Building {
    fn header(&mut self, part: &Part) {
        let mut line = part.header.clone();
        line.push(b'\n');
        self.bytes += line.len();
        self.page.entries.push(Entry::Header(line));
        self.at = Some(part.body());
        self.page.next.hint = self.at;
    }

    /// Takes the events of a segment that ends at byte `end`. Returns whether there was room for
    /// all of them.
    fn events(&mut self, conn: &Connection, part: &Part, end: u64) -> Result<bool, Fail> {
        self.expected = self.expected.max(part.first_seq);
        if self.expected >= part.until {
            return Ok(true);
        }
        let mut query = conn.prepare_cached(
            "SELECT seq, at, body FROM events WHERE segment = ?1 AND seq >= ?2 AND seq < ?3
             ORDER BY seq",
        )?;
        let mut rows = query.query(params![
            part.segment,
            signed(self.expected),
            signed(part.until)
        ])?;
        while let Some(row) = rows.next()? {
            if self.bytes >= self.max_bytes && self.events > 0 {
                return Ok(false);
            }
            let (seq, at, body) = (unsigned(row.get(0)?), unsigned(row.get(1)?), text(row, 2)?);
            self.hole(seq, at);
            let len = body.len() + 1;
            self.page.entries.push(entry(&self.file, seq, at, body));
            self.bytes += len;
            self.events += 1;
            self.expected = seq + 1;
            self.at = Some(at + len as u64);
            self.page.next = ReadPos {
                seq: self.expected,
                hint: self.at,
            };
        }
        self.hole(part.until, end);
        self.expected = part.until;
        self.at = Some(end);
        self.page.next = ReadPos {
            seq: self.expected,
            hint: self.at,
        };
        Ok(true)
    }

    /// Notes that events are missing before event `seq`, which begins at `at`, if any are.
    fn hole(&mut self, seq: u64, at: u64) {
        if self.expected >= seq {
            return;
        }
        let offset = self.at.unwrap_or(at);
        let last = seq - 1;
        let reason = if last == self.expected {
            format!("event {last} is missing")
        } else {
            format!("events {} to {last} are missing", self.expected)
        };
        self.events += 1;
        self.page.entries.push(Entry::Damage(Damage {
            file: self.file.clone(),
            offset,
            bytes: at.saturating_sub(offset),
            seq: self.expected,
            reason,
        }));
    }
}

/// Reads single lines, as [`threadline_store::Backend::lines`] says.
pub(crate) fn lines(
    conn: &Connection,
    path: &Path,
    id: &SessionId,
    wanted: &[(u64, Place)],
) -> Result<Vec<Result<Vec<u8>, Damage>>, Fail> {
    let session = found(conn, id)?;
    let parts = parts(conn, &session)?;
    let file = file_of(path, id);
    let mut query =
        conn.prepare_cached("SELECT at, body FROM events WHERE segment = ?1 AND seq = ?2")?;
    let mut lines = Vec::with_capacity(wanted.len());
    for (seq, place) in wanted {
        let part = parts
            .iter()
            .find(|part| part.first_seq <= *seq && *seq < part.until);
        let line = match part {
            None => None,
            Some(part) => query
                .query_row(params![part.segment, signed(*seq)], |row| {
                    Ok((unsigned(row.get(0)?), text(row, 1)?.to_vec()))
                })
                .optional()?,
        };
        let checked = match line {
            Some((at, line)) if at == place.at => check_raw(&line, *seq)
                .map(|()| line)
                .map_err(|error| error.to_string()),
            _ => Err("the event is not where it was".to_owned()),
        };
        lines.push(checked.map_err(|reason| Damage {
            file: file.clone(),
            offset: place.at,
            bytes: u64::from(place.len),
            seq: *seq,
            reason,
        }));
    }
    Ok(lines)
}

/// Returns what is known of a session without its log.
pub(crate) fn stat(conn: &Connection, id: &SessionId) -> Result<Option<Stat>, Fail> {
    let sql = format!(
        "SELECT s.num, s.bytes, s.people, s.acknowledged, s.lease, s.since, s.segment,
                s.epoch, {}
         FROM sessions s LEFT JOIN holders h ON h.num = s.holder WHERE s.id = ?1",
        Held::COLUMNS
    );
    let mut query = conn.prepare_cached(&sql)?;
    let stat = query
        .query_row([id.as_str()], |row| {
            let num = unsigned(row.get(0)?);
            let bytes = unsigned(row.get(1)?);
            let held = Held::read(row, 8, row.get(4)?, unsigned(row.get(5)?))?;
            Ok(Stat {
                bytes,
                // A repaired log may be as long as the old one, but has a segment of its own.
                stamp: Stamp(bytes, unsigned(row.get(6)?)),
                people: Stamp(unsigned(row.get(2)?), num),
                writer: held.filter(Held::is_alive).map(|held| held.holder()),
                acknowledged: row.get::<_, Option<i64>>(3)?.map(unsigned),
                epoch: Some(unsigned(row.get(7)?)),
            })
        })
        .optional()?;
    Ok(stat)
}

/// Returns the bytes that a session takes up; none when there is no such session.
pub(crate) fn usage(conn: &Connection, id: &SessionId) -> Result<Usage, Fail> {
    let mut query = conn.prepare_cached(
        "SELECT s.bytes, g.start,
                (SELECT total(length(c.state)) FROM checkpoints c WHERE c.session = s.num),
                (SELECT total(k.bytes) FROM kept_logs k WHERE k.session = s.num)
         FROM sessions s JOIN segments g ON g.num = s.segment WHERE s.id = ?1",
    )?;
    let usage = query
        .query_row([id.as_str()], |row| {
            let (bytes, shared) = (unsigned(row.get(0)?), unsigned(row.get(1)?));
            Ok(Usage {
                log: bytes.saturating_sub(shared),
                shared,
                index: row.get::<_, f64>(2)? as u64,
                quarantine: row.get::<_, f64>(3)? as u64,
                other: 0,
            })
        })
        .optional()?;
    Ok(usage.unwrap_or_default())
}

/// Returns all ids.
pub(crate) fn ids(conn: &Connection) -> Result<Vec<SessionId>, Fail> {
    let mut query = conn.prepare_cached("SELECT id FROM sessions")?;
    let mut rows = query.query([])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        match SessionId::parse(text) {
            Ok(id) => ids.push(id),
            // Such a session can be asked for by no one.
            Err(error) => tracing::warn!(%error, "passing over a session with an id that is none"),
        }
    }
    Ok(ids)
}

/// Returns the base of a fork that ends with an event, and whether it is known to be durable.
pub(crate) fn cut(
    conn: &Connection,
    id: &SessionId,
    last_seq: u64,
) -> Result<Option<(Base, bool)>, Fail> {
    let session = found(conn, id)?;
    let parts = parts(conn, &session)?;
    let part = parts
        .iter()
        .enumerate()
        .find(|(_, part)| part.first_seq <= last_seq && last_seq < part.until);
    let Some((ordinal, part)) = part else {
        return Ok(None);
    };
    let Some((_, end)) = crate::log::place(conn, part.segment, last_seq)? else {
        return Ok(None);
    };
    let acknowledged = conn
        .prepare_cached("SELECT acknowledged FROM sessions WHERE num = ?1")?
        .query_row([session.num], |row| row.get::<_, Option<i64>>(0))?;
    let base = Base {
        file: format!("base-{ordinal}.jsonl"),
        bytes: end - part.start,
        last_seq,
    };
    Ok(Some((
        base,
        acknowledged.is_some_and(|seq| unsigned(seq) >= last_seq),
    )))
}

/// Returns the names of all blobs that a session may mention, in logs from before a repair too.
pub(crate) fn blob_names(conn: &Connection, id: &SessionId) -> Result<HashSet<BlobId>, Fail> {
    let mut names = HashSet::new();
    let session = found(conn, id)?;
    let mut query =
        conn.prepare_cached("SELECT body FROM events WHERE segment = ?1 AND seq < ?2")?;
    for part in parts(conn, &session)? {
        names_in(&part.header, &mut names);
        let mut rows = query.query(params![part.segment, signed(part.until)])?;
        while let Some(row) = rows.next()? {
            names_in(text(row, 0)?, &mut names);
        }
    }
    let mut query = conn.prepare_cached("SELECT line FROM quarantine WHERE session = ?1")?;
    let mut rows = query.query([id.as_str()])?;
    while let Some(row) = rows.next()? {
        names_in(text(row, 0)?, &mut names);
    }
    Ok(names)
}
