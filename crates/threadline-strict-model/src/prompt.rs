//! What a request says, whatever its dialect, and what of it the server has seen before.

use serde::Serialize;
use serde_json::{Value, json};

use crate::script::{Reply, Step, Tokens, When};

/// Bytes that count as one token.
const TOKEN_BYTES: usize = 4;

/// Which API a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Anthropic,
}

impl Dialect {
    fn messages(self, json: &Value) -> &[Value] {
        let key = match self {
            Self::Chat | Self::Anthropic => "messages",
            Self::Responses => "input",
        };
        json[key].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Returns what the last message, result or item says.
pub(crate) fn last(dialect: Dialect, json: &Value) -> String {
    dialect.messages(json).last().map(said).unwrap_or_default()
}

/// Returns what the user said last; results of tools are not said by the user.
fn user(dialect: Dialect, json: &Value) -> Option<String> {
    let texts = |message: &Value| {
        let content = &message["content"];
        let results = content
            .as_array()
            .is_some_and(|parts| parts.iter().all(|part| part["type"] == "tool_result"));
        (message["role"] == "user" && !results).then(|| said(message))
    };
    dialect.messages(json).iter().rev().find_map(texts)
}

fn said(message: &Value) -> String {
    match message.get("content").or_else(|| message.get("output")) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| match part["text"].as_str() {
                Some(text) => text.to_owned(),
                None => said(part),
            })
            .collect(),
        _ => String::new(),
    }
}

/// Returns whether a reply is for a request.
pub(crate) fn holds(when: &When, dialect: Dialect, json: &Value, body: &[u8]) -> bool {
    let has = |said: Option<String>, wanted: &Option<String>| match wanted {
        None => true,
        Some(wanted) => said.is_some_and(|said| said.contains(wanted)),
    };
    let body_holds = when
        .body
        .as_ref()
        .is_none_or(|wanted| String::from_utf8_lossy(body).contains(wanted));
    has(user(dialect, json), &when.user) && has(Some(last(dialect, json)), &when.last) && body_holds
}

/// Repeats what was said last.
pub(crate) fn echo(dialect: Dialect, json: &Value) -> Reply {
    Reply::text(format!("echo: {}", last(dialect, json)))
}

/// Returns the prompt as a model reads it: a longer conversation begins with the shorter one.
pub(crate) fn text(dialect: Dialect, json: &Value) -> String {
    let mut lines: Vec<String> = vec![json["model"].to_string()];
    let mut add = |value: &Value| lines.push(value.to_string());
    add(&json["tools"]);
    match dialect {
        Dialect::Chat => {}
        Dialect::Responses => add(&json["instructions"]),
        Dialect::Anthropic => add(&json["system"]),
    }
    for message in dialect.messages(json) {
        match (dialect, message["content"].as_array()) {
            (Dialect::Anthropic, Some(blocks)) => {
                for block in blocks {
                    let mut block = block.clone();
                    // Where the cache is marked changes nothing about what is cached.
                    if let Some(fields) = block.as_object_mut() {
                        fields.remove("cache_control");
                    }
                    add(&json!([message["role"], block]));
                }
            }
            _ => add(message),
        }
    }
    lines.join("\n")
}

/// Counts the tokens of a reply: four bytes are one, and what an earlier prompt began with alike
/// is cached. The Messages API caches only what it is asked to.
pub(crate) fn tokens(
    dialect: Dialect,
    json: &Value,
    prompt: &str,
    earlier: &[(Dialect, String)],
    steps: &[Step],
) -> Tokens {
    let shared = earlier
        .iter()
        .filter(|(other, _)| *other == dialect)
        .map(|(_, other)| {
            let pairs = other.bytes().zip(prompt.bytes());
            pairs.take_while(|(a, b)| a == b).count()
        })
        .max()
        .unwrap_or(0);
    let bytes = |wanted: fn(&Step) -> bool| -> u64 {
        let all = steps.iter().filter(|step| wanted(step)).map(step_bytes);
        all.sum::<usize>().div_ceil(TOKEN_BYTES) as u64
    };
    let asked = dialect != Dialect::Anthropic || prompt_is_cached(json);
    let input = prompt.len().div_ceil(TOKEN_BYTES) as u64;
    let cached = if asked {
        (shared / TOKEN_BYTES) as u64
    } else {
        0
    };
    let created = match dialect {
        Dialect::Anthropic if asked => input.saturating_sub(cached).saturating_sub(1),
        _ => 0,
    };
    Tokens {
        input,
        output: bytes(|_| true),
        cached,
        created,
        reasoning: bytes(|step| matches!(step, Step::Reasoning(_) | Step::Redacted(_))),
    }
}

fn prompt_is_cached(json: &Value) -> bool {
    let marked = |value: &Value| value.get("cache_control").is_some();
    let any = |value: &Value| value.as_array().is_some_and(|list| list.iter().any(marked));
    let messages = json["messages"].as_array();
    marked(json)
        || any(&json["system"])
        || any(&json["tools"])
        || messages.is_some_and(|list| list.iter().any(|message| any(&message["content"])))
}

fn step_bytes(step: &Step) -> usize {
    match step {
        Step::Text(text) | Step::Reasoning(text) | Step::Redacted(text) => text.len(),
        Step::ToolCall { arguments, .. } => arguments.to_string().len(),
        Step::ToolArgs { delta, .. } => delta.len(),
        _ => 0,
    }
}
