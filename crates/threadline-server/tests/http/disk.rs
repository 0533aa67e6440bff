//! Sessions on disk, in the default store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;
use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_store::{SessionStore, StoreOptions};

use crate::{follow::Copy, support::Server};

async fn server(root: &Path) -> Server {
    let backend = JsonlBackend::open(root, JsonlOptions::default()).unwrap();
    let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
    Server::over(store, |_| {}, |_| {}).await
}

fn log_of(root: &Path, id: &str) -> PathBuf {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(format!("{id}/log.jsonl")) {
                return path;
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    panic!("no log of {id}");
}

#[tokio::test]
async fn a_flipped_bit_damages_one_session_and_hides_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let first = server(root.path()).await;
    let hurt = first.run(&json!({"task": "flip me"})).await;
    first
        .run(&json!({"task": "and again", "sessionId": hurt.session()}))
        .await;
    let fine = first.run(&json!({"task": "leave me"})).await;
    let path = log_of(root.path(), &hurt.session());
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(9)
        .rposition(|part| part == b"and again")
        .unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let server = server(root.path()).await;
    let list = server.get("/api/agent/sessions").await.json();
    let row = |id: String| {
        let rows = list["sessions"].as_array().unwrap();
        rows.iter().find(|row| row["id"] == id).unwrap().clone()
    };
    assert_eq!(row(hurt.session())["status"], "damaged");
    assert_eq!(row(fine.session())["status"], "idle");
    let turns = server
        .get(&format!("/api/agent/sessions/{}/turns", hurt.session()))
        .await
        .json();
    assert_eq!(turns["status"], "damaged");
    assert_eq!(turns["turns"][0]["reason"]["kind"], "completed");
    assert!(turns["damage"]["seq"].as_u64().unwrap() > turns["lastSeq"].as_u64().unwrap());
    let ran = server
        .run(&json!({"task": "x", "sessionId": hurt.session()}))
        .await;
    assert_eq!(ran.end().json()["code"], "damaged");
    assert_eq!(
        server
            .run(&json!({"task": "x", "sessionId": fine.session()}))
            .await
            .end()
            .event,
        "run_finished"
    );
}

#[tokio::test]
async fn what_another_writer_appends_is_followed_and_a_restart_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let writing = server(root.path()).await;
    let watching = server(root.path()).await;
    let ran = writing.run(&json!({"task": "one"})).await;
    let id = ran.session();
    let mut copy = Copy::default();
    let mut events = watching.follow(&id, "view=1", None).await;
    let mut until_end = async |copy: &mut Copy| {
        loop {
            let message = events.next().await.unwrap();
            copy.take(&message);
            if message.event == "run_finished" {
                break;
            }
        }
    };
    until_end(&mut copy).await;
    copy.assert_current(&watching, &id).await;

    let call = writing.call();
    let input = json!({"task": "two", "sessionId": id, "model": "script/m"});
    let mut stream = writing.stream(&input).await;
    call.say("now");
    stream.until("assistant/chunk").await;
    let turns = watching
        .get(&format!("/api/agent/sessions/{id}/turns"))
        .await
        .json();
    assert_eq!(
        (&turns["status"], &turns["running"]),
        (&json!("running"), &json!(true))
    );
    call.done("now");
    stream.until("run_finished").await;
    until_end(&mut copy).await;
    copy.assert_current(&watching, &id).await;

    let restarted = server(root.path()).await;
    let third = restarted
        .run(&json!({"task": "three", "sessionId": id}))
        .await;
    assert_eq!(third.started()["resumed"], true);
    until_end(&mut copy).await;
    copy.assert_current(&watching, &id).await;
    for step in 1..=3 {
        let path = format!("/api/agent/sessions/{id}/requests/{step}");
        assert_eq!(
            watching.get(&path).await.json()["fingerprint"]["match"],
            true
        );
    }
}
