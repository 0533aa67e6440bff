//! Messages that wait for their turn.

use serde_json::json;

use crate::{
    runs::{PNG, image, script},
    support::Server,
};

#[tokio::test]
async fn messages_queue_behind_a_run_and_each_gets_its_turn() {
    let server = Server::start().await;
    let call = server.call();
    let (mut events, id, _) = script(&server, json!({})).await;
    let queue = format!("/api/agent/sessions/{id}/queue");
    let one = server.post(&queue, &json!({"text": "one"})).await;
    assert_eq!((one.status, &one.json()["runId"]), (202, &json!(null)));
    let one = one.json()["messageId"].as_str().unwrap().to_owned();
    let two = server.post(&queue, &json!({"text": "two"})).await.json();
    let two = two["messageId"].as_str().unwrap().to_owned();
    server
        .post(
            &queue,
            &json!({"text": "first", "messageId": one, "images": [image()]}),
        )
        .await;
    let steer = json!({"text": "now", "delivery": "next_step"});
    server.post(&queue, &steer).await;
    let waiting = server.get(&queue).await.json();
    let said: Vec<_> = waiting["messages"].as_array().unwrap().iter().collect();
    assert_eq!(said.len(), 3);
    assert_eq!(said[0]["text"], "first");
    assert_eq!(said[0]["images"][0]["mediaType"], "image/png");
    assert_eq!(said[2]["images"], json!([]));
    assert_eq!(said[2]["delivery"], "next_step");
    let gone = format!("{queue}/{two}");
    assert_eq!(server.request("DELETE", &gone, "").await.status, 204);
    server
        .request("DELETE", &gone, "")
        .await
        .problem(409, "not_waiting");
    server
        .post(&queue, &json!({"text": "x", "messageId": two}))
        .await
        .problem(409, "not_waiting");
    server
        .post(&queue, &json!({"text": "  "}))
        .await
        .problem(400, "empty_task");
    server
        .post(
            &queue,
            &json!({"text": "x", "images": [{"mediaType": "image/gif", "data": PNG}]}),
        )
        .await
        .problem(400, "bad_image");
    server
        .post(&queue, &json!({"text": "x", "delivery": "soon"}))
        .await
        .problem(400, "invalid_input");
    server
        .post("/api/agent/sessions/unknown/queue", &json!({"text": "x"}))
        .await
        .problem(404, "session_not_found");

    // The run ends without another step, so the first becomes a turn, whose first step hears the
    // other.
    let next = server.call();
    call.done("done");
    events.until("run_finished").await;
    let mut follower = server.follow(&id, "", None).await;
    next.done("heard both");
    follower.until("run_finished").await;
    let end = follower.until("run_finished").await.json();
    assert_eq!(end["answer"], "heard both");
    let waiting = server.get(&queue).await.json();
    assert_eq!(waiting, json!({"messages": []}));
    let none = server.post(&format!("{queue}/deliver"), &json!({})).await;
    assert_eq!((none.status, none.json()), (202, json!({"runId": null})));
}

#[tokio::test]
async fn a_message_for_a_session_at_rest_begins_a_run() {
    let server = Server::start().await;
    let call = server.call();
    let (mut events, id, _) = script(&server, json!({})).await;
    call.done("done");
    events.until("run_finished").await;
    let call = server.call();
    let queue = format!("/api/agent/sessions/{id}/queue");
    let queued = server.post(&queue, &json!({"text": "more"})).await.json();
    assert!(queued["runId"].is_string(), "{queued}");
    call.done("more done");
    let mut follower = server.follow(&id, "", None).await;
    follower.until("run_finished").await;
    let end = follower.until("run_finished").await.json();
    assert_eq!(end["answer"], "more done");
}
