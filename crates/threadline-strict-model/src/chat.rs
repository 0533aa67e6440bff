//! How a reply looks in Chat Completions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    moves::{Move, argument_pieces, argument_text, raw},
    script::{Step, Tokens},
};

/// What the frames of one answer share.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) include_usage: bool,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Tokens,
}

impl Answer {
    /// Returns everything that happens on the connection, to the final `[DONE]`.
    pub(crate) fn moves(&self, steps: Vec<Step>) -> Vec<Move> {
        let mut moves = vec![self.delta(json!({ "role": "assistant", "content": "" }))];
        let mut calls = 0;
        for step in steps {
            match step {
                Step::Text(text) => moves.push(self.delta(json!({ "content": text }))),
                Step::Reasoning(text) => {
                    moves.push(self.delta(json!({ "reasoning_content": text })));
                }
                Step::ToolCall {
                    id,
                    name,
                    arguments,
                } => {
                    moves.push(self.start(calls, &id, &name));
                    for piece in argument_pieces(&arguments) {
                        moves.push(self.arguments(calls, &piece));
                    }
                    calls += 1;
                }
                Step::ToolStart { index, id, name } => {
                    moves.push(self.start(index, &id, &name));
                    calls = calls.max(index + 1);
                }
                Step::ToolArgs { index, delta } => moves.push(self.arguments(index, &delta)),
                // Chat Completions knows none.
                Step::Redacted(_) => {}
                Step::Gate(name) => moves.push(Move::Gate(name)),
                Step::Pause(millis) => moves.push(Move::Pause(millis)),
                Step::Raw(data) => moves.push(raw(&data)),
                Step::Malformed => moves.push(raw("{\"choices\":[{\"delta\":")),
                Step::Cut => {
                    moves.push(Move::Cut);
                    return moves;
                }
                Step::Stall => {
                    moves.push(Move::Stall);
                    return moves;
                }
            }
        }
        let finish = self.finish_reason(calls > 0);
        moves.push(self.chunk(
            json!([{ "index": 0, "delta": {}, "finish_reason": finish }]),
            None,
        ));
        if self.include_usage {
            moves.push(self.chunk(json!([]), Some(usage(self.usage))));
        }
        moves.push(raw("[DONE]"));
        moves
    }

    /// Returns the answer as one object, for requests that do not stream.
    pub(crate) fn whole(&self, steps: &[Step]) -> Value {
        let mut text = String::new();
        let mut calls: BTreeMap<u32, (String, String, String)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Text(piece) => text.push_str(piece),
                Step::ToolCall {
                    id,
                    name,
                    arguments,
                } => {
                    let at = calls.last_key_value().map_or(0, |(at, _)| at + 1);
                    calls.insert(at, (id.clone(), name.clone(), argument_text(arguments)));
                }
                Step::ToolStart { index, id, name } => {
                    calls.insert(*index, (id.clone(), name.clone(), String::new()));
                }
                Step::ToolArgs { index, delta } => {
                    if let Some(call) = calls.get_mut(index) {
                        call.2.push_str(delta);
                    }
                }
                _ => {}
            }
        }
        let mut message = json!({ "role": "assistant", "content": text });
        let has_calls = !calls.is_empty();
        if has_calls {
            let calls = calls.into_values().map(|(id, name, arguments)| {
                json!({ "id": id, "type": "function",
                        "function": { "name": name, "arguments": arguments } })
            });
            message["tool_calls"] = calls.collect();
        }
        json!({
            "id": self.id, "object": "chat.completion", "created": 0, "model": self.model,
            "choices": [{ "index": 0, "message": message,
                          "finish_reason": self.finish_reason(has_calls) }],
            "usage": usage(self.usage),
        })
    }

    fn finish_reason(&self, calls: bool) -> &str {
        let usual = if calls { "tool_calls" } else { "stop" };
        self.finish.as_deref().unwrap_or(usual)
    }

    fn start(&self, index: u32, id: &str, name: &str) -> Move {
        self.delta(json!({ "tool_calls": [{
            "index": index, "id": id, "type": "function",
            "function": { "name": name, "arguments": "" },
        }] }))
    }

    fn arguments(&self, index: u32, delta: &str) -> Move {
        let function = json!({ "arguments": delta });
        self.delta(json!({ "tool_calls": [{ "index": index, "function": function }] }))
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes it on the spot"
    )]
    fn delta(&self, delta: Value) -> Move {
        self.chunk(
            json!([{ "index": 0, "delta": delta, "finish_reason": null }]),
            None,
        )
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes it on the spot"
    )]
    fn chunk(&self, choices: Value, usage: Option<Value>) -> Move {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 0,
            "model": self.model, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        raw(&chunk.to_string())
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input.saturating_add(tokens.output),
        "prompt_tokens_details": { "cached_tokens": tokens.cached },
        "completion_tokens_details": { "reasoning_tokens": tokens.reasoning },
    })
}
