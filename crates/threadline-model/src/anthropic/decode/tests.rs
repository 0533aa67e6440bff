use serde_json::json;
use threadline_session::payload::AssistantPart;

use super::*;
use crate::{limits, testing};

fn answer() -> Answer {
    Answer::new("asked".into())
}

fn start(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn thinking(text: &str) -> Value {
    json!({"type": "thinking_delta", "thinking": text})
}

fn signature(text: &str) -> Value {
    json!({"type": "signature_delta", "signature": text})
}

fn text(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

fn input(text: &str) -> Value {
    json!({"type": "input_json_delta", "partial_json": text})
}

fn tool(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "shell", "input": {}})
}

fn ends(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 30}}),
        json!({"type": "message_stop"}),
    ]
}

/// A stream as the server sends it, with thinking between the blocks.
fn events() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"model": "real-1", "usage": {
            "input_tokens": 10, "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 26, "output_tokens": 1,
        }}}),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        json!({"type": "ping"}),
        delta(0, thinking("Let ")),
        delta(0, thinking("me 😀")),
        delta(0, signature("sig")),
        delta(0, signature("+/=")),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, text("Grüße")),
        stop(1),
        start(
            2,
            json!({"type": "redacted_thinking", "data": "sealed", "extra": 1}),
        ),
        stop(2),
        start(3, tool("toolu_1")),
        delta(3, input("")),
        delta(3, input("{\"a\":")),
        delta(3, input(" 12345678901234567890123}")),
        stop(3),
        start(4, tool("toolu_2")),
        stop(4),
        start(5, json!({"type": "hologram", "beams": []})),
        stop(5),
    ];
    events.extend(ends("tool_use"));
    events
}

fn decoded(events: &[Value]) -> Completion {
    let stream = testing::stream(events);
    testing::decode(answer(), &[stream.as_bytes()]).end.unwrap()
}

#[test]
fn a_whole_answer_is_read_at_every_cut() {
    let done = testing::at_every_cut(&answer(), &testing::stream(&events()));
    let tool = |id: &str, arguments: &str| AssistantPart::ToolCall {
        call_id: id.into(),
        name: "shell".into(),
        arguments: arguments.into(),
    };
    assert_eq!(
        done.content,
        [
            AssistantPart::Reasoning {
                text: "Let me 😀".into()
            },
            AssistantPart::Text {
                text: "Grüße".into()
            },
            tool("toolu_1", "{\"a\": 12345678901234567890123}"),
            tool("toolu_2", "{}"),
        ]
    );
    assert_eq!(
        (done.stop_reason, done.model.as_str()),
        (StopReason::ToolCalls, "real-1")
    );
    let usage = Usage {
        input_tokens: 100,
        output_tokens: 30,
        cached_input_tokens: Some(64),
        reasoning_tokens: None,
    };
    assert_eq!(done.usage, Some(usage));
    // As JSON: the order of its keys is that of the program's other dependencies.
    let kept: Vec<(&str, Option<Value>)> = done
        .opaque
        .iter()
        .map(|o| {
            let parsed = (!o.data.is_empty()).then(|| serde_json::from_str(&o.data).unwrap());
            (o.kind.as_str(), parsed)
        })
        .collect();
    let thinking = json!({"type": "thinking", "thinking": "Let me 😀", "signature": "sig+/="});
    let redacted = json!({"type": "redacted_thinking", "data": "sealed", "extra": 1});
    assert_eq!(
        kept,
        [
            ("thinking", Some(thinking)),
            ("text", None),
            ("redacted_thinking", Some(redacted)),
        ]
    );
    assert!(
        done.opaque
            .iter()
            .all(|o| o.issuer.provider == NAME && o.issuer.name == "asked")
    );
}

#[test]
fn nothing_in_a_stream_can_break_the_decoder() {
    testing::garbage(&answer(), &events());
    for data in [
        "",
        "x",
        "[]",
        "{",
        "{\"type\":1}",
        "{\"type\":\"content_block_delta\"}",
        "null",
    ] {
        let stream = format!("data: {data}\n\n");
        drop(testing::decode(answer(), &[stream.as_bytes()]));
    }
}

#[test]
fn every_stop_reason_has_a_meaning() {
    for (reason, wanted) in [
        ("end_turn", StopReason::Stop),
        ("stop_sequence", StopReason::Stop),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("refusal", StopReason::ContentFilter),
        ("pause_turn", StopReason::Other),
        ("tool_use", StopReason::ToolCalls),
        ("new_in_2027", StopReason::Other),
    ] {
        let mut events = vec![start(0, json!({"type": "text", "text": "x"})), stop(0)];
        events.extend(ends(reason));
        assert_eq!(decoded(&events).stop_reason, wanted, "{reason}");
    }
    // A stop reason without the final event is an end; neither of both is none.
    let whole = ends("end_turn");
    assert_eq!(decoded(&whole[..1]).stop_reason, StopReason::Stop);
    let cut = testing::stream(&events()[..5]);
    let end = testing::decode(answer(), &[cut.as_bytes()]).end;
    assert_eq!(end.unwrap_err().code(), "cut_stream");
}

#[test]
fn thinking_that_would_be_refused_is_not_kept() {
    let begun = || {
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        )
    };
    let said = || start(1, json!({"type": "text", "text": "x"}));
    for (pieces, kept) in [
        (vec![delta(0, thinking("a")), delta(0, signature("s"))], 1),
        // Never shown, but signed: the way of models that keep their thinking to themselves.
        (vec![delta(0, signature("s"))], 1),
        (vec![delta(0, thinking("a"))], 0),
        (
            vec![delta(0, thinking("a\u{fffd}")), delta(0, signature("s"))],
            0,
        ),
    ] {
        let mut events = vec![begun()];
        events.extend(pieces);
        events.extend([stop(0), said(), stop(1)]);
        events.extend(ends("end_turn"));
        assert_eq!(decoded(&events).opaque.len(), kept, "{events:?}");
    }
    let mut events = vec![
        begun(),
        delta(0, thinking("HALF")),
        delta(0, signature("s")),
    ];
    events.extend(ends("end_turn"));
    let stream = testing::stream(&events).replace("HALF", "\\ud800");
    let done = testing::decode(answer(), &[stream.as_bytes()]).end.unwrap();
    assert!(done.opaque.is_empty());
    assert_eq!(
        done.content,
        [AssistantPart::Reasoning {
            text: "\u{fffd}".into()
        }]
    );
}

#[test]
fn arguments_may_come_with_the_start_of_a_call() {
    let given = json!({"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}});
    for middle in [vec![], vec![stop(0)], vec![delta(0, input("{\"a\":1}"))]] {
        let mut events = vec![start(0, given.clone())];
        events.extend(middle);
        events.extend(ends("tool_use"));
        let done = decoded(&events);
        let wanted = AssistantPart::ToolCall {
            call_id: "t".into(),
            name: "n".into(),
            arguments: "{\"a\":1}".into(),
        };
        assert_eq!(done.content, [wanted]);
    }
}

#[test]
fn errors_in_the_stream_are_typed() {
    for (kind, code, status) in [
        ("overloaded_error", "provider_status", Some(529)),
        ("api_error", "provider_status", Some(500)),
        ("rate_limit_error", "rate_limited", Some(429)),
        ("authentication_error", "auth", Some(401)),
        ("request_too_large", "context_length", None),
        ("new_error", "provider_status", Some(200)),
    ] {
        let event = json!({"type": "error", "error": {"type": kind, "message": "x"}});
        let stream = testing::stream(&[event]);
        let error = testing::decode(answer(), &[stream.as_bytes()])
            .end
            .unwrap_err();
        assert_eq!((error.code(), error.status()), (code, status), "{kind}");
    }
}

#[test]
fn blocks_beyond_the_limits_are_refused() {
    for (most, block) in [
        (limits::MAX_BLOCKS, json!({"type": "text", "text": ""})),
        (limits::MAX_TOOL_CALLS, tool("t")),
    ] {
        for (count, fits) in [(most, true), (most + 1, false)] {
            let mut events: Vec<Value> = (0..count).map(|n| start(n, block.clone())).collect();
            events.extend(ends("end_turn"));
            let stream = testing::stream(&events);
            let end = testing::decode(answer(), &[stream.as_bytes()]).end;
            assert_eq!(end.is_ok(), fits, "{count} of {block}");
        }
    }
}
