//! Appends: a batch at a time, or the batches that wait for the thread all in one commit.

use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_store::WriteError;

use crate::{
    error::Fail,
    leases::now_ms,
    log::{first_of, insert, split},
    number::{length, signed, unsigned},
    queue::Hand,
    writer::{Claim, fenced},
};

/// A batch on its way into a log.
#[derive(Debug)]
pub(crate) struct Batch {
    /// What its writer shows.
    pub(crate) claim: Claim,
    /// Lines, each with its LF.
    pub(crate) bytes: Vec<u8>,
    /// Number of the last of them.
    pub(crate) last_seq: u64,
    /// Whether it is to be durable.
    pub(crate) sync: bool,
}

/// Stores batches of whichever sessions. Returns for each where it begins, or why it is not stored.
///
/// Many take one commit, whose sync costs as much as that of one. If anything but a fence comes in
/// the way, none of them is stored, and each is tried alone.
pub(crate) fn append_all(hand: &mut Hand, batches: &[Batch]) -> Vec<Result<u64, Fail>> {
    if batches.len() > 1 {
        let sync = batches.iter().any(|batch| batch.sync);
        let together = hand.transaction(sync, |conn, _| {
            let each = batches.iter().map(|batch| match append(conn, batch) {
                Err(Fail::Sql(error)) => Err(Fail::Sql(error)),
                // It is found before anything of the batch is written.
                stored => Ok(stored),
            });
            each.collect()
        });
        match together {
            Ok(stored) => return stored,
            Err(Fail::Commit(error)) => {
                let reason = error.to_string();
                let each = batches.iter().map(|batch| {
                    judge(hand, batch, &reason)?;
                    alone(hand, batch)
                });
                return each.collect();
            }
            Err(fail) => tracing::debug!(?fail, "batches are stored one by one"),
        }
    }
    batches.iter().map(|batch| alone(hand, batch)).collect()
}

fn alone(hand: &mut Hand, batch: &Batch) -> Result<u64, Fail> {
    let stored = hand.transaction(batch.sync, |conn, _| append(conn, batch));
    match stored {
        Err(Fail::Commit(error)) => {
            judge(hand, batch, &error.to_string())?;
            Err(Fail::Commit(error))
        }
        stored => stored,
    }
}

/// Stores a batch in the transaction of the caller, behind the compare-and-set that fences it.
fn append(conn: &Connection, batch: &Batch) -> Result<u64, Fail> {
    let lines = split(&batch.bytes)?;
    let first = first_of(lines.len(), batch.last_seq)?;
    if lines.is_empty() {
        return Err(Fail::Refused("the batch is empty".into()));
    }
    let moved = conn
        .prepare_cached(
            "UPDATE sessions
             SET next_seq = ?4, bytes = bytes + ?5, touched = ?6, listed = 0,
                 acknowledged = iif(?7, ?4 - 1, acknowledged)
             WHERE num = ?1 AND epoch = ?2 AND next_seq = ?3
             RETURNING segment, bytes",
        )?
        .query_row(
            params![
                batch.claim.num,
                batch.claim.epoch,
                signed(first),
                signed(batch.last_seq + 1),
                signed(length(&batch.bytes)),
                signed(now_ms()),
                batch.sync
            ],
            |row| Ok((row.get::<_, i64>(0)?, unsigned(row.get(1)?))),
        )
        .optional()?;
    let Some((segment, end)) = moved else {
        return Err(fenced(conn, batch.claim));
    };
    let start = end.saturating_sub(length(&batch.bytes));
    insert(conn, segment, first, start, &lines)?;
    Ok(start)
}

/// Looks up what has become of a batch whose commit failed. Fails unless it was rolled back.
fn judge(hand: &mut Hand, batch: &Batch, reason: &str) -> Result<(), Fail> {
    let seen = hand.look(|conn| {
        conn.query_row(
            "SELECT next_seq FROM sessions WHERE num = ?1 AND epoch = ?2",
            params![batch.claim.num, batch.claim.epoch],
            |row| Ok(unsigned(row.get(0)?)),
        )
        .optional()
    });
    let unknown = |found: &str| {
        let reason = format!("committing failed ({reason}), {found}");
        Err(Fail::Write(WriteError::UnknownOutcome { reason }))
    };
    match seen {
        Ok(Some(next)) if next <= batch.last_seq => Ok(()),
        Ok(Some(_)) => unknown("but the batch can be seen"),
        Ok(None) => unknown("and the session is somebody else's by now"),
        Err(_) => unknown("and so did looking it up"),
    }
}
