//! What every dialect needs to turn a request into a body.
//!
//! A body is written as text and not as a JSON tree: what a provider issued goes back with the
//! bytes that it came with, and so do the arguments of tool calls.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use serde_json::{Value, value::RawValue};
use threadline_session::payload::{AssistantPart, ContentPart, Opaque};

use crate::{
    Images,
    images::Shown,
    limits,
    reject::{Place, Places},
};

/// Stands where a dialect needs a message and the history has none.
pub(crate) const GOES_ON: &str = "[the conversation goes on]";

/// A request in a provider's dialect.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) json: String,
    /// Which place in the body came from which part of the history.
    pub(crate) places: Places,
}

impl Body {
    /// Returns the body as a tree.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }
}

/// Serializes a tree, keys sorted.
pub(crate) fn raw(mut value: Value) -> Box<RawValue> {
    value.sort_all_objects();
    // A tree always makes valid JSON.
    RawValue::from_string(value.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Some servers refuse, or cut, text that holds a NUL.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// A model may have called a tool by a name that no request may hold; refusing it on every later
/// request would end the session.
pub(crate) fn tool_name(name: &str) -> String {
    let name: String = name
        .chars()
        .take(limits::MAX_TOOL_NAME_CHARS)
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => c,
            _ => '_',
        })
        .collect();
    if name.is_empty() {
        "unnamed".into()
    } else {
        name
    }
}

/// A part of a user message or a tool result as a dialect shows it.
pub(crate) enum Piece {
    Text(String),
    Image {
        media_type: &'static str,
        base64: String,
    },
}

/// Returns the parts of a message, never none and none empty, with their positions.
pub(crate) fn pieces(
    parts: &[ContentPart],
    images: &Images,
    empty: &str,
) -> Vec<(Option<usize>, Piece)> {
    let mut out = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        let piece = match part {
            ContentPart::Text { text } if text.trim().is_empty() => continue,
            ContentPart::Text { text } => Piece::Text(clean(text).into_owned()),
            ContentPart::Image { media_type, blob } => {
                match images.show(&clean(media_type), blob) {
                    Shown::Text(text) => Piece::Text(text),
                    Shown::Image { media_type, base64 } => Piece::Image { media_type, base64 },
                }
            }
            ContentPart::Unknown => {
                Piece::Text("[content of a kind this version cannot show]".into())
            }
        };
        out.push((Some(at), piece));
    }
    if out.is_empty() {
        out.push((None, Piece::Text(empty.to_owned())));
    }
    out
}

/// Gives tool calls ids that the target accepts, and finds them again for the results.
///
/// An id stays as it is where it can. Another one depends only on it and on what stands before
/// it, so that a longer history begins with the bytes of the shorter one.
pub(crate) struct Ids<'a> {
    fits: fn(&str) -> bool,
    /// Whether an id must be unique in the whole request and not only in its message.
    throughout: bool,
    taken: BTreeSet<String>,
    used: BTreeMap<&'a str, usize>,
    /// Calls that wait for their result, as (logged id, sent id).
    open: VecDeque<(&'a str, String)>,
}

impl<'a> Ids<'a> {
    pub(crate) fn new(fits: fn(&str) -> bool, throughout: bool) -> Self {
        Self {
            fits,
            throughout,
            taken: BTreeSet::new(),
            used: BTreeMap::new(),
            open: VecDeque::new(),
        }
    }

    /// Begins an assistant message.
    pub(crate) fn message(&mut self) {
        self.open.clear();
        if !self.throughout {
            self.taken.clear();
            self.used.clear();
        }
    }

    /// Returns the id of the message's next call.
    pub(crate) fn call(&mut self, logged: &'a str) -> String {
        let mut id = self.fitting(logged);
        let mut number = self.used.get(logged).copied().unwrap_or_default();
        while self.taken.contains(&id) {
            id = hashed(&format!("{logged} {number}"));
            number += 1;
        }
        self.used.insert(logged, number);
        self.taken.insert(id.clone());
        self.open.push_back((logged, id.clone()));
        id
    }

    /// Returns the id of the call that a result answers, if it answers the next one.
    pub(crate) fn result(&mut self, logged: &str) -> Option<String> {
        if self.open.front()?.0 != logged {
            return None;
        }
        self.open.pop_front().map(|(_, sent)| sent)
    }

    /// Returns the id itself, or one made of it that the target accepts.
    pub(crate) fn fitting(&self, logged: &str) -> String {
        if (self.fits)(logged) {
            logged.to_owned()
        } else {
            hashed(logged)
        }
    }
}

fn hashed(text: &str) -> String {
    format!("call_{}", &blake3::hash(text.as_bytes()).to_hex()[..32])
}

/// A part of an assistant message as it goes back to its issuer.
pub(crate) enum Replayed<'a> {
    /// An item that only the issuer can read, as it came.
    Own { kind: &'a str, raw: Box<RawValue> },
    /// A visible part, its position, and what else the issuer said of it.
    Part {
        at: usize,
        part: &'a AssistantPart,
        head: &'a str,
    },
}

/// Puts an answer together again from what is visible in it and what only its issuer can read.
///
/// `opaque` holds the issuer's items in order; those of kind `text` or `call` hold no content but
/// mark where the next visible part of that sort stood. Reasoning at the end is left out: no
/// provider accepts an answer that ends with it. Returns nothing when the two do not fit together,
/// or nothing is opaque.
pub(crate) fn replay<'a>(
    content: &'a [AssistantPart],
    opaque: &'a [Opaque],
    text: &str,
    call: &str,
) -> Option<Vec<Replayed<'a>>> {
    if opaque.is_empty() {
        return None;
    }
    let mut visible: VecDeque<(usize, &AssistantPart)> = content
        .iter()
        .enumerate()
        .filter(|(_, part)| match part {
            // The normaliser leaves such texts out, so their place is left out too.
            AssistantPart::Text { text } => !text.trim().is_empty(),
            AssistantPart::ToolCall { .. } => true,
            AssistantPart::Reasoning { .. } | AssistantPart::Unknown => false,
        })
        .collect();
    let mut out = Vec::with_capacity(opaque.len() + visible.len());
    for item in opaque {
        let wanted = |part: &AssistantPart| match part {
            AssistantPart::Text { .. } => item.kind == text,
            _ => item.kind == call,
        };
        if item.kind == text || item.kind == call {
            let (at, part) = visible.pop_front().filter(|(_, part)| wanted(part))?;
            let head = item.data.as_str();
            out.push(Replayed::Part { at, part, head });
            continue;
        }
        let raw = RawValue::from_string(item.data.clone()).ok()?;
        if !raw.get().starts_with('{') {
            return None;
        }
        let kind = item.kind.as_str();
        out.push(Replayed::Own { kind, raw });
    }
    out.extend(
        visible
            .into_iter()
            .map(|(at, part)| Replayed::Part { at, part, head: "" }),
    );
    while matches!(out.last(), Some(Replayed::Own { kind, .. }) if is_reasoning(kind)) {
        out.pop();
    }
    Some(out)
}

fn is_reasoning(kind: &str) -> bool {
    matches!(kind, "reasoning" | "thinking" | "redacted_thinking")
}

/// Returns the visible parts alone, as another issuer's answer is shown.
pub(crate) fn converted(content: &[AssistantPart]) -> Vec<Replayed<'_>> {
    let speaks = |part: &AssistantPart| match part {
        AssistantPart::Text { text } => !text.trim().is_empty(),
        AssistantPart::ToolCall { .. } => true,
        AssistantPart::Reasoning { .. } | AssistantPart::Unknown => false,
    };
    content
        .iter()
        .enumerate()
        .filter(|(_, part)| speaks(part))
        .map(|(at, part)| Replayed::Part { at, part, head: "" })
        .collect()
}

/// Records where a part of the history went.
pub(crate) fn place(path: &[usize], item: usize, part: Option<usize>) -> Place {
    Place {
        path: path.to_vec(),
        item,
        part,
    }
}

#[cfg(test)]
mod tests {
    use threadline_session::payload::ModelRef;

    use super::*;

    #[test]
    fn ids_are_unique_and_stable_however_they_repeat() {
        let fits = |id: &str| !id.is_empty() && id.len() < 10;
        let mut ids = Ids::new(fits, true);
        let mut sent = Vec::new();
        // The id that the first repetition gets is then used by the model itself.
        let taken = hashed("same 0");
        for id in [
            "same",
            "same",
            "",
            "",
            "same",
            "a long one.",
            &taken,
            &taken,
        ] {
            ids.message();
            let id_sent = ids.call(id);
            assert_eq!(ids.result(id).as_ref(), Some(&id_sent));
            assert!(!sent.contains(&id_sent), "{id}");
            sent.push(id_sent);
        }
        assert_eq!(sent[0], "same");
        assert_eq!(ids.result("same"), None);
    }

    #[test]
    fn an_answer_is_put_together_in_its_own_order() {
        let text = |text: &str| AssistantPart::Text { text: text.into() };
        let opaque = |kind: &str, data: &str| Opaque {
            issuer: ModelRef {
                provider: "p".into(),
                name: "m".into(),
            },
            kind: kind.into(),
            data: data.into(),
        };
        let content = [
            AssistantPart::Reasoning { text: "x".into() },
            text("a"),
            text(" \n"),
            text("b"),
        ];
        let shape = |opaque: &[Opaque]| {
            let parts = replay(&content, opaque, "text", "call")?;
            let shape: String = parts
                .iter()
                .map(|part| match part {
                    Replayed::Own { raw, .. } => raw.get().to_owned(),
                    Replayed::Part { at, .. } => at.to_string(),
                })
                .collect();
            Some(shape)
        };
        let own = || opaque("reasoning", "{ \"n\":1e1 }");
        assert_eq!(shape(&[own()]).as_deref(), Some("{ \"n\":1e1 }13"));
        let between = [own(), opaque("text", ""), own(), opaque("text", ""), own()];
        assert_eq!(
            shape(&between).as_deref(),
            Some("{ \"n\":1e1 }1{ \"n\":1e1 }3")
        );
        assert_eq!(shape(&[]), None);
        for broken in [
            vec![opaque("call", "")],
            vec![opaque("r", "{")],
            vec![opaque("r", "3")],
            vec![opaque("text", ""); 3],
        ] {
            assert_eq!(shape(&broken), None);
        }
    }
}
