//! From the events of a Messages stream to deltas and a completion.
//!
//! Source: <https://docs.anthropic.com/en/docs/build-with-claude/streaming>. Every event's data
//! names its type, so the SSE event names are not needed; unknown types are passed over, as the
//! source asks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use threadline_session::payload::{
    ChunkKind, ChunkPart, ModelRef, Opaque, StopReason, Usage, replace_lone_surrogates,
};

use super::{CALL, NAME, TEXT};
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
    blocks: BTreeMap<u64, Block>,
    finish: Option<StopReason>,
    tokens: Tokens,
    done: bool,
}

/// Counts come in pieces, and a later one replaces an earlier one.
#[derive(Debug, Clone, Default)]
struct Tokens {
    input: Option<u64>,
    output: Option<u64>,
    read: Option<u64>,
    created: Option<u64>,
}

#[derive(Debug, Clone)]
enum Block {
    Text(Option<usize>),
    Thinking(Thought),
    /// Comes whole.
    Redacted(Map<String, Value>),
    Call {
        at: usize,
        /// Arguments that came with the block's start.
        given: Option<String>,
    },
    Other,
}

#[derive(Debug, Clone, Default)]
struct Thought {
    /// Its visible part.
    at: Option<usize>,
    /// The block as it was begun.
    fields: Map<String, Value>,
    text: String,
    signature: String,
    /// Half a character or invalid UTF-8 was replaced in it, so the signature no longer fits.
    damaged: bool,
}

impl Answer {
    /// Begins an answer to a request for a model.
    pub(crate) fn new(model: String) -> Self {
        Self {
            asked: model.clone(),
            model,
            parts: Assembly::default(),
            blocks: BTreeMap::new(),
            finish: None,
            tokens: Tokens::default(),
            done: false,
        }
    }

    fn start(
        &mut self,
        index: u64,
        block: &Value,
        out: &mut Vec<ChunkPart>,
    ) -> Result<(), ModelError> {
        check_blocks(self.blocks.len())?;
        let said = |key: &str| word(block.get(key)).to_owned();
        let fields = || block.as_object().cloned().unwrap_or_default();
        let begun = match word(block.get("type")) {
            "text" => Block::Text(self.parts.say(None, ChunkKind::Text, said("text"), out)),
            "thinking" => {
                let text = said("thinking");
                let at = self
                    .parts
                    .say(None, ChunkKind::Reasoning, text.clone(), out);
                Block::Thinking(Thought {
                    at,
                    fields: fields(),
                    text,
                    signature: said("signature"),
                    damaged: false,
                })
            }
            "redacted_thinking" => Block::Redacted(fields()),
            "tool_use" => {
                let at = self.parts.open(Call {
                    index: Some(index),
                    id: said("id"),
                    name: said("name"),
                    arguments: String::new(),
                })?;
                let given = block.get("input").and_then(Value::as_object);
                let given = given.filter(|input| !input.is_empty());
                Block::Call {
                    at,
                    given: given.and_then(|input| serde_json::to_string(input).ok()),
                }
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, begun);
        Ok(())
    }

    /// Takes a piece of a block. `mended` says that half a character was replaced in it.
    fn delta(
        &mut self,
        index: u64,
        delta: &Value,
        mended: bool,
        out: &mut Vec<ChunkPart>,
    ) -> Result<(), ModelError> {
        let kind = word(delta.get("type"));
        if !self.blocks.contains_key(&index) {
            // A server that begins no block says by its first piece what it is.
            let begun = match kind {
                "text_delta" => Block::Text(None),
                "thinking_delta" | "signature_delta" => Block::Thinking(Thought::default()),
                _ => return Ok(()),
            };
            check_blocks(self.blocks.len())?;
            self.blocks.insert(index, begun);
        }
        let Some(block) = self.blocks.get_mut(&index) else {
            return Ok(());
        };
        match (block, kind) {
            (Block::Text(at), "text_delta") => {
                let text = word(delta.get("text")).to_owned();
                *at = self.parts.say(*at, ChunkKind::Text, text, out);
            }
            (Block::Thinking(thought), "thinking_delta") => {
                let text = word(delta.get("thinking"));
                thought.text.push_str(text);
                thought.damaged |= mended || text.contains('\u{fffd}');
                thought.at = self
                    .parts
                    .say(thought.at, ChunkKind::Reasoning, text.to_owned(), out);
            }
            (Block::Thinking(thought), "signature_delta") => {
                thought.signature.push_str(word(delta.get("signature")));
            }
            (Block::Call { at, given }, "input_json_delta") => {
                let text = word(delta.get("partial_json")).to_owned();
                if !text.is_empty() {
                    *given = None;
                }
                self.parts.say(Some(*at), ChunkKind::ToolArgs, text, out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows the arguments that a call was begun with, if no others came.
    fn stop(&mut self, index: u64, out: &mut Vec<ChunkPart>) {
        if let Some(Block::Call { at, given }) = self.blocks.get_mut(&index)
            && let Some(given) = given.take()
        {
            self.parts.say(Some(*at), ChunkKind::ToolArgs, given, out);
        }
    }

    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let count = |key: &str| usage.get(key).and_then(Value::as_u64);
        let tokens = &mut self.tokens;
        for (field, key) in [
            (&mut tokens.input, "input_tokens"),
            (&mut tokens.output, "output_tokens"),
            (&mut tokens.read, "cache_read_input_tokens"),
            (&mut tokens.created, "cache_creation_input_tokens"),
        ] {
            *field = count(key).or(*field);
        }
    }

    /// The API counts what was cached apart; here it is a part of the request like the rest.
    fn usage(&self) -> Option<Usage> {
        let Tokens {
            input,
            output,
            read,
            created,
        } = self.tokens;
        if input.is_none() && output.is_none() {
            return None;
        }
        let all = [input, read, created].into_iter().flatten();
        Some(Usage {
            input_tokens: all.fold(0, u64::saturating_add),
            output_tokens: output.unwrap_or(0),
            cached_input_tokens: read,
            reasoning_tokens: None,
        })
    }

    /// Returns the thinking that goes back, all of it or none, with marks for the visible blocks
    /// before its end.
    fn opaque(&self) -> Vec<Opaque> {
        let item = |kind: &str, data: String| Opaque {
            issuer: ModelRef {
                provider: NAME.into(),
                name: self.asked.clone(),
            },
            kind: kind.into(),
            data,
        };
        let mut out = Vec::new();
        let mut end = 0;
        for block in self.blocks.values() {
            match block {
                Block::Text(at) if self.parts.speaks(*at) => out.push(item(TEXT, String::new())),
                Block::Text(_) | Block::Other => {}
                Block::Call { .. } => out.push(item(CALL, String::new())),
                Block::Redacted(fields) => {
                    let Ok(data) = serde_json::to_string(fields) else {
                        return Vec::new();
                    };
                    out.push(item("redacted_thinking", data));
                    end = out.len();
                }
                Block::Thinking(thought) => {
                    // Unsigned, or no longer as it was signed: the API would refuse it.
                    if thought.damaged || thought.signature.is_empty() {
                        return Vec::new();
                    }
                    let mut fields = thought.fields.clone();
                    fields.insert("type".into(), "thinking".into());
                    fields.insert("thinking".into(), thought.text.clone().into());
                    fields.insert("signature".into(), thought.signature.clone().into());
                    let Ok(data) = serde_json::to_string(&fields) else {
                        return Vec::new();
                    };
                    out.push(item("thinking", data));
                    end = out.len();
                }
            }
        }
        // What stands behind the last of it needs no mark.
        out.truncate(end);
        out
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
        if data.is_empty() || data == "[DONE]" {
            return Ok(self.progress());
        }
        let whole = replace_lone_surrogates(data);
        let mended = matches!(whole, std::borrow::Cow::Owned(_));
        let frame: Value = assemble::frame(&whole)?;
        let index = frame.get("index").and_then(Value::as_u64).unwrap_or(0);
        match word(frame.get("type")) {
            "message_start" => {
                let model = word(frame.pointer("/message/model"));
                if !model.is_empty() {
                    model.clone_into(&mut self.model);
                }
                self.count(frame.pointer("/message/usage"));
            }
            "content_block_start" => {
                let block = frame.get("content_block").unwrap_or(&Value::Null);
                self.start(index, block, out)?;
            }
            "content_block_delta" => {
                let delta = frame.get("delta").unwrap_or(&Value::Null);
                self.delta(index, delta, mended, out)?;
            }
            "content_block_stop" => self.stop(index, out),
            "message_delta" => {
                self.count(frame.get("usage"));
                let reason = frame.pointer("/delta/stop_reason");
                if let Some(reason) = reason.and_then(Value::as_str) {
                    self.finish = Some(stop_reason(reason));
                }
            }
            "message_stop" => {
                for index in self.blocks.keys().copied().collect::<Vec<_>>() {
                    self.stop(index, out);
                }
                self.done = true;
            }
            "error" => return Err(classify::stream_error(&frame)),
            // A server that fails before it speaks the dialect has an error and no type.
            "" if frame.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(classify::stream_error(&frame));
            }
            // `ping`, and whatever may come to be.
            _ => {}
        }
        Ok(self.progress())
    }

    fn complete(&mut self) -> Result<Completion, ModelError> {
        if !self.done && self.finish.is_none() {
            return Err(ModelError::CutStream);
        }
        let opaque = self.opaque();
        let usage = self.usage();
        let (content, calls) = self.parts.finish()?;
        let stop_reason = match self.finish.unwrap_or(StopReason::Stop) {
            StopReason::Stop if calls > 0 => StopReason::ToolCalls,
            reason => reason,
        };
        Ok(Completion {
            opaque: assemble::bounded(opaque, &content),
            content,
            stop_reason,
            usage,
            model: std::mem::take(&mut self.model),
        })
    }
}

/// Source: <https://docs.anthropic.com/en/api/handling-stop-reasons>. `pause_turn` comes only with
/// tools that run on the server, and this crate offers none.
fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::Stop,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::ContentFilter,
        _ => StopReason::Other,
    }
}

#[cfg(test)]
mod tests;
