//! A store in memory that takes nothing but what the log has.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use threadline_session::{Place, SessionId};
use threadline_store::{
    Backend, BackendError, Begun, BlobId, BlobStat, Checkpoint, ClaimError, Damage,
    HeaderReadError, Import, LogEnd, MemoryBackend, NewLog, Page, ReadPos, Stat, StoredHeader,
    UserSummary, WriteError, Writer,
};

use super::script::Script;

/// Memory behind a judge.
pub(super) struct Judged {
    memory: MemoryBackend,
    script: Arc<Script>,
}

impl Judged {
    pub(super) fn new(script: Arc<Script>) -> Self {
        Self {
            memory: MemoryBackend::new(),
            script,
        }
    }

    fn door(&self, writer: Box<dyn Writer>) -> Box<dyn Writer> {
        let script = self.script.clone();
        Box::new(Door { writer, script })
    }
}

#[async_trait]
impl Backend for Judged {
    fn address(&self) -> String {
        self.memory.address()
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        self.memory.header(id).await
    }

    async fn page(&self, id: &SessionId, from: ReadPos, most: usize) -> Result<Page, BackendError> {
        self.memory.page(id, from, most).await
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        self.memory.lines(id, wanted).await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        self.memory.checkpoint(id, limit).await
    }

    /// Nobody opens the copy a second time.
    fn checkpoint_every(&self) -> u64 {
        u64::MAX
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        self.memory.stat(id).await
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        self.memory.ids().await
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        let events = self.script.judge(&new.batch);
        let events = events.map_err(|what| ClaimError::StorageFull { what })?;
        let writer = self.memory.create(id, new).await?;
        self.script.note(events);
        Ok(self.door(writer))
    }

    async fn cut(
        &self,
        id: &SessionId,
        last_seq: u64,
    ) -> Result<Option<threadline_session::Base>, BackendError> {
        self.memory.cut(id, last_seq).await
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(self.door(self.memory.claim(id).await?))
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(self.door(self.memory.take_over(id).await?))
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        self.memory.summary(id).await
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        self.memory.put_summary(id, expected, summary).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        self.memory.delete(id).await
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        self.memory.put_blob(id, bytes).await
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        self.memory.get_blob(id).await
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        self.memory.blobs().await
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        self.memory.delete_blob(stat).await
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        self.memory.blob_names(id, found).await
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        self.memory.import(id).await
    }
}

struct Door {
    writer: Box<dyn Writer>,
    script: Arc<Script>,
}

#[async_trait]
impl Writer for Door {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        self.writer.begin(end).await
    }

    /// A refusal looks like a full storage: the loop stops at once, appends no end, and the writer
    /// can go on behind it.
    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        let events = self.script.judge(&batch);
        let events = events.map_err(|what| WriteError::StorageFull { what })?;
        let start = self.writer.append(batch, last_seq, sync).await?;
        self.script.note(events);
        Ok(start)
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        self.writer.sync().await
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        self.writer.put_checkpoint(state).await
    }
}
