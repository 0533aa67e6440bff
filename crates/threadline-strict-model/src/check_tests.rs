use serde_json::json;

use super::*;

fn shell() -> Value {
    json!({"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}})
}

fn body(messages: Value) -> Value {
    json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true},
        "tools": [shell()], "messages": messages,
    })
}

fn verdict(body: &Value) -> Result<(), Broken> {
    check(body.to_string().as_bytes(), &mut BTreeSet::new()).map(|_| ())
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn calls(list: &[Value]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": list})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "ok"})
}

fn user() -> Value {
    json!({"role": "user", "content": "hi"})
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

#[test]
fn valid_requests_pass() {
    let two = [
        call("a", "shell", "{}"),
        call("b", "shell", r#"{"x":"\ud83d\ude00"}"#),
    ];
    for messages in [
        json!([user()]),
        json!([{"role": "system", "content": "s"}, user(), user()]),
        json!([{"role": "developer", "content": "s"}, user(), said("x"), user()]),
        json!([user(), calls(&two), result("a"), result("b"), user()]),
        json!([
            user(),
            calls(&two),
            result("a"),
            result("b"),
            calls(&two),
            result("a"),
            result("b")
        ]),
        json!([{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
    ] {
        verdict(&body(messages.clone())).unwrap_or_else(|e| panic!("{messages}: {e:?}"));
    }
}

#[test]
fn broken_messages_are_refused() {
    let ab = calls(&[call("a", "shell", "{}"), call("b", "shell", "{}")]);
    let one = |call: Value| json!([user(), calls(&[call]), result("a")]);
    let user_with = |content: Value| json!([{"role": "user", "content": content}]);
    for (messages, param) in [
        (json!([]), "messages"),
        (
            json!([user(), {"role": "system", "content": "s"}]),
            "messages[1]",
        ),
        (json!([{"role": "bot", "content": "s"}]), "messages[0].role"),
        (json!([result("a")]), "messages[0].role"),
        (json!([user(), ab]), "messages"),
        (json!([user(), ab, result("a")]), "messages"),
        (
            json!([user(), ab, result("a"), user(), result("b")]),
            "messages[3]",
        ),
        (
            json!([user(), ab, result("b"), result("a")]),
            "messages[2].tool_call_id",
        ),
        (
            json!([user(), ab, result("a"), result("a")]),
            "messages[3].tool_call_id",
        ),
        (
            json!([user(), ab, result("a"), result("b"), result("b")]),
            "messages[4].role",
        ),
        (
            json!([
                user(),
                calls(&[call("a", "shell", "{}"), call("a", "shell", "{}")])
            ]),
            "messages[1].tool_calls[1].id",
        ),
        (one(call("", "shell", "{}")), "messages[1].tool_calls[0].id"),
        (
            one(call(&"a".repeat(41), "shell", "{}")),
            "messages[1].tool_calls[0].id",
        ),
        (
            one(call("a", "other", "{}")),
            "messages[1].tool_calls[0].function.name",
        ),
        (
            one(call("a", "a b", "{}")),
            "messages[1].tool_calls[0].function.name",
        ),
        (
            one(call("a", "shell", "")),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            one(call("a", "shell", "[]")),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            one(call("a", "shell", r#"{"x":"\ud83d"}"#)),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (json!([user(), calls(&[])]), "messages[1].tool_calls"),
        (json!([user(), said("")]), "messages[1].content"),
        (
            json!([user(), {"role": "assistant"}]),
            "messages[1].content",
        ),
        (
            json!([user(), {"role": "assistant", "content": "", "tool_calls": [call("a", "shell", "{}")]}]),
            "messages[1].content",
        ),
        (
            json!([{"role": "assistant", "content": "x", "reasoning_content": "y"}]),
            "messages[0].reasoning_content",
        ),
        (user_with(json!("")), "messages[0].content"),
        (user_with(json!([])), "messages[0].content"),
        (
            user_with(json!([{"type": "text", "text": ""}])),
            "messages[0].content[0]",
        ),
        (user_with(json!(null)), "messages[0].content"),
        (user_with(json!("a\0b")), ".messages[0].content"),
    ] {
        let error = verdict(&body(messages.clone())).expect_err(&messages.to_string());
        assert_eq!(error.param, param, "{messages}: {}", error.message);
    }
}

#[test]
fn broken_options_are_refused() {
    for (key, value) in [
        ("surprise", json!(1)),
        ("model", json!("")),
        ("stream", json!("yes")),
        ("stream", json!(false)),
        ("stream_options", json!({"x": true})),
        ("temperature", json!(3)),
        ("tools", json!([])),
        ("tools", json!([shell(), shell()])),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a.b"}}]),
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a", "parameters": {}}}]),
        ),
    ] {
        let mut body = body(json!([user()]));
        body[key] = value.clone();
        assert!(verdict(&body).is_err(), "{key} {value}");
    }
    let mut known = BTreeSet::new();
    for bytes in [
        &b"{"[..],
        b"[]",
        b"\xff",
        br#"{"model":"m","messages":[{"role":"user","content":"\ud800"}]}"#,
    ] {
        assert!(check(bytes, &mut known).is_err());
    }
}

#[test]
fn a_tool_stays_known_once_declared() {
    let mut known = BTreeSet::new();
    let first = body(json!([user()])).to_string();
    check(first.as_bytes(), &mut known).unwrap();
    let mut second = body(json!([
        user(),
        calls(&[call("a", "shell", "{}")]),
        result("a")
    ]));
    second.as_object_mut().unwrap().remove("tools");
    check(second.to_string().as_bytes(), &mut known).unwrap();
    assert!(verdict(&second).is_err());
}
