//! Servers over HTTP.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Value, json};
use threadline_agent::tools::ToolSource as _;
use threadline_mcp::{ServerConfig, ServerName, Transport};
use threadline_session::payload::Outcome;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};

use crate::support::*;

#[derive(Clone, Default)]
struct Seen {
    methods: Arc<Mutex<Vec<String>>>,
    tokens: Arc<Mutex<Vec<String>>>,
}

fn json_answer(id: &Value, result: Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn serve(State(seen): State<Seen>, headers: HeaderMap, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    seen.methods.lock().unwrap().push(method.clone());
    let token = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    seen.tokens.lock().unwrap().extend(token.map(str::to_owned));
    let id = &message["id"];
    match method.as_str() {
        "initialize" => json_answer(
            id,
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "t", "version": "1" },
            }),
        ),
        "tools/list" => {
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["echo", "streamed", "late", "slow"].map(tool);
            json_answer(id, json!({ "tools": tools }))
        }
        "tools/call" => match message["params"]["name"].as_str().unwrap() {
            "streamed" => {
                let token = &message["params"]["_meta"]["progressToken"];
                let note = json!({
                    "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": token, "progress": 1, "message": "half" },
                });
                let last = json!({
                    "jsonrpc": "2.0", "id": id,
                    "result": { "content": [{ "type": "text", "text": "streamed" }] },
                });
                let body = format!("data: {note}\n\ndata: {last}\n\n");
                ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
            }
            "late" => StatusCode::BAD_GATEWAY.into_response(),
            "slow" => std::future::pending().await,
            _ => {
                let text = message["params"]["arguments"]["text"].clone();
                json_answer(id, json!({ "content": [{ "type": "text", "text": text }] }))
            }
        },
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

/// A listener with all its connections; they end when it is dropped.
struct Serving {
    port: u16,
    runtime: Option<Runtime>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen(router: Router, at: Option<u16>) -> Serving {
    let listener = std::net::TcpListener::bind(("127.0.0.1", at.unwrap_or(0))).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        axum::serve(listener, router).await.unwrap();
    });
    Serving {
        port,
        runtime: Some(runtime),
    }
}

fn router(seen: &Seen) -> Router {
    Router::new()
        .route("/mcp", post(serve))
        .with_state(seen.clone())
}

fn config(port: u16, headers: &[(&str, &str)]) -> ServerConfig {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let transport = Transport::Http {
        url: format!("http://127.0.0.1:{port}/mcp?key=s3cret"),
        headers: headers.iter().map(pair).collect::<BTreeMap<_, _>>(),
    };
    let mut config = ServerConfig::new(ServerName::parse("web").unwrap(), transport);
    config.start_timeout = Duration::from_secs(10);
    config
}

#[tokio::test]
async fn a_server_over_http_is_called_with_its_headers() {
    let seen = Seen::default();
    let serving = listen(router(&seen), None);
    let alone = Alone::with(
        Place::new(),
        config(serving.port, &[("Authorization", "Bearer abc")]),
    )
    .await;
    let output = alone.call("echo", json!({ "text": "hello" })).await;
    assert_eq!(
        (output.outcome, output.text()),
        (Outcome::Ok, "hello".into())
    );
    assert_eq!(alone.call("streamed", json!({})).await.text(), "streamed");
    let tokens = seen.tokens.lock().unwrap().clone();
    assert!(
        tokens.len() >= 4 && tokens.iter().all(|token| token == "Bearer abc"),
        "{tokens:?}"
    );
    alone.servers.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_call_over_http_is_told_to_the_server() {
    let seen = Seen::default();
    let serving = listen(router(&seen), None);
    let alone = Alone::with(Place::new(), config(serving.port, &[])).await;
    let context = alone.context();
    let cancel = context.cancel.clone();
    let slow = find(&alone.ready, "slow");
    let call = tokio::spawn(async move { slow.run(&json!({}), &context).await });
    let has = |method: &'static str| {
        let methods = seen.methods.clone();
        move || methods.lock().unwrap().iter().any(|seen| seen == method)
    };
    eventually(has("tools/call")).await;
    cancel.cancel();
    assert_eq!(call.await.unwrap().outcome, Outcome::Cancelled);
    eventually(has("notifications/cancelled")).await;
}

#[tokio::test]
async fn a_call_that_may_have_arrived_is_unknown_and_one_that_never_left_is_an_error() {
    let seen = Seen::default();
    let serving = listen(router(&seen), None);
    let alone = Alone::with(Place::new(), config(serving.port, &[])).await;
    let output = alone.call("late", json!({})).await;
    assert_eq!(output.outcome, Outcome::Unknown, "{}", output.text());
    let port = serving.port;
    drop(serving);
    eventually(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_err()).await;
    // The first may still be sent on a connection that is about to break.
    alone.call("echo", json!({ "text": "x" })).await;
    let output = alone.call("echo", json!({ "text": "x" })).await;
    assert_eq!(output.outcome, Outcome::Error);
    assert!(
        output.text().contains("was not sent to it"),
        "{}",
        output.text()
    );
    let _serving = listen(router(&seen), Some(port));
    let again = alone.call("echo", json!({ "text": "back" })).await;
    assert_eq!(again.text(), "back");
}

#[tokio::test]
async fn why_a_server_over_http_is_missing_is_told_without_its_address() {
    let serving = listen(Router::new(), None);
    let alone = Alone::with(Place::new(), config(serving.port, &[])).await;
    let said = alone.servers.lacks(&id("one")).join("");
    assert!(
        said.contains("`web` is missing") && said.contains("HTTP 404"),
        "{said}"
    );
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let refused = Alone::with(Place::new(), config(port, &[])).await;
    let lacks = refused.servers.lacks(&id("one")).join("");
    assert!(lacks.contains("it cannot be reached"), "{lacks}");
    let wants = Router::new().route(
        "/mcp",
        post(|| async {
            (
                StatusCode::UNAUTHORIZED,
                [("www-authenticate", "Bearer realm=\"x\"")],
            )
        }),
    );
    let serving = listen(wants, None);
    let locked = Alone::with(Place::new(), config(serving.port, &[])).await;
    let locked_said = locked.servers.lacks(&id("one")).join("");
    assert!(locked_said.contains("HTTP 401"), "{locked_said}");
    for said in [said, lacks, locked_said] {
        assert!(
            !said.contains("s3cret") && !said.contains("127.0.0.1"),
            "{said}"
        );
    }
}
