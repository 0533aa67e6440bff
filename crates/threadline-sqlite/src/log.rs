//! Logs as they lie in the tables: segments, and lines in them.

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, types::ToSqlOutput};
use threadline_session::SessionId;

use crate::{
    error::Fail,
    number::{length, signed, unsigned},
};

/// A session's row, as far as its log goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    pub(crate) num: i64,
    /// The segment that appends go to.
    pub(crate) segment: i64,
    pub(crate) next_seq: u64,
    pub(crate) bytes: u64,
}

pub(crate) fn session(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Session>> {
    let mut query =
        conn.prepare_cached("SELECT num, segment, next_seq, bytes FROM sessions WHERE id = ?1")?;
    query
        .query_row([id.as_str()], |row| {
            Ok(Session {
                num: row.get(0)?,
                segment: row.get(1)?,
                next_seq: unsigned(row.get(2)?),
                bytes: unsigned(row.get(3)?),
            })
        })
        .optional()
}

/// A segment as one session sees it.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) segment: i64,
    /// Its header line, without LF.
    pub(crate) header: Vec<u8>,
    /// Where the header line begins in the log.
    pub(crate) start: u64,
    pub(crate) first_seq: u64,
    /// The number behind its last event.
    pub(crate) until: u64,
}

impl Part {
    /// Where its events begin.
    pub(crate) fn body(&self) -> u64 {
        self.start + length(&self.header) + 1
    }
}

/// Returns the segments of a session, the oldest first.
pub(crate) fn parts(conn: &Connection, session: &Session) -> rusqlite::Result<Vec<Part>> {
    let mut query = conn.prepare_cached(
        "SELECT g.num, g.header, g.start, g.first_seq, p.last_seq
         FROM session_segments p JOIN segments g ON g.num = p.segment
         WHERE p.session = ?1 ORDER BY p.ordinal",
    )?;
    let rows = query.query_map([session.num], |row| {
        let last: Option<i64> = row.get(4)?;
        Ok(Part {
            segment: row.get(0)?,
            header: text(row, 1)?.to_vec(),
            start: unsigned(row.get(2)?),
            first_seq: unsigned(row.get(3)?),
            until: last.map_or(session.next_seq, |last| unsigned(last.saturating_add(1))),
        })
    })?;
    rows.collect()
}

/// Returns the bytes of a line, however they are kept.
pub(crate) fn text<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(row.get_ref(at)?.as_bytes()?)
}

/// A line without its LF on its way into a table: text wherever it is text.
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        std::str::from_utf8(self.0).map_or_else(|_| self.0.to_sql(), |text| Ok(text.into()))
    }
}

/// Splits whole lines, and takes their LF off.
pub(crate) fn split(lines: &[u8]) -> Result<Vec<&[u8]>, Fail> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let whole = lines.strip_suffix(b"\n");
    let whole = whole.ok_or_else(|| Fail::Refused("the last line has no end".into()))?;
    Ok(whole.split(|byte| *byte == b'\n').collect())
}

/// Takes the LF off a header line.
pub(crate) fn one_line(line: &[u8]) -> Result<&[u8], Fail> {
    match split(line)?.as_slice() {
        [line] => Ok(line),
        _ => Err(Fail::Refused("a header is one line".into())),
    }
}

/// Returns the number of the first of so many lines whose last is event `last_seq`.
pub(crate) fn first_of(lines: usize, last_seq: u64) -> Result<u64, Fail> {
    (last_seq.checked_add(1))
        .filter(|next| i64::try_from(*next).is_ok())
        .and_then(|next| next.checked_sub(lines as u64))
        .ok_or_else(|| Fail::Refused(format!("{lines} lines cannot end with event {last_seq}")))
}

/// Stores lines, the first of them as event `seq` at byte `at`. Returns where the next one goes.
pub(crate) fn insert(
    conn: &Connection,
    segment: i64,
    mut seq: u64,
    mut at: u64,
    lines: &[&[u8]],
) -> rusqlite::Result<u64> {
    let mut insert =
        conn.prepare_cached("INSERT INTO events (segment, seq, at, body) VALUES (?1, ?2, ?3, ?4)")?;
    for line in lines {
        insert.execute(params![segment, signed(seq), signed(at), Text(line)])?;
        seq += 1;
        at += length(line) + 1;
    }
    Ok(at)
}

/// Makes a segment. Returns its number.
pub(crate) fn open_segment(
    conn: &Connection,
    header: &[u8],
    start: u64,
    first_seq: u64,
    import: Option<i64>,
) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "INSERT INTO segments (header, start, first_seq, import) VALUES (?1, ?2, ?3, ?4)
         RETURNING num",
    )?
    .query_row(
        params![Text(header), signed(start), signed(first_seq), import],
        |row| row.get(0),
    )
}

/// Adds a segment to a session, up to an event or, with `None`, as its own.
pub(crate) fn add_part(
    conn: &Connection,
    session: i64,
    ordinal: usize,
    segment: i64,
    last_seq: Option<i64>,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO session_segments (session, ordinal, segment, last_seq)
         VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![session, ordinal as i64, segment, last_seq])
    .map(drop)
}

/// Returns where an event of a segment begins, and where the next one does.
pub(crate) fn place(
    conn: &Connection,
    segment: i64,
    seq: u64,
) -> rusqlite::Result<Option<(u64, u64)>> {
    let mut query =
        conn.prepare_cached("SELECT at, body FROM events WHERE segment = ?1 AND seq = ?2")?;
    query
        .query_row(params![segment, signed(seq)], |row| {
            let at = unsigned(row.get(0)?);
            Ok((at, at + length(text(row, 1)?) + 1))
        })
        .optional()
}
