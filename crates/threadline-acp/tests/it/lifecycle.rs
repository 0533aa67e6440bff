use serde_json::{Value, json};

use crate::support::{Reply, World};

fn code(answer: Result<Value, Value>) -> i64 {
    answer.unwrap_err()["code"].as_i64().unwrap()
}

#[tokio::test]
async fn a_client_is_told_what_there_is() {
    let world = World::new([]);
    let mut client = world.client().await;
    let answer = &client.log[0]["result"];
    assert_eq!(answer["protocolVersion"], 1);
    let capabilities = &answer["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], true);
    assert_eq!(capabilities["promptCapabilities"]["image"], true);
    for method in ["list", "delete", "resume", "close", "fork", "title"] {
        assert!(
            capabilities["sessionCapabilities"][method].is_object(),
            "{method}"
        );
    }
    let newer = json!({"protocolVersion": 7, "clientCapabilities": {}});
    let answer = client.ask("initialize", newer).await.unwrap();
    assert_eq!(answer["protocolVersion"], 1);
}

#[tokio::test]
async fn the_response_of_a_new_session_comes_before_its_updates() {
    let world = World::new([]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    client.update("available_commands_update").await;
    let of =
        |m: &Value| m["params"]["sessionId"] == *session || m["result"]["sessionId"] == *session;
    let first = client.log.iter().find(|m| of(m)).unwrap();
    assert_eq!(first["result"]["sessionId"], *session);
    assert_eq!(first["result"]["modes"]["currentModeId"], "on_request");
}

#[tokio::test]
async fn an_unknown_session_is_told_by_its_code_and_id() {
    let world = World::new([]);
    let mut client = world.client().await;
    let cwd = world.cwd();
    let prompt = json!([{"type": "text", "text": "x"}]);
    for (method, params) in [
        (
            "session/load",
            json!({"sessionId": "nope", "cwd": cwd, "mcpServers": []}),
        ),
        (
            "session/resume",
            json!({"sessionId": "nope", "cwd": cwd, "mcpServers": []}),
        ),
        ("session/fork", json!({"sessionId": "nope", "cwd": cwd})),
        (
            "session/prompt",
            json!({"sessionId": "nope", "prompt": prompt}),
        ),
        ("session/close", json!({"sessionId": "nope"})),
        (
            "session/set_mode",
            json!({"sessionId": "nope", "modeId": "strict"}),
        ),
        (
            "session/set_title",
            json!({"sessionId": "nope", "title": "t"}),
        ),
    ] {
        let error = client.ask(method, params).await.unwrap_err();
        assert_eq!(error["code"], -32002, "{method}");
        assert_eq!(error["data"]["sessionId"], "nope", "{method}");
    }
    let deleted = client
        .ask("session/delete", json!({"sessionId": "nope"}))
        .await;
    assert_eq!(deleted, Ok(json!({})));
}

#[tokio::test]
async fn a_closed_session_takes_no_prompt_and_can_be_loaded_again() {
    let world = World::new([Reply::Text("one"), Reply::Text("two")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let first = client.prompt(&session, "first").await;
    assert_eq!(
        client.answer(first).await.unwrap()["stopReason"],
        "end_turn"
    );
    let closed = client
        .ask("session/close", json!({"sessionId": session}))
        .await;
    assert_eq!(closed, Ok(json!({})));
    let refused = client.prompt(&session, "second").await;
    assert_eq!(code(client.answer(refused).await), -32002);
    let load = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
    client.ask("session/load", load).await.unwrap();
    let second = client.prompt(&session, "second").await;
    assert_eq!(
        client.answer(second).await.unwrap()["stopReason"],
        "end_turn"
    );
}

#[tokio::test]
async fn lists_are_cut_to_a_folder_before_they_are_cut_into_pages() {
    let world = World::new([]);
    let other = tempfile::tempdir().unwrap();
    let mut client = world.client().await;
    for number in 0..3 {
        for cwd in [world.cwd(), other.path()] {
            let params = json!({"cwd": cwd, "mcpServers": []});
            let answer = client.ask("session/new", params).await.unwrap();
            let session = answer["sessionId"].as_str().unwrap().to_owned();
            let prompt = client
                .prompt(&session, &format!("task {number}\nmore"))
                .await;
            client.answer(prompt).await.unwrap();
        }
    }
    let all = client.ask("session/list", json!({})).await.unwrap();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 6);
    let here = client
        .ask("session/list", json!({"cwd": world.cwd()}))
        .await
        .unwrap();
    let rows = here["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["title"], "task 2");
    assert!(rows[0]["updatedAt"].as_str().unwrap().ends_with('Z'));
    assert!(
        rows.iter()
            .all(|row| row["cwd"] == *world.cwd().to_str().unwrap())
    );
    assert!(here.get("nextCursor").is_none());
    let bad = client.ask("session/list", json!({"cursor": "§"})).await;
    assert_eq!(code(bad), -32602);
    let relative = client.ask("session/list", json!({"cwd": "a"})).await;
    assert_eq!(code(relative), -32602);
}

#[tokio::test]
async fn what_is_set_counts_from_the_next_turn_and_is_restored_from_the_log() {
    let world = World::new([Reply::Text("one")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let mode = json!({"sessionId": session, "modeId": "strict"});
    assert_eq!(client.ask("session/set_mode", mode).await, Ok(json!({})));
    let told = client.update("config_option_update").await;
    assert_eq!(told["configOptions"][1]["currentValue"], "strict");
    let set = json!({"sessionId": session, "configId": "sandbox", "value": "read_only"});
    let answer = client.ask("session/set_config_option", set).await.unwrap();
    assert_eq!(answer["configOptions"][2]["currentValue"], "read_only");
    let model = json!({"sessionId": session, "modelId": "m-2"});
    assert_eq!(client.ask("session/set_model", model).await, Ok(json!({})));
    let prompt = client.prompt(&session, "go").await;
    client.answer(prompt).await.unwrap();
    client.end().await;

    let mut client = world.client().await;
    let params = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
    for method in ["session/load", "session/resume"] {
        let answer = client.ask(method, params.clone()).await.unwrap();
        assert_eq!(answer["modes"]["currentModeId"], "strict", "{method}");
        let values: Vec<_> = answer["configOptions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["currentValue"].as_str().unwrap())
            .collect();
        assert_eq!(values, ["script/m-2", "strict", "read_only"], "{method}");
    }
    let wrong = json!({"sessionId": session, "configId": "sandbox", "value": "all"});
    assert_eq!(
        code(client.ask("session/set_config_option", wrong).await),
        -32602
    );
    let wrong = json!({"sessionId": session, "configId": "temper", "value": "hot"});
    assert_eq!(
        code(client.ask("session/set_config_option", wrong).await),
        -32602
    );
}

#[tokio::test]
async fn a_fork_is_silent_and_goes_its_own_way() {
    let world = World::new([Reply::Text("one"), Reply::Text("two")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "go").await;
    client.answer(prompt).await.unwrap();
    let fork = json!({"sessionId": session, "cwd": world.cwd()});
    let answer = client.ask("session/fork", fork).await.unwrap();
    let child = answer["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(child, session);
    assert_eq!(answer["configOptions"][0]["currentValue"], "script/m-1");
    let prompt = client.prompt(&child, "on").await;
    client.answer(prompt).await.unwrap();
    let told = client.updates(&child, 0);
    assert!(
        told.iter().all(|u| u["content"]["text"] != "one"),
        "{told:?}"
    );
    let load = json!({"sessionId": child, "cwd": world.cwd(), "mcpServers": []});
    let from = client.log.len();
    client.ask("session/load", load).await.unwrap();
    let texts: Vec<_> = client
        .updates(&child, from)
        .into_iter()
        .filter(|u| u["sessionUpdate"] == "agent_message_chunk")
        .map(|u| u["content"]["text"].clone())
        .collect();
    assert_eq!(texts, ["one", "two"]);
}

#[tokio::test]
async fn a_title_is_kept_also_when_it_comes_before_the_first_prompt() {
    let world = World::new([]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let title = json!({"sessionId": session, "title": " Mine "});
    let answer = client.ask("session/set_title", title).await.unwrap();
    assert_eq!(answer["title"], "Mine");
    let prompt = client.prompt(&session, "go").await;
    client.answer(prompt).await.unwrap();
    let list = client.ask("session/list", json!({})).await.unwrap();
    assert_eq!(list["sessions"][0]["title"], "Mine");
    let title = json!({"sessionId": session, "title": "Other"});
    client.ask("session/set_title", title).await.unwrap();
    let list = client.ask("session/list", json!({})).await.unwrap();
    assert_eq!(list["sessions"][0]["title"], "Other");
    let empty = json!({"sessionId": session, "title": " "});
    assert_eq!(code(client.ask("session/set_title", empty).await), -32602);
}

#[tokio::test]
async fn servers_that_cannot_be_connected_are_told_of() {
    let world = World::new([]);
    let mut client = world.client().await;
    let server = json!({"name": "files", "command": "/bin/files", "args": [],
        "env": [{"name": "TOKEN", "value": "s3cret"}]});
    let params = json!({"cwd": world.cwd(), "mcpServers": [server]});
    client.ask("session/new", params).await.unwrap();
    let told = client.update("agent_thought_chunk").await.to_string();
    assert!(told.contains("files") && !told.contains("s3cret"), "{told}");
    let server = json!({"name": "files", "command": "relative", "args": [],
        "env": [{"name": "TOKEN", "value": "s3cret"}]});
    let params = json!({"cwd": world.cwd(), "mcpServers": [server]});
    let error = client.ask("session/new", params).await.unwrap_err();
    assert_eq!(error["code"], -32602);
    assert!(!error.to_string().contains("s3cret"));
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_refused() {
    let world = World::new([]);
    let mut client = world.client().await;
    for cwd in ["relative", "/no/such/folder"] {
        let params = json!({"cwd": cwd, "mcpServers": []});
        assert_eq!(
            code(client.ask("session/new", params).await),
            -32602,
            "{cwd}"
        );
    }
}
