use serde_json::{Value, json};
use threadline_session::payload::{EndReason, ToolDefinition};

use crate::support::{Client, Reply, World};

#[tokio::test]
async fn a_line_that_cannot_be_read_is_answered_and_the_next_one_is_served() {
    let world = World::new([]);
    let mut client = Client::new(world.agents());
    client.raw(b"{\"jsonrpc\": \"2.0\", \n").await;
    client.raw(b"\xff\xfe\n").await;
    client.raw(b"\n[]\n").await;
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let answer = client.ask("initialize", params).await.unwrap();
    assert_eq!(answer["protocolVersion"], 1);
    let errors: Vec<_> = client
        .log
        .iter()
        .filter(|m| m.get("error").is_some())
        .map(|m| (m["id"].clone(), m["error"]["code"].as_i64().unwrap()))
        .collect();
    let null = Value::Null;
    assert_eq!(
        errors,
        [
            (null.clone(), -32700),
            (null.clone(), -32700),
            (null, -32600)
        ]
    );
}

#[tokio::test]
async fn an_unknown_method_is_an_error_and_an_unknown_notification_is_none() {
    let world = World::new([]);
    let mut client = world.client().await;
    client.notify("session/whatever", json!({})).await;
    client
        .notify("session/cancel", json!({"sessionId": 7}))
        .await;
    let error = client.ask("session/whatever", json!({})).await.unwrap_err();
    assert_eq!(error["code"], -32601);
    let error = client
        .ask("authenticate", json!({"methodId": "x"}))
        .await
        .unwrap_err();
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn wrong_parameters_are_not_repeated() {
    let world = World::new([]);
    let mut client = world.client().await;
    let params = json!({"cwd": {"s3cret": "s3cret"}, "mcpServers": []});
    let error = client.ask("session/new", params).await.unwrap_err();
    assert_eq!(error["code"], -32602);
    assert_eq!(error["data"]["field"], "cwd");
    assert!(!error.to_string().contains("s3cret"));
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_turn_with_its_end_in_the_log() {
    let world = World::new([Reply::Calls(vec![("c1", "looks", json!({}))])]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    let prompt = client.prompt(&session, "x").await;
    world.looks.begun.notified().await;
    let log = client.end().await;
    let answer = log.iter().find(|m| m["id"] == prompt).unwrap();
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    let id = threadline_session::SessionId::parse(session).unwrap();
    let inspected = world.store().inspect(&id).await.unwrap();
    let turn = inspected.view.turns().last().unwrap();
    assert_eq!(turn.head.reason, Some(EndReason::Cancelled));
    assert_eq!(inspected.unstored, 0);
}

#[tokio::test]
async fn a_shutdown_ends_the_turn_with_its_end_in_the_log() {
    let world = World::new([Reply::Hang("well")]);
    let mut client = world.client().await;
    let session = world.session(&mut client).await;
    client.prompt(&session, "x").await;
    client.update("agent_message_chunk").await;
    client.shutdown.cancel();
    client.end().await;
    let id = threadline_session::SessionId::parse(session).unwrap();
    let inspected = world.store().inspect(&id).await.unwrap();
    let turn = inspected.view.turns().last().unwrap();
    assert_eq!(turn.head.reason, Some(EndReason::Cancelled));
}

#[tokio::test]
async fn requests_over_the_limit_are_refused_and_a_cancellation_still_comes_through() {
    let world = World::new((0..64).map(|_| Reply::Hang("well")));
    let mut client = world.client().await;
    let mut prompts = Vec::new();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(world.session(&mut client).await);
    }
    for number in 0..65 {
        let session = sessions[number % 3].clone();
        prompts.push(client.prompt(&session, "x").await);
    }
    let refused = *prompts.last().unwrap();
    assert_eq!(client.answer(refused).await.unwrap_err()["code"], -32600);
    for session in &sessions {
        client.cancel(session).await;
    }
    for prompt in &prompts[..64] {
        let answer = client.answer(*prompt).await.unwrap();
        assert_eq!(answer["stopReason"], "cancelled");
    }
}

#[test]
fn the_log_does_not_depend_on_the_order_in_which_a_program_keeps_keys() {
    // This crate's dependencies make `serde_json` keep them as they come.
    let parameters: Value =
        serde_json::from_str(r#"{"z":{"b":1,"a":[{"d":1,"c":2}]},"y":2}"#).unwrap();
    assert!(
        parameters.to_string().starts_with(r#"{"z""#),
        "this test can fail"
    );
    let tool = ToolDefinition {
        name: "n".into(),
        description: "d".into(),
        parameters,
    };
    let sorted =
        r#"{"name":"n","description":"d","parameters":{"y":2,"z":{"a":[{"c":2,"d":1}],"b":1}}}"#;
    assert_eq!(serde_json::to_string(&tool).unwrap(), sorted);
}
