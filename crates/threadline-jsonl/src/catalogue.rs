//! `catalogue.sqlite`: a row for each session, so that a list need not look at all of them.
//!
//! Everything in it is derived. A file that cannot be had, or is held by somebody for too long, is
//! done without: rows that cannot be stored stay in memory. A file that is garbled is thrown away
//! and made anew.

mod database;
mod folders;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rusqlite::Connection;
use threadline_catalogue::{self as rows, Known, RowsError};
use threadline_session::SessionId;
use threadline_store::{BackendError, Catalogue, CatalogueRow, ListFilter, ListKey, MemoryRows};
use tokio::runtime::{Handle, RuntimeFlavor};

use self::{
    database::Database,
    folders::{Folders, place_of},
};
use crate::files::Files;

/// The catalogue of the sessions below a root folder.
#[derive(Debug, Clone)]
pub(crate) struct JsonlCatalogue {
    /// Never held while waiting for anything but the disk.
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    files: Files,
    database: Database,
    folders: Folders,
    /// What should be in the database and could not be put there.
    beside: Beside,
}

#[derive(Debug, Default)]
struct Beside {
    rows: MemoryRows,
    /// Sessions whose rows could not be removed.
    gone: HashSet<SessionId>,
    /// Sessions that could not be marked as being written.
    marked: HashSet<SessionId>,
    /// When a list tries next to bring all this in.
    retry: Option<Instant>,
}

impl Beside {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.gone.is_empty() && self.marked.is_empty()
    }
}

/// How often a list tries to bring in what stands beside the database, which may mean to wait.
const RETRY: Duration = Duration::from_secs(1);

impl JsonlCatalogue {
    /// Makes the catalogue of some sessions. Nothing is opened before it is needed.
    pub(crate) fn new(files: Files) -> Self {
        Self {
            held: Arc::new(Mutex::new(Held {
                database: Database::new(&files),
                folders: Folders::default(),
                beside: Beside::default(),
                files,
            })),
        }
    }

    async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Held) -> R + Send + 'static,
    ) -> Result<R, BackendError> {
        let held = Arc::clone(&self.held);
        let work = move || work(&mut held.lock().unwrap_or_else(PoisonError::into_inner));
        if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            return Ok(tokio::task::block_in_place(work));
        }
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| BackendError::new("working on the catalogue", error))
    }
}

#[async_trait]
impl Catalogue for JsonlCatalogue {
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError> {
        self.with(Held::suspects).await
    }

    async fn suspect(&self, id: &SessionId) -> Result<(), BackendError> {
        let id = id.clone();
        self.with(move |held| held.suspect(id)).await
    }

    async fn put(&self, rows: Vec<CatalogueRow>) -> Result<(), BackendError> {
        self.with(move |held| held.put(rows)).await
    }

    async fn forget(&self, id: &SessionId) -> Result<(), BackendError> {
        let id = id.clone();
        self.with(move |held| held.forget(id)).await
    }

    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError> {
        let id = id.clone();
        self.with(move |held| held.get(&id)).await
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.with(move |held| held.page(&filter, after.as_ref(), limit))
            .await
    }

    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError> {
        let filter = filter.clone();
        self.with(move |held| held.count(&filter)).await
    }

    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError> {
        let filter = filter.clone();
        self.with(move |held| held.key_at(&filter, at)).await
    }

    async fn len(&self) -> Result<u64, BackendError> {
        self.with(Held::len).await
    }
}

impl Held {
    /// Does something with the database; `None` when it cannot be done now.
    fn try_with<R>(
        &mut self,
        work: impl FnMut(&mut Connection) -> Result<R, RowsError>,
    ) -> Option<R> {
        let before = self.database.generation();
        let done = self.database.with(work);
        if self.database.generation() != before {
            // Another file: what is known of the folders was about the rows of the last one.
            self.folders = Folders::default();
        }
        done
    }

    fn suspects(&mut self) -> Vec<SessionId> {
        let retry = self
            .beside
            .retry
            .is_none_or(|retry| Instant::now() >= retry);
        if retry && !self.beside.is_empty() {
            self.bring_in();
        }
        // First, because it may begin a new file.
        let marked = self.try_with(|connection| rows::marked(connection));
        if !self.folders.is_loaded()
            && let Some(saved) = self.try_with(|connection| database::saved_folders(connection))
        {
            self.folders.load(saved);
        }
        let mut found: HashMap<SessionId, u64> = HashMap::new();
        found.extend(marked.into_iter().flatten().map(|(time, id)| (id, time)));
        for row in self.beside.rows.iter().filter(|row| row.written) {
            found.insert(row.summary.id.clone(), row.summary.updated_at);
        }
        found.extend(self.beside.marked.iter().map(|id| (id.clone(), u64::MAX)));
        let mut folders = std::mem::take(&mut self.folders);
        let files = self.files.clone();
        let generation = self.database.generation();
        folders.look(&files, |place| self.known_at(place));
        if generation == self.database.generation() {
            self.folders = folders;
        }
        found.extend(self.folders.suspects());
        let finished = self.folders.finished();
        if !finished.is_empty() {
            self.try_with(|connection| database::save_folders(connection, &finished));
        }
        for id in &self.beside.gone {
            found.remove(id);
        }
        let mut found: Vec<_> = found.into_iter().map(|(id, time)| (time, id)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, id)| id).collect()
    }

    fn known_at(&mut self, place: &str) -> HashMap<SessionId, Known> {
        let known = self.try_with(|connection| rows::known_at(connection, place));
        let mut known = known.unwrap_or_default();
        for id in &self.beside.gone {
            known.remove(id);
        }
        for row in self.beside.rows.iter() {
            if place_of(&row.summary.id) == place {
                let now = Known {
                    stamp: row.stamp,
                    people: row.people,
                    missing: row.is_missing(),
                };
                known.insert(row.summary.id.clone(), now);
            }
        }
        known
    }

    fn suspect(&mut self, id: SessionId) {
        if self
            .try_with(|connection| rows::mark(connection, &id))
            .is_none()
        {
            self.beside.marked.insert(id);
        }
    }

    fn put(&mut self, new: Vec<CatalogueRow>) {
        for row in &new {
            self.folders.settle(&row.summary.id);
        }
        let finished = self.folders.finished();
        let (files, beside) = (self.files.clone(), std::mem::take(&mut self.beside));
        let done = self.try_with(|connection| {
            store(connection, &files, &beside, &new)?;
            database::save_folders(connection, &finished)
        });
        if done.is_some() {
            return;
        }
        self.beside = beside;
        for mut row in new {
            let id = row.summary.id.clone();
            let before = self.get(&id);
            let marked = self.beside.marked.contains(&id);
            if fits(&self.files, &mut row, before.is_some(), marked) {
                if !row.written {
                    self.beside.marked.remove(&id);
                }
                self.beside.gone.remove(&id);
                self.beside.rows.put(row);
            }
        }
    }

    fn forget(&mut self, id: SessionId) {
        self.folders.settle(&id);
        self.beside.rows.forget(&id);
        self.beside.marked.remove(&id);
        self.beside.gone.insert(id);
        self.bring_in();
    }

    /// Brings what stands beside the database into it, if that can be done now.
    fn bring_in(&mut self) {
        let (files, beside) = (self.files.clone(), std::mem::take(&mut self.beside));
        let done = self.try_with(|connection| store(connection, &files, &beside, &[]));
        if done.is_none() {
            self.beside = Beside {
                retry: Some(Instant::now() + RETRY),
                ..beside
            };
        }
    }

    fn get(&mut self, id: &SessionId) -> Option<CatalogueRow> {
        if let Some(row) = self.beside.rows.get(id) {
            return Some(row.clone());
        }
        if self.beside.gone.contains(id) {
            return None;
        }
        self.try_with(|connection| rows::get(connection, id))
            .flatten()
    }

    fn page(
        &mut self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Vec<CatalogueRow> {
        let hidden = self.beside.rows.len() + self.beside.gone.len();
        let asked = limit.saturating_add(hidden);
        let found = self.try_with(|connection| rows::page(connection, filter, after, asked));
        let mut found = found.unwrap_or_default();
        if hidden > 0 {
            let Beside { rows, gone, .. } = &self.beside;
            found.retain(|row| {
                let id = &row.summary.id;
                rows.get(id).is_none() && !gone.contains(id)
            });
            found.extend(rows.after(filter, after).take(limit).cloned());
            found.sort_by_key(|row| std::cmp::Reverse(row.key()));
            found.truncate(limit);
        }
        found
    }

    fn count(&mut self, filter: &ListFilter) -> u64 {
        if self.beside.rows.is_empty() && self.beside.gone.is_empty() {
            let counted = self.try_with(|connection| rows::count(connection, filter));
            return counted.unwrap_or(0);
        }
        self.page(filter, None, usize::MAX).len() as u64
    }

    fn key_at(&mut self, filter: &ListFilter, at: u64) -> Option<ListKey> {
        if self.beside.rows.is_empty() && self.beside.gone.is_empty() {
            return self
                .try_with(|connection| rows::key_at(connection, filter, at))
                .flatten();
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let page = self.page(filter, None, at.saturating_add(1));
        page.get(at).map(CatalogueRow::key)
    }

    fn len(&mut self) -> u64 {
        let stored = self.try_with(|connection| rows::len(connection));
        let (files, beside) = (self.beside.rows.len(), self.beside.gone.len());
        let stored = stored.unwrap_or(0);
        // Rows that stand beside mostly replace none.
        (stored + files as u64).saturating_sub(beside as u64)
    }
}

/// Stores rows and what stood beside the database, all at once.
fn store(
    connection: &mut Connection,
    files: &Files,
    beside: &Beside,
    new: &[CatalogueRow],
) -> Result<(), RowsError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for id in &beside.gone {
        rows::forget(&transaction, id)?;
    }
    for id in &beside.marked {
        rows::mark(&transaction, id)?;
    }
    for row in beside.rows.iter().chain(new) {
        let mut row = row.clone();
        let id = row.summary.id.clone();
        let marked = beside.marked.contains(&id) || rows::is_marked(&transaction, &id)?;
        let before = marked || (row.is_missing() && rows::get(&transaction, &id)?.is_some());
        if fits(files, &mut row, before, marked) {
            rows::put_at(&transaction, &row, &place_of(&id))?;
        }
    }
    Ok(transaction.commit()?)
}

/// Returns whether a row may be stored in view of what is on the disk now, and puts right whether
/// somebody writes the session.
///
/// Called while nobody else can change the catalogue. Whoever deletes a session removes its row
/// after its files, so a row that is stored here while the files are there is removed in any case.
/// Whoever goes on with a session marks its row before the first byte, and holds the session's
/// lock; so a mark is taken away only when the log is still as the row says and nobody has it.
fn fits(files: &Files, row: &mut CatalogueRow, before: bool, marked: bool) -> bool {
    let id = &row.summary.id;
    if row.is_missing() {
        return before && matches!(files.stamps(&files.dir(id)), Ok(None));
    }
    if marked && !row.written {
        match files.stat(id) {
            Ok(Some(stat)) => row.written = stat.writer.is_some() || stat.stamp != row.stamp,
            Ok(None) => return false,
            Err(_) => row.written = true,
        }
        return true;
    }
    !matches!(files.stamps(&files.dir(id)), Ok(None))
}
