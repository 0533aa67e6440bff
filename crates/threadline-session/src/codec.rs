//! Lines of the log: encoding, checksums and decoding.
//!
//! ```text
//! {"seq":n,"time":ms,"type":"…","data":{…},"ignorable":true,"batch":k,"key":"…","chain":"…","crc":"xxxxxxxx"}
//! ```
//! Optional keys are left out. `batch` stands on the first line of a batch of more than one and
//! gives its size, so that a batch that was cut by a crash is recognised and taken as a whole or
//! not at all. `key` stands on the last line of a batch that was appended with an idempotency key.

use std::io::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    chain::{Chain, ChainValue},
    event::{Event, EventError, types},
    limits::{MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_KEY_BYTES},
};

const CRC_KEY: &[u8] = b",\"crc\":\"";
const CRC_TAIL: usize = CRC_KEY.len() + 8 + 2;
const CHAIN_KEY: &[u8] = b",\"chain\":\"";
/// What a line has besides its data, without a key; more is only slower.
const ENVELOPE_BYTES: usize = 224;
const CHAIN_TAIL: usize = CHAIN_KEY.len() + 64 + 1;
/// Length of a turn end's chain value and checksum at the end of its line.
pub(crate) const CHAIN_AND_CRC: usize = CHAIN_TAIL + CRC_TAIL;

/// CRC-32C (Castagnoli) of some bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The checksum is 32 bits wide; the crate hands every width out as u64.
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) & 0xffff_ffff)
        .unwrap_or_default()
}

/// What a line's own checksum says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crc {
    /// It vouches for the line.
    Match,
    /// It contradicts the line.
    Mismatch,
    /// The line has none: hand-made or foreign.
    Absent,
}

/// Checks the checksum at the end of a line (without its LF).
#[must_use]
pub fn check_crc(line: &[u8]) -> Crc {
    let Some((body, tail)) = line.split_at_checked(line.len().saturating_sub(CRC_TAIL)) else {
        return Crc::Absent;
    };
    let Some(rest) = tail.strip_prefix(CRC_KEY) else {
        return Crc::Absent;
    };
    let Some(hex) = rest.strip_suffix(b"\"}") else {
        return Crc::Absent;
    };
    if hex == format!("{:08x}", crc32c(body)).as_bytes() {
        Crc::Match
    } else {
        Crc::Mismatch
    }
}

/// Appends the checksum, the closing brace and LF to the line that begins at `start` and whose
/// closing brace is still missing.
pub(crate) fn finish_line(out: &mut Vec<u8>, start: usize) {
    let crc = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(CRC_KEY);
    put(out, format_args!("{crc:08x}\"}}\n"));
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

/// Says why a batch cannot be encoded. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The batch is empty.
    #[error("an empty batch cannot be appended")]
    Empty,
    /// The batch has too many events.
    #[error("a batch of {len} events is over the limit of {MAX_BATCH_EVENTS}")]
    TooMany {
        /// Events in the batch.
        len: usize,
    },
    /// The events of the batch are not numbered one after the other.
    #[error("event {found} stands where event {expected} belongs in the batch")]
    Gap {
        /// Sequence number that belongs there.
        expected: u64,
        /// Sequence number found.
        found: u64,
    },
    /// An event is malformed.
    #[error(transparent)]
    Event(#[from] EventError),
    /// An event's line is too long.
    #[error(
        "a {kind} event of {bytes} bytes is over the limit of {limit}: put big content into a blob"
    )]
    TooLarge {
        /// The event's type.
        kind: String,
        /// Length of its line.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The idempotency key is empty, too long or holds control characters.
    #[error("the idempotency key must have 1 to {MAX_KEY_BYTES} bytes without control characters")]
    Key,
}

/// Encoded lines of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// All lines, each ending in LF.
    pub bytes: Vec<u8>,
    /// End offset of each line inside `bytes`.
    pub ends: Vec<usize>,
}

/// Encodes batches and carries the chain from one to the next.
///
/// Clone it before encoding and keep the clone only when the bytes were stored.
#[derive(Debug, Clone)]
pub struct Encoder {
    chain: Chain,
    max_event_bytes: usize,
}

impl Encoder {
    /// Continues after what `chain` has seen.
    #[must_use]
    pub fn new(chain: Chain) -> Self {
        Self {
            chain,
            max_event_bytes: MAX_EVENT_BYTES,
        }
    }

    /// Returns the encoder with another limit for one event's line, in bytes.
    #[must_use]
    pub fn with_max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Returns the chain as it stands.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Notes a line that is stored already, trusting the chain value that it carries.
    pub fn follow(&mut self, line: &Line) {
        self.chain.follow(line);
    }

    /// Notes a header line (with its LF) that opens the log.
    pub fn header(&mut self, line: &[u8]) {
        self.chain.line(line);
    }

    /// Encodes a batch whose first event must have `expected_seq`.
    ///
    /// # Errors
    /// [`EncodeError`]; the encoder must then be thrown away.
    pub fn batch(
        &mut self,
        expected_seq: u64,
        events: &[Event],
        key: Option<&str>,
    ) -> Result<Encoded, EncodeError> {
        if events.is_empty() {
            return Err(EncodeError::Empty);
        }
        if events.len() > MAX_BATCH_EVENTS {
            return Err(EncodeError::TooMany { len: events.len() });
        }
        if key.is_some_and(|k| {
            k.is_empty() || k.len() > MAX_KEY_BYTES || k.chars().any(char::is_control)
        }) {
            return Err(EncodeError::Key);
        }
        let mut encoded = Encoded {
            bytes: Vec::new(),
            ends: Vec::with_capacity(events.len()),
        };
        for (index, event) in events.iter().enumerate() {
            let expected = expected_seq + index as u64;
            if event.seq != expected {
                return Err(EncodeError::Gap {
                    expected,
                    found: event.seq,
                });
            }
            event.check()?;
            let batch = (index == 0 && events.len() > 1).then_some(events.len());
            let key = key.filter(|_| index + 1 == events.len());
            let start = encoded.bytes.len();
            self.line(&mut encoded.bytes, event, batch, key);
            let bytes = encoded.bytes.len() - start;
            if bytes > self.max_event_bytes {
                let kind = event.kind.clone();
                return Err(EncodeError::TooLarge {
                    kind,
                    bytes,
                    limit: self.max_event_bytes,
                });
            }
            encoded.ends.push(encoded.bytes.len());
        }
        Ok(encoded)
    }

    fn line(&mut self, out: &mut Vec<u8>, event: &Event, batch: Option<usize>, key: Option<&str>) {
        let start = out.len();
        let data = event.data.get();
        out.reserve(data.len() + ENVELOPE_BYTES);
        put(
            out,
            format_args!(
                "{{\"seq\":{},\"time\":{},\"type\":\"{}\",\"data\":",
                event.seq, event.time, event.kind,
            ),
        );
        out.extend_from_slice(data.as_bytes());
        if event.ignorable {
            out.extend_from_slice(b",\"ignorable\":true");
        }
        if let Some(count) = batch {
            put(out, format_args!(",\"batch\":{count}"));
        }
        if let Some(key) = key {
            let key = serde_json::Value::from(key);
            put(out, format_args!(",\"key\":{key}"));
        }
        if event.kind == types::TURN_END {
            let value = self.chain.end_turn(out.get(start..).unwrap_or_default());
            out.extend_from_slice(CHAIN_KEY);
            out.extend_from_slice(value.to_hex().as_bytes());
            out.push(b'"');
            finish_line(out, start);
        } else {
            finish_line(out, start);
            self.chain.line(out.get(start..).unwrap_or_default());
        }
    }
}

/// A decoded line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The event.
    pub event: Event,
    /// The line's bytes without LF, as they are stored.
    pub raw: Vec<u8>,
    /// Events in the batch that begins here, when it has more than one.
    pub batch: Option<usize>,
    /// The key of the batch that ends here.
    pub key: Option<String>,
    /// The chain value, on turn ends.
    pub chain: Option<ChainValue>,
    /// Whether a checksum vouched for the line.
    pub verified: bool,
}

/// Says why bytes are not a line of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The checksum does not match.
    #[error("the checksum does not match the line's bytes")]
    Checksum,
    /// It is not an event.
    #[error("it is not an event: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    seq: u64,
    time: u64,
    #[serde(borrow, rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    ignorable: bool,
    #[serde(default)]
    batch: Option<usize>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    chain: Option<String>,
    #[serde(default)]
    crc: Option<serde::de::IgnoredAny>,
}

impl Line {
    /// Decodes a line without its LF.
    ///
    /// # Errors
    /// [`LineError`] when the checksum or the shape is wrong. The sequence number is not judged
    /// here: that takes the line before.
    pub fn decode(raw: &[u8]) -> Result<Self, LineError> {
        let crc = check_crc(raw);
        if crc == Crc::Mismatch {
            return Err(LineError::Checksum);
        }
        let malformed = |reason: String| LineError::Malformed { reason };
        let envelope: Envelope<'_> =
            serde_json::from_slice(raw).map_err(|e| malformed(e.to_string()))?;
        if crc == Crc::Absent && envelope.crc.is_some() {
            return Err(malformed("the checksum is not the last key".into()));
        }
        let chain = match envelope.chain {
            None => None,
            Some(hex) => Some(
                ChainValue::from_hex(&hex)
                    .ok_or_else(|| malformed("the chain value is not 64 hex digits".into()))?,
            ),
        };
        let event = Event {
            seq: envelope.seq,
            time: envelope.time,
            kind: envelope.kind.into_owned(),
            data: envelope.data.to_owned(),
            ignorable: envelope.ignorable,
        };
        event.check().map_err(|e| malformed(e.to_string()))?;
        Ok(Self {
            event,
            raw: raw.to_vec(),
            batch: envelope.batch.filter(|n| *n > 1),
            key: envelope.key,
            chain,
            verified: crc == Crc::Match,
        })
    }

    /// Returns the bytes that the chain value of a turn end covers: all before its `chain` key.
    #[must_use]
    pub fn chained_part(&self) -> &[u8] {
        let tail = CHAIN_TAIL + if self.verified { CRC_TAIL } else { 1 };
        let cut = self.raw.len().saturating_sub(tail);
        self.raw.get(..cut).unwrap_or_default()
    }
}

/// Returns the number at the fixed start of an event line, without parsing the line.
#[must_use]
pub fn skim_seq(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    if digits.get(end) != Some(&b',') {
        return None;
    }
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Checks that a line (without its LF) is a certain event, as cheaply as its checksum allows.
///
/// # Errors
/// [`LineError`]; a line without a checksum is decoded in full.
pub fn check_raw(raw: &[u8], seq: u64) -> Result<(), LineError> {
    let found = match check_crc(raw) {
        Crc::Mismatch => return Err(LineError::Checksum),
        Crc::Match => skim_seq(raw),
        Crc::Absent => None,
    };
    let found = match found {
        Some(found) => found,
        None => Line::decode(raw)?.event.seq,
    };
    if found == seq {
        Ok(())
    } else {
        Err(LineError::Malformed {
            reason: format!("event {found} stands where event {seq} belongs"),
        })
    }
}

/// Returns the offset just after the first complete line at or after `from`, or `None`.
#[must_use]
pub fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'\n', bytes.get(from..)?).map(|at| from + at + 1)
}
