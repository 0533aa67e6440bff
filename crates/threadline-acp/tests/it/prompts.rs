use serde_json::json;

use crate::support::{Client, Reply, World, view};

fn stop(answer: Result<serde_json::Value, serde_json::Value>) -> String {
    answer.unwrap()["stopReason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn all_updates_of_a_turn_come_before_its_answer() {
    let world = World::new([
        Reply::Calls(vec![("c1", "looks", json!({}))]),
        Reply::Text("done"),
    ]);
    world.looks.go.notify_one();
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "Find\nthe bug").await;
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
    let read = client.log.len();
    let log = client.end().await;
    let late = log[read..]
        .iter()
        .filter(|m| m["params"]["sessionId"] == *session);
    assert_eq!(late.count(), 0);
    let updates: Vec<_> = log
        .iter()
        .filter(|m| m["method"] == "session/update")
        .map(|m| m["params"]["update"].clone())
        .collect();
    let told = updates
        .iter()
        .find(|u| u["sessionUpdate"] == "session_info_update")
        .unwrap();
    assert_eq!(told["title"], "Find");
    let shown = view(&updates);
    let kinds: Vec<_> = shown
        .iter()
        .map(|item| {
            item.get("kind")
                .filter(|_| item.get("toolCallId").is_none())
        })
        .map(|kind| kind.and_then(|kind| kind.as_str()).unwrap_or("call"))
        .collect();
    let wanted = [
        "agent_message_chunk",
        "call",
        "agent_thought_chunk",
        "agent_message_chunk",
    ];
    assert_eq!(kinds, wanted);
    assert_eq!(shown[1]["status"], "completed");
    assert_eq!(shown[3]["content"]["text"], "done");
}

#[tokio::test]
async fn a_call_runs_once_a_person_allows_it() {
    let world = World::new([
        Reply::Calls(vec![("c1", "acts", json!({}))]),
        Reply::Text("done"),
    ]);
    world.acts.go.notify_one();
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "act").await;
    let question = client.question().await;
    let kinds: Vec<_> = question["params"]["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["kind"].clone())
        .collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    let call = question["params"]["toolCall"]["toolCallId"].clone();
    let shown = client.updates(&session, 0);
    assert!(
        shown
            .iter()
            .any(|u| u["sessionUpdate"] == "tool_call" && u["toolCallId"] == call)
    );
    client.decide(&question, "approve").await;
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
    assert!(client.log.iter().all(|m| m["method"] != "$/cancel_request"));
}

#[tokio::test]
async fn a_call_that_a_person_refuses_is_shown_as_failed_and_the_turn_goes_on() {
    let world = World::new([
        Reply::Calls(vec![("c1", "acts", json!({}))]),
        Reply::Text("then not"),
    ]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "act").await;
    let question = client.question().await;
    client.decide(&question, "deny").await;
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
    let shown = view(&client.updates(&session, 0));
    let call = shown
        .iter()
        .find(|item| item.get("toolCallId").is_some())
        .unwrap();
    assert_eq!(call["status"], "failed");
    assert_eq!(call["_meta"]["threadline"]["outcome"], "denied");
}

#[tokio::test]
async fn a_client_that_cannot_ask_allows_nothing() {
    let world = World::new([Reply::Calls(vec![("c1", "acts", json!({}))])]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "act").await;
    let question = client.question().await;
    let error = json!({"code": -32601, "message": "Method not found"});
    client
        .send(json!({"jsonrpc": "2.0", "id": question["id"], "error": error}))
        .await;
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
    let shown = view(&client.updates(&session, 0));
    let call = shown
        .iter()
        .find(|item| item.get("toolCallId").is_some())
        .unwrap();
    assert_eq!(call["status"], "failed");
}

#[tokio::test]
async fn a_question_that_is_answered_elsewhere_is_taken_back() {
    let world = World::new([Reply::Calls(vec![("c1", "acts", json!({}))])]);
    world.acts.go.notify_one();
    let agents = world.agents();
    let mut client = Client::new(agents.clone());
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "act").await;
    let question = client.question().await;
    let asked = agents.approvals().waiting(None).remove(0);
    let answered = threadline_agent::Answered {
        answer: threadline_agent::Answer::Approve,
        by: "page".into(),
        comment: None,
        prefix: None,
    };
    agents
        .approvals()
        .answer(&asked.run_id, &asked.tool_call_id, answered)
        .unwrap();
    let taken = client.until(|m| m["method"] == "$/cancel_request").await;
    assert_eq!(taken["params"]["requestId"], question["id"]);
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
}

#[tokio::test]
async fn cancelling_is_answered_as_cancelled_while_the_model_speaks() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    client.update("agent_message_chunk").await;
    client.cancel(&session).await;
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
}

#[tokio::test]
async fn cancelling_is_answered_as_cancelled_while_a_tool_runs() {
    let world = World::new([Reply::Calls(vec![("c1", "looks", json!({}))])]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    world.looks.begun.notified().await;
    client.cancel(&session).await;
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
    let shown = view(&client.updates(&session, 0));
    let call = shown
        .iter()
        .find(|item| item.get("toolCallId").is_some())
        .unwrap();
    assert_eq!(call["status"], "failed");
}

#[tokio::test]
async fn cancelling_is_answered_as_cancelled_while_a_person_is_asked() {
    let world = World::new([Reply::Calls(vec![("c1", "acts", json!({}))])]);
    let agents = world.agents();
    let mut client = Client::new(agents.clone());
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    let question = client.question().await;
    client.cancel(&session).await;
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    client
        .send(json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome}))
        .await;
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
    assert!(agents.approvals().waiting(None).is_empty());
}

#[tokio::test]
async fn a_cancellation_in_the_line_behind_a_prompt_meets_it() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    client.cancel(&session).await;
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
    let prompt = client.prompt(&session, "y").await;
    client
        .notify("$/cancel_request", json!({"requestId": prompt}))
        .await;
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
}

#[tokio::test]
async fn a_second_prompt_waits_in_the_log_and_is_answered_after_the_first() {
    let world = World::new([
        Reply::Calls(vec![("c1", "looks", json!({}))]),
        Reply::Text("first"),
        Reply::Text("second"),
        Reply::Text("third"),
    ]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let first = client.prompt(&session, "1").await;
    world.looks.begun.notified().await;
    let second = client.prompt(&session, "2").await;
    let third = client.prompt(&session, "3").await;
    let id = threadline_session::SessionId::parse(session.clone()).unwrap();
    let store = world.store();
    let mut follow = store.follow(&id, None);
    let mut queued = 0;
    while queued < 2 {
        if let threadline_store::Followed::Line(line) = follow.next().await.unwrap() {
            queued += usize::from(line.event.kind == "inbox/queued");
        }
    }
    world.looks.go.notify_one();
    for prompt in [first, second, third] {
        assert_eq!(stop(client.answer(prompt).await), "end_turn");
    }
    let answers: Vec<_> = client
        .log
        .iter()
        .filter(|m| m["result"]["stopReason"].is_string())
        .map(|m| m["id"].as_u64().unwrap())
        .collect();
    assert_eq!(answers, [first, second, third]);
    let texts: Vec<_> = view(&client.updates(&session, 0))
        .into_iter()
        .filter(|item| item["kind"] == "agent_message_chunk")
        .map(|item| item["content"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts, ["I look.", "first", "second", "third"]);
}

#[tokio::test]
async fn cancelling_takes_back_what_waits() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let first = client.prompt(&session, "1").await;
    client.update("agent_message_chunk").await;
    let second = client.prompt(&session, "2").await;
    client.cancel(&session).await;
    assert_eq!(stop(client.answer(first).await), "cancelled");
    assert_eq!(stop(client.answer(second).await), "cancelled");
    let id = threadline_session::SessionId::parse(session).unwrap();
    assert!(world.store().inbox(&id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_message_behind_a_turn_that_fails_is_delivered() {
    let world = World::new([
        Reply::Calls(vec![("c1", "looks", json!({}))]),
        Reply::Cut("b"),
        Reply::Text("second"),
    ]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let first = client.prompt(&session, "1").await;
    world.looks.begun.notified().await;
    let second = client.prompt(&session, "2").await;
    let id = threadline_session::SessionId::parse(session).unwrap();
    let store = world.store();
    let mut follow = store.follow(&id, None);
    loop {
        if let threadline_store::Followed::Line(line) = follow.next().await.unwrap()
            && line.event.kind == "inbox/queued"
        {
            break;
        }
    }
    world.looks.go.notify_one();
    let error = client.answer(first).await.unwrap_err();
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(stop(client.answer(second).await), "end_turn");
}

#[tokio::test]
async fn what_a_prompt_cannot_say_is_refused_and_the_session_stays_usable() {
    let world = World::new([Reply::Text("one")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let no_image = json!([{"type": "text", "text": "see"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"}]);
    for prompt in [json!([]), no_image] {
        let params = json!({"sessionId": session, "prompt": prompt});
        let error = client.ask("session/prompt", params).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
    }
    let prompt = client.prompt(&session, "go").await;
    assert_eq!(stop(client.answer(prompt).await), "end_turn");
}

#[tokio::test]
async fn closing_a_session_ends_its_turn() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    client.update("agent_message_chunk").await;
    let closed = client
        .ask("session/close", json!({"sessionId": session}))
        .await;
    assert_eq!(closed, Ok(json!({})));
    assert_eq!(stop(client.answer(prompt).await), "cancelled");
}
