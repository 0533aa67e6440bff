//! Deleting sessions.

use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_session::SessionId;
use threadline_store::ClaimError;

use crate::{catalogue, error::Fail, leases, log::session, queue::Hand};

/// Deletes a session that nobody writes. Its bytes are overwritten, but for those that forks share.
pub(crate) fn delete(hand: &mut Hand, id: &SessionId) -> Result<(), Fail> {
    hand.erase(true, |conn| {
        let session = session(conn, id)?.ok_or(ClaimError::NotFound)?;
        let held = leases::of_session(conn, session.num)?;
        if let Some(held) = held.filter(leases::Held::is_alive) {
            let holder = held.holder();
            return Err(ClaimError::Locked { holder }.into());
        }
        let segments = conn
            .prepare(
                "SELECT segment FROM session_segments WHERE session = ?1
                 UNION SELECT segment FROM kept_segments WHERE session = ?1",
            )?
            .query_map([session.num], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        for sql in [
            "DELETE FROM checkpoints WHERE session = ?1",
            "DELETE FROM session_segments WHERE session = ?1",
            "DELETE FROM kept_segments WHERE session = ?1",
            "DELETE FROM kept_logs WHERE session = ?1",
        ] {
            conn.execute(sql, [session.num])?;
        }
        threadline_catalogue::forget(conn, id).map_err(catalogue::rows_failed)?;
        conn.execute("DELETE FROM sessions WHERE num = ?1", [session.num])?;
        for segment in segments {
            shrink(conn, segment)?;
        }
        Ok(())
    })
}

/// Removes those events of a segment that no session names.
fn shrink(conn: &Connection, segment: i64) -> rusqlite::Result<()> {
    // The session whose own segment it is, or was before a repair, names all of it.
    let named: Option<Option<i64>> = conn
        .query_row(
            "SELECT iif(count(last_seq) = count(*), max(last_seq), NULL)
             FROM (SELECT last_seq FROM session_segments WHERE segment = ?1
                   UNION ALL SELECT last_seq FROM kept_segments WHERE segment = ?1)
             HAVING count(*) > 0",
            [segment],
            |row| row.get(0),
        )
        .optional()?;
    match named {
        Some(None) => Ok(()),
        Some(Some(last)) => conn
            .execute(
                "DELETE FROM events WHERE segment = ?1 AND seq > ?2",
                params![segment, last],
            )
            .map(drop),
        None => drop_segment(conn, segment),
    }
}

pub(crate) fn drop_segment(conn: &Connection, segment: i64) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM events WHERE segment = ?1", [segment])?;
    conn.execute("DELETE FROM segments WHERE num = ?1", [segment])
        .map(drop)
}
