//! The web page and signing in.

use crate::support::{Server, TOKEN};

#[tokio::test]
async fn the_token_address_signs_the_browser_in() {
    let server = Server::start().await;
    let host = server.host();
    let headers = [("host", host.as_str())];
    let reply = server.raw("GET", "/", &headers, b"").await.reply().await;
    assert_eq!(reply.status, 401);
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    assert!(reply.text().contains("threadline serve"));
    let reply = server
        .raw("GET", "/?token=wrong", &headers, b"")
        .await
        .reply()
        .await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.header("set-cookie"), None);
    let reply = server
        .raw("GET", "/assets/x.js", &headers, b"")
        .await
        .reply()
        .await;
    assert_eq!(reply.status, 401);

    let path = format!("/?token={TOKEN}");
    let reply = server.raw("GET", &path, &headers, b"").await.reply().await;
    assert_eq!(reply.status, 303);
    assert_eq!(reply.header("location"), Some("/"));
    let cookie = reply.header("set-cookie").unwrap();
    assert_eq!(
        cookie,
        format!("threadline_token={TOKEN}; HttpOnly; SameSite=Strict; Path=/")
    );

    let cookie = cookie.split(';').next().unwrap();
    let headers = [("host", host.as_str()), ("cookie", cookie)];
    let reply = server.raw("GET", "/", &headers, b"").await.reply().await;
    assert_eq!(reply.status, 200);
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"));
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    let page = reply.text();
    if threadline_server::page_is_built() {
        let asset = page
            .split("src=\"./")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        let reply = server
            .raw("GET", &format!("/{asset}"), &headers, b"")
            .await
            .reply()
            .await;
        assert_eq!(reply.status, 200);
        assert!(reply.header("cache-control").unwrap().contains("immutable"));
        assert!(
            reply
                .header("content-type")
                .unwrap()
                .starts_with("text/javascript")
        );
    } else {
        assert!(page.contains("cargo xtask run"));
    }
    let reply = server.raw("HEAD", "/", &headers, b"").await;
    drop(reply);
    let reply = server.raw("POST", "/", &headers, b"").await.reply().await;
    reply.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn unknown_paths_are_problems_whatever_they_look_like() {
    let server = Server::start().await;
    for path in [
        "/api/agent/nothing",
        "/api",
        "/api/",
        "/nothing",
        "/assets/../index.html",
        "/..%2f..%2fCargo.toml",
        "/assets/%2e%2e/%2e%2e/Cargo.toml",
        "//etc/passwd",
    ] {
        server.get(path).await.problem(404, "not_found");
    }
}
