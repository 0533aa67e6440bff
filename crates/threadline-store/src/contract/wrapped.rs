//! A backend over another one, for tests that change single answers of it.

use std::sync::Arc;

use async_trait::async_trait;
use threadline_session::{Base, Place, SessionId};

use crate::{
    Backend, BackendError, BlobId, BlobStat, Catalogue, Checkpoint, ClaimError, Damage,
    HeaderReadError, Import, NewLog, Page, ReadPos, Stat, StoredHeader, UserSummary, Writer,
};

/// A backend that passes everything on to another one, but for what it does itself.
#[async_trait]
pub trait Wrapped: Send + Sync + 'static {
    /// Returns the backend underneath.
    fn inner(&self) -> &dyn Backend;

    /// As [`Backend::address`].
    fn address(&self) -> String {
        self.inner().address()
    }

    /// As [`Backend::private_paths`].
    fn private_paths(&self) -> Vec<std::path::PathBuf> {
        self.inner().private_paths()
    }

    /// As [`Backend::catalogue`].
    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        self.inner().catalogue()
    }

    /// As [`Backend::header`].
    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        self.inner().header(id).await
    }

    /// As [`Backend::page`].
    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        self.inner().page(id, from, max_bytes).await
    }

    /// As [`Backend::lines`].
    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        self.inner().lines(id, wanted).await
    }

    /// As [`Backend::checkpoint`].
    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        self.inner().checkpoint(id, limit).await
    }

    /// As [`Backend::checkpoint_every`].
    fn checkpoint_every(&self) -> u64 {
        self.inner().checkpoint_every()
    }

    /// As [`Backend::stat`].
    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        self.inner().stat(id).await
    }

    /// As [`Backend::ids`].
    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        self.inner().ids().await
    }

    /// As [`Backend::create`].
    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        self.inner().create(id, new).await
    }

    /// As [`Backend::cut`].
    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        self.inner().cut(id, last_seq).await
    }

    /// As [`Backend::claim`].
    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        self.inner().claim(id).await
    }

    /// As [`Backend::take_over`].
    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        self.inner().take_over(id).await
    }

    /// As [`Backend::changed`].
    async fn changed(&self, id: &SessionId) {
        self.inner().changed(id).await;
    }

    /// As [`Backend::summary`].
    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        self.inner().summary(id).await
    }

    /// As [`Backend::put_summary`].
    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        self.inner().put_summary(id, expected, summary).await
    }

    /// As [`Backend::delete`].
    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        self.inner().delete(id).await
    }

    /// As [`Backend::put_blob`].
    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner().put_blob(id, bytes).await
    }

    /// As [`Backend::get_blob`].
    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        self.inner().get_blob(id).await
    }

    /// As [`Backend::blobs`].
    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        self.inner().blobs().await
    }

    /// As [`Backend::delete_blob`].
    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        self.inner().delete_blob(stat).await
    }

    /// As [`Backend::blob_names`].
    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut std::collections::HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        self.inner().blob_names(id, found).await
    }

    /// As [`Backend::import`].
    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        self.inner().import(id).await
    }

    /// As [`Backend::replace`].
    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        self.inner().replace(id).await
    }
}

#[async_trait]
impl<T: Wrapped> Backend for T {
    fn address(&self) -> String {
        Wrapped::address(self)
    }

    fn private_paths(&self) -> Vec<std::path::PathBuf> {
        Wrapped::private_paths(self)
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        Wrapped::catalogue(self)
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        Wrapped::header(self, id).await
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        Wrapped::page(self, id, from, max_bytes).await
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        Wrapped::lines(self, id, wanted).await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        Wrapped::checkpoint(self, id, limit).await
    }

    fn checkpoint_every(&self) -> u64 {
        Wrapped::checkpoint_every(self)
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        Wrapped::stat(self, id).await
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        Wrapped::ids(self).await
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        Wrapped::create(self, id, new).await
    }

    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        Wrapped::cut(self, id, last_seq).await
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Wrapped::claim(self, id).await
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Wrapped::take_over(self, id).await
    }

    async fn changed(&self, id: &SessionId) {
        Wrapped::changed(self, id).await;
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        Wrapped::summary(self, id).await
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        Wrapped::put_summary(self, id, expected, summary).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        Wrapped::delete(self, id).await
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        Wrapped::put_blob(self, id, bytes).await
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        Wrapped::get_blob(self, id).await
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        Wrapped::blobs(self).await
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        Wrapped::delete_blob(self, stat).await
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut std::collections::HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        Wrapped::blob_names(self, id, found).await
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Wrapped::import(self, id).await
    }

    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Wrapped::replace(self, id).await
    }
}
