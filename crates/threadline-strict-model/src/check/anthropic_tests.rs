use serde_json::json;

use super::*;

fn body(messages: Value) -> Value {
    json!({
        "model": "m", "stream": true, "max_tokens": 5000, "messages": messages,
        "cache_control": {"type": "ephemeral"},
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "shell", "input_schema": {"type": "object"}}],
    })
}

fn user() -> Value {
    json!({"role": "user", "content": "hi"})
}

fn text() -> Value {
    json!({"type": "text", "text": "x"})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "shell", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn said(blocks: &[Value]) -> Value {
    json!({"role": "assistant", "content": blocks})
}

fn back(blocks: &[Value]) -> Value {
    json!({"role": "user", "content": blocks})
}

fn thinking() -> Value {
    json!({"type": "thinking", "thinking": "t", "signature": "s"})
}

fn redacted() -> Value {
    json!({"type": "redacted_thinking", "data": "d"})
}

fn verdict(body: &Value) -> Result<(), Broken> {
    let mut issued = Issued::default();
    issued.content("m", &[thinking(), text(), redacted(), call("t1")]);
    check(body.to_string().as_bytes(), &mut BTreeSet::new(), &issued).map(drop)
}

fn thinks(messages: Value, kind: &str) -> Value {
    let mut body = body(messages);
    body["thinking"] = match kind {
        "enabled" => json!({"type": kind, "budget_tokens": 1024}),
        _ => json!({"type": kind}),
    };
    body
}

/// A turn that goes on: what was issued, and its result.
fn going_on() -> Value {
    json!([
        user(),
        said(&[thinking(), text(), redacted(), call("t1")]),
        back(&[result("t1")])
    ])
}

#[test]
fn valid_requests_pass() {
    for messages in [
        json!([user()]),
        json!([user(), said(&[text()]), user()]),
        json!([
            user(),
            said(&[call("a"), call("b")]),
            back(&[result("b"), result("a"), text()])
        ]),
        json!([user(), {"role": "assistant", "content": "x"}, user()]),
        json!([back(&[json!({"type": "image", "source": {
            "type": "base64", "media_type": "image/gif", "data": "R0lGODlh"}})])]),
        going_on(),
    ] {
        assert_eq!(verdict(&body(messages.clone())), Ok(()), "{messages}");
    }
    for kind in ["enabled", "adaptive"] {
        assert_eq!(verdict(&thinks(going_on(), kind)), Ok(()), "{kind}");
    }
    // A later answer of the turn need not think, and a turn before need not have.
    let later = json!([
        user(),
        said(&[text()]),
        user(),
        said(&[thinking(), text(), redacted(), call("t1")]),
        back(&[result("t1")]),
        said(&[call("t2")]),
        back(&[result("t2")]),
    ]);
    assert_eq!(verdict(&thinks(later, "enabled")), Ok(()));
}

/// Checks that each is refused, and where.
fn refused(cases: &[(Value, &str)]) {
    for (messages, param) in cases {
        let broken = verdict(&body(messages.clone())).unwrap_err();
        assert_eq!(&broken.param, param, "{messages}: {}", broken.message);
    }
}

#[test]
fn messages_that_break_a_rule_are_refused() {
    let image = |media_type: &str, data: &str| {
        back(&[json!({"type": "image", "source": {
            "type": "base64", "media_type": media_type, "data": data}})])
    };
    refused(&[
        (json!([]), "messages"),
        (json!([said(&[text()]), user()]), "messages.0"),
        (json!([user(), user()]), "messages.1"),
        (json!([user(), said(&[text()])]), "messages"),
        (
            json!([{"role": "system", "content": "x"}]),
            "messages.0.role",
        ),
        (json!([back(&[])]), "messages.0.content"),
        (
            json!([{"role": "user", "content": " "}]),
            "messages.0.content.0",
        ),
        (
            json!([back(&[json!({"type": "text", "text": ""})])]),
            "messages.0.content.0",
        ),
        (
            json!([
                user(),
                said(&[json!({"type": "text", "text": "\n"})]),
                user()
            ]),
            "messages.1.content.0",
        ),
        (
            json!([image("image/png", "R0lGODlh")]),
            "messages.0.content.0.image.source.base64",
        ),
        (
            json!([image("image/bmp", "Qk0=")]),
            "messages.0.content.0.image.source.base64",
        ),
        (
            json!([image("image/gif", "?")]),
            "messages.0.content.0.image.source.base64",
        ),
    ]);
}

#[test]
fn calls_and_results_that_break_a_rule_are_refused() {
    let failed = json!({"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlh"}}]});
    refused(&[
        (json!([user(), said(&[call("a")]), user()]), "messages.2"),
        (
            json!([user(), said(&[call("a"), call("b")]), back(&[result("a")])]),
            "messages.2",
        ),
        (
            json!([user(), said(&[text()]), back(&[result("a")])]),
            "messages.2.content.0",
        ),
        (
            json!([user(), said(&[call("a")]), back(&[text(), result("a")])]),
            "messages.2.content.1",
        ),
        (
            json!([
                user(),
                said(&[call("a")]),
                back(&[result("a"), result("a")])
            ]),
            "messages.2.content.1",
        ),
        (
            json!([user(), said(&[call("a")]), back(&[failed])]),
            "messages.2.content.0",
        ),
        (
            json!([user(), said(&[call("a.b")]), back(&[result("a.b")])]),
            "messages.1.content.0.tool_use.id",
        ),
        (
            json!([user(), said(&[call("a"), call("a")]), back(&[result("a")])]),
            "messages.1.content.1",
        ),
        (
            json!([
                user(),
                said(&[call("a")]),
                back(&[result("a")]),
                said(&[call("a")]),
                back(&[result("a")])
            ]),
            "messages.3.content.0",
        ),
        (
            json!([
                user(),
                said(&[json!({"type": "tool_use", "id": "a", "name": "shell", "input": "{}"})]),
                back(&[result("a")])
            ]),
            "messages.1.content.0.tool_use.input",
        ),
        (
            json!([
                user(),
                said(&[json!({"type": "tool_use", "id": "a", "name": "ghost", "input": {}})]),
                back(&[result("a")])
            ]),
            "messages.1.content.0.tool_use.name",
        ),
    ]);
}

#[test]
fn thinking_that_breaks_a_rule_is_refused() {
    let edited = json!({"type": "thinking", "thinking": "u", "signature": "s"});
    // Changed, at the end, moved, and part of it missing.
    refused(&[
        (
            json!([user(), said(&[edited, text()]), user()]),
            "messages.1.content.0",
        ),
        (
            json!([user(), said(&[text(), thinking()]), user()]),
            "messages.1",
        ),
        (
            json!([
                user(),
                said(&[thinking(), redacted(), text(), call("t1")]),
                back(&[result("t1")])
            ]),
            "messages.1.content.0",
        ),
        (
            json!([
                user(),
                said(&[thinking(), text(), call("t1")]),
                back(&[result("t1")])
            ]),
            "messages.1.content.0",
        ),
    ]);
    let unthought = json!([user(), said(&[call("t1")]), back(&[result("t1")])]);
    let broken = verdict(&thinks(unthought, "enabled")).unwrap_err();
    assert_eq!(broken.param, "messages.1.content.0.type");
    assert_eq!(
        verdict(&thinks(going_on(), "disabled")).unwrap_err().param,
        "messages.1"
    );
    let mut foreign = body(going_on());
    foreign["model"] = json!("m-2");
    assert!(
        verdict(&foreign)
            .unwrap_err()
            .message
            .contains("Invalid `signature`")
    );
}

#[test]
fn options_are_checked() {
    let mark = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    for (key, value, param) in [
        ("max_tokens", Value::Null, "max_tokens"),
        ("input", json!([]), "input"),
        ("temperature", json!(1.5), "temperature"),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": 10}),
            "thinking.enabled.budget_tokens",
        ),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": 5000}),
            "thinking.enabled.budget_tokens",
        ),
        ("thinking", json!({"type": "x"}), "thinking.type"),
        ("cache_control", json!({"type": "x"}), "cache_control"),
        ("system", json!(""), "system"),
        ("system", json!([{"type": "text", "text": " "}]), "system.0"),
        ("system", json!([mark, mark, mark, mark]), "cache_control"),
        (
            "tools",
            json!([{"name": "a.b", "input_schema": {"type": "object"}}]),
            "tools.0.name",
        ),
        (
            "tools",
            json!([{"name": "a", "parameters": {}}]),
            "tools.0.parameters",
        ),
        ("tools", json!([{"name": "a"}]), "tools.0.input_schema.type"),
        ("stream", json!(1), "stream"),
    ] {
        let mut body = body(json!([user()]));
        body[key] = value;
        assert_eq!(verdict(&body).unwrap_err().param, param, "{key}");
    }
    let mut body = thinks(json!([user()]), "adaptive");
    body["temperature"] = json!(0.5);
    assert_eq!(verdict(&body).unwrap_err().param, "temperature");
}
