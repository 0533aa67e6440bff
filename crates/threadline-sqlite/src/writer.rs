//! Claims and appends. Each is one transaction, and each append is fenced by the session's epoch.

use std::{cell::Cell, path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};
use threadline_session::{Header, SessionId};
use threadline_store::{BackendError, Begun, ClaimError, LogEnd, NewLog, WriteError, Writer};

use crate::{
    append::Batch,
    backend::Shared,
    checkpoints,
    error::Fail,
    leases::{self, Lease, now_ms},
    log::{add_part, first_of, insert, one_line, open_segment, parts, place, session, split},
    number::{length, signed, unsigned},
    queue::Hand,
};

/// A session and the claim on it: what an append must show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) num: i64,
    pub(crate) epoch: i64,
}

/// Stores a new session, claimed.
pub(crate) fn create(
    hand: &mut Hand,
    id: &SessionId,
    new: &NewLog,
    lease: i64,
) -> Result<Claim, Fail> {
    hand.transaction(true, |conn, holder| {
        if session(conn, id)?.is_some() {
            return Err(ClaimError::AlreadyExists.into());
        }
        let header = one_line(&new.header_line)?;
        let lines = split(&new.batch)?;
        let base = Header::decode(header)
            .ok()
            .and_then(|(header, _)| header.base);
        let shared = match (base, &new.parent) {
            (Some(base), Some(parent)) => shared(conn, parent, base.last_seq)?,
            _ => Prefix::default(),
        };
        if let (false, Some(last)) = (lines.is_empty(), new.last_seq) {
            let first = first_of(lines.len(), last)?;
            if first != shared.next_seq {
                return Err(Fail::Refused(format!(
                    "the first event of the log is {first}, not {}",
                    shared.next_seq
                )));
            }
        }
        let segment = open_segment(conn, header, shared.bytes, shared.next_seq, None)?;
        let body = shared.bytes + length(header) + 1;
        let bytes = insert(conn, segment, shared.next_seq, body, &lines)?;
        let next_seq = shared.next_seq + lines.len() as u64;
        let holder = registered(conn, holder)?;
        let num: i64 = conn
            .prepare_cached(
                "INSERT INTO sessions
                     (id, segment, epoch, next_seq, bytes, acknowledged, holder, lease, since,
                      touched)
                 VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?8) RETURNING num",
            )?
            .query_row(
                params![
                    id.as_str(),
                    segment,
                    signed(next_seq),
                    signed(bytes),
                    next_seq.checked_sub(1).map(signed),
                    holder,
                    lease,
                    signed(now_ms())
                ],
                |row| row.get(0),
            )?;
        for (ordinal, (segment, last)) in shared.parts.iter().enumerate() {
            add_part(conn, num, ordinal, *segment, Some(*last))?;
        }
        add_part(conn, num, shared.parts.len(), segment, None)?;
        if let Some(parent) = shared.session {
            checkpoints::share(conn, parent, num, shared.next_seq)?;
        }
        Ok(Claim { num, epoch: 1 })
    })
}

/// The prefix that a fork shares with its parent.
#[derive(Debug, Default)]
struct Prefix {
    session: Option<i64>,
    /// Segments, each with the last event that belongs to it.
    parts: Vec<(i64, i64)>,
    next_seq: u64,
    bytes: u64,
}

fn shared(conn: &Connection, parent: &SessionId, last_seq: u64) -> Result<Prefix, Fail> {
    let session = session(conn, parent)?.ok_or(ClaimError::NotFound)?;
    let mut prefix = Prefix {
        session: Some(session.num),
        ..Prefix::default()
    };
    let lacking = || Fail::Refused(format!("session {parent} has no event {last_seq}"));
    for part in parts(conn, &session)? {
        // Headers behind the event are not part of the prefix.
        if part.first_seq > last_seq {
            break;
        }
        // Of an empty segment the event before it.
        let last = signed(part.until.min(last_seq + 1)) - 1;
        prefix.parts.push((part.segment, last));
        if part.until > last_seq {
            let (_, end) = place(conn, part.segment, last_seq)?.ok_or_else(lacking)?;
            prefix.bytes = end;
            prefix.next_seq = last_seq + 1;
            return Ok(prefix);
        }
    }
    Err(lacking())
}

/// Notes that this process's backend may hold sessions. Returns its row.
pub(crate) fn registered(conn: &Connection, holder: &Cell<Option<i64>>) -> rusqlite::Result<i64> {
    let num = leases::register(conn, holder.get())?;
    holder.set(Some(num));
    Ok(num)
}

/// Claims a session; with `by_force` also from somebody who lives.
pub(crate) fn claim(
    hand: &mut Hand,
    id: &SessionId,
    lease: i64,
    by_force: bool,
) -> Result<Claim, Fail> {
    // A claim that is lost with the machine loses nothing: who made it is lost too.
    hand.transaction(false, |conn, holder| {
        claim_within(conn, holder, id, lease, by_force)
    })
}

/// As [`claim`], in the transaction of the caller.
pub(crate) fn claim_within(
    conn: &Connection,
    holder: &Cell<Option<i64>>,
    id: &SessionId,
    lease: i64,
    by_force: bool,
) -> Result<Claim, Fail> {
    let session = session(conn, id)?.ok_or(ClaimError::NotFound)?;
    let held = leases::of_session(conn, session.num)?;
    if let Some(held) = held.filter(|held| !by_force && held.is_alive()) {
        let holder = held.holder();
        return Err(ClaimError::Locked { holder }.into());
    }
    let holder = registered(conn, holder)?;
    let epoch = conn
        .prepare_cached(
            "UPDATE sessions SET epoch = epoch + 1, holder = ?2, lease = ?3, since = ?4
             WHERE num = ?1 RETURNING epoch",
        )?
        .query_row(
            params![session.num, holder, lease, signed(now_ms())],
            |row| row.get(0),
        )?;
    Ok(Claim {
        num: session.num,
        epoch,
    })
}

/// Says who has taken over a session.
pub(crate) fn fenced(conn: &Connection, claim: Claim) -> Fail {
    let seen = conn
        .prepare_cached("SELECT epoch, next_seq FROM sessions WHERE num = ?1")
        .and_then(|mut query| {
            query
                .query_row([claim.num], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
                })
                .optional()
        });
    let by = match seen {
        Err(error) => return error.into(),
        Ok(None) => "whoever deleted the session".to_owned(),
        Ok(Some((epoch, next))) if epoch == claim.epoch => {
            format!("somebody who does not keep to the rules: the log goes on at event {next}")
        }
        Ok(Some(_)) => match leases::of_session(conn, claim.num) {
            Err(error) => return error.into(),
            Ok(Some(held)) => held.holder().to_string(),
            Ok(None) => "somebody who has finished since".to_owned(),
        },
    };
    Fail::Write(WriteError::Fenced { by })
}

/// Brings everything of a session to stable storage.
fn sync(hand: &mut Hand, claim: Claim) -> Result<(), Fail> {
    hand.transaction(true, |conn, _| {
        let changed = conn
            .prepare_cached(
                "UPDATE sessions SET acknowledged = nullif(next_seq - 1, -1)
                 WHERE num = ?1 AND epoch = ?2",
            )?
            .execute(params![claim.num, claim.epoch])?;
        if changed == 0 {
            return Err(fenced(conn, claim));
        }
        Ok(())
    })
}

/// Makes everything of a session durable that was committed so far, whoever writes it.
pub(crate) fn settle(hand: &mut Hand, id: &SessionId) -> Result<(), Fail> {
    hand.transaction(true, |conn, _| {
        conn.prepare_cached(
            "UPDATE sessions SET acknowledged = nullif(next_seq - 1, -1) WHERE id = ?1",
        )?
        .execute([id.as_str()])?;
        Ok(())
    })
}

/// Checks that the log which the writer is about to continue is the one that was read.
fn begin(hand: &mut Hand, claim: Claim, next: u64) -> Result<(), Fail> {
    let seen = hand.look(|conn| {
        conn.query_row(
            "SELECT next_seq FROM sessions WHERE num = ?1 AND epoch = ?2",
            params![claim.num, claim.epoch],
            |row| Ok(unsigned(row.get(0)?)),
        )
        .optional()
    })?;
    match seen {
        Some(found) if found == next => Ok(()),
        Some(found) => Err(Fail::Write(WriteError::Poisoned {
            reason: format!("it goes on at event {found}, but was read up to before event {next}"),
        })),
        None => Err(hand.look(|conn| Ok(fenced(conn, claim)))?),
    }
}

/// Lets go of a session. What was open in it is now interrupted, so its row is looked at again.
pub(crate) fn release(hand: &mut Hand, claim: Claim) -> Result<(), Fail> {
    hand.transaction(false, |conn, _| {
        conn.prepare_cached(
            "UPDATE sessions SET holder = NULL, listed = 0 WHERE num = ?1 AND epoch = ?2",
        )?
        .execute(params![claim.num, claim.epoch])?;
        Ok(())
    })
}

/// The writer of a session.
pub(crate) struct SqliteWriter {
    shared: Arc<Shared>,
    claim: Claim,
    id: SessionId,
    _lease: Lease,
}

impl SqliteWriter {
    pub(crate) fn new(shared: Arc<Shared>, id: &SessionId, claim: Claim, lease: Lease) -> Self {
        Self {
            shared,
            claim,
            id: id.clone(),
            _lease: lease,
        }
    }

    fn path(&self) -> &Path {
        self.shared.path()
    }

    async fn run<R: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Hand, Claim) -> Result<R, Fail> + Send + 'static,
    ) -> Result<R, WriteError> {
        let claim = self.claim;
        let done = self.shared.queue.run(move |hand| work(hand, claim)).await;
        done.map_err(|fail| fail.into_write(self.path(), &format!("{what} {}", self.id)))
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        let (claim, id) = (self.claim, self.id.clone());
        self.shared.queue.post(move |hand| {
            if let Err(fail) = release(hand, claim) {
                // The lease is dead all the same.
                tracing::warn!(%id, ?fail, "could not note that a session is free");
            }
        });
    }
}

#[async_trait]
impl Writer for SqliteWriter {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        let next = end.next.seq;
        self.run("continuing", move |hand, claim| begin(hand, claim, next))
            .await?;
        Ok(Begun::default())
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        let batch = Batch {
            claim: self.claim,
            bytes: batch,
            last_seq,
            sync,
        };
        let stored = self.shared.queue.append(batch).await;
        stored.map_err(|fail| fail.into_write(self.path(), &format!("appending to {}", self.id)))
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        self.run("syncing", sync).await
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        let (claim, state) = (self.claim, state.to_vec());
        let work = move |hand: &mut Hand| checkpoints::put(hand, claim.num, claim.epoch, &state);
        let done = self.shared.queue.run(work).await;
        done.map_err(|fail| {
            fail.into_backend(self.path(), format!("keeping a checkpoint of {}", self.id))
        })
    }
}
