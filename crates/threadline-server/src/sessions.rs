//! Finding, showing, changing and ending sessions.

use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use threadline_session::{
    Header, Item, NormaliseReport, Payload, Request, RunId, SessionId, normalise,
    payload::{ModelRef, StepStart},
    types,
};
use threadline_store::{
    Archived, Damage, Entry, ListFilter, ReadError, ReadPos, SessionStore, SessionSummary,
    WindowAt,
    limits::{LIST_LIMIT, MAX_LIST_LIMIT},
};

use crate::{
    error::{Code, Problem},
    input::{self, Body, Params, Path, STATUSES},
    limits::{LOG_LIMIT, MAX_LOG_LIMIT, MAX_REQUEST_LIMIT, REQUEST_LIMIT},
    state::Shared,
};

type Answer<T> = Result<Json<T>, Problem>;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionPage {
    sessions: Vec<Listed>,
    next_cursor: Option<String>,
    /// Whether the list is still being made, so that it may lack sessions or show them as they
    /// were.
    rebuilding: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
}

/// A session in a list.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    summary: SessionSummary,
    /// In a list of trees, how many sessions it shows right below this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<u64>,
}

/// How many sessions there are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    /// Those that the list shows on all its pages.
    shown: u64,
    /// In a list of trees, those that it shows once all trees are open.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_trees: Option<u64>,
    /// All that are stored.
    all: u64,
}

fn model_in(text: &str) -> Result<ModelRef, Problem> {
    let (provider, name) = text
        .split_once('/')
        .ok_or_else(|| Problem::field("model", "it is no PROVIDER/MODEL"))?;
    Ok(ModelRef {
        provider: provider.to_owned(),
        name: name.to_owned(),
    })
}

/// What a list is asked to show, and whether as trees.
fn asked(params: &Params) -> Result<(ListFilter, bool), Problem> {
    let archived = [
        ("false", Archived::No),
        ("true", Archived::Only),
        ("all", Archived::All),
    ];
    let statuses = STATUSES.map(|(word, status)| (word, Some(status)));
    let pinned = [("true", Some(true)), ("false", Some(false))];
    let parent = params.get("parent");
    let filter = ListFilter {
        query: params.get("query").map(str::to_owned),
        archived: params.choice("archived", Archived::No, &archived)?,
        status: params.choice("status", None, &statuses)?,
        parent: parent.map(|id| input::id_in("parent", id)).transpose()?,
        cwd: params.get("cwd").map(str::to_owned),
        pinned: params.choice("pinned", None, &pinned)?,
        model: params.get("model").map(model_in).transpose()?,
        roots: false,
    };
    let tree = params.choice("tree", false, &[("1", true), ("0", false)])?;
    if tree && filter.status.is_some() {
        // Whether a parent runs is seen when it is shown, too late to say where its forks belong.
        let detail = "a list of trees takes no status";
        return Err(Problem::field("status", detail));
    }
    Ok((filter, tree))
}

/// `GET /api/agent/sessions`
pub(crate) async fn list(State(shared): State<Shared>, params: Params) -> Answer<SessionPage> {
    let (every, tree) = asked(&params)?;
    let filter = ListFilter {
        roots: tree && every.parent.is_none(),
        ..every.clone()
    };
    let limit = params.number("limit", LIST_LIMIT as u64, 1..=MAX_LIST_LIMIT as u64)?;
    let limit = usize::try_from(limit).unwrap_or(LIST_LIMIT);
    let store = shared.agents.store();
    let skip = params.number("skip", 0, 0..=u64::MAX)?;
    let page = match (params.get("cursor"), params.get("skip")) {
        (Some(_), Some(_)) => {
            let detail = "a page starts at `cursor` or after `skip` sessions, not at both";
            return Err(Problem::field("skip", detail));
        }
        (None, Some(_)) => store.list_at(&filter, skip, limit).await?,
        (cursor, None) => store.list(&filter, cursor, limit).await?,
    };
    let counts = if params.choice("count", false, &[("1", true), ("0", false)])? {
        let all = ListFilter {
            archived: Archived::All,
            ..ListFilter::default()
        };
        // The last page says it itself; counting what a search finds means to look at everything.
        let last = page.next.is_none() && params.get("cursor").is_none();
        let rows = page.sessions.len() as u64;
        Some(Counts {
            shown: if last && (rows > 0 || skip == 0) {
                skip.saturating_add(rows)
            } else {
                store.count(&filter).await?
            },
            in_trees: if filter.roots {
                Some(store.count(&every).await?)
            } else {
                None
            },
            all: store.count(&all).await?,
        })
    } else {
        None
    };
    Ok(Json(SessionPage {
        sessions: rows(store, page.sessions, tree.then_some(&every)).await?,
        next_cursor: page.next,
        rebuilding: page.rebuilding.is_some(),
        counts,
    }))
}

/// Makes the rows of a page, in a list of trees with how many each has below.
async fn rows(
    store: &SessionStore,
    sessions: Vec<SessionSummary>,
    trees: Option<&ListFilter>,
) -> Result<Vec<Listed>, Problem> {
    let mut rows = Vec::with_capacity(sessions.len());
    for summary in sessions {
        let children = match trees {
            Some(every) => {
                let below = ListFilter {
                    parent: Some(summary.id.clone()),
                    ..every.clone()
                };
                Some(store.count(&below).await?)
            }
            None => None,
        };
        rows.push(Listed { summary, children });
    }
    Ok(rows)
}

#[derive(Debug, Serialize)]
pub(crate) struct SessionDetail {
    header: Header,
    summary: SessionSummary,
}

/// `GET /api/agent/sessions/{id}`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Answer<SessionDetail> {
    let id = input::session_id(id)?;
    let store = shared.agents.store();
    let header = store.header(&id).await?.header;
    let summary = store.summary(&id).await?;
    Ok(Json(SessionDetail { header, summary }))
}

/// `PATCH /api/agent/sessions/{id}`
pub(crate) async fn update(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Answer<SessionSummary> {
    let id = input::session_id(id)?;
    let (patch, revision) = input::summary_patch(&body)?;
    let summary = shared.agents.store().update(&id, patch, revision).await?;
    shared.changed();
    Ok(Json(summary))
}

/// `DELETE /api/agent/sessions/{id}`
pub(crate) async fn delete(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = input::session_id(id)?;
    if shared.agents.running(&id).is_some() {
        return Err(
            Problem::new(Code::SessionBusy, format!("session {id} has a run"))
                .hint("wait for the run to end, or cancel it"),
        );
    }
    shared.agents.store().delete(&id).await?;
    shared.changed();
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Serialize)]
pub(crate) struct History {
    items: Vec<Value>,
    report: NormaliseReport,
}

/// `GET /api/agent/sessions/{id}/history`
pub(crate) async fn history(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Answer<History> {
    let id = input::session_id(id)?;
    let store = shared.agents.store();
    let resumed = store.resumed(&id).await?;
    let inspected;
    let transcript = match &resumed {
        Some(transcript) => transcript,
        None => {
            // What comes before the damage is shown all the same.
            inspected = store.inspect_turns(&id, drop).await?;
            inspected.view.transcript()
        }
    };
    let items = transcript
        .surface()
        .map(|(seq, item)| surface_item(seq, &item))
        .collect();
    let target = transcript.context().map_or_else(
        || shared.agents.config().models.default_model().clone(),
        |context| ModelRef {
            provider: context.provider.clone(),
            name: context.model.clone(),
        },
    );
    let (_, report) = normalise(transcript, &target);
    Ok(Json(History { items, report }))
}

fn surface_item(seq: u64, item: &Item) -> Value {
    match item {
        Item::System(prompt) => json!({
            "seq": seq, "role": "system", "text": prompt.text, "tools": prompt.tools,
        }),
        Item::User(message) => json!({
            "seq": seq, "role": "user", "source": message.source, "content": message.content,
        }),
        Item::Assistant(message) => json!({
            "seq": seq, "role": "assistant", "step": message.step, "model": message.model,
            "stopReason": message.stop_reason, "interrupted": message.interrupted,
            "content": message.content,
        }),
        Item::ToolResult(result) => json!({
            "seq": seq, "role": "tool", "callId": result.call_id, "name": result.name,
            "outcome": result.outcome, "isError": result.is_error,
            "synthetic": result.synthetic, "content": result.content,
        }),
        Item::Summary(summary) => json!({
            "seq": seq, "role": "summary", "replaces": summary.replaces,
            "content": summary.summary,
        }),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestHead {
    step: u64,
    turn: u64,
    seq: u64,
    fingerprint: String,
    items: u64,
    bytes: u64,
}

impl RequestHead {
    fn new(seq: u64, start: StepStart) -> Self {
        let StepStart {
            turn,
            step,
            request,
        } = start;
        Self {
            step,
            turn,
            seq,
            fingerprint: request.fingerprint,
            items: request.items,
            bytes: request.bytes,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Requests {
    /// In the order in which they were sent.
    requests: Vec<RequestHead>,
    /// `before` of the page before; `null` when there is none.
    next: Option<u64>,
    /// Damage that was met.
    damage: Option<Damage>,
}

/// `GET /api/agent/sessions/{id}/requests`
pub(crate) async fn requests(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Answer<Requests> {
    let id = input::session_id(id)?;
    let limit = params.number("limit", REQUEST_LIMIT as u64, 1..=MAX_REQUEST_LIMIT as u64)?;
    let limit = usize::try_from(limit).unwrap_or(REQUEST_LIMIT);
    let store = shared.agents.store();
    let (before, mut damage) = match params.get("before") {
        Some(_) => (params.number("before", 0, 0..=u64::MAX)?, None),
        None => {
            let window = store.window(&id, WindowAt::End, 1).await?;
            (window.end, window.damage)
        }
    };
    let mut requests = Vec::new();
    let mut next = None;
    let read = store.each_event_back(&id, before, |line| {
        if line.event.kind == types::STEP_START
            && let Ok(Payload::StepStart(start)) = line.event.payload()
        {
            if requests.len() == limit {
                next = Some(line.event.seq.saturating_add(1));
                return false;
            }
            requests.push(RequestHead::new(line.event.seq, start));
        }
        true
    });
    match read.await {
        Ok(()) => {}
        Err(ReadError::Corrupt { damage: met, .. }) => damage = Some(met),
        Err(error) => return Err(error.into()),
    }
    requests.reverse();
    Ok(Json(Requests {
        requests,
        next,
        damage,
    }))
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestDetail {
    step: u64,
    turn: u64,
    seq: u64,
    request: Request,
    /// What the provider is sent; `null` when the provider is not set up here.
    body: Option<Value>,
    fingerprint: FingerprintCheck,
    items: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct FingerprintCheck {
    recorded: String,
    rebuilt: String,
    r#match: bool,
}

/// `GET /api/agent/sessions/{id}/requests/{step}`
pub(crate) async fn request(
    State(shared): State<Shared>,
    Path((id, step)): Path<(String, String)>,
    params: Params,
) -> Answer<RequestDetail> {
    let id = input::session_id(id)?;
    let step = input::whole(&step)
        .ok_or_else(|| Problem::field("step", "`step` must be the number of a step"))?;
    let store = shared.agents.store();
    let found = match params.get("seq") {
        Some(_) => {
            let seq = params.number("seq", 0, 0..=u64::MAX)?;
            store.request_at(&id, step, seq).await?
        }
        None => store.request_of_step(&id, step).await?,
    };
    let Some(rebuilt) = found else {
        let detail = format!("session {id} has no step {step}");
        return Err(Problem::new(Code::StepNotFound, detail));
    };
    let rebuilt = rebuilt?;
    let print = rebuilt.request.fingerprint()?;
    let models = &shared.agents.config().models;
    let provider = models.provider(&rebuilt.request.provider).ok();
    let body = provider.map(|provider| provider.body(&rebuilt.request));
    let recorded = rebuilt.start.request;
    Ok(Json(RequestDetail {
        step: rebuilt.start.step,
        turn: rebuilt.start.turn,
        seq: rebuilt.seq,
        request: rebuilt.request,
        body,
        fingerprint: FingerprintCheck {
            r#match: recorded.fingerprint == print.hash,
            recorded: recorded.fingerprint,
            rebuilt: print.hash,
        },
        items: recorded.items,
        bytes: recorded.bytes,
    }))
}

#[derive(Debug, Serialize)]
pub(crate) struct LogPage {
    lines: Vec<Box<RawValue>>,
    next: Option<u64>,
    /// Damage within the page.
    damage: Vec<Damage>,
}

/// `GET /api/agent/sessions/{id}/log`
pub(crate) async fn log(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Answer<LogPage> {
    let id = input::session_id(id)?;
    let from = params.number("from", 0, 0..=u64::MAX)?;
    let limit = params.number("limit", LOG_LIMIT as u64, 1..=MAX_LOG_LIMIT as u64)?;
    let limit = usize::try_from(limit).unwrap_or(LOG_LIMIT);
    let page = shared
        .agents
        .store()
        .read(&id, ReadPos::at(from), limit)
        .await?;
    let (mut lines, mut damage) = (Vec::new(), Vec::new());
    for entry in page.entries {
        match entry {
            Entry::Header(_) => {}
            Entry::Line(line, _) => {
                let text = String::from_utf8_lossy(&line.raw).into_owned();
                lines.push(RawValue::from_string(text).map_err(|e| {
                    Problem::new(Code::Internal, format!("event {}: {e}", line.event.seq))
                })?);
            }
            Entry::Damage(found) => damage.push(found),
        }
    }
    Ok(Json(LogPage {
        lines,
        next: page.next.map(|next| next.seq),
        damage,
    }))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelled {
    run_id: RunId,
}

/// `POST /api/agent/sessions/{id}/cancel`
pub(crate) async fn cancel(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Cancelled>), Problem> {
    let id = input::session_id(id)?;
    if let Some(run) = shared.agents.running(&id) {
        run.cancel();
        return Ok((
            StatusCode::ACCEPTED,
            Json(Cancelled {
                run_id: run.run_id().clone(),
            }),
        ));
    }
    Err(not_running(&shared, &id).await)
}

async fn not_running(shared: &Shared, id: &SessionId) -> Problem {
    match shared.agents.store().stat(id).await {
        Err(error) => error.into(),
        Ok(stat) => match stat
            .writer
            .filter(|writer| writer.pid != std::process::id())
        {
            Some(holder) => Problem::new(
                Code::Locked,
                format!("session {id} is being written by {holder}"),
            )
            .hint("cancel it there"),
            None => Problem::new(Code::NotRunning, format!("session {id} has no run")),
        },
    }
}
