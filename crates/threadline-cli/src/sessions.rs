//! The store, and finding a session by what a person types.

use threadline_session::SessionId;
use threadline_store::{Archived, ListFilter, SessionStore, SessionSummary};

use crate::{
    failure::{Failure, Outcome},
    text,
};

/// Most candidates that an ambiguous name lists.
const CANDIDATES: usize = 10;
/// Shortest beginning of an id that names a session.
const SHORTEST_PREFIX: usize = 4;
/// Rows asked for at once.
const PAGE: usize = 500;

/// Finds the one session that a text means: its id, the beginning of its id, or its title.
///
/// # Errors
/// Not found, or ambiguous with the candidates listed.
pub(crate) async fn find(store: &SessionStore, text: &str) -> Outcome<SessionId> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::usage("the session's name is empty")
            .hint("list the sessions with `threadline ls`"));
    }
    if let Ok(id) = SessionId::parse(text)
        && store.has(&id).await?
    {
        return Ok(id);
    }
    let mut found: Vec<SessionId> = Vec::new();
    if text.chars().count() >= SHORTEST_PREFIX {
        let wanted = text.to_lowercase();
        found = store.ids().await?;
        found.retain(|id| id.as_str().to_lowercase().starts_with(&wanted));
    }
    if found.is_empty() {
        found = titled(store, text).await?;
    }
    match found.as_slice() {
        [] => Err(Failure::new(
            "session_not_found",
            format!("there is no session `{text}` in {}", store.address()),
        )
        .hint("list the sessions with `threadline ls --all`")),
        [id] => Ok(id.clone()),
        several => Err(ambiguous(store, text, several).await),
    }
}

async fn titled(store: &SessionStore, text: &str) -> Outcome<Vec<SessionId>> {
    let wanted = text.to_lowercase();
    let filter = ListFilter {
        archived: Archived::All,
        ..ListFilter::default()
    };
    let rows = all(store, &filter).await?;
    let is = |row: &&SessionSummary| {
        row.title
            .as_ref()
            .is_some_and(|title| title.to_lowercase() == wanted)
    };
    Ok(rows.iter().filter(is).map(|row| row.id.clone()).collect())
}

/// Lists all sessions that a filter lets through, newest activity first.
pub(crate) async fn all(store: &SessionStore, filter: &ListFilter) -> Outcome<Vec<SessionSummary>> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list(filter, cursor.as_deref(), PAGE).await?;
        rows.extend(page.sessions);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(rows),
        }
    }
}

async fn ambiguous(store: &SessionStore, text: &str, ids: &[SessionId]) -> Failure {
    let mut ids = ids.to_vec();
    ids.sort();
    let mut message = format!("`{text}` names {} sessions:", ids.len());
    for id in ids.iter().rev().take(CANDIDATES) {
        let about = store
            .summary(id)
            .await
            .ok()
            .map(|row| about(&row))
            .unwrap_or_default();
        message.push_str(&format!("\n  {id}  {about}"));
    }
    if ids.len() > CANDIDATES {
        message.push_str(&format!("\n  and {} more", ids.len() - CANDIDATES));
    }
    Failure::new("ambiguous", message).hint("type the command again with more of the id")
}

/// Returns what a session is about: its title, or how it began.
pub(crate) fn about(row: &SessionSummary) -> String {
    let words = row
        .title
        .as_deref()
        .or(row.first_prompt.as_deref())
        .unwrap_or("(no prompt)");
    text::line(words, 60)
}
