//! Approvals, configuration and health.

use std::collections::BTreeMap;

use axum::{Extension, Json, extract::State};
use serde::Serialize;
use threadline_agent::{AnswerError, Answered, ApprovalInfo, Price, RunInput, limits::MAX_IMAGES};
use threadline_model::{Images, limits::MAX_IMAGE_BYTES};
use threadline_session::{
    RunId,
    payload::{ApprovalPolicy, SandboxMode},
};

use crate::{
    auth::Caller,
    error::{Code, Problem},
    grants,
    input::{self, Body, DecisionInput, Params, Path, limits},
    runs,
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
    let mut approvals = shared.agents.approvals().waiting(run.as_ref());
    // Questions of runs that died with their process are offered again.
    let mut offers = shared.agents.offers().await?;
    offers.retain(|offer| run.as_ref().is_none_or(|run| offer.run_id == *run));
    approvals.extend(offers);
    Ok(Json(Approvals { approvals }))
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
    let DecisionInput {
        answer,
        comment,
        prefix,
    } = input::decision(&body)?;
    if prefix.is_some() {
        grants::check_ceiling(&shared, "prefix")?;
    }
    let answered = Answered {
        answer,
        by: caller.name().into(),
        comment,
        prefix,
    };
    let board = shared.agents.approvals();
    match board.answer(&run, &call, answered.clone()) {
        Err(AnswerError::NotFound { .. }) => offer(&shared, run, call, answered).await?,
        other => other?,
    }
    Ok(Json(Decided { decision: answer }))
}

/// Answers a question that outlived its process.
async fn offer(
    shared: &Shared,
    run: RunId,
    call: String,
    answered: Answered,
) -> Result<(), Problem> {
    let offers = shared.agents.offers().await?;
    let session = offers
        .into_iter()
        .find(|offer| offer.run_id == run && offer.tool_call_id == call)
        .map(|offer| offer.session_id);
    shared.open()?;
    let mut input = RunInput::default();
    runs::bound(shared, session.as_ref(), &mut input).await?;
    // A client that goes away in the middle must not leave a turn behind that nobody drives.
    let agents = shared.agents.clone();
    let task = tokio::spawn(async move { agents.answer_offer(&run, &call, answered, input).await });
    let begun = task.await.map_err(|error| {
        Problem::new(Code::Internal, format!("starting the run broke: {error}"))
    })??;
    if let Some(run) = begun {
        shared.metrics.run_started();
        if shared.stopping.is_cancelled() {
            run.cancel();
        }
    }
    Ok(())
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
    /// The providers that a model may be chosen of, as `provider/model`.
    providers: Vec<String>,
    demonstration: bool,
    defaults: PolicyPair,
    ceiling: PolicyPair,
    limits: limits::Shown,
    /// What a million tokens cost, by `provider/model`, else by `provider`.
    prices: BTreeMap<String, ShownPrice>,
    images: ImageLimits,
}

/// What a million tokens of a model cost, in the unit that the configuration uses.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPrice {
    input: f64,
    cached_input: f64,
    output: f64,
}

impl From<&Price> for ShownPrice {
    fn from(price: &Price) -> Self {
        Self {
            input: price.input,
            cached_input: price.cached_input,
            output: price.output,
        }
    }
}

/// What images a message may have.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageLimits {
    /// How many at most.
    count: usize,
    /// Most bytes of one.
    bytes: usize,
    media_types: [&'static str; 4],
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
        providers: config.models.providers().map(str::to_owned).collect(),
        demonstration: shared.demonstration,
        // What a turn without a policy really runs under.
        defaults: pair(threadline_agent::policy::narrow(defaults, shared.ceiling)),
        ceiling: pair(shared.ceiling),
        limits: (&config.limits).into(),
        prices: config
            .prices
            .iter()
            .map(|(model, price)| (model.clone(), price.into()))
            .collect(),
        images: ImageLimits {
            count: MAX_IMAGES,
            bytes: MAX_IMAGE_BYTES,
            media_types: Images::MEDIA_TYPES,
        },
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
