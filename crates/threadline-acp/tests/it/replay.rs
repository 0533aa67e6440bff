use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::{Client, PNG, Reply, World, view};

async fn load(world: &World, client: &mut Client, session: &str) -> Vec<Value> {
    client.load(world, session).await
}

/// What a client shows of a prompt of its own. The read model's id comes with the replay.
fn said(replayed: &[Value], at: usize, content: Value) -> Value {
    let mine = replayed
        .iter()
        .filter(|item| item["kind"] == "user_message_chunk");
    let id = mine.clone().nth(at).unwrap()["id"].clone();
    json!({"kind": "user_message_chunk", "id": id, "content": content})
}

/// A session with everything in it: calls at the same time, one that is cut short, one that is
/// refused, a failing turn, a compaction, a list of steps and an image.
async fn eventful(world: &World, client: &mut Client) -> (String, Vec<Vec<Value>>) {
    let session = world.session(client).await;
    let file = world.cwd().join("a.txt");
    std::fs::write(&file, "one\n").unwrap();
    world.push([
        Reply::Calls(vec![
            ("c1", "read", json!({"path": "a.txt"})),
            ("c2", "ls", json!({})),
            (
                "c3",
                "edit",
                json!({"path": "a.txt", "old_string": "one", "new_string": "two"}),
            ),
            (
                "c4",
                "todo",
                json!({"todos": [{"step": "look", "status": "done"}]}),
            ),
        ]),
        Reply::Text("First answer."),
        Reply::Calls(vec![("c1", "acts", json!({}))]),
        Reply::Text("Refused, then."),
        Reply::Calls(vec![("c1", "looks", json!({})), ("c2", "looks", json!({}))]),
    ]);
    let mut turns = Vec::new();
    let mut from = client.log.len();
    let picture = json!({"type": "image", "mimeType": "image/png", "data": STANDARD.encode(PNG)});
    let prompt = json!([{"type": "text", "text": "look"}, picture]);
    let params = json!({"sessionId": session, "prompt": prompt});
    client.ask("session/prompt", params).await.unwrap();
    turns.push(client.updates(&session, from));

    from = client.log.len();
    let prompt = client.prompt(&session, "act").await;
    let question = client.question().await;
    client.decide(&question, "deny").await;
    client.answer(prompt).await.unwrap();
    turns.push(client.updates(&session, from));

    from = client.log.len();
    let prompt = client.prompt(&session, "wait").await;
    world.looks.begun.notified().await;
    client.cancel(&session).await;
    client.answer(prompt).await.unwrap();
    turns.push(client.updates(&session, from));

    from = client.log.len();
    let long = "A long story. ".repeat(2_000);
    let prompt = client.prompt(&session, &long).await;
    client.answer(prompt).await.unwrap();
    turns.push(client.updates(&session, from));

    world.push([Reply::Cut("Half an ans")]);
    for text in ["/compact", "fail"] {
        from = client.log.len();
        let prompt = client.prompt(&session, text).await;
        let _ = client.answer(prompt).await;
        turns.push(client.updates(&session, from));
    }
    (session, turns)
}

#[tokio::test]
async fn what_is_replayed_is_what_was_seen_live() {
    let world = World::new([]);
    let mut client = world.client().await;
    let (session, turns) = eventful(&world, &mut client).await;
    client.end().await;

    let mut client = world.client().await;
    let replayed = load(&world, &mut client, &session).await;
    let replayed = view(&replayed);
    let picture = json!({"type": "image", "mimeType": "image/png", "data": STANDARD.encode(PNG)});
    let text = |text: &str| json!({"type": "text", "text": text});
    let long = "A long story. ".repeat(2_000);
    // `/compact` is a command and leaves no message.
    let prompts = [
        vec![text("look"), picture],
        vec![text("act")],
        vec![text("wait")],
        vec![text(&long)],
        vec![],
        vec![text("fail")],
    ];
    let mut live = Vec::new();
    let mut number = 0;
    for (prompt, updates) in prompts.into_iter().zip(&turns) {
        for content in prompt {
            live.push(said(&replayed, number, content));
            number += 1;
        }
        live.extend(view(updates));
    }
    for (at, (seen, again)) in live.iter().zip(&replayed).enumerate() {
        assert_eq!(seen, again, "item {at}");
    }
    assert_eq!(live.len(), replayed.len());
    let calls = replayed
        .iter()
        .filter(|item| item.get("toolCallId").is_some());
    let states: Vec<_> = calls
        .map(|call| {
            call["_meta"]["threadline"]["outcome"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let wanted = ["ok", "ok", "ok", "ok", "denied", "cancelled", "cancelled"];
    assert_eq!(states, wanted);
    let edit = replayed.iter().find(|item| item["name"] == "edit").unwrap();
    assert_eq!(edit["kind"], "edit");
    assert_eq!(edit["content"][0]["type"], "diff");
    assert_eq!(edit["content"][0]["newText"], "two");
    assert_eq!(
        edit["locations"][0]["path"],
        *world.cwd().join("a.txt").to_str().unwrap()
    );
    let compacted = |item: &&Value| {
        item["content"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("by a summary: about"))
    };
    assert_eq!(replayed.iter().filter(compacted).count(), 1);
}

#[tokio::test]
async fn a_replay_has_one_update_for_a_message_and_one_for_a_call() {
    let world = World::new([]);
    let mut client = world.client().await;
    let (session, _) = eventful(&world, &mut client).await;
    let replayed = load(&world, &mut client, &session).await;
    assert!(
        replayed
            .iter()
            .all(|u| u["sessionUpdate"] != "tool_call_update")
    );
    let mut texts: Vec<_> = replayed
        .iter()
        .filter(|u| u["content"]["type"] == "text" && u["messageId"].is_string())
        .map(|u| u["messageId"].as_str().unwrap().to_owned())
        .collect();
    let all = texts.len();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), all);
}

#[tokio::test]
async fn loading_twice_is_loading_once_and_resuming_replays_nothing() {
    let world = World::new([]);
    let mut client = world.client().await;
    let (session, _) = eventful(&world, &mut client).await;
    client.end().await;
    let mut client = world.client().await;
    let first = load(&world, &mut client, &session).await;
    client.update("available_commands_update").await;
    let second = load(&world, &mut client, &session).await;
    assert!(first.len() > 10);
    let strip = |updates: Vec<Value>| {
        let wanted = |u: &Value| u["sessionUpdate"] != "available_commands_update";
        updates.into_iter().filter(wanted).collect::<Vec<_>>()
    };
    assert_eq!(strip(first.clone()), strip(second));
    assert_eq!(
        first.last().unwrap()["sessionUpdate"],
        "session_info_update"
    );
    client.end().await;

    let mut client = world.client().await;
    let params = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
    let id = client.request("session/resume", params).await;
    client.answer(id).await.unwrap();
    let before = client.log.iter().position(|m| m["id"] == id).unwrap();
    let told = client.log[..before]
        .iter()
        .filter(|m| m["method"] == "session/update");
    assert_eq!(told.count(), 0);
    let prompt = client.prompt(&session, "on").await;
    assert_eq!(
        client.answer(prompt).await.unwrap()["stopReason"],
        "end_turn"
    );
}

#[tokio::test]
async fn what_a_dead_process_left_open_is_shown_as_its_next_opening_closes_it() {
    let world = World::new([Reply::Calls(vec![
        ("c1", "looks", json!({})),
        ("c2", "acts", json!({})),
    ])]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    world.looks.begun.notified().await;
    // The log as it is at this moment is what a killed process leaves.
    let id = threadline_session::SessionId::parse(session.clone()).unwrap();
    let left = world.store();
    let copy = World::new([Reply::Text("on")]);
    copy.take_log_of(&left, &id).await;
    let mut after = copy.client().await;
    let replayed = view(&load(&copy, &mut after, &session).await);
    let calls = replayed
        .iter()
        .filter(|item| item.get("toolCallId").is_some());
    let states: Vec<_> = calls
        .map(|call| {
            call["_meta"]["threadline"]["outcome"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(states, ["unknown", "not_started"]);
    let prompt_after = after.prompt(&session, "on").await;
    after.answer(prompt_after).await.unwrap();
    let again = view(&load(&copy, &mut after, &session).await);
    assert_eq!(again[..replayed.len()], replayed[..]);
    client.cancel(&session).await;
    client.answer(prompt).await.unwrap();
}

#[tokio::test]
async fn a_session_is_not_replayed_while_its_turn_is_told_live() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    client.update("agent_message_chunk").await;
    let params = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
    let error = client.ask("session/load", params).await.unwrap_err();
    assert_eq!(error["code"], -32600);
    client.cancel(&session).await;
    client.answer(prompt).await.unwrap();
}
