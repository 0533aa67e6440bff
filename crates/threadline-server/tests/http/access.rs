//! Token, host and origin.

use serde_json::json;

use crate::support::{Server, TOKEN};

const CONFIG: &str = "/api/agent/config";

#[tokio::test]
async fn a_token_opens_every_route_and_its_absence_none_but_health() {
    let server = Server::start().await;
    let host = server.host();
    let bearer = format!("Bearer {TOKEN}");
    let lower = format!("bearer {TOKEN}");
    let cookie = format!("other=1; threadline_token={TOKEN}");
    for (name, value, status) in [
        ("authorization", bearer.as_str(), 200),
        ("authorization", lower.as_str(), 200),
        ("cookie", cookie.as_str(), 200),
        ("authorization", "Bearer wrong-token0", 401),
        ("authorization", "Bearer ", 401),
        ("authorization", TOKEN, 401),
        ("authorization", "Basic c2VjcmV0", 401),
        ("cookie", "threadline_token=", 401),
        ("cookie", "threadline_token=secret", 401),
        ("cookie", "xthreadline_token=secret-token", 401),
        ("x-none", "1", 401),
    ] {
        let headers = [("host", host.as_str()), (name, value)];
        let reply = server.raw("GET", CONFIG, &headers, b"").await.reply().await;
        assert_eq!(reply.status, status, "{name}: {value}");
        if status == 401 {
            reply.problem(401, "unauthorized");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    for path in server.document()["paths"].as_object().unwrap().keys() {
        let headers = [("host", host.as_str())];
        let reply = server.raw("GET", path, &headers, b"").await.reply().await;
        let wanted = if path == "/healthz" { 200 } else { 401 };
        assert_eq!(reply.status, wanted, "{path}");
    }
}

#[tokio::test]
async fn only_names_of_this_server_are_answered() {
    let server = Server::with(
        |_| {},
        |config| config.allowed_hosts = vec!["threads.example".into()],
    )
    .await;
    let port = server.address.port();
    let bearer = format!("Bearer {TOKEN}");
    for (host, good) in [
        (format!("127.0.0.1:{port}"), true),
        (format!("localhost:{port}"), true),
        (format!("[::1]:{port}"), true),
        ("threads.example".into(), true),
        (format!("evil.example:{port}"), false),
        ("127.0.0.1.evil.example".into(), false),
        ("a@localhost".into(), false),
        (String::new(), false),
    ] {
        let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
        let reply = server.raw("GET", CONFIG, &headers, b"").await.reply().await;
        if good {
            assert_eq!(reply.status, 200, "{host}");
        } else {
            reply.problem(403, "bad_host");
        }
    }
    let none = [("authorization", bearer.as_str())];
    server
        .raw("GET", CONFIG, &none, b"")
        .await
        .reply()
        .await
        .problem(403, "bad_host");
    let two = [
        ("host", "localhost"),
        ("host", "localhost"),
        ("authorization", bearer.as_str()),
    ];
    assert_ne!(
        server
            .raw("GET", CONFIG, &two, b"")
            .await
            .reply()
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = Server::start().await;
    let host = server.host();
    let cookie = format!("threadline_token={TOKEN}");
    let own = format!("http://{host}");
    let other_port = "http://127.0.0.1:1".to_owned();
    for (origin, good) in [
        (own.as_str(), true),
        (other_port.as_str(), false),
        ("http://evil.example", false),
        ("null", false),
        ("", false),
    ] {
        for method in ["GET", "POST"] {
            let path = if method == "GET" {
                CONFIG
            } else {
                "/api/agent/sessions/x/cancel"
            };
            let headers = [
                ("host", host.as_str()),
                ("cookie", cookie.as_str()),
                ("origin", origin),
            ];
            let reply = server.raw(method, path, &headers, b"").await.reply().await;
            match (good, method) {
                (true, "GET") => assert_eq!(reply.status, 200),
                (true, _) => drop(reply.problem(404, "session_not_found")),
                (false, _) => drop(reply.problem(403, "bad_origin")),
            }
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
}

#[tokio::test]
async fn an_empty_token_is_refused_at_start_and_opens_nothing() {
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = threadline_server::ServerConfig::new(server.agents.clone(), "");
    let served = threadline_server::serve(listener, config, async {}).await;
    assert_eq!(served.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_policy_above_the_ceiling_is_refused_and_an_inherited_one_is_cut_down() {
    use threadline_session::payload::{ApprovalPolicy, SandboxMode};
    let free = Server::start().await;
    let wide = free
        .run(&json!({
            "task": "hello", "approvalPolicy": "never", "sandboxMode": "danger_full_access",
        }))
        .await;
    assert_eq!(
        wide.started()["policy"]["sandboxMode"],
        "danger_full_access"
    );

    let store = free.agents.store().clone();
    let server = Server::over(
        store,
        |_| {},
        |config| config.ceiling = (ApprovalPolicy::OnRequest, SandboxMode::WorkspaceWrite),
    )
    .await;
    for (field, value) in [
        ("approvalPolicy", "never"),
        ("sandboxMode", "danger_full_access"),
    ] {
        for path in ["/api/agent/stream", "/api/agent"] {
            let reply = server.post(path, &json!({"task": "x", field: value})).await;
            assert_eq!(reply.problem(403, "policy_ceiling").as_deref(), Some(field));
            assert!(reply.json()["hint"].is_string());
        }
    }
    let narrow = json!({"task": "x", "approvalPolicy": "strict", "sandboxMode": "read_only"});
    assert_eq!(
        server.run(&narrow).await.started()["policy"]["approvalPolicy"],
        "strict"
    );
    let again = server
        .run(&json!({"task": "again", "sessionId": wide.session()}))
        .await;
    let policy = &again.started()["policy"];
    assert_eq!(policy["approvalPolicy"], "on_request");
    assert_eq!(policy["sandboxMode"], "workspace_write");
    let config = server.get(CONFIG).await.json();
    assert_eq!(config["ceiling"]["sandboxMode"], "workspace_write");
}

#[tokio::test]
async fn limits_of_a_run_hold_and_stay_below_those_of_the_server() {
    let server = Server::with(
        |config| {
            config.limits.run_tokens = Some(1000);
            config.limits.steps = Some(5);
            let price = threadline_agent::Price {
                input: 3.0,
                cached_input: 0.3,
                output: 15.0,
            };
            config.prices.insert("offline/demonstration".into(), price);
        },
        |_| {},
    )
    .await;
    let config = server.get("/api/agent/config").await.json();
    assert_eq!(config["limits"]["maxTokens"], 1000);
    assert_eq!(config["limits"]["maxCost"], json!(null));
    assert_eq!(
        config["prices"],
        json!({"offline/demonstration": {"input": 3.0, "cachedInput": 0.3, "output": 15.0}})
    );
    for path in ["/api/agent/stream", "/api/agent"] {
        for (limits, status, code, field) in [
            (
                json!({"maxTokens": 1001}),
                403,
                "policy_ceiling",
                "limits.maxTokens",
            ),
            (
                json!({"maxSteps": 6}),
                403,
                "policy_ceiling",
                "limits.maxSteps",
            ),
            (
                json!({"maxSteps": 0}),
                400,
                "invalid_input",
                "limits.maxSteps",
            ),
            (json!({"steps": 1}), 400, "invalid_input", "limits.steps"),
        ] {
            let reply = server
                .post(path, &json!({"task": "x", "limits": limits}))
                .await;
            assert_eq!(reply.problem(status, code).as_deref(), Some(field));
        }
    }
    // The demonstration asks twice for a task with a command.
    let input = json!({"task": "$ true", "approvalPolicy": "never", "limits": {"maxSteps": 1}});
    let ran = server.run(&input).await;
    assert_eq!(ran.end().json()["reason"]["kind"], "max_steps");
    let turns = format!("/api/agent/sessions/{}/turns", ran.session());
    let turns = server.get(&turns).await.json();
    assert_eq!(turns["turns"][0]["context"]["maxSteps"], 1);
    // The task alone takes more than one token.
    let input = json!({"task": "$ true", "approvalPolicy": "never", "limits": {"maxTokens": 1}});
    let reply = server.post("/api/agent", &input).await;
    assert_eq!(
        reply.json()["reason"]["limit"],
        "run_tokens",
        "{}",
        reply.text()
    );
}
