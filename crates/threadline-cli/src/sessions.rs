//! The store, and finding a session by what a person types.

use std::path::Path;

use threadline_session::SessionId;
use threadline_store::{Archived, ListFilter, ListPage, SessionStore, SessionSummary};

use crate::{
    failure::{Failure, Outcome},
    text,
    ui::Ui,
};

/// Code of a failure.
const NOT_FOUND: &str = "session_not_found";
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
            NOT_FOUND,
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
    let rows = all(store, &filter).await?.rows;
    let is = |row: &&SessionSummary| {
        row.title
            .as_ref()
            .is_some_and(|title| title.to_lowercase() == wanted)
    };
    Ok(rows.iter().filter(is).map(|row| row.id.clone()).collect())
}

/// Finds the session that others may have been forked from. It may be gone while its forks are
/// there; then its whole id names it.
///
/// # Errors
/// Not found, or ambiguous with the candidates listed.
pub(crate) async fn find_parent(store: &SessionStore, text: &str) -> Outcome<SessionId> {
    let failure = match find(store, text).await {
        Err(failure) if failure.code == NOT_FOUND => failure,
        found => return found,
    };
    let Ok(id) = SessionId::parse(text.trim()) else {
        return Err(failure);
    };
    let filter = ListFilter {
        archived: Archived::All,
        parent: Some(id.clone()),
        ..ListFilter::default()
    };
    if store.list(&filter, None, 1).await?.sessions.is_empty() {
        return Err(failure);
    }
    Ok(id)
}

/// Returns the session of a folder that was active last; if there is none, that of another folder,
/// which is said aloud.
///
/// # Errors
/// There is no session at all.
pub(crate) async fn last(ui: Ui, store: &SessionStore, cwd: &Path) -> Outcome<SessionId> {
    let shown = cwd.to_string_lossy().into_owned();
    let here = ListFilter {
        cwd: Some(shown.clone()),
        ..ListFilter::default()
    };
    let mut found = store.list(&here, None, 1).await?.sessions;
    if found.is_empty() {
        found = store.list(&ListFilter::default(), None, 1).await?.sessions;
    }
    let Some(row) = found.into_iter().next() else {
        return Err(Failure::new(
            NOT_FOUND,
            format!("no session of {shown} to go on with in {}", store.address()),
        )
        .hint("begin one with `threadline run TASK`, or list archived ones with `threadline ls --archived`"));
    };
    if row.cwd != shown {
        ui.warning(&format!(
            "no session of {shown}: the last one of another folder goes on, in {}",
            text::line(&row.cwd, 500)
        ));
    }
    ui.note(&format!("Continuing session {}: {}", row.id, about(&row)));
    Ok(row.id)
}

/// What a list holds.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) rows: Vec<SessionSummary>,
    /// While the catalogue is being rebuilt, how many sessions are still to be looked at.
    pub(crate) rebuilding: Option<u64>,
}

impl Listed {
    /// Adds a page, and returns where the next one starts.
    fn add(&mut self, page: ListPage) -> Option<String> {
        self.rows.extend(page.sessions);
        // What one page lacked, no later page brings.
        self.rebuilding = page.rebuilding.or(self.rebuilding);
        page.next
    }
}

/// Lists all sessions that a filter lets through, newest activity first.
pub(crate) async fn all(store: &SessionStore, filter: &ListFilter) -> Outcome<Listed> {
    let mut listed = Listed::default();
    let mut cursor: Option<String> = None;
    loop {
        let page = store.list(filter, cursor.as_deref(), PAGE).await?;
        cursor = listed.add(page);
        if cursor.is_none() {
            return Ok(listed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_unfinished_if_any_of_its_pages_was() {
        let rebuilding = |pages: &[Option<u64>]| {
            let mut listed = Listed::default();
            for rebuilding in pages {
                listed.add(ListPage {
                    sessions: Vec::new(),
                    next: None,
                    rebuilding: *rebuilding,
                });
            }
            listed.rebuilding
        };
        assert_eq!(rebuilding(&[None, None]), None);
        assert_eq!(rebuilding(&[Some(9), Some(4), None]), Some(4));
    }
}
