//! Bringing in sessions from elsewhere, and repaired logs in the place of damaged ones.
//!
//! The lines go into segments that no session names, so nobody sees them before the end. Segments
//! of an import whose process is gone are removed when the database is opened next.

use std::{cell::Cell, path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::{Connection, params};
use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError, Import};

use crate::{
    backend::Shared,
    delete::drop_segment,
    error::Fail,
    leases::{self, Held, Lease, now_ms},
    log::{add_part, first_of, insert, one_line, open_segment, session, split},
    number::{length, signed, unsigned},
    queue::Hand,
    writer::{Claim, claim_within, registered, release},
};

/// How far an import has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// Segments that are complete, each with its last event; of an empty one the event before.
    parts: Vec<(i64, i64)>,
    /// The segment that lines go to.
    open: Option<i64>,
    next_seq: u64,
    bytes: u64,
}

/// A session on its way in.
pub(crate) struct SqliteImport {
    shared: Arc<Shared>,
    id: SessionId,
    num: i64,
    progress: Progress,
    /// The claim on the session whose log is replaced; none for one that comes from elsewhere.
    claim: Option<Claim>,
    finished: bool,
    _lease: Lease,
}

/// Begins an import of a session that is not there yet. Returns its number.
fn begin(hand: &mut Hand, id: &SessionId, lease: i64) -> Result<i64, Fail> {
    hand.transaction(false, |conn, holder| {
        if session(conn, id)?.is_some() {
            return Err(ClaimError::AlreadyExists.into());
        }
        open_import(conn, holder, lease)
    })
}

/// Begins to replace the log of a session, which is claimed from here on.
fn begin_replacing(hand: &mut Hand, id: &SessionId, lease: i64) -> Result<(i64, Claim), Fail> {
    hand.transaction(false, |conn, holder| {
        let claim = claim_within(conn, holder, id, lease, false)?;
        Ok((open_import(conn, holder, lease)?, claim))
    })
}

fn open_import(conn: &Connection, holder: &Cell<Option<i64>>, lease: i64) -> Result<i64, Fail> {
    let holder = registered(conn, holder)?;
    let import = conn.query_row(
        "INSERT INTO imports (holder, lease) VALUES (?1, ?2) RETURNING num",
        params![holder, lease],
        |row| row.get(0),
    )?;
    Ok(import)
}

fn gone() -> Fail {
    Fail::Refused("what was brought in so far is gone".into())
}

fn header(
    hand: &mut Hand,
    num: i64,
    mut progress: Progress,
    line: &[u8],
) -> Result<Progress, Fail> {
    hand.transaction(false, |conn, _| {
        let line = one_line(line)?;
        if let Some(segment) = progress.open {
            progress
                .parts
                .push((segment, signed(progress.next_seq) - 1));
        }
        let segment = open_segment(conn, line, progress.bytes, progress.next_seq, Some(num))?;
        progress.open = Some(segment);
        progress.bytes += length(line) + 1;
        Ok(progress)
    })
}

fn lines(
    hand: &mut Hand,
    num: i64,
    mut progress: Progress,
    lines: &[u8],
    last_seq: u64,
) -> Result<Progress, Fail> {
    let lines = split(lines)?;
    let first = first_of(lines.len(), last_seq)?;
    if lines.is_empty() {
        return Ok(progress);
    }
    let segment = progress
        .open
        .ok_or_else(|| Fail::Refused("a log begins with its header".into()))?;
    if first < progress.next_seq {
        return Err(Fail::Refused(format!(
            "event {first} comes behind event {}",
            progress.next_seq.saturating_sub(1)
        )));
    }
    hand.transaction(false, |conn, _| {
        // Somebody who took this process for dead may have removed it.
        let is_there = conn
            .prepare_cached("SELECT 1 FROM segments WHERE num = ?1 AND import = ?2")?
            .exists(params![segment, num])?;
        if !is_there {
            return Err(gone());
        }
        progress.bytes = insert(conn, segment, first, progress.bytes, &lines)?;
        progress.next_seq = last_seq + 1;
        Ok(progress)
    })
}

/// Makes the segments of an import ordinary ones. Returns the last of them.
fn settle(conn: &Connection, num: i64, progress: &Progress) -> Result<i64, Fail> {
    let own = progress
        .open
        .ok_or_else(|| Fail::Refused("a log begins with its header".into()))?;
    let kept = conn.execute("UPDATE segments SET import = NULL WHERE import = ?1", [num])?;
    if kept != progress.parts.len() + 1 {
        return Err(gone());
    }
    conn.execute("DELETE FROM imports WHERE num = ?1", [num])?;
    Ok(own)
}

fn finish(hand: &mut Hand, id: &SessionId, num: i64, progress: &Progress) -> Result<(), Fail> {
    hand.transaction(true, |conn, _| {
        if session(conn, id)?.is_some() {
            return Err(ClaimError::AlreadyExists.into());
        }
        let own = settle(conn, num, progress)?;
        let session: i64 = conn.query_row(
            "INSERT INTO sessions
                 (id, segment, epoch, next_seq, bytes, acknowledged, lease, since, touched)
             VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, 0, ?6) RETURNING num",
            params![
                id.as_str(),
                own,
                signed(progress.next_seq),
                signed(progress.bytes),
                progress.next_seq.checked_sub(1).map(signed),
                signed(now_ms())
            ],
            |row| row.get(0),
        )?;
        for (ordinal, (segment, last)) in progress.parts.iter().enumerate() {
            add_part(conn, session, ordinal, *segment, Some(*last))?;
        }
        add_part(conn, session, progress.parts.len(), own, None)?;
        Ok(())
    })
}

/// Puts the new log in the place of the old one, whose segments now belong to a kept log. So
/// nothing of it is copied or lost, and forks that share them see no change.
fn swap(hand: &mut Hand, claim: Claim, num: i64, progress: &Progress) -> Result<(), Fail> {
    hand.transaction(true, |conn, _| {
        let is_ours = conn
            .prepare("SELECT 1 FROM sessions WHERE num = ?1 AND epoch = ?2")?
            .exists(params![claim.num, claim.epoch])?;
        if !is_ours {
            return Err(lost(conn, claim));
        }
        let own = settle(conn, num, progress)?;
        let generation: i64 = conn.query_row(
            "INSERT INTO kept_logs (session, generation, kept_at, next_seq, bytes, acknowledged)
             SELECT num, (SELECT coalesce(max(generation), 0) + 1 FROM kept_logs
                          WHERE session = ?1), ?2, next_seq, bytes, acknowledged
             FROM sessions WHERE num = ?1 RETURNING generation",
            params![claim.num, signed(now_ms())],
            |row| row.get(0),
        )?;
        conn.execute(
            "INSERT INTO kept_segments (session, generation, ordinal, segment, last_seq)
             SELECT session, ?2, ordinal, segment, last_seq FROM session_segments
             WHERE session = ?1",
            params![claim.num, generation],
        )?;
        // The checkpoints are of the old log.
        for sql in [
            "DELETE FROM session_segments WHERE session = ?1",
            "DELETE FROM checkpoints WHERE session = ?1",
        ] {
            conn.execute(sql, [claim.num])?;
        }
        add_part(conn, claim.num, 0, own, None)?;
        // One more epoch, so that whoever claimed the old log is fenced.
        conn.execute(
            "UPDATE sessions SET segment = ?2, next_seq = ?3, bytes = ?4, acknowledged = ?5,
                 epoch = epoch + 1, holder = NULL, listed = 0
             WHERE num = ?1",
            params![
                claim.num,
                own,
                signed(progress.next_seq),
                signed(progress.bytes),
                progress.next_seq.checked_sub(1).map(signed)
            ],
        )?;
        Ok(())
    })
}

/// Says who has taken over a session while it was repaired.
fn lost(conn: &Connection, claim: Claim) -> Fail {
    let held = leases::of_session(conn, claim.num);
    match held.map(|held| held.filter(Held::is_alive)) {
        Err(error) => error.into(),
        Ok(Some(held)) => ClaimError::Locked {
            holder: held.holder(),
        }
        .into(),
        Ok(None) => Fail::Refused(
            "somebody has taken the session over or deleted it meanwhile, so nothing was changed; \
             repair it again"
                .into(),
        ),
    }
}

fn discard(conn: &Connection, num: i64) -> rusqlite::Result<()> {
    let segments = conn
        .prepare("SELECT num FROM segments WHERE import = ?1")?
        .query_map([num], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for segment in segments {
        drop_segment(conn, segment)?;
    }
    conn.execute("DELETE FROM imports WHERE num = ?1", [num])
        .map(drop)
}

/// Returns the imports that nobody will finish.
pub(crate) fn abandoned(conn: &Connection) -> rusqlite::Result<Vec<i64>> {
    let sql = format!(
        "SELECT i.num, i.lease, {} FROM imports i LEFT JOIN holders h ON h.num = i.holder",
        Held::COLUMNS
    );
    let mut query = conn.prepare(&sql)?;
    let mut rows = query.query([])?;
    let mut dead = Vec::new();
    while let Some(row) = rows.next()? {
        let held = Held::read(row, 2, row.get(1)?, unsigned(0))?;
        if !held.is_some_and(|held| held.is_alive()) {
            dead.push(row.get(0)?);
        }
    }
    Ok(dead)
}

/// Removes what abandoned imports have left.
pub(crate) fn clean(hand: &mut Hand) -> Result<(), Fail> {
    hand.erase(false, |conn| {
        for num in abandoned(conn)? {
            discard(conn, num)?;
        }
        Ok(())
    })
}

impl SqliteImport {
    pub(crate) async fn begin(shared: &Arc<Shared>, id: &SessionId) -> Result<Self, ClaimError> {
        Self::begin_with(shared, id, "bringing in", |hand, id, lease| {
            Ok((begin(hand, id, lease)?, None))
        })
        .await
    }

    /// Begins to replace the log of a session, which is claimed until the end.
    pub(crate) async fn replacing(
        shared: &Arc<Shared>,
        id: &SessionId,
    ) -> Result<Self, ClaimError> {
        Self::begin_with(shared, id, "repairing", |hand, id, lease| {
            let (num, claim) = begin_replacing(hand, id, lease)?;
            Ok((num, Some(claim)))
        })
        .await
    }

    async fn begin_with(
        shared: &Arc<Shared>,
        id: &SessionId,
        doing: &str,
        work: impl FnOnce(&mut Hand, &SessionId, i64) -> Result<(i64, Option<Claim>), Fail>
        + Send
        + 'static,
    ) -> Result<Self, ClaimError> {
        let lease = shared.lease();
        let (to, wanted) = (Arc::clone(shared), id.clone());
        // It is made where the claim is, so that it is given back even if nobody waits for it.
        let begun = shared.queue.run(move |hand| {
            let (num, claim) = work(hand, &wanted, lease.number)?;
            Ok(Self {
                shared: to,
                id: wanted,
                num,
                progress: Progress::default(),
                claim,
                finished: false,
                _lease: lease,
            })
        });
        begun
            .await
            .map_err(|fail| fail.into_claim(shared.path(), format!("{doing} session {id}")))
    }

    fn what(&self) -> String {
        let doing = match self.claim {
            Some(_) => "repairing",
            None => "bringing in",
        };
        format!("{doing} session {}", self.id)
    }

    fn path(&self) -> &Path {
        self.shared.path()
    }

    async fn step(
        &mut self,
        work: impl FnOnce(&mut Hand, Progress) -> Result<Progress, Fail> + Send + 'static,
    ) -> Result<(), BackendError> {
        let progress = self.progress.clone();
        let done = self
            .shared
            .queue
            .run(move |hand| work(hand, progress))
            .await;
        self.progress = done.map_err(|fail| fail.into_backend(self.path(), self.what()))?;
        Ok(())
    }
}

impl Drop for SqliteImport {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let (num, claim, id) = (self.num, self.claim, self.id.clone());
        self.shared.queue.post(move |hand| {
            if let Err(fail) = hand.erase(false, |conn| Ok(discard(conn, num)?)) {
                tracing::warn!(%id, ?fail, "left an import unfinished; it is removed at the next opening");
            }
            if let Some(Err(fail)) = claim.map(|claim| release(hand, claim)) {
                // The lease is dead all the same.
                tracing::warn!(%id, ?fail, "could not note that a session is free");
            }
        });
    }
}

#[async_trait]
impl Import for SqliteImport {
    async fn header(&mut self, line: &[u8]) -> Result<(), BackendError> {
        if self.claim.is_some() && self.progress.open.is_some() {
            let why = "a repaired log has one header";
            return Err(BackendError::new(self.what(), why));
        }
        let (num, line) = (self.num, line.to_vec());
        self.step(move |hand, progress| header(hand, num, progress, &line))
            .await
    }

    async fn lines(&mut self, bytes: &[u8], last_seq: u64) -> Result<(), BackendError> {
        let (num, bytes) = (self.num, bytes.to_vec());
        self.step(move |hand, progress| lines(hand, num, progress, &bytes, last_seq))
            .await
    }

    async fn finish(mut self: Box<Self>) -> Result<(), ClaimError> {
        let (num, id, progress) = (self.num, self.id.clone(), self.progress.clone());
        let claim = self.claim;
        let done = self.shared.queue.run(move |hand| match claim {
            Some(claim) => swap(hand, claim, num, &progress),
            None => finish(hand, &id, num, &progress),
        });
        let done = done.await;
        self.finished = done.is_ok();
        done.map_err(|fail| fail.into_claim(self.path(), self.what()))
    }
}
