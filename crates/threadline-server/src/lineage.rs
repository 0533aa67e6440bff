//! Where a session comes from and what came of it: `GET /api/agent/sessions/{id}/lineage`.

use axum::{Json, extract::State};
use serde::Serialize;
use threadline_session::{Header, Origin, SessionId};
use threadline_store::{Archived, ListFilter, ReadError, SessionStore, SessionSummary};

use crate::{
    error::Problem,
    input::{self, Params, Path},
    limits::{MAX_ANCESTORS, RELATIVES},
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lineage {
    session: Relative,
    /// From the oldest to the session's parent.
    ancestors: Vec<Relative>,
    /// Whether there are older ones, which are not shown.
    older: bool,
    /// Other sessions with the same parent, newest activity first.
    siblings: Relatives,
    /// Forks of the session and children that its calls began, newest activity first.
    children: Relatives,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Relatives {
    sessions: Vec<Relative>,
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Relative {
    id: SessionId,
    /// How it came from its parent.
    kind: &'static str,
    /// The last event of the parent that it contains; of a child, that it was begun behind.
    at_seq: Option<u64>,
    /// `null` when it was deleted or cannot be read.
    summary: Option<SessionSummary>,
}

/// `GET /api/agent/sessions/{id}/lineage`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Lineage>, Problem> {
    let id = input::session_id(id)?;
    let store = shared.agents.store();
    let header = store.header(&id).await?.header;
    let mut siblings = Relatives::default();
    if let Some(parent) = &header.parent {
        siblings = relatives(store, &parent.id, params.get("siblings")).await?;
        siblings.sessions.retain(|sibling| sibling.id != id);
    }
    let children = relatives(store, &id, params.get("children")).await?;
    let (ancestors, older) = ancestors(store, &header).await?;
    Ok(Json(Lineage {
        session: relative(store, header).await?,
        ancestors,
        older,
        siblings,
        children,
    }))
}

async fn ancestors(
    store: &SessionStore,
    header: &Header,
) -> Result<(Vec<Relative>, bool), ReadError> {
    let mut found = Vec::new();
    let mut next = header.parent.clone();
    while let Some(parent) = next.take() {
        if found.len() == MAX_ANCESTORS {
            found.reverse();
            return Ok((found, true));
        }
        match header_of(store, &parent.id).await? {
            Some(header) => {
                next.clone_from(&header.parent);
                found.push(relative(store, header).await?);
            }
            None => found.push(Relative {
                id: parent.id,
                kind: "session",
                at_seq: None,
                summary: None,
            }),
        }
    }
    found.reverse();
    Ok((found, false))
}

async fn relatives(
    store: &SessionStore,
    parent: &SessionId,
    cursor: Option<&str>,
) -> Result<Relatives, Problem> {
    let filter = ListFilter {
        parent: Some(parent.clone()),
        archived: Archived::All,
        ..ListFilter::default()
    };
    let page = store.list(&filter, cursor, RELATIVES).await?;
    let mut sessions = Vec::new();
    for summary in page.sessions {
        let header = header_of(store, &summary.id).await?;
        sessions.push(Relative {
            id: summary.id.clone(),
            kind: header.as_ref().map_or("session", kind),
            at_seq: summary.parent.as_ref().map(|parent| parent.seq),
            summary: Some(summary),
        });
    }
    Ok(Relatives {
        sessions,
        next_cursor: page.next,
    })
}

/// Returns the header of a session; `None` when it was deleted or cannot be read.
async fn header_of(store: &SessionStore, id: &SessionId) -> Result<Option<Header>, ReadError> {
    match store.header(id).await {
        Ok(stored) => Ok(Some(stored.header)),
        Err(ReadError::NotFound { .. } | ReadError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn relative(store: &SessionStore, header: Header) -> Result<Relative, ReadError> {
    let summary = match store.summary(&header.id).await {
        Ok(summary) => Some(summary),
        Err(ReadError::NotFound { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Relative {
        kind: kind(&header),
        at_seq: header.parent.as_ref().map(|parent| parent.seq),
        id: header.id,
        summary,
    })
}

fn kind(header: &Header) -> &'static str {
    match (&header.origin, &header.parent) {
        (Origin::Subagent { .. }, _) => "subagent",
        (_, Some(_)) => "fork",
        _ => "session",
    }
}
