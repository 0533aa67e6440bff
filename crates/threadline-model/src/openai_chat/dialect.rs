//! From a request to the JSON body of a Chat Completions call.
//!
//! Every message depends only on the items before it, so a longer history begins with the bytes of
//! the shorter one. Keys are sorted, whatever map the build's `serde_json` uses.

use std::{borrow::Cow, collections::VecDeque};

use serde_json::{Map, Value, json};
use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, ContentPart, ToolDefinition, replace_lone_surrogates},
};

use crate::limits;

/// Returns the body.
pub(crate) fn body(request: &Request) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), json!(clean(&request.model)));
    body.insert("messages".into(), messages(request));
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
    body
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

fn messages(request: &Request) -> Value {
    let mut out = Vec::with_capacity(request.items.len() + 1);
    if !request.system.is_empty() {
        out.push(json!({ "role": "system", "content": clean(&request.system) }));
    }
    // Calls of the last assistant message that wait for their result, as (logged id, sent id).
    let mut open: VecDeque<(&str, String)> = VecDeque::new();
    for item in &request.items {
        match item {
            HistoryItem::User { content } => {
                out.push(json!({ "role": "user", "content": text(content, "[empty message]") }));
            }
            HistoryItem::Assistant { content, .. } => {
                open.clear();
                out.push(assistant(content, &mut open));
            }
            HistoryItem::Tool {
                call_id, content, ..
            } => {
                let id = match open.front() {
                    Some((logged, _)) if logged == call_id => {
                        open.pop_front().map(|(_, sent)| sent)
                    }
                    _ => None,
                };
                let id = id.unwrap_or_else(|| short_id(call_id));
                let content = text(content, "[no output]");
                out.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
        }
    }
    Value::Array(out)
}

fn assistant<'a>(parts: &'a [AssistantPart], open: &mut VecDeque<(&'a str, String)>) -> Value {
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
            } => {
                let id = unique_id(short_id(call_id), open);
                open.push_back((call_id, id.clone()));
                calls.push(json!({
                    "id": id,
                    "type": "function",
                    "function": {
                        "name": tool_name(name),
                        "arguments": replace_lone_surrogates(&clean(arguments)),
                    },
                }));
            }
        }
    }
    if calls.is_empty() {
        let said = if said.is_empty() {
            "[empty message]"
        } else {
            &said
        };
        return json!({ "role": "assistant", "content": said });
    }
    // Some servers want the key even when there is no text.
    let content = if said.is_empty() {
        Value::Null
    } else {
        said.into()
    };
    json!({ "role": "assistant", "content": content, "tool_calls": calls })
}

fn text(parts: &[ContentPart], empty: &str) -> String {
    let texts: Vec<Cow<'_, str>> = parts
        .iter()
        .map(|part| match part {
            ContentPart::Text { text } => clean(text),
            ContentPart::Image { media_type, .. } => {
                format!("[image {}]", clean(media_type)).into()
            }
            ContentPart::Unknown => "[content of a kind this version cannot show]".into(),
        })
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        return empty.to_owned();
    }
    texts.join("\n")
}

/// Some servers refuse, or cut, text that holds a NUL.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// A model may have called a tool by a name that no request may hold; refusing it on every later
/// request would end the session.
fn tool_name(name: &str) -> String {
    let name: String = name
        .chars()
        .take(limits::MAX_TOOL_NAME_CHARS)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => c,
            _ => '_',
        })
        .collect();
    if name.is_empty() {
        "unnamed".into()
    } else {
        name
    }
}

/// Ids that other providers issued can be longer than this one accepts.
fn short_id(id: &str) -> String {
    let fits = !id.is_empty() && id.chars().count() <= limits::MAX_CALL_ID_CHARS;
    if fits && !id.chars().any(char::is_control) {
        return id.to_owned();
    }
    let hash = blake3::hash(id.as_bytes()).to_hex();
    format!("call_{}", &hash[..32])
}

fn unique_id(id: String, open: &VecDeque<(&str, String)>) -> String {
    let taken = |id: &str| open.iter().any(|(_, sent)| sent == id);
    if !taken(&id) {
        return id;
    }
    let hash = |n: usize| blake3::hash(format!("{id} {n}").as_bytes()).to_hex();
    (open.len()..)
        .map(|n| format!("call_{}", &hash(n)[..32]))
        .find(|id| !taken(id))
        .unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use threadline_session::payload::ToolDefinition;

    use super::*;

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
