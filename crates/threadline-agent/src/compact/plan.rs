//! What a compaction replaces and what it keeps, decided from the surface alone.

use std::collections::HashSet;

use threadline_session::{
    Item, Transcript,
    payload::{AssistantPart, ContentPart, SeqRange, UserSource},
};

use crate::context;

/// Rough size of what surrounds an item's text in a request, in bytes.
const AROUND: usize = 64;
/// What an image counts for, in bytes of text: providers take one to two thousand tokens.
const IMAGE: usize = 6_000;

/// An item of the surface that is replaced or kept as a whole: a message with the results of its
/// calls, so that no boundary parts a call from its result.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// Its first event.
    pub(crate) seq: u64,
    /// The item and, behind an assistant message, its results.
    pub(crate) items: Vec<Item>,
    /// Bytes that it takes in a request, roughly.
    pub(crate) bytes: usize,
}

impl Unit {
    fn source(&self) -> Option<UserSource> {
        match self.items.first() {
            Some(Item::User(message)) => Some(message.source),
            _ => None,
        }
    }

    /// Returns what a message of the harness is about.
    fn subjects(&self) -> impl Iterator<Item = &str> {
        let content = match self.items.first() {
            Some(Item::User(message)) if message.source == UserSource::Context => {
                message.content.as_slice()
            }
            _ => &[],
        };
        content.iter().filter_map(context::subject)
    }
}

/// Returns the surface in units.
pub(crate) fn units(transcript: &Transcript) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (seq, item) in transcript.surface() {
        let bytes = size(&item);
        let joins = matches!(item, Item::ToolResult(_))
            && units
                .last()
                .is_some_and(|unit| matches!(unit.items.first(), Some(Item::Assistant(_))));
        match units.last_mut().filter(|_| joins) {
            Some(unit) => {
                unit.items.push(item);
                unit.bytes += bytes;
            }
            None => units.push(Unit {
                seq,
                items: vec![item],
                bytes,
            }),
        }
    }
    units
}

fn size(item: &Item) -> usize {
    let parts = |parts: &[ContentPart]| -> usize {
        let one = |part: &ContentPart| match part {
            ContentPart::Text { text } => text.len(),
            ContentPart::Image { .. } => IMAGE,
            ContentPart::Unknown => 0,
        };
        parts.iter().map(one).sum()
    };
    AROUND
        + match item {
            Item::System(prompt) => prompt.text.len(),
            Item::User(message) => parts(&message.content),
            Item::Summary(summary) => parts(&summary.summary),
            Item::ToolResult(result) => parts(&result.content),
            Item::Assistant(message) => {
                let one = |part: &AssistantPart| match part {
                    AssistantPart::Text { text } => text.len(),
                    // Reasoning goes back to its issuer, if at all, as an opaque item.
                    AssistantPart::Reasoning { .. } | AssistantPart::Unknown => 0,
                    AssistantPart::ToolCall {
                        name, arguments, ..
                    } => name.len() + arguments.len() + AROUND,
                };
                let text: usize = message.content.iter().map(one).sum();
                let opaque: usize = message.opaque.iter().map(|o| o.data.len()).sum();
                text + opaque
            }
        }
}

/// What one compaction does to the surface.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// From the first to the last replaced event.
    pub(crate) replaces: SeqRange,
    /// Events of that range that stay, and are on the surface.
    pub(crate) kept: Vec<u64>,
    /// What is replaced.
    pub(crate) gone: Vec<Unit>,
    /// Bytes of what stays.
    pub(crate) stays: usize,
}

impl Plan {
    /// Plans to keep the newest units that fit into `tail` bytes, and of what is older only the
    /// newest message of a person, which the model is to answer, and the newest message of the
    /// harness about each subject. The newest unit stays whatever its size if `newest` is set.
    ///
    /// Returns `None` when nothing would be replaced.
    pub(crate) fn new(units: &[Unit], tail: usize, newest: bool) -> Option<Self> {
        let mut room = tail;
        let mut first = units.len();
        for (at, unit) in units.iter().enumerate().rev() {
            let fits = unit.bytes <= room || (newest && at + 1 == units.len());
            if !fits {
                break;
            }
            room = room.saturating_sub(unit.bytes);
            first = at;
        }
        let (older, newer) = units.split_at(first);
        let mut keep: HashSet<u64> = newer.iter().map(|unit| unit.seq).collect();
        let person = |unit: &&Unit| unit.source().is_some_and(|s| s != UserSource::Context);
        keep.extend(units.iter().rev().find(person).map(|words| words.seq));
        let mut told: HashSet<&str> = newer.iter().flat_map(Unit::subjects).collect();
        for unit in older.iter().rev() {
            let news = unit.subjects().filter(|subject| told.insert(subject));
            if news.count() > 0 {
                keep.insert(unit.seq);
            }
        }
        let gone: Vec<Unit> = units
            .iter()
            .filter(|unit| !keep.contains(&unit.seq))
            .cloned()
            .collect();
        let from_seq = gone.iter().map(|unit| unit.seq).min()?;
        let to_seq = gone.iter().map(|unit| unit.seq).max()?;
        let mut kept: Vec<u64> = keep
            .into_iter()
            .filter(|seq| (from_seq..=to_seq).contains(seq))
            .collect();
        kept.sort_unstable();
        let all: usize = units.iter().map(|unit| unit.bytes).sum();
        let stays = all - gone.iter().map(|unit| unit.bytes).sum::<usize>();
        Some(Self {
            replaces: SeqRange { from_seq, to_seq },
            kept,
            gone,
            stays,
        })
    }
}
