//! Branching sessions, going back in them, and what is kept beside their logs.

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use threadline_agent::new_run_id;
use threadline_session::SessionId;
use threadline_store::{BlobId, MoveError};

use crate::{
    error::{Code, Problem},
    input::{self, Body, Path},
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Forked {
    id: SessionId,
    parent: SessionId,
    at_seq: u64,
    /// Events that close the turn in whose middle it was forked.
    closed: usize,
}

/// `POST /api/agent/sessions/{id}/fork`
pub(crate) async fn fork(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Forked>), Problem> {
    let parent = input::session_id(id)?;
    let at = input::fork_at(&body)?;
    let child = SessionId::from_first_run(&new_run_id());
    let forked = shared.agents.store().fork(&parent, at, child).await?;
    shared.changed();
    let forked = Forked {
        id: forked.id,
        parent: forked.parent,
        at_seq: forked.at_seq,
        closed: forked.closed,
    };
    Ok((StatusCode::CREATED, Json(forked)))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Moved {
    to_seq: u64,
    /// The event that says so.
    seq: u64,
}

/// `POST /api/agent/sessions/{id}/rewind`
pub(crate) async fn rewind(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Json<Moved>, Problem> {
    let id = input::session_id(id)?;
    let to = input::rewind_to(&body)?;
    let store = shared.agents.store().clone();
    let target = id.clone();
    moved(&shared, &id, async move { store.rewind(&target, to).await }).await
}

/// `POST /api/agent/sessions/{id}/redo`
pub(crate) async fn redo(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Moved>, Problem> {
    let id = input::session_id(id)?;
    let store = shared.agents.store().clone();
    let target = id.clone();
    moved(&shared, &id, async move { store.redo(&target).await }).await
}

/// Moves the history of a session that has no run. It is opened and let go again.
async fn moved(
    shared: &Shared,
    id: &SessionId,
    deed: impl Future<Output = Result<threadline_store::Moved, MoveError>> + Send + 'static,
) -> Result<Json<Moved>, Problem> {
    if shared.agents.running(id).is_some() {
        return Err(
            Problem::new(Code::SessionBusy, format!("session {id} has a run"))
                .hint("wait for the run to end, or cancel it"),
        );
    }
    // A client that goes away in the middle must not leave half of it behind.
    let task = tokio::spawn(deed);
    let moved = task.await.map_err(|error| {
        Problem::new(Code::Internal, format!("moving the history broke: {error}"))
    })??;
    shared.changed();
    Ok(Json(Moved {
        to_seq: moved.to_seq,
        seq: moved.seq,
    }))
}

/// `GET /api/agent/sessions/{id}/blobs/{blob}`
///
/// Only what the session's log names is given, so that an address says to whom a blob belongs.
pub(crate) async fn blob(
    State(shared): State<Shared>,
    Path((id, blob)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = input::session_id(id)?;
    let blob = BlobId::parse(&blob).map_err(|e| Problem::field("blob", e.to_string()))?;
    let store = shared.agents.store();
    let mut named = false;
    let read = store.each_event(&id, |line| {
        named = String::from_utf8_lossy(&line.raw).contains(blob.as_str());
        !named
    });
    read.await?;
    if !named {
        let detail = format!("session {id} names no blob {blob}");
        return Err(Problem::new(Code::BlobNotFound, detail));
    }
    let bytes = store.get_blob(&blob).await?;
    // Never shown by a browser as what it looks like: it is whatever a command has printed.
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{blob}\""))
        .map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (header::CONTENT_DISPOSITION, name),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    Ok((headers, bytes).into_response())
}
