//! Reading what a line says without parsing it.
//!
//! Lines that this program wrote have their keys in a fixed order, so their number, time, type and
//! the little that the reducer needs of them stand at places that can be found by looking at some
//! bytes. Whatever looks different in any way is left to the parser.

use crate::{
    chain::ChainValue,
    event::types,
    payload::{StepEnd, StepStart},
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
    /// From the first byte of the data to the end of the line.
    data: &'a [u8],
    /// From behind the data to the checksum, when it is short; else its last bytes.
    tail: &'a [u8],
}

fn number<'a>(bytes: &'a [u8], key: &[u8]) -> Option<(u64, &'a [u8])> {
    let rest = bytes.strip_prefix(key)?;
    let mut value = 0_u64;
    let mut len = 0;
    for byte in rest {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        len += 1;
    }
    (len > 0).then(|| (value, rest.get(len..).unwrap_or_default()))
}

/// Returns a string that stands at the beginning, if it has no escapes.
fn plain<'a>(bytes: &'a [u8], key: &[u8]) -> Option<(&'a str, &'a [u8])> {
    let rest = bytes.strip_prefix(key)?;
    let end = memchr::memchr2(b'"', b'\\', rest)?;
    if rest.get(end) != Some(&b'"') {
        return None;
    }
    let text = std::str::from_utf8(rest.get(..end)?).ok()?;
    Some((text, rest.get(end + 1..)?))
}

impl<'a> Skimmed<'a> {
    /// Looks at a line without its LF; `None` when it is not of the shape that this program
    /// writes.
    #[must_use]
    pub fn of(line: &'a [u8]) -> Option<Self> {
        let (seq, rest) = number(line, b"{\"seq\":")?;
        let (time, rest) = number(rest, b",\"time\":")?;
        let (kind, rest) = plain(rest, b",\"type\":\"")?;
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

    fn parse<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_slice(self.data).into_iter::<T>();
        values.next()?.ok()
    }

    /// Returns the ids of an assistant message's calls.
    fn calls(&self) -> Option<Vec<String>> {
        const ANY: &[u8] = b"\"tool_call\"";
        const CALL: &[u8] = b"{\"type\":\"tool_call\",\"callId\":\"";
        // Inside a string its quotes would be escaped, so this is found only where it is meant.
        let any = memchr::memmem::find_iter(self.data, ANY).count();
        if any == 0 {
            return Some(Vec::new());
        }
        let mut ids = Vec::with_capacity(any);
        for at in memchr::memmem::find_iter(self.data, CALL) {
            let (id, _) = plain(self.data.get(at..)?, CALL)?;
            ids.push(id.to_owned());
        }
        (ids.len() == any).then_some(ids)
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
        match line.kind {
            types::ASSISTANT_CHUNK | types::TOOL_OUTPUT => {}
            types::STEP_START => {
                let Some(start) = line.parse::<StepStart>() else {
                    return false;
                };
                self.step_start(start);
            }
            types::STEP_END => {
                let Some(end) = line.parse::<StepEnd>() else {
                    return false;
                };
                self.step_end(end);
            }
            types::TOOL_START => {
                let Some((id, _)) = plain(line.data, b"{\"callId\":\"") else {
                    return false;
                };
                self.surface.start(seq, id);
            }
            types::TOOL_RESULT => {
                let Some((id, _)) = plain(line.data, b"{\"callId\":\"") else {
                    return false;
                };
                if self.surface.answer(seq, place, id).is_none() {
                    self.surface.push(seq, place, SlotKind::Orphan, Vec::new());
                }
            }
            types::USER_MESSAGE if self.facts.first_prompt.is_some() => {
                self.surface.push(seq, place, SlotKind::Plain, Vec::new());
                self.undone.clear();
            }
            types::ASSISTANT_MESSAGE => {
                let Some(calls) = line.calls() else {
                    return false;
                };
                self.message_logged();
                self.surface.push(seq, place, SlotKind::Plain, calls);
                self.undone.clear();
            }
            _ => return false,
        }
        self.count(seq, line.time);
        self.prune();
        true
    }
}
