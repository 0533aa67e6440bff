//! From the events of a Responses stream to deltas and a completion.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses-streaming>. Compatible
//! servers leave events out; whatever a later event repeats is enough.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use threadline_session::payload::{
    ChunkKind, ChunkPart, ModelRef, Opaque, StopReason, Usage, replace_lone_surrogates,
};

use super::{CALL, MESSAGE, NAME, REASONING};
use crate::{
    Completion, ModelError,
    assemble::{self, Assembly, Call, check_blocks, word},
    classify,
    http::{Decode, Progress},
};

/// An answer in the making.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The model that was asked for, which the issuer of what comes back is known by.
    asked: String,
    /// The model that answers.
    model: String,
    parts: Assembly,
    items: BTreeMap<u64, Item>,
    finish: Option<StopReason>,
    usage: Option<Usage>,
}

/// An output item.
#[derive(Debug, Clone, Default)]
struct Item {
    kind: String,
    /// Its visible part.
    at: Option<usize>,
    /// The last section of a reasoning summary that was begun.
    section: u64,
    /// The item as it came, once it is complete.
    raw: Option<String>,
}

/// An event; only what is needed of it, and nothing that a wrong type could make unreadable.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Value,
    #[serde(default)]
    output_index: Value,
    #[serde(default)]
    summary_index: Value,
    #[serde(default)]
    delta: Value,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// The output of a whole response.
#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    output: Vec<&'a RawValue>,
}

impl Answer {
    /// Begins an answer to a request for a model.
    pub(crate) fn new(model: String) -> Self {
        Self {
            asked: model.clone(),
            model,
            parts: Assembly::default(),
            items: BTreeMap::new(),
            finish: None,
            usage: None,
        }
    }

    fn item(&mut self, index: u64, kind: &str) -> Result<&mut Item, ModelError> {
        if !self.items.contains_key(&index) {
            check_blocks(self.items.len())?;
        }
        let item = self.items.entry(index).or_default();
        if item.kind.is_empty() {
            kind.clone_into(&mut item.kind);
        }
        Ok(item)
    }

    /// Takes a piece of text of an item.
    fn delta(
        &mut self,
        event: &Event<'_>,
        kind: &str,
        out: &mut Vec<ChunkPart>,
    ) -> Result<(), ModelError> {
        let delta = event.delta.as_str().unwrap_or_default();
        let index = event.output_index.as_u64().unwrap_or_default();
        let section = event.summary_index.as_u64().unwrap_or_default();
        let item = self.item(index, kind)?;
        let mut text = String::new();
        if item.at.is_some() && section > item.section {
            text.push_str("\n\n");
        }
        item.section = section;
        text.push_str(delta);
        let chunk = match kind {
            REASONING => ChunkKind::Reasoning,
            _ => ChunkKind::Text,
        };
        let at = item.at;
        let at = self.parts.say(at, chunk, text, out);
        self.item(index, kind)?.at = at;
        Ok(())
    }

    /// Takes a piece of the arguments of a call.
    fn arguments(&mut self, event: &Event<'_>, out: &mut Vec<ChunkPart>) -> Result<(), ModelError> {
        let index = event.output_index.as_u64().unwrap_or_default();
        let at = self.call(index, &Value::Null)?;
        let delta = event.delta.as_str().unwrap_or_default().to_owned();
        self.parts.say(Some(at), ChunkKind::ToolArgs, delta, out);
        Ok(())
    }

    /// Returns the part of a call and fills in what is now known of it.
    fn call(&mut self, index: u64, item: &Value) -> Result<usize, ModelError> {
        let at = match self.item(index, CALL)?.at {
            Some(at) => at,
            None => {
                let at = self.parts.open(Call::default())?;
                self.item(index, CALL)?.at = Some(at);
                at
            }
        };
        if let Some(call) = self.parts.call(at) {
            if call.id.is_empty() {
                word(item.get("call_id")).clone_into(&mut call.id);
            }
            if call.name.is_empty() {
                word(item.get("name")).clone_into(&mut call.name);
            }
        }
        Ok(at)
    }

    /// Takes a new item, or one that is complete.
    fn whole(
        &mut self,
        index: u64,
        text: &str,
        done: bool,
        out: &mut Vec<ChunkPart>,
    ) -> Result<(), ModelError> {
        let item: Value = assemble::frame(text)?;
        let kind = word(item.get("type")).to_owned();
        self.item(index, &kind)?;
        match kind.as_str() {
            CALL => {
                let at = self.call(index, &item)?;
                if done {
                    let arguments = word(item.get("arguments"));
                    self.parts
                        .catch_up(Some(at), ChunkKind::ToolArgs, arguments, out);
                }
            }
            MESSAGE | REASONING if done => {
                let (chunk, said) = if kind == MESSAGE {
                    (ChunkKind::Text, texts(&item, "content", ""))
                } else {
                    let summary = texts(&item, "summary", "\n\n");
                    let plain = || texts(&item, "content", "\n\n");
                    let said = if summary.is_empty() { plain() } else { summary };
                    (ChunkKind::Reasoning, said)
                };
                let at = self.item(index, &kind)?.at;
                let at = self.parts.catch_up(at, chunk, &said, out);
                self.item(index, &kind)?.at = at;
            }
            _ => {}
        }
        if done {
            self.item(index, &kind)?.raw = Some(text.to_owned());
        }
        Ok(())
    }

    /// Takes what a response says of itself at its end.
    fn end(
        &mut self,
        text: &str,
        usual: StopReason,
        out: &mut Vec<ChunkPart>,
    ) -> Result<(), ModelError> {
        // Servers that send no `output_item.done` repeat the items here.
        if self.items.values().all(|item| item.raw.is_none())
            && let Ok(Output { output }) = assemble::frame(text)
        {
            for (index, item) in (0..).zip(output) {
                self.whole(index, item.get(), true, out)?;
            }
        }
        let response: Value = assemble::frame(text)?;
        self.named(&response);
        self.usage = response.get("usage").and_then(usage).or(self.usage);
        let why = response.pointer("/incomplete_details/reason");
        self.finish = Some(match why.and_then(Value::as_str) {
            Some("max_output_tokens" | "max_tokens") => StopReason::Length,
            Some("content_filter") => StopReason::ContentFilter,
            _ => usual,
        });
        Ok(())
    }

    fn named(&mut self, response: &Value) {
        let model = word(response.get("model"));
        if !model.is_empty() {
            model.clone_into(&mut self.model);
        }
    }

    /// Returns what goes back: reasoning whole, and of the visible items their place and what they
    /// hold besides their content. Without reasoning there is nothing that the visible parts do
    /// not say.
    fn opaque(&self) -> Vec<Opaque> {
        let mut needed = false;
        let mut out: Vec<Opaque> = Vec::new();
        for item in self.items.values() {
            let raw = item.raw.as_deref().unwrap_or("{}");
            let fields: Value = serde_json::from_str(raw).unwrap_or_default();
            let (kind, data) = match item.kind.as_str() {
                MESSAGE if !self.parts.speaks(item.at) => {
                    // The normaliser leaves blank texts out, and reasoning must not come without
                    // the item that it led to.
                    while out.pop_if(|last| last.kind == REASONING).is_some() {}
                    continue;
                }
                MESSAGE => {
                    needed |= fields.get("phase").is_some_and(Value::is_string);
                    (MESSAGE, head(fields, "content"))
                }
                CALL => (CALL, head(fields, "arguments")),
                REASONING => {
                    // Without its content the server could not find it: nothing is stored there.
                    let sealed = word(fields.get("encrypted_content"));
                    if sealed.is_empty() || sealed.contains('\u{fffd}') {
                        continue;
                    }
                    (REASONING, raw.to_owned())
                }
                // A kind that this version does not know may matter to the model.
                kind if item.raw.is_some() && !kind.is_empty() => (kind, raw.to_owned()),
                _ => continue,
            };
            out.push(Opaque {
                issuer: ModelRef {
                    provider: NAME.into(),
                    name: self.asked.clone(),
                },
                kind: kind.to_owned(),
                data,
            });
        }
        let marks = [MESSAGE, CALL];
        if needed || out.iter().any(|item| !marks.contains(&item.kind.as_str())) {
            out
        } else {
            Vec::new()
        }
    }
}

impl Decode for Answer {
    fn event(&mut self, data: &str, out: &mut Vec<ChunkPart>) -> Result<Progress, ModelError> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(self.progress());
        }
        let data = replace_lone_surrogates(data);
        let event: Event<'_> = assemble::frame(&data)?;
        let kind = event.kind.as_str().unwrap_or_default();
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.delta(&event, MESSAGE, out)?;
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.delta(&event, REASONING, out)?;
            }
            "response.function_call_arguments.delta" => self.arguments(&event, out)?,
            "response.output_item.added" | "response.output_item.done" => {
                if let Some(item) = event.item {
                    let index = event.output_index.as_u64();
                    let index = index.unwrap_or(self.items.len() as u64);
                    let done = kind == "response.output_item.done";
                    self.whole(index, item.get(), done, out)?;
                }
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = event.response {
                    self.named(&assemble::frame(response.get())?);
                }
            }
            "response.completed" | "response.done" | "response.incomplete" => {
                let usual = match kind {
                    "response.incomplete" => StopReason::Other,
                    _ => StopReason::Stop,
                };
                let response = event.response.map_or("{}", RawValue::get);
                self.end(response, usual, out)?;
            }
            "response.failed" => {
                let response = event.response.map_or("{}", RawValue::get);
                return Err(failed(&assemble::frame(response)?));
            }
            "response.cancelled" => {
                let error = json!({ "error": { "message": "the response was cancelled" } });
                return Err(classify::stream_error(&error));
            }
            "error" => return Err(classify::stream_error(&assemble::frame(&data)?)),
            // A server that fails before it speaks the dialect has an error and no type.
            "" => {
                let frame: Value = assemble::frame(&data)?;
                if frame.get("error").is_some_and(|error| !error.is_null()) {
                    return Err(classify::stream_error(&frame));
                }
            }
            _ => {}
        }
        Ok(self.progress())
    }

    fn complete(&mut self) -> Result<Completion, ModelError> {
        let Some(finish) = self.finish else {
            return Err(ModelError::CutStream);
        };
        let opaque = self.opaque();
        let (content, calls) = self.parts.finish()?;
        let stop_reason = match finish {
            StopReason::Stop if calls > 0 => StopReason::ToolCalls,
            reason => reason,
        };
        Ok(Completion {
            opaque: assemble::bounded(opaque, &content),
            content,
            stop_reason,
            usage: self.usage,
            model: std::mem::take(&mut self.model),
        })
    }
}

impl Answer {
    fn progress(&self) -> Progress {
        match self.finish {
            Some(_) => Progress::Complete,
            None => Progress::Writing,
        }
    }
}

fn failed(response: &Value) -> ModelError {
    let error = response.get("error").filter(|error| !error.is_null());
    let unsaid = json!({ "message": "the response failed, and the provider does not say why" });
    classify::stream_error(&json!({ "error": error.unwrap_or(&unsaid) }))
}

/// Returns an item without its content.
fn head(mut item: Value, content: &str) -> String {
    if let Some(fields) = item.as_object_mut() {
        fields.remove(content);
    }
    item.to_string()
}

fn texts(item: &Value, key: &str, between: &str) -> String {
    let parts = item.get(key).and_then(Value::as_array);
    let texts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .map(|part| word(part.get("text").or_else(|| part.get("refusal"))))
        .collect();
    texts.join(between)
}

fn usage(value: &Value) -> Option<Usage> {
    let count = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let (input, output) = (count("/input_tokens"), count("/output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input_tokens: input.unwrap_or(0),
        output_tokens: output.unwrap_or(0),
        cached_input_tokens: count("/input_tokens_details/cached_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
    })
}

#[cfg(test)]
mod tests;
