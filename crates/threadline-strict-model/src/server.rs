//! The server: routes, recording, choosing the reply, and walking through it.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::{
    Dialect, Gate, Reply, Violation, anthropic, chat,
    check::{self, Broken},
    gate::Gates,
    issued::Issued,
    moves::Move,
    prompt, responses,
    script::{Step, Tokens},
};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Body, byte for byte.
    pub body: Bytes,
    /// Body as JSON, null when it is none.
    pub json: Value,
    /// Which API it came to.
    pub dialect: Dialect,
    /// `Authorization` header.
    pub authorization: Option<String>,
    /// `x-api-key` header.
    pub api_key: Option<String>,
    /// Whether it was accepted by the rules.
    pub accepted: bool,
}

/// A running strict model server; dropping it stops it.
#[derive(Debug)]
pub struct StrictModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Inner>,
    gates: Gates,
    count: watch::Sender<usize>,
    stopped: watch::Sender<bool>,
    answers: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    script: VecDeque<Reply>,
    requests: Vec<RecordedRequest>,
    violations: Vec<Violation>,
    known_tools: BTreeSet<String>,
    issued: Issued,
    /// The prompts of all accepted requests, which the cache is made of.
    prompts: Vec<(Dialect, String)>,
}

/// A request that was accepted, and what it is answered with.
struct Taken {
    json: Value,
    reply: Reply,
    /// Prompts of the requests before it.
    earlier: usize,
}

impl StrictModel {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    /// When no port can be opened.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> io::Result<Self> {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    /// Starts a server on an address.
    ///
    /// # Errors
    /// When the address cannot be opened.
    pub async fn listen(
        address: SocketAddr,
        script: impl IntoIterator<Item = Reply>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(Inner {
                script: script.into_iter().collect(),
                ..Inner::default()
            }),
            gates: Gates::default(),
            count: watch::Sender::new(0),
            stopped: watch::Sender::new(false),
            answers: AtomicU64::new(0),
        });
        let router = router(Arc::clone(&shared));
        let stop = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let signal = async move { stop.stopped().await };
            // It ends with the test; there is nobody to tell.
            let _ = axum::serve(listener, router)
                .with_graceful_shutdown(signal)
                .await;
        });
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Returns the base URL that a provider is configured with.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends a reply to the script.
    pub fn push(&self, reply: Reply) {
        self.shared.lock().script.push_back(reply);
    }

    /// Returns every request so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Returns every broken rule so far, in order.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.lock().violations.clone()
    }

    /// Fails the test when a request broke a rule.
    ///
    /// # Panics
    /// When there is a violation; it names all of them.
    pub fn assert_no_violations(&self) {
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "the requests broke rules: {violations:#?}"
        );
    }

    /// Waits until at least this many requests have come.
    pub async fn wait_requests(&self, count: usize) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self
            .shared
            .count
            .subscribe()
            .wait_for(|n| *n >= count)
            .await;
    }

    /// Returns a gate by name; naming makes it.
    #[must_use]
    pub fn gate(&self, name: &str) -> Gate {
        self.shared.gates.get(name)
    }

    /// Returns how many scripted replies are left, repeating ones included.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.shared.lock().script.len()
    }

    /// Stops the server and waits until every connection is closed.
    pub async fn stop(mut self) {
        self.shared.stopped.send_replace(true);
        // A panicked task has stopped too.
        let _ = (&mut self.task).await;
    }

    /// Waits until the server ends by itself, which it does only when stopped.
    pub async fn wait(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for StrictModel {
    fn drop(&mut self) {
        self.shared.stopped.send_replace(true);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stopped(&self) {
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Records and checks a request, and chooses its reply.
    fn take(&self, dialect: Dialect, body: &Bytes, headers: &HeaderMap) -> Result<Taken, Broken> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let request = inner.requests.len();
        let (known, issued) = (&mut inner.known_tools, &inner.issued);
        let checked = match dialect {
            Dialect::Chat => check::check(body, known),
            Dialect::Responses => check::responses::check(body, known, issued),
            Dialect::Anthropic => {
                version(headers).and_then(|()| check::anthropic::check(body, known, issued))
            }
        };
        inner.requests.push(RecordedRequest {
            body: body.clone(),
            json: serde_json::from_slice(body).unwrap_or_default(),
            dialect,
            authorization: header(headers, header::AUTHORIZATION.as_str()),
            api_key: header(headers, "x-api-key"),
            accepted: checked.is_ok(),
        });
        self.count.send_replace(request + 1);
        let json = match checked {
            Ok(json) => json,
            Err(broken) => {
                inner.violations.push(Violation {
                    request,
                    param: broken.param.clone(),
                    message: broken.message.clone(),
                });
                return Err(broken);
            }
        };
        let earlier = inner.prompts.len();
        inner.prompts.push((dialect, prompt::text(dialect, &json)));
        let fits = |reply: &Reply| {
            reply
                .when
                .as_ref()
                .is_none_or(|when| prompt::holds(when, dialect, &json, body))
        };
        let reply = match inner.script.iter().position(fits) {
            None => None,
            Some(at) if inner.script[at].repeat => inner.script.get(at).cloned(),
            Some(at) => inner.script.remove(at),
        };
        let echo = move |json: &Value| prompt::echo(dialect, json);
        Ok(Taken {
            json,
            reply: reply.unwrap_or_else(|| Reply::from_fn(echo)),
            earlier,
        })
    }

    /// Counts the tokens of a reply that does not say them.
    fn tokens(&self, dialect: Dialect, json: &Value, earlier: usize, steps: &[Step]) -> Tokens {
        let inner = self.lock();
        let prompt = prompt::text(dialect, json);
        let before = inner.prompts.get(..earlier).unwrap_or_default();
        prompt::tokens(dialect, json, &prompt, before, steps)
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

fn version(headers: &HeaderMap) -> Result<(), Broken> {
    if header(headers, "anthropic-version").is_some() {
        return Ok(());
    }
    Err(Broken {
        param: String::new(),
        message: "anthropic-version: header is required".into(),
        code: None,
    })
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/responses", post(create_response))
        .route("/v1/messages", post(create_message))
        .route("/v1/models", get(models))
        .route("/_strict/state", get(state))
        .route("/_strict/gate/{name}", get(wait_gate).post(open_gate))
        .route("/_strict/script", post(push_script))
        // The check itself refuses what is too large, in the provider's shape.
        .layer(DefaultBodyLimit::max(2 * check::MAX_BODY_BYTES))
        .with_state(shared)
}

async fn models() -> Json<Value> {
    Json(json!({ "object": "list", "data": [{ "id": "strict", "object": "model" }] }))
}

async fn state(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let waiting = shared.gates.waiting();
    let inner = shared.lock();
    let requests: Vec<Value> = inner
        .requests
        .iter()
        .map(|request| {
            json!({
                "body": String::from_utf8_lossy(&request.body),
                "json": request.json,
                "dialect": request.dialect,
                "accepted": request.accepted,
            })
        })
        .collect();
    Json(json!({
        "requests": requests,
        "violations": inner.violations,
        "waitingGates": waiting,
        "queued": inner.script.len(),
    }))
}

async fn wait_gate(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> StatusCode {
    let gate = shared.gates.get(&name);
    tokio::select! {
        () = gate.wait_reached() => StatusCode::NO_CONTENT,
        () = shared.stopped() => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn open_gate(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> StatusCode {
    shared.gates.get(&name).open();
    StatusCode::NO_CONTENT
}

async fn push_script(State(shared): State<Arc<Shared>>, body: String) -> Response {
    match Reply::from_json(&body) {
        Ok(replies) => {
            shared.lock().script.extend(replies);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn chat_completions(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(shared, Dialect::Chat, &headers, &body).await
}

async fn create_response(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(shared, Dialect::Responses, &headers, &body).await
}

async fn create_message(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(shared, Dialect::Anthropic, &headers, &body).await
}

async fn serve(
    shared: Arc<Shared>,
    dialect: Dialect,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    let Taken {
        json,
        mut reply,
        earlier,
    } = match shared.take(dialect, body, headers) {
        Ok(taken) => taken,
        Err(broken) => return violated(dialect, &broken),
    };
    while let Some(answer) = reply.answer.take() {
        reply = answer(&json);
    }
    if let Some(status) = reply.status {
        return refuse(dialect, status, &reply);
    }
    let called: Vec<String> = reply.called_tools().map(ToOwned::to_owned).collect();
    shared.lock().known_tools.extend(called);
    let (moves, whole, steps) = play(&shared, dialect, &json, reply, earlier);
    if json.get("stream") == Some(&Value::Bool(true)) {
        return event_stream(shared, moves);
    }
    for step in &steps {
        match step {
            Step::Gate(name) => shared.gates.get(name).pass().await,
            Step::Stall => shared.stopped().await,
            _ => {}
        }
    }
    Json(whole).into_response()
}

/// Makes everything that happens on the connection, and the answer as one object.
fn play(
    shared: &Shared,
    dialect: Dialect,
    json: &Value,
    reply: Reply,
    earlier: usize,
) -> (Vec<Move>, Value, Vec<Step>) {
    let number = shared.answers.fetch_add(1, Ordering::Relaxed);
    let model = json["model"].as_str().unwrap_or_default().to_owned();
    let finish = reply.finish.clone();
    let (code, message) = (reply.code.clone(), reply.message.clone());
    let usage = reply.usage;
    let mut steps = reply.into_steps();
    if json["thinking"]["type"] == "disabled" {
        steps.retain(|step| !matches!(step, Step::Reasoning(_) | Step::Redacted(_)));
    }
    let usage = usage.unwrap_or_else(|| shared.tokens(dialect, json, earlier, &steps));
    match dialect {
        Dialect::Chat => {
            let answer = chat::Answer {
                id: format!("chatcmpl-{number}"),
                model,
                include_usage: json.pointer("/stream_options/include_usage")
                    == Some(&Value::Bool(true)),
                finish,
                usage,
            };
            (answer.moves(steps.clone()), answer.whole(&steps), steps)
        }
        Dialect::Responses => {
            let answer = responses::Answer {
                number,
                encrypted: json["include"].is_array(),
                model,
                finish,
                code,
                message,
                usage,
            };
            let played = answer.play(steps.clone());
            shared.lock().issued.output(&answer.model, &played.output);
            (played.moves, played.whole, steps)
        }
        Dialect::Anthropic => {
            let answer = anthropic::Answer {
                number,
                model,
                finish,
                usage,
            };
            let played = answer.play(steps.clone());
            shared.lock().issued.content(&answer.model, &played.content);
            (played.moves, played.whole, steps)
        }
    }
}

/// Answers a request that broke a rule as the real server does.
fn violated(dialect: Dialect, broken: &Broken) -> Response {
    let error = match dialect {
        Dialect::Chat | Dialect::Responses => json!({ "error": {
            "message": broken.message, "type": "invalid_request_error",
            "param": broken.param, "code": broken.code,
        } }),
        Dialect::Anthropic => {
            let message = if broken.param.is_empty() {
                broken.message.clone()
            } else {
                format!("{}: {}", broken.param, broken.message)
            };
            json!({ "type": "error", "error": {
                "type": "invalid_request_error", "message": message,
            } })
        }
    };
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

fn refuse(dialect: Dialect, status: u16, reply: &Reply) -> Response {
    let message = reply.message.as_deref().unwrap_or("scripted error");
    let error = match dialect {
        Dialect::Chat | Dialect::Responses => json!({ "error": {
            "message": message, "type": "scripted", "param": null, "code": reply.code,
        } }),
        Dialect::Anthropic => json!({ "type": "error", "error": {
            "type": reply.code.as_deref().unwrap_or("scripted"), "message": message,
        } }),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(error)).into_response();
    let value = reply.retry_after.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(value)) = value {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// Walks through the moves as the client reads.
fn event_stream(shared: Arc<Shared>, moves: Vec<Move>) -> Response {
    let moves = stream::unfold(
        (shared, VecDeque::from(moves)),
        |(shared, mut moves)| async {
            loop {
                let waited = match moves.pop_front()? {
                    Move::Frame(frame) => {
                        return Some((Ok::<_, io::Error>(Bytes::from(frame)), (shared, moves)));
                    }
                    Move::Cut => {
                        // What was said before has to leave first: a connection that breaks
                        // before its first byte is another fault.
                        tokio::task::yield_now().await;
                        false
                    }
                    Move::Gate(name) => {
                        let gate = shared.gates.get(&name);
                        tokio::select! {
                            () = gate.pass() => true,
                            () = shared.stopped() => false,
                        }
                    }
                    Move::Pause(millis) => {
                        tokio::time::sleep(Duration::from_millis(millis)).await;
                        true
                    }
                    Move::Stall => {
                        shared.stopped().await;
                        false
                    }
                };
                if !waited {
                    // An error makes the connection break instead of ending properly.
                    moves.clear();
                    let cut = io::Error::new(io::ErrorKind::ConnectionAborted, "scripted cut");
                    return Some((Err(cut), (shared, moves)));
                }
            }
        },
    );
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(moves)).into_response()
}
