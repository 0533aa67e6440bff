use serde_json::json;
use threadline_session::payload::AssistantPart;

use super::*;
use crate::{limits, testing};

const SEALED: &str = r#"{"id":"rs_1",  "type":"reasoning","summary":[{"type":"summary_text","text":"Let me\n\nsee"}],"encrypted_content":"gAAA+/=","n":1.0e2}"#;

fn answer() -> Answer {
    Answer::new("asked".into())
}

fn message(text: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        "phase": "commentary",
    })
}

fn call(index: usize, arguments: &str) -> Value {
    json!({
        "id": format!("fc_{index}"), "type": "function_call", "status": "completed",
        "call_id": format!("call_{index}"), "name": "shell", "arguments": arguments,
    })
}

fn added(index: usize, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: usize, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {
        "model": "real-1", "status": "completed", "output": [],
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 64},
            "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 20},
        },
    }})
}

/// A stream as the server sends it, calls interleaved.
fn events() -> Vec<Value> {
    let args = |index: usize, delta: &str| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta});
    let said = |delta: &str| json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": delta});
    let thought = |section: u64, delta: &str| {
        json!({
            "type": "response.reasoning_summary_text.delta", "output_index": 0,
            "summary_index": section, "delta": delta,
        })
    };
    vec![
        json!({"type": "response.created", "response": {"model": "real-1"}}),
        added(
            0,
            &json!({"id": "rs_1", "type": "reasoning", "summary": []}),
        ),
        thought(0, "Let "),
        thought(0, "me"),
        thought(1, "see"),
        done(0, &serde_json::from_str(SEALED).unwrap()),
        added(1, &json!({"type": "message", "content": []})),
        json!({"type": "response.content_part.added", "output_index": 1, "part": {}}),
        said("Grüße "),
        said("😀"),
        done(1, &message("Grüße 😀")),
        added(2, &call(2, "")),
        added(3, &call(3, "")),
        args(3, "{\"b\":"),
        args(2, "{\"a\":1}"),
        args(3, "\"\\n\"}"),
        done(2, &call(2, "{\"a\":1}")),
        done(3, &call(3, "{\"b\":\"\\n\"}")),
        completed(),
    ]
}

fn opaque_kinds(done: &Completion) -> Vec<&str> {
    done.opaque.iter().map(|o| o.kind.as_str()).collect()
}

#[test]
fn a_whole_answer_is_read_at_every_cut() {
    // The reasoning item as its bytes come, which a tree would not keep.
    let item = serde_json::from_str::<Value>(SEALED).unwrap().to_string();
    let stream = testing::stream(&events()).replace(&item, SEALED);
    assert!(stream.contains(SEALED));
    let done = testing::at_every_cut(&answer(), &stream);
    let tool = |n: usize, arguments: &str| AssistantPart::ToolCall {
        call_id: format!("call_{n}"),
        name: "shell".into(),
        arguments: arguments.into(),
    };
    assert_eq!(
        done.content,
        [
            AssistantPart::Reasoning {
                text: "Let me\n\nsee".into()
            },
            AssistantPart::Text {
                text: "Grüße 😀".into()
            },
            tool(2, "{\"a\":1}"),
            tool(3, "{\"b\":\"\\n\"}"),
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
        reasoning_tokens: Some(20),
    };
    assert_eq!(done.usage, Some(usage));
    assert_eq!(
        opaque_kinds(&done),
        ["reasoning", "message", "function_call", "function_call"]
    );
    assert_eq!(done.opaque[0].data, SEALED, "byte for byte");
    assert_eq!(
        (
            done.opaque[0].issuer.provider.as_str(),
            done.opaque[0].issuer.name.as_str()
        ),
        (NAME, "asked")
    );
    let head: Value = serde_json::from_str(&done.opaque[1].data).unwrap();
    assert_eq!(
        (head["phase"].as_str(), head.get("content")),
        (Some("commentary"), None)
    );
}

#[test]
fn nothing_in_a_stream_can_break_the_decoder() {
    testing::garbage(&answer(), &events());
    for data in ["", "x", "[]", "{", "{\"type\":1}", "data: {}", "null"] {
        let stream = format!("data: {data}\n\n");
        drop(testing::decode(answer(), &[stream.as_bytes()]));
    }
}

#[test]
fn servers_that_leave_events_out_are_understood() {
    let whole = json!({"type": "response.completed", "response": {"output": [
        serde_json::from_str::<Value>(SEALED).unwrap(), message("Hi"), call(0, "{}"),
    ]}});
    for events in [
        vec![whole],
        vec![
            done(0, &serde_json::from_str(SEALED).unwrap()),
            done(1, &message("Hi")),
            done(2, &call(0, "{}")),
            completed(),
        ],
        vec![
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "H"}),
            done(0, &serde_json::from_str(SEALED).unwrap()),
            done(1, &message("Hi")),
            done(2, &call(0, "{}")),
            completed(),
        ],
    ] {
        let stream = testing::stream(&events);
        let done = testing::decode(answer(), &[stream.as_bytes()]).end.unwrap();
        let said: Vec<_> = done
            .content
            .iter()
            .map(|part| match part {
                AssistantPart::Text { text } | AssistantPart::Reasoning { text } => text.as_str(),
                AssistantPart::ToolCall { call_id, .. } => call_id,
                AssistantPart::Unknown => "",
            })
            .collect();
        assert!(
            said.contains(&"Hi") && said.contains(&"call_0") && said.len() == 3,
            "{said:?}"
        );
        assert_eq!(done.opaque.len(), 3);
    }
}

#[test]
fn only_what_is_of_use_to_the_issuer_is_kept() {
    let plain = json!({"type": "message", "content": [{"type": "output_text", "text": "Hi"}]});
    let sealed: Value = serde_json::from_str(SEALED).unwrap();
    let unsealed = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let broken = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "gA\u{fffd}"});
    let unknown = json!({"type": "brain_scan", "id": "bs_1", "x": [1]});
    let blank = json!({"type": "message", "phase": "final", "content": [{"type": "output_text", "text": " "}]});
    for (items, wanted) in [
        (vec![&plain], vec![]),
        (vec![&unsealed, &plain], vec![]),
        (vec![&broken, &plain], vec![]),
        (vec![&unknown, &plain], vec!["brain_scan", "message"]),
        (vec![&blank, &plain], vec![]),
        // Reasoning does not go without the item that it led to.
        (vec![&sealed, &sealed, &blank, &plain], vec![]),
        (
            vec![&sealed, &blank, &sealed, &plain],
            vec!["reasoning", "message"],
        ),
    ] {
        let mut events: Vec<Value> = items
            .iter()
            .enumerate()
            .map(|(n, item)| done(n, item))
            .collect();
        events.push(completed());
        let stream = testing::stream(&events);
        let done = testing::decode(answer(), &[stream.as_bytes()]).end.unwrap();
        assert_eq!(opaque_kinds(&done), wanted, "{items:?}");
    }
}

#[test]
fn reasoning_is_kept_as_long_as_the_answer_fits_into_an_event() {
    let answered = |bytes: usize| {
        let sealed = json!({"type": "reasoning", "encrypted_content": "x".repeat(bytes)});
        // Quotes are twice as long in the log.
        let events = [
            done(0, &sealed),
            done(1, &message("\"quoted\"")),
            completed(),
        ];
        let stream = testing::stream(&events);
        testing::decode(answer(), &[stream.as_bytes()]).end.unwrap()
    };
    let size = |done: &Completion| {
        serde_json::to_string(&(&done.opaque, &done.content))
            .unwrap()
            .len()
    };
    let room = limits::MAX_KEPT_BYTES - size(&answered(1));
    let full = answered(1 + room);
    assert_eq!(
        (full.opaque.len(), size(&full)),
        (2, limits::MAX_KEPT_BYTES)
    );
    assert!(answered(2 + room).opaque.is_empty());
}

#[test]
fn items_beyond_the_limits_are_refused() {
    let plain = json!({"type": "message", "content": []});
    for (items, item) in [
        (limits::MAX_BLOCKS, plain),
        (limits::MAX_TOOL_CALLS, call(1, "")),
    ] {
        for (count, fits) in [(items, true), (items + 1, false)] {
            let mut events: Vec<Value> = (0..count).map(|n| added(n, &item)).collect();
            events.push(completed());
            let stream = testing::stream(&events);
            let end = testing::decode(answer(), &[stream.as_bytes()]).end;
            assert_eq!(end.is_ok(), fits, "{count} of {item}");
        }
    }
}

#[test]
fn surrogates_and_bad_bytes_are_replaced() {
    let stream = b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\\ud800b\xff\"}\n\n\
        data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\"{\\\"x\\\":\\\"\\\\udc00\\\"}\"}\n\n\
        data: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"function_call\",\"name\":\"n\"}}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{}}\n\n";
    let mut answer = answer();
    let mut events = crate::sse::Decoder::default();
    let mut chunks = Vec::new();
    events
        .feed(stream, &mut |data: &str| {
            answer.event(data, &mut chunks).map(drop)
        })
        .unwrap();
    let done = answer.complete().unwrap();
    assert_eq!(
        done.content,
        [
            AssistantPart::Text {
                text: "a\u{fffd}b\u{fffd}".into()
            },
            AssistantPart::ToolCall {
                call_id: "call_0".into(),
                name: "n".into(),
                arguments: r#"{"x":"\ufffd"}"#.into(),
            },
        ]
    );
}

#[test]
fn errors_in_the_stream_are_typed() {
    for (event, code) in [
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null}),
            "rate_limited",
        ),
        (
            json!({"type": "error", "error": {"code": "server_error", "message": "x"}}),
            "provider_status",
        ),
        (json!({"error": {"message": "x"}}), "provider_status"),
        (
            json!({"type": "response.failed", "response": {"error": null}}),
            "provider_status",
        ),
        (json!({"type": "response.failed"}), "provider_status"),
        (
            json!({"type": "response.failed", "response": {"error": {"code": "insufficient_quota", "message": "pay"}}}),
            "insufficient_quota",
        ),
        (
            json!({"type": "response.cancelled", "response": {}}),
            "provider_status",
        ),
    ] {
        let stream = testing::stream(std::slice::from_ref(&event));
        let error = testing::decode(answer(), &[stream.as_bytes()])
            .end
            .unwrap_err();
        assert_eq!(error.code(), code, "{event}");
    }
}
