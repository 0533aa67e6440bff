//! Approvals, configuration and health.

use axum::{Extension, Json, extract::State};
use serde::Serialize;
use threadline_agent::{Answered, ApprovalInfo};
use threadline_session::{
    RunId,
    payload::{ApprovalPolicy, SandboxMode},
};

use crate::{
    auth::Caller,
    error::Problem,
    input::{self, Body, Params, Path},
    state::Shared,
};

#[derive(Debug, Serialize)]
pub(crate) struct Approvals {
    approvals: Vec<ApprovalInfo>,
}

fn run_id(field: &str, text: &str) -> Result<RunId, Problem> {
    RunId::parse(text).map_err(|e| Problem::field(field, e.to_string()))
}

/// `GET /api/agent/approvals`
pub(crate) async fn approvals(
    State(shared): State<Shared>,
    params: Params,
) -> Result<Json<Approvals>, Problem> {
    let run = params
        .get("runId")
        .map(|id| run_id("runId", id))
        .transpose()?;
    Ok(Json(Approvals {
        approvals: shared.agents.approvals().waiting(run.as_ref()),
    }))
}

#[derive(Debug, Serialize)]
pub(crate) struct Decided {
    decision: threadline_agent::Answer,
}

/// `POST /api/agent/approvals/{runId}/{toolCallId}`
pub(crate) async fn decide(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((run, call)): Path<(String, String)>,
    Body(body): Body,
) -> Result<Json<Decided>, Problem> {
    let run = run_id("runId", &run)?;
    let (answer, comment) = input::decision(&body)?;
    let answered = Answered {
        answer,
        by: caller.name().into(),
        comment,
    };
    shared.agents.approvals().answer(&run, &call, answered)?;
    Ok(Json(Decided { decision: answer }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyPair {
    approval_policy: ApprovalPolicy,
    sandbox_mode: SandboxMode,
}

#[derive(Debug, Serialize)]
pub(crate) struct Config {
    version: String,
    cwd: String,
    store: String,
    provider: String,
    model: String,
    demonstration: bool,
    defaults: PolicyPair,
    ceiling: PolicyPair,
}

/// `GET /api/agent/config`
pub(crate) async fn config(State(shared): State<Shared>) -> Json<Config> {
    let config = shared.agents.config();
    let model = config.models.default_model();
    let pair = |(approval_policy, sandbox_mode)| PolicyPair {
        approval_policy,
        sandbox_mode,
    };
    let defaults = (
        config.defaults.approval_policy,
        config.defaults.sandbox_mode,
    );
    Json(Config {
        version: shared.version.clone(),
        cwd: config.defaults.cwd.display().to_string(),
        store: shared.agents.store().address(),
        provider: model.provider.clone(),
        model: model.name.clone(),
        demonstration: shared.demonstration,
        // What a turn without a policy really runs under.
        defaults: pair(threadline_agent::policy::narrow(defaults, shared.ceiling)),
        ceiling: pair(shared.ceiling),
    })
}

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: String,
}

/// `GET /healthz`
pub(crate) async fn health(State(shared): State<Shared>) -> Json<Health> {
    Json(Health {
        status: "ok",
        version: shared.version.clone(),
    })
}
