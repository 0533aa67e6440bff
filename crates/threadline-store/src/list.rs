//! Lists of sessions: made from the catalogue, and checked against the sessions.
//!
//! 1. What the catalogue suspects is looked at, newest first, as far as a list may take time for
//!    it. The rest is left to one task of the store.
//! 2. A page of rows is taken.
//! 3. Each row that is shown is checked with one look at its session. When one is stale, its row
//!    is made anew and the page is taken again, because the row may belong elsewhere.

mod derive;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use threadline_session::{SessionId, payload::ModelRef};

use self::derive::Found;
use crate::{
    Backend, BackendError, Catalogue, CatalogueRow, ListError, ListKey, MemoryCatalogue,
    SessionStatus, SessionStore, SessionSummary, Stamp, Stat,
    limits::{LIST_LOOK_TIME, LIST_LOOKS, MAX_LIST_LIMIT},
};

/// Which sessions a list shows as far as archiving goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Archived {
    /// Those that are not put away.
    #[default]
    No,
    /// Only those that are.
    Only,
    /// Both.
    All,
}

/// Which sessions a list shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListFilter {
    /// Words that the title, the first prompt, the tags or the id must contain, whatever their
    /// case.
    pub query: Option<String>,
    /// Archived or not.
    pub archived: Archived,
    /// Working directory.
    pub cwd: Option<String>,
    /// How a session stands.
    pub status: Option<SessionStatus>,
    /// The session that those shown were forked from.
    pub parent: Option<SessionId>,
    /// Pinned or not.
    pub pinned: Option<bool>,
    /// The model that a session used last.
    pub model: Option<ModelRef>,
    /// Only sessions whose parent is not one of those that the rest of the filter admits, so that
    /// a list of trees shows each session once: here, or below its parent.
    pub roots: bool,
}

impl ListFilter {
    /// Returns the words of the query. Each must be in [`search_text`], or be what the session's id
    /// begins with: anywhere in an id, a `2` would be found in nearly all.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let query = self.query.as_deref().unwrap_or_default().to_lowercase();
        query.split_whitespace().map(str::to_owned).collect()
    }

    /// Returns the statuses of rows in a catalogue that may be shown with the wanted one; empty
    /// when all are wanted. A row says that a turn is open; whether it was cut short is seen when
    /// it is shown.
    #[must_use]
    pub fn stored_statuses(&self) -> &'static [SessionStatus] {
        use SessionStatus::{Damaged, Idle, Interrupted, Missing, Running, Unsupported, Waiting};
        match self.status {
            None => &[],
            Some(Idle) => &[Idle],
            Some(Running) => &[Running],
            Some(Waiting) => &[Waiting],
            Some(Interrupted) => &[Interrupted, Running, Waiting],
            Some(Damaged) => &[Damaged],
            Some(Unsupported) => &[Unsupported],
            Some(Missing) => &[Missing],
        }
    }

    /// Returns whether each row of a catalogue that it admits is shown, so that they may be counted
    /// without a look at their sessions.
    fn is_settled(&self) -> bool {
        use SessionStatus::{Interrupted, Running, Waiting};
        !matches!(self.status, Some(Running | Waiting | Interrupted))
    }

    /// Returns whether a row of a catalogue may be shown, as far as the row itself says;
    /// [`roots`](Self::roots) is for who knows the parent's.
    #[must_use]
    pub fn admits(&self, row: &SessionSummary) -> bool {
        let archived = match self.archived {
            Archived::No => !row.archived,
            Archived::Only => row.archived,
            Archived::All => true,
        };
        let statuses = self.stored_statuses();
        let parent = row.parent.as_ref().map(|parent| &parent.id);
        archived
            && self.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd)
            && (statuses.is_empty() || statuses.contains(&row.status))
            && (self.parent.is_none() || self.parent.as_ref() == parent)
            && self.pinned.is_none_or(|pinned| pinned == row.pinned)
            && (self.model.is_none() || self.model == row.model)
            && self.finds(row)
    }

    fn finds(&self, row: &SessionSummary) -> bool {
        let words = self.words();
        if words.is_empty() {
            return true;
        }
        let text = search_text(row);
        let id = row.id.as_str().to_lowercase();
        words
            .iter()
            .all(|word| text.contains(word) || id.starts_with(word))
    }
}

/// Returns the text that a query searches: title, first prompt and tags in small letters.
#[must_use]
pub fn search_text(row: &SessionSummary) -> String {
    let texts = [row.title.as_deref(), row.first_prompt.as_deref()];
    let mut text = String::new();
    for part in texts.into_iter().flatten() {
        text.push_str(part);
        text.push('\n');
    }
    for tag in &row.tags {
        text.push_str(tag);
        text.push('\n');
    }
    text.to_lowercase()
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    /// Rows.
    pub sessions: Vec<SessionSummary>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
    /// While the catalogue is being rebuilt, how many sessions are still to be looked at; the list
    /// may lack them, or show them as they were.
    pub rebuilding: Option<u64>,
}

/// What a store keeps for its lists.
pub(crate) struct Lists {
    catalogue: Arc<dyn Catalogue>,
    /// Whether a task of this store is catching up.
    busy: AtomicBool,
}

impl Lists {
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Self {
        let in_memory = || Arc::new(MemoryCatalogue::new(backend.clone())) as Arc<dyn Catalogue>;
        Self {
            catalogue: backend.catalogue().unwrap_or_else(in_memory),
            busy: AtomicBool::new(false),
        }
    }

    /// Ends the row of a session that was deleted. Returns whether there was one.
    pub(crate) async fn forget(&self, id: &SessionId) -> bool {
        let known = matches!(self.catalogue.get(id).await, Ok(Some(_)));
        if let Err(error) = self.catalogue.forget(id).await {
            tracing::warn!(%id, %error, "the row of a deleted session could not be removed");
        }
        known
    }
}

/// Sessions looked at between two puts into the catalogue: while a list waits, and by the task.
const FEW: usize = 32;
const MANY: usize = 512;

/// How often a page is taken again because rows in it were stale. Rows made by the same list do
/// not count as stale again.
const ROUNDS: usize = 16;

/// Errors that another look, or another program, may not meet again.
const FLEETING: [&str; 2] = ["unreadable", "unsupported"];

impl CatalogueRow {
    /// Returns whether the row still says what the session is.
    fn fits(&self, stat: Option<&Stat>) -> bool {
        let Some(stat) = stat else {
            return self.is_missing();
        };
        let error = self.summary.error.as_ref();
        let fleeting = error.is_some_and(|error| FLEETING.contains(&error.code.as_ref()));
        self.stamp == stat.stamp && self.people == stat.people && !self.is_missing() && !fleeting
    }
}

/// Returns what is shown of a row, given whether somebody writes the session now.
fn show(store: &SessionStore, row: CatalogueRow, written: bool) -> SessionSummary {
    let mut summary = row.summary;
    summary.durability = store.durability();
    summary.status = match summary.status {
        SessionStatus::Running | SessionStatus::Waiting if !written => SessionStatus::Interrupted,
        status => status,
    };
    summary
}

fn missing(store: &SessionStore, mut row: CatalogueRow) -> CatalogueRow {
    let message = format!(
        "the files of session {} are gone from {}, where they were last seen with {} bytes of log; \
         bring them back, or delete the session here too",
        row.summary.id,
        store.address(),
        row.summary.bytes
    );
    row.summary.status = SessionStatus::Missing;
    row.summary.error = Some(derive::plain("missing", message));
    row.stamp = Stamp::default();
    row.people = Stamp::default();
    row.written = false;
    row
}

fn unreadable(mut row: CatalogueRow, error: &BackendError) -> CatalogueRow {
    derive::fail(&mut row.summary, derive::unreadable(error));
    row
}

fn parse_cursor(cursor: &str) -> Option<ListKey> {
    let (time, id) = cursor.split_once('.')?;
    Some((time.parse().ok()?, SessionId::parse(id).ok()?))
}

impl SessionStore {
    /// Lists sessions, newest activity first. A damaged session is a row with a status, and so is
    /// one whose files are gone.
    ///
    /// # Errors
    /// [`ListError`].
    pub async fn list(
        &self,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ListPage, ListError> {
        let after = match cursor {
            None => None,
            Some(cursor) => Some(parse_cursor(cursor).ok_or(ListError::Cursor)?),
        };
        let rebuilding = self.look_at_suspects().await?;
        Ok(self.page(filter, after, limit, rebuilding).await?)
    }

    /// Lists sessions as [`list`](Self::list) does, without the first `skip` of them, so that a
    /// scroll bar may be dragged to any place. What changes meanwhile moves the places.
    ///
    /// # Errors
    /// [`ListError`].
    pub async fn list_at(
        &self,
        filter: &ListFilter,
        skip: u64,
        limit: usize,
    ) -> Result<ListPage, ListError> {
        let rebuilding = self.look_at_suspects().await?;
        let Some(before) = skip.checked_sub(1) else {
            return Ok(self.page(filter, None, limit, rebuilding).await?);
        };
        let key = if filter.is_settled() {
            self.lists().catalogue.key_at(filter, before).await?
        } else {
            self.walk(filter, Some(before)).await?.1
        };
        Ok(match key {
            Some(key) => self.page(filter, Some(key), limit, rebuilding).await?,
            None => ListPage {
                sessions: Vec::new(),
                next: None,
                rebuilding,
            },
        })
    }

    /// Counts the sessions that a list with this filter shows. Those of a status that depends on
    /// who writes them now are looked at one by one.
    ///
    /// # Errors
    /// [`ListError`].
    pub async fn count(&self, filter: &ListFilter) -> Result<u64, ListError> {
        if filter.is_settled() {
            return Ok(self.lists().catalogue.count(filter).await?);
        }
        Ok(self.walk(filter, None).await?.0)
    }

    /// Goes through what a list shows, up to the row at a place or to the end. Returns how many
    /// rows that were and the key of that row.
    async fn walk(
        &self,
        filter: &ListFilter,
        to: Option<u64>,
    ) -> Result<(u64, Option<ListKey>), BackendError> {
        let (mut seen, mut after) = (0, None);
        loop {
            let rows = self.rows(filter, after, MAX_LIST_LIMIT).await?;
            let more = rows.len() >= MAX_LIST_LIMIT;
            let at = to.and_then(|to| usize::try_from(to.saturating_sub(seen)).ok());
            if let Some(row) = at.and_then(|at| rows.get(at)) {
                return Ok((seen, Some((row.updated_at, row.id.clone()))));
            }
            seen += rows.len() as u64;
            after = rows.last().map(|row| (row.updated_at, row.id.clone()));
            if !more {
                return Ok((seen, None));
            }
        }
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<ListKey>,
        limit: usize,
        rebuilding: Option<u64>,
    ) -> Result<ListPage, BackendError> {
        let limit = limit.clamp(1, MAX_LIST_LIMIT);
        let mut sessions = self.rows(filter, after, limit + 1).await?;
        let more = sessions.len() > limit;
        sessions.truncate(limit);
        let next = sessions
            .last()
            .filter(|_| more)
            .map(|row| format!("{}.{}", row.updated_at, row.id));
        Ok(ListPage {
            sessions,
            next,
            rebuilding,
        })
    }

    /// Returns the row that lists show of one session.
    ///
    /// # Errors
    /// [`ReadError`](crate::ReadError).
    pub async fn summary(&self, id: &SessionId) -> Result<SessionSummary, crate::ReadError> {
        let stat = self.stat(id).await?;
        let catalogue = &self.lists().catalogue;
        let known = catalogue.get(id).await.ok().flatten();
        let row = match known {
            Some(row) if row.fits(Some(&stat)) => row,
            Some(mut row) if row.fits(Some(&with_people(&stat, row.people))) => {
                derive::take_people(self, &mut row.summary).await;
                row.people = stat.people;
                row.written = stat.writer.is_some();
                self.keep(vec![row.clone()]).await;
                row
            }
            _ => {
                let row = derive::of(self, id, &stat).await;
                self.keep(vec![row.clone()]).await;
                row
            }
        };
        Ok(show(self, row, stat.writer.is_some()))
    }

    /// Looks at everything that the catalogue suspects, and returns once it is done. Afterwards a
    /// list lacks nothing that was there before.
    ///
    /// # Errors
    /// [`BackendError`].
    pub async fn catch_up(&self) -> Result<(), BackendError> {
        let suspects = self.lists().catalogue.suspects().await?;
        for some in suspects.chunks(MANY) {
            self.look_at(some).await;
        }
        Ok(())
    }

    /// Notes that a session that was there before is about to change, so that lists look at it
    /// although its row may be far from every page that is shown. A new session needs no note.
    pub(crate) async fn touched(&self, id: &SessionId) {
        if let Err(error) = self.lists().catalogue.suspect(id).await {
            tracing::warn!(%id, %error, "lists may show this session late");
        }
    }

    async fn keep(&self, rows: Vec<CatalogueRow>) {
        if let Err(error) = self.lists().catalogue.put(rows).await {
            tracing::warn!(%error, "the catalogue could not be written");
        }
    }

    /// Looks at suspects as far as a list may wait for it, and leaves the others to a task.
    /// Returns how many those are.
    async fn look_at_suspects(&self) -> Result<Option<u64>, BackendError> {
        let suspects = self.lists().catalogue.suspects().await?;
        let start = Instant::now();
        let mut done = 0;
        // A task that is under way takes the newest first too, so the list need not do as many.
        let enough = if self.lists().busy.load(Ordering::Acquire) {
            FEW
        } else {
            LIST_LOOKS
        };
        for some in suspects.chunks(FEW) {
            if done >= enough && (enough == FEW || start.elapsed() >= LIST_LOOK_TIME) {
                break;
            }
            self.look_at(some).await;
            done += some.len();
        }
        let rest = suspects.get(done..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        self.catch_up_behind(rest.to_vec());
        Ok(Some(rest.len() as u64))
    }

    /// Starts the task that looks at suspects, unless it is running.
    fn catch_up_behind(&self, rest: Vec<SessionId>) {
        let lists = Arc::clone(self.lists());
        if lists.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let busy = NotBusy(lists);
        let store = self.downgrade();
        tokio::spawn(async move {
            let _busy = busy;
            for some in rest.chunks(MANY) {
                // A store that nobody has any more needs no catalogue.
                let Some(store) = store.upgrade() else { break };
                store.look_at(some).await;
            }
        });
    }

    /// Puts the rows of sessions right.
    async fn look_at(&self, ids: &[SessionId]) {
        let catalogue = &self.lists().catalogue;
        let (mut stale, mut rows, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            match catalogue.get(id).await {
                Ok(Some(row)) => known.push(row),
                Ok(None) | Err(_) => stale.push(id.clone()),
            }
        }
        let ids: Vec<_> = known.iter().map(|row| row.summary.id.clone()).collect();
        let stats = self.backend().stats(&ids).await;
        for (row, stat) in known.into_iter().zip(stats) {
            match stat {
                Ok(None) => rows.push(missing(self, row)),
                // It is suspected only because it was being written.
                Ok(Some(stat)) if row.fits(Some(&stat)) => {
                    if stat.writer.is_none() {
                        rows.push(CatalogueRow {
                            written: false,
                            ..row
                        });
                    }
                }
                Ok(Some(_)) => stale.push(row.summary.id),
                Err(error) => rows.push(unreadable(row, &error)),
            }
        }
        for found in derive::derive_all(self, &stale).await {
            match found {
                Found::Row(row) => rows.push(*row),
                Found::Nothing(id) => match catalogue.get(&id).await {
                    Ok(Some(row)) => rows.push(missing(self, row)),
                    Ok(None) => drop(catalogue.forget(&id).await),
                    Err(error) => tracing::warn!(%error, "the catalogue could not be read"),
                },
            }
        }
        if !rows.is_empty() {
            self.keep(rows).await;
        }
    }

    /// Takes rows of a list, each checked.
    async fn rows(
        &self,
        filter: &ListFilter,
        after: Option<ListKey>,
        wanted: usize,
    ) -> Result<Vec<SessionSummary>, BackendError> {
        let (mut looked, mut round) = (HashSet::new(), 0);
        loop {
            round += 1;
            let strict = round < ROUNDS;
            let tried = self.try_rows(filter, after.clone(), wanted, &looked, strict);
            match tried.await? {
                Ok(rows) => return Ok(rows),
                Err(stale) => {
                    self.look_at(&stale).await;
                    looked.extend(stale);
                }
            }
        }
    }

    /// Takes rows of a list, or says which of them are stale.
    async fn try_rows(
        &self,
        filter: &ListFilter,
        mut after: Option<ListKey>,
        wanted: usize,
        looked: &HashSet<SessionId>,
        strict: bool,
    ) -> Result<Result<Vec<SessionSummary>, Vec<SessionId>>, BackendError> {
        let mut shown = Vec::new();
        loop {
            let asked = wanted - shown.len();
            let rows = self
                .lists()
                .catalogue
                .page(filter, after.as_ref(), asked)
                .await?;
            let end = rows.len() < asked;
            after = rows.last().map(CatalogueRow::key).or(after);
            let ids: Vec<_> = rows.iter().map(|row| row.summary.id.clone()).collect();
            let stats = self.backend().stats(&ids).await;
            let stats = stats
                .into_iter()
                .map(Result::ok)
                .chain(std::iter::repeat(None));
            let mut stale = Vec::new();
            for (row, stat) in rows.into_iter().zip(stats) {
                let made_now = !strict || looked.contains(&row.summary.id);
                let fits = stat.as_ref().is_some_and(|stat| row.fits(stat.as_ref()));
                if !fits && !made_now {
                    stale.push(row.summary.id);
                    continue;
                }
                let written = stat.flatten().is_some_and(|stat| stat.writer.is_some());
                let row = show(self, row, written);
                // Only now it is known how the session stands.
                if filter.status.is_none_or(|status| status == row.status) {
                    shown.push(row);
                }
            }
            if !stale.is_empty() && strict {
                return Ok(Err(stale));
            }
            if end || shown.len() >= wanted {
                return Ok(Ok(shown));
            }
        }
    }
}

fn with_people(stat: &Stat, people: Stamp) -> Stat {
    Stat {
        people,
        ..stat.clone()
    }
}

/// Lets the next task begin, however this one ends.
struct NotBusy(Arc<Lists>);

impl Drop for NotBusy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
