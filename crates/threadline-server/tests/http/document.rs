//! The OpenAPI document, `docs/http-api.md` and the router say the same.

use std::collections::BTreeSet;

use threadline_server::Code;

use crate::support::Server;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

#[tokio::test]
async fn the_router_has_the_documents_routes_and_methods_and_no_others() {
    let server = Server::start().await;
    let document = server.document().clone();
    for (template, item) in document["paths"].as_object().unwrap() {
        let path = template.replace("{step}", "1").replace(['{', '}'], "");
        for method in METHODS {
            if (method, template.as_str()) == ("GET", "/api/agent/changes") {
                // It has no end; what it says is tested with the lists.
                continue;
            }
            let reply = server.request(method, &path, "").await;
            if item.get(method.to_lowercase()).is_some() {
                assert_ne!(reply.status, 405, "{method} {path}");
                if reply.status == 404 {
                    assert_ne!(reply.json()["code"], "not_found", "{method} {path}");
                }
            } else {
                reply.problem(405, "method_not_allowed");
                assert!(reply.header("allow").is_some(), "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn the_document_is_whole() {
    let server = Server::start().await;
    let document = server.document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "1.2.3");
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for piece in text.split("#/components/schemas/").skip(1) {
        let name = piece.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    for name in schemas.keys() {
        assert!(
            text.contains(&format!("schemas/{name}\"")),
            "{name} is used nowhere"
        );
    }
    let mut ids = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()));
        }
    }
    for wanted in [
        "/api/agent",
        "/api/agent/stream",
        "/api/agent/sessions",
        "/api/agent/changes",
        "/api/agent/sessions/{id}",
        "/api/agent/sessions/{id}/events",
        "/api/agent/sessions/{id}/turns",
        "/api/agent/sessions/{id}/history",
        "/api/agent/sessions/{id}/requests",
        "/api/agent/sessions/{id}/requests/{step}",
        "/api/agent/sessions/{id}/log",
        "/api/agent/sessions/{id}/cancel",
        "/api/agent/sessions/{id}/fork",
        "/api/agent/sessions/{id}/rewind",
        "/api/agent/sessions/{id}/redo",
        "/api/agent/sessions/{id}/blobs/{blob}",
        "/api/agent/sessions/{id}/grants",
        "/api/agent/sessions/{id}/grants/{grantId}",
        "/api/agent/approvals",
        "/api/agent/approvals/{runId}/{toolCallId}",
        "/api/agent/config",
        "/healthz",
        "/metrics",
        "/api/openapi.json",
    ] {
        assert!(document["paths"][wanted].is_object(), "{wanted}");
    }
}

#[tokio::test]
async fn the_written_documentation_names_every_route_and_code() {
    let server = Server::start().await;
    let docs = include_str!("../../../../docs/http-api.md");
    for code in Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
        assert!(docs.contains(&row), "{row}");
    }
    for (path, item) in server.document()["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let title = format!("`{} {path}`", method.to_uppercase());
            assert!(docs.contains(&title), "{title}");
        }
    }
}
