//! Spans of runs, model calls and tool calls, under the names that OpenTelemetry gives them.
//!
//! Source: OpenTelemetry semantic conventions for generative AI, spans `invoke_agent`, `chat` and
//! `execute_tool`. Nothing that was said is in them, since that is in the log, unless
//! [`AgentsConfig::span_content`](crate::AgentsConfig::span_content) asks for it.

use serde::Serialize;
use serde_json::{Value, json};
use threadline_model::Completion;
use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, TurnContext, Usage, plain_text},
};
use tracing::{Span, field::Empty, info_span};

use crate::{Run, limits::SPAN_CONTENT_BYTES, tools::text::head};

/// The span of a run.
pub(crate) fn run(run: &Run, context: &TurnContext) -> Span {
    info_span!(
        "invoke_agent",
        otel.name = "invoke_agent threadline",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = "threadline",
        gen_ai.conversation.id = %run.session_id(),
        gen_ai.provider.name = %context.provider,
        gen_ai.request.model = %context.model,
        threadline.run.id = %run.run_id(),
        threadline.end.reason = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    )
}

/// The span of a model call.
pub(crate) fn chat(context: &TurnContext, step: u64) -> Span {
    info_span!(
        "chat",
        otel.name = format!("chat {}", context.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = %context.provider,
        gen_ai.request.model = %context.model,
        gen_ai.request.temperature = context.temperature,
        threadline.step = whole(step),
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        "error.type" = Empty,
    )
}

/// The span of a tool call.
pub(crate) fn tool(name: &str, call_id: &str) -> Span {
    info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.call.id = call_id,
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        threadline.tool.outcome = Empty,
    )
}

/// Notes what a call took.
pub(crate) fn usage(span: &Span, usage: &Usage) {
    span.record("gen_ai.usage.input_tokens", whole(usage.input_tokens));
    span.record("gen_ai.usage.output_tokens", whole(usage.output_tokens));
    if let Some(cached) = usage.cached_input_tokens {
        span.record("gen_ai.usage.cache_read.input_tokens", whole(cached));
    }
}

/// OpenTelemetry has signed numbers only; others become text on the way there.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Notes what a request says that the one before did not: what came behind the newest answer.
pub(crate) fn asked(span: &Span, request: &Request) {
    let answer = |item: &HistoryItem| matches!(item, HistoryItem::Assistant { .. });
    let from = request
        .items
        .iter()
        .rposition(answer)
        .map_or(0, |at| at + 1);
    let items = request.items.get(from..).unwrap_or_default();
    let messages: Vec<Value> = items
        .iter()
        .filter_map(|item| match item {
            HistoryItem::User { content } => {
                let text = plain_text(content);
                Some(json!({"role": "user", "parts": [{"type": "text", "content": text}]}))
            }
            HistoryItem::Tool {
                call_id, content, ..
            } => {
                let text = plain_text(content);
                let part = json!({"type": "tool_call_response", "id": call_id, "response": text});
                Some(json!({"role": "tool", "parts": [part]}))
            }
            HistoryItem::Assistant { .. } => None,
        })
        .collect();
    content(
        span,
        "gen_ai.input.messages",
        &Value::from(messages).to_string(),
    );
}

/// Notes what a model answered.
pub(crate) fn answered(span: &Span, completion: &Completion) {
    let part = |part: &AssistantPart| match part {
        AssistantPart::Text { text } => Some(json!({"type": "text", "content": text})),
        AssistantPart::Reasoning { text } => Some(json!({"type": "reasoning", "content": text})),
        AssistantPart::ToolCall {
            call_id,
            name,
            arguments,
        } => Some(json!({
            "type": "tool_call", "id": call_id, "name": name, "arguments": arguments,
        })),
        AssistantPart::Unknown => None,
    };
    let parts: Vec<Value> = completion.content.iter().filter_map(part).collect();
    let messages = json!([{"role": "assistant", "parts": parts}]);
    content(span, "gen_ai.output.messages", &messages.to_string());
}

/// Notes what was said, as far as a span has room for it.
pub(crate) fn content(span: &Span, field: &'static str, text: &str) {
    span.record(field, head(text, SPAN_CONTENT_BYTES));
}

/// Notes a value by the word that the log has for it.
pub(crate) fn word(span: &Span, field: &'static str, value: &impl Serialize) {
    let word = serde_json::to_string(value).unwrap_or_default();
    span.record(field, word.trim_matches('"'));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{
        Subscriber,
        field::{Field, Visit},
        span::{Attributes, Id, Record},
        subscriber::with_default,
    };
    use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _, registry};

    use threadline_session::payload::Outcome;

    use super::*;

    /// Keeps names and fields of spans.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl Visit for &Seen {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            let mut seen = self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            seen.push(format!("{}={value:?}", field.name()));
        }
    }

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            attributes.record(&mut &*self);
        }

        fn on_record(&self, _: &Id, record: &Record<'_>, _: Context<'_, S>) {
            record.record(&mut &*self);
        }
    }

    #[test]
    fn a_tool_call_has_the_fields_of_the_conventions() {
        let seen = Seen::default();
        with_default(registry().with(seen.clone()), || {
            let span = tool("shell", "call-1");
            word(&span, "threadline.tool.outcome", &Outcome::NotStarted);
        });
        let seen = seen.0.lock().map(|seen| seen.join(" ")).unwrap_or_default();
        for field in [
            "otel.name=\"execute_tool shell\"",
            "gen_ai.operation.name=\"execute_tool\"",
            "gen_ai.tool.name=\"shell\"",
            "gen_ai.tool.call.id=\"call-1\"",
            "threadline.tool.outcome=\"not_started\"",
        ] {
            assert!(seen.contains(field), "{field} in {seen}");
        }
    }
}
