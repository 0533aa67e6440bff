//! What is approved for the rest of a session, over HTTP.

use serde_json::{Value, json};
use threadline_session::payload::{ApprovalPolicy, SandboxMode};
use threadline_store::SessionStore;

use crate::{
    runs::script,
    support::{Events, Server},
};

fn shell(command: &str) -> Value {
    json!({ "command": command })
}

/// Runs a task of the demonstration and returns how it ended.
async fn demo(server: &Server, command: &str, more: &Value) -> (String, Events) {
    let mut input = json!({"task": format!("$ {command}")});
    for (key, value) in more.as_object().unwrap() {
        input[key] = value.clone();
    }
    let mut events = server.stream(&input).await;
    let started = events.until("run_started").await.json();
    (started["sessionId"].as_str().unwrap().to_owned(), events)
}

async fn logged(server: &Server, id: &str, kind: &str) -> Vec<Value> {
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log?limit=1000"))
        .await
        .json();
    let lines = log["lines"].as_array().unwrap().iter();
    lines
        .filter(|line| line["type"] == kind)
        .map(|line| line["data"].clone())
        .collect()
}

#[tokio::test]
async fn commands_are_granted_used_shown_and_revoked() {
    let server = Server::start().await;
    let allow = json!({"allowCommands": ["printf one"]});
    let (id, mut events) = demo(&server, "printf one two", &allow).await;
    let end = events.until("run_finished").await.json();
    assert_eq!(end["reason"]["kind"], "completed");
    assert!(logged(&server, &id, "approval/asked").await.is_empty());
    let path = format!("/api/agent/sessions/{id}/grants");
    let listed = server.get(&path).await.json();
    let grant = &listed["grants"][0];
    assert_eq!(grant["prefix"], json!(["printf", "one"]));
    assert_eq!(
        (&grant["kind"], &grant["by"]),
        (&json!("commands"), &json!("api"))
    );

    let added = server
        .post(&path, &json!({"prefix": ["make", "check"]}))
        .await;
    assert_eq!(added.status, 201);
    let added = added.json();
    let again = server.post(&path, &json!({"prefix": "make check"})).await;
    assert_eq!(again.json(), added);
    let listed = server.get(&path).await.json();
    assert_eq!(listed["grants"].as_array().unwrap().len(), 2);
    assert_eq!(listed["grants"][1], added);

    let one = format!("{path}/{}", grant["grantId"].as_str().unwrap());
    assert_eq!(server.request("DELETE", &one, "").await.status, 204);
    server
        .request("DELETE", &one, "")
        .await
        .problem(404, "grant_not_found");
    assert_eq!(server.get(&path).await.json()["grants"], json!([added]));
    let more = json!({"sessionId": id});
    let (_, mut events) = demo(&server, "printf one two", &more).await;
    events.until("approval_required").await;
    let cancel = format!("/api/agent/sessions/{id}/cancel");
    server.post(&cancel, &json!({})).await;
    events.until("run_finished").await;
    let revoked = logged(&server, &id, "approval/revoked").await;
    assert_eq!(revoked[0]["by"], "api");
    let audit = server.get(&format!("/api/agent/sessions/{id}/audit")).await;
    let entries = audit.json()["entries"].as_array().unwrap().clone();
    let told = |kind: &str| {
        let of_kind = entries.iter().filter(|entry| entry["kind"] == kind);
        of_kind.cloned().collect::<Vec<_>>()
    };
    let granted = told("granted");
    assert_eq!(granted.len(), 2, "{entries:?}");
    assert_eq!(granted[0]["prefix"], json!(["make", "check"]));
    assert_eq!(told("revoked")[0]["grantId"], granted[1]["grantId"]);
    assert!(told("other").is_empty(), "{entries:?}");

    for body in [
        json!({}),
        json!({"prefix": "sh"}),
        json!({"prefix": ["bash", "-c"]}),
        json!({"prefix": "make > x"}),
        json!({"prefix": ["make check"]}),
        json!({"prefix": []}),
        json!({"prefix": 7}),
        json!({"prefix": [7]}),
    ] {
        let reply = server.post(&path, &body).await;
        let field = reply.problem(400, "invalid_input");
        assert_eq!(field.as_deref(), Some("prefix"), "{body}");
    }
    for unknown in [
        server.get("/api/agent/sessions/unknown/grants").await,
        server
            .post(
                "/api/agent/sessions/unknown/grants",
                &json!({"prefix": "make check"}),
            )
            .await,
        server
            .request("DELETE", "/api/agent/sessions/unknown/grants/x", "")
            .await,
    ] {
        unknown.problem(404, "session_not_found");
    }
}

#[tokio::test]
async fn an_answer_takes_the_words_that_the_question_offers() {
    let server = Server::start().await;
    let call = server.call();
    let (mut events, id, run) = script(&server, json!({})).await;
    call.shell("c1", &shell("cargo test --version"));
    let asked = events.until("approval_required").await.json();
    assert_eq!(asked["prefix"], json!(["cargo", "test"]));
    assert!(asked.get("outsideSandbox").is_none());
    let path = format!("/api/agent/approvals/{run}/c1");
    for body in [
        json!({"decision": "approve_for_session", "prefix": ["cargo"]}),
        json!({"decision": "approve", "prefix": ["cargo", "test"]}),
        json!({"decision": "approve_for_session", "prefix": "cargo test"}),
    ] {
        let reply = server.post(&path, &body).await;
        let field = reply.problem(400, "invalid_input");
        assert_eq!(field.as_deref(), Some("prefix"), "{body}");
    }
    let turns = format!("/api/agent/sessions/{id}/turns");
    let shown = server.get(&turns).await.json();
    let item = |shown: &Value| {
        let items = shown["turns"][0]["items"].as_array().unwrap();
        items
            .iter()
            .find(|item| item["kind"] == "tool")
            .cloned()
            .unwrap()
    };
    assert_eq!(item(&shown)["approval"]["prefix"], json!(["cargo", "test"]));
    let call = server.call();
    let yes = json!({"decision": "approve_for_session", "prefix": ["cargo", "test"]});
    assert_eq!(server.post(&path, &yes).await.status, 200);
    call.shell("c2", &shell("cargo test --version --quiet"));
    let call = server.call();
    call.done("done");
    events.until("run_finished").await;
    assert_eq!(logged(&server, &id, "approval/asked").await.len(), 1);
    let grants = server
        .get(&format!("/api/agent/sessions/{id}/grants"))
        .await
        .json();
    assert_eq!(grants["grants"][0]["grantId"], asked["approvalId"]);
    let shown = server.get(&turns).await.json();
    assert_eq!(item(&shown)["approval"]["decision"], "approved_for_session");
}

async fn bounded(store: &SessionStore, ceiling: (ApprovalPolicy, SandboxMode)) -> Server {
    let change = |config: &mut threadline_server::ServerConfig| config.ceiling = ceiling;
    Server::over(store.clone(), |_| {}, change).await
}

#[tokio::test]
async fn under_a_strict_ceiling_clients_approve_nothing_beforehand() {
    let free = Server::start().await;
    let (id, mut events) = demo(&free, "date", &json!({})).await;
    events.until("run_finished").await;
    let store = free.agents.store().clone();
    let server = bounded(
        &store,
        (ApprovalPolicy::Strict, SandboxMode::DangerFullAccess),
    )
    .await;
    let grants = format!("/api/agent/sessions/{id}/grants");
    let words = json!({"prefix": "make check"});
    server
        .post(&grants, &words)
        .await
        .problem(403, "policy_ceiling");
    for path in ["/api/agent/stream", "/api/agent"] {
        let input = json!({"task": "x", "allowCommands": ["make check"]});
        let field = server
            .post(path, &input)
            .await
            .problem(403, "policy_ceiling");
        assert_eq!(field.as_deref(), Some("allowCommands"));
    }
    let call = server.call();
    let (mut events, id, run) = script(&server, json!({})).await;
    call.shell("c1", &shell("cargo test"));
    events.until("approval_required").await;
    let path = format!("/api/agent/approvals/{run}/c1");
    let yes = json!({"decision": "approve_for_session", "prefix": ["cargo", "test"]});
    server
        .post(&path, &yes)
        .await
        .problem(403, "policy_ceiling");
    server.post(&path, &json!({"decision": "deny"})).await;
    server.call().done("done");
    events.until("run_finished").await;
    let grants = server
        .get(&format!("/api/agent/sessions/{id}/grants"))
        .await
        .json();
    assert_eq!(grants, json!({"grants": []}));
}

/// A call that commits, which the sandbox does not let it do.
fn commit() -> Value {
    json!({
        "command": "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
        "outside_sandbox": true,
        "reason": "the work is to be committed",
    })
}

#[tokio::test]
async fn a_call_outside_of_the_sandbox_says_so_wherever_it_is_shown() {
    let server = Server::start().await;
    let call = server.call();
    let (mut events, id, run) = script(&server, json!({})).await;
    call.shell("c1", &commit());
    let asked = events.until("approval_required").await.json();
    assert_eq!(asked["outsideSandbox"], true);
    assert!(asked.get("prefix").is_none());
    let reason = asked["reason"].as_str().unwrap();
    assert!(reason.contains("WITHOUT the sandbox") && reason.contains("to be committed"));
    let listed = server.get("/api/agent/approvals").await.json();
    assert_eq!(listed["approvals"][0]["outsideSandbox"], true);
    let call = server.call();
    let yes = json!({"decision": "approve_for_session"});
    let path = format!("/api/agent/approvals/{run}/c1");
    assert_eq!(server.post(&path, &yes).await.status, 200);
    let resolved = events.until("approval_resolved").await.json();
    assert_eq!(resolved["decision"], "approved");
    call.done("done");
    events.until("run_finished").await;
    assert!(server.dir.path().join(".git/logs/HEAD").exists());
    let turns = server
        .get(&format!("/api/agent/sessions/{id}/turns"))
        .await
        .json();
    let items = turns["turns"][0]["items"].as_array().unwrap();
    let tool = items.iter().find(|item| item["kind"] == "tool").unwrap();
    assert_eq!(tool["outcome"], "ok", "{tool}");
    assert_eq!(tool["outsideSandbox"], true);
    assert_eq!(tool["approval"]["outsideSandbox"], true);
    let start = &logged(&server, &id, "tool/start").await[0];
    assert_eq!(start["outsideSandbox"], true);
    let grants = server
        .get(&format!("/api/agent/sessions/{id}/grants"))
        .await
        .json();
    assert_eq!(grants, json!({"grants": []}));
}

#[tokio::test]
async fn below_a_ceiling_of_full_access_nobody_is_asked_to_leave_the_sandbox() {
    let free = Server::start().await;
    let store = free.agents.store().clone();
    let ceiling = (ApprovalPolicy::Never, SandboxMode::WorkspaceWrite);
    let server = bounded(&store, ceiling).await;
    // Also when the client names all that the ceiling is about.
    for input in [
        json!({}),
        json!({"approvalPolicy": "on_request", "sandboxMode": "workspace_write"}),
    ] {
        let call = server.call();
        let (mut events, id, _) = script(&server, input).await;
        let next = server.call();
        call.shell("c1", &commit());
        next.done("then not");
        events.until("run_finished").await;
        let result = &logged(&server, &id, "tool/result").await[0];
        assert_eq!(result["outcome"], "denied");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("more than the server allows"), "{text}");
        assert!(logged(&server, &id, "approval/asked").await.is_empty());
        // A message that waits begins a run under the same bound.
        let call = server.call();
        let queue = format!("/api/agent/sessions/{id}/queue");
        server.post(&queue, &json!({"text": "again"})).await;
        let next = server.call();
        call.shell("c2", &commit());
        next.done("then not");
        let mut follower = server.follow(&id, "", None).await;
        follower.until("run_finished").await;
        follower.until("run_finished").await;
        assert!(logged(&server, &id, "approval/asked").await.is_empty());
    }
    assert!(!server.dir.path().join(".git").exists());
}
