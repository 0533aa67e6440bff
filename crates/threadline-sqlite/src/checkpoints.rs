//! States kept beside the logs.

use rusqlite::{Connection, params};
use threadline_session::{SessionId, codec::crc32c};
use threadline_store::{Checkpoint, ReadPos};

use crate::{
    error::Fail,
    log::text,
    number::{signed, unsigned},
    queue::Hand,
};

/// Keeps a state of everything appended so far, if the writer is still the one. It is a cache, so
/// it is not synced.
pub(crate) fn put(hand: &mut Hand, session: i64, epoch: i64, state: &[u8]) -> Result<(), Fail> {
    hand.transaction(false, |conn, _| {
        let kept = conn
            .prepare_cached(
                "INSERT OR REPLACE INTO checkpoints (session, seq, hint, crc, state)
                 SELECT num, next_seq, bytes, ?3, ?4 FROM sessions WHERE num = ?1 AND epoch = ?2",
            )?
            .execute(params![session, epoch, crc32c(state), state])?;
        if kept > 0 {
            thin(conn, session)?;
        }
        Ok(())
    })
}

/// Keeps the newest checkpoint and, further and further back, few older ones: of all that lie
/// between 2ⁿ and 2ⁿ⁺¹ events behind the newest, the oldest.
fn thin(conn: &Connection, session: i64) -> rusqlite::Result<()> {
    let mut query =
        conn.prepare_cached("SELECT seq FROM checkpoints WHERE session = ?1 ORDER BY seq")?;
    let seqs = query.query_map([session], |row| Ok(unsigned(row.get(0)?)))?;
    let seqs: Vec<u64> = seqs.collect::<rusqlite::Result<_>>()?;
    let mut delete =
        conn.prepare_cached("DELETE FROM checkpoints WHERE session = ?1 AND seq = ?2")?;
    for seq in superfluous(&seqs) {
        delete.execute(params![session, signed(seq)])?;
    }
    Ok(())
}

/// Returns which of some positions, in rising order, need not be kept.
fn superfluous(seqs: &[u64]) -> Vec<u64> {
    let Some(newest) = seqs.last() else {
        return Vec::new();
    };
    let mut kept_of = None;
    let mut out = Vec::new();
    for seq in seqs {
        let distance = (newest - seq).checked_ilog2();
        if distance.is_some() && distance == kept_of {
            out.push(*seq);
        }
        kept_of = distance;
    }
    out
}

/// Gives a fork the newest of its parent's checkpoints that lies in the prefix they share: the
/// state there is the same, and so are all places.
pub(crate) fn share(
    conn: &Connection,
    parent: i64,
    fork: i64,
    next_seq: u64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO checkpoints (session, seq, hint, crc, state)
         SELECT ?2, seq, hint, crc, state FROM checkpoints
         WHERE session = ?1 AND seq <= ?3 ORDER BY seq DESC LIMIT 1",
    )?
    .execute(params![parent, fork, signed(next_seq)])
    .map(drop)
}

/// Returns the newest intact checkpoint at or before an event.
pub(crate) fn newest(
    conn: &Connection,
    id: &SessionId,
    limit: u64,
) -> Result<Option<Checkpoint>, Fail> {
    let mut query = conn.prepare_cached(
        "SELECT c.seq, c.hint, c.crc, c.state
         FROM sessions s JOIN checkpoints c ON c.session = s.num
         WHERE s.id = ?1 AND c.seq <= min(?2, s.next_seq) ORDER BY c.seq DESC",
    )?;
    let mut rows = query.query(params![id.as_str(), signed(limit)])?;
    while let Some(row) = rows.next()? {
        let state = text(row, 3)?;
        if row.get::<_, i64>(2)? == i64::from(crc32c(state)) {
            return Ok(Some(Checkpoint {
                next: ReadPos {
                    seq: unsigned(row.get(0)?),
                    hint: Some(unsigned(row.get(1)?)),
                },
                state: state.to_vec(),
            }));
        }
        tracing::warn!(%id, "passing over a garbled checkpoint");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_checkpoints_grow_sparse_and_reach_back_to_the_first() {
        let mut kept = Vec::new();
        for seq in (1..=10_000).map(|n| n * 7) {
            kept.push(seq);
            let out = superfluous(&kept);
            kept.retain(|seq| !out.contains(seq));
            assert_eq!(kept.first(), Some(&7));
            assert_eq!(kept.last(), Some(&seq));
            assert!(kept.len() <= 18, "{kept:?}");
            // From any point, the next checkpoint before it is not far in relation to its age.
            for pair in kept.windows(2) {
                assert!(pair[1] - pair[0] <= 2 * (seq - pair[0]).max(7), "{kept:?}");
            }
        }
    }
}
