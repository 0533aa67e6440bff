//! From the surface to a history that every provider accepts.

use std::sync::Arc;

use serde::Serialize;

use crate::{
    INTERRUPTED_MARK, Item, Transcript,
    payload::{AssistantPart, ContentPart, ModelRef, Opaque, ToolResult, replace_lone_surrogates},
    state::Refused,
};

/// One item of the history as a dialect renders it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "role",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum HistoryItem {
    /// Said to the model.
    User {
        /// Parts, never empty.
        content: Vec<ContentPart>,
    },
    /// Said by the model.
    Assistant {
        /// Parts; holds text or a call.
        content: Vec<AssistantPart>,
        /// What the target issued and needs back.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        opaque: Vec<Opaque>,
    },
    /// The result of a call; stands right after the call's message, in call order.
    Tool {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// Parts, never empty.
        content: Vec<ContentPart>,
        /// Whether it counts as a failure.
        is_error: bool,
    },
}

/// What normalising changed. All zero for a history that was valid as it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NormaliseReport {
    /// Calls without a result that were given one.
    pub missing_results: u64,
    /// Results that belonged to no call, or to one that had its result.
    pub orphan_results: u64,
    /// Parts replaced by a placeholder.
    pub placeholders: u64,
    /// Opaque items that another provider or model had issued, or that it refused.
    pub foreign_opaque: u64,
    /// Assistant messages without text or calls.
    pub empty_messages: u64,
    /// Argument texts that were no JSON object.
    pub bad_arguments: u64,
}

impl NormaliseReport {
    /// Returns whether nothing was changed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the history for a target provider and model, and what had to be changed.
///
/// Pure, deterministic and idempotent. It guarantees that every call has exactly one result
/// directly after its message in call order, that no part is empty, that arguments are JSON
/// objects, and that opaque items go back only to who issued them.
#[must_use]
pub fn normalise(
    transcript: &Transcript,
    target: &ModelRef,
) -> (Vec<HistoryItem>, NormaliseReport) {
    let mut report = NormaliseReport::default();
    let mut history = Vec::new();
    let refused = transcript
        .refused
        .iter()
        .find(|refused| refused.model == *target);
    let mut surface = transcript.surface().peekable();
    while let Some((seq, item)) = surface.next() {
        match item {
            Item::System(_) => {}
            Item::User(message) => {
                let content = parts(&message.content, "[empty message]", refused, &mut report);
                history.push(HistoryItem::User { content });
            }
            Item::Summary(summary) => {
                let content = parts(&summary.summary, "[empty summary]", refused, &mut report);
                history.push(HistoryItem::User { content });
            }
            Item::ToolResult(_) => report.orphan_results += 1,
            Item::Assistant(message) => {
                let calls: Vec<_> = message.calls().collect();
                let mut results: Vec<Arc<ToolResult>> = Vec::new();
                while results.len() < calls.len() {
                    let Some((_, Item::ToolResult(result))) = surface.peek() else {
                        break;
                    };
                    if !calls.iter().any(|call| call.call_id == result.call_id) {
                        break;
                    }
                    results.push(result.clone());
                    surface.next();
                }
                let content = assistant_parts(&message.content, &mut report);
                if content.is_empty() {
                    report.empty_messages += 1;
                    continue;
                }
                let opaque: Vec<_> = message
                    .opaque
                    .iter()
                    .filter(|o| o.issuer == *target)
                    .filter(|_| refused.is_none_or(|refused| seq >= refused.opaque_before))
                    .cloned()
                    .collect();
                report.foreign_opaque += (message.opaque.len() - opaque.len()) as u64;
                history.push(HistoryItem::Assistant { content, opaque });
                for call in calls {
                    let found = results
                        .iter()
                        .position(|result| result.call_id == call.call_id);
                    let (content, is_error) = match found.map(|at| results.remove(at)) {
                        Some(result) => (
                            parts(&result.content, "[no output]", refused, &mut report),
                            result.is_error,
                        ),
                        None => {
                            report.missing_results += 1;
                            let text = format!("{INTERRUPTED_MARK} this tool call has no result.");
                            (vec![ContentPart::text(text)], true)
                        }
                    };
                    history.push(HistoryItem::Tool {
                        call_id: call.call_id.into(),
                        name: call.name.into(),
                        content,
                        is_error,
                    });
                }
                report.orphan_results += results.len() as u64;
            }
        }
    }
    (history, report)
}

fn parts(
    given: &[ContentPart],
    empty: &str,
    refused: Option<&Refused>,
    report: &mut NormaliseReport,
) -> Vec<ContentPart> {
    let mut out = Vec::with_capacity(given.len());
    for part in given {
        match part {
            // Providers refuse a text of white space as they refuse an empty one.
            ContentPart::Text { text } if text.trim().is_empty() => {}
            ContentPart::Image { blob, .. }
                if refused.is_some_and(|refused| refused.blobs.contains(blob)) =>
            {
                report.placeholders += 1;
                out.push(ContentPart::text(
                    "[an image that the provider refused is left out here]",
                ));
            }
            ContentPart::Text { .. } | ContentPart::Image { .. } => out.push(part.clone()),
            ContentPart::Unknown => {
                report.placeholders += 1;
                out.push(ContentPart::text(
                    "[content of a kind this version cannot show]",
                ));
            }
        }
    }
    if out.is_empty() {
        report.placeholders += 1;
        out.push(ContentPart::text(empty));
    }
    out
}

/// A message that would hold only reasoning is dropped whole: no provider accepts one.
fn assistant_parts(given: &[AssistantPart], report: &mut NormaliseReport) -> Vec<AssistantPart> {
    let mut out = Vec::with_capacity(given.len());
    let mut speaks = false;
    for part in given {
        match part {
            AssistantPart::Text { text } if text.trim().is_empty() => {}
            AssistantPart::Reasoning { text } if text.is_empty() => {}
            AssistantPart::Unknown => report.placeholders += 1,
            AssistantPart::Reasoning { .. } => out.push(part.clone()),
            AssistantPart::Text { .. } => {
                speaks = true;
                out.push(part.clone());
            }
            AssistantPart::ToolCall {
                call_id,
                name,
                arguments,
            } => {
                speaks = true;
                let arguments = object_text(arguments, report);
                out.push(AssistantPart::ToolCall {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    arguments,
                });
            }
        }
    }
    if speaks { out } else { Vec::new() }
}

fn object_text(arguments: &str, report: &mut NormaliseReport) -> String {
    // Parsed in full: what is only skimmed may still be too deep, too large a number or half a
    // character for the dialects that send arguments as an object.
    let mended = replace_lone_surrogates(arguments);
    if serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&mended).is_ok() {
        return mended.into_owned();
    }
    if arguments.trim().is_empty() {
        return "{}".into();
    }
    report.bad_arguments += 1;
    serde_json::json!({ "invalid_arguments": arguments }).to_string()
}
