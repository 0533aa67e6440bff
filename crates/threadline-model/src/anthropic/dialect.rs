//! From a request to the JSON body of a Messages call.
//!
//! The history is the last key, and every block of it depends only on what stands before it: a
//! longer request begins with the bytes of the shorter one, up to the brackets that end it. So no
//! cache marker stands in the history: the one at the top of the request makes the server set the
//! breakpoint at its end, and the one behind the system prompt holds for every session that begins
//! alike. Source: <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use threadline_session::{
    HistoryItem, Request,
    payload::{
        AssistantPart, ContentPart, ModelRef, Opaque, ToolDefinition, replace_lone_surrogates,
    },
};

use super::{CALL, NAME, TEXT};
use crate::{
    Images, Thinking, limits,
    reject::Places,
    render::{
        Body, GOES_ON, Ids, Piece, Replayed, clean, converted, pieces, place, raw, replay,
        tool_name,
    },
};

/// What the configuration asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) thinking: Option<Thinking>,
}

#[derive(Serialize)]
struct Call<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    cache_control: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Box<RawValue>>,
    messages: Vec<Message>,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Box<RawValue>>,
    #[serde(skip)]
    first: First,
    /// The first item in it.
    #[serde(skip)]
    item: usize,
}

/// What a message begins with, as far as the rules ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Thinking,
    Result,
    Other,
}

/// Returns the body.
pub(crate) fn body(request: &Request, images: &Images, options: &Options) -> Body {
    let mut history = History::of(request, images, usize::MAX);
    let mut disabled = false;
    if let Some(Thinking::Budget(_)) = options.thinking
        && let Some(turn) = unthinking_turn(&history.messages)
    {
        // What is left of thinking in it goes too: the API refuses it where it is disabled.
        history = History::of(request, images, turn);
        disabled = true;
    }
    let cache = json!({ "type": "ephemeral" });
    let system = clean(&request.system);
    let system = if system.trim().is_empty() {
        Vec::new()
    } else {
        vec![raw(
            json!({ "type": "text", "text": system, "cache_control": &cache }),
        )]
    };
    let model = clean(&request.model);
    let call = Call {
        model: &model,
        max_tokens: max_tokens(options),
        stream: true,
        thinking: options.thinking.map(|thinking| match thinking {
            Thinking::Budget(_) if disabled => json!({ "type": "disabled" }),
            Thinking::Budget(tokens) => {
                let tokens = tokens.max(limits::MIN_THINKING_TOKENS);
                json!({ "type": "enabled", "budget_tokens": tokens })
            }
            Thinking::Adaptive => json!({ "type": "adaptive" }),
        }),
        // A model that thinks takes no temperature, and none takes one above 1.
        temperature: request
            .temperature
            .filter(|t| t.is_finite() && (options.thinking.is_none() || disabled))
            .map(|t| t.clamp(0.0, 1.0)),
        cache_control: cache,
        tools: request.tools.iter().map(tool).collect(),
        system,
        messages: history.messages,
    };
    Body {
        // Only maps with keys that are no strings cannot be serialized, and there are none.
        json: serde_json::to_string(&call).unwrap_or_default(),
        places: history.places,
    }
}

fn max_tokens(options: &Options) -> u32 {
    let asked = options.max_output_tokens;
    let asked = asked.unwrap_or(limits::MAX_OUTPUT_TOKENS).max(1);
    match options.thinking {
        // The budget is a part of it and must be smaller.
        Some(Thinking::Budget(tokens)) => asked.max(
            tokens
                .max(limits::MIN_THINKING_TOKENS)
                .saturating_add(limits::MIN_ANSWER_TOKENS),
        ),
        _ => asked,
    }
}

/// Returns the first item of the current turn if its first answer does not begin with thinking.
///
/// A turn that was begun without thinking, by another provider for instance, must end without it:
/// its first answer would have to begin with a thinking block, and nobody can make one up.
/// Source: <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>, on tool use.
fn unthinking_turn(messages: &[Message]) -> Option<usize> {
    let starts = |m: &Message| m.role == "user" && m.first != First::Result;
    let turn = messages.iter().rposition(starts).unwrap_or(0);
    let answer = messages.iter().skip(turn).find(|m| m.role == "assistant")?;
    (answer.first != First::Thinking).then_some(answer.item)
}

fn tool(tool: &ToolDefinition) -> Box<RawValue> {
    raw(json!({
        "name": tool_name(&tool.name),
        "description": clean(&tool.description),
        "input_schema": tool.parameters,
    }))
}

/// Source: the pattern that the API names when it refuses an id, `^[a-zA-Z0-9_-]+$`.
fn fits(id: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !id.is_empty() && id.len() <= limits::MAX_LONG_CALL_ID_CHARS && id.chars().all(plain)
}

struct History<'a> {
    images: &'a Images,
    issuer: ModelRef,
    /// From this item on no thinking goes back.
    unthinking: usize,
    ids: Ids<'a>,
    messages: Vec<Message>,
    places: Places,
}

impl<'a> History<'a> {
    fn of(request: &'a Request, images: &'a Images, unthinking: usize) -> Self {
        let mut history = Self {
            images,
            issuer: ModelRef {
                provider: NAME.into(),
                name: request.model.clone(),
            },
            unthinking,
            ids: Ids::new(fits, true),
            messages: Vec::with_capacity(request.items.len()),
            places: Places::default(),
        };
        history.all(&request.items);
        history
    }

    fn all(&mut self, items: &'a [HistoryItem]) {
        for (at, item) in items.iter().enumerate() {
            match item {
                HistoryItem::User { content } => self.user(at, content),
                HistoryItem::Assistant { content, opaque } => self.assistant(at, content, opaque),
                HistoryItem::Tool {
                    call_id,
                    content,
                    is_error,
                    ..
                } => self.result(at, call_id, content, *is_error),
            }
        }
        // What ends with an answer would ask for the answer's continuation, which many models
        // refuse; and a request must ask for something.
        if self.messages.last().is_none_or(|m| m.role == "assistant") {
            self.filler(items.len());
        }
    }

    fn filler(&mut self, item: usize) {
        let block = raw(json!({ "type": "text", "text": GOES_ON }));
        self.message("user", First::Other, item).content.push(block);
    }

    /// Begins a message, or goes on with one of the user: the API knows no two in a row.
    fn message(&mut self, role: &'static str, first: First, item: usize) -> &mut Message {
        let goes_on = role == "user" && self.messages.last().is_some_and(|m| m.role == role);
        if !goes_on {
            self.messages.push(Message {
                role,
                content: Vec::new(),
                first,
                item,
            });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Where the next block of a message will stand.
    fn at(&self, goes_on: bool) -> [usize; 2] {
        match self.messages.last() {
            Some(message) if goes_on && message.role == "user" => {
                [self.messages.len() - 1, message.content.len()]
            }
            _ => [self.messages.len(), 0],
        }
    }

    fn user(&mut self, item: usize, content: &[ContentPart]) {
        for (part, piece) in pieces(content, self.images, "[empty message]") {
            let at = self.at(true);
            self.places.0.push(place(&at, item, part));
            let block = raw(block(piece));
            self.message("user", First::Other, item).content.push(block);
        }
    }

    fn result(&mut self, item: usize, call_id: &str, content: &[ContentPart], is_error: bool) {
        let Some(id) = self.ids.result(call_id) else {
            // The normaliser leaves no such result; the model is told of it all the same.
            return self.user(item, content);
        };
        let [message, at] = self.at(true);
        self.places.0.push(place(&[message, at], item, None));
        let mut blocks = Vec::with_capacity(content.len());
        let mut only_text = true;
        for (part, piece) in pieces(content, self.images, "[no output]") {
            let path = [message, at, blocks.len()];
            self.places.0.push(place(&path, item, part));
            only_text &= matches!(piece, Piece::Text(_));
            blocks.push(block(piece));
        }
        let mut result = json!({ "type": "tool_result", "tool_use_id": id, "content": blocks });
        // The API refuses images in a result that is marked as an error; its text says it anyway.
        if is_error && only_text {
            result["is_error"] = true.into();
        }
        let message = self.message("user", First::Result, item);
        message.content.push(raw(result));
    }

    fn assistant(&mut self, item: usize, content: &'a [AssistantPart], opaque: &'a [Opaque]) {
        // An answer follows something that was said.
        if self.messages.last().is_none_or(|m| m.role == "assistant") {
            self.filler(item);
        }
        self.ids.message();
        let own = item < self.unthinking && opaque.iter().all(|o| o.issuer == self.issuer);
        let replayed = replay(content, opaque, TEXT, CALL).filter(|_| own);
        let parts = replayed.unwrap_or_else(|| converted(content));
        let first = match parts.first() {
            Some(Replayed::Own { .. }) => First::Thinking,
            _ => First::Other,
        };
        let message = self.messages.len();
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            let (at, block) = match part {
                Replayed::Own { raw, .. } => (None, raw),
                Replayed::Part { at, part, .. } => (Some(at), self.visible(part)),
            };
            self.places
                .0
                .push(place(&[message, blocks.len()], item, at));
            blocks.push(block);
        }
        if blocks.is_empty() {
            blocks.push(raw(json!({ "type": "text", "text": "[empty message]" })));
        }
        self.message("assistant", first, item).content = blocks;
    }

    fn visible(&mut self, part: &'a AssistantPart) -> Box<RawValue> {
        match part {
            AssistantPart::ToolCall {
                call_id,
                name,
                arguments,
            } => tool_use(&self.ids.call(call_id), &tool_name(name), arguments),
            AssistantPart::Text { text } => raw(json!({ "type": "text", "text": clean(text) })),
            AssistantPart::Reasoning { .. } | AssistantPart::Unknown => {
                raw(json!({ "type": "text", "text": "[empty message]" }))
            }
        }
    }
}

/// The arguments go as the model wrote them: read into a tree they would lose large numbers.
#[derive(Serialize)]
struct ToolUse<'a> {
    id: &'a str,
    input: &'a RawValue,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

fn tool_use(id: &str, name: &str, arguments: &str) -> Box<RawValue> {
    let arguments = replace_lone_surrogates(arguments);
    let arguments = arguments.trim();
    // The normaliser has made an object of whatever the model wrote.
    let object: Option<&RawValue> = (arguments.starts_with('{') && !holds_nul(arguments))
        .then(|| serde_json::from_str(arguments).ok())
        .flatten();
    let made;
    let input = match object {
        Some(input) => input,
        None => {
            made = raw(without_nul(arguments));
            &made
        }
    };
    let block = ToolUse {
        id,
        input,
        name,
        kind: CALL,
    };
    serde_json::value::to_raw_value(&block).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Whether a JSON text holds an escaped NUL, which the API refuses: the escape itself, and not a
/// text about it.
fn holds_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let before = json.get(..at).unwrap_or_default();
        let slashes = before.len() - before.trim_end_matches('\\').len();
        slashes.is_multiple_of(2)
    })
}

/// Arguments that are no object, or hold a NUL.
fn without_nul(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(mut object @ Value::Object(_)) => {
            replace_nul(&mut object);
            object
        }
        _ if arguments.is_empty() => json!({}),
        _ => json!({ "invalid_arguments": clean(arguments) }),
    }
}

fn replace_nul(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text).into_owned(),
        Value::Array(list) => list.iter_mut().for_each(replace_nul),
        Value::Object(map) => {
            let old = std::mem::take(map);
            for (key, mut value) in old {
                replace_nul(&mut value);
                map.insert(clean(&key).into_owned(), value);
            }
        }
        _ => {}
    }
}

fn block(piece: Piece) -> Value {
    match piece {
        Piece::Text(text) => json!({ "type": "text", "text": text }),
        Piece::Image { media_type, base64 } => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": media_type, "data": base64 },
        }),
    }
}

#[cfg(test)]
mod tests;
