//! Reading logs.

use std::collections::{HashMap, HashSet};

use threadline_session::{Base, Header, Place, SessionId, codec::crc32c};
use threadline_store::{
    BlobId, Checkpoint, Damage, Entry, HeaderReadError, Page, ReadPos, Stamp, Stat, StoredHeader,
    Usage, blob::names_in,
};

use crate::{
    db::{Db, count, int},
    error::Trouble,
    lease::holder_now,
    lines::{Kept, table},
};

const SEGMENTS: &str = "\
    SELECT g.segment, g.first_seq, coalesce(g.last_seq, h.next_seq - 1), g.start_at, s.header_line \
    FROM sessions h JOIN session_segments g ON g.session = h.id JOIN segments s ON s.id = g.segment \
    WHERE h.id = $1 ORDER BY g.ordinal";

/// The inner limit bounds what is looked at, the outer condition what is sent.
const CHUNK: &str = "\
    SELECT seq, at, body FROM (\
        SELECT seq, at, body FROM events \
        WHERE segment_id = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT $5\
    ) ahead WHERE at < $4 + (\
        SELECT at FROM events \
        WHERE segment_id = $1 AND seq >= $2 AND seq <= $3 ORDER BY seq LIMIT 1\
    ) ORDER BY seq";

const LINES: &str = "\
    SELECT e.seq, e.at, e.body FROM session_segments g \
    JOIN events e ON e.segment_id = g.segment AND e.seq = ANY($2) \
    WHERE g.session = $1 AND e.seq >= g.first_seq AND (g.last_seq IS NULL OR e.seq <= g.last_seq)";

const STAT: &str = "\
    SELECT next_at, segment, people, holder, coalesce(lease_until > now(), false), acknowledged, \
    epoch FROM sessions WHERE id = $1";

const OWN_HEADER: &str = "\
    SELECT s.header_line FROM sessions h JOIN segments s ON s.id = h.segment WHERE h.id = $1";

/// The segments of the logs that a session had before it was repaired.
const KEPT: &str = "\
    SELECT k.segment, k.first_seq, coalesce(k.last_seq, 9223372036854775806), k.start_at, \
        s.header_line \
    FROM kept_segments k JOIN segments s ON s.id = k.segment WHERE k.session = $1";

const USAGE: &str = "\
    SELECT h.next_at, g.start_at, \
        (SELECT coalesce(sum(octet_length(c.state)), 0)::bigint FROM checkpoints c \
            WHERE c.session = h.id), \
        (SELECT coalesce(sum(k.bytes), 0)::bigint FROM kept_logs k WHERE k.session = h.id) \
    FROM sessions h JOIN session_segments g ON g.session = h.id AND g.segment = h.segment \
    WHERE h.id = $1";

const CHECKPOINT: &str = "\
    SELECT seq, hint, crc, state FROM checkpoints WHERE session = $1 AND seq <= $2 \
    ORDER BY seq DESC LIMIT 8";

/// A segment of a session, and how much of it belongs to the session.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: i64,
    pub(crate) first_seq: u64,
    /// The event behind its last one.
    pub(crate) next_seq: u64,
    pub(crate) start_at: u64,
    pub(crate) header_line: String,
}

impl Segment {
    fn is_empty(&self) -> bool {
        self.next_seq <= self.first_seq
    }

    fn header_end(&self) -> u64 {
        self.start_at + self.header_line.len() as u64 + 1
    }

    fn header_bytes(&self) -> Vec<u8> {
        format!("{}\n", self.header_line).into_bytes()
    }
}

/// Returns the segments of a session; none when there is no such session.
pub(crate) async fn segments(db: &Db, id: &SessionId) -> Result<Vec<Segment>, Trouble> {
    segments_by(db, SEGMENTS, id).await
}

async fn segments_by(db: &Db, sql: &str, id: &SessionId) -> Result<Vec<Segment>, Trouble> {
    let rows = db.query(sql, &[&id.as_str()]).await?;
    let read = |row: &tokio_postgres::Row| {
        let last: i64 = row.try_get(2)?;
        Ok(Segment {
            id: row.try_get(0)?,
            first_seq: count(row.try_get(1)?),
            next_seq: count(last.saturating_add(1)),
            start_at: count(row.try_get(3)?),
            header_line: row.try_get(4)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Reads some lines of a segment: at least one if there is any.
async fn chunk(
    db: &Db,
    segment: &Segment,
    from: u64,
    max_bytes: u64,
) -> Result<Vec<Kept>, Trouble> {
    let last = int(segment.next_seq) - 1;
    let bytes = int(max_bytes.max(1));
    let rows = bytes / 512 + 64;
    let rows = db
        .query(CHUNK, &[&segment.id, &int(from), &last, &bytes, &rows])
        .await?;
    rows.iter().map(Kept::read).collect()
}

/// A page in the making.
struct Pages<'a> {
    id: &'a SessionId,
    page: Page,
    bytes: u64,
    max_bytes: u64,
}

impl Pages<'_> {
    /// Adds the events of a segment. Returns whether its end was reached.
    async fn events(&mut self, db: &Db, segment: &Segment, from: u64) -> Result<bool, Trouble> {
        let mut expected = from.max(segment.first_seq);
        while expected < segment.next_seq {
            let left = self.max_bytes.saturating_sub(self.bytes);
            let some = chunk(db, segment, expected, left).await?;
            if some.is_empty() {
                let at = self.page.next.hint.unwrap_or_default();
                self.hole(expected, segment.next_seq, at, at);
                break;
            }
            for kept in some {
                if kept.seq > expected {
                    let at = self.page.next.hint.unwrap_or(kept.at);
                    self.hole(expected, kept.seq, at, kept.at);
                }
                self.bytes += kept.len();
                expected = kept.seq + 1;
                self.page.next = ReadPos {
                    seq: expected,
                    hint: Some(kept.end()),
                };
                self.page.entries.push(kept.entry(self.id));
            }
            if self.bytes >= self.max_bytes {
                break;
            }
        }
        Ok(expected >= segment.next_seq)
    }

    fn hole(&mut self, first: u64, next: u64, from: u64, to: u64) {
        self.page.next.seq = next;
        self.page.entries.push(Entry::Damage(Damage {
            file: table(self.id),
            offset: from,
            bytes: to.saturating_sub(from),
            seq: first,
            reason: if next - first == 1 {
                "the event is missing".into()
            } else {
                format!("events {first} to {} are missing", next - 1)
            },
        }));
    }
}

/// Reads a page; `None` when there is no such session.
pub(crate) async fn page(
    db: &Db,
    id: &SessionId,
    from: ReadPos,
    max_bytes: usize,
) -> Result<Option<Page>, Trouble> {
    let segments = segments(db, id).await?;
    if segments.is_empty() {
        return Ok(None);
    }
    let mut pages = Pages {
        id,
        page: Page {
            next: from,
            ..Page::default()
        },
        bytes: 0,
        max_bytes: max_bytes as u64,
    };
    for (at, segment) in segments.iter().enumerate() {
        let behind = segments.get(at..).unwrap_or_default();
        let wanted = match from.hint {
            Some(hint) => segment.start_at >= hint,
            None => from.seq <= segment.first_seq || behind.iter().all(Segment::is_empty),
        };
        if wanted {
            let line = segment.header_bytes();
            pages.bytes += line.len() as u64;
            pages.page.entries.push(Entry::Header(line));
            pages.page.next.hint = Some(segment.header_end());
        }
        let all = pages.events(db, segment, from.seq).await?;
        let last = at + 1 == segments.len();
        if !all || (pages.bytes >= pages.max_bytes && !last && pages.page.next.seq > from.seq) {
            return Ok(Some(pages.page));
        }
    }
    pages.page.end = true;
    Ok(Some(pages.page))
}

/// Reads single lines; `None` when there is no such session.
pub(crate) async fn lines(
    db: &Db,
    id: &SessionId,
    wanted: &[(u64, Place)],
) -> Result<Option<Vec<Result<Vec<u8>, Damage>>>, Trouble> {
    let seqs: Vec<i64> = wanted.iter().map(|(seq, _)| int(*seq)).collect();
    let rows = db.query(LINES, &[&id.as_str(), &seqs]).await?;
    if rows.is_empty() && stat(db, id).await?.is_none() {
        return Ok(None);
    }
    let mut found = HashMap::new();
    for row in &rows {
        let kept = Kept::read(row)?;
        found.insert(kept.seq, kept);
    }
    let checked = wanted.iter().map(|(seq, place)| {
        let kept = found.get(seq).filter(|kept| kept.at == place.at);
        kept.map_or_else(
            || {
                Err(Damage {
                    file: table(id),
                    offset: place.at,
                    bytes: u64::from(place.len),
                    seq: *seq,
                    reason: "the event is not where it was".into(),
                })
            },
            |kept| kept.checked(id),
        )
    });
    Ok(Some(checked.collect()))
}

pub(crate) async fn stat(db: &Db, id: &SessionId) -> Result<Option<Stat>, Trouble> {
    let Some(row) = db.row(STAT, &[&id.as_str()]).await? else {
        return Ok(None);
    };
    // The segment tells a session from one that had its id before.
    let (next_at, segment) = (count(row.try_get(0)?), count(row.try_get(1)?));
    let acknowledged: Option<i64> = row.try_get(5)?;
    Ok(Some(Stat {
        bytes: next_at,
        stamp: Stamp(next_at, segment),
        people: Stamp(count(row.try_get(2)?), segment),
        writer: holder_now(row.try_get(3)?, row.try_get(4)?),
        acknowledged: acknowledged.map(count),
        epoch: Some(count(row.try_get(6)?)),
    }))
}

/// Returns the bytes that a session takes up; none when there is no such session.
pub(crate) async fn usage(db: &Db, id: &SessionId) -> Result<Usage, Trouble> {
    let Some(row) = db.row(USAGE, &[&id.as_str()]).await? else {
        return Ok(Usage::default());
    };
    let (bytes, shared) = (count(row.try_get(0)?), count(row.try_get(1)?));
    Ok(Usage {
        log: bytes.saturating_sub(shared),
        shared,
        index: count(row.try_get(2)?),
        quarantine: count(row.try_get(3)?),
        other: 0,
    })
}

pub(crate) async fn header(
    db: &Db,
    id: &SessionId,
) -> Result<Option<Result<StoredHeader, HeaderReadError>>, Trouble> {
    let Some(row) = db.row(OWN_HEADER, &[&id.as_str()]).await? else {
        return Ok(None);
    };
    let line: String = row.try_get(0)?;
    let decoded = Header::decode(line.as_bytes());
    Ok(Some(
        decoded
            .map(|(header, verified)| StoredHeader {
                header,
                line: format!("{line}\n").into_bytes(),
                verified,
            })
            .map_err(|source| HeaderReadError::Header {
                file: format!("the table segments, session {id},"),
                source,
            }),
    ))
}

pub(crate) async fn checkpoint(
    db: &Db,
    id: &SessionId,
    limit: u64,
) -> Result<Option<Checkpoint>, Trouble> {
    for row in db.query(CHECKPOINT, &[&id.as_str(), &int(limit)]).await? {
        let (crc, state): (i64, Vec<u8>) = (row.try_get(2)?, row.try_get(3)?);
        if i64::from(crc32c(&state)) == crc {
            return Ok(Some(Checkpoint {
                next: ReadPos {
                    seq: count(row.try_get(0)?),
                    hint: Some(count(row.try_get(1)?)),
                },
                state,
            }));
        }
    }
    Ok(None)
}

/// What a fork that ends with an event is based on; `None` when there is no such session.
pub(crate) async fn cut(
    db: &Db,
    id: &SessionId,
    last_seq: u64,
) -> Result<Option<Option<Base>>, Trouble> {
    let segments = segments(db, id).await?;
    if segments.is_empty() {
        return Ok(None);
    }
    let mut numbered = segments.iter().enumerate();
    let holds = |segment: &Segment| segment.first_seq <= last_seq && last_seq < segment.next_seq;
    let Some((ordinal, segment)) = numbered.find(|(_, segment)| holds(segment)) else {
        return Ok(Some(None));
    };
    let Some(end) = line_end(db, segment.id, last_seq).await? else {
        return Ok(Some(None));
    };
    // The commit brings what came before it to stable storage too.
    db.query(
        "UPDATE sessions SET acknowledged = $2 WHERE id = $1 AND coalesce(acknowledged, -1) < $2",
        &[&id.as_str(), &int(last_seq)],
    )
    .await?;
    Ok(Some(Some(Base {
        file: format!("base-{ordinal}.jsonl"),
        bytes: end.saturating_sub(segment.start_at),
        last_seq,
    })))
}

/// Returns where the line after an event begins.
async fn line_end(db: &Db, segment: i64, seq: u64) -> Result<Option<u64>, Trouble> {
    let row = db.row(LINE_END, &[&segment, &int(seq)]).await?;
    row.map(|row| Ok(count(row.try_get(0)?))).transpose()
}

/// Where the line after an event begins.
pub(crate) const LINE_END: &str =
    "SELECT at + octet_length(body) + 1 FROM events WHERE segment_id = $1 AND seq = $2";

/// Adds the names of blobs that a log mentions, or one from before a repair. Returns whether there is such a session.
pub(crate) async fn blob_names(
    db: &Db,
    id: &SessionId,
    found: &mut HashSet<BlobId>,
) -> Result<bool, Trouble> {
    const AT_ONCE: u64 = 1 << 20;
    let segments = segments(db, id).await?;
    let kept = segments_by(db, KEPT, id).await?;
    for segment in segments.iter().chain(&kept) {
        names_in(segment.header_line.as_bytes(), found);
        let mut next = segment.first_seq;
        loop {
            let some = chunk(db, segment, next, AT_ONCE).await?;
            let Some(last) = some.last() else { break };
            next = last.seq + 1;
            some.iter()
                .for_each(|kept| names_in(kept.body.as_bytes(), found));
        }
    }
    Ok(!segments.is_empty())
}
