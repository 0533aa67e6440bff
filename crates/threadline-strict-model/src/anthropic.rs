//! How a reply looks in the Messages API.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    issued::seal,
    moves::{Move, argument_pieces, event, raw},
    script::{Step, Tokens},
};

/// What the events of one answer share.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) model: String,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Tokens,
}

/// Everything that happens, and the whole message.
pub(crate) struct Played {
    pub(crate) moves: Vec<Move>,
    pub(crate) content: Vec<Value>,
    pub(crate) whole: Value,
}

struct Player<'a> {
    answer: &'a Answer,
    moves: Vec<Move>,
    content: Vec<Value>,
    /// Whether the last block is a text or thinking that can still grow.
    open: bool,
    /// Positions of the calls that a script interleaves by hand, with their arguments so far.
    calls: BTreeMap<u32, (usize, String)>,
}

impl Answer {
    /// Plays the steps.
    pub(crate) fn play(&self, steps: Vec<Step>) -> Played {
        let mut player = Player {
            answer: self,
            moves: Vec::new(),
            content: Vec::new(),
            open: false,
            calls: BTreeMap::new(),
        };
        let mut begun = self.message(&[]);
        begun["stop_reason"] = Value::Null;
        begun["usage"]["output_tokens"] = json!(1);
        player.send(&json!({ "type": "message_start", "message": begun }));
        player.send(&json!({ "type": "ping" }));
        let ended = steps.into_iter().all(|step| player.step(step));
        if ended {
            player.close();
            player.close_calls();
        }
        let whole = self.message(&player.content);
        if ended {
            player.send(&json!({
                "type": "message_delta",
                "delta": { "stop_reason": whole["stop_reason"], "stop_sequence": null },
                "usage": { "output_tokens": self.usage.output },
            }));
            player.send(&json!({ "type": "message_stop" }));
        }
        Played {
            moves: player.moves,
            content: player.content,
            whole,
        }
    }

    fn message(&self, content: &[Value]) -> Value {
        let calls = content.iter().any(|block| block["type"] == "tool_use");
        let usual = if calls { "tool_use" } else { "end_turn" };
        let Tokens {
            input,
            output,
            cached,
            created,
            ..
        } = self.usage;
        json!({
            "id": format!("msg_{}", self.number), "type": "message", "role": "assistant",
            "model": self.model, "content": content, "stop_sequence": null,
            "stop_reason": self.finish.as_deref().unwrap_or(usual),
            "usage": {
                "input_tokens": input.saturating_sub(cached).saturating_sub(created),
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": created,
                "output_tokens": output,
            },
        })
    }
}

impl Player<'_> {
    /// Does a step and returns whether another one can follow.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Text(text) => self.say("text", &text),
            Step::Reasoning(text) => self.say("thinking", &text),
            Step::Redacted(text) => {
                self.close();
                let data = seal(&self.answer.model, "redacted", &text);
                let index = self.begin(json!({ "type": "redacted_thinking", "data": data }));
                self.stop(index);
            }
            Step::ToolCall {
                id,
                name,
                arguments,
            } => {
                let index = self.call(&id, &name);
                let mut all = String::new();
                for piece in argument_pieces(&arguments) {
                    all.push_str(&piece);
                    self.arguments(index, &piece);
                }
                self.finish_call(index, &all);
            }
            Step::ToolStart { index, id, name } => {
                let at = self.call(&id, &name);
                self.calls.insert(index, (at, String::new()));
            }
            Step::ToolArgs { index, delta } => {
                if let Some((at, all)) = self.calls.get_mut(&index) {
                    all.push_str(&delta);
                    let at = *at;
                    self.arguments(at, &delta);
                }
            }
            Step::Gate(name) => self.moves.push(Move::Gate(name)),
            Step::Pause(millis) => self.moves.push(Move::Pause(millis)),
            Step::Raw(data) => self.moves.push(raw(&data)),
            Step::Malformed => self.moves.push(raw("{\"type\":\"content_")),
            Step::Cut => {
                self.moves.push(Move::Cut);
                return false;
            }
            Step::Stall => {
                self.moves.push(Move::Stall);
                return false;
            }
        }
        true
    }

    fn send(&mut self, data: &Value) {
        self.moves.push(event(data));
    }

    fn begin(&mut self, block: Value) -> usize {
        let index = self.content.len();
        self.content.push(block.clone());
        self.send(&json!({
            "type": "content_block_start", "index": index, "content_block": block,
        }));
        index
    }

    fn stop(&mut self, index: usize) {
        self.send(&json!({ "type": "content_block_stop", "index": index }));
    }

    fn delta(&mut self, index: usize, kind: &str, key: &str, text: &str) {
        self.send(&json!({
            "type": "content_block_delta", "index": index,
            "delta": { "type": kind, key: text },
        }));
    }

    /// Adds to the last block, or to a new one; `kind` is also the key of its text.
    fn say(&mut self, kind: &str, text: &str) {
        let same = self
            .content
            .last()
            .is_some_and(|block| block["type"] == kind);
        if !(self.open && same) {
            self.close();
            let mut block = json!({ "type": kind, kind: "" });
            if kind == "thinking" {
                block["signature"] = json!("");
            }
            self.begin(block);
            self.open = true;
        }
        let index = self.content.len() - 1;
        let block = &mut self.content[index];
        let before = block[kind].as_str().unwrap_or_default();
        block[kind] = json!(format!("{before}{text}"));
        self.delta(index, &format!("{kind}_delta"), kind, text);
    }

    fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let index = self.content.len() - 1;
        if self.content[index]["type"] == "thinking" {
            let text = self.content[index]["thinking"].as_str().unwrap_or_default();
            let signature = seal(&self.answer.model, "thinking", text);
            self.content[index]["signature"] = json!(signature);
            self.delta(index, "signature_delta", "signature", &signature);
        }
        self.stop(index);
    }

    fn call(&mut self, id: &str, name: &str) -> usize {
        self.close();
        self.begin(json!({ "type": "tool_use", "id": id, "name": name, "input": {} }))
    }

    fn arguments(&mut self, index: usize, delta: &str) {
        self.delta(index, "input_json_delta", "partial_json", delta);
    }

    fn finish_call(&mut self, index: usize, arguments: &str) {
        if let Ok(input) = serde_json::from_str(arguments) {
            self.content[index]["input"] = input;
        }
        self.stop(index);
    }

    fn close_calls(&mut self) {
        for (at, all) in std::mem::take(&mut self.calls).into_values() {
            self.finish_call(at, &all);
        }
    }
}
