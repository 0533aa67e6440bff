//! The seam to what lists are made from: rows that are kept, and never believed.

mod memory;

use async_trait::async_trait;
use threadline_session::SessionId;

use crate::{BackendError, ListFilter, SessionSummary, Stamp};

pub use memory::{MemoryCatalogue, MemoryRows};

/// A row of a catalogue: what a list shows of a session, and the state of the session it was
/// taken from.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueRow {
    /// What is shown. Its status is the log's own: of an open turn it says `running` or `waiting`
    /// also when nobody writes the session any more, which a list finds out when it shows it.
    pub summary: SessionSummary,
    /// The log as it was then.
    pub stamp: Stamp,
    /// What people had set as it was then.
    pub people: Stamp,
    /// Whether somebody was writing the session then, so that the row is stale soon.
    pub written: bool,
}

impl CatalogueRow {
    /// Returns the row's place in lists.
    #[must_use]
    pub fn key(&self) -> ListKey {
        (self.summary.updated_at, self.summary.id.clone())
    }

    /// Returns whether the row says that the session's files are gone.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.summary.status == crate::SessionStatus::Missing
    }
}

/// Place of a row in a list: time of the last event, then id. Lists run from large to small.
pub type ListKey = (u64, SessionId);

/// Keeps one row for each session, so that a list need not look at every session.
///
/// It is derived and may be deleted, stale or garbled at any time. The store checks each row that
/// it shows against the session itself and puts it right. An implementation that finds its own
/// storage garbled begins anew instead of failing.
#[async_trait]
pub trait Catalogue: Send + Sync + 'static {
    /// Returns sessions whose rows may be missing or stale, or who may be gone, newest first, as
    /// far as can be told without looking at each session. A session stays among them until
    /// [`put`](Self::put) or [`forget`](Self::forget) has settled it.
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError>;

    /// Notes that a session is about to change, so that it is looked at even if nobody puts its
    /// new row.
    async fn suspect(&self, id: &SessionId) -> Result<(), BackendError>;

    /// Stores rows, replacing those of the same sessions. What is stored is no suspect any more,
    /// but for sessions that are being written.
    ///
    /// A session may have been deleted, or come back, since its row was made. So a row is passed
    /// over when there is no such session by now, and one that says `missing` is stored only in
    /// place of another, and only when there is none.
    async fn put(&self, rows: Vec<CatalogueRow>) -> Result<(), BackendError>;

    /// Removes a session's row. Whoever deletes a session calls this afterwards.
    async fn forget(&self, id: &SessionId) -> Result<(), BackendError>;

    /// Returns the row of one session.
    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError>;

    /// Returns up to `limit` rows that [a filter admits](ListFilter::admits), in the order of
    /// lists, that come after a key. Fewer than `limit` mean the end.
    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError>;

    /// Returns how many rows [a filter admits](ListFilter::admits).
    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError>;

    /// Returns the key of the row at a place among those that a filter admits, from 0.
    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError>;

    /// Returns how many rows there are.
    async fn len(&self) -> Result<u64, BackendError>;

    /// Returns whether there is no row.
    async fn is_empty(&self) -> Result<bool, BackendError> {
        Ok(self.len().await? == 0)
    }
}
