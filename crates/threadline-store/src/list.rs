//! Lists of sessions.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use threadline_session::{SessionId, Status, payload::ModelRef};

use crate::{
    BackendError, Damage, ListError, ReadError, SessionStatus, SessionStore, SessionSummary, Stamp,
    Stat, error_chain, limits::MAX_LIST_LIMIT, store::ScanFacts, summary::SummaryError,
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
    /// Words that the title, the first prompt or the id must contain, whatever their case.
    pub query: Option<String>,
    /// Archived or not.
    pub archived: Archived,
    /// Working directory.
    pub cwd: Option<String>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    /// Rows.
    pub sessions: Vec<SessionSummary>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
}

#[derive(Debug, Clone)]
struct Derived {
    facts: threadline_session::Facts,
    created_at: u64,
    cwd: String,
    parent: Option<threadline_session::Parent>,
    status: Status,
    model: Option<ModelRef>,
    error: Option<SummaryError>,
}

/// Facts of logs that have not changed since they were read. Never the truth: each row is checked
/// against the stamp of its log.
#[derive(Debug, Default)]
pub(crate) struct FactsCache(Mutex<HashMap<SessionId, (Stamp, Derived)>>);

impl FactsCache {
    fn get(&self, id: &SessionId, stamp: Stamp) -> Option<Derived> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(id)
            .filter(|(seen, _)| *seen == stamp)
            .map(|(_, derived)| derived.clone())
    }

    pub(crate) fn forget(&self, id: &SessionId) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(id);
    }

    fn put(&self, id: &SessionId, stamp: Stamp, derived: &Derived) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(id.clone(), (stamp, derived.clone()));
    }
}

pub(crate) async fn row(
    store: &SessionStore,
    cache: &FactsCache,
    id: &SessionId,
    stat: Stat,
) -> Result<SessionSummary, BackendError> {
    let derived = match cache.get(id, stat.stamp) {
        Some(derived) => derived,
        None => {
            let derived = derive(store, id).await;
            cache.put(id, stat.stamp, &derived);
            derived
        }
    };
    let user = store.backend().summary(id).await.unwrap_or_default();
    let status = match derived.error.as_ref().map(|error| error.code) {
        Some("unsupported") => SessionStatus::Unsupported,
        Some(_) => SessionStatus::Damaged,
        None => SessionStatus::of(derived.status, stat.writer.is_some()),
    };
    Ok(SessionSummary {
        id: id.clone(),
        title: user.title,
        first_prompt: derived.facts.first_prompt,
        created_at: derived.created_at,
        updated_at: derived.facts.updated_at.max(derived.created_at),
        turns: derived.facts.turns,
        events: derived.facts.events,
        status,
        cwd: derived.cwd,
        model: derived.model,
        usage: derived.facts.usage,
        bytes: stat.bytes,
        archived: user.archived,
        pinned: user.pinned,
        tags: user.tags,
        revision: user.revision,
        parent: derived.parent,
        durability: store.durability(),
        error: derived.error,
    })
}

async fn derive(store: &SessionStore, id: &SessionId) -> Derived {
    let mut derived = Derived {
        facts: threadline_session::Facts::default(),
        created_at: id.as_uuid().map_or(0, uuid_ms),
        cwd: String::new(),
        parent: None,
        status: Status::Idle,
        model: None,
        error: None,
    };
    match store.header(id).await {
        Ok(stored) => {
            derived.created_at = stored.header.created_at;
            derived.cwd = stored.header.cwd.display();
            derived.parent = stored.header.parent;
        }
        Err(error) => {
            derived.error = Some(row_error(&error));
            return derived;
        }
    }
    match store.scan_facts(id).await {
        Ok(ScanFacts {
            facts,
            status,
            model,
            damage,
            unsupported,
        }) => {
            derived.facts = facts;
            derived.status = status;
            derived.model = model;
            derived.error = damage.as_ref().map(damage_error).or_else(|| {
                unsupported.map(|message| SummaryError {
                    code: "unsupported",
                    message,
                    file: None,
                    offset: None,
                    seq: None,
                })
            });
        }
        Err(error) => derived.error = Some(row_error(&error)),
    }
    derived
}

fn uuid_ms(id: uuid::Uuid) -> u64 {
    id.get_timestamp().map_or(0, |time| {
        let (secs, nanos) = time.to_unix();
        secs.saturating_mul(1000)
            .saturating_add(u64::from(nanos) / 1_000_000)
    })
}

fn damage_error(damage: &Damage) -> SummaryError {
    SummaryError {
        code: "damaged",
        message: damage.to_string(),
        file: Some(damage.file.clone()),
        offset: Some(damage.offset),
        seq: Some(damage.seq),
    }
}

fn row_error(error: &ReadError) -> SummaryError {
    let code = match error {
        ReadError::Corrupt { damage, .. } => return damage_error(damage),
        ReadError::Unsupported { .. } => "unsupported",
        ReadError::NotFound { .. } | ReadError::Backend(_) => "unreadable",
    };
    SummaryError {
        code,
        message: error_chain(error),
        file: None,
        offset: None,
        seq: None,
    }
}

/// Sort key, newest first: the larger comes first.
type Key = (u64, SessionId);

fn parse_cursor(cursor: &str) -> Option<Key> {
    let (time, id) = cursor.split_once('.')?;
    Some((time.parse().ok()?, SessionId::parse(id).ok()?))
}

pub(crate) async fn list(
    store: &SessionStore,
    cache: &FactsCache,
    filter: &ListFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<ListPage, ListError> {
    let limit = limit.clamp(1, MAX_LIST_LIMIT);
    let after = match cursor {
        None => None,
        Some(cursor) => Some(parse_cursor(cursor).ok_or(ListError::Cursor)?),
    };
    let mut rows = Vec::new();
    for id in store.backend().ids().await? {
        // Deleted between the listing and now.
        let Some(stat) = store.backend().stat(&id).await? else {
            continue;
        };
        let row = row(store, cache, &id, stat).await?;
        let key: Key = (row.updated_at, row.id.clone());
        if after.as_ref().is_none_or(|after| key < *after) && matches(filter, &row) {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|row| format!("{}.{}", row.updated_at, row.id));
    Ok(ListPage {
        sessions: rows,
        next,
    })
}

fn matches(filter: &ListFilter, row: &SessionSummary) -> bool {
    let archived = match filter.archived {
        Archived::No => !row.archived,
        Archived::Only => row.archived,
        Archived::All => true,
    };
    let cwd = filter.cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd);
    let words = filter.query.as_deref().unwrap_or_default().to_lowercase();
    let text = [
        row.title.as_deref(),
        row.first_prompt.as_deref(),
        Some(row.id.as_str()),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join("\n")
    .to_lowercase();
    archived && cwd && words.split_whitespace().all(|word| text.contains(word))
}
