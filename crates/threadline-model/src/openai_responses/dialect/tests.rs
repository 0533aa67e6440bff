use super::*;

fn request(items: Vec<HistoryItem>) -> Request {
    Request {
        provider: NAME.into(),
        model: "gpt-5".into(),
        system: "Be kind.".into(),
        tools: vec![ToolDefinition {
            name: "shell".into(),
            description: "Runs.".into(),
            parameters: json!({"type": "object"}),
        }],
        items,
        temperature: None,
    }
}

fn call(id: &str, arguments: &str) -> AssistantPart {
    AssistantPart::ToolCall {
        call_id: id.into(),
        name: "shell".into(),
        arguments: arguments.into(),
    }
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::Text { text: text.into() }
}

fn result(id: &str, content: Vec<ContentPart>) -> HistoryItem {
    HistoryItem::Tool {
        call_id: id.into(),
        name: "shell".into(),
        content,
        is_error: false,
    }
}

fn user(text: &str) -> HistoryItem {
    HistoryItem::User {
        content: vec![ContentPart::text(text)],
    }
}

fn opaque(model: &str, kind: &str, data: &str) -> Opaque {
    Opaque {
        issuer: ModelRef {
            provider: NAME.into(),
            name: model.into(),
        },
        kind: kind.into(),
        data: data.into(),
    }
}

fn json_of(request: &Request) -> String {
    body(request, &Images::default(), &Options::default()).json
}

#[test]
fn a_whole_conversation_is_rendered() {
    let mut request = request(vec![
        HistoryItem::User {
            content: vec![
                ContentPart::text("look"),
                ContentPart::Image {
                    media_type: "image/png".into(),
                    blob: "ab".into(),
                },
            ],
        },
        HistoryItem::Assistant {
            content: vec![
                AssistantPart::Reasoning { text: "hm".into() },
                text("On it."),
                call("a", "{}"),
                call(&"b".repeat(65), "{\"x\":\"\\ud800\"}"),
            ],
            opaque: Vec::new(),
        },
        result("a", vec![ContentPart::text("x\0y"), ContentPart::text("z")]),
        result(&"b".repeat(65), vec![ContentPart::text(" ")]),
    ]);
    request.temperature = Some(0.5);
    let mut images = Images::default();
    images.insert("ab", &b"GIF89a"[..]);
    let options = Options {
        max_output_tokens: Some(100),
        effort: Some("high".into()),
        summary: Some("auto".into()),
    };
    let found = body(&request, &images, &options).value();
    let long = found["input"][3]["call_id"].as_str().unwrap().to_owned();
    assert!(long.starts_with("call_") && long.len() < 40);
    assert_eq!(
        found,
        json!({
            "model": "gpt-5",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 100,
            "reasoning": {"effort": "high", "summary": "auto"},
            "temperature": 0.5,
            "tools": [{"type": "function", "name": "shell", "description": "Runs.",
                       "parameters": {"type": "object"}, "strict": false}],
            "instructions": "Be kind.",
            "input": [
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "detail": "auto",
                     "image_url": "data:image/gif;base64,R0lGODlh"},
                ]},
                {"type": "message", "role": "assistant", "content": [
                    {"type": "output_text", "text": "On it.", "annotations": []}]},
                {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"},
                {"type": "function_call", "call_id": &long, "name": "shell",
                 "arguments": "{\"x\":\"\\ufffd\"}"},
                {"type": "function_call_output", "call_id": "a", "output": "x\u{fffd}y\nz"},
                {"type": "function_call_output", "call_id": &long, "output": "[no output]"},
            ],
        })
    );
}

#[test]
fn what_was_issued_goes_back_with_its_bytes_and_in_its_place() {
    let sealed = r#"{ "type":"reasoning",  "id":"rs_1","encrypted_content":"gAAA","n":1.0e2 }"#;
    let answer = |model: &str| HistoryItem::Assistant {
        content: vec![
            AssistantPart::Reasoning { text: "hm".into() },
            text("First."),
            call("c", "{}"),
        ],
        opaque: vec![
            opaque(model, "reasoning", sealed),
            opaque(
                model,
                MESSAGE,
                r#"{"id":"msg_1","status":"completed","phase":"commentary","new":[1],"none":null,"role":"x"}"#,
            ),
            opaque(model, "brain_scan", r#"{"type":"brain_scan"}"#),
            opaque(model, CALL, r#"{"id":"fc_1","status":"completed"}"#),
            opaque(model, "reasoning", sealed),
        ],
    };
    let items = |model| {
        vec![
            user("a"),
            answer(model),
            result("c", vec![ContentPart::text("r")]),
        ]
    };
    let found = json_of(&request(items("gpt-5")));
    let wanted = [
        sealed,
        r#"{"content":[{"annotations":[],"text":"First.","type":"output_text"}],"id":"msg_1","new":[1],"phase":"commentary","role":"assistant","status":"completed","type":"message"}"#,
        r#"{"type":"brain_scan"}"#,
        r#"{"arguments":"{}","call_id":"c","id":"fc_1","name":"shell","status":"completed","type":"function_call"}"#,
        r#"{"call_id":"c","output":"r","type":"function_call_output"}]}"#,
    ];
    assert!(found.ends_with(&wanted.join(",")), "{found}");
    // Of another model, or no longer fitting to what is visible: the visible alone goes.
    let foreign = json_of(&request(items("gpt-6")));
    assert!(
        !foreign.contains("gAAA") && !foreign.contains("msg_1"),
        "{foreign}"
    );
    let mut changed = items("gpt-5");
    if let HistoryItem::Assistant { content, .. } = &mut changed[1] {
        content.remove(1);
    }
    let changed = json_of(&request(changed));
    assert!(
        !changed.contains("gAAA") && changed.contains("\"call_id\":\"c\""),
        "{changed}"
    );
}

#[test]
fn models_that_do_not_reason_are_not_asked_to() {
    for (model, asked) in [
        ("gpt-5.2-codex", true),
        ("o4-mini", true),
        ("gpt-oss-120b", true),
        ("gpt-4.1", false),
        ("openai/gpt-4o", false),
        ("chatgpt-4o-latest", false),
    ] {
        let mut request = request(vec![user("a")]);
        request.model = model.into();
        assert_eq!(
            json_of(&request).contains("encrypted_content"),
            asked,
            "{model}"
        );
    }
}

#[test]
fn an_empty_history_still_asks_for_something() {
    let mut request = request(Vec::new());
    request.system = "  ".into();
    request.tools.clear();
    let found = body(&request, &Images::default(), &Options::default()).value();
    assert_eq!(found["input"][0]["content"][0]["text"], GOES_ON);
    assert_eq!(
        (found.get("instructions"), found.get("tools")),
        (None, None)
    );
}
