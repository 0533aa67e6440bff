//! Bringing in a session from another store: one transaction, on a connection of its own.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::Client;
use threadline_session::SessionId;
use threadline_store::{BackendError, ClaimError, Import};

use crate::{
    backend::Inner,
    db::{int, within},
    error::Trouble,
    head::{Links, NewHead},
    lease::random,
    lines::{self, Batch},
};

/// A session in the making. Nobody sees it before the transaction ends.
pub(crate) struct PgImport {
    inner: Arc<Inner>,
    id: SessionId,
    /// `None` once it is finished.
    client: Option<Client>,
    links: Links,
    /// The header line of the last segment.
    header: String,
    next_seq: u64,
    next_at: u64,
}

impl PgImport {
    pub(crate) async fn begin(inner: &Arc<Inner>, id: &SessionId) -> Result<Self, ClaimError> {
        let what = || inner.what("importing", id);
        let failed = |trouble: Trouble| trouble.claim(what());
        let taken = crate::read::stat(&inner.db, id).await.map_err(failed)?;
        if taken.is_some() {
            return Err(ClaimError::AlreadyExists);
        }
        let client = inner.db.client().await.map_err(failed)?;
        let begun = client.batch_execute("BEGIN").await;
        begun.map_err(|error| failed(error.into()))?;
        Ok(Self {
            inner: Arc::clone(inner),
            id: id.clone(),
            client: Some(client),
            links: Links::default(),
            header: String::new(),
            next_seq: 0,
            next_at: 0,
        })
    }

    fn failed(&self, trouble: Trouble) -> BackendError {
        trouble.backend(self.inner.what("importing", &self.id))
    }

    fn client(&self) -> Result<&Client, Trouble> {
        let over = || Trouble::Other("the import is over".into());
        self.client.as_ref().ok_or_else(over)
    }

    async fn open(&mut self, line: &[u8]) -> Result<(), Trouble> {
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

    async fn end(&mut self) -> Result<bool, Trouble> {
        let Some(segment) = self.links.segments.last().copied() else {
            return Err(Trouble::Other("there is no header".into()));
        };
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
        let client = self.client()?;
        if !head.insert(client).await? {
            return Ok(false);
        }
        client.batch_execute("COMMIT").await?;
        // The connection is as good as new.
        self.client = None;
        Ok(true)
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
            Ok(true) => {
                self.inner.changed_now(&self.id);
                Ok(())
            }
            Ok(false) => Err(ClaimError::AlreadyExists),
            Err(trouble) => Err(trouble.claim(self.inner.what("importing", &self.id))),
        }
    }
}
