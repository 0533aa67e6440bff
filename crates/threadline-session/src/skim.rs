//! Reading what a line says without parsing it.
//!
//! Lines that this program wrote have their keys in a fixed order, so their number, time, type and
//! the little that the reducer needs of them stand at places that can be found by looking at some
//! bytes. Whatever looks different in any way is left to the parser.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::{
    chain::ChainValue,
    event::types,
    payload::{EndReason, RequestMark, StepEnd, StepStart, TurnEnd, TurnStart, Usage},
    surface::{Place, SlotKind},
    transcript::Transcript,
};

const CRC_TAIL: usize = ",\"crc\":\"xxxxxxxx\"}".len();

/// What stands at the beginning and the end of an event line.
#[derive(Debug, Clone, Copy)]
pub struct Skimmed<'a> {
    /// Position in the log.
    pub seq: u64,
    /// Unix milliseconds.
    pub time: u64,
    /// Type name.
    pub kind: &'a str,
    known: Kind,
    /// From the first byte of the data to the end of the line.
    data: &'a [u8],
    /// From behind the data to the checksum, when it is short; else its last bytes.
    tail: &'a [u8],
}

/// Digits of which every number fits into 64 bits.
const DIGITS: usize = 19;

/// The types that a line may be told by without being parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stream,
    TurnStart,
    TurnEnd,
    StepStart,
    StepEnd,
    ToolStart,
    ToolResult,
    UserMessage,
    AssistantMessage,
    Other,
}

/// Returns a type's name and what it is here.
fn kind_of(name: &[u8]) -> Option<(&str, Kind)> {
    // Patterns of bytes are told apart by their length and whole words at once.
    Some(match name {
        b"assistant/chunk" => (types::ASSISTANT_CHUNK, Kind::Stream),
        b"tool/output" => (types::TOOL_OUTPUT, Kind::Stream),
        b"tool/start" => (types::TOOL_START, Kind::ToolStart),
        b"tool/result" => (types::TOOL_RESULT, Kind::ToolResult),
        b"step/start" => (types::STEP_START, Kind::StepStart),
        b"step/end" => (types::STEP_END, Kind::StepEnd),
        b"assistant/message" => (types::ASSISTANT_MESSAGE, Kind::AssistantMessage),
        b"user/message" => (types::USER_MESSAGE, Kind::UserMessage),
        b"turn/start" => (types::TURN_START, Kind::TurnStart),
        b"turn/end" => (types::TURN_END, Kind::TurnEnd),
        _ => (std::str::from_utf8(name).ok()?, Kind::Other),
    })
}

fn number<'a>(bytes: &'a [u8], key: &[u8]) -> Option<(u64, &'a [u8])> {
    let rest = bytes.strip_prefix(key)?;
    let mut value = 0_u64;
    let mut len = 0;
    for byte in rest {
        if !byte.is_ascii_digit() {
            break;
        }
        if len == DIGITS {
            return None;
        }
        value = value * 10 + u64::from(byte - b'0');
        len += 1;
    }
    (len > 0).then(|| (value, rest.get(len..).unwrap_or_default()))
}

/// Returns a number that may be missing.
fn optional<'a>(bytes: &'a [u8], key: &[u8]) -> (Option<u64>, &'a [u8]) {
    match number(bytes, key) {
        Some((value, rest)) => (Some(value), rest),
        None => (None, bytes),
    }
}

/// Returns the bytes of a string that stands at the beginning, if it has no escapes, and what
/// follows it.
fn quoted<'a>(bytes: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let rest = bytes.strip_prefix(key)?;
    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    if rest.get(end) != Some(&b'"') {
        return None;
    }
    Some((rest.get(..end)?, rest.get(end + 1..)?))
}

/// Returns a string that stands at the beginning, if it has no escapes.
fn plain<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let (text, _) = quoted(bytes, key)?;
    std::str::from_utf8(text).ok()
}

impl<'a> Skimmed<'a> {
    /// Looks at a line without its LF; `None` when it is not of the shape that this program
    /// writes.
    #[must_use]
    pub fn of(line: &'a [u8]) -> Option<Self> {
        let (seq, rest) = number(line, b"{\"seq\":")?;
        let (time, rest) = number(rest, b",\"time\":")?;
        let (name, rest) = quoted(rest, b",\"type\":\"")?;
        let (kind, known) = kind_of(name)?;
        let data = rest.strip_prefix(b",\"data\":")?;
        let body = data.len().checked_sub(CRC_TAIL)?;
        let (body, crc) = data.split_at_checked(body)?;
        if !data.starts_with(b"{") || !crc.starts_with(b",\"crc\":\"") || !crc.ends_with(b"\"}") {
            return None;
        }
        let tail = body.get(body.len().saturating_sub(400)..)?;
        Some(Self {
            seq,
            time,
            kind,
            known,
            data,
            tail,
        })
    }

    /// Whether something stands between the data and the checksum that is worth parsing the line
    /// for: a batch of several events, or a key.
    #[must_use]
    pub fn has_more(&self) -> bool {
        match self.tail.last() {
            // The data's own end.
            Some(b'}') => false,
            // `"ignorable":true`, which changes nothing for types that are known here.
            Some(b'e') => !self.tail.ends_with(b"},\"ignorable\":true"),
            // A chain value alone.
            Some(b'"') => self.chain().is_none_or(|(_, before)| before != Some(b'}')),
            _ => true,
        }
    }

    fn chain(&self) -> Option<(ChainValue, Option<u8>)> {
        let body = self.tail.strip_suffix(b"\"")?;
        let (before, hex) = body.split_at_checked(body.len().checked_sub(64)?)?;
        let before = before.strip_suffix(b",\"chain\":\"")?;
        let value = ChainValue::from_hex(std::str::from_utf8(hex).ok()?)?;
        Some((value, before.last().copied()))
    }

    /// Returns the chain value of a turn end.
    #[must_use]
    pub fn chain_value(&self) -> Option<ChainValue> {
        (self.kind == types::TURN_END)
            .then(|| self.chain())
            .flatten()
            .map(|(value, _)| value)
    }

    fn turn_end(&self) -> Option<TurnEnd> {
        let (turn, rest) = number(self.data, b"{\"turn\":")?;
        if rest.starts_with(b",\"reason\":{\"kind\":\"completed\"}}") {
            let reason = EndReason::Completed;
            return Some(TurnEnd { turn, reason });
        }
        self.parse()
    }

    /// Returns what a step begins with, but for its request: the open step is read again with
    /// [`Transcript::stream`].
    fn step_start(&self) -> Option<StepStart> {
        let (turn, rest) = number(self.data, b"{\"turn\":")?;
        let (step, rest) = number(rest, b",\"step\":")?;
        rest.starts_with(b",\"request\":{").then(|| StepStart {
            turn,
            step,
            request: RequestMark {
                fingerprint: String::new(),
                items: 0,
                bytes: 0,
            },
        })
    }

    fn step_end(&self) -> Option<StepEnd> {
        let (turn, rest) = number(self.data, b"{\"turn\":")?;
        let (step, rest) = number(rest, b",\"step\":")?;
        let Some((input_tokens, rest)) = number(rest, b",\"usage\":{\"inputTokens\":") else {
            return self.parse();
        };
        let (output_tokens, rest) = number(rest, b",\"outputTokens\":")?;
        let (cached_input_tokens, rest) = optional(rest, b",\"cachedInputTokens\":");
        let (reasoning_tokens, rest) = optional(rest, b",\"reasoningTokens\":");
        if !rest.starts_with(b"}}") {
            return self.parse();
        }
        Some(StepEnd {
            turn,
            step,
            usage: Some(Usage {
                input_tokens,
                output_tokens,
                cached_input_tokens,
                reasoning_tokens,
            }),
        })
    }

    fn parse<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_slice(self.data).into_iter::<T>();
        values.next()?.ok()
    }

    /// Returns the ids of an assistant message's calls.
    fn calls(&self) -> Option<Vec<Arc<str>>> {
        static ANY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"tool_call\""));
        const BEFORE: &[u8] = b"{\"type\":";
        const BEHIND: &[u8] = b"\"tool_call\",\"callId\":\"";
        let mut ids = Vec::new();
        // Inside a string its quotes would be escaped, so this is found only where it is meant.
        for at in ANY.find_iter(self.data) {
            if !self.data.get(..at)?.ends_with(BEFORE) {
                return None;
            }
            ids.push(plain(self.data.get(at..)?, BEHIND)?.into());
        }
        Some(ids)
    }
}

impl Transcript {
    /// Applies the next event of a line that was only looked at. Returns false, and changes
    /// nothing, if the event has to be parsed for that.
    ///
    /// The state must be [`bare`](Self::bare). It is what applying would have made it, but for the
    /// streamed text of the open step, if there is one at the end: apply its events again with
    /// [`stream`](Self::stream).
    pub fn skim(&mut self, line: &Skimmed<'_>, place: Place) -> bool {
        let seq = line.seq;
        if seq != self.next_seq || !self.bare {
            return false;
        }
        match line.known {
            Kind::Stream => {}
            Kind::TurnStart => {
                let Some(start) = line.parse::<TurnStart>() else {
                    return false;
                };
                self.turn_start(seq, line.time, start);
            }
            Kind::TurnEnd => {
                let Some(end) = line.turn_end() else {
                    return false;
                };
                self.turn_end(line.time, end);
            }
            Kind::StepStart => {
                let Some(start) = line.step_start() else {
                    return false;
                };
                self.step_start(start);
            }
            Kind::StepEnd => {
                let Some(end) = line.step_end() else {
                    return false;
                };
                self.step_end(end);
            }
            Kind::ToolStart => {
                let Some(id) = plain(line.data, b"{\"callId\":\"") else {
                    return false;
                };
                self.surface.start(seq, id);
            }
            Kind::ToolResult => {
                let Some(id) = plain(line.data, b"{\"callId\":\"") else {
                    return false;
                };
                if self.surface.answer(seq, place, id).is_none() {
                    self.surface.push(seq, place, SlotKind::Orphan, Vec::new());
                }
            }
            Kind::UserMessage if self.facts.first_prompt.is_some() => {
                self.surface.push(seq, place, SlotKind::Plain, Vec::new());
                self.undone.clear();
            }
            Kind::AssistantMessage => {
                let Some(calls) = line.calls() else {
                    return false;
                };
                self.message_logged();
                self.surface.push(seq, place, SlotKind::Plain, calls);
                self.undone.clear();
            }
            Kind::UserMessage | Kind::Other => return false,
        }
        self.count(seq, line.time);
        self.prune();
        true
    }
}
