//! An answer in the making, as every dialect puts it together.

use serde_json::Value;
use threadline_session::payload::{
    AssistantPart, ChunkKind, ChunkPart, Opaque, replace_lone_surrogates,
};

use crate::{ModelError, limits};

/// The parts of an answer, in order of first appearance.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembly {
    pub(crate) parts: Vec<Part>,
}

/// A part that still grows.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Text(String),
    Reasoning(String),
    Call(Call),
}

/// A tool call that still grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    /// The provider's index, when it gives one.
    pub(crate) index: Option<u64>,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl Assembly {
    /// Adds to the part at a place, or to a new one, and returns where.
    pub(crate) fn say(
        &mut self,
        at: Option<usize>,
        kind: ChunkKind,
        delta: String,
        out: &mut Vec<ChunkPart>,
    ) -> Option<usize> {
        if delta.is_empty() {
            return at;
        }
        let at = at.unwrap_or_else(|| {
            self.parts.push(match kind {
                ChunkKind::Reasoning => Part::Reasoning(String::new()),
                ChunkKind::Text | ChunkKind::ToolArgs => Part::Text(String::new()),
            });
            self.parts.len() - 1
        });
        match self.parts.get_mut(at)? {
            Part::Text(text) | Part::Reasoning(text) => text.push_str(&delta),
            Part::Call(call) => call.arguments.push_str(&delta),
        }
        out.push(ChunkPart {
            index: u32::try_from(at).unwrap_or(u32::MAX),
            kind,
            delta,
        });
        Some(at)
    }

    /// Adds what a provider's complete text has beyond what it streamed.
    pub(crate) fn catch_up(
        &mut self,
        at: Option<usize>,
        kind: ChunkKind,
        whole: &str,
        out: &mut Vec<ChunkPart>,
    ) -> Option<usize> {
        let streamed = match at.and_then(|at| self.parts.get(at)) {
            None => "",
            Some(Part::Text(text) | Part::Reasoning(text)) => text,
            Some(Part::Call(call)) => &call.arguments,
        };
        // What was streamed is shown and logged already; it is not taken back.
        let rest = whole.strip_prefix(streamed).unwrap_or_default().to_owned();
        self.say(at, kind, rest, out)
    }

    /// Begins a tool call.
    pub(crate) fn open(&mut self, call: Call) -> Result<usize, ModelError> {
        let calls = |part: &&Part| matches!(part, Part::Call(_));
        if self.parts.iter().filter(calls).count() >= limits::MAX_TOOL_CALLS {
            return Err(ModelError::TooLarge {
                what: "tool calls in one answer",
                limit: limits::MAX_TOOL_CALLS as u64,
            });
        }
        self.parts.push(Part::Call(call));
        Ok(self.parts.len() - 1)
    }

    /// Returns the call at a place.
    pub(crate) fn call(&mut self, at: usize) -> Option<&mut Call> {
        match self.parts.get_mut(at) {
            Some(Part::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Returns whether the part at a place holds text that a request can hold too.
    pub(crate) fn speaks(&self, at: Option<usize>) -> bool {
        match at.and_then(|at| self.parts.get(at)) {
            Some(Part::Text(text)) => !text.trim().is_empty(),
            _ => false,
        }
    }

    /// Ends the answer and returns its parts and how many of them are calls.
    pub(crate) fn finish(&mut self) -> Result<(Vec<AssistantPart>, usize), ModelError> {
        let mut ids: Vec<String> = Vec::new();
        let mut content = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            content.push(match part {
                Part::Text(text) => AssistantPart::Text { text },
                Part::Reasoning(text) => AssistantPart::Reasoning { text },
                Part::Call(call) => finished_call(call, &mut ids)?,
            });
        }
        Ok((content, ids.len()))
    }
}

/// Makes the call's id unique in its message and its arguments readable.
fn finished_call(call: Call, taken: &mut Vec<String>) -> Result<AssistantPart, ModelError> {
    let number = taken.len();
    if call.name.is_empty() {
        return Err(ModelError::Malformed {
            reason: format!("tool call {number} has no name"),
        });
    }
    let mut id = call.id;
    let mut suffix = number;
    while id.is_empty() || taken.contains(&id) {
        id = format!("call_{suffix}");
        suffix += 1;
    }
    taken.push(id.clone());
    let arguments = match call.arguments.trim() {
        "" => "{}".to_owned(),
        _ => replace_lone_surrogates(&call.arguments).into_owned(),
    };
    Ok(AssistantPart::ToolCall {
        call_id: id,
        name: call.name,
        arguments,
    })
}

/// Refuses an answer of more items or blocks than any model sends.
pub(crate) fn check_blocks(count: usize) -> Result<(), ModelError> {
    if count < limits::MAX_BLOCKS {
        return Ok(());
    }
    Err(ModelError::TooLarge {
        what: "items in one answer",
        limit: limits::MAX_BLOCKS as u64,
    })
}

/// Keeps what the provider needs back, unless the log has no room for it beside the answer. Part
/// of it is worth nothing: providers refuse a sequence of reasoning that has holes.
pub(crate) fn bounded(opaque: Vec<Opaque>, content: &[AssistantPart]) -> Vec<Opaque> {
    if opaque.is_empty() {
        return opaque;
    }
    let mut size = Size(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut size, &(&opaque, content));
    if size.0 <= limits::MAX_KEPT_BYTES {
        return opaque;
    }
    tracing::warn!(
        bytes = size.0,
        "the answer's reasoning is too large to be kept; the next request goes without it"
    );
    Vec::new()
}

/// Counts what is written to it.
struct Size(usize);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads one frame; lone surrogates must have been replaced.
pub(crate) fn frame<'a, T: serde::Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    if !data.starts_with('{') {
        return Err(ModelError::Malformed {
            reason: "a frame is not a JSON object".into(),
        });
    }
    serde_json::from_str(data).map_err(|e| ModelError::Malformed {
        reason: format!("a frame is not JSON: {e}"),
    })
}

/// Returns a string, or an empty one.
pub(crate) fn word(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}
