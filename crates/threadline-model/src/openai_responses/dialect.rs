//! From a request to the JSON body of a Responses call.
//!
//! The history is the last key, and every item of it depends only on what stands before it: a
//! longer request begins with the bytes of the shorter one.

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use threadline_session::{
    HistoryItem, Request,
    payload::{
        AssistantPart, ContentPart, ModelRef, Opaque, ToolDefinition, replace_lone_surrogates,
    },
};

use super::{CALL, MESSAGE, NAME};
use crate::{
    Images, limits,
    reject::Places,
    render::{
        Body, GOES_ON, Ids, Piece, Replayed, clean, converted, pieces, place, raw, replay,
        tool_name,
    },
};

/// What the configuration asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) effort: Option<String>,
    pub(crate) summary: Option<String>,
}

#[derive(Serialize)]
struct Call<'a> {
    model: &'a str,
    stream: bool,
    /// Nothing is kept on the server: the log is the only truth.
    store: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<Box<RawValue>>,
}

/// Returns the body.
pub(crate) fn body(request: &Request, images: &Images, options: &Options) -> Body {
    let mut input = Input {
        images,
        issuer: ModelRef {
            provider: NAME.into(),
            name: request.model.clone(),
        },
        ids: Ids::new(fits, true),
        out: Vec::with_capacity(request.items.len()),
        places: Places::default(),
    };
    input.all(&request.items);
    let system = clean(&request.system);
    let model = clean(&request.model);
    let include = if reasons(&model) {
        vec!["reasoning.encrypted_content"]
    } else {
        Vec::new()
    };
    let call = Call {
        model: &model,
        stream: true,
        store: false,
        include,
        max_output_tokens: options.max_output_tokens,
        reasoning: reasoning(options),
        temperature: request.temperature.filter(|t| t.is_finite()),
        tools: request.tools.iter().map(tool).collect(),
        instructions: if system.trim().is_empty() {
            ""
        } else {
            &system
        },
        input: input.out,
    };
    Body {
        // Only maps with keys that are no strings cannot be serialized, and there are none.
        json: serde_json::to_string(&call).unwrap_or_default(),
        places: input.places,
    }
}

/// The models before reasoning refuse to be asked for it.
/// Source: <https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items>.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-4"]
        .iter()
        .any(|old| name.starts_with(old))
}

fn reasoning(options: &Options) -> Option<Value> {
    let mut reasoning = serde_json::Map::new();
    if let Some(effort) = &options.effort {
        reasoning.insert("effort".into(), json!(effort));
    }
    if let Some(summary) = &options.summary {
        reasoning.insert("summary".into(), json!(summary));
    }
    (!reasoning.is_empty()).then_some(Value::Object(reasoning))
}

fn tool(tool: &ToolDefinition) -> Box<RawValue> {
    raw(json!({
        "type": "function",
        "name": tool_name(&tool.name),
        "description": clean(&tool.description),
        "parameters": tool.parameters,
        // The default would refuse schemas with optional arguments.
        "strict": false,
    }))
}

fn fits(id: &str) -> bool {
    let short = !id.is_empty() && id.chars().count() <= limits::MAX_LONG_CALL_ID_CHARS;
    short && !id.chars().any(char::is_control)
}

struct Input<'a> {
    images: &'a Images,
    issuer: ModelRef,
    ids: Ids<'a>,
    out: Vec<Box<RawValue>>,
    places: Places,
}

impl<'a> Input<'a> {
    fn all(&mut self, items: &'a [HistoryItem]) {
        for (at, item) in items.iter().enumerate() {
            match item {
                HistoryItem::User { content } => {
                    let content = self.content(at, content, "[empty message]");
                    self.push(at, None, message(&content));
                }
                HistoryItem::Assistant { content, opaque } => self.assistant(at, content, opaque),
                HistoryItem::Tool {
                    call_id, content, ..
                } => self.result(at, call_id, content),
            }
        }
        if self.out.is_empty() {
            let content = json!([{ "type": "input_text", "text": GOES_ON }]);
            self.out.push(raw(message(&content)));
        }
    }

    fn push(&mut self, item: usize, part: Option<usize>, value: Value) {
        self.push_raw(item, part, raw(value));
    }

    fn push_raw(&mut self, item: usize, part: Option<usize>, raw: Box<RawValue>) {
        self.places.0.push(place(&[self.out.len()], item, part));
        self.out.push(raw);
    }

    fn content(&mut self, item: usize, content: &[ContentPart], empty: &str) -> Value {
        let mut parts = Vec::with_capacity(content.len());
        for (part, piece) in pieces(content, self.images, empty) {
            let path = [self.out.len(), parts.len()];
            self.places.0.push(place(&path, item, part));
            parts.push(match piece {
                Piece::Text(text) => json!({ "type": "input_text", "text": text }),
                Piece::Image { media_type, base64 } => json!({
                    "type": "input_image",
                    "detail": "auto",
                    "image_url": format!("data:{media_type};base64,{base64}"),
                }),
            });
        }
        Value::Array(parts)
    }

    fn result(&mut self, item: usize, call_id: &str, content: &[ContentPart]) {
        let content = self.content(item, content, "[no output]");
        let Some(call_id) = self.ids.result(call_id) else {
            // The normaliser leaves no such result; the model is told of it all the same.
            return self.push(item, None, message(&content));
        };
        // A plain text where it is one: not every compatible server reads the other form.
        let texts: Option<Vec<&str>> = content.as_array().and_then(|parts| {
            let texts = parts.iter().map(|part| part["text"].as_str());
            texts.collect()
        });
        let output = texts.map_or_else(|| content.clone(), |texts| texts.join("\n").into());
        self.push(
            item,
            None,
            json!({ "type": "function_call_output", "call_id": call_id, "output": output }),
        );
    }

    fn assistant(&mut self, item: usize, content: &'a [AssistantPart], opaque: &'a [Opaque]) {
        self.ids.message();
        let own = opaque.iter().all(|o| o.issuer == self.issuer);
        let replayed = replay(content, opaque, MESSAGE, CALL).filter(|_| own);
        let parts = replayed.unwrap_or_else(|| converted(content));
        if parts.is_empty() {
            let text = AssistantPart::Text {
                text: "[empty message]".into(),
            };
            let value = self.part(&text, "");
            return self.push(item, None, value);
        }
        for part in parts {
            match part {
                Replayed::Own { raw, .. } => self.push_raw(item, None, raw),
                Replayed::Part { at, part, head } => {
                    let value = self.visible(part, head);
                    self.push(item, Some(at), value);
                }
            }
        }
    }

    fn visible(&mut self, part: &'a AssistantPart, head: &str) -> Value {
        match part {
            AssistantPart::ToolCall {
                call_id,
                name,
                arguments,
            } => {
                let mut call = json!({
                    "type": "function_call",
                    "call_id": self.ids.call(call_id),
                    "name": tool_name(name),
                    "arguments": replace_lone_surrogates(&clean(arguments)),
                });
                take(&mut call, head);
                call
            }
            other => self.part(other, head),
        }
    }

    fn part(&self, part: &AssistantPart, head: &str) -> Value {
        let text = match part {
            AssistantPart::Text { text } => clean(text),
            _ => "[empty message]".into(),
        };
        let mut message = json!({
            "type": "message",
            "role": "assistant",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        });
        take(&mut message, head);
        message
    }
}

fn message(content: &Value) -> Value {
    json!({ "type": "message", "role": "user", "content": content })
}

/// Gives an item back what its issuer had said of it besides its content, whatever that is: the
/// API asks for its output items as they came.
fn take(item: &mut Value, head: &str) {
    let Ok(Value::Object(head)) = serde_json::from_str(head) else {
        return;
    };
    for (key, value) in head {
        if !value.is_null() && item.get(&key).is_none() {
            item[key] = value;
        }
    }
}

#[cfg(test)]
mod tests;
