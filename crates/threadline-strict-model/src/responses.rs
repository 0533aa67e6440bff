//! How a reply looks in the Responses API.

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
    /// Whether the request asked for the encrypted content.
    pub(crate) encrypted: bool,
    pub(crate) finish: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) usage: Tokens,
}

/// Everything that happens, and the whole response.
pub(crate) struct Played {
    pub(crate) moves: Vec<Move>,
    pub(crate) output: Vec<Value>,
    pub(crate) whole: Value,
}

/// The item that text or reasoning is added to.
struct Open {
    index: usize,
    reasoning: bool,
    text: String,
}

struct Player<'a> {
    answer: &'a Answer,
    moves: Vec<Move>,
    output: Vec<Value>,
    open: Option<Open>,
    /// Output positions of the calls that a script interleaves by hand.
    calls: BTreeMap<u32, usize>,
}

impl Answer {
    /// Plays the steps.
    pub(crate) fn play(&self, steps: Vec<Step>) -> Played {
        let mut player = Player {
            answer: self,
            moves: Vec::new(),
            output: Vec::new(),
            open: None,
            calls: BTreeMap::new(),
        };
        let response = self.response("in_progress", &[]);
        player.send(json!({ "type": "response.created", "response": &response }));
        player.send(json!({ "type": "response.in_progress", "response": response }));
        let ended = steps.into_iter().all(|step| player.step(step));
        if ended {
            player.close();
            player.close_calls();
        }
        let whole = self.end(&player.output);
        if ended {
            let kind = match whole["status"].as_str() {
                Some("failed") => "response.failed",
                Some("incomplete") => "response.incomplete",
                Some("cancelled") => "response.cancelled",
                _ => "response.completed",
            };
            player.send(json!({ "type": kind, "response": &whole }));
        }
        Played {
            moves: player.moves,
            output: player.output,
            whole,
        }
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        json!({
            "id": format!("resp_{}", self.number), "object": "response", "created_at": 0,
            "status": status, "model": self.model, "output": output, "store": false,
            "error": null, "incomplete_details": null, "usage": null,
        })
    }

    fn end(&self, output: &[Value]) -> Value {
        let finish = self.finish.as_deref().unwrap_or("completed");
        let (status, reason) = match finish {
            "length" | "max_output_tokens" => ("incomplete", Some("max_output_tokens")),
            "content_filter" => ("incomplete", Some("content_filter")),
            "failed" | "cancelled" => (finish, None),
            _ => ("completed", None),
        };
        let mut whole = self.response(status, output);
        if let Some(reason) = reason {
            whole["incomplete_details"] = json!({ "reason": reason });
        }
        if status == "failed" {
            let code = self.code.as_deref().unwrap_or("server_error");
            let message = self.message.as_deref().unwrap_or("scripted failure");
            whole["error"] = json!({ "code": code, "message": message });
        } else {
            whole["usage"] = usage(self.usage);
        }
        whole
    }
}

impl Player<'_> {
    /// Does a step and returns whether another one can follow.
    fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Text(text) => self.say(false, &text),
            Step::Reasoning(text) => self.say(true, &text),
            Step::Redacted(_) => {
                self.close();
                self.begin(true);
                self.close();
            }
            Step::ToolCall {
                id,
                name,
                arguments,
            } => {
                let at = self.call(&id, &name);
                for piece in argument_pieces(&arguments) {
                    self.arguments(at, &piece);
                }
                self.close_call(at);
            }
            Step::ToolStart { index, id, name } => {
                let at = self.call(&id, &name);
                self.calls.insert(index, at);
            }
            Step::ToolArgs { index, delta } => {
                if let Some(at) = self.calls.get(&index) {
                    self.arguments(*at, &delta);
                }
            }
            Step::Gate(name) => self.moves.push(Move::Gate(name)),
            Step::Pause(millis) => self.moves.push(Move::Pause(millis)),
            Step::Raw(data) => self.moves.push(raw(&data)),
            Step::Malformed => self.moves.push(raw("{\"type\":\"response.")),
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

    fn send(&mut self, mut data: Value) {
        data["sequence_number"] = json!(self.moves.len());
        self.moves.push(event(&data));
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.answer.number, self.output.len())
    }

    fn added(&mut self, item: Value) -> usize {
        let index = self.output.len();
        self.output.push(item.clone());
        self.send(json!({
            "type": "response.output_item.added", "output_index": index, "item": item,
        }));
        index
    }

    fn begin(&mut self, reasoning: bool) -> usize {
        let item = if reasoning {
            json!({ "id": self.id("rs"), "type": "reasoning", "summary": [] })
        } else {
            json!({
                "id": self.id("msg"), "type": "message", "status": "in_progress",
                "role": "assistant", "content": [],
            })
        };
        let index = self.added(item);
        self.open = Some(Open {
            index,
            reasoning,
            text: String::new(),
        });
        index
    }

    fn say(&mut self, reasoning: bool, text: &str) {
        let index = match &self.open {
            Some(open) if open.reasoning == reasoning => open.index,
            _ => {
                self.close();
                self.begin(reasoning)
            }
        };
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
        let id = self.output[index]["id"].clone();
        self.send(if reasoning {
            json!({
                "type": "response.reasoning_summary_text.delta", "item_id": id,
                "output_index": index, "summary_index": 0, "delta": text,
            })
        } else {
            json!({
                "type": "response.output_text.delta", "item_id": id,
                "output_index": index, "content_index": 0, "delta": text,
            })
        });
    }

    /// Ends the open item.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let mut item = self.output[open.index].clone();
        if open.reasoning {
            let id = item["id"].as_str().unwrap_or_default().to_owned();
            if !open.text.is_empty() {
                item["summary"] = json!([{ "type": "summary_text", "text": open.text }]);
            }
            item["encrypted_content"] = if self.answer.encrypted {
                seal(&self.answer.model, &id, &open.text).into()
            } else {
                Value::Null
            };
        } else {
            item["status"] = json!("completed");
            item["content"] =
                json!([{ "type": "output_text", "text": open.text, "annotations": [] }]);
        }
        self.done(open.index, item);
    }

    fn done(&mut self, index: usize, item: Value) {
        self.output[index] = item.clone();
        self.send(json!({
            "type": "response.output_item.done", "output_index": index, "item": item,
        }));
    }

    fn call(&mut self, call_id: &str, name: &str) -> usize {
        self.close();
        let item = json!({
            "id": self.id("fc"), "type": "function_call", "status": "in_progress",
            "call_id": call_id, "name": name, "arguments": "",
        });
        self.added(item)
    }

    fn arguments(&mut self, at: usize, delta: &str) {
        let item = &mut self.output[at];
        let before = item["arguments"].as_str().unwrap_or_default();
        item["arguments"] = json!(format!("{before}{delta}"));
        let id = item["id"].clone();
        self.send(json!({
            "type": "response.function_call_arguments.delta", "item_id": id,
            "output_index": at, "delta": delta,
        }));
    }

    fn close_call(&mut self, at: usize) {
        let mut item = self.output[at].clone();
        item["status"] = json!("completed");
        self.done(at, item);
    }

    fn close_calls(&mut self) {
        for at in std::mem::take(&mut self.calls).into_values() {
            self.close_call(at);
        }
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "input_tokens_details": { "cached_tokens": tokens.cached },
        "output_tokens": tokens.output,
        "output_tokens_details": { "reasoning_tokens": tokens.reasoning },
        "total_tokens": tokens.input.saturating_add(tokens.output),
    })
}
