//! The rules of Chat Completions, checked on every request, and those that all dialects share.

pub(crate) mod anthropic;
pub(crate) mod responses;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, de::IgnoredAny};
use serde_json::{Map, Value};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Largest body that is accepted, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 32 << 20;
const MAX_CALL_ID_CHARS: usize = 40;
const MAX_TOOL_NAME_CHARS: usize = 64;

const TOP_LEVEL: &[&str] = &[
    "audio",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// A rule that a request broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Position of the request among all, from 0.
    pub request: usize,
    /// Where in the body.
    pub param: String,
    /// What is wrong.
    pub message: String,
}

/// A broken rule before it is known which request broke it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) param: String,
    pub(crate) message: String,
    /// The provider's own code for it.
    pub(crate) code: Option<&'static str>,
}

type Checked = Result<(), Broken>;

fn broken<T>(param: impl Into<String>, message: impl Into<String>) -> Result<T, Broken> {
    Err(Broken {
        param: param.into(),
        message: message.into(),
        code: None,
    })
}

/// Parses a body by the rules that every server has.
fn parse(body: &[u8]) -> Result<Value, Broken> {
    if body.len() > MAX_BODY_BYTES {
        return broken("", format!("the body holds over {MAX_BODY_BYTES} bytes"));
    }
    let Ok(text) = std::str::from_utf8(body) else {
        return broken("", "the body is not UTF-8");
    };
    // Refuses lone surrogates as well.
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(e) => return broken("", format!("the body is not JSON: {e}")),
    };
    if !value.is_object() {
        return broken("", "the body is not an object");
    }
    no_nul(&value, "")?;
    Ok(value)
}

/// Refuses keys that the API does not know.
fn top_level(top: &Map<String, Value>, known: &[&str]) -> Checked {
    if let Some(key) = top.keys().find(|key| !known.contains(&key.as_str())) {
        return broken(
            key,
            format!("Unrecognized request argument supplied: {key}"),
        );
    }
    match top.get("model") {
        Some(Value::String(model)) if !model.is_empty() => Ok(()),
        _ => broken("model", "you must provide a model parameter"),
    }
}

/// Checks that base64 text is an image of the kind that it is said to be.
fn image(media_type: &str, base64: &str, at: &str) -> Checked {
    let Ok(bytes) = STANDARD.decode(base64) else {
        return broken(at, "the image is not base64");
    };
    let head: &[u8] = match media_type {
        "image/png" => b"\x89PNG\r\n\x1a\n",
        "image/jpeg" => b"\xff\xd8\xff",
        "image/gif" => b"GIF8",
        "image/webp" => b"RIFF",
        _ => return broken(at, format!("unsupported image type `{media_type}`")),
    };
    if !bytes.starts_with(head) {
        return broken(
            at,
            format!("Image does not match the provided media type {media_type}"),
        );
    }
    Ok(())
}

/// Checks an image that is given as a data URL.
fn image_url(url: &str, at: &str) -> Checked {
    if url.starts_with("https://") {
        return Ok(());
    }
    let data = url.strip_prefix("data:").unwrap_or_default();
    match data.split_once(";base64,") {
        Some((media_type, base64)) => image(media_type, base64, at),
        None => broken(at, "expected an https or a base64 data URL"),
    }
}

/// Parses and checks a body. `known` are the tool names that calls may use beside the declared
/// ones; what this request declares is added.
pub(crate) fn check(body: &[u8], known: &mut BTreeSet<String>) -> Result<Value, Broken> {
    let value = parse(body)?;
    let Some(top) = value.as_object() else {
        return broken("", "the body is not an object");
    };
    top_level(top, TOP_LEVEL)?;
    options(top)?;
    if let Some(tools) = top.get("tools") {
        known.extend(declared(tools)?);
    }
    match top.get("messages").and_then(Value::as_array) {
        Some(list) if !list.is_empty() => messages(list, known)?,
        _ => return broken("messages", "expected a non-empty array"),
    }
    Ok(value)
}

fn no_nul(value: &Value, at: &str) -> Checked {
    match value {
        Value::String(text) if text.contains('\0') => broken(at, "a text holds a NUL character"),
        Value::Array(list) => (0..)
            .zip(list)
            .try_for_each(|(n, value): (u32, _)| no_nul(value, &format!("{at}[{n}]"))),
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, value)| no_nul(value, &format!("{at}.{key}"))),
        _ => Ok(()),
    }
}

fn options(top: &Map<String, Value>) -> Checked {
    let stream = match top.get("stream") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(stream)) => *stream,
        Some(_) => return broken("stream", "expected a boolean"),
    };
    match top.get("stream_options") {
        None | Some(Value::Null) => {}
        Some(_) if !stream => {
            return broken("stream_options", "only allowed when `stream` is enabled");
        }
        Some(Value::Object(map)) => {
            for (key, value) in map {
                if !matches!(key.as_str(), "include_usage" | "include_obfuscation")
                    || !value.is_boolean()
                {
                    return broken(format!("stream_options.{key}"), "unknown or not a boolean");
                }
            }
        }
        Some(_) => return broken("stream_options", "expected an object"),
    }
    match top.get("temperature") {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|t| (0.0..=2.0).contains(&t)) => Ok(()),
        Some(_) => broken("temperature", "expected a number from 0 to 2"),
    }
}

fn declared(tools: &Value) -> Result<BTreeSet<String>, Broken> {
    let list = match tools.as_array() {
        Some(list) if !list.is_empty() => list,
        _ => return broken("tools", "expected a non-empty array"),
    };
    let mut names = BTreeSet::new();
    for (n, tool) in list.iter().enumerate() {
        let at = format!("tools[{n}]");
        if tool.get("type").and_then(Value::as_str) != Some("function") {
            return broken(format!("{at}.type"), "expected `function`");
        }
        let Some(function) = tool.get("function").and_then(Value::as_object) else {
            return broken(format!("{at}.function"), "expected an object");
        };
        only(
            function,
            &["name", "description", "parameters", "strict"],
            &at,
        )?;
        let name = tool_name(function.get("name"), &format!("{at}.function.name"))?;
        if !names.insert(name.to_owned()) {
            return broken(
                format!("{at}.function.name"),
                format!("`{name}` is declared twice"),
            );
        }
        match function.get("parameters") {
            None => {}
            Some(schema) if schema.get("type").and_then(Value::as_str) == Some("object") => {}
            Some(_) => {
                let at = format!("{at}.function.parameters");
                return broken(at, "schema must be of type `object`");
            }
        }
    }
    Ok(names)
}

fn only(map: &Map<String, Value>, allowed: &[&str], at: &str) -> Checked {
    match map.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => broken(format!("{at}.{key}"), "unknown key"),
        None => Ok(()),
    }
}

fn tool_name<'a>(value: Option<&'a Value>, at: &str) -> Result<&'a str, Broken> {
    let name = value.and_then(Value::as_str).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > MAX_TOOL_NAME_CHARS || !name.chars().all(fits) {
        return broken(at, "does not match the pattern ^[a-zA-Z0-9_-]{1,64}$");
    }
    Ok(name)
}

/// Checks order and pairing; `open` holds the ids of the calls that wait for their result.
fn messages(list: &[Value], known: &BTreeSet<String>) -> Checked {
    let mut open: Vec<String> = Vec::new();
    for (n, message) in list.iter().enumerate() {
        let at = format!("messages[{n}]");
        let Some(map) = message.as_object() else {
            return broken(at, "expected an object");
        };
        let role = map.get("role").and_then(Value::as_str).unwrap_or_default();
        if role != "tool" {
            unanswered(&open, &at)?;
        }
        match role {
            "system" | "developer" => {
                only(map, &["role", "content", "name"], &at)?;
                if n > 0 {
                    return broken(at, format!("role `{role}` is only allowed first"));
                }
                content(map, &at)?;
            }
            "user" => {
                only(map, &["role", "content", "name"], &at)?;
                content(map, &at)?;
            }
            "assistant" => {
                let keys = ["role", "content", "name", "refusal", "tool_calls"];
                only(map, &keys, &at)?;
                open = assistant(map, &at, known)?;
            }
            "tool" => {
                only(map, &["role", "content", "tool_call_id"], &at)?;
                let id = map
                    .get("tool_call_id")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                match open.first() {
                    None => {
                        return broken(
                            format!("{at}.role"),
                            "messages with role 'tool' must be a response to a preceding message \
                             with 'tool_calls'",
                        );
                    }
                    Some(wanted) if wanted != id => {
                        return broken(
                            format!("{at}.tool_call_id"),
                            format!("expected the result of `{wanted}`, found one of `{id}`"),
                        );
                    }
                    Some(_) => {
                        open.remove(0);
                    }
                }
                content(map, &at)?;
            }
            _ => return broken(format!("{at}.role"), format!("unknown role `{role}`")),
        }
    }
    unanswered(&open, "messages")
}

fn unanswered(open: &[String], at: &str) -> Checked {
    if open.is_empty() {
        return Ok(());
    }
    broken(
        at,
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following had no response: {}",
            open.join(", ")
        ),
    )
}

fn content(map: &Map<String, Value>, at: &str) -> Checked {
    let at = format!("{at}.content");
    match map.get("content") {
        Some(Value::String(text)) if !text.is_empty() => Ok(()),
        Some(Value::Array(parts)) if !parts.is_empty() => {
            for (n, part) in parts.iter().enumerate() {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                let filled = match kind {
                    "text" => part.get("text").and_then(Value::as_str),
                    "image_url" => part.pointer("/image_url/url").and_then(Value::as_str),
                    _ => None,
                };
                // The results of tools and the system's words are text only.
                let role = map.get("role").and_then(Value::as_str);
                if kind == "image_url" {
                    if role != Some("user") {
                        return broken(format!("{at}[{n}]"), "an image outside a user message");
                    }
                    image_url(filled.unwrap_or_default(), &format!("{at}[{n}].image_url"))?;
                }
                if filled.is_none_or(str::is_empty) {
                    return broken(format!("{at}[{n}]"), "empty, or of an unknown type");
                }
            }
            Ok(())
        }
        _ => broken(at, "expected a non-empty string or array"),
    }
}

fn assistant(
    map: &Map<String, Value>,
    at: &str,
    known: &BTreeSet<String>,
) -> Result<Vec<String>, Broken> {
    let calls = match map.get("tool_calls") {
        None => {
            content(map, at)?;
            return Ok(Vec::new());
        }
        Some(Value::Array(calls)) if !calls.is_empty() => calls,
        Some(_) => return broken(format!("{at}.tool_calls"), "expected a non-empty array"),
    };
    if map.get("content").is_some_and(|value| !value.is_null()) {
        content(map, at)?;
    }
    let mut ids: Vec<String> = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let at = format!("{at}.tool_calls[{n}]");
        let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
        if id.is_empty() || id.chars().count() > MAX_CALL_ID_CHARS {
            return broken(
                format!("{at}.id"),
                format!("expected 1 to {MAX_CALL_ID_CHARS} characters"),
            );
        }
        if ids.iter().any(|other| other == id) {
            return broken(format!("{at}.id"), format!("duplicate value `{id}`"));
        }
        if call.get("type").and_then(Value::as_str) != Some("function") {
            return broken(format!("{at}.type"), "expected `function`");
        }
        let at = format!("{at}.function");
        let name = tool_name(call.pointer("/function/name"), &format!("{at}.name"))?;
        if !known.contains(name) {
            return broken(
                format!("{at}.name"),
                format!("tool `{name}` is not in `tools`"),
            );
        }
        let arguments = call.pointer("/function/arguments").and_then(Value::as_str);
        object_text(arguments.unwrap_or_default(), &format!("{at}.arguments"))?;
        ids.push(id.to_owned());
    }
    Ok(ids)
}

fn object_text(text: &str, at: &str) -> Checked {
    // Not parsed into a value: its depth limit is not the real server's.
    if let Err(e) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(text) {
        return broken(at, format!("not the text of a JSON object: {e}"));
    }
    if has_lone_surrogate(text) {
        return broken(at, "holds a lone surrogate");
    }
    Ok(())
}

/// Looks for `\uD800`..`\uDFFF` escapes that make no pair, in text that is valid JSON.
fn has_lone_surrogate(text: &str) -> bool {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + found;
        at = match (unit(escape), unit(escape + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => escape + 12,
            (Some(0xD800..=0xDFFF), _) => return true,
            _ => escape + 2,
        };
    }
    false
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
