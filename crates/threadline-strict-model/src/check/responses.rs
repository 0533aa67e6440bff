//! The rules of the Responses API, as they are when nothing is stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Broken, Checked, broken, image_url, object_text, only, parse, tool_name, top_level};
use crate::issued::{Issued, Reasoning};

const MAX_CALL_ID_CHARS: usize = 64;

const TOP_LEVEL: &[&str] = &[
    "background",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

/// Parses and checks a body against the rules and against what the server has issued.
pub(crate) fn check(
    body: &[u8],
    known: &mut BTreeSet<String>,
    issued: &Issued,
) -> Result<Value, Broken> {
    let value = parse(body)?;
    let Some(top) = value.as_object() else {
        return broken("", "the body is not an object");
    };
    top_level(top, TOP_LEVEL)?;
    options(top)?;
    if let Some(tools) = top.get("tools") {
        known.extend(declared(tools)?);
    }
    match top.get("input") {
        Some(Value::String(text)) if !text.is_empty() => {}
        Some(Value::Array(list)) if !list.is_empty() => {
            let model = top["model"].as_str().unwrap_or_default();
            let mut input = Input {
                model,
                known,
                issued,
                open: BTreeMap::new(),
                answered: BTreeSet::new(),
            };
            input.all(list)?;
        }
        _ => return broken("input", "expected a non-empty string or array"),
    }
    Ok(value)
}

fn options(top: &Map<String, Value>) -> Checked {
    // The only way of use that this server plays: it keeps nothing.
    if top.get("store") != Some(&Value::Bool(false)) {
        return broken("store", "expected false");
    }
    match top.get("include") {
        None => {}
        Some(Value::Array(list)) if list.iter().all(|v| v == "reasoning.encrypted_content") => {}
        Some(_) => return broken("include", "unknown value"),
    }
    if let Some(tokens) = top.get("max_output_tokens")
        && tokens.as_u64().is_none_or(|tokens| tokens < 16)
    {
        return broken("max_output_tokens", "expected a number of at least 16");
    }
    if let Some(reasoning) = top.get("reasoning") {
        let Some(reasoning) = reasoning.as_object() else {
            return broken("reasoning", "expected an object");
        };
        only(reasoning, &["effort", "summary"], "reasoning")?;
    }
    for key in ["stream", "parallel_tool_calls"] {
        if top.get(key).is_some_and(|value| !value.is_boolean()) {
            return broken(key, "expected a boolean");
        }
    }
    match top.get("temperature") {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|t| (0.0..=2.0).contains(&t)) => Ok(()),
        Some(_) => broken("temperature", "expected a number from 0 to 2"),
    }
}

fn declared(tools: &Value) -> Result<BTreeSet<String>, Broken> {
    let Some(list) = tools.as_array() else {
        return broken("tools", "expected an array");
    };
    let mut names = BTreeSet::new();
    for (n, tool) in list.iter().enumerate() {
        let at = format!("tools[{n}]");
        let Some(tool) = tool.as_object() else {
            return broken(at, "expected an object");
        };
        let keys = ["type", "name", "description", "parameters", "strict"];
        only(tool, &keys, &at)?;
        if tool.get("type").is_none_or(|kind| kind != "function") {
            return broken(format!("{at}.type"), "expected `function`");
        }
        let name = tool_name(tool.get("name"), &format!("{at}.name"))?;
        if !names.insert(name.to_owned()) {
            return broken(format!("{at}.name"), format!("`{name}` is declared twice"));
        }
        if tool.get("parameters").is_none_or(|p| p["type"] != "object") {
            let at = format!("{at}.parameters");
            return broken(at, "schema must be of type `object`");
        }
    }
    Ok(names)
}

struct Input<'a> {
    model: &'a str,
    known: &'a BTreeSet<String>,
    issued: &'a Issued,
    /// Calls without an output so far, with their places.
    open: BTreeMap<String, usize>,
    answered: BTreeSet<String>,
}

impl Input<'_> {
    fn all(&mut self, list: &[Value]) -> Checked {
        for (n, item) in list.iter().enumerate() {
            let at = format!("input[{n}]");
            let Some(map) = item.as_object() else {
                return broken(at, "expected an object");
            };
            let kind = map.get("type").and_then(Value::as_str);
            let role = map.get("role").and_then(Value::as_str);
            match (kind, role) {
                (Some("message") | None, Some("user" | "system" | "developer")) => {
                    self.unanswered()?;
                    only(map, &["type", "role", "content", "status"], &at)?;
                    content(map.get("content"), &format!("{at}.content"))?;
                }
                (Some("message") | None, Some("assistant")) => {
                    assistant(map, &at)?;
                    self.led(list, n, &at)?;
                }
                (Some("function_call"), None) => {
                    self.call(map, n, &at)?;
                    self.led(list, n, &at)?;
                }
                (Some("function_call_output"), None) => self.output(map, &at)?,
                (Some("reasoning"), None) => self.reasoning(list, n, &at)?,
                _ => return broken(at, "an item of an unknown type or role"),
            }
        }
        self.unanswered()
    }

    fn unanswered(&self) -> Checked {
        match self.open.iter().next() {
            None => Ok(()),
            Some((id, n)) => broken(
                format!("input[{n}]"),
                format!("No tool output found for function call {id}."),
            ),
        }
    }

    fn call(&mut self, map: &Map<String, Value>, n: usize, at: &str) -> Checked {
        let keys = ["type", "id", "call_id", "name", "arguments", "status"];
        only(map, &keys, at)?;
        prefixed(map, "fc", at)?;
        let id = map.get("call_id").and_then(Value::as_str);
        let id = id.unwrap_or_default();
        if id.is_empty() || id.chars().count() > MAX_CALL_ID_CHARS {
            let at = format!("{at}.call_id");
            return broken(at, format!("expected 1 to {MAX_CALL_ID_CHARS} characters"));
        }
        if self.answered.contains(id) || self.open.insert(id.to_owned(), n).is_some() {
            return broken(format!("{at}.call_id"), format!("duplicate value `{id}`"));
        }
        let name = tool_name(map.get("name"), &format!("{at}.name"))?;
        if !self.known.contains(name) {
            return broken(
                format!("{at}.name"),
                format!("tool `{name}` is not in `tools`"),
            );
        }
        let arguments = map.get("arguments").and_then(Value::as_str);
        object_text(arguments.unwrap_or_default(), &format!("{at}.arguments"))
    }

    fn output(&mut self, map: &Map<String, Value>, at: &str) -> Checked {
        only(map, &["type", "id", "call_id", "output", "status"], at)?;
        let id = map.get("call_id").and_then(Value::as_str);
        let id = id.unwrap_or_default();
        if self.open.remove(id).is_none() {
            return broken(
                at,
                format!("No tool call found for function call output with call_id {id}."),
            );
        }
        self.answered.insert(id.to_owned());
        content(map.get("output"), &format!("{at}.output"))
    }

    fn reasoning(&self, list: &[Value], n: usize, at: &str) -> Checked {
        let item = &list[n];
        let id = item["id"].as_str().unwrap_or_default();
        if item["encrypted_content"].as_str().is_none_or(str::is_empty) {
            return broken(
                at,
                format!(
                    "Item with id '{id}' not found. Items are not persisted when `store` is set \
                     to false."
                ),
            );
        }
        let found = self.issued.reasoning.get(id);
        let Some(Reasoning { next, .. }) =
            found.filter(|issued| issued.item == *item && issued.model == self.model)
        else {
            return Err(Broken {
                param: format!("{at}.encrypted_content"),
                message: format!("The encrypted content of item {id} could not be verified."),
                code: Some("invalid_encrypted_content"),
            });
        };
        let follows = match (next, list.get(n + 1)) {
            (Some(next), Some(found)) => is_same(next, found),
            _ => false,
        };
        if follows {
            return Ok(());
        }
        broken(
            "input",
            format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ),
        )
    }

    /// An item that names itself must come with the reasoning that it was issued after.
    fn led(&self, list: &[Value], n: usize, at: &str) -> Checked {
        let id = list[n]["id"].as_str().unwrap_or_default();
        let Some(wanted) = self.issued.after.get(id) else {
            return Ok(());
        };
        let before = n.checked_sub(1).and_then(|n| list.get(n));
        if before.is_some_and(|before| before["id"] == wanted.as_str()) {
            return Ok(());
        }
        broken(
            at,
            format!("Item '{id}' was provided without its required 'reasoning' item: '{wanted}'."),
        )
    }
}

/// Whether an item is the one that was issued: by its id, or by what it says.
fn is_same(issued: &Value, found: &Value) -> bool {
    if issued["type"] == "reasoning" || found.get("id").is_some() {
        return issued["id"] == found["id"];
    }
    let text = |item: &Value| item["content"][0]["text"].clone();
    match issued["type"].as_str() {
        Some("function_call") => issued["call_id"] == found["call_id"],
        _ => found["role"] == "assistant" && text(issued) == text(found),
    }
}

fn prefixed(map: &Map<String, Value>, prefix: &str, at: &str) -> Checked {
    match map.get("id") {
        None => Ok(()),
        Some(Value::String(id)) if id.starts_with(prefix) => Ok(()),
        Some(id) => broken(
            format!("{at}.id"),
            format!("Expected an ID that begins with '{prefix}', found {id}"),
        ),
    }
}

fn assistant(map: &Map<String, Value>, at: &str) -> Checked {
    let keys = ["type", "role", "content", "id", "status", "phase"];
    only(map, &keys, at)?;
    prefixed(map, "msg", at)?;
    let at = format!("{at}.content");
    match map.get("content") {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(()),
        Some(Value::Array(parts)) if !parts.is_empty() => {
            for (n, part) in parts.iter().enumerate() {
                let text = match part["type"].as_str() {
                    Some("output_text") => part["text"].as_str(),
                    Some("refusal") => part["refusal"].as_str(),
                    _ => None,
                };
                if text.is_none_or(|text| text.trim().is_empty()) {
                    return broken(format!("{at}[{n}]"), "empty, or of an unknown type");
                }
            }
            Ok(())
        }
        _ => broken(at, "expected a non-empty string or array"),
    }
}

fn content(value: Option<&Value>, at: &str) -> Checked {
    match value {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(()),
        Some(Value::Array(parts)) if !parts.is_empty() => {
            for (n, part) in parts.iter().enumerate() {
                let at = format!("{at}[{n}]");
                let Some(map) = part.as_object() else {
                    return broken(at, "expected an object");
                };
                match part["type"].as_str() {
                    Some("input_text") => {
                        only(map, &["type", "text"], &at)?;
                        if part["text"].as_str().is_none_or(|t| t.trim().is_empty()) {
                            return broken(format!("{at}.text"), "expected a non-empty text");
                        }
                    }
                    Some("input_image") => {
                        only(map, &["type", "image_url", "detail"], &at)?;
                        let url = part["image_url"].as_str().unwrap_or_default();
                        image_url(url, &format!("{at}.image_url"))?;
                    }
                    _ => return broken(format!("{at}.type"), "an unknown type"),
                }
            }
            Ok(())
        }
        _ => broken(at, "expected a non-empty string or array"),
    }
}

#[cfg(test)]
#[path = "responses_tests.rs"]
mod tests;
