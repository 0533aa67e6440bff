//! The rules of the Messages API.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Broken, Checked, broken, image, only, parse, tool_name, top_level};
use crate::issued::{Issued, is_thinking};

const MAX_IMAGE_BASE64_BYTES: usize = 5 << 20;
const MAX_CACHE_MARKS: usize = 4;
const MIN_THINKING_TOKENS: u64 = 1024;

const TOP_LEVEL: &[&str] = &[
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
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
    if marks(&value) > MAX_CACHE_MARKS {
        let most = format!("A maximum of {MAX_CACHE_MARKS} blocks with cache_control");
        return broken("cache_control", most);
    }
    let list = match top.get("messages").and_then(Value::as_array) {
        Some(list) if !list.is_empty() => list,
        _ => return broken("messages", "at least one message is required"),
    };
    let mut messages = Messages {
        model: top["model"].as_str().unwrap_or_default(),
        known,
        issued,
        ids: BTreeSet::new(),
        open: Vec::new(),
    };
    messages.all(list)?;
    messages.thinking(top.get("thinking"), list)?;
    Ok(value)
}

/// Counts the cache marks anywhere in a body.
fn marks(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(marks).sum(),
        Value::Object(map) => {
            let own = usize::from(map.get("cache_control").is_some_and(Value::is_object));
            own + map.values().map(marks).sum::<usize>()
        }
        _ => 0,
    }
}

fn options(top: &Map<String, Value>) -> Checked {
    let max = match top.get("max_tokens").and_then(Value::as_u64) {
        Some(max) if max > 0 => max,
        _ => return broken("max_tokens", "Field required"),
    };
    if top.get("stream").is_some_and(|value| !value.is_boolean()) {
        return broken("stream", "expected a boolean");
    }
    let thinking = top.get("thinking").map(|thinking| &thinking["type"]);
    match thinking.map(Value::as_str) {
        None | Some(Some("disabled" | "adaptive")) => {}
        Some(Some("enabled")) => {
            let budget = top["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
            if budget < MIN_THINKING_TOKENS || budget >= max {
                let at = "thinking.enabled.budget_tokens";
                return broken(at, "expected at least 1024 and less than max_tokens");
            }
        }
        Some(_) => return broken("thinking.type", "expected enabled, adaptive or disabled"),
    }
    if let Some(temperature) = top.get("temperature") {
        let value = temperature.as_f64().unwrap_or(-1.0);
        if !(0.0..=1.0).contains(&value) {
            return broken("temperature", "expected a number from 0 to 1");
        }
        if thinking.is_some_and(|kind| kind != "disabled") && value < 1.0 {
            return broken("temperature", "may only be 1 when thinking is enabled");
        }
    }
    for value in [top.get("cache_control")].into_iter().flatten() {
        cache_control(value, "cache_control")?;
    }
    match top.get("system") {
        None => Ok(()),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(()),
        Some(Value::Array(blocks)) if !blocks.is_empty() => {
            let mut blocks = (0..).zip(blocks);
            blocks.try_for_each(|(n, block): (u32, _)| text(block, &format!("system.{n}")))
        }
        Some(_) => broken("system", "expected a non-empty string or array"),
    }
}

fn cache_control(value: &Value, at: &str) -> Checked {
    let fits = value["type"] == "ephemeral"
        && value
            .as_object()
            .is_some_and(|map| map.keys().all(|key| matches!(key.as_str(), "type" | "ttl")));
    if fits {
        Ok(())
    } else {
        broken(at, "expected {\"type\":\"ephemeral\"}")
    }
}

fn declared(tools: &Value) -> Result<BTreeSet<String>, Broken> {
    let Some(list) = tools.as_array() else {
        return broken("tools", "expected an array");
    };
    let mut names = BTreeSet::new();
    for (n, tool) in list.iter().enumerate() {
        let at = format!("tools.{n}");
        let Some(tool) = tool.as_object() else {
            return broken(at, "expected an object");
        };
        let keys = [
            "type",
            "name",
            "description",
            "input_schema",
            "cache_control",
        ];
        only(tool, &keys, &at)?;
        let name = tool_name(tool.get("name"), &format!("{at}.name"))?;
        if !names.insert(name.to_owned()) {
            return broken("tools", "Tool names must be unique");
        }
        if tool
            .get("input_schema")
            .is_none_or(|s| s["type"] != "object")
        {
            return broken(format!("{at}.input_schema.type"), "Field required");
        }
    }
    Ok(names)
}

/// Checks a text block.
fn text(block: &Value, at: &str) -> Checked {
    let Some(map) = block.as_object() else {
        return broken(at, "expected an object");
    };
    only(map, &["type", "text", "cache_control", "citations"], at)?;
    if let Some(mark) = map.get("cache_control") {
        cache_control(mark, at)?;
    }
    match map.get("text").and_then(Value::as_str) {
        Some("") => broken(at, "text content blocks must be non-empty"),
        Some(text) if text.trim().is_empty() => {
            broken(at, "text content blocks must contain non-whitespace text")
        }
        Some(_) => Ok(()),
        None => broken(format!("{at}.text"), "Field required"),
    }
}

fn picture(block: &Value, at: &str) -> Checked {
    let at = format!("{at}.image.source.base64");
    let source = &block["source"];
    let data = source["data"].as_str().unwrap_or_default();
    if source["type"] != "base64" || data.is_empty() {
        return broken(at, "expected a base64 source");
    }
    if data.len() > MAX_IMAGE_BASE64_BYTES {
        let size = data.len();
        return broken(
            at,
            format!("image exceeds 5 MB maximum: {size} bytes > {MAX_IMAGE_BASE64_BYTES} bytes"),
        );
    }
    image(source["media_type"].as_str().unwrap_or_default(), data, &at)
}

struct Messages<'a> {
    model: &'a str,
    known: &'a BTreeSet<String>,
    issued: &'a Issued,
    /// Ids of all calls so far.
    ids: BTreeSet<String>,
    /// Ids of the calls that the next message must answer.
    open: Vec<String>,
}

impl Messages<'_> {
    fn all(&mut self, list: &[Value]) -> Checked {
        let mut before = "assistant";
        for (n, message) in list.iter().enumerate() {
            let at = format!("messages.{n}");
            let Some(map) = message.as_object() else {
                return broken(at, "expected an object");
            };
            only(map, &["role", "content"], &at)?;
            let role = map.get("role").and_then(Value::as_str);
            let Some(role @ ("user" | "assistant")) = role else {
                return broken(format!("{at}.role"), "expected user or assistant");
            };
            if role == before {
                return broken(
                    at,
                    "roles must alternate between \"user\" and \"assistant\", and \"user\" first",
                );
            }
            before = role;
            let one;
            let blocks: &[Value] = match map.get("content") {
                Some(Value::Array(blocks)) if !blocks.is_empty() => blocks,
                Some(Value::String(said)) => {
                    one = [serde_json::json!({ "type": "text", "text": said })];
                    &one
                }
                _ => return broken(format!("{at}.content"), "expected a non-empty content"),
            };
            match role {
                "user" => self.user(blocks, &at)?,
                _ => self.assistant(blocks, &at)?,
            }
        }
        if before == "assistant" {
            return broken(
                "messages",
                "This model does not support assistant message prefill. The conversation must \
                 end with a user message.",
            );
        }
        Ok(())
    }

    fn user(&mut self, blocks: &[Value], at: &str) -> Checked {
        let mut others = false;
        for (n, block) in blocks.iter().enumerate() {
            let at = format!("{at}.content.{n}");
            match block["type"].as_str() {
                Some("text") => text(block, &at)?,
                Some("image") => picture(block, &at)?,
                Some("tool_result") => {
                    if others {
                        return broken(at, "a `tool_result` block must come before all others");
                    }
                    self.result(block, &at)?;
                    continue;
                }
                _ => return broken(format!("{at}.type"), "a block of an unknown type"),
            }
            others = true;
        }
        if self.open.is_empty() {
            return Ok(());
        }
        broken(
            at,
            format!(
                "`tool_use` ids were found without `tool_result` blocks immediately after: {}",
                self.open.join(", ")
            ),
        )
    }

    fn result(&mut self, block: &Value, at: &str) -> Checked {
        let Some(map) = block.as_object() else {
            return broken(at, "expected an object");
        };
        let keys = [
            "type",
            "tool_use_id",
            "content",
            "is_error",
            "cache_control",
        ];
        only(map, &keys, at)?;
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        let Some(found) = self.open.iter().position(|open| open == id) else {
            return broken(
                at,
                format!("unexpected `tool_use_id` found in `tool_result` blocks: {id}"),
            );
        };
        self.open.remove(found);
        if map.get("is_error").is_some_and(|value| !value.is_boolean()) {
            return broken(format!("{at}.tool_result.is_error"), "expected a boolean");
        }
        let parts = block["content"].as_array().map_or(&[][..], Vec::as_slice);
        if block["is_error"] == true && parts.iter().any(|part| part["type"] != "text") {
            return broken(
                at,
                "all content must be type \"text\" if \"is_error\" is true",
            );
        }
        match &block["content"] {
            Value::String(said) if !said.trim().is_empty() => Ok(()),
            Value::Array(parts) if !parts.is_empty() => {
                for (n, part) in parts.iter().enumerate() {
                    let at = format!("{at}.tool_result.content.{n}");
                    match part["type"].as_str() {
                        Some("text") => text(part, &at)?,
                        Some("image") => picture(part, &at)?,
                        _ => return broken(format!("{at}.type"), "a block of an unknown type"),
                    }
                }
                Ok(())
            }
            _ => broken(format!("{at}.tool_result.content"), "empty"),
        }
    }

    fn assistant(&mut self, blocks: &[Value], at: &str) -> Checked {
        for (n, block) in blocks.iter().enumerate() {
            let at = format!("{at}.content.{n}");
            match block["type"].as_str() {
                Some("text") => text(block, &at)?,
                Some("tool_use") => self.call(block, &at)?,
                Some("thinking" | "redacted_thinking") => {
                    let own =
                        |(model, issued): &(String, Value)| model == self.model && issued == block;
                    if !self.issued.thinking.iter().any(own) {
                        return broken(at, "Invalid `signature` in `thinking` block");
                    }
                }
                _ => return broken(format!("{at}.type"), "a block of an unknown type"),
            }
        }
        if blocks.last().is_some_and(is_thinking) {
            return broken(
                at,
                "The final block in an assistant message cannot be `thinking`.",
            );
        }
        Ok(())
    }

    fn call(&mut self, block: &Value, at: &str) -> Checked {
        let Some(map) = block.as_object() else {
            return broken(at, "expected an object");
        };
        only(map, &["type", "id", "name", "input", "cache_control"], at)?;
        let id = block["id"].as_str().unwrap_or_default();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if id.is_empty() || !id.chars().all(plain) {
            return broken(
                format!("{at}.tool_use.id"),
                "String should match pattern '^[a-zA-Z0-9_-]+$'",
            );
        }
        if !self.ids.insert(id.to_owned()) {
            return broken(at, "`tool_use` ids must be unique");
        }
        let name = tool_name(block.get("name"), &format!("{at}.tool_use.name"))?;
        if !self.known.contains(name) {
            return broken(
                format!("{at}.tool_use.name"),
                format!("tool `{name}` is not in `tools`"),
            );
        }
        if !block["input"].is_object() {
            return broken(
                format!("{at}.tool_use.input"),
                "Input should be a valid dictionary",
            );
        }
        self.open.push(id.to_owned());
        Ok(())
    }

    /// Checks what a turn that goes on with tools must hold.
    fn thinking(&self, option: Option<&Value>, list: &[Value]) -> Checked {
        let results = |message: &Value| message["content"][0]["type"] == "tool_result";
        let starts = |message: &Value| message["role"] == "user" && !results(message);
        let turn = list.iter().rposition(starts).unwrap_or(0);
        let mut answers = list
            .iter()
            .enumerate()
            .skip(turn)
            .filter(|(_, message)| message["role"] == "assistant");
        let enabled = option.is_some_and(|option| option["type"] == "enabled");
        let disabled = option.is_some_and(|option| option["type"] == "disabled");
        let first = answers.next();
        if let Some((n, first)) = first
            && enabled
            && !is_thinking(&first["content"][0])
        {
            let found = first["content"][0]["type"].as_str().unwrap_or("text");
            return broken(
                format!("messages.{n}.content.0.type"),
                format!("Expected `thinking` or `redacted_thinking`, but found `{found}`"),
            );
        }
        if disabled
            && let Some((n, _)) = first
                .into_iter()
                .chain(answers)
                .find(|(_, message)| has_thinking(message))
        {
            return broken(
                format!("messages.{n}"),
                "When thinking is disabled, an `assistant` message in the final position cannot \
                 contain `thinking`.",
            );
        }
        let last = list
            .iter()
            .enumerate()
            .rfind(|(_, message)| message["role"] == "assistant");
        match last {
            Some((n, message)) if enabled || has_thinking(message) => self.unchanged(n, message),
            _ => Ok(()),
        }
    }

    /// Checks that an answer that called tools is what was issued: the same visible blocks with
    /// the same thinking in the same places.
    fn unchanged(&self, n: usize, message: &Value) -> Checked {
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let spoken = |block: &&Value| block["text"].as_str().is_none_or(|t| !t.trim().is_empty());
        let all = |blocks: &[Value]| -> Vec<Value> {
            let mut blocks: Vec<Value> = blocks.iter().filter(spoken).cloned().collect();
            // What would end the answer cannot come back.
            while blocks.pop_if(|last| is_thinking(last)).is_some() {}
            blocks
        };
        let visible = |blocks: &[Value]| -> Vec<Value> {
            let blocks = blocks.iter().filter(spoken);
            blocks
                .filter(|block| !is_thinking(block))
                .cloned()
                .collect()
        };
        let mut same = self
            .issued
            .answers
            .iter()
            .filter(|issued| visible(issued) == visible(blocks))
            .peekable();
        if same.peek().is_none() || same.any(|issued| all(issued) == all(blocks)) {
            return Ok(());
        }
        broken(
            format!("messages.{n}.content.0"),
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be \
             modified. These blocks must remain as they were in the original response.",
        )
    }
}

fn has_thinking(message: &Value) -> bool {
    let blocks = message["content"].as_array();
    blocks.is_some_and(|blocks| blocks.iter().any(is_thinking))
}

#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
