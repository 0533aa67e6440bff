//! Rows in memory, for backends that keep no catalogue.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::Arc,
};

use async_trait::async_trait;
use threadline_session::SessionId;
use tokio::sync::Mutex;

use super::{Catalogue, CatalogueRow, ListKey};
use crate::{Backend, BackendError, ListFilter};

/// Rows by their places in lists.
#[derive(Debug, Clone, Default)]
pub struct MemoryRows {
    rows: BTreeMap<ListKey, CatalogueRow>,
    times: HashMap<SessionId, u64>,
}

impl MemoryRows {
    /// Stores a row in place of the session's last one.
    pub fn put(&mut self, row: CatalogueRow) {
        self.forget(&row.summary.id);
        let key = row.key();
        self.times.insert(key.1.clone(), key.0);
        self.rows.insert(key, row);
    }

    /// Removes a session's row, and returns it.
    pub fn forget(&mut self, id: &SessionId) -> Option<CatalogueRow> {
        let (id, time) = self.times.remove_entry(id)?;
        self.rows.remove(&(time, id))
    }

    /// Returns a session's row.
    #[must_use]
    pub fn get(&self, id: &SessionId) -> Option<&CatalogueRow> {
        let time = *self.times.get(id)?;
        self.rows.get(&(time, id.clone()))
    }

    /// Returns the rows that a filter admits after a key, in the order of lists.
    pub fn after<'a>(
        &'a self,
        filter: &'a ListFilter,
        after: Option<&ListKey>,
    ) -> impl Iterator<Item = &'a CatalogueRow> {
        let end = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.rows.range((Bound::Unbounded, end)).rev();
        rows.map(|(_, row)| row)
            .filter(|row| filter.admits(&row.summary))
            .filter(|row| !filter.roots || !self.has_parent(filter, row))
    }

    /// Returns whether a filter admits the parent of a row.
    fn has_parent(&self, filter: &ListFilter, row: &CatalogueRow) -> bool {
        let parent = row.summary.parent.as_ref();
        parent
            .and_then(|parent| self.get(&parent.id))
            .is_some_and(|parent| filter.admits(&parent.summary))
    }

    /// Returns all rows, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &CatalogueRow> {
        self.rows.values()
    }

    /// Removes all rows, and returns them.
    pub fn take(&mut self) -> Vec<CatalogueRow> {
        self.times.clear();
        std::mem::take(&mut self.rows).into_values().collect()
    }

    /// Returns how many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A catalogue that lives as long as its process. It looks at every session each time, which costs
/// a [`Backend::stat`] each.
pub struct MemoryCatalogue {
    backend: Arc<dyn Backend>,
    /// Held while the backend is asked whether a session is there, so that a row is never stored
    /// after its session was deleted and forgotten.
    rows: Arc<Mutex<MemoryRows>>,
}

impl MemoryCatalogue {
    /// Makes a catalogue of a backend's sessions.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::sharing(backend, Arc::default())
    }

    /// Makes a catalogue that shares its rows with others of the same sessions.
    #[must_use]
    pub fn sharing(backend: Arc<dyn Backend>, rows: Arc<Mutex<MemoryRows>>) -> Self {
        Self { backend, rows }
    }
}

#[async_trait]
impl Catalogue for MemoryCatalogue {
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError> {
        let mut there = HashMap::new();
        for id in self.backend.ids().await? {
            // One that cannot be looked at is a suspect too.
            let stat = self.backend.stat(&id).await.ok().flatten();
            there.insert(id, stat.map(|stat| (stat.stamp, stat.people)));
        }
        let rows = self.rows.lock().await;
        let mut suspects: Vec<ListKey> = Vec::new();
        for row in rows.iter() {
            let stale = match there.remove(&row.summary.id) {
                Some(stamps) => row.is_missing() || stamps != Some((row.stamp, row.people)),
                None => !row.is_missing(),
            };
            if stale {
                suspects.push(row.key());
            }
        }
        // What is not known yet may be the newest of all.
        suspects.extend(there.into_keys().map(|id| (u64::MAX, id)));
        suspects.sort_unstable_by(|a, b| b.cmp(a));
        Ok(suspects.into_iter().map(|(_, id)| id).collect())
    }

    async fn suspect(&self, _id: &SessionId) -> Result<(), BackendError> {
        Ok(())
    }

    async fn put(&self, new: Vec<CatalogueRow>) -> Result<(), BackendError> {
        let mut rows = self.rows.lock().await;
        for row in new {
            let id = &row.summary.id;
            let there = self
                .backend
                .stat(id)
                .await
                .map_or(true, |stat| stat.is_some());
            if there != row.is_missing() && (there || rows.get(id).is_some()) {
                rows.put(row);
            }
        }
        Ok(())
    }

    async fn forget(&self, id: &SessionId) -> Result<(), BackendError> {
        self.rows.lock().await.forget(id);
        Ok(())
    }

    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError> {
        Ok(self.rows.lock().await.get(id).cloned())
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError> {
        let rows = self.rows.lock().await;
        Ok(rows.after(filter, after).take(limit).cloned().collect())
    }

    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError> {
        Ok(self.rows.lock().await.after(filter, None).count() as u64)
    }

    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rows = self.rows.lock().await;
        Ok(rows.after(filter, None).nth(at).map(CatalogueRow::key))
    }

    async fn len(&self) -> Result<u64, BackendError> {
        Ok(self.rows.lock().await.len() as u64)
    }
}
