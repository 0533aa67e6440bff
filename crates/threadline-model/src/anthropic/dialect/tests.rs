use super::*;

fn request(items: Vec<HistoryItem>) -> Request {
    Request {
        provider: NAME.into(),
        model: "claude".into(),
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

fn result(id: &str, content: Vec<ContentPart>, is_error: bool) -> HistoryItem {
    HistoryItem::Tool {
        call_id: id.into(),
        name: "shell".into(),
        content,
        is_error,
    }
}

fn user(text: &str) -> HistoryItem {
    HistoryItem::User {
        content: vec![ContentPart::text(text)],
    }
}

fn image() -> ContentPart {
    ContentPart::Image {
        media_type: "image/png".into(),
        blob: "ab".into(),
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

fn rendered(request: &Request, options: Options) -> Value {
    let mut images = Images::default();
    images.insert("ab", &b"GIF89a"[..]);
    body(request, &images, &options).value()
}

fn messages(items: Vec<HistoryItem>) -> Value {
    rendered(&request(items), Options::default())["messages"].clone()
}

#[test]
fn a_whole_conversation_is_rendered() {
    let mut request = request(vec![
        HistoryItem::User {
            content: vec![ContentPart::text("look"), image()],
        },
        HistoryItem::Assistant {
            content: vec![
                AssistantPart::Reasoning { text: "hm".into() },
                text("On it."),
                call("a", "{}"),
                call("call.1|x", "{\"x\":1}"),
            ],
            opaque: Vec::new(),
        },
        result("a", vec![ContentPart::text("x\0y"), image()], true),
        result("call.1|x", vec![ContentPart::text(" ")], true),
        user("and?"),
    ]);
    request.temperature = Some(1.5);
    let found = rendered(&request, Options::default());
    let id = found["messages"][1]["content"][2]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(fits(&id) && id.starts_with("call_"));
    let image = json!({"type": "image", "source": {
        "type": "base64", "media_type": "image/gif", "data": "R0lGODlh"}});
    assert_eq!(
        found,
        json!({
            "model": "claude",
            "max_tokens": 32_000,
            "stream": true,
            "temperature": 1.0,
            "cache_control": {"type": "ephemeral"},
            "tools": [{"name": "shell", "description": "Runs.", "input_schema": {"type": "object"}}],
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}, &image]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "On it."},
                    {"type": "tool_use", "id": "a", "name": "shell", "input": {}},
                    {"type": "tool_use", "id": &id, "name": "shell", "input": {"x": 1}},
                ]},
                {"role": "user", "content": [
                    // An error with an image in it cannot be marked as one.
                    {"type": "tool_result", "tool_use_id": "a", "content": [
                        {"type": "text", "text": "x\u{fffd}y"}, &image]},
                    {"type": "tool_result", "tool_use_id": &id, "is_error": true, "content": [
                        {"type": "text", "text": "[no output]"}]},
                    {"type": "text", "text": "and?"},
                ]},
            ],
        })
    );
}

#[test]
fn thinking_goes_back_with_its_bytes_and_in_its_place() {
    let signed = r#"{"signature":"s",  "thinking":"x","type":"thinking","n":1.0e2}"#;
    let items = |model: &str| {
        let answer = HistoryItem::Assistant {
            content: vec![
                text("One."),
                call("c", "{ \"n\": 12345678901234567890123 }"),
            ],
            opaque: vec![
                opaque(model, "thinking", signed),
                opaque(model, TEXT, ""),
                opaque(
                    model,
                    "redacted_thinking",
                    r#"{"type":"redacted_thinking","data":"d"}"#,
                ),
            ],
        };
        vec![
            user("a"),
            answer,
            result("c", vec![ContentPart::text("r")], false),
        ]
    };
    let json_of = |items| body(&request(items), &Images::default(), &Options::default()).json;
    let found = json_of(items("claude"));
    let wanted = [
        signed,
        r#"{"text":"One.","type":"text"}"#,
        r#"{"type":"redacted_thinking","data":"d"}"#,
        r#"{"id":"c","input":{ "n": 12345678901234567890123 },"name":"shell","type":"tool_use"}]}"#,
    ];
    assert!(found.contains(&wanted.join(",")), "{found}");
    let foreign = json_of(items("other"));
    assert!(!foreign.contains("thinking"), "{foreign}");
    let mut changed = items("claude");
    if let HistoryItem::Assistant { content, .. } = &mut changed[1] {
        content.remove(0);
    }
    assert!(!json_of(changed).contains("thinking"));
}

#[test]
fn a_turn_without_thinking_at_its_start_is_finished_without_it() {
    let thought = |lead: bool| HistoryItem::Assistant {
        content: vec![text("One."), call("c", "{}")],
        opaque: if lead {
            vec![opaque("claude", "thinking", r#"{"type":"thinking"}"#)]
        } else {
            Vec::new()
        },
    };
    let answer = || result("c", vec![ContentPart::text("r")], false);
    let options = Options {
        max_output_tokens: Some(500),
        thinking: Some(Thinking::Budget(10)),
    };
    let enabled = json!({"type": "enabled", "budget_tokens": 1024});
    for (lead, wanted, kept) in [(true, enabled, 3), (false, json!({"type": "disabled"}), 1)] {
        let items = vec![
            user("a"),
            thought(true),
            answer(),
            HistoryItem::Assistant {
                content: vec![text("Done.")],
                opaque: Vec::new(),
            },
            user("b"),
            thought(lead),
            answer(),
            thought(true),
            answer(),
        ];
        let mut request = request(items);
        request.temperature = Some(0.5);
        let found = rendered(&request, options);
        assert_eq!(found["thinking"], wanted);
        assert_eq!(found["max_tokens"], 1024 + 4096);
        assert_eq!(found.get("temperature").is_some(), !lead);
        let history = found["messages"].to_string();
        assert_eq!(
            history.matches("{\"type\":\"thinking\"}").count(),
            kept,
            "{history}"
        );
    }
    let adaptive = Options {
        thinking: Some(Thinking::Adaptive),
        ..Options::default()
    };
    let found = rendered(
        &request(vec![user("a"), thought(false), answer()]),
        adaptive,
    );
    assert_eq!(found["thinking"], json!({"type": "adaptive"}));
}

#[test]
fn ids_are_unique_in_the_whole_request() {
    let step = || {
        [
            HistoryItem::Assistant {
                content: vec![call("same", "{}"), call("same", "{}")],
                opaque: Vec::new(),
            },
            result("same", vec![ContentPart::text("1")], false),
            result("same", vec![ContentPart::text("2")], false),
        ]
    };
    let mut items = vec![user("a")];
    for _ in 0..3 {
        items.extend(step());
    }
    let found = messages(items);
    let mut ids = Vec::new();
    for n in 0..3 {
        for block in 0..2 {
            let id = &found[1 + 2 * n]["content"][block]["id"];
            assert_eq!(id, &found[2 + 2 * n]["content"][block]["tool_use_id"]);
            assert!(!ids.contains(&id), "{id}");
            ids.push(id);
        }
    }
}

#[test]
fn arguments_are_always_an_object_without_nul() {
    for (arguments, wanted) in [
        ("{}", json!({})),
        ("", json!({})),
        ("[1]", json!({"invalid_arguments": "[1]"})),
        ("{\"a\":", json!({"invalid_arguments": "{\"a\":"})),
        (
            r#"{"a\u0000":["\u0000"]}"#,
            json!({"a\u{fffd}": ["\u{fffd}"]}),
        ),
        // A text about the escape is none.
        (r#"{"a":"\\u0000"}"#, json!({"a": "\\u0000"})),
        (r#"{"a":"\\\u0000"}"#, json!({"a": "\\\u{fffd}"})),
        (r#"{"a":"\ud800"}"#, json!({"a": "\u{fffd}"})),
    ] {
        let block: Value = serde_json::from_str(tool_use("i", "n", arguments).get()).unwrap();
        assert_eq!(block["input"], wanted, "{arguments}");
    }
}

#[test]
fn the_user_speaks_first_last_and_in_turns() {
    let said = || HistoryItem::Assistant {
        content: vec![text("x")],
        opaque: Vec::new(),
    };
    let orphan = result("nobody", vec![ContentPart::text("r")], false);
    for items in [
        vec![],
        vec![said()],
        vec![said(), said(), user("a"), user("b")],
        vec![orphan, said()],
    ] {
        let found = messages(items);
        let roles: Vec<&str> = found
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["role"].as_str().unwrap())
            .collect();
        for (n, role) in roles.iter().enumerate() {
            assert_eq!(*role, ["user", "assistant"][n % 2], "{found}");
        }
        assert_eq!(roles.last(), Some(&"user"));
        assert!(!found.to_string().contains("tool_result"));
    }
}
