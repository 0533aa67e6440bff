//! Forks, rewinds, redos and blobs.

use std::sync::Arc;

use serde_json::{Value, json};
use threadline_jsonl::{JsonlBackend, JsonlOptions, layout};
use threadline_session::{Header, OsPath, SessionId};
use threadline_store::{BlobId, SessionStore, StoreOptions};

use crate::support::{Ran, Server};

fn path_of(id: &str) -> String {
    format!("/api/agent/sessions/{id}")
}

/// Runs a turn and returns the number of its last event.
async fn turn(server: &Server, input: Value) -> (Ran, u64) {
    let ran = server.run(&input).await;
    let last = ran.log().last().unwrap().id.unwrap();
    (ran, last)
}

/// Says two things in a session. Returns its id and the last events of the turns.
async fn conversation(server: &Server) -> (String, u64, u64) {
    let (ran, first) = turn(server, json!({"task": "one"})).await;
    let id = ran.session();
    let (_, second) = turn(server, json!({"task": "two", "sessionId": id})).await;
    (id, first, second)
}

async fn turns(server: &Server, id: &str) -> usize {
    let turns = server.get(&format!("{}/turns", path_of(id))).await.json();
    turns["turns"].as_array().unwrap().len()
}

async fn items(server: &Server, id: &str) -> usize {
    let history = server.get(&format!("{}/history", path_of(id))).await.json();
    history["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_fork_has_the_events_up_to_where_it_was_made_and_goes_its_own_way() {
    let server = Server::start().await;
    let (id, first, second) = conversation(&server).await;
    let path = format!("{}/fork", path_of(&id));
    let whole = server.post(&path, &json!({})).await;
    assert_eq!(whole.status, 201);
    let whole = whole.json();
    assert_eq!(
        (&whole["parent"], &whole["atSeq"], &whole["closed"]),
        (&json!(id), &json!(second), &json!(0))
    );
    assert_eq!(turns(&server, whole["id"].as_str().unwrap()).await, 2);

    let half = server.post(&path, &json!({"at": first})).await.json();
    let half = half["id"].as_str().unwrap();
    assert_eq!(turns(&server, half).await, 1);
    let (ran, _) = turn(&server, json!({"task": "other", "sessionId": half})).await;
    assert_eq!(ran.started()["resumed"], true);
    assert_eq!(turns(&server, half).await, 2);
    let shown = server.get(&path_of(half)).await.json();
    assert_eq!(shown["summary"]["parent"], json!({"id": id, "seq": first}));
    assert_eq!(
        server.get(&format!("{}/turns", path_of(&id))).await.json()["lastSeq"],
        second
    );

    // In the middle of a turn, which is closed in the fork.
    let cut = server.post(&path, &json!({"at": first + 2})).await.json();
    assert!(cut["closed"].as_u64().unwrap() > 0, "{cut}");
    // A body is not needed.
    assert_eq!(server.request("POST", &path, "").await.status, 201);
}

#[tokio::test]
async fn a_fork_of_what_is_not_there_is_refused() {
    let server = Server::start().await;
    let (id, _, last) = conversation(&server).await;
    let path = format!("{}/fork", path_of(&id));
    let beyond = json!({"at": last + 1});
    server
        .post(&path, &beyond)
        .await
        .problem(404, "no_such_event");
    for (body, field) in [
        (json!({"at": -1}), "at"),
        (json!({"at": "1"}), "at"),
        (json!({"to": 1}), "to"),
    ] {
        let reply = server.post(&path, &body).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some(field));
    }
    for deed in ["fork", "rewind", "redo"] {
        let path = format!("{}/{deed}", path_of("nobody"));
        let body = if deed == "rewind" {
            json!({"to": 0})
        } else {
            json!({})
        };
        server
            .post(&path, &body)
            .await
            .problem(404, "session_not_found");
    }
}

#[tokio::test]
async fn a_session_without_events_cannot_be_forked() {
    let dir = tempfile::tempdir().unwrap();
    let id = SessionId::parse("empty").unwrap();
    let folder = layout::session_dir(dir.path(), &id);
    std::fs::create_dir_all(&folder).unwrap();
    let header = Header::new(id, 1, OsPath::from(dir.path().to_path_buf()));
    std::fs::write(folder.join(layout::LOG), header.encode().unwrap()).unwrap();
    let backend = JsonlBackend::open(dir.path(), JsonlOptions::default()).unwrap();
    let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
    let server = Server::over(store, |_| {}, |_| {}).await;
    let path = format!("{}/fork", path_of("empty"));
    server
        .post(&path, &json!({}))
        .await
        .problem(409, "fork_empty");
}

#[tokio::test]
async fn a_history_is_moved_back_and_forth_again() {
    let server = Server::start().await;
    let (id, first, second) = conversation(&server).await;
    let [rewind, redo] = ["rewind", "redo"].map(|deed| format!("{}/{deed}", path_of(&id)));
    server
        .post(&redo, &json!({}))
        .await
        .problem(409, "nothing_to_redo");
    let all = items(&server, &id).await;
    let moved = server.post(&rewind, &json!({"to": first})).await;
    assert_eq!(moved.status, 200);
    assert_eq!(moved.json(), json!({"toSeq": first, "seq": second + 1}));
    assert!(items(&server, &id).await < all);
    let back = server.post(&redo, &json!({})).await.json();
    assert_eq!(back["seq"], second + 2);
    assert_eq!(items(&server, &id).await, all);
    server
        .post(&redo, &json!({}))
        .await
        .problem(409, "nothing_to_redo");

    let beyond = json!({"to": 1000});
    server
        .post(&rewind, &beyond)
        .await
        .problem(404, "no_such_event");
    for body in [json!({}), json!({"to": null}), json!({"to": 1.5})] {
        let reply = server.post(&rewind, &body).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some("to"));
    }
    // Nothing holds the session: a turn goes on in it.
    turn(&server, json!({"task": "three", "sessionId": id})).await;
    server.post(&rewind, &json!({"to": first})).await;
    turn(&server, json!({"task": "another three", "sessionId": id})).await;
    server
        .post(&redo, &json!({}))
        .await
        .problem(409, "nothing_to_redo");
}

#[tokio::test]
async fn a_running_session_is_forked_and_not_moved() {
    let server = Server::start().await;
    let call = server.call();
    let input = json!({"task": "x", "model": "script/m"});
    let mut events = server.stream(&input).await;
    let started = events.next().await.unwrap().json();
    let id = started["sessionId"].as_str().unwrap();
    call.say("half");
    let path = path_of(id);
    server
        .post(&format!("{path}/rewind"), &json!({"to": 0}))
        .await
        .problem(409, "session_busy");
    server
        .post(&format!("{path}/redo"), &json!({}))
        .await
        .problem(409, "session_busy");
    events.until("assistant/chunk").await;
    let forked = server.post(&format!("{path}/fork"), &json!({})).await;
    assert_eq!(forked.status, 201);
    assert!(forked.json()["closed"].as_u64().unwrap() > 0);
    call.done("half and half");
    events.until("run_finished").await;
    assert_eq!(
        server
            .post(&format!("{path}/rewind"), &json!({"to": 0}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_blob_is_given_to_who_names_its_session() {
    let server = Server::start().await;
    let input = json!({"task": "$ seq 1000 40000", "approvalPolicy": "never"});
    let ran = server.run(&input).await;
    let result = ran
        .messages
        .iter()
        .find(|m| m.event == "tool/result")
        .unwrap()
        .json();
    let blob = result["data"]["full"]["blob"].as_str().unwrap();
    let path = format!("{}/blobs", path_of(&ran.session()));
    let reply = server.get(&format!("{path}/{blob}")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let attached = format!("attachment; filename=\"{blob}\"");
    assert_eq!(reply.header("content-disposition"), Some(attached.as_str()));
    let full: String = (1000..=40_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(reply.text(), full + "[exit code 0]");

    // There, but not of this session.
    let store = server.agents.store();
    let other = store.put_blob(b"secret of another session").await.unwrap();
    server
        .get(&format!("{path}/{other}"))
        .await
        .problem(404, "blob_not_found");
    let stranger = server.run(&json!({"task": "hello"})).await.session();
    let elsewhere = format!("{}/blobs/{blob}", path_of(&stranger));
    server.get(&elsewhere).await.problem(404, "blob_not_found");
    // Named, but not there.
    let absent = BlobId::of(b"never stored");
    let input = json!({"task": format!("look at {absent}"), "sessionId": stranger});
    server.run(&input).await;
    let absent = format!("{}/blobs/{absent}", path_of(&stranger));
    server.get(&absent).await.problem(404, "blob_not_found");

    for bad in [
        "x",
        "..%2f..%2fetc%2fpasswd",
        &blob.to_uppercase(),
        &blob[1..],
    ] {
        let reply = server.get(&format!("{path}/{bad}")).await;
        assert_eq!(
            reply.problem(400, "invalid_input").as_deref(),
            Some("blob"),
            "{bad}"
        );
    }
    let nobody = format!("{}/blobs/{blob}", path_of("nobody"));
    server.get(&nobody).await.problem(404, "session_not_found");
}
