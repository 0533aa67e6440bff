//! Holds answers against the OpenAPI document.

use serde_json::Value;

use crate::support::Reply;

/// Checks that a document lists a route with this answer, and that the body has its shape.
pub(crate) fn check(document: &Value, method: &str, path: &str, reply: &Reply) {
    let path = path.split('?').next().unwrap();
    let paths = document["paths"].as_object().unwrap();
    let route = paths.iter().find(|(template, _)| matches(template, path));
    let Some(operation) = route.and_then(|(_, item)| item.get(method.to_lowercase())) else {
        return;
    };
    let answer = &operation["responses"][reply.status.to_string()];
    assert!(
        answer.is_object(),
        "{method} {path} answers {}: {}",
        reply.status,
        reply.text()
    );
    let Some(content) = answer["content"].as_object() else {
        assert!(reply.body.is_empty());
        return;
    };
    let kind = reply
        .header("content-type")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let schema = &content
        .get(kind)
        .unwrap_or_else(|| panic!("{path} gives {kind}"))["schema"];
    if kind.ends_with("json")
        && let Err(wrong) = conforms(document, schema, &reply.json())
    {
        panic!("{method} {path}: {wrong}");
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (wanted, given) = (template.split('/'), path.split('/'));
    template.split('/').count() == path.split('/').count()
        && wanted
            .zip(given)
            .all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
}

/// The part of JSON Schema that the document uses.
fn conforms(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.strip_prefix('#').unwrap());
        let target = target.ok_or_else(|| format!("{reference} leads nowhere"))?;
        return conforms(document, target, value)
            .map_err(|wrong| format!("{}: {wrong}", reference.rsplit('/').next().unwrap()));
    }
    for (key, exact) in [("anyOf", false), ("oneOf", true)] {
        if let Some(choices) = schema[key].as_array() {
            let results: Vec<_> = choices
                .iter()
                .map(|choice| conforms(document, choice, value))
                .collect();
            let fits = results.iter().filter(|result| result.is_ok()).count();
            if fits == 1 || (fits > 1 && !exact) {
                return Ok(());
            }
            return Err(format!("{fits} of {key} fit {value}: {results:?}"));
        }
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Err(format!("{value} is none of {words:?}"));
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        other => return Err(format!("the schema has the type {other:?}")),
    };
    if !fits {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    if let Some(items) = value.as_array() {
        for item in items {
            conforms(document, &schema["items"], item)?;
        }
    }
    if let (Some(fields), true) = (
        value.as_object(),
        schema["additionalProperties"].is_object(),
    ) {
        for (name, field) in fields {
            conforms(document, &schema["additionalProperties"], field)
                .map_err(|wrong| format!("{name}: {wrong}"))?;
        }
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return Ok(());
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, field) in fields {
        let Some(schema) = known.get(name) else {
            if schema["additionalProperties"] == true {
                continue;
            }
            return Err(format!("{name} is not described"));
        };
        conforms(document, schema, field).map_err(|wrong| format!("{name}: {wrong}"))?;
    }
    Ok(())
}
