//! Rows of lists, made from the sessions themselves.

use futures_util::future::join_all;
use threadline_session::{
    SessionId,
    payload::{ModelRef, Usage},
};

use crate::{
    BackendError, CatalogueRow, Damage, ReadError, SessionStatus, SessionStore, SessionSummary,
    Stamp, Stat, StoredHeader, error_chain,
    scan::Scan,
    summary::{Durability, SummaryError},
};

/// Sessions that are read at the same time.
const AT_ONCE: usize = 4;

/// What was found of a session that a row was wanted of.
pub(super) enum Found {
    Row(Box<CatalogueRow>),
    /// There is no such session.
    Nothing(SessionId),
}

/// Makes the rows of sessions, in no order.
pub(super) async fn derive_all(store: &SessionStore, ids: &[SessionId]) -> Vec<Found> {
    if ids.len() <= 2 {
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.push(derive(store, id).await);
        }
        return found;
    }
    let parts = ids.chunks(ids.len().div_ceil(AT_ONCE)).map(|part| {
        let (store, part) = (store.clone(), part.to_vec());
        tokio::spawn(async move {
            let mut found = Vec::with_capacity(part.len());
            for id in &part {
                found.push(derive(&store, id).await);
            }
            found
        })
    });
    let done = join_all(parts.collect::<Vec<_>>()).await;
    done.into_iter().flatten().flatten().collect()
}

/// Makes a session's row.
pub(super) async fn derive(store: &SessionStore, id: &SessionId) -> Found {
    // Before anything is read: what changes while it is read makes the row stale, not wrong.
    match store.backend().stat(id).await {
        Ok(None) => Found::Nothing(id.clone()),
        Ok(Some(stat)) => Found::Row(Box::new(of(store, id, &stat).await)),
        Err(error) => {
            let mut summary = empty(id);
            fail(&mut summary, unreadable(&error));
            Found::Row(Box::new(CatalogueRow {
                summary,
                stamp: Stamp::default(),
                people: Stamp::default(),
                written: false,
            }))
        }
    }
}

/// Makes the row of a session that was looked at.
pub(super) async fn of(store: &SessionStore, id: &SessionId, stat: &Stat) -> CatalogueRow {
    let mut row = CatalogueRow {
        summary: empty(id),
        stamp: stat.stamp,
        people: stat.people,
        written: stat.writer.is_some(),
    };
    let summary = &mut row.summary;
    summary.bytes = stat.bytes;
    // On the heap: it holds the whole state of a log.
    match Box::pin(store.restore(id, None, false)).await {
        Ok(scan) => take_log(summary, scan),
        Err(error) => {
            if let Ok(stored) = store.header(id).await {
                take_header(summary, &stored);
            }
            fail(summary, read_error(&error));
        }
    }
    summary.updated_at = summary.updated_at.max(summary.created_at);
    take_people(store, summary).await;
    row
}

/// Puts in what people have set.
pub(super) async fn take_people(store: &SessionStore, summary: &mut SessionSummary) {
    let user = store.backend().summary(&summary.id).await;
    let user = user.unwrap_or_default();
    let made = || user.made_title.as_ref().map(|made| made.text.clone());
    summary.title = user.title.clone().or_else(made);
    summary.made_title = user.made_title.map(|made| *made);
    summary.archived = user.archived;
    summary.pinned = user.pinned;
    summary.tags = user.tags;
    summary.revision = user.revision;
    summary.people_damaged = user.damaged;
}

fn empty(id: &SessionId) -> SessionSummary {
    SessionSummary {
        id: id.clone(),
        title: None,
        made_title: None,
        first_prompt: None,
        created_at: id.as_uuid().map_or(0, uuid_ms),
        updated_at: id.as_uuid().map_or(0, uuid_ms),
        turns: 0,
        events: 0,
        status: SessionStatus::Idle,
        cwd: String::new(),
        model: None,
        usage: Usage::default(),
        subagent_usage: Usage::default(),
        bytes: 0,
        archived: false,
        pinned: false,
        tags: Vec::new(),
        revision: 0,
        parent: None,
        durability: Durability::default(),
        error: None,
        people_damaged: None,
    }
}

fn take_header(summary: &mut SessionSummary, stored: &StoredHeader) {
    summary.created_at = stored.header.created_at;
    summary.updated_at = stored.header.created_at;
    summary.cwd = stored.header.cwd.display();
    summary.parent.clone_from(&stored.header.parent);
}

fn take_log(summary: &mut SessionSummary, scan: Scan<threadline_session::Transcript>) {
    take_header(summary, &scan.header);
    let facts = scan.state.facts();
    summary.first_prompt.clone_from(&facts.first_prompt);
    summary.updated_at = facts.updated_at;
    summary.turns = facts.turns;
    summary.events = facts.events;
    summary.usage = facts.usage;
    summary.subagent_usage = facts.subagents;
    summary.model = scan.state.context().map(|context| ModelRef {
        provider: context.provider.clone(),
        name: context.model.clone(),
    });
    summary.status = SessionStatus::of(scan.state.status(), true);
    if let Some(damage) = scan.damage.first() {
        fail(summary, damage_error(damage));
    } else if let Some(reason) = scan.unsupported {
        fail(summary, plain("unsupported", reason));
    }
}

pub(super) fn fail(summary: &mut SessionSummary, error: SummaryError) {
    summary.status = match error.code.as_ref() {
        "unsupported" => SessionStatus::Unsupported,
        _ => SessionStatus::Damaged,
    };
    summary.error = Some(error);
}

fn uuid_ms(id: uuid::Uuid) -> u64 {
    id.get_timestamp().map_or(0, |time| {
        let (secs, nanos) = time.to_unix();
        secs.saturating_mul(1000)
            .saturating_add(u64::from(nanos) / 1_000_000)
    })
}

pub(super) fn plain(code: &'static str, message: String) -> SummaryError {
    SummaryError {
        code: code.into(),
        message,
        file: None,
        offset: None,
        seq: None,
    }
}

fn damage_error(damage: &Damage) -> SummaryError {
    SummaryError {
        code: "damaged".into(),
        message: damage.to_string(),
        file: Some(damage.file.clone()),
        offset: Some(damage.offset),
        seq: Some(damage.seq),
    }
}

pub(super) fn unreadable(error: &BackendError) -> SummaryError {
    plain("unreadable", error_chain(error))
}

fn read_error(error: &ReadError) -> SummaryError {
    let code = match error {
        ReadError::Corrupt { damage, .. } => return damage_error(damage),
        ReadError::Unsupported { .. } => "unsupported",
        ReadError::NotFound { .. } | ReadError::Backend(_) => "unreadable",
    };
    plain(code, error_chain(error))
}
