//! Checks, lineages, audits and exports.

use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn a_whole_log_is_verified_and_synced() {
    let server = Server::start().await;
    let id = server.run(&json!({"task": "hello"})).await.session();
    let path = format!("/api/agent/sessions/{id}");
    let checked = server
        .post(&format!("{path}/verify"), &json!({}))
        .await
        .json();
    assert_eq!(
        (&checked["ok"], &checked["found"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(checked["requests"], json!(null));
    let checked = server
        .post(&format!("{path}/verify?requests=1"), &json!({}))
        .await
        .json();
    assert_eq!(checked["requests"]["ok"], true);
    let sync = server.get(&format!("{path}/sync")).await.json();
    assert_eq!(sync["lastSeq"].as_u64().unwrap() + 1, checked["events"]);
    assert_eq!(sync["writer"], json!(null));
    let first = sync["epoch"].as_u64().unwrap();
    server.run(&json!({"task": "more", "sessionId": id})).await;
    let sync = server.get(&format!("{path}/sync")).await.json();
    assert_eq!(sync["epoch"].as_u64(), Some(first + 1));
    server
        .post("/api/agent/sessions/nope/verify", &json!({}))
        .await
        .problem(404, "session_not_found");
}

#[tokio::test]
async fn a_check_tells_how_far_it_is_and_ends_with_its_report() {
    let server = Server::start().await;
    let id = server.run(&json!({"task": "hello"})).await.session();
    let path = format!("/api/agent/sessions/{id}/verify");
    let whole = server.post(&format!("{path}?requests=1"), &json!({})).await;
    let mut events = server
        .post_events(&format!("{path}/stream?requests=1"))
        .await;
    let mut last = None;
    while let Some(message) = events.next().await {
        assert!(["progress", "verified"].contains(&message.event.as_str()));
        last = Some(message);
    }
    let last = last.unwrap();
    assert_eq!(last.event, "verified");
    assert_eq!(last.json()["report"], whole.json());
    server
        .post("/api/agent/sessions/nope/verify/stream", &json!({}))
        .await
        .problem(404, "session_not_found");
}

#[tokio::test]
async fn a_lineage_shows_where_a_session_comes_from_and_what_came_of_it() {
    let server = Server::start().await;
    let root = server.run(&json!({"task": "hello"})).await.session();
    let mut forks = Vec::new();
    for of in [&root, &root] {
        let path = format!("/api/agent/sessions/{of}/fork");
        let forked = server.post(&path, &json!({})).await.json();
        forks.push(forked["id"].as_str().unwrap().to_owned());
    }
    let path = format!("/api/agent/sessions/{}/fork", forks[0]);
    let leaf = server.post(&path, &json!({})).await.json();
    let lineage = async |id: &str| {
        let path = format!("/api/agent/sessions/{id}/lineage");
        server.get(&path).await.json()
    };
    let ids = |list: &serde_json::Value| -> Vec<String> {
        let mut ids: Vec<_> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let shown = lineage(&root).await;
    assert_eq!(shown["session"]["kind"], "session");
    let mut wanted = forks.clone();
    wanted.sort();
    assert_eq!(ids(&shown["children"]["sessions"]), wanted);
    let shown = lineage(&forks[0]).await;
    assert_eq!(shown["session"]["kind"], "fork");
    assert_eq!(ids(&shown["ancestors"]), [root.as_str()]);
    assert_eq!(ids(&shown["siblings"]["sessions"]), [forks[1].as_str()]);
    assert_eq!(ids(&shown["children"]["sessions"]), ids(&json!([leaf])));

    // A deleted ancestor leaves a gap, not an error.
    let gone = format!("/api/agent/sessions/{root}");
    assert_eq!(server.request("DELETE", &gone, "").await.status, 204);
    let shown = lineage(leaf["id"].as_str().unwrap()).await;
    assert_eq!(shown["ancestors"][0]["summary"], json!(null));
    assert_eq!(shown["ancestors"][1]["id"], forks[0]);
}

#[tokio::test]
async fn an_audit_tells_changes_of_policy_page_by_page() {
    let server = Server::start().await;
    let id = server.run(&json!({"task": "one"})).await.session();
    for policy in ["on_request", "strict", "strict", "on_request"] {
        let input = json!({"task": "more", "sessionId": id, "approvalPolicy": policy});
        server.run(&input).await;
    }
    let path = format!("/api/agent/sessions/{id}/audit");
    let all = server.get(&path).await.json();
    let policies = |page: &serde_json::Value| -> Vec<(u64, String)> {
        let entries = page["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| {
                let policy = entry["approvalPolicy"].as_str().unwrap().to_owned();
                (entry["turn"].as_u64().unwrap(), policy)
            })
            .collect()
    };
    let wanted = [(5, "on_request"), (3, "strict"), (1, "on_request")];
    let wanted = wanted.map(|(turn, policy)| (turn, policy.to_owned()));
    assert_eq!(policies(&all), wanted);
    assert_eq!(all["next"], json!(null));
    let mut page = server.get(&format!("{path}?limit=1")).await.json();
    let mut seen = policies(&page);
    while let Some(next) = page["next"].as_u64() {
        page = server
            .get(&format!("{path}?limit=1&before={next}"))
            .await
            .json();
        seen.extend(policies(&page));
    }
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn exports_are_the_log_or_inert_text() {
    let server = Server::start().await;
    let task = "<script>alert(1)</script> \u{202e}`x`";
    let id = server.run(&json!({"task": task})).await.session();
    let path = format!("/api/agent/sessions/{id}/export");
    let log = server.get(&path).await;
    assert!(
        log.header("content-disposition")
            .unwrap()
            .contains(".jsonl")
    );
    let lines = log.text().lines().count() as u64;
    let sync = server.get(&format!("/api/agent/sessions/{id}/sync")).await;
    assert_eq!(lines, sync.json()["lastSeq"].as_u64().unwrap() + 2);

    let page = server.get(&format!("{path}?format=html")).await;
    let html = page.text();
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script"));
    assert!(html.contains("default-src 'none'") && !html.contains('\u{202e}'));
    assert_eq!(
        page.header("content-type"),
        Some("application/octet-stream")
    );

    let text = server.get(&format!("{path}?format=markdown")).await.text();
    assert!(text.contains("## Turn 1") && text.contains("**You**"));
    server
        .get(&format!("{path}?format=pdf"))
        .await
        .problem(400, "invalid_input");
}

#[tokio::test]
async fn a_timeline_shows_the_calls_of_a_turn() {
    let server = Server::start().await;
    let input = json!({"task": "$ echo hi", "approvalPolicy": "never"});
    let id = server.run(&input).await.session();
    server.run(&json!({"task": "more", "sessionId": id})).await;
    let path = format!("/api/agent/sessions/{id}/timeline");
    let newest = server.get(&path).await.json();
    assert_eq!(
        (&newest["turn"], &newest["cut"]),
        (&json!(2), &json!(false))
    );
    let first = server.get(&format!("{path}?turn=1")).await.json();
    let spans = first["spans"].as_array().unwrap();
    let kinds: Vec<_> = spans
        .iter()
        .map(|span| span["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["model", "tool", "model"]);
    assert_eq!(spans[1]["outcome"], "ok");
    for span in spans {
        assert!(span["endedAt"].as_u64() >= span["startedAt"].as_u64());
    }
    server
        .get(&format!("{path}?turn=0"))
        .await
        .problem(400, "invalid_input");
}

#[tokio::test]
async fn requests_are_listed_in_pages_and_found_by_their_event() {
    let server = Server::start().await;
    let id = server.run(&json!({"task": "one"})).await.session();
    for task in ["two", "three"] {
        server.run(&json!({"task": task, "sessionId": id})).await;
    }
    let path = format!("/api/agent/sessions/{id}/requests");
    let all = server.get(&path).await.json();
    assert_eq!(all["next"], json!(null));
    let mut page = server.get(&format!("{path}?limit=1")).await.json();
    let mut seen = page["requests"].as_array().unwrap().clone();
    while let Some(next) = page["next"].as_u64() {
        page = server
            .get(&format!("{path}?limit=1&before={next}"))
            .await
            .json();
        seen.insert(0, page["requests"][0].clone());
    }
    assert_eq!(json!(seen), all["requests"]);
    for head in seen {
        let (step, seq) = (&head["step"], &head["seq"]);
        let found = server.get(&format!("{path}/{step}?seq={seq}")).await.json();
        assert_eq!(found["fingerprint"]["match"], true);
        assert_eq!(found, server.get(&format!("{path}/{step}")).await.json());
    }
    server
        .get(&format!("{path}/1?seq=0"))
        .await
        .problem(404, "step_not_found");
}
