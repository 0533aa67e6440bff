//! Bringing in a session from another store, or a repaired log in the place of a damaged one: one
//! transaction, on a connection of its own.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::Client;
use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError, Import};

use crate::{
    backend::Inner,
    db::{int, within},
    error::Trouble,
    head::{Links, NewHead, Refusal},
    lease::random,
    lines::{self, Batch},
    replace::Replaced,
    writer::PgWriter,
};

/// A session in the making. Nobody sees it before the transaction ends.
pub(crate) struct PgImport {
    inner: Arc<Inner>,
    id: SessionId,
    /// `None` once it is finished.
    client: Option<Client>,
    /// The claim on the session whose log is replaced; none for one that comes from elsewhere.
    claim: Option<PgWriter>,
    links: Links,
    /// The header line of the last segment.
    header: String,
    next_seq: u64,
    next_at: u64,
}

impl PgImport {
    pub(crate) async fn begin(inner: &Arc<Inner>, id: &SessionId) -> Result<Self, ClaimError> {
        let taken = crate::read::stat(&inner.db, id).await;
        let taken = taken.map_err(|trouble| trouble.claim(inner.what("importing", id)))?;
        if taken.is_some() {
            return Err(ClaimError::AlreadyExists);
        }
        Self::open_with(inner, id, None).await
    }

    /// Begins to replace the log of a session, which is claimed until the end.
    pub(crate) async fn replacing(inner: &Arc<Inner>, id: &SessionId) -> Result<Self, ClaimError> {
        let claim = inner.claim(id, false).await?;
        Self::open_with(inner, id, Some(claim)).await
    }

    async fn open_with(
        inner: &Arc<Inner>,
        id: &SessionId,
        claim: Option<PgWriter>,
    ) -> Result<Self, ClaimError> {
        let doing = doing(claim.as_ref());
        let failed = |trouble: Trouble| trouble.claim(inner.what(doing, id));
        let client = inner.db.client().await.map_err(failed)?;
        let begun = client.batch_execute("BEGIN").await;
        begun.map_err(|error| failed(error.into()))?;
        Ok(Self {
            inner: Arc::clone(inner),
            id: id.clone(),
            client: Some(client),
            claim,
            links: Links::default(),
            header: String::new(),
            next_seq: 0,
            next_at: 0,
        })
    }

    fn what(&self) -> String {
        self.inner.what(doing(self.claim.as_ref()), &self.id)
    }

    fn failed(&self, trouble: Trouble) -> BackendError {
        trouble.backend(self.what())
    }

    fn client(&self) -> Result<&Client, Trouble> {
        let over = || Trouble::Other("the import is over".into());
        self.client.as_ref().ok_or_else(over)
    }

    async fn open(&mut self, line: &[u8]) -> Result<(), Trouble> {
        if self.claim.is_some() && !self.links.segments.is_empty() {
            return Err(Trouble::Other("a repaired log has one header".into()));
        }
        self.close().await?;
        self.links.end(self.next_seq);
        let header = lines::header(line)?.to_owned();
        self.links.push(int(random()), self.next_seq, self.next_at);
        self.next_at += header.len() as u64 + 1;
        self.header = header;
        Ok(())
    }

    /// Stores the header line of a segment that is not the session's own.
    async fn close(&self) -> Result<(), Trouble> {
        let Some(segment) = self.links.segments.last() else {
            return Ok(());
        };
        let sql = "INSERT INTO segments (id, header_line) VALUES ($1, $2)";
        within(self.client()?, sql, &[segment, &self.header]).await?;
        Ok(())
    }

    async fn take(&mut self, bytes: &[u8], last_seq: u64) -> Result<(), Trouble> {
        let count = lines::split(bytes)?.len() as u64;
        let Some(first) = last_seq
            .checked_add(1)
            .and_then(|next| next.checked_sub(count))
        else {
            return Err(Trouble::Other("there are more lines than events".into()));
        };
        if first < self.next_seq {
            return Err(Trouble::Other(format!("event {first} comes twice")));
        }
        let Some(segment) = self.links.segments.last() else {
            return Err(Trouble::Other("the first line is no header".into()));
        };
        let batch = Batch::new(bytes, first, self.next_at)?;
        let sql = "INSERT INTO events (segment_id, seq, at, body) \
                   SELECT $1, u.seq, u.at, u.body FROM \
                   unnest($2::bigint[], $3::bigint[], $4::text[]) AS u (seq, at, body)";
        within(
            self.client()?,
            sql,
            &[segment, &batch.seqs, &batch.ats, &batch.bodies],
        )
        .await?;
        (self.next_seq, self.next_at) = (batch.next_seq, batch.end_at);
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Refusal> {
        let Some(segment) = self.links.segments.last().copied() else {
            return Err(Trouble::Other("there is no header".into()).into());
        };
        let client = self.client()?;
        if let Some(claim) = &self.claim {
            let (epoch, holder) = claim.claim();
            let new = Replaced {
                id: &self.id,
                epoch,
                holder,
                segment,
                header: &self.header,
                next_seq: self.next_seq,
                next_at: self.next_at,
            };
            new.swap(client).await?;
        } else {
            let nothing = Batch::new(b"", self.next_seq, self.next_at)?;
            let head = NewHead {
                id: &self.id,
                segment,
                header: &self.header,
                holder: None,
                lease_ms: 0.0,
                links: &self.links,
                batch: &nothing,
            };
            if !head.insert(client).await? {
                return Err(Refusal::Claim(ClaimError::AlreadyExists));
            }
        }
        client.batch_execute("COMMIT").await?;
        // The connection is as good as new.
        self.client = None;
        Ok(())
    }
}

fn doing(claim: Option<&PgWriter>) -> &'static str {
    match claim {
        Some(_) => "repairing",
        None => "importing",
    }
}

impl Drop for PgImport {
    fn drop(&mut self) {
        // Closing the connection rolls back what it holds.
        if let Some(client) = self.client.take() {
            drop(Client::take(client));
        }
    }
}

#[async_trait]
impl Import for PgImport {
    async fn header(&mut self, line: &[u8]) -> Result<(), BackendError> {
        let opened = self.open(line).await;
        opened.map_err(|trouble| self.failed(trouble))
    }

    async fn lines(&mut self, lines: &[u8], last_seq: u64) -> Result<(), BackendError> {
        let taken = self.take(lines, last_seq).await;
        taken.map_err(|trouble| self.failed(trouble))
    }

    async fn finish(mut self: Box<Self>) -> Result<(), ClaimError> {
        match self.end().await {
            Ok(()) => {
                self.inner.changed_now(&self.id);
                Ok(())
            }
            Err(Refusal::Claim(error)) => Err(error),
            Err(Refusal::Trouble(trouble)) => Err(trouble.claim(self.what())),
        }
    }
}
