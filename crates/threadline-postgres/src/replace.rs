//! Putting a repaired log in the place of a damaged one.
//!
//! The segments of the old log change their owner: from the session to one of its kept logs. So
//! nothing of it is copied or lost, and forks that share them see no change.

use threadline_session::SessionId;
use threadline_store::ClaimError;

use crate::{
    db::{int, within},
    error::Trouble,
    head::Refusal,
    lease::holder_now,
};

/// A log whose lines are stored already, about to be a session's.
pub(crate) struct Replaced<'a> {
    pub(crate) id: &'a SessionId,
    /// What the head row must say still.
    pub(crate) epoch: i64,
    pub(crate) holder: &'a str,
    /// The one segment of the new log.
    pub(crate) segment: i64,
    pub(crate) header: &'a str,
    pub(crate) next_seq: u64,
    pub(crate) next_at: u64,
}

/// Looks who has the session, and keeps everybody else from it until the transaction ends.
const LOCK: &str = "\
    SELECT epoch, holder, coalesce(lease_until > now(), false) FROM sessions WHERE id = $1 \
    FOR UPDATE";

const KEEP: &str = "\
    WITH last AS (\
        SELECT coalesce(max(generation), 0) AS generation FROM kept_logs WHERE session = $1\
    ), kept AS (\
        INSERT INTO kept_logs (session, generation, kept_at, next_seq, bytes, acknowledged) \
        SELECT h.id, last.generation + 1, now(), h.next_seq, h.next_at, h.acknowledged \
        FROM sessions h, last WHERE h.id = $1 RETURNING generation\
    ) INSERT INTO kept_segments \
        (session, generation, ordinal, segment, first_seq, last_seq, start_at) \
    SELECT g.session, kept.generation, g.ordinal, g.segment, g.first_seq, g.last_seq, g.start_at \
    FROM session_segments g, kept WHERE g.session = $1";

/// The old links, and the checkpoints, which are of the old log.
const CLEAR: [&str; 2] = [
    "DELETE FROM session_segments WHERE session = $1",
    "DELETE FROM checkpoints WHERE session = $1",
];

/// One more epoch, so that whoever claimed the old log is fenced.
const PUT: &str = "\
    WITH head AS (\
        UPDATE sessions SET segment = $2, next_seq = $4::bigint, next_at = $5, \
            acknowledged = nullif($4::bigint - 1, -1), epoch = epoch + 1, holder = NULL, \
            lease_until = NULL, suspect = true \
        WHERE id = $1 RETURNING id\
    ), opened AS (\
        INSERT INTO segments (id, header_line) VALUES ($2, $3)\
    ) INSERT INTO session_segments (session, ordinal, segment, first_seq, last_seq, start_at) \
    SELECT id, 0, $2, 0, NULL, 0 FROM head";

impl Replaced<'_> {
    /// Puts it in the place of the old log, which is kept aside.
    pub(crate) async fn swap(
        &self,
        on: &impl deadpool_postgres::GenericClient,
    ) -> Result<(), Refusal> {
        let id = self.id.as_str();
        self.is_claimed(on).await?;
        within(on, KEEP, &[&id]).await?;
        for sql in CLEAR {
            within(on, sql, &[&id]).await?;
        }
        let (next_seq, next_at) = (int(self.next_seq), int(self.next_at));
        let put: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&id, &self.segment, &self.header, &next_seq, &next_at];
        within(on, PUT, &put).await?;
        Ok(())
    }

    async fn is_claimed(&self, on: &impl deadpool_postgres::GenericClient) -> Result<(), Refusal> {
        let found = within(on, LOCK, &[&self.id.as_str()]).await?;
        let Some(row) = found.first() else {
            return Err(Refusal::Claim(ClaimError::NotFound));
        };
        let (epoch, holder): (i64, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        if epoch == self.epoch && holder == Some(self.holder) {
            return Ok(());
        }
        Err(match holder_now(holder, row.try_get(2)?) {
            Some(holder) => Refusal::Claim(ClaimError::Locked { holder }),
            None => Refusal::Trouble(Trouble::Other(
                "somebody has taken the session over meanwhile, so nothing was changed; repair it \
                 again"
                    .into(),
            )),
        })
    }
}
