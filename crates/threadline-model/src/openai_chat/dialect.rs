//! From a request to the JSON body of a Chat Completions call.
//!
//! Every message depends only on the items before it, so a longer history begins with the bytes of
//! the shorter one. Keys are sorted, whatever map the build's `serde_json` uses.

use serde_json::{Map, Value, json};
use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, ContentPart, ToolDefinition, replace_lone_surrogates},
};

use crate::{
    Images, limits,
    reject::Places,
    render::{Body, Ids, Piece, clean, pieces, place, tool_name},
};

/// Returns the body.
pub(crate) fn body(request: &Request, images: &Images) -> Body {
    let mut messages = Messages {
        images,
        ids: Ids::new(fits, false),
        out: Vec::with_capacity(request.items.len() + 1),
        shown: Vec::new(),
        places: Places::default(),
    };
    messages.all(request);
    let mut body = Map::new();
    body.insert("model".into(), json!(clean(&request.model)));
    body.insert("messages".into(), Value::Array(messages.out));
    body.insert("stream".into(), json!(true));
    body.insert("stream_options".into(), json!({ "include_usage": true }));
    if let Some(temperature) = request.temperature.filter(|t| t.is_finite()) {
        body.insert("temperature".into(), json!(temperature));
    }
    // An empty list is refused.
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    let mut body = Value::Object(body);
    body.sort_all_objects();
    Body {
        json: body.to_string(),
        places: messages.places,
    }
}

fn tool(tool: &ToolDefinition) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool_name(&tool.name),
            "description": clean(&tool.description),
            "parameters": tool.parameters,
        },
    })
}

/// Ids that other providers issued can be longer than this one accepts.
fn fits(id: &str) -> bool {
    let short = !id.is_empty() && id.chars().count() <= limits::MAX_CALL_ID_CHARS;
    short && !id.chars().any(char::is_control)
}

struct Messages<'a> {
    images: &'a Images,
    ids: Ids<'a>,
    out: Vec<Value>,
    /// Images of the tool results so far; they are shown when the last result is there, because a
    /// tool message holds text only.
    shown: Vec<(Value, usize, Option<usize>)>,
    places: Places,
}

impl<'a> Messages<'a> {
    fn all(&mut self, request: &'a Request) {
        if !request.system.is_empty() {
            let system = clean(&request.system);
            self.out
                .push(json!({ "role": "system", "content": system }));
        }
        for (at, item) in request.items.iter().enumerate() {
            if !matches!(item, HistoryItem::Tool { .. }) {
                self.show();
            }
            match item {
                HistoryItem::User { content } => self.user(at, content),
                HistoryItem::Assistant { content, .. } => self.assistant(at, content),
                HistoryItem::Tool {
                    call_id, content, ..
                } => self.result(at, call_id, content),
            }
        }
        self.show();
    }

    fn push(&mut self, item: usize, message: Value) {
        self.places.0.push(place(&[self.out.len()], item, None));
        self.out.push(message);
    }

    fn user(&mut self, item: usize, content: &[ContentPart]) {
        let pieces = pieces(content, self.images, "[empty message]");
        let content = if pieces.iter().any(|(_, p)| matches!(p, Piece::Image { .. })) {
            let message = self.out.len();
            let mut parts = Vec::with_capacity(pieces.len());
            for (part, piece) in pieces {
                let path = [message, parts.len()];
                self.places.0.push(place(&path, item, part));
                parts.push(match piece {
                    Piece::Text(text) => json!({ "type": "text", "text": text }),
                    Piece::Image { media_type, base64 } => image(media_type, &base64),
                });
            }
            Value::Array(parts)
        } else {
            // The plain form, which every compatible server reads.
            joined(pieces).into()
        };
        self.push(item, json!({ "role": "user", "content": content }));
    }

    fn result(&mut self, item: usize, call_id: &str, content: &[ContentPart]) {
        let id = self.ids.result(call_id);
        let id = id.unwrap_or_else(|| self.ids.fitting(call_id));
        let mut texts = Vec::new();
        for (part, piece) in pieces(content, self.images, "[no output]") {
            texts.push(match piece {
                Piece::Text(text) => (part, Piece::Text(text)),
                Piece::Image { media_type, base64 } => {
                    self.shown.push((image(media_type, &base64), item, part));
                    let text = format!("[image {media_type}, shown after the results]");
                    (part, Piece::Text(text))
                }
            });
        }
        let content = joined(texts);
        let message = json!({ "role": "tool", "tool_call_id": id, "content": content });
        self.push(item, message);
    }

    fn show(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        let mut parts = vec![json!({ "type": "text", "text": "[images of the results above]" })];
        for (image, item, part) in std::mem::take(&mut self.shown) {
            let path = [self.out.len(), parts.len()];
            self.places.0.push(place(&path, item, part));
            parts.push(image);
        }
        self.out.push(json!({ "role": "user", "content": parts }));
    }

    fn assistant(&mut self, item: usize, parts: &'a [AssistantPart]) {
        self.ids.message();
        let mut said = String::new();
        let mut calls = Vec::new();
        for part in parts {
            match part {
                AssistantPart::Text { text } => said.push_str(&clean(text)),
                // Servers refuse, or bill, reasoning that is sent back.
                AssistantPart::Reasoning { .. } | AssistantPart::Unknown => {}
                AssistantPart::ToolCall {
                    call_id,
                    name,
                    arguments,
                } => calls.push(json!({
                    "id": self.ids.call(call_id),
                    "type": "function",
                    "function": {
                        "name": tool_name(name),
                        "arguments": replace_lone_surrogates(&clean(arguments)),
                    },
                })),
            }
        }
        let message = match (said.is_empty(), calls.is_empty()) {
            (true, true) => json!({ "role": "assistant", "content": "[empty message]" }),
            (false, true) => json!({ "role": "assistant", "content": said }),
            // Some servers want the key even when there is no text.
            (true, false) => json!({ "role": "assistant", "content": null, "tool_calls": calls }),
            (false, false) => json!({ "role": "assistant", "content": said, "tool_calls": calls }),
        };
        self.push(item, message);
    }
}

fn image(media_type: &str, base64: &str) -> Value {
    let url = format!("data:{media_type};base64,{base64}");
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn joined(pieces: Vec<(Option<usize>, Piece)>) -> String {
    let texts: Vec<String> = pieces
        .into_iter()
        .filter_map(|(_, piece)| match piece {
            Piece::Text(text) => Some(text),
            Piece::Image { .. } => None,
        })
        .collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use threadline_session::payload::ToolDefinition;

    use super::*;

    fn body(request: &Request) -> Value {
        super::body(request, &Images::default()).value()
    }

    fn request(items: Vec<HistoryItem>) -> Request {
        Request {
            provider: "openai-chat".into(),
            model: "m".into(),
            system: String::new(),
            tools: Vec::new(),
            items,
            temperature: None,
        }
    }

    fn call(id: &str, name: &str, arguments: &str) -> AssistantPart {
        AssistantPart::ToolCall {
            call_id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }
    }

    fn result(id: &str, text: &str) -> HistoryItem {
        HistoryItem::Tool {
            call_id: id.into(),
            name: "shell".into(),
            content: vec![ContentPart::text(text)],
            is_error: false,
        }
    }

    fn assistant_item(content: Vec<AssistantPart>) -> HistoryItem {
        HistoryItem::Assistant {
            content,
            opaque: Vec::new(),
        }
    }

    #[test]
    fn a_whole_conversation_is_rendered() {
        let mut request = request(vec![
            HistoryItem::User {
                content: vec![
                    ContentPart::text("look"),
                    ContentPart::Image {
                        media_type: "image/png".into(),
                        blob: "ab".into(),
                    },
                ],
            },
            assistant_item(vec![
                AssistantPart::Reasoning { text: "hm".into() },
                AssistantPart::Text {
                    text: "On it.".into(),
                },
                call("a", "shell", r#"{"command":"ls"}"#),
                call("b", "shell", "{}"),
            ]),
            result("a", "x\0y"),
            result("b", "z"),
            assistant_item(vec![AssistantPart::Text {
                text: "Done.".into(),
            }]),
        ]);
        request.system = "Be kind.".into();
        request.temperature = Some(0.5);
        request.tools = vec![ToolDefinition {
            name: "shell".into(),
            description: "Runs.".into(),
            parameters: json!({"type": "object"}),
        }];
        assert_eq!(
            body(&request),
            json!({
                "model": "m",
                "stream": true,
                "stream_options": {"include_usage": true},
                "temperature": 0.5,
                "tools": [{"type": "function", "function": {
                    "name": "shell", "description": "Runs.", "parameters": {"type": "object"},
                }}],
                "messages": [
                    {"role": "system", "content": "Be kind."},
                    {"role": "user", "content": "look\n[image image/png]"},
                    {"role": "assistant", "content": "On it.", "tool_calls": [
                        {"id": "a", "type": "function",
                         "function": {"name": "shell", "arguments": "{\"command\":\"ls\"}"}},
                        {"id": "b", "type": "function",
                         "function": {"name": "shell", "arguments": "{}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "a", "content": "x\u{fffd}y"},
                    {"role": "tool", "tool_call_id": "b", "content": "z"},
                    {"role": "assistant", "content": "Done."},
                ],
            })
        );
    }

    #[test]
    fn foreign_ids_and_names_are_made_acceptable_and_still_pair() {
        let long = "toolu_".repeat(20);
        let body = body(&request(vec![
            assistant_item(vec![
                call(&long, "functions.shell run", r#"{"a":"\ud800"}"#),
                call("same", "", "{}"),
                call("same", "x", "{}"),
                call("", "x", "{}"),
            ]),
            result(&long, "1"),
            result("same", "2"),
            result("same", "3"),
            result("", "4"),
        ]));
        let text = |pointer: &str| body.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        let mut ids = Vec::new();
        for n in 0..4 {
            let id = text(&format!("/messages/0/tool_calls/{n}/id"));
            assert_eq!(text(&format!("/messages/{}/tool_call_id", n + 1)), id);
            assert!(id.chars().count() <= limits::MAX_CALL_ID_CHARS && !ids.contains(&id));
            ids.push(id);
        }
        assert_eq!(
            text("/messages/0/tool_calls/0/function/name"),
            "functions_shell_run"
        );
        assert_eq!(text("/messages/0/tool_calls/1/function/name"), "unnamed");
        assert_eq!(
            text("/messages/0/tool_calls/0/function/arguments"),
            r#"{"a":"\ufffd"}"#
        );
        assert_eq!(body.pointer("/messages/0/content"), Some(&Value::Null));
    }
}
