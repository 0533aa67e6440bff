//! Finding, showing and changing sessions.

use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn lists_are_paged_searched_and_filtered() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for task in ["apple pie", "banana bread", "cherry cake"] {
        ids.push(server.run(&json!({"task": task})).await.session());
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server
            .get(&format!("/api/agent/sessions?limit=1{cursor}"))
            .await
            .json();
        assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
        seen.push(page["sessions"][0]["id"].as_str().unwrap().to_owned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    ids.sort();
    assert_eq!(seen, ids);
    let found = server
        .get("/api/agent/sessions?query=BANANA%20bre")
        .await
        .json();
    assert_eq!(found["sessions"][0]["firstPrompt"], "banana bread");
    assert_eq!(found["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(found["sessions"][0]["status"], "idle");

    let path = format!("/api/agent/sessions/{}", ids[0]);
    let patched = server
        .request("PATCH", &path, r#"{"archived":true,"revision":0}"#)
        .await
        .json();
    assert_eq!(
        (&patched["archived"], &patched["revision"]),
        (&json!(true), &json!(1))
    );
    for (archived, count) in [("false", 2), ("true", 1), ("all", 3)] {
        let page = server
            .get(&format!("/api/agent/sessions?archived={archived}"))
            .await
            .json();
        assert_eq!(
            page["sessions"].as_array().unwrap().len(),
            count,
            "{archived}"
        );
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=-1", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("archived=maybe", "archived"),
    ] {
        let reply = server.get(&format!("/api/agent/sessions?{query}")).await;
        assert_eq!(
            reply.problem(400, "invalid_input").as_deref(),
            Some(field),
            "{query}"
        );
    }
    assert_eq!(
        server.get("/api/agent/sessions?limit=500").await.status,
        200
    );
}

#[tokio::test]
async fn a_session_is_shown_changed_and_deleted() {
    let server = Server::start().await;
    let ran = server.run(&json!({"task": "hello"})).await;
    let path = format!("/api/agent/sessions/{}", ran.session());
    let shown = server.get(&path).await.json();
    assert_eq!(shown["header"]["id"], ran.session());
    assert_eq!(shown["summary"]["turns"], 1);

    let body = json!({"title": "New", "pinned": true, "tags": ["a"], "revision": 0}).to_string();
    let summary = server.request("PATCH", &path, &body).await.json();
    assert_eq!(
        (&summary["title"], &summary["tags"]),
        (&json!("New"), &json!(["a"]))
    );
    server
        .request("PATCH", &path, &body)
        .await
        .problem(409, "conflict");
    let untitled = r#"{"title":null,"revision":1}"#;
    let summary = server.request("PATCH", &path, untitled).await.json();
    assert_eq!(
        (&summary["title"], &summary["pinned"]),
        (&json!(null), &json!(true))
    );
    for (body, field) in [
        (json!({"title": "x"}), "revision"),
        (json!({"revision": "2"}), "revision"),
        (json!({"revision": -2}), "revision"),
        (json!({"title": 1, "revision": 2}), "title"),
        (json!({"title": "x".repeat(201), "revision": 2}), "title"),
        (json!({"title": "a\nb", "revision": 2}), "title"),
        (json!({"tags": [""], "revision": 2}), "tags"),
        (json!({"tags": [1], "revision": 2}), "tags"),
        (json!({"tags": "a", "revision": 2}), "tags"),
        (json!({"archived": "yes", "revision": 2}), "archived"),
        (json!({"status": "idle", "revision": 2}), "status"),
    ] {
        let reply = server.request("PATCH", &path, &body.to_string()).await;
        assert_eq!(
            reply.problem(400, "invalid_input").as_deref(),
            Some(field),
            "{body}"
        );
    }

    let reply = server.request("DELETE", &path, "").await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    server
        .request("DELETE", &path, "")
        .await
        .problem(404, "session_not_found");
    server
        .request("PATCH", &path, untitled)
        .await
        .problem(404, "session_not_found");
    for more in [
        "",
        "/turns",
        "/history",
        "/requests",
        "/requests/1",
        "/log",
        "/events",
    ] {
        server
            .get(&format!("{path}{more}"))
            .await
            .problem(404, "session_not_found");
    }
}

#[tokio::test]
async fn turns_history_and_log_show_one_conversation() {
    let server = Server::start().await;
    let ran = server
        .run(&json!({"task": "$ echo from the shell", "approvalPolicy": "never"}))
        .await;
    let path = format!("/api/agent/sessions/{}", ran.session());
    let last = ran.log().len() as u64 - 1;
    let turns = server.get(&format!("{path}/turns")).await.json();
    assert_eq!(turns["lastSeq"], last);
    assert_eq!(
        (&turns["running"], &turns["status"]),
        (&json!(false), &json!("idle"))
    );
    assert_eq!(turns["damage"], json!(null));
    let items = turns["turns"][0]["items"].as_array().unwrap();
    let kinds: Vec<_> = items
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.starts_with(&["system"]) && kinds.contains(&"tool"),
        "{kinds:?}"
    );
    let tool = items.iter().find(|item| item["kind"] == "tool").unwrap();
    assert_eq!(tool["outcome"], "ok");

    let history = server.get(&format!("{path}/history")).await.json();
    let items = history["items"].as_array().unwrap();
    let roles: Vec<_> = items
        .iter()
        .map(|item| item["role"].as_str().unwrap())
        .collect();
    assert!(
        roles.ends_with(&["user", "assistant", "tool", "assistant"]),
        "{roles:?}"
    );
    assert!(
        items
            .windows(2)
            .all(|pair| pair[0]["seq"].as_u64() < pair[1]["seq"].as_u64())
    );
    assert_eq!(history["report"]["missingResults"], 0);

    let mut lines = Vec::new();
    let mut from = 0;
    loop {
        let page = server
            .get(&format!("{path}/log?from={from}&limit=4"))
            .await
            .json();
        let got = page["lines"].as_array().unwrap();
        assert!(got.len() <= 4);
        lines.extend(got.iter().map(|line| line["seq"].as_u64().unwrap()));
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(lines, (0..=last).collect::<Vec<_>>());
    let beyond = server
        .get(&format!("{path}/log?from={}", u64::MAX))
        .await
        .json();
    assert_eq!(
        (&beyond["lines"], &beyond["next"]),
        (&json!([]), &json!(null))
    );
    for (query, field) in [
        ("from=x", "from"),
        ("from=-1", "from"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
    ] {
        let reply = server.get(&format!("{path}/log?{query}")).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some(field));
    }
}

#[tokio::test]
async fn requests_are_rebuilt_from_the_log_and_match() {
    let server = Server::start().await;
    let ran = server
        .run(&json!({"task": "$ echo hi", "approvalPolicy": "never"}))
        .await;
    let path = format!("/api/agent/sessions/{}/requests", ran.session());
    let listed = server.get(&path).await.json();
    let requests = listed["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let detail = server
            .get(&format!("{path}/{}", request["step"]))
            .await
            .json();
        assert_eq!(detail["fingerprint"]["match"], true);
        assert_eq!(detail["fingerprint"]["recorded"], request["fingerprint"]);
        assert_eq!(
            detail["request"]["items"].as_array().unwrap().len(),
            request["items"]
        );
        assert_eq!(detail["body"]["model"], "demonstration");
        assert_eq!(
            (&detail["turn"], &detail["seq"]),
            (&json!(1), &request["seq"])
        );
    }
    server
        .get(&format!("{path}/3"))
        .await
        .problem(404, "step_not_found");
    server
        .get(&format!("{path}/0"))
        .await
        .problem(404, "step_not_found");
    for bad in ["x", "-1", "1.5", "99999999999999999999"] {
        let reply = server.get(&format!("{path}/{bad}")).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some("step"));
    }
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_the_server_goes_on() {
    let server = Server::start().await;
    let ran = server
        .run(&json!({"task": "x", "model": "script/panics"}))
        .await;
    let path = format!("/api/agent/sessions/{}/requests/1", ran.session());
    let reply = server.get(&path).await;
    reply.problem(500, "internal");
    assert!(!reply.text().contains("defect"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(server.get("/api/agent/config").await.status, 200);
}

#[tokio::test]
async fn hostile_ids_find_nothing() {
    let server = Server::start().await;
    server.run(&json!({"task": "hello"})).await;
    let long = "x".repeat(201);
    for id in [
        "..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "..%5c..%5cwindows",
        "%00",
        "%0a",
        "%ff%fe",
        "%F0%9F%A7%B5",
        "%E2%80%AE",
        "a%20b",
        long.as_str(),
        "con",
        "*",
        "'%20or%201=1",
    ] {
        for (method, more) in [
            ("GET", ""),
            ("GET", "/turns"),
            ("GET", "/events"),
            ("GET", "/log"),
            ("GET", "/requests/1"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ] {
            let path = format!("/api/agent/sessions/{id}{more}");
            let reply = server.request(method, &path, "").await;
            assert!(
                matches!(reply.status, 400 | 404),
                "{method} {path}: {}",
                reply.status
            );
            assert_eq!(
                reply.header("content-type"),
                Some("application/problem+json")
            );
        }
    }
    assert_eq!(
        server.get("/api/agent/sessions?query=%ff").await.status / 100,
        2
    );
}

#[tokio::test]
async fn what_runs_models_and_tools_do_is_counted() {
    let server = Server::start().await;
    let shell = json!({"task": "$ true", "approvalPolicy": "never"});
    server.run(&shell).await;
    // A run that keeps nothing counts as well.
    server.post("/api/agent", &json!({"task": "hello"})).await;
    // The scripted model ends in the middle.
    server
        .run(&json!({"task": "hello", "model": "script/m"}))
        .await;
    let text = server.get("/metrics").await.text();
    for line in [
        "threadline_runs_ended_total{reason=\"completed\"} 2",
        "threadline_runs_ended_total{reason=\"error\"} 1",
        "threadline_model_calls_total{outcome=\"ok\"} 3",
        "threadline_model_calls_total{outcome=\"cut_stream\"} 1",
        "threadline_model_retries_total 0",
        "threadline_sync_seconds_bucket{le=\"+Inf\"}",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    for series in [
        "threadline_tool_calls_total{outcome=\"",
        "threadline_tokens_total{kind=\"input\"}",
        "threadline_tokens_total{kind=\"output\"}",
    ] {
        let count = text.lines().find_map(|line| line.strip_prefix(series));
        let count = count.unwrap_or_else(|| panic!("{series} in {text}"));
        assert!(!count.ends_with(" 0"), "{series}{count}");
    }
    // Every series is told of once, and under its own name.
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(name.to_owned()), "{line}");
    }
}

#[tokio::test]
async fn config_health_and_metrics_answer() {
    let server = Server::start().await;
    let config = server.get("/api/agent/config").await.json();
    assert_eq!(
        (&config["version"], &config["demonstration"]),
        (&json!("1.2.3"), &json!(true))
    );
    assert_eq!(
        (&config["provider"], &config["model"]),
        (&json!("offline"), &json!("demonstration"))
    );
    assert_eq!(config["store"], "memory:");
    assert_eq!(config["defaults"]["sandboxMode"], "workspace_write");
    assert_eq!(config["ceiling"]["approvalPolicy"], "never");
    assert_eq!(
        server.get("/healthz").await.json(),
        json!({"status": "ok", "version": "1.2.3"})
    );

    let ran = server.run(&json!({"task": "hello"})).await;
    let mut follower = server.follow(&ran.session(), "", None).await;
    follower.until("caught_up").await;
    server.get("/api/agent/sessions/gone").await;
    let text = server.get("/metrics").await.text();
    for line in [
        "threadline_runs_running 0",
        "threadline_runs_started_total 1",
        "threadline_sse_connections 1",
        "threadline_info{version=\"1.2.3\"} 1",
        "threadline_http_requests_total{route=\"/api/agent/stream\",status=\"2xx\"} 1",
        "threadline_http_requests_total{route=\"/api/agent/sessions/{id}\",status=\"4xx\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn turns_come_in_pages_from_any_place() {
    let server = Server::start().await;
    let id = server.run(&json!({"task": "one"})).await.session();
    for task in ["two", "three", "four"] {
        server.run(&json!({"task": task, "sessionId": id})).await;
    }
    let path = format!("/api/agent/sessions/{id}/turns");
    let page = async |query: &str| server.get(&format!("{path}?{query}")).await.json();
    let whole = page("").await;
    assert_eq!(whole["turns"].as_array().unwrap().len(), 4);
    assert_eq!((&whole["from"], &whole["atEnd"]), (&json!(0), &json!(true)));

    let newest = page("limit=1").await;
    let last = newest["turns"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["turn"], 4);
    assert_eq!(newest["lastSeq"], whole["lastSeq"]);
    let mut from = newest["from"].as_u64().unwrap();
    let mut seen = newest["turns"].as_array().unwrap().len();
    while from > 0 {
        let older = page(&format!("before={from}&limit=1")).await;
        assert_eq!(
            (&older["to"], &older["atEnd"]),
            (&json!(from), &json!(false))
        );
        assert_eq!(older["status"], "idle");
        from = older["from"].as_u64().unwrap();
        seen += older["turns"].as_array().unwrap().len();
    }
    assert!(seen >= 4);

    let second = page("turn=2&limit=1").await;
    let start = &whole["turns"][1]["startSeq"];
    assert_eq!(
        (&second["from"], &second["turns"][0]["turn"]),
        (start, &json!(2))
    );
    let next = page(&format!("from={}&limit=1", second["to"])).await;
    assert_eq!(next["from"], second["to"]);
    let around = page(&format!("around={}&limit=1", whole["turns"][2]["endSeq"])).await;
    assert_eq!(
        around["turns"].as_array().unwrap().last().unwrap()["turn"],
        3
    );

    for (query, field) in [
        ("before=1&turn=2", "turn"),
        ("before=x", "before"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
    ] {
        let reply = server.get(&format!("{path}?{query}")).await;
        assert_eq!(reply.problem(400, "invalid_input").as_deref(), Some(field));
    }
}
