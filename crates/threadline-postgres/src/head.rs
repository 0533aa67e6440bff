//! Head rows: creating, claiming, deleting and what people set.

use std::sync::Arc;

use threadline_session::{Header, SessionId};
use threadline_store::{ClaimError, NewLog, UserSummary};

use crate::{
    backend::Inner,
    db::{count, int, within},
    error::{Tries, Trouble},
    lease::{Holding, holder_now, random},
    lines::{self, Batch},
    read::LINE_END,
    writer::{Held, PgWriter, Position},
};

const CREATE: &str = "\
    WITH head AS (\
        INSERT INTO sessions (id, segment, next_seq, next_at, acknowledged, epoch, holder, \
            lease_until, summary, revision, people) \
        VALUES ($1::text, $2, $3::bigint, $4, $3::bigint - 1, 1, $5, \
            now() + $6::float8 * interval '1 millisecond', $7, $8, 0) \
        ON CONFLICT (id) DO NOTHING RETURNING segment\
    ), opened AS (\
        INSERT INTO segments (id, header_line) SELECT segment, $9 FROM head\
    ), linked AS (\
        INSERT INTO session_segments (session, ordinal, segment, first_seq, last_seq, start_at) \
        SELECT $1::text, u.ordinal - 1, u.segment, u.first_seq, u.last_seq, u.start_at FROM head, \
        unnest($10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) \
        WITH ORDINALITY AS u (segment, first_seq, last_seq, start_at, ordinal)\
    ), stored AS (\
        INSERT INTO events (segment_id, seq, at, body) \
        SELECT head.segment, u.seq, u.at, u.body FROM head, \
        unnest($14::bigint[], $15::bigint[], $16::text[]) AS u (seq, at, body)\
    ) SELECT segment FROM head";

const CLAIM: &str = "\
    UPDATE sessions SET epoch = epoch + 1, holder = $2, suspect = true, \
        lease_until = now() + $3::float8 * interval '1 millisecond' \
    WHERE id = $1 AND ($5 OR epoch = $4 OR holder = $2 OR lease_until IS NULL \
        OR lease_until <= now()) \
    RETURNING epoch, segment, next_seq, next_at";

const HOLDER: &str = "\
    SELECT holder, coalesce(lease_until > now(), false), epoch FROM sessions WHERE id = $1";

/// Why something was not done, besides failures of the database.
pub(crate) enum Refusal {
    Trouble(Trouble),
    Claim(ClaimError),
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Trouble(error.into())
    }
}

/// The segments of a session, as the columns of their table.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) segments: Vec<i64>,
    pub(crate) first_seqs: Vec<i64>,
    pub(crate) last_seqs: Vec<Option<i64>>,
    pub(crate) start_ats: Vec<i64>,
}

impl Links {
    pub(crate) fn push(&mut self, segment: i64, first_seq: u64, start_at: u64) {
        self.segments.push(segment);
        self.first_seqs.push(int(first_seq));
        self.last_seqs.push(None);
        self.start_ats.push(int(start_at));
    }

    /// Ends the last segment before an event.
    pub(crate) fn end(&mut self, next_seq: u64) {
        if let Some(last) = self.last_seqs.last_mut() {
            *last = Some(int(next_seq) - 1);
        }
    }
}

/// A head row and its links to be inserted, with the lines of the own segment.
pub(crate) struct NewHead<'a> {
    pub(crate) id: &'a SessionId,
    pub(crate) segment: i64,
    /// The own header line.
    pub(crate) header: &'a str,
    pub(crate) holder: Option<&'a str>,
    pub(crate) lease_ms: f64,
    pub(crate) links: &'a Links,
    pub(crate) batch: &'a Batch<'a>,
}

impl NewHead<'_> {
    /// Inserts it. Returns whether the id was free.
    pub(crate) async fn insert(
        &self,
        on: &impl deadpool_postgres::GenericClient,
    ) -> Result<bool, Trouble> {
        let summary = UserSummary::default();
        let text = serde_json::to_string(&summary).unwrap_or_default();
        let rows = within(
            on,
            CREATE,
            &[
                &self.id.as_str(),
                &self.segment,
                &int(self.batch.next_seq),
                &int(self.batch.end_at),
                &self.holder,
                &self.lease_ms,
                &text,
                &int(summary.revision),
                &self.header,
                &self.links.segments,
                &self.links.first_seqs,
                &self.links.last_seqs,
                &self.links.start_ats,
                &self.batch.seqs,
                &self.batch.ats,
                &self.batch.bodies,
            ],
        )
        .await?;
        Ok(!rows.is_empty())
    }
}

impl Inner {
    pub(crate) async fn create(
        self: &Arc<Self>,
        id: &SessionId,
        new: &NewLog,
    ) -> Result<PgWriter, ClaimError> {
        let what = || self.what("creating", id);
        let held = Held::new(self, id);
        let mut tries = Tries::default();
        loop {
            match self.create_once(id, new, &held).await {
                Ok(Some(position)) => return Ok(PgWriter::new(held, position)),
                Ok(None) => {
                    // It may be there because an earlier try was done after all.
                    let holder = self.db.row(HOLDER, &[&id.as_str()]).await;
                    let holder = holder.map_err(|trouble| trouble.claim(what()))?;
                    let holder: Option<String> =
                        holder.and_then(|row| row.try_get(0).ok().flatten());
                    if !tries.lost() || holder.as_deref() != Some(held.text()) {
                        return Err(ClaimError::AlreadyExists);
                    }
                    return self.claim_as(held, false).await;
                }
                Err(Refusal::Claim(error)) => return Err(error),
                Err(Refusal::Trouble(trouble)) => {
                    let again = tries.again(trouble).await;
                    again.map_err(|trouble| trouble.claim(what()))?;
                }
            }
        }
    }

    /// Stores a new session; `None` when its id is taken.
    async fn create_once(
        &self,
        id: &SessionId,
        new: &NewLog,
        held: &Held,
    ) -> Result<Option<Position>, Refusal> {
        let header = lines::header(&new.header_line)?;
        let base = Header::decode(header.as_bytes())
            .ok()
            .and_then(|(header, _)| header.base);
        let mut client = self.db.client().await?;
        let transaction = client.transaction().await.map_err(Trouble::from)?;
        let (mut links, first_seq, start_at) = match (&base, &new.parent) {
            (Some(base), Some(parent)) => {
                let shared = shared(&transaction, parent, base.last_seq).await?;
                let (links, start_at) = shared.ok_or(Refusal::Claim(ClaimError::NotFound))?;
                (links, base.last_seq.saturating_add(1), start_at)
            }
            _ => (Links::default(), 0, 0),
        };
        let segment = int(random());
        links.push(segment, first_seq, start_at);
        let own_at = start_at + new.header_line.len() as u64;
        let batch = Batch::new(&new.batch, first_seq, own_at)?;
        let head = NewHead {
            id,
            segment,
            header,
            holder: Some(held.text()),
            lease_ms: self.lease_ms(),
            links: &links,
            batch: &batch,
        };
        if !head.insert(&transaction).await? {
            return Ok(None);
        }
        if let (Some(_), Some(parent)) = (&base, &new.parent) {
            within(
                &transaction,
                "INSERT INTO checkpoints (session, seq, hint, crc, state) \
                 SELECT $1, seq, hint, crc, state FROM checkpoints \
                 WHERE session = $2 AND seq <= $3 ORDER BY seq DESC LIMIT 1",
                &[&id.as_str(), &parent.as_str(), &int(first_seq)],
            )
            .await?;
        }
        transaction.commit().await?;
        self.changed_now(id);
        Ok(Some(Position {
            epoch: 1,
            segment,
            next_seq: batch.next_seq,
            next_at: batch.end_at,
        }))
    }

    /// Claims a session; with `force` whoever holds it.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        id: &SessionId,
        force: bool,
    ) -> Result<PgWriter, ClaimError> {
        self.claim_as(Held::new(self, id), force).await
    }

    async fn claim_as(&self, held: Held, force: bool) -> Result<PgWriter, ClaimError> {
        let what = || self.what("claiming", held.id());
        let mut tries = Tries::default();
        loop {
            match self.claim_once(&held, force).await {
                Ok(position) => return Ok(PgWriter::new(held, position)),
                Err(Refusal::Claim(error)) => return Err(error),
                Err(Refusal::Trouble(trouble)) => {
                    let again = tries.again(trouble).await;
                    again.map_err(|trouble| trouble.claim(what()))?;
                }
            }
        }
    }

    async fn claim_once(&self, held: &Held, force: bool) -> Result<Position, Refusal> {
        let id = held.id().as_str();
        // The epoch of a holder that is known to be dead.
        let mut dead = -1_i64;
        loop {
            let lease = self.lease_ms();
            let claimed = self
                .db
                .row(CLAIM, &[&id, &held.text(), &lease, &dead, &force])
                .await?;
            if let Some(row) = claimed {
                return Ok(Position {
                    epoch: row.try_get(0)?,
                    segment: row.try_get(1)?,
                    next_seq: count(row.try_get(2)?),
                    next_at: count(row.try_get(3)?),
                });
            }
            let Some(row) = self.db.row(HOLDER, &[&id]).await? else {
                return Err(Refusal::Claim(ClaimError::NotFound));
            };
            if let Some(holder) = holder_now(row.try_get(0)?, row.try_get(1)?) {
                return Err(Refusal::Claim(ClaimError::Locked { holder }));
            }
            dead = row.try_get(2)?;
        }
    }

    pub(crate) async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let mut tries = Tries::default();
        loop {
            match self.delete_once(id).await {
                Ok(()) => {
                    self.changed_now(id);
                    return Ok(());
                }
                // An earlier try was done after all.
                Err(Refusal::Claim(ClaimError::NotFound)) if tries.lost() => return Ok(()),
                Err(Refusal::Claim(error)) => return Err(error),
                Err(Refusal::Trouble(trouble)) => {
                    let again = tries.again(trouble).await;
                    again.map_err(|trouble| trouble.claim(self.what("deleting", id)))?;
                }
            }
        }
    }

    async fn delete_once(&self, id: &SessionId) -> Result<(), Refusal> {
        let id = id.as_str();
        let mut client = self.db.client().await?;
        let transaction = client.transaction().await.map_err(Trouble::from)?;
        let head = within(&transaction, &format!("{HOLDER} FOR UPDATE"), &[&id]).await?;
        let Some(row) = head.first() else {
            return Err(Refusal::Claim(ClaimError::NotFound));
        };
        if let Some(holder) = holder_now(row.try_get(0)?, row.try_get(1)?) {
            return Err(Refusal::Claim(ClaimError::Locked { holder }));
        }
        // Of two who delete sessions with a segment in common, the second sees what the first left.
        let locked = within(
            &transaction,
            "SELECT s.id FROM segments s WHERE s.id IN (\
                 SELECT segment FROM session_segments WHERE session = $1 \
                 UNION ALL SELECT segment FROM kept_segments WHERE session = $1\
             ) ORDER BY s.id FOR UPDATE OF s",
            &[&id],
        )
        .await?;
        let segments = locked
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<Vec<i64>, _>>()?;
        for sql in [
            "DELETE FROM session_segments WHERE session = $1",
            "DELETE FROM kept_segments WHERE session = $1",
            "DELETE FROM kept_logs WHERE session = $1",
            "DELETE FROM checkpoints WHERE session = $1",
            "DELETE FROM catalogue WHERE id = $1",
            "DELETE FROM sessions WHERE id = $1",
        ] {
            within(&transaction, sql, &[&id]).await?;
        }
        for segment in segments {
            trim(&transaction, segment).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    pub(crate) async fn summary(&self, id: &SessionId) -> Result<Option<UserSummary>, Trouble> {
        let row = self
            .db
            .row(
                "SELECT summary FROM sessions WHERE id = $1",
                &[&id.as_str()],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let text: String = row.try_get(0)?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Trouble::Other(format!("what people have set is garbled: {error}")))
    }

    /// Replaces what people have set. Returns what is in force instead when it was changed; `None`
    /// when there is no such session.
    pub(crate) async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Option<Result<(), UserSummary>>, Trouble> {
        let text = serde_json::to_string(summary).map_err(|e| Trouble::Other(e.to_string()))?;
        let mut tries = Tries::default();
        loop {
            let put = self
                .db
                .row(
                    "UPDATE sessions SET summary = $3, revision = $4, people = people + 1, \
                     suspect = true WHERE id = $1 AND revision = $2 RETURNING people",
                    &[&id.as_str(), &int(expected), &text, &int(summary.revision)],
                )
                .await;
            match put {
                Ok(Some(_)) => return Ok(Some(Ok(()))),
                Ok(None) => break,
                Err(trouble) => tries.again(trouble).await?,
            }
        }
        Ok(self.summary(id).await?.map(|now| {
            if tries.lost() && now == *summary {
                Ok(())
            } else {
                Err(now)
            }
        }))
    }
}

/// Returns the segments that a fork of `parent` up to an event shares with it, and where its own
/// begins. The parent is not deleted before the transaction ends.
async fn shared(
    transaction: &deadpool_postgres::Transaction<'_>,
    parent: &SessionId,
    last_seq: u64,
) -> Result<Option<(Links, u64)>, Refusal> {
    let parent = parent.as_str();
    let sql = "SELECT id FROM sessions WHERE id = $1 FOR KEY SHARE";
    if within(transaction, sql, &[&parent]).await?.is_empty() {
        return Ok(None);
    }
    let rows = within(
        transaction,
        "SELECT segment, first_seq, last_seq, start_at FROM session_segments \
         WHERE session = $1 AND first_seq <= $2 ORDER BY ordinal",
        &[&parent, &int(last_seq)],
    )
    .await?;
    let mut links = Links::default();
    for row in rows {
        links.segments.push(row.try_get(0)?);
        links.first_seqs.push(row.try_get(1)?);
        links.last_seqs.push(row.try_get(2)?);
        links.start_ats.push(row.try_get(3)?);
    }
    links.end(last_seq.saturating_add(1));
    let Some(last) = links.segments.last() else {
        return Ok(None);
    };
    let end = within(transaction, LINE_END, &[last, &int(last_seq)]).await?;
    match end.first() {
        Some(row) => Ok(Some((links, count(row.try_get(0)?)))),
        None => Err(Refusal::Trouble(Trouble::Other(format!(
            "session {parent} has no event {last_seq} to fork at"
        )))),
    }
}

/// Deletes what no session needs of a segment any more.
async fn trim(
    transaction: &deadpool_postgres::Transaction<'_>,
    segment: i64,
) -> Result<(), Refusal> {
    let kept = within(
        transaction,
        "SELECT count(*), coalesce(bool_or(last_seq IS NULL), false), max(last_seq) \
         FROM (\
             SELECT last_seq FROM session_segments WHERE segment = $1 \
             UNION ALL SELECT last_seq FROM kept_segments WHERE segment = $1\
         ) named",
        &[&segment],
    )
    .await?;
    let Some(row) = kept.first() else {
        return Ok(());
    };
    let (sessions, whole, last): (i64, bool, Option<i64>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if sessions == 0 {
        let sql = "DELETE FROM events WHERE segment_id = $1";
        within(transaction, sql, &[&segment]).await?;
        within(
            transaction,
            "DELETE FROM segments WHERE id = $1",
            &[&segment],
        )
        .await?;
    } else if !whole {
        let sql = "DELETE FROM events WHERE segment_id = $1 AND seq > $2";
        within(transaction, sql, &[&segment, &last.unwrap_or(-1)]).await?;
    }
    Ok(())
}

/// Says who holds a session, as far as is known.
pub(crate) fn named(holder: Option<&str>) -> String {
    holder.and_then(Holding::parse).map_or_else(
        || "a writer that has left".into(),
        |held| held.holder().to_string(),
    )
}
