//! Items that a provider will not take, and going on without them.

use serde_json::json;
use threadline_model::{Images, ModelError, RejectedKind};
use threadline_session::{
    HistoryItem,
    payload::{ContentPart, ModelRef, Opaque},
};
use threadline_strict_model::{Reply, Step, StrictModel};

use crate::support::{ONLINE, call, drain, provider_of, request_of, text, tool_call, user};

fn image() -> ContentPart {
    ContentPart::Image {
        media_type: "image/png".into(),
        blob: "ab".into(),
    }
}

#[tokio::test]
async fn reasoning_of_another_account_is_refused_named_and_left_out() {
    for (name, kind, data, place, path) in [
        (
            "openai-responses",
            RejectedKind::EncryptedReasoning,
            json!({"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "foreign"}),
            Some(1),
            Some("input[1].encrypted_content"),
        ),
        (
            "anthropic",
            RejectedKind::ThinkingSignature,
            json!({"type": "thinking", "thinking": "hm", "signature": "foreign"}),
            Some(1),
            Some("messages.1.content.0"),
        ),
    ] {
        let model = StrictModel::start([]).await.unwrap();
        let provider = provider_of(name, &model.base_url());
        let answer = HistoryItem::Assistant {
            content: vec![text("hello")],
            opaque: vec![Opaque {
                issuer: ModelRef {
                    provider: name.into(),
                    name: "m".into(),
                },
                kind: data["type"].as_str().unwrap().into(),
                data: data.to_string(),
            }],
        };
        let mut request = request_of(name, vec![user("a"), answer, user("b")]);
        let error = call(&*provider, request.clone()).await.end.unwrap_err();
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection.kind, kind);
        assert_eq!((rejection.item, rejection.path.as_deref()), (place, path));
        assert!(error.to_string().contains(path.unwrap()), "{error}");
        assert!(rejection.mend(&mut request));
        call(&*provider, request).await.end.unwrap();
    }
}

#[tokio::test]
async fn a_refused_image_is_named_in_every_dialect() {
    let mut images = Images::default();
    images.insert("ab", &b"\x89PNG\r\n\x1a\n"[..]);
    for (name, path) in [
        ("openai-chat", "messages.[4].content.[1].image_url"),
        ("openai-responses", "input[3].output[1].image_url"),
        (
            "anthropic",
            "messages.2.content.0.tool_result.content.1.image.source.base64",
        ),
    ] {
        let refusal = Reply::status(400).message(format!("{path}: image exceeds 5 MB maximum"));
        let model = StrictModel::start([refusal]).await.unwrap();
        let provider = provider_of(name, &model.base_url());
        let mut items = vec![user("a")];
        items.push(HistoryItem::Assistant {
            content: vec![text("look"), tool_call("c", "{}")],
            opaque: Vec::new(),
        });
        items.push(HistoryItem::Tool {
            call_id: "c".into(),
            name: "shell".into(),
            content: vec![ContentPart::text("see"), image()],
            is_error: false,
        });
        let mut request = request_of(name, items);
        let stream = provider.stream_with(request.clone(), &images);
        let error = drain(stream).await.end.unwrap_err();
        let ModelError::ItemRejected(rejection) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(rejection.kind, RejectedKind::ImageTooLarge);
        assert_eq!(
            (rejection.item, rejection.part),
            (Some(2), Some(1)),
            "{name}"
        );
        assert_eq!(Images::wanted(&request), ["ab"]);
        assert!(rejection.mend(&mut request));
        assert!(Images::wanted(&request).is_empty());
        let stream = provider.stream_with(request, &images);
        drain(stream).await.end.unwrap();
        model.assert_no_violations();
        let sent = model.requests().pop().unwrap().json.to_string();
        assert!(
            sent.contains("[image image/png, too large for the provider]"),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn images_that_are_lost_wrong_or_huge_end_no_session() {
    for bytes in [None, Some(b"no image".to_vec()), Some(vec![0xFF; 6 << 20])] {
        let mut images = Images::default();
        if let Some(mut bytes) = bytes {
            if bytes.len() > 10 {
                bytes[..4].copy_from_slice(b"\xff\xd8\xff\xe0");
            }
            images.insert("ab", bytes);
        }
        for name in ONLINE {
            let model = StrictModel::start([]).await.unwrap();
            let provider = provider_of(name, &model.base_url());
            let items = vec![HistoryItem::User {
                content: vec![image()],
            }];
            let stream = provider.stream_with(request_of(name, items), &images);
            let done = drain(stream).await.end.unwrap();
            let said = format!("{:?}", done.content);
            assert!(said.contains("echo: [image image/"), "{said}");
            model.assert_no_violations();
        }
    }
}

#[tokio::test]
async fn a_busy_provider_inside_a_stream_is_asked_again_until_it_speaks() {
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let busy = || Step::Raw(busy.into());
    let model = StrictModel::start([
        // What was begun before the error is no part of the next attempt's answer.
        Reply::steps([
            Step::ToolStart {
                index: 0,
                id: "t".into(),
                name: "shell".into(),
            },
            busy(),
        ])
        .cut(),
        Reply::status(529).code("overloaded_error"),
        Reply::text("fine"),
        Reply::text("half ").step(busy()),
    ])
    .await
    .unwrap();
    let provider = provider_of("anthropic", &model.base_url());
    let request = || request_of("anthropic", vec![user("a")]);
    let outcome = call(&*provider, request()).await;
    assert_eq!(outcome.end.unwrap().content, [text("fine")]);
    let told: Vec<_> = outcome
        .retries
        .iter()
        .map(|r| (r.attempt, r.status))
        .collect();
    assert_eq!(told, [(1, Some(529)), (2, Some(529))]);
    let outcome = call(&*provider, request()).await;
    assert_eq!((outcome.retries.len(), outcome.chunks.len()), (0, 1));
    assert_eq!(outcome.end.unwrap_err().status(), Some(529));
}

#[tokio::test]
async fn responses_that_fail_or_stop_early_say_so() {
    use threadline_session::payload::StopReason::{ContentFilter, Length};
    let failed = |code: &str| Reply::text("x ").finish("failed").code(code).message("no");
    let model = StrictModel::start([
        Reply::text("half ").finish("length"),
        Reply::text("half ").finish("content_filter"),
        failed("context_length_exceeded"),
        failed("server_error"),
        failed("rate_limit_exceeded"),
        failed("invalid_image_format"),
        Reply::text("half ").finish("cancelled"),
        Reply::text("half ").cut(),
    ])
    .await
    .unwrap();
    let provider = provider_of("openai-responses", &model.base_url());
    let mut seen = Vec::new();
    for _ in 0..8 {
        let request = request_of("openai-responses", vec![user("a")]);
        seen.push(match call(&*provider, request).await.end {
            Ok(done) => Ok(done.stop_reason),
            Err(error) => Err(error.code()),
        });
    }
    let wanted = [
        Ok(Length),
        Ok(ContentFilter),
        Err("context_length"),
        Err("provider_status"),
        Err("rate_limited"),
        Err("item_rejected"),
        Err("provider_status"),
        Err("cut_stream"),
    ];
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn keys_go_where_each_provider_looks_for_them() {
    let model = StrictModel::start([]).await.unwrap();
    for name in ONLINE {
        for end in ["", "/"] {
            let provider = provider_of(name, &format!("{}{end}", model.base_url()));
            call(&*provider, request_of(name, vec![user("a")]))
                .await
                .end
                .unwrap();
        }
        let sent = model.requests().pop().unwrap();
        let key = crate::support::KEY;
        if name == "anthropic" {
            assert_eq!(
                (sent.authorization, sent.api_key.as_deref()),
                (None, Some(key))
            );
        } else {
            assert_eq!(sent.authorization, Some(format!("Bearer {key}")));
        }
    }
    // Without the version, and with the whole route.
    let base = model.base_url();
    for base in [
        base.trim_end_matches("/v1").to_owned(),
        format!("{base}/messages"),
    ] {
        let provider = provider_of("anthropic", &base);
        call(&*provider, request_of("anthropic", vec![user("a")]))
            .await
            .end
            .unwrap();
    }
}
