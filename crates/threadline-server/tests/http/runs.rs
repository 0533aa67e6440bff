//! Starting, watching, approving and cancelling turns.

use serde_json::{Value, json};

use crate::support::{Events, Server, soon};

fn shell(command: &str) -> Value {
    json!({"task": format!("$ {command}")})
}

pub(crate) async fn script(server: &Server, more: Value) -> (Events, String, String) {
    let mut input = json!({"task": "talk", "model": "script/m"});
    for (key, value) in more.as_object().unwrap() {
        input[key] = value.clone();
    }
    let mut events = server.stream(&input).await;
    let started = events.until("run_started").await.json();
    let text = |name: &str| started[name].as_str().unwrap().to_owned();
    let ids = (text("sessionId"), text("runId"));
    (events, ids.0, ids.1)
}

/// The first bytes of a PNG.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

pub(crate) fn image() -> Value {
    json!({"mediaType": "image/png", "data": PNG})
}

#[tokio::test]
async fn images_of_a_task_are_kept_as_blobs_and_shown_in_the_history() {
    let server = Server::start().await;
    let ran = server
        .run(&json!({"task": "look", "images": [image(), image()]}))
        .await;
    assert_eq!(ran.end().event, "run_finished");
    let session = format!("/api/agent/sessions/{}", ran.session());
    let history = server.get(&format!("{session}/history")).await.json();
    let items = history["items"].as_array().unwrap();
    let parts = items
        .iter()
        .find_map(|item| {
            let content = item["content"].as_array()?;
            content
                .iter()
                .any(|part| part["text"] == "look")
                .then_some(content)
        })
        .unwrap();
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert_eq!(parts[1]["mediaType"], "image/png");
    let blob = parts[1]["blob"].as_str().unwrap();
    let bytes = server.get(&format!("{session}/blobs/{blob}")).await.body;
    assert_eq!(bytes, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
}

#[tokio::test]
async fn images_that_no_model_could_be_shown_are_refused_and_the_field_is_named() {
    let server = Server::start().await;
    for path in ["/api/agent/stream", "/api/agent"] {
        for (images, code, field) in [
            (json!("x"), "invalid_input", "images"),
            (json!([1]), "invalid_input", "images[0]"),
            (json!([image(), {}]), "invalid_input", "images[1].mediaType"),
            (
                json!([{"mediaType": "image/png", "data": 1}]),
                "invalid_input",
                "images[0].data",
            ),
            (
                json!([{"mediaType": "image/png", "data": PNG, "name": "x"}]),
                "invalid_input",
                "images[0].name",
            ),
            (
                json!([{"mediaType": "image/png", "data": "?"}]),
                "bad_image",
                "images[0]",
            ),
            (
                json!([image(), {"mediaType": "image/gif", "data": PNG}]),
                "bad_image",
                "images[1]",
            ),
            (
                json!([{"mediaType": "image/bmp", "data": "Qk0="}]),
                "bad_image",
                "images[0]",
            ),
            (json!(vec![image(); 21]), "bad_image", "images"),
        ] {
            let reply = server
                .post(path, &json!({"task": "x", "images": images}))
                .await;
            let found = reply.problem(400, code);
            assert_eq!(found.as_deref(), Some(field), "{}", reply.text());
        }
    }
    let sessions = server.get("/api/agent/sessions").await.json();
    assert_eq!(sessions["sessions"], json!([]));
}

#[tokio::test]
async fn only_images_make_a_body_longer_than_the_others() {
    let server = Server::start().await;
    // An image at its limit is over the limit of other bodies.
    let data = "A".repeat((5 << 20) - 8);
    let large = json!({"mediaType": "image/gif", "data": format!("R0lGODlh{data}")});
    let ran = server
        .run(&json!({"task": "look", "images": [large]}))
        .await;
    assert_eq!(ran.end().event, "run_finished");
    let more = json!({"mediaType": "image/gif", "data": format!("R0lGODlhAAAA{data}")});
    server
        .post("/api/agent", &json!({"task": "look", "images": [more]}))
        .await
        .problem(400, "bad_image");
    let words = "x".repeat(1 << 20);
    server
        .post("/api/agent", &json!({"task": words, "images": [image()]}))
        .await
        .problem(413, "too_large");
    let all = json!({"task": "look", "images": vec![large_text(); 8]});
    server
        .post("/api/agent/stream", &all)
        .await
        .problem(413, "too_large");
    let fork = format!("/api/agent/sessions/{}/fork", ran.session());
    let body = format!(r#"{{"at":1{}}}"#, " ".repeat(1 << 20));
    server
        .request("POST", &fork, &body)
        .await
        .problem(413, "too_large");
}

fn large_text() -> Value {
    json!({"mediaType": "image/gif", "data": "A".repeat(5 << 20)})
}

#[tokio::test]
async fn a_new_run_streams_its_log_between_a_start_and_one_end() {
    let server = Server::start().await;
    let mut events = server
        .stream(&json!({"task": "hello", "goal": "be kind"}))
        .await;
    assert_eq!(events.status(), 200);
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert_eq!(
        events.header("cache-control"),
        Some("no-cache, no-transform")
    );
    assert_eq!(events.header("x-accel-buffering"), Some("no"));
    assert_eq!(events.header("content-encoding"), None);
    assert_eq!(events.block().await.unwrap(), "retry: 1000");
    let mut messages = Vec::new();
    while let Some(message) = events.next().await {
        messages.push(message);
    }
    let started = messages[0].json();
    assert_eq!(
        (messages[0].event.as_str(), messages[0].id),
        ("run_started", None)
    );
    assert_eq!(started["type"], "run_started");
    assert_eq!(started["sessionId"], started["runId"]);
    assert_eq!(started["resumed"], false);
    assert_eq!(started["policy"]["approvalPolicy"], "on_request");
    assert_eq!(started["policy"]["model"], "demonstration");
    assert!(started["policy"]["cwd"].is_string());

    let id = started["sessionId"].as_str().unwrap();
    let log = server
        .get(&format!("/api/agent/sessions/{id}/log"))
        .await
        .json();
    let lines = log["lines"].as_array().unwrap();
    let logged: Vec<_> = messages.iter().filter(|m| m.id.is_some()).collect();
    assert_eq!(logged.len(), lines.len());
    for (seq, (message, line)) in logged.iter().zip(lines).enumerate() {
        assert_eq!(message.id, Some(seq as u64));
        assert_eq!(message.json(), *line);
        assert_eq!(message.event, line["type"].as_str().unwrap());
        assert!(
            message
                .data
                .starts_with(&format!("{{\"seq\":{seq},\"time\":")),
            "verbatim"
        );
    }
    let end = messages.last().unwrap().json();
    assert_eq!(end["type"], "run_finished");
    assert_eq!(end["reason"]["kind"], "completed");
    assert_eq!(end["runId"], started["runId"]);
    assert_eq!(end["durableSeq"], lines.len() - 1);
    assert!(end["answer"].as_str().unwrap().contains("hello"));
    let terminals = messages
        .iter()
        .filter(|m| m.event == "run_finished" || m.event == "error");
    assert_eq!(terminals.count(), 1);
}

#[tokio::test]
async fn a_session_goes_on_and_counts_as_resumed() {
    let server = Server::start().await;
    let first = server.run(&json!({"task": "one"})).await;
    let second = server
        .run(&json!({"task": "two", "sessionId": first.session()}))
        .await;
    assert_eq!(second.session(), first.session());
    assert_ne!(second.run_id(), first.run_id());
    assert_eq!(second.started()["resumed"], true);
    let next = first.log().len() as u64;
    assert_eq!(second.log()[0].id, Some(next));
    let said = |ran: &crate::support::Ran| {
        let answer = ran.end().json()["answer"].as_str().unwrap().to_owned();
        let count = answer
            .split("so far: ")
            .nth(1)
            .unwrap()
            .split('.')
            .next()
            .unwrap();
        count.parse::<u64>().unwrap()
    };
    assert_eq!(
        said(&second),
        said(&first) + 1,
        "the model is sent the whole conversation"
    );
}

#[tokio::test]
async fn an_unknown_session_is_one_error_and_creates_nothing() {
    let server = Server::start().await;
    for id in [
        "0193b3a0-0000-7000-8000-000000000000",
        "../../etc/passwd",
        "nope\u{2028}",
    ] {
        let ran = server.run(&json!({"task": "x", "sessionId": id})).await;
        assert_eq!(ran.messages.len(), 1);
        let error = ran.end().json();
        assert_eq!(ran.end().event, "error");
        assert_eq!(error["type"], "error");
        assert_eq!(error["code"], "session_not_found");
        assert!(error["hint"].is_string());
    }
    let list = server.get("/api/agent/sessions").await.json();
    assert_eq!(list["sessions"], json!([]));
    let ran = server
        .run(&json!({"task": "x", "sessionId": "gone", "idempotencyKey": "k"}))
        .await;
    assert_eq!(ran.end().json()["code"], "session_not_found");
}

#[tokio::test]
async fn input_errors_come_before_the_stream() {
    let server = Server::start().await;
    for path in ["/api/agent/stream", "/api/agent"] {
        for (body, field) in [
            ("{}", Some("task")),
            (r#"{"task":""}"#, Some("task")),
            (r#"{"task":7}"#, Some("task")),
            (r#"{"task":"x","extra":1}"#, Some("extra")),
            (r#"{"task":"x","temperature":"hot"}"#, Some("temperature")),
            (
                r#"{"task":"x","approvalPolicy":"maybe"}"#,
                Some("approvalPolicy"),
            ),
            (r#"{"task":"x","sandboxMode":1}"#, Some("sandboxMode")),
            (r#"{"task":"x","sessionId":""}"#, Some("sessionId")),
            ("[]", None),
            ("{", None),
            ("", None),
        ] {
            let reply = server.request("POST", path, body).await;
            assert_eq!(
                reply.problem(400, "invalid_input").as_deref(),
                field,
                "{body}"
            );
        }
        let fits = format!(r#"{{"task":"{}"}}"#, " ".repeat((1 << 20) - 11));
        assert_eq!(fits.len(), 1 << 20);
        server
            .request("POST", path, &fits)
            .await
            .problem(400, "invalid_input");
        server
            .request("POST", path, &format!("{fits} "))
            .await
            .problem(413, "too_large");
    }
    assert_eq!(
        server.get("/api/agent/sessions").await.json()["sessions"],
        json!([])
    );
}

#[tokio::test]
async fn a_stateless_run_answers_once_and_keeps_nothing() {
    let server = Server::start().await;
    let kept = server.run(&json!({"task": "kept"})).await;
    let mut answers = std::collections::BTreeSet::new();
    for input in [
        json!({"task": "hello"}),
        json!({"task": "hello", "sessionId": kept.session()}),
        json!({"task": "hello", "sessionId": "unknown", "idempotencyKey": "k"}),
    ] {
        let reply = server.post("/api/agent", &input).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let result = reply.json();
        assert_eq!(result["reason"]["kind"], "completed");
        answers.insert(result["answer"].as_str().unwrap().to_owned());
        assert!(result["usage"]["inputTokens"].as_u64().unwrap() > 0);
    }
    assert_eq!(answers.len(), 1, "each prompt was fresh: {answers:?}");
    let blocked = server.post("/api/agent", &shell("touch x")).await.json();
    assert_eq!(blocked["reason"]["kind"], "blocked");
    let list = server.get("/api/agent/sessions").await.json();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_tool_runs_after_another_client_approved_it() {
    let server = Server::start().await;
    let mut events = server.stream(&shell("touch made-it")).await;
    let asked = events.until("approval_required").await.json();
    let (run, call) = (
        asked["runId"].as_str().unwrap(),
        asked["toolCallId"].as_str().unwrap(),
    );
    let id = asked["sessionId"].as_str().unwrap();

    let listed = server
        .get(&format!("/api/agent/approvals?runId={run}"))
        .await
        .json();
    assert_eq!(listed["approvals"][0]["approvalId"], asked["approvalId"]);
    assert_eq!(
        server.get("/api/agent/approvals?runId=x").await.json()["approvals"],
        json!([])
    );
    assert_eq!(server.get("/api/agent/approvals").await.json(), listed);
    let turns = server
        .get(&format!("/api/agent/sessions/{id}/turns"))
        .await
        .json();
    assert_eq!(
        (&turns["status"], &turns["running"]),
        (&json!("waiting"), &json!(true))
    );

    let path = format!("/api/agent/approvals/{run}/{call}");
    for (body, field) in [
        (json!({}), "decision"),
        (json!({"decision": "yes"}), "decision"),
        (json!({"decision": "deny", "why": ""}), "why"),
        (json!({"decision": "deny", "comment": 1}), "comment"),
    ] {
        let reply = server.post(&path, &body).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some(field));
    }
    let other = format!("/api/agent/approvals/{run}/nothing");
    let approve = json!({"decision": "approve", "comment": "go on"});
    server
        .post(&other, &approve)
        .await
        .problem(404, "approval_not_found");
    let reply = server.post(&path, &approve).await;
    assert_eq!(reply.json(), json!({"decision": "approve"}));
    server
        .post(&path, &approve)
        .await
        .problem(409, "already_decided");

    let resolved = events.until("approval_resolved").await.json();
    assert_eq!(resolved["approvalId"], asked["approvalId"]);
    assert_eq!(resolved["toolCallId"], asked["toolCallId"]);
    assert_eq!(
        (&resolved["decision"], &resolved["by"]),
        (&json!("approved"), &json!("api"))
    );
    let end = events.until("run_finished").await.json();
    assert_eq!(end["reason"]["kind"], "completed");
    assert!(server.dir.path().join("made-it").exists());
    server
        .post(&path, &approve)
        .await
        .problem(404, "approval_not_found");

    // Who follows later is told the same.
    let mut later = server.follow(id, "view=0", None).await;
    assert_eq!(later.until("approval_required").await.json(), asked);
    assert_eq!(later.until("approval_resolved").await.json(), resolved);
}

#[tokio::test]
async fn a_denied_tool_does_not_run_and_the_page_is_named() {
    let server = Server::start().await;
    let mut events = server.stream(&shell("touch never")).await;
    let asked = events.until("approval_required").await.json();
    let (run, call) = (
        asked["runId"].as_str().unwrap(),
        asked["toolCallId"].as_str().unwrap(),
    );
    let path = format!("/api/agent/approvals/{run}/{call}");
    let host = server.host();
    let cookie = "threadline_token=secret-token";
    let headers = [("host", host.as_str()), ("cookie", cookie)];
    let body = br#"{"decision":"deny"}"#;
    let reply = server
        .raw("POST", &path, &headers, body)
        .await
        .reply()
        .await;
    assert_eq!(reply.status, 200);
    let resolved = events.until("approval_resolved").await.json();
    assert_eq!(
        (&resolved["decision"], &resolved["by"]),
        (&json!("denied"), &json!("page"))
    );
    events.until("run_finished").await;
    assert!(!server.dir.path().join("never").exists());
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_cancel_and_cancel_does() {
    let server = Server::start().await;
    let call = server.call();
    let (events, id, run) = script(&server, json!({})).await;
    drop(events);
    let mut follower = server.follow(&id, "", None).await;
    call.say("still ");
    follower.until("assistant/chunk").await;
    let turns = server
        .get(&format!("/api/agent/sessions/{id}/turns"))
        .await
        .json();
    assert_eq!(
        (&turns["status"], &turns["running"]),
        (&json!("running"), &json!(true))
    );
    call.say("here");
    call.done("still here");
    let end = follower.until("run_finished").await.json();
    assert_eq!(
        (&end["answer"], &end["runId"]),
        (&json!("still here"), &json!(run))
    );
    assert_eq!(end["usage"]["inputTokens"], 3);

    let cancel = format!("/api/agent/sessions/{id}/cancel");
    server
        .post(&cancel, &json!({}))
        .await
        .problem(409, "not_running");
    let _call = server.call();
    let (mut events, _, run) = script(&server, json!({"sessionId": id})).await;
    let reply = server.request("POST", &cancel, "").await;
    assert_eq!((reply.status, reply.json()), (202, json!({"runId": run})));
    let end = events.until("run_finished").await.json();
    assert_eq!(end["reason"]["kind"], "cancelled");
    assert!(events.next().await.is_none());
    server
        .post("/api/agent/sessions/unknown/cancel", &json!({}))
        .await
        .problem(404, "session_not_found");
}

#[tokio::test]
async fn a_second_run_on_a_busy_session_is_refused() {
    let server = Server::start().await;
    let call = server.call();
    let (mut events, id, _) = script(&server, json!({})).await;
    let ran = server
        .run(&json!({"task": "me too", "sessionId": id}))
        .await;
    assert_eq!(ran.messages.len(), 1);
    assert_eq!(ran.end().json()["code"], "session_busy");
    let path = format!("/api/agent/sessions/{id}");
    server
        .request("DELETE", &path, "")
        .await
        .problem(409, "session_busy");
    call.done("done");
    events.until("run_finished").await;

    // At the same time, one of them wins.
    let input = json!({"task": "$ true", "sessionId": id});
    let (a, b) = tokio::join!(server.stream(&input), server.stream(&input));
    let (mut a, mut b) = (a, b);
    let firsts = [a.next().await.unwrap().event, b.next().await.unwrap().event];
    assert!(firsts.contains(&"run_started".to_owned()), "{firsts:?}");
    assert!(firsts.contains(&"error".to_owned()), "{firsts:?}");
    server.post(&format!("{path}/cancel"), &json!({})).await;
}

fn replayed(messages: &[crate::support::Message]) -> Vec<(Option<u64>, String)> {
    messages.iter().map(|m| (m.id, m.data.clone())).collect()
}

#[tokio::test]
async fn a_repeat_of_a_key_shows_the_first_run_again() {
    let server = Server::start().await;
    let input = json!({"task": "only once", "idempotencyKey": "key-1"});
    let first = server.run(&input).await;
    let again = server.run(&input).await;
    assert_eq!(replayed(&again.messages), replayed(&first.messages));
    let list = server.get("/api/agent/sessions").await.json();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);

    let id = first.session();
    let second = json!({"task": "then this", "sessionId": id, "idempotencyKey": "key-2"});
    let ran = server.run(&second).await;
    server
        .run(&json!({"task": "and more", "sessionId": id}))
        .await;
    let again = server.run(&second).await;
    assert_eq!(replayed(&again.messages), replayed(&ran.messages));
    assert_eq!(again.started()["resumed"], true);
    assert_eq!(
        replayed(&server.run(&input).await.messages),
        replayed(&first.messages)
    );
}

#[tokio::test]
async fn a_repeat_while_the_first_run_goes_on_follows_it() {
    let server = Server::start().await;
    for more in [
        json!({"idempotencyKey": "a"}),
        json!({"idempotencyKey": "b", "sessionId": null}),
    ] {
        let call = server.call();
        let (mut first, id, run) = script(&server, more.clone()).await;
        let mut again = more.clone();
        again["sessionId"] = json!(null);
        let (mut second, same, same_run) = script(&server, again).await;
        assert_eq!((&same, &same_run), (&id, &run));
        let mut keyed = more;
        keyed["sessionId"] = json!(id);
        let (mut third, _, third_run) = script(&server, keyed).await;
        assert_eq!(third_run, run);
        call.say("one");
        for events in [&mut first, &mut second, &mut third] {
            events.until("assistant/chunk").await;
        }
        call.done("one");
        for events in [&mut first, &mut second, &mut third] {
            let end = events.until("run_finished").await.json();
            assert_eq!(end["answer"], "one");
            assert!(events.next().await.is_none());
        }
    }
}

#[tokio::test]
async fn a_model_that_fails_ends_the_turn_as_an_error() {
    let server = Server::start().await;
    // The scripted model has nothing to say, so its stream is cut.
    let ran = server.run(&json!({"task": "x", "model": "script/m"})).await;
    assert_eq!(ran.end().event, "run_finished");
    assert_eq!(ran.end().json()["reason"]["kind"], "error");
    let id = ran.session();
    let turns = server
        .get(&format!("/api/agent/sessions/{id}/turns"))
        .await
        .json();
    let items = turns["turns"][0]["items"].as_array().unwrap();
    assert!(
        items.iter().any(|item| item["kind"] == "notice"),
        "{items:?}"
    );
}

#[tokio::test]
async fn shutdown_logs_the_ends_of_runs_and_ends_all_streams() {
    let mut server = Server::start().await;
    let _call = server.call();
    let (mut events, id, _) = script(&server, json!({})).await;
    let mut follower = server.follow(&id, "view=1", None).await;
    follower.until("caught_up").await;
    server.ask();
    let end = events.until("run_finished").await.json();
    assert_eq!(end["reason"]["kind"], "cancelled");
    assert!(events.next().await.is_none());
    follower.until("turn/end").await;
    while follower.next().await.is_some() {}
    let agents = server.stopped().await;
    let id = threadline_session::SessionId::parse(id).unwrap();
    let summary = soon("a summary", agents.store().summary(&id))
        .await
        .unwrap();
    assert_eq!(summary.status, threadline_store::SessionStatus::Idle);
}

#[tokio::test]
async fn shutdown_without_connections_still_waits_for_the_runs() {
    let mut server = Server::start().await;
    let _call = server.call();
    let (events, id, _) = script(&server, json!({})).await;
    drop(events);
    server.ask();
    let agents = server.stopped().await;
    assert!(agents.runs().is_empty());
    let id = threadline_session::SessionId::parse(id).unwrap();
    let inspected = agents.store().inspect(&id).await.unwrap();
    assert_eq!(inspected.unstored, 0);
    assert_eq!(
        inspected.view.turns()[0]
            .head
            .reason
            .as_ref()
            .unwrap()
            .name(),
        "cancelled"
    );
}
