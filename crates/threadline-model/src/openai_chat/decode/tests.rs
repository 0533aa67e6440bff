use serde_json::json;

use threadline_session::payload::AssistantPart;

use super::*;
use crate::limits;

fn frame(delta: &Value) -> String {
    json!({ "model": "m-1", "choices": [{ "index": 0, "delta": delta }] }).to_string()
}

fn calls(pieces: &[Value]) -> Vec<Value> {
    vec![json!({ "tool_calls": pieces })]
}

/// Decodes deltas and a finish, checks that the chunks add up to the parts, returns the answer.
fn decode(deltas: &[Value], finish: &str) -> Result<Completion, ModelError> {
    let mut answer = Answer::new("asked".into());
    let mut chunks = Vec::new();
    for delta in deltas {
        assert_eq!(answer.event(&frame(delta), &mut chunks)?, Progress::Writing);
    }
    let last = json!({ "choices": [{ "delta": {}, "finish_reason": finish }] }).to_string();
    assert_eq!(answer.event(&last, &mut chunks)?, Progress::Finished);
    assert_eq!(answer.event("[DONE]", &mut chunks)?, Progress::Complete);
    let done = answer.complete()?;
    for (at, part) in done.content.iter().enumerate() {
        let streamed: String = chunks
            .iter()
            .filter(|chunk| chunk.index as usize == at)
            .map(|chunk| chunk.delta.as_str())
            .collect();
        match part {
            AssistantPart::Text { text } | AssistantPart::Reasoning { text } => {
                assert_eq!(&streamed, text);
            }
            AssistantPart::ToolCall { arguments, .. } if streamed.is_empty() => {
                assert_eq!(arguments, "{}");
            }
            AssistantPart::ToolCall { arguments, .. } => assert_eq!(&streamed, arguments),
            AssistantPart::Unknown => panic!("unknown part"),
        }
    }
    Ok(done)
}

fn triples(done: &Completion) -> Vec<(&str, &str, &str)> {
    done.content
        .iter()
        .filter_map(|part| match part {
            AssistantPart::ToolCall {
                call_id,
                name,
                arguments,
            } => Some((call_id.as_str(), name.as_str(), arguments.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn text_and_reasoning_become_parts_in_order_of_appearance() {
    for key in ["reasoning", "reasoning_content"] {
        let done = decode(
            &[
                json!({"role": "assistant", "content": ""}),
                json!({key: "let "}),
                json!({key: "me"}),
                json!({"content": "Hel", "refusal": null}),
                json!({"content": "lo"}),
            ],
            "stop",
        )
        .unwrap();
        assert_eq!(
            done.content,
            [
                AssistantPart::Reasoning {
                    text: "let me".into()
                },
                AssistantPart::Text {
                    text: "Hello".into()
                },
            ]
        );
        assert_eq!(
            (done.stop_reason, done.model.as_str()),
            (StopReason::Stop, "m-1")
        );
    }
}

#[test]
fn interleaved_parallel_calls_are_told_apart_by_index() {
    let deltas: Vec<Value> = [
        json!({"index": 0, "id": "a", "type": "function", "function": {"name": "x", "arguments": ""}}),
        json!({"index": 1, "id": "b", "function": {"name": "y", "arguments": "{\"p"}}),
        json!({"index": 0, "function": {"arguments": "{\"q\""}}),
        json!({"index": 1, "function": {"arguments": "\":1}"}}),
        json!({"index": 0, "function": {"arguments": ":2}"}}),
    ]
    .into_iter()
    .flat_map(|piece| calls(&[piece]))
    .collect();
    let done = decode(&deltas, "tool_calls").unwrap();
    assert_eq!(
        triples(&done),
        [("a", "x", "{\"q\":2}"), ("b", "y", "{\"p\":1}")]
    );
    assert_eq!(done.stop_reason, StopReason::ToolCalls);
}

#[test]
fn servers_with_their_own_ways_are_understood() {
    let whole = json!({"function": {"name": "x", "arguments": "{}"}});
    let two = calls(&[whole.clone(), whole]);
    // Neither index nor id.
    assert_eq!(
        triples(&decode(&two, "stop").unwrap()),
        [("call_0", "x", "{}"), ("call_1", "x", "{}")]
    );
    // Every call has index 0, and its own id.
    let same_index = calls(&[
        json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}),
        json!({"index": 0, "id": "b", "function": {"name": "x", "arguments": "{}"}}),
    ]);
    assert_eq!(
        triples(&decode(&same_index, "stop").unwrap()),
        [("a", "x", "{}"), ("b", "x", "{}")]
    );
    // The id and name repeat with every piece; or every piece has a new id.
    for (second, name) in [("a", Some("x")), ("other", None)] {
        let deltas = calls(&[
            json!({"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"k\":"}}),
            json!({"index": 0, "id": second, "function": {"name": name, "arguments": "1}"}}),
        ]);
        assert_eq!(
            triples(&decode(&deltas, "stop").unwrap()),
            [("a", "x", "{\"k\":1}")]
        );
    }
    // No index: pieces follow their call's beginning.
    let no_index = calls(&[
        json!({"id": "a", "function": {"name": "x"}}),
        json!({"function": {"arguments": "{\"k\":"}}),
        json!({"id": "a", "function": {"arguments": "1}"}}),
        json!({"id": "b", "function": {"name": "y", "arguments": {"z": [1]}}}),
    ]);
    assert_eq!(
        triples(&decode(&no_index, "stop").unwrap()),
        [("a", "x", "{\"k\":1}"), ("b", "y", "{\"z\":[1]}")]
    );
    // Two calls share an id, and a call has no arguments at all.
    let shared = calls(&[
        json!({"index": 0, "id": "a", "function": {"name": "x"}}),
        json!({"index": 1, "id": "a", "function": {"name": "y", "arguments": null}}),
    ]);
    assert_eq!(
        triples(&decode(&shared, "stop").unwrap()),
        [("a", "x", "{}"), ("call_1", "y", "{}")]
    );
}

#[test]
fn lone_surrogates_never_enter() {
    let mut answer = Answer::new("m".into());
    let mut out = Vec::new();
    for data in [
        r#"{"choices":[{"delta":{"content":"a\ud83d"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"i","function":{"name":"x","arguments":"{\"k\":\"\\ud8"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"00\"}"}}]}}]}"#,
        r#"{"choices":[{"finish_reason":"tool_calls"}]}"#,
    ] {
        answer.event(data, &mut out).unwrap();
    }
    let done = answer.complete().unwrap();
    assert_eq!(
        done.content.first(),
        Some(&AssistantPart::Text {
            text: "a\u{fffd}".into()
        })
    );
    let arguments = triples(&done)[0].2;
    assert_eq!(arguments, r#"{"k":"\ufffd"}"#);
    serde_json::from_str::<Value>(arguments).unwrap();
}

#[test]
fn usage_is_read_in_every_spelling() {
    for (given, cached, reasoning) in [
        (
            json!({"prompt_tokens": 9, "completion_tokens": 4}),
            None,
            None,
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 4,
                   "prompt_tokens_details": {"cached_tokens": 7},
                   "completion_tokens_details": {"reasoning_tokens": 2}}),
            Some(7),
            Some(2),
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 5}),
            Some(5),
            None,
        ),
    ] {
        let wanted = Usage {
            input_tokens: 9,
            output_tokens: 4,
            cached_input_tokens: cached,
            reasoning_tokens: reasoning,
        };
        assert_eq!(usage(&given), Some(wanted));
    }
    assert_eq!(usage(&Value::Null), None);
}

#[test]
fn the_end_is_known_by_finish_reason_or_done() {
    for (events, wanted) in [
        (vec![], None),
        (vec![r#"{"choices":[{"delta":{"content":"a"}}]}"#], None),
        (vec!["[DONE]"], Some(StopReason::Stop)),
        (
            vec![r#"{"choices":[{"finish_reason":"length"}]}"#],
            Some(StopReason::Length),
        ),
        (
            vec![
                r#"{"choices":[{"finish_reason":"content_filter"}]}"#,
                "[DONE]",
            ],
            Some(StopReason::ContentFilter),
        ),
        (
            vec![r#"{"choices":[{"finish_reason":"eos"}]}"#],
            Some(StopReason::Other),
        ),
    ] {
        let mut answer = Answer::new("m".into());
        for event in events {
            answer.event(event, &mut Vec::new()).unwrap();
        }
        match answer.complete() {
            Ok(done) => assert_eq!(Some(done.stop_reason), wanted),
            Err(error) => assert_eq!((error.code(), wanted), ("cut_stream", None)),
        }
    }
}

#[test]
fn nonsense_is_a_typed_error() {
    for (data, code) in [
        ("{", "malformed_response"),
        ("[]", "malformed_response"),
        ("hello", "malformed_response"),
        (
            r#"{"error":{"message":"overloaded","code":529}}"#,
            "provider_status",
        ),
        (r#"{"error":"context window full"}"#, "context_length"),
    ] {
        let error = Answer::new("m".into())
            .event(data, &mut Vec::new())
            .unwrap_err();
        assert_eq!(error.code(), code, "{data}");
    }
    let nameless = calls(&[json!({"index": 0, "id": "a", "function": {"arguments": "{}"}})]);
    assert_eq!(
        decode(&nameless, "stop").unwrap_err().code(),
        "malformed_response"
    );
    let mut answer = Answer::new("m".into());
    for n in 0..=limits::MAX_TOOL_CALLS {
        let data = frame(&json!({"tool_calls": [{"index": n, "function": {"name": "x"}}]}));
        let result = answer.event(&data, &mut Vec::new());
        assert_eq!(result.is_err(), n == limits::MAX_TOOL_CALLS, "call {n}");
    }
}
