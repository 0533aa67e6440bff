//! Questions that outlived the process which asked them.

use serde_json::{Value, json};
use threadline_session::SessionId;

use crate::support::{Client, Reply, World, view};

/// A session whose process was killed while a person was asked, in a world of its own, and the
/// client that has loaded it there and is asked again.
async fn dead_while_asking(replies: Vec<Reply>) -> (World, Client, String, Value) {
    let call = ("c1", "acts", json!({"a": 1}));
    let world = World::new([Reply::Calls(vec![call])]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "act").await;
    client.question().await;
    let id = SessionId::parse(session.clone()).unwrap();
    let copy = World::new(replies);
    copy.take_log_of(&world.store(), &id).await;
    client.cancel(&session).await;
    client.answer(prompt).await.unwrap();
    let mut client = copy.client().await;
    let replayed = client.load(&copy, &session).await;
    assert_eq!(outcomes(&replayed), ["not_started"]);
    let question = client.question().await;
    (copy, client, session, question)
}

fn outcomes(updates: &[Value]) -> Vec<String> {
    let shown = view(updates);
    let calls = shown.iter().filter(|item| item.get("toolCallId").is_some());
    let outcome = |call: &Value| {
        call["_meta"]["threadline"]["outcome"]
            .as_str()
            .map(str::to_owned)
    };
    calls
        .map(|call| outcome(call).unwrap_or_default())
        .collect()
}

/// The model makes the call again that it was told is approved.
fn again() -> Vec<Reply> {
    vec![
        Reply::Calls(vec![("c2", "acts", json!({"a": 1}))]),
        Reply::Text("acted"),
    ]
}

#[tokio::test]
async fn an_old_question_is_put_again_behind_the_load_and_a_yes_is_a_turn_of_its_own() {
    let (world, mut client, session, question) = dead_while_asking(again()).await;
    let place = |fits: &dyn Fn(&Value) -> bool| client.log.iter().position(fits).unwrap();
    let loaded = place(&|m| m["result"]["modes"].is_object());
    assert!(loaded < place(&|m| m["method"] == "session/request_permission"));
    let call = &question["params"]["toolCall"];
    assert_eq!(call["rawInput"], json!({"a": 1}));
    world.acts.go.notify_one();
    let from = client.log.len();
    client.decide(&question, "approve").await;
    let says = |m: &Value| {
        m["params"]["update"]["content"]["text"]
            .as_str()
            .map(str::to_owned)
    };
    client
        .until(|m| says(m).is_some_and(|text| text.ends_with("ed")))
        .await;
    let told = client.updates(&session, from);
    assert_eq!(outcomes(&told), ["ok"]);
    let asked = |m: &&Value| m["method"] == "session/request_permission";
    assert_eq!(client.log.iter().filter(asked).count(), 1);

    // The session goes on as ever, and a replay shows what was seen.
    world.push([Reply::Text("more")]);
    let prompt = client.prompt(&session, "go on").await;
    client.answer(prompt).await.unwrap();
    let replayed = client.load(&world, &session).await;
    assert_eq!(outcomes(&replayed), ["not_started", "ok"]);
    let shown = view(&replayed);
    for item in view(&told) {
        assert!(shown.contains(&item), "{item}");
    }
}

#[tokio::test]
async fn a_no_to_an_old_question_lets_the_call_be() {
    let (world, mut client, session, question) = dead_while_asking(Vec::new()).await;
    client.decide(&question, "deny").await;
    let prompt = client.prompt(&session, "go on").await;
    client.answer(prompt).await.unwrap();
    let replayed = client.load(&world, &session).await;
    assert_eq!(outcomes(&replayed), ["not_started"]);
}

#[tokio::test]
async fn a_prompt_takes_an_old_question_back() {
    let (world, mut client, session, question) = dead_while_asking(again()).await;
    world.push([Reply::Text("x")]);
    world.acts.go.notify_one();
    let prompt = client.prompt(&session, "go on").await;
    let taken = client.until(|m| m["method"] == "$/cancel_request").await;
    assert_eq!(taken["params"]["requestId"], question["id"]);
    // An answer that crosses it approves nothing.
    client.decide(&question, "approve").await;
    let fresh = client.question().await;
    client.decide(&fresh, "deny").await;
    client.answer(prompt).await.unwrap();
    let replayed = client.load(&world, &session).await;
    assert_eq!(outcomes(&replayed), ["not_started", "denied"]);
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_put_each_time_the_session_is_opened() {
    let (world, mut client, session, question) = dead_while_asking(Vec::new()).await;
    let cancelled = json!({"outcome": {"outcome": "cancelled"}});
    client.reply(&question, cancelled).await;
    client.load(&world, &session).await;
    let second = client.question().await;
    client.refuse(&second, "I cannot").await;
    let params = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
    client.ask("session/resume", params).await.unwrap();
    client.question().await;
    // The end does not wait for the answer.
    let log = client.end().await;
    assert_eq!(log.last().unwrap()["method"], "session/request_permission");
}

#[tokio::test]
async fn a_run_that_an_old_question_has_begun_is_cancelled_like_any_other() {
    let (_world, mut client, session, question) = dead_while_asking(again()).await;
    client.decide(&question, "approve").await;
    client
        .until(|m| m["params"]["update"]["status"] == "in_progress")
        .await;
    let behind = client.prompt(&session, "behind").await;
    client.cancel(&session).await;
    assert_eq!(
        client.answer(behind).await.unwrap()["stopReason"],
        "cancelled"
    );
    client
        .until(|m| m["params"]["update"]["_meta"]["threadline"]["outcome"] == "cancelled")
        .await;
}
