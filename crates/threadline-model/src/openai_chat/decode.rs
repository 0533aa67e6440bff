//! From the frames of a Chat Completions stream to deltas and a completion.
//!
//! Servers differ: indices and ids go missing or repeat, whole calls come in one frame, arguments
//! come as objects, `[DONE]` never comes. All of that is read; only what cannot be given a meaning
//! is an error.

use serde_json::Value;
use threadline_session::payload::{
    ChunkKind, ChunkPart, StopReason, Usage, replace_lone_surrogates,
};

use crate::{
    Completion, ModelError,
    assemble::{self, Assembly, Call, Part, word},
    classify,
    http::{Decode, Progress},
};

/// An answer in the making.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    model: String,
    parts: Assembly,
    finish: Option<StopReason>,
    usage: Option<Usage>,
    done: bool,
}

impl Answer {
    /// Begins an answer to a request for a model.
    pub(crate) fn new(model: String) -> Self {
        Self {
            model,
            parts: Assembly::default(),
            finish: None,
            usage: None,
            done: false,
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<ChunkPart>) -> Result<(), ModelError> {
        for key in ["reasoning_content", "reasoning"] {
            let text = delta.get(key).map(spoken).unwrap_or_default();
            if !text.is_empty() {
                self.say(ChunkKind::Reasoning, text, out);
                // Some servers send the same words under both names.
                break;
            }
        }
        for key in ["content", "refusal"] {
            let text = delta.get(key).map(spoken).unwrap_or_default();
            self.say(ChunkKind::Text, text, out);
        }
        match delta.get("tool_calls") {
            Some(Value::Array(calls)) => {
                for call in calls {
                    self.call(call, out)?;
                }
            }
            Some(call @ Value::Object(_)) => self.call(call, out)?,
            _ => {}
        }
        Ok(())
    }

    /// All text is one part, and all reasoning is one.
    fn say(&mut self, kind: ChunkKind, delta: String, out: &mut Vec<ChunkPart>) {
        let at = self.parts.parts.iter().position(|part| match part {
            Part::Text(_) => kind == ChunkKind::Text,
            Part::Reasoning(_) => kind == ChunkKind::Reasoning,
            Part::Call(_) => false,
        });
        self.parts.say(at, kind, delta, out);
    }

    fn call(&mut self, call: &Value, out: &mut Vec<ChunkPart>) -> Result<(), ModelError> {
        let id = word(call.get("id"));
        let function = call.get("function").unwrap_or(call);
        let name = word(function.get("name"));
        let index = call.get("index").and_then(Value::as_u64);
        let at = match self.place(index, id, name) {
            Some(at) => at,
            None => self.parts.open(Call {
                index,
                ..Call::default()
            })?,
        };
        let Some(open) = self.parts.call(at) else {
            return Ok(());
        };
        if open.id.is_empty() {
            id.clone_into(&mut open.id);
        }
        if open.name.is_empty() {
            name.clone_into(&mut open.name);
        }
        let delta = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => return Ok(()),
        };
        self.parts.say(Some(at), ChunkKind::ToolArgs, delta, out);
        Ok(())
    }

    /// Returns the part that a piece of a call belongs to, or nothing for a new call.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let calls = || {
            self.parts
                .parts
                .iter()
                .enumerate()
                .filter_map(|(at, part)| match part {
                    Part::Call(call) => Some((at, call)),
                    Part::Text(_) | Part::Reasoning(_) => None,
                })
        };
        let by_id = calls().find(|(_, call)| !id.is_empty() && call.id == id);
        if index.is_some() {
            let mut at_index = calls().filter(|(_, call)| call.index == index);
            // Servers that number every call 0 tell them apart by id; a new call has a name too,
            // while some servers invent an id for every piece of one call.
            let (at, last) = at_index.next_back()?;
            let another =
                !id.is_empty() && !last.id.is_empty() && last.id != id && !name.is_empty();
            return match by_id {
                Some((at, call)) if call.index == index => Some(at),
                _ if another => None,
                _ => Some(at),
            };
        }
        match by_id {
            Some((at, _)) => Some(at),
            None if !id.is_empty() && !name.is_empty() => None,
            None => calls()
                .next_back()
                .filter(|(_, call)| name.is_empty() || call.name.is_empty())
                .map(|(at, _)| at),
        }
    }

    fn progress(&self) -> Progress {
        match (self.done, self.finish) {
            (true, _) => Progress::Complete,
            (false, Some(_)) => Progress::Finished,
            (false, None) => Progress::Writing,
        }
    }
}

impl Decode for Answer {
    fn event(&mut self, data: &str, out: &mut Vec<ChunkPart>) -> Result<Progress, ModelError> {
        let data = data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(self.progress());
        }
        if data.is_empty() {
            return Ok(self.progress());
        }
        let frame: Value = assemble::frame(&replace_lone_surrogates(data))?;
        if frame.get("error").is_some_and(|error| !error.is_null()) {
            return Err(classify::stream_error(&frame));
        }
        if let Some(model) = frame.get("model").and_then(Value::as_str)
            && !model.is_empty()
        {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = frame.get("usage").and_then(usage) {
            self.usage = Some(usage);
        }
        let choices = frame.get("choices").and_then(Value::as_array);
        if let Some(choice) = choices.and_then(|choices| choices.first()) {
            if let Some(delta) = choice.get("delta") {
                self.delta(delta, out)?;
            }
            if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str)
                && !reason.is_empty()
            {
                self.finish = Some(stop_reason(reason));
            }
        }
        Ok(self.progress())
    }

    fn complete(&mut self) -> Result<Completion, ModelError> {
        if !self.done && self.finish.is_none() {
            return Err(ModelError::CutStream);
        }
        let (content, calls) = self.parts.finish()?;
        let stop_reason = match self.finish.unwrap_or(StopReason::Stop) {
            // Some servers say `stop` for an answer that calls tools.
            StopReason::Stop if calls > 0 => StopReason::ToolCalls,
            reason => reason,
        };
        Ok(Completion {
            content,
            stop_reason,
            usage: self.usage,
            opaque: Vec::new(),
            model: std::mem::take(&mut self.model),
        })
    }
}

/// Returns the text of a delta: a string, or a list of parts that hold one.
fn spoken(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text").unwrap_or(part).as_str())
            .collect(),
        _ => String::new(),
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::Stop,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::Length,
        "content_filter" => StopReason::ContentFilter,
        _ => StopReason::Other,
    }
}

fn usage(value: &Value) -> Option<Usage> {
    let count = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let (input, output) = (count("/prompt_tokens"), count("/completion_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input_tokens: input.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        cached_input_tokens: count("/prompt_tokens_details/cached_tokens")
            .or_else(|| count("/prompt_cache_hit_tokens")),
        reasoning_tokens: count("/completion_tokens_details/reasoning_tokens"),
    })
}

#[cfg(test)]
mod tests;
