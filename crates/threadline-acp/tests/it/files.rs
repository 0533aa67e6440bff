//! Texts of files as the client holds them.

use serde_json::{Value, json};

use crate::support::{Client, Reply, World, view};

fn offers() -> Value {
    json!({"fs": {"readTextFile": true, "writeTextFile": true}})
}

/// The call of a session that has made one, as it is shown.
fn call(updates: &[Value]) -> Value {
    let shown = view(updates);
    let mut calls = shown.iter().filter(|item| item.get("toolCallId").is_some());
    calls.next().unwrap().clone()
}

fn text(call: &Value) -> &str {
    let content = call["content"].as_array().unwrap().last().unwrap();
    content["content"]["text"].as_str().unwrap()
}

async fn ends(client: &mut Client, prompt: u64) {
    let answer = client.answer(prompt).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
}

#[tokio::test]
async fn an_edit_reads_and_writes_what_the_client_holds() {
    let edit = json!({"path": "a.txt", "old_string": "typed", "new_string": "mine"});
    let world = World::new([Reply::Calls(vec![("c1", "edit", edit)])]);
    let path = world.cwd().join("a.txt");
    std::fs::write(&path, "saved\n").unwrap();
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "edit").await;
    let read = client.asked("fs/read_text_file").await;
    assert_eq!(read["params"], json!({"sessionId": session, "path": path}));
    client
        .reply(&read, json!({"content": "saved\ntyped\n"}))
        .await;
    let write = client.asked("fs/write_text_file").await;
    let wanted = json!({"sessionId": session, "path": path, "content": "saved\nmine\n"});
    assert_eq!(write["params"], wanted);
    std::fs::write(&path, "saved\nmine\n").unwrap();
    // Some clients answer with null.
    client.reply(&write, Value::Null).await;
    ends(&mut client, prompt).await;
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["status"], "completed");
    assert!(text(&shown).contains("-typed\n+mine"), "{shown}");
    client.end().await;

    // A client that offers nothing is asked for nothing, whatever the one before did.
    let again = json!({"path": "a.txt", "old_string": "mine", "new_string": "ours"});
    world.push([Reply::Calls(vec![("c2", "edit", again)])]);
    let mut client = world.client().await;
    let replayed = client.load(&world, &session).await;
    assert_eq!(call(&replayed), shown);
    let prompt = client.prompt(&session, "again").await;
    ends(&mut client, prompt).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "saved\nours\n");
    let asked = |m: &&Value| {
        let method = m["method"].as_str().unwrap_or_default();
        method.starts_with("fs/")
    };
    assert_eq!(client.log.iter().filter(asked).count(), 0);
}

#[tokio::test]
async fn a_subagent_sees_what_the_client_of_its_session_holds() {
    let world = World::new([
        Reply::Calls(vec![("c1", "agent", json!({"task": "look"}))]),
        Reply::Calls(vec![("c1", "read", json!({"path": "a.txt"}))]),
        Reply::Text("seen"),
        Reply::Text("done"),
    ]);
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "go").await;
    let read = client.asked("fs/read_text_file").await;
    assert_eq!(read["params"]["sessionId"], *session);
    client.reply(&read, json!({"content": "typed\n"})).await;
    ends(&mut client, prompt).await;
}

#[tokio::test]
async fn a_client_that_refuses_is_not_asked_to_write_and_the_result_says_why() {
    let edit = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    let world = World::new([Reply::Calls(vec![("c1", "edit", edit)])]);
    let path = world.cwd().join("a.txt");
    std::fs::write(&path, "one\n").unwrap();
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "edit").await;
    let read = client.asked("fs/read_text_file").await;
    client.refuse(&read, "not in a project").await;
    ends(&mut client, prompt).await;
    let shown = call(&client.updates(&session, 0));
    assert!(
        text(&shown).contains("it refused: not in a project"),
        "{shown}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
}

#[tokio::test]
async fn a_client_that_does_not_answer_costs_its_time_and_no_more() {
    let edit = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    let world = World::new([
        Reply::Calls(vec![("c1", "read", json!({"path": "a.txt"}))]),
        Reply::Calls(vec![("c2", "edit", edit)]),
    ]);
    let path = world.cwd().join("a.txt");
    std::fs::write(&path, "one\n").unwrap();
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "look").await;
    let time = threadline_acp::limits::FILE_READ_TIME;
    for _ in 0..2 {
        let read = client.asked("fs/read_text_file").await;
        tokio::time::pause();
        tokio::time::advance(time + time / 10).await;
        tokio::time::resume();
        let taken = client.until(|m| m["method"] == "$/cancel_request").await;
        assert_eq!(taken["params"]["requestId"], read["id"]);
        // Too late for anybody.
        client.reply(&read, json!({"content": "late\n"})).await;
    }
    ends(&mut client, prompt).await;
    let shown = view(&client.updates(&session, 0));
    let calls: Vec<_> = (shown.iter())
        .filter(|item| item.get("toolCallId").is_some())
        .collect();
    assert!(
        text(calls[0]).contains("it has not answered within 10 s"),
        "{}",
        calls[0]
    );
    assert!(text(calls[0]).starts_with("     1\tone"), "{}", calls[0]);
    assert_eq!(calls[1]["status"], "failed");
    assert!(
        text(calls[1]).contains("nothing was changed"),
        "{}",
        calls[1]
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
}

#[tokio::test]
async fn a_turn_is_cancelled_while_the_client_is_asked() {
    let world = World::new([Reply::Calls(vec![(
        "c1",
        "write",
        json!({"path": "new.txt", "content": "x"}),
    )])]);
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "write").await;
    let read = client.asked("fs/read_text_file").await;
    client.refuse(&read, "no such file").await;
    client.asked("fs/write_text_file").await;
    client.cancel(&session).await;
    assert_eq!(
        client.answer(prompt).await.unwrap()["stopReason"],
        "cancelled"
    );
    // It may have been written, and the log says so.
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["_meta"]["threadline"]["outcome"], "unknown");
    assert!(client.log.iter().any(|m| m["method"] == "$/cancel_request"));
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_is_asked_leaves_an_end_in_the_log() {
    let world = World::new([Reply::Calls(vec![("c1", "read", json!({"path": "a.txt"}))])]);
    std::fs::write(world.cwd().join("a.txt"), "one\n").unwrap();
    let mut client = world.client_that(offers()).await;
    let session = world.session(&mut client).await;
    client.prompt(&session, "look").await;
    client.asked("fs/read_text_file").await;
    client.end().await;
    let mut client = world.client().await;
    let replayed = client.load(&world, &session).await;
    assert_eq!(
        call(&replayed)["_meta"]["threadline"]["outcome"],
        "cancelled"
    );
}
