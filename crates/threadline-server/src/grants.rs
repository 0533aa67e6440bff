//! What is approved for the rest of a session: shown, given and revoked.

use axum::{Extension, Json, extract::State, http::StatusCode};
use serde::Serialize;
use threadline_agent::{Allow, GrantError, StartError};
use threadline_session::{Covers, SessionGrant, payload::ApprovalPolicy};

use crate::{
    auth::Caller,
    error::{Code, Problem},
    input::{self, Body, Path},
    state::{Shared, State as Inside},
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Grant {
    grant_id: String,
    #[serde(flatten)]
    covers: Covers,
    by: String,
    granted_at: u64,
    /// The event that granted it.
    seq: u64,
}

impl From<SessionGrant> for Grant {
    fn from(grant: SessionGrant) -> Self {
        Self {
            grant_id: grant.id,
            covers: grant.covers,
            by: grant.by,
            granted_at: grant.time,
            seq: grant.seq,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Grants {
    grants: Vec<Grant>,
}

/// Refuses to approve what nobody has seen, where the server lets nothing through unasked.
pub(crate) fn check_ceiling(shared: &Inside, field: &str) -> Result<(), Problem> {
    if shared.ceiling.0 != ApprovalPolicy::Strict {
        return Ok(());
    }
    let detail =
        format!("`{field}` approves commands beforehand, which this server does not allow");
    Err(Problem::new(Code::PolicyCeiling, detail)
        .at(field)
        .hint("answer each question, or start the server with a higher ceiling"))
}

/// `GET /api/agent/sessions/{id}/grants`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Grants>, Problem> {
    let id = input::session_id(id)?;
    let grants = shared.agents.grants(&id).await?;
    Ok(Json(Grants {
        grants: grants.into_iter().map(Grant::from).collect(),
    }))
}

/// `POST /api/agent/sessions/{id}/grants`
pub(crate) async fn add(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Grant>), Problem> {
    let id = input::session_id(id)?;
    let prefix = input::grant(&body)?;
    check_ceiling(&shared, "prefix")?;
    shared.open()?;
    let allow = Allow {
        prefix,
        by: caller.name().into(),
    };
    // A client that goes away in the middle must not leave half of it behind.
    let agents = shared.agents.clone();
    let task = tokio::spawn(async move { agents.grant(&id, allow).await });
    let granted = task.await.map_err(broke)??;
    Ok((StatusCode::CREATED, Json(granted.into())))
}

/// `DELETE /api/agent/sessions/{id}/grants/{grantId}`
pub(crate) async fn revoke(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((id, grant)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id = input::session_id(id)?;
    let agents = shared.agents.clone();
    let task = tokio::spawn(async move { agents.revoke(&id, &grant, caller.name()).await });
    task.await.map_err(broke)??;
    Ok(StatusCode::NO_CONTENT)
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn broke(error: tokio::task::JoinError) -> Problem {
    Problem::new(
        Code::Internal,
        format!("changing the grants broke: {error}"),
    )
}

impl From<GrantError> for Problem {
    fn from(error: GrantError) -> Self {
        match error {
            GrantError::NotFound { .. } => Self::new(Code::GrantNotFound, error.to_string()),
            GrantError::Full => Self::new(Code::GrantsFull, error.to_string()),
            // Between two runs another request may hold the session for a moment.
            GrantError::Start(error @ StartError::Busy { .. }) => {
                Self::from(error).hint("another request has the session open; try again")
            }
            GrantError::Start(error) => error.into(),
        }
    }
}
