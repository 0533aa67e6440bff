use serde_json::json;

use super::*;

fn shell() -> Value {
    json!({"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": false})
}

fn body(input: Value) -> Value {
    json!({
        "model": "m", "stream": true, "store": false, "tools": [shell()],
        "include": ["reasoning.encrypted_content"], "input": input,
    })
}

fn user() -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]})
}

fn said() -> Value {
    json!({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "shell", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "ok"})
}

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"})
}

fn own_call() -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "shell", "arguments": "{}"})
}

fn issued() -> Issued {
    let mut issued = Issued::default();
    issued.output("m", &[reasoning(), own_call()]);
    issued
}

fn verdict(body: &Value) -> Result<(), Broken> {
    let body = body.to_string();
    check(body.as_bytes(), &mut BTreeSet::new(), &issued()).map(drop)
}

#[test]
fn valid_requests_pass() {
    for input in [
        json!("hi"),
        json!([user()]),
        json!([{"role": "user", "content": "hi"}, said(), user()]),
        json!([
            user(),
            call("a"),
            call("b"),
            output("b"),
            output("a"),
            user()
        ]),
        json!([user(), reasoning(), own_call(), output("a")]),
        json!([user(), reasoning(), call("a"), output("a")]),
        json!([{"role": "user", "content": [{"type": "input_image", "detail": "auto",
            "image_url": "data:image/gif;base64,R0lGODlh"}]}]),
        json!([user(), call("a"), {"type": "function_call_output", "call_id": "a",
            "output": [{"type": "input_text", "text": "x"}]}]),
    ] {
        assert_eq!(verdict(&body(input.clone())), Ok(()), "{input}");
    }
}

/// Checks that each is refused, and where.
fn refused(cases: &[(Value, &str)]) {
    for (input, param) in cases {
        let broken = verdict(&body(input.clone())).unwrap_err();
        assert_eq!(&broken.param, param, "{input}: {}", broken.message);
    }
}

#[test]
fn items_that_break_a_rule_are_refused() {
    let named = |key: &str, value: Value| {
        let mut item = call("a");
        item[key] = value;
        json!([user(), item, output("a")])
    };
    refused(&[
        (json!([]), "input"),
        (json!([{"role": "tool", "content": "x"}]), "input[0]"),
        (json!([{"role": "user", "content": ""}]), "input[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
            "input[0].content[0].type",
        ),
        (
            json!([{"role": "user", "content": [{"type": "input_text", "text": " "}]}]),
            "input[0].content[0].text",
        ),
        (
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,R0lGODlh"}]}]),
            "input[0].content[0].image_url",
        ),
        (
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/bmp;base64,Qk0="}]}]),
            "input[0].content[0].image_url",
        ),
        (json!([user(), call("a")]), "input[1]"),
        (json!([user(), call("a"), user(), output("a")]), "input[1]"),
        (json!([user(), output("a")]), "input[1]"),
        (
            json!([user(), call("a"), output("a"), output("a")]),
            "input[3]",
        ),
        (
            json!([user(), call("a"), call("a"), output("a")]),
            "input[2].call_id",
        ),
        (
            json!([user(), call("a"), output("a"), call("a"), output("a")]),
            "input[3].call_id",
        ),
        (named("call_id", json!("x".repeat(65))), "input[1].call_id"),
        (named("id", json!("call_1")), "input[1].id"),
        (named("name", json!("a b")), "input[1].name"),
        (named("name", json!("ghost")), "input[1].name"),
        (named("arguments", json!("[]")), "input[1].arguments"),
        (named("extra", json!(1)), "input[1].extra"),
        (
            json!([user(), {"role": "assistant", "content": []}, user()]),
            "input[1].content",
        ),
        (
            json!([user(), {"role": "assistant", "id": "x", "content": "x"}, user()]),
            "input[1].id",
        ),
    ]);
}

#[test]
fn reasoning_that_breaks_a_rule_is_refused() {
    let other = |key: &str, value: Value| {
        let mut item = reasoning();
        item[key] = value;
        json!([user(), item, own_call(), output("a")])
    };
    // Changed, without its content, of nobody, alone, and missing.
    refused(&[
        (
            other("summary", json!([{"type": "summary_text", "text": "x"}])),
            "input[1].encrypted_content",
        ),
        (
            other("encrypted_content", json!("gAAB")),
            "input[1].encrypted_content",
        ),
        (other("encrypted_content", Value::Null), "input[1]"),
        (other("id", json!("rs_2")), "input[1].encrypted_content"),
        (json!([user(), reasoning()]), "input"),
        (json!([user(), reasoning(), said(), user()]), "input"),
        (json!([user(), own_call(), output("a")]), "input[1]"),
    ]);
    let foreign = json!([user(), reasoning(), own_call(), output("a")]);
    let mut foreign = body(foreign);
    foreign["model"] = json!("m-2");
    assert_eq!(
        verdict(&foreign).unwrap_err().code,
        Some("invalid_encrypted_content")
    );
}

#[test]
fn options_are_checked() {
    for (key, value, param) in [
        ("store", json!(true), "store"),
        ("messages", json!([]), "messages"),
        ("include", json!(["x"]), "include"),
        ("temperature", json!(3), "temperature"),
        ("max_output_tokens", json!(1), "max_output_tokens"),
        ("reasoning", json!({"x": 1}), "reasoning.x"),
        ("stream", json!(1), "stream"),
        ("tools", json!([shell(), shell()]), "tools[1].name"),
        (
            "tools",
            json!([{"type": "function", "function": {}}]),
            "tools[0].function",
        ),
        ("model", json!(""), "model"),
    ] {
        let mut body = body(json!([user()]));
        body[key] = value;
        assert_eq!(verdict(&body).unwrap_err().param, param, "{key}");
    }
}
