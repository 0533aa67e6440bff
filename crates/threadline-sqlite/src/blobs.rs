//! Blobs, and what people set.

use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_session::SessionId;
use threadline_store::{BlobId, BlobStat, UserSummary};

use crate::{
    error::Fail,
    leases::now_ms,
    number::{length, signed, unsigned},
    queue::Hand,
};

/// Stores a blob, or notes that it was put again.
pub(crate) fn put(hand: &mut Hand, id: &BlobId, bytes: &[u8]) -> Result<(), Fail> {
    hand.transaction(true, |conn, _| {
        // Strictly later than before, so that who is about to delete it notices.
        let num: i64 = conn
            .prepare_cached(
                "INSERT INTO blobs (id, size, put_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET put_at = max(excluded.put_at, put_at + 1),
                                                size = excluded.size
                 RETURNING num",
            )?
            .query_row(
                params![id.as_str(), signed(length(bytes)), signed(now_ms())],
                |row| row.get(0),
            )?;
        let same = conn
            .prepare_cached("SELECT bytes = ?2 FROM blob_bytes WHERE blob = ?1")?
            .query_row(params![num, bytes], |row| row.get::<_, bool>(0))
            .optional()?;
        if same != Some(true) {
            conn.prepare_cached("INSERT OR REPLACE INTO blob_bytes (blob, bytes) VALUES (?1, ?2)")?
                .execute(params![num, bytes])?;
        }
        Ok(())
    })
}

pub(crate) fn get(conn: &Connection, id: &BlobId) -> Result<Option<Vec<u8>>, Fail> {
    let mut query = conn.prepare_cached(
        "SELECT d.bytes FROM blobs b JOIN blob_bytes d ON d.blob = b.num WHERE b.id = ?1",
    )?;
    Ok(query
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?)
}

pub(crate) fn all(conn: &Connection) -> Result<Vec<BlobStat>, Fail> {
    let mut query = conn.prepare_cached("SELECT id, size, put_at FROM blobs")?;
    let mut rows = query.query([])?;
    let mut stats = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        match BlobId::parse(&id) {
            Ok(id) => stats.push(BlobStat {
                id,
                bytes: unsigned(row.get(1)?),
                put_at: unsigned(row.get(2)?),
            }),
            Err(error) => tracing::warn!(%error, "passing over a blob with a name that is none"),
        }
    }
    Ok(stats)
}

/// Deletes a blob unless it was put again.
pub(crate) fn delete(hand: &mut Hand, stat: &BlobStat) -> Result<bool, Fail> {
    hand.erase(false, |conn| {
        let gone = conn.execute(
            "DELETE FROM blobs WHERE id = ?1 AND put_at = ?2",
            params![stat.id.as_str(), signed(stat.put_at)],
        )?;
        Ok(gone > 0)
    })
}

fn decode(json: Option<String>) -> Result<UserSummary, Fail> {
    let Some(json) = json else {
        return Ok(UserSummary::default());
    };
    serde_json::from_str(&json)
        .map_err(|error| Fail::Refused(format!("what people have set is garbled: {error}")))
}

/// Returns what people have set.
pub(crate) fn summary(conn: &Connection, id: &SessionId) -> Result<UserSummary, Fail> {
    let mut query = conn.prepare_cached("SELECT summary FROM sessions WHERE id = ?1")?;
    let json = query
        .query_row([id.as_str()], |row| row.get::<_, Option<String>>(0))
        .optional()?;
    decode(json.flatten())
}

/// Replaces what people have set, if its revision is the expected one.
pub(crate) fn put_summary(
    hand: &mut Hand,
    id: &SessionId,
    expected: u64,
    new: &UserSummary,
) -> Result<Result<(), UserSummary>, Fail> {
    let json = serde_json::to_string(new)
        .map_err(|error| Fail::Refused(format!("it cannot be encoded: {error}")))?;
    hand.transaction(true, |conn, _| {
        let changed = conn
            .prepare_cached(
                "UPDATE sessions SET summary = ?3, revision = ?4, people = people + 1, listed = 0
                 WHERE id = ?1 AND revision = ?2",
            )?
            .execute(params![
                id.as_str(),
                signed(expected),
                json,
                signed(new.revision)
            ])?;
        if changed > 0 {
            return Ok(Ok(()));
        }
        if crate::log::session(conn, id)?.is_none() {
            return Err(Fail::Refused(format!("there is no session {id}")));
        }
        Ok(Err(summary(conn, id)?))
    })
}
