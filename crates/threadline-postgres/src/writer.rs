//! The one door for appends to a session.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use async_trait::async_trait;
use threadline_session::{SessionId, codec::crc32c};
use threadline_store::{BackendError, Begun, LogEnd, WriteError, Writer};

use crate::{
    backend::Inner,
    db::{count, int},
    error::{Kind, Trouble, pause, retrying},
    head::named,
    lease::Holding,
    lines::Batch,
};

/// Compares and sets the head row, and stores the lines only if that was done.
macro_rules! append {
    ($set:literal, $then:literal) => {
        concat!(
            "WITH head AS (\
                UPDATE sessions SET next_seq = $4::bigint, next_at = $5, suspect = true, ",
            $set,
            "lease_until = now() + $6::float8 * interval '1 millisecond' \
                WHERE id = $1 AND epoch = $2 AND next_seq = $3 RETURNING segment\
            ), stored AS (\
                INSERT INTO events (segment_id, seq, at, body) \
                SELECT head.segment, u.seq, u.at, u.body FROM head, \
                unnest($7::bigint[], $8::bigint[], $9::text[]) AS u (seq, at, body)\
            ) SELECT segment",
            $then,
            " FROM head"
        )
    };
}
const APPEND_SYNCED: &str = append!("acknowledged = $4::bigint - 1, ", "");
/// The commit does not wait for the disk. A later one that does brings this one there too.
const APPEND: &str = append!("", ", set_config('synchronous_commit', 'off', true)");

const SYNC: &str = "\
    UPDATE sessions SET acknowledged = next_seq - 1 \
    WHERE id = $1 AND epoch = $2 AND next_seq = $3 RETURNING next_seq";

/// Whoever still executes an append for this writer on a lost connection does it before this, or
/// not at all.
const FENCE: &str = "\
    UPDATE sessions SET epoch = epoch + 1 \
    WHERE id = $1 AND epoch = $2 AND next_seq = $3 AND holder = $4 RETURNING epoch";

const LOOK: &str = "\
    SELECT h.epoch, h.next_seq, h.holder, e.body FROM sessions h \
    LEFT JOIN events e ON e.segment_id = $2 AND e.seq = $3 WHERE h.id = $1";

/// Keeps the newest checkpoint and, further and further back, few older ones: of all that lie
/// between 2^n and 2^(n+1) events behind the newest, the oldest. So a log has at most one for each
/// bit of its length, and from any event the next one before it is not far in relation to its age.
///
/// The position of the highest bit of a distance is the length of its binary form.
const CHECKPOINT: &str = "\
    WITH kept AS (\
        INSERT INTO checkpoints (session, seq, hint, crc, state) \
        SELECT id, next_seq, next_at, $4, $5 FROM sessions \
        WHERE id = $1 AND epoch = $2 AND next_seq = $3 \
        ON CONFLICT (session, seq) DO UPDATE \
        SET hint = excluded.hint, crc = excluded.crc, state = excluded.state RETURNING seq\
    ), aged AS (\
        SELECT c.seq, length(ltrim((kept.seq - c.seq)::bit(64)::text, '0')) AS age \
        FROM checkpoints c, kept WHERE c.session = $1 AND c.seq < kept.seq\
    ), paired AS (\
        SELECT seq, age = lag(age) OVER (ORDER BY seq) AS superfluous FROM aged\
    ), thinned AS (\
        DELETE FROM checkpoints c USING paired p \
        WHERE c.session = $1 AND c.seq = p.seq AND p.superfluous\
    ) SELECT seq, set_config('synchronous_commit', 'off', true) FROM kept";

/// A claim on a session. Dropping it lets go of the session.
pub(crate) struct Held {
    inner: Arc<Inner>,
    id: SessionId,
    holding: Holding,
    text: String,
}

impl Held {
    pub(crate) fn new(inner: &Arc<Inner>, id: &SessionId) -> Self {
        let holding = Holding::new();
        holding.enter();
        let text = holding.to_text();
        inner.renewed().insert(text.clone(), id.clone());
        Self {
            inner: Arc::clone(inner),
            id: id.clone(),
            text,
            holding,
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the holder as the head row names it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // From here on this process takes the session for free; others are told by the update.
        self.holding.leave();
        self.inner.renewed().remove(&self.text);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (db, id, text) = (
            self.inner.db.clone(),
            self.id.clone(),
            std::mem::take(&mut self.text),
        );
        runtime.spawn(async move {
            let release = "WITH free AS (\
                    UPDATE sessions SET holder = NULL, lease_until = NULL, suspect = true \
                    WHERE id = $1 AND holder = $2 RETURNING id\
                ) SELECT set_config('synchronous_commit', 'off', true) FROM free";
            if let Err(error) = db.query(release, &[&id.as_str(), &text]).await {
                tracing::debug!(%id, %error, "a lease was left to expire");
            }
        });
    }
}

/// Renews the leases of all writers as long as the backend lives.
pub(crate) async fn renew(inner: Weak<Inner>) {
    let Some(lease) = inner.upgrade().map(|inner| inner.options.lease) else {
        return;
    };
    loop {
        tokio::time::sleep(lease / 3).await;
        let Some(inner) = inner.upgrade() else { return };
        let (holders, ids): (Vec<String>, Vec<String>) = inner
            .renewed()
            .iter()
            .map(|(holder, id)| (holder.clone(), id.to_string()))
            .unzip();
        if ids.is_empty() {
            continue;
        }
        let renewed = inner
            .db
            .query(
                "WITH held AS (\
                    UPDATE sessions h SET lease_until = now() + $3::float8 * interval '1 millisecond' \
                    FROM unnest($1::text[], $2::text[]) AS u (id, holder) \
                    WHERE h.id = u.id AND h.holder = u.holder RETURNING h.id\
                ) SELECT set_config('synchronous_commit', 'off', true) FROM held",
                &[&ids, &holders, &inner.lease_ms()],
            )
            .await;
        if let Err(error) = renewed {
            tracing::debug!(%error, "leases were not renewed");
        }
    }
}

/// Where a writer goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) epoch: i64,
    pub(crate) segment: i64,
    pub(crate) next_seq: u64,
    pub(crate) next_at: u64,
}

/// Writes a session.
pub(crate) struct PgWriter {
    held: Held,
    at: Position,
    /// The first failure; nothing is stored behind it.
    dead: Option<WriteError>,
}

/// How often a batch is sent again that is known not to be there.
const MOST_TRIES: u32 = 10;

/// What became of a batch.
enum Outcome {
    Stored,
    NotStored,
}

impl PgWriter {
    pub(crate) fn new(held: Held, at: Position) -> Self {
        let dead = None;
        Self { held, at, dead }
    }

    fn inner(&self) -> &Inner {
        &self.held.inner
    }

    /// Returns what the head row says as long as this writer has the session: epoch and holder.
    pub(crate) fn claim(&self) -> (i64, &str) {
        (self.at.epoch, self.held.text())
    }

    fn id(&self) -> &str {
        self.held.id.as_str()
    }

    fn poisoned(&self, doing: &str, trouble: &Trouble) -> WriteError {
        WriteError::Poisoned {
            reason: self.reason(doing, trouble),
        }
    }

    fn reason(&self, doing: &str, trouble: &Trouble) -> String {
        let what = self.inner().what(doing, &self.held.id);
        format!("{what}: {}", threadline_store::error_chain(trouble))
    }

    /// Remembers what the writer died of.
    fn last<T>(&mut self, outcome: Result<T, WriteError>) -> Result<T, WriteError> {
        if let Err(error) = &outcome
            && !matches!(error, WriteError::StorageFull { .. })
        {
            self.dead = Some(error.clone());
        }
        outcome
    }

    async fn store(&self, batch: &Batch<'_>, sync: bool) -> Result<bool, Trouble> {
        let sql = if sync { APPEND_SYNCED } else { APPEND };
        let inner = self.inner();
        let stored = inner
            .db
            .row(
                sql,
                &[
                    &self.id(),
                    &self.at.epoch,
                    &int(self.at.next_seq),
                    &int(batch.next_seq),
                    &int(batch.end_at),
                    &inner.lease_ms(),
                    &batch.seqs,
                    &batch.ats,
                    &batch.bodies,
                ],
            )
            .await?;
        Ok(stored.is_some())
    }

    async fn store_or_settle(&mut self, batch: &Batch<'_>, sync: bool) -> Result<(), WriteError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let trouble = match self.store(batch, sync).await {
                Ok(true) => return Ok(()),
                // Somebody else's epoch, or one of our own that an earlier look has brought.
                Ok(false) => Trouble::Other("the head row is another one".into()),
                Err(trouble) => match trouble.kind() {
                    Kind::Full => {
                        let what = self.inner().what("appending to", &self.held.id);
                        return Err(WriteError::StorageFull { what });
                    }
                    Kind::Race if tries < MOST_TRIES => {
                        tokio::time::sleep(pause(tries)).await;
                        continue;
                    }
                    Kind::Race | Kind::Failed => {
                        return Err(self.poisoned("appending to", &trouble));
                    }
                    Kind::Lost => trouble,
                },
            };
            match self.settle(batch, &trouble).await? {
                Outcome::NotStored if tries < MOST_TRIES => {}
                Outcome::NotStored => return Err(self.poisoned("appending to", &trouble)),
                Outcome::Stored if sync => return self.bring_batch_to_disk(batch).await,
                Outcome::Stored => return Ok(()),
            }
        }
    }

    /// Finds out what became of a batch, for as long as that is worth waiting for.
    async fn settle(&mut self, batch: &Batch<'_>, lost: &Trouble) -> Result<Outcome, WriteError> {
        let deadline = Instant::now() + self.inner().options.outcome_wait;
        let mut tries = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let looked = tokio::time::timeout(left, self.look(batch)).await;
            let again = Instant::now() < deadline;
            match looked {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(trouble)) if again && trouble.kind() != Kind::Failed => {
                    tries += 1;
                    tokio::time::sleep(pause(tries).min(left)).await;
                }
                Ok(Err(_)) | Err(_) => {
                    let reason = self.reason("appending to", lost);
                    return Err(WriteError::UnknownOutcome { reason });
                }
            }
        }
    }

    /// Looks whether a batch is there. When it is not, it will not come by itself any more.
    async fn look(&mut self, batch: &Batch<'_>) -> Result<Result<Outcome, WriteError>, Trouble> {
        let (id, first) = (self.id(), int(self.at.next_seq));
        let db = &self.inner().db;
        let fenced = db
            .row(FENCE, &[&id, &self.at.epoch, &first, &self.held.text()])
            .await?;
        if let Some(row) = fenced {
            self.at.epoch = row.try_get(0)?;
            return Ok(Ok(Outcome::NotStored));
        }
        let last = int(batch.next_seq) - 1;
        let Some(row) = db.row(LOOK, &[&id, &self.at.segment, &last]).await? else {
            return Ok(Err(WriteError::Fenced {
                by: "whoever deleted the session".into(),
            }));
        };
        let holder: Option<String> = row.try_get(2)?;
        if holder.as_deref() != Some(self.held.text()) {
            return Ok(Err(WriteError::Fenced {
                by: named(holder.as_deref()),
            }));
        }
        self.at.epoch = row.try_get(0)?;
        let (next_seq, body): (i64, Option<String>) = (row.try_get(1)?, row.try_get(3)?);
        if count(next_seq) == batch.next_seq && body.as_deref() == batch.bodies.last().copied() {
            return Ok(Ok(Outcome::Stored));
        }
        if next_seq == first {
            return Ok(Ok(Outcome::NotStored));
        }
        Ok(Err(self.parted(count(next_seq))))
    }

    /// Returns who has the session now, if it is not this writer.
    async fn fenced(&self) -> Result<Option<WriteError>, Trouble> {
        let sql = "SELECT holder FROM sessions WHERE id = $1";
        let row = self.inner().db.row(sql, &[&self.id()]).await?;
        let by = match row {
            None => "whoever deleted the session".into(),
            Some(row) => match row.try_get::<_, Option<String>>(0)? {
                Some(holder) if holder == self.held.text() => return Ok(None),
                holder => named(holder.as_deref()),
            },
        };
        Ok(Some(WriteError::Fenced { by }))
    }

    /// The log is not where this writer left it, though nobody else has it.
    fn parted(&self, next_seq: u64) -> WriteError {
        WriteError::Poisoned {
            reason: format!(
                "the log continues at event {next_seq}, not at {}: the server has lost events that \
                 were not yet on stable storage",
                self.at.next_seq
            ),
        }
    }

    /// Syncs a batch that is known to be there. A full disk is told as any other failure: that
    /// there is no space would mean that nothing of the batch is stored.
    async fn bring_batch_to_disk(&self, batch: &Batch<'_>) -> Result<(), WriteError> {
        let synced = self.bring_to_disk(batch.next_seq).await;
        synced.map_err(|error| match error {
            WriteError::StorageFull { what } => WriteError::Poisoned { reason: what },
            error => error,
        })
    }

    async fn bring_to_disk(&self, next_seq: u64) -> Result<(), WriteError> {
        let deadline = Instant::now() + self.inner().options.outcome_wait;
        let mut tries = 0;
        loop {
            match self.sync_once(next_seq).await {
                Ok(outcome) => return outcome,
                Err(trouble)
                    if matches!(trouble.kind(), Kind::Lost | Kind::Race)
                        && Instant::now() < deadline =>
                {
                    tries += 1;
                    tokio::time::sleep(pause(tries)).await;
                }
                Err(trouble) if trouble.kind() == Kind::Full => {
                    return Err(WriteError::StorageFull {
                        what: self.reason("syncing", &trouble),
                    });
                }
                Err(trouble) => return Err(self.poisoned("syncing", &trouble)),
            }
        }
    }

    async fn sync_once(&self, next_seq: u64) -> Result<Result<(), WriteError>, Trouble> {
        let db = &self.inner().db;
        let (id, next) = (self.id(), int(next_seq));
        if db.row(SYNC, &[&id, &self.at.epoch, &next]).await?.is_some() {
            return Ok(Ok(()));
        }
        if let Some(error) = self.fenced().await? {
            return Ok(Err(error));
        }
        let sql = "SELECT next_seq FROM sessions WHERE id = $1";
        let row = db.row(sql, &[&id]).await?;
        let found: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
        Ok(Err(self.parted(count(found))))
    }
}

#[async_trait]
impl Writer for PgWriter {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        if end.next.seq != self.at.next_seq {
            // Whoever has taken over since may have appended before the log was read.
            let looked = retrying!(self.fenced());
            let error = match looked {
                Ok(Some(error)) => error,
                Ok(None) => WriteError::Poisoned {
                    reason: format!(
                        "the log was read up to event {}, but continues at {}",
                        end.next.seq, self.at.next_seq
                    ),
                },
                Err(trouble) => self.poisoned("claiming", &trouble),
            };
            return self.last(Err(error));
        }
        Ok(Begun::default())
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let start = self.at.next_at;
        let lines = match Batch::new(&batch, self.at.next_seq, start) {
            Ok(lines) if lines.next_seq == last_seq.saturating_add(1) => lines,
            Ok(lines) => {
                let reason = format!("the batch ends before event {}", lines.next_seq);
                return self.last(Err(WriteError::Poisoned { reason }));
            }
            Err(trouble) => {
                let error = self.poisoned("appending to", &trouble);
                return self.last(Err(error));
            }
        };
        let stored = self.store_or_settle(&lines, sync).await;
        self.last(stored)?;
        self.at.next_seq = lines.next_seq;
        self.at.next_at = lines.end_at;
        self.inner().changed_now(&self.held.id);
        Ok(start)
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let synced = self.bring_to_disk(self.at.next_seq).await;
        self.last(synced)
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        let (epoch, next_seq) = (self.at.epoch, int(self.at.next_seq));
        let crc = i64::from(crc32c(state));
        let kept = self
            .inner()
            .db
            .query(CHECKPOINT, &[&self.id(), &epoch, &next_seq, &crc, &state])
            .await;
        let what = || self.inner().what("keeping a checkpoint of", &self.held.id);
        kept.map(drop).map_err(|trouble| trouble.backend(what()))
    }
}
