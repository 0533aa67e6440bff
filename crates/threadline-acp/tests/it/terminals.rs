//! Commands in a terminal of the client.

use serde_json::{Value, json};
use threadline_session::SessionId;

use crate::support::{Client, Reply, World, view};

fn shell(more: Value) -> Reply {
    let mut arguments = json!({"command": "make it"});
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    Reply::Calls(vec![("c1", "shell", arguments)])
}

/// A session in which nothing confines commands, and the request for a terminal.
async fn asked(world: &World, client: &mut Client) -> (String, u64, Value) {
    let session = world.session(client).await;
    let full = json!({"sessionId": session, "configId": "sandbox", "value": "danger_full_access"});
    client.ask("session/set_config_option", full).await.unwrap();
    let prompt = client.prompt(&session, "go").await;
    let create = client.asked("terminal/create").await;
    (session, prompt, create)
}

async fn client(world: &World) -> Client {
    world.client_that(json!({"terminal": true})).await
}

fn call(updates: &[Value]) -> Value {
    let shown = view(updates);
    let mut calls = shown.iter().filter(|item| item.get("toolCallId").is_some());
    calls.next().unwrap().clone()
}

fn text(call: &Value) -> &str {
    call["content"][0]["content"]["text"].as_str().unwrap()
}

/// Answers all that is asked of a terminal at its end, and returns the methods in their order.
async fn end(client: &mut Client, output: &str, truncated: bool) -> Vec<String> {
    let mut methods = Vec::new();
    loop {
        let of = |m: &Value| {
            let method = m["method"].as_str().unwrap_or_default();
            method.starts_with("terminal/")
        };
        let request = client.until(of).await;
        let method = request["method"].as_str().unwrap().to_owned();
        let result = match &*method {
            "terminal/output" => json!({"output": output, "truncated": truncated}),
            _ => json!({}),
        };
        client.reply(&request, result).await;
        let last = method == "terminal/release";
        methods.push(method);
        if last {
            return methods;
        }
    }
}

#[tokio::test]
async fn a_command_is_shown_in_the_terminal_while_it_runs_and_as_text_from_its_end_on() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    let params = &create["params"];
    assert_eq!(params["sessionId"], *session);
    assert_eq!(params["cwd"], *world.cwd().to_str().unwrap());
    assert!(params["outputByteLimit"].as_u64().unwrap() > 0);
    let args = params["args"].as_array().unwrap();
    assert_eq!(args.last().unwrap(), "make it");
    // What commands see is what they see beside the agent.
    assert_eq!(
        (&params["command"], &args[0]),
        (&json!("/usr/bin/env"), &json!("-i"))
    );
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    let wait = client.asked("terminal/wait_for_exit").await;
    // It is told on its own way: before the request or behind it.
    let terminal = json!([{"type": "terminal", "terminalId": "t-1"}]);
    let is_shown = |m: &Value| m["params"]["update"]["content"] == terminal;
    if !client.log.iter().any(is_shown) {
        client.until(is_shown).await;
    }
    client.reply(&wait, json!({"exitCode": 2})).await;
    let methods = end(&mut client, "made\u{1b}[0m\n", false).await;
    assert_eq!(methods, ["terminal/output", "terminal/release"]);
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["status"], "failed");
    assert_eq!(
        text(&shown),
        "made\\x1b[0m\n[exit code 2; in the editor's terminal]"
    );
    client.end().await;

    let mut client = world.client().await;
    let replayed = client.load(&world, &session).await;
    assert_eq!(call(&replayed), shown);
    assert!(!json!(replayed).to_string().contains("t-1"));
}

#[tokio::test]
async fn a_terminal_is_shown_before_it_is_released_however_short_its_command() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (_, prompt, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    let wait = client.asked("terminal/wait_for_exit").await;
    client.reply(&wait, json!({"exitCode": 0})).await;
    end(&mut client, "", false).await;
    client.answer(prompt).await.unwrap();
    let place = |fits: &dyn Fn(&Value) -> bool| client.log.iter().position(fits).unwrap();
    let shown = place(&|m| m["params"]["update"]["content"][0]["terminalId"] == "t-1");
    assert!(shown < place(&|m| m["method"] == "terminal/release"));
}

#[tokio::test]
async fn what_is_printed_is_in_the_log_while_the_command_runs() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    let wait = client.asked("terminal/wait_for_exit").await;
    let id = SessionId::parse(session.clone()).unwrap();
    let mut follow = world.store().follow(&id, None);
    let look = client.asked("terminal/output").await;
    client
        .reply(&look, json!({"output": "half", "truncated": false}))
        .await;
    loop {
        let threadline_store::Followed::Line(line) = follow.next().await.unwrap() else {
            continue;
        };
        if line.event.kind == "tool/output" {
            assert!(line.event.data.get().contains("half"));
            break;
        }
    }
    // A process that is killed now leaves this, and a terminal that nobody knows.
    let copy = World::new([]);
    copy.take_log_of(&world.store(), &id).await;
    let mut after = copy.client_that(json!({"terminal": true})).await;
    let replayed = after.load(&copy, &session).await;
    let left = call(&replayed);
    assert_eq!(left["_meta"]["threadline"]["outcome"], "unknown");
    assert!(!json!(replayed).to_string().contains("t-1"));

    client.reply(&wait, json!({"exitCode": 0})).await;
    end(&mut client, "half and half", true).await;
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert!(
        text(&shown).starts_with("[the beginning of the output is left out"),
        "{shown}"
    );
    assert!(text(&shown).contains("half and half"), "{shown}");
}

#[tokio::test]
async fn a_command_that_the_sandbox_confines_is_not_for_a_terminal() {
    let world = World::new([Reply::Calls(vec![(
        "c1",
        "shell",
        json!({"command": "pwd"}),
    )])]);
    let mut client = client(&world).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "go").await;
    client.answer(prompt).await.unwrap();
    let asked = |m: &&Value| {
        let method = m["method"].as_str().unwrap_or_default();
        method.starts_with("terminal/")
    };
    assert_eq!(client.log.iter().filter(asked).count(), 0);
}

#[tokio::test]
async fn a_call_that_a_person_lets_out_of_the_sandbox_runs_in_the_terminal() {
    let outside = json!({"outside_sandbox": true, "reason": "to commit"});
    let world = World::new([shell(outside)]);
    let mut client = client(&world).await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "go").await;
    let question = client.question().await;
    client.decide(&question, "approve").await;
    let create = client.asked("terminal/create").await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    let wait = client.asked("terminal/wait_for_exit").await;
    client.reply(&wait, json!({"signal": "SIGKILL"})).await;
    end(&mut client, "out\n", false).await;
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert!(text(&shown).contains("ended by signal SIGKILL"), "{shown}");
}

#[tokio::test]
async fn a_command_over_its_time_is_killed_and_what_it_printed_is_kept() {
    let world = World::new([shell(json!({"timeout_ms": 5_000}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    client.asked("terminal/wait_for_exit").await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    tokio::time::resume();
    let methods = end(&mut client, "begun\n", false).await;
    let last = &methods[methods.len() - 3..];
    assert_eq!(
        last,
        ["terminal/kill", "terminal/output", "terminal/release"]
    );
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["_meta"]["threadline"]["outcome"], "timeout");
    assert!(text(&shown).starts_with("begun\n"), "{shown}");
}

#[tokio::test]
async fn cancelling_kills_the_command() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    client.asked("terminal/wait_for_exit").await;
    client.cancel(&session).await;
    let methods = end(&mut client, "begun\n", false).await;
    assert_eq!(
        methods,
        ["terminal/kill", "terminal/output", "terminal/release"]
    );
    assert_eq!(
        client.answer(prompt).await.unwrap()["stopReason"],
        "cancelled"
    );
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["_meta"]["threadline"]["outcome"], "cancelled");
    assert!(text(&shown).starts_with("begun\n"), "{shown}");
}

#[tokio::test]
async fn a_terminal_that_comes_after_the_cancellation_is_ended() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.cancel(&session).await;
    assert_eq!(
        client.answer(prompt).await.unwrap()["stopReason"],
        "cancelled"
    );
    client.reply(&create, json!({"terminalId": "t-9"})).await;
    let kill = client.asked("terminal/kill").await;
    assert_eq!(kill["params"]["terminalId"], "t-9");
    let release = client.asked("terminal/release").await;
    assert_eq!(release["params"]["terminalId"], "t-9");
}

#[tokio::test]
async fn a_client_that_gives_no_terminal_loses_nothing() {
    let world = World::new([Reply::Calls(vec![(
        "c1",
        "shell",
        json!({"command": "echo here"}),
    )])]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.refuse(&create, "no terminals today").await;
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["status"], "completed");
    assert!(text(&shown).starts_with("here\n[exit code 0]"), "{shown}");
    assert!(text(&shown).contains("no terminals today"), "{shown}");
}

#[tokio::test]
async fn an_end_that_the_client_cannot_tell_is_unknown() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, prompt, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    let wait = client.asked("terminal/wait_for_exit").await;
    client.refuse(&wait, "the terminal is gone").await;
    end(&mut client, "begun\n", false).await;
    client.answer(prompt).await.unwrap();
    let shown = call(&client.updates(&session, 0));
    assert_eq!(shown["_meta"]["threadline"]["outcome"], "unknown");
}

#[tokio::test]
async fn a_client_that_ends_its_input_is_asked_to_end_the_command() {
    let world = World::new([shell(json!({}))]);
    let mut client = client(&world).await;
    let (session, _, create) = asked(&world, &mut client).await;
    client.reply(&create, json!({"terminalId": "t-1"})).await;
    client.asked("terminal/wait_for_exit").await;
    let log = client.end().await;
    let asked = |method: &str| log.iter().any(|m| m["method"] == method);
    assert!(asked("terminal/kill") && asked("terminal/release"));
    let mut client = world.client().await;
    let replayed = client.load(&world, &session).await;
    let outcome = &call(&replayed)["_meta"]["threadline"]["outcome"];
    assert_eq!(*outcome, "cancelled");
}
