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
    let Some((segment, start)) = move_head(conn, batch, first)? else {
        return Err(fenced(conn, batch.claim));
    };
    insert(conn, segment, first, start, &lines)?;
    Ok(start)
}

/// Compares and sets the row of a session that appends from event `first` on. Returns its segment
/// and where the batch begins.
///
/// Nobody else writes before the transaction ends, so what is looked up here stays true. Two
/// statements are cheaper than one with RETURNING, for which SQLite makes a table in memory.
fn move_head(conn: &Connection, batch: &Batch, first: u64) -> rusqlite::Result<Option<(i64, u64)>> {
    let Claim { num, epoch } = batch.claim;
    let found = conn
        .prepare_cached(
            "SELECT segment, bytes, listed FROM sessions
             WHERE num = ?1 AND epoch = ?2 AND next_seq = ?3",
        )?
        .query_row(params![num, epoch, signed(first)], |row| {
            Ok((row.get(0)?, unsigned(row.get(1)?), row.get(2)?))
        })
        .optional()?;
    let Some((segment, start, is_listed)) = found else {
        return Ok(None);
    };
    // A statement that sets `listed` rewrites the index of suspects, even with the same value. A
    // session that is being written mostly is a suspect already.
    let sql = if is_listed { MOVE_LISTED } else { MOVE };
    conn.prepare_cached(sql)?.execute(params![
        num,
        signed(batch.last_seq + 1),
        signed(start + length(&batch.bytes)),
        signed(now_ms()),
        batch.sync
    ])?;
    Ok(Some((segment, start)))
}

macro_rules! move_head {
    ($more:literal) => {
        concat!(
            "UPDATE sessions
             SET next_seq = ?2, bytes = ?3, touched = ?4,
                 acknowledged = iif(?5, ?2 - 1, acknowledged)",
            $more,
            " WHERE num = ?1"
        )
    };
}
const MOVE: &str = move_head!("");
const MOVE_LISTED: &str = move_head!(", listed = 0");

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
