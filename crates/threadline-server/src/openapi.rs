//! The OpenAPI document, made from the table of routes.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde_json::{Map, Value, json};

use crate::{
    error::Code,
    routes::{self, Content, Kind, Param, Route},
    schemas,
    state::Shared,
};

/// `GET /api/openapi.json`
pub(crate) async fn show(State(shared): State<Shared>) -> Json<Value> {
    Json(document(&shared.version))
}

pub(crate) fn document(version: &str) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes::table() {
        let entry = paths.entry(route.path).or_default();
        entry.insert(route.method.into(), operation(&route));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Threadline",
            "version": version,
            "description": "Agent sessions that survive anything. Event streams are described in \
                            docs/http-api.md.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": crate::COOKIE},
            },
        },
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn content(kind: &str, schema: Value) -> Value {
    json!({kind: {"schema": schema}})
}

fn operation(route: &Route) -> Value {
    let mut answer = json!({"description": "Done."});
    match route.content {
        Content::Json(schema) => answer["content"] = content("application/json", reference(schema)),
        Content::Events => {
            answer["content"] = content("text/event-stream", json!({"type": "string"}));
            // What the data of named messages look like; OpenAPI 3.1 has no word for it.
            answer["content"]["text/event-stream"]["x-messages"] = schemas::messages();
        }
        Content::Bytes => {
            let bytes = json!({"type": "string", "format": "binary"});
            answer["content"] = content("application/octet-stream", bytes);
        }
        Content::Text => answer["content"] = content("text/plain", json!({"type": "string"})),
        Content::Empty => {}
    }
    let mut responses = Map::new();
    responses.insert(route.status.to_string(), answer);
    for (status, codes) in problems(route) {
        let description = format!("Code {}.", codes.join(", "));
        let content = content("application/problem+json", reference("Problem"));
        responses.insert(
            status.to_string(),
            json!({"description": description, "content": content}),
        );
    }
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.about,
        "responses": responses,
    });
    let mut params: Vec<Value> = path_params(route.path).map(path_param).collect();
    params.extend(route.params.iter().map(param));
    if !params.is_empty() {
        operation["parameters"] = params.into();
    }
    if let Some(schema) = route.body {
        operation["requestBody"] =
            json!({"required": true, "content": content("application/json", reference(schema))});
    }
    if route.open {
        operation["security"] = json!([]);
    }
    operation
}

/// The errors of a route by status, with those that every route has.
fn problems(route: &Route) -> BTreeMap<u16, Vec<&'static str>> {
    let common: &[Code] = if route.open {
        &[]
    } else {
        &[
            Code::Unauthorized,
            Code::BadHost,
            Code::BadOrigin,
            Code::Internal,
        ]
    };
    // What stands in a path can be no id.
    let named = route.path.contains('{').then_some(&Code::InvalidInput);
    let mut by_status: BTreeMap<u16, Vec<&'static str>> = BTreeMap::new();
    for code in route.errors.iter().chain(common).chain(named) {
        let codes = by_status.entry(code.status().as_u16()).or_default();
        if !codes.contains(&code.as_str()) {
            codes.push(code.as_str());
        }
    }
    by_status
}

fn path_params(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_param(name: &str) -> Value {
    let kind = if name == "step" {
        json!({"type": "integer"})
    } else {
        json!({"type": "string"})
    };
    json!({"in": "path", "name": name, "required": true, "schema": kind})
}

fn param(param: &Param) -> Value {
    let kind = match param.kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Whole => json!({"type": "integer", "minimum": 0}),
        Kind::OneOf(words) => json!({"type": "string", "enum": words}),
        Kind::Schema(name) => reference(name),
    };
    json!({
        "in": param.place,
        "name": param.name,
        "description": param.about,
        "schema": kind,
    })
}
