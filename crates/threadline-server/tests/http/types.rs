//! The page's types are those of the OpenAPI document.
//!
//! `cargo xtask types` runs this test with `THREADLINE_WRITE_TYPES` set: it then writes the file
//! that it otherwise compares.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde_json::Value;

use crate::support::Server;

const FILE: &str = "../../web/src/api/schema.ts";

#[tokio::test]
async fn the_types_of_the_page_are_those_of_the_document() {
    let server = Server::start().await;
    let wanted = module(server.document());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("THREADLINE_WRITE_TYPES").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "web/src/api/schema.ts is not what the document says; `cargo xtask types` writes it"
    );
}

/// Writes one type for each schema, in the order of their names.
fn module(document: &Value) -> String {
    let mut text = String::from(
        "// Written by `cargo xtask types` from the server's OpenAPI document. Do not edit.\n",
    );
    for (name, schema) in sorted(&document["components"]["schemas"]) {
        text.push('\n');
        comment(&mut text, "", schema);
        if is_record(schema) {
            writeln!(text, "export interface {name} {}", fields(schema, "")).unwrap();
        } else {
            writeln!(text, "export type {name} = {};", type_of(schema, "")).unwrap();
        }
    }
    text
}

fn sorted(map: &Value) -> BTreeMap<&str, &Value> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn comment(text: &mut String, indent: &str, schema: &Value) {
    if let Some(about) = schema["description"].as_str() {
        writeln!(text, "{indent}/** {} */", about.replace("*/", "* /")).unwrap();
    }
}

fn is_record(schema: &Value) -> bool {
    schema["properties"].is_object()
}

fn type_of(schema: &Value, indent: &str) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap().to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        return union(words.iter().map(Value::to_string));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[key].as_array() {
            return union(choices.iter().map(|choice| type_of(choice, indent)));
        }
    }
    match schema["type"].as_str().unwrap() {
        "object" if is_record(schema) => fields(schema, indent),
        "object" if schema["additionalProperties"].is_object() => {
            let values = type_of(&schema["additionalProperties"], indent);
            format!("Record<string, {values}>")
        }
        "object" => "Record<string, unknown>".into(),
        "array" => {
            let items = type_of(&schema["items"], indent);
            if items.contains(" | ") && !items.starts_with('{') {
                format!("({items})[]")
            } else {
                format!("{items}[]")
            }
        }
        "integer" | "number" => "number".into(),
        word @ ("string" | "boolean" | "null") => word.into(),
        other => panic!("the generator does not know the type {other}"),
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    types.collect::<Vec<_>>().join(" | ")
}

fn fields(schema: &Value, indent: &str) -> String {
    let inner = format!("{indent}  ");
    let mut text = String::from("{\n");
    let required = schema["required"].as_array();
    for (name, field) in sorted(&schema["properties"]) {
        comment(&mut text, &inner, field);
        let always = required.is_some_and(|required| required.iter().any(|word| word == name));
        let mark = if always { "" } else { "?" };
        writeln!(text, "{inner}{name}{mark}: {};", type_of(field, &inner)).unwrap();
    }
    if schema["additionalProperties"] == true {
        writeln!(text, "{inner}[key: string]: unknown;").unwrap();
    }
    write!(text, "{indent}}}").unwrap();
    text
}
