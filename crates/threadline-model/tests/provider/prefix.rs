//! Properties of request bodies over random histories.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use threadline_model::{Images, PROVIDERS, ProviderConfig, build};
use threadline_session::{
    HistoryItem,
    payload::{AssistantPart, ContentPart, ModelRef, Opaque},
};

use crate::support::{drain, request_of, text, tool_call, tool_result, user};

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,12}",
        Just("é😀\"\\\n".to_owned()),
        Just("a\0b".to_owned()),
        "\\PC{1,8}",
    ]
}

fn image() -> ContentPart {
    ContentPart::Image {
        media_type: "image/png".into(),
        blob: "ab".into(),
    }
}

/// An answer with up to three calls and their results, as the normaliser leaves them.
fn exchange() -> impl Strategy<Value = Vec<HistoryItem>> {
    let ids = prop_oneof![
        "[a-z]{1,3}",
        Just("same".to_owned()),
        "x{41,60}",
        Just(String::new())
    ];
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"k": "\ud800"}"#.to_owned()),
        Just(r#"{ "b":1, "a":[{"x":"😀"}] }"#.to_owned()),
    ];
    let said = proptest::option::of(words());
    (words(), said, vec((ids, arguments, words()), 0..4)).prop_map(|(asked, said, calls)| {
        let mut items = vec![user(&asked)];
        let mut content = vec![AssistantPart::Reasoning { text: "hm".into() }];
        content.extend(said.as_deref().map(text));
        content.extend(
            calls
                .iter()
                .map(|(id, arguments, _)| tool_call(id, arguments)),
        );
        if content.len() > 1 {
            items.push(HistoryItem::Assistant {
                content,
                opaque: Vec::new(),
            });
            items.extend(calls.iter().map(|(id, _, text)| tool_result(id, text)));
            // Some results show something too.
            if let Some(HistoryItem::Tool { content, .. }) = items.last_mut()
                && calls.len() > 2
            {
                content.push(image());
            }
        }
        items.push(HistoryItem::User {
            content: vec![image(), ContentPart::text("see")],
        });
        items
    })
}

fn history() -> impl Strategy<Value = Vec<HistoryItem>> {
    vec(exchange(), 1..6).prop_map(|exchanges| exchanges.concat())
}

/// Returns the places at which a request was sent: before every answer, and at the end.
fn sent_at(items: &[HistoryItem]) -> Vec<usize> {
    let answers = items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| matches!(item, HistoryItem::Assistant { .. }).then_some(at));
    answers.chain([items.len()]).collect()
}

/// Returns the history of a body, without the brackets that end it.
fn history_of(body: &Value) -> String {
    let history = body.get("messages").or_else(|| body.get("input")).unwrap();
    history.to_string().trim_end_matches([']', '}']).to_owned()
}

/// What only its issuer can read, in a body's own dialect.
fn with_opaque(name: &str, mut items: Vec<HistoryItem>) -> Vec<HistoryItem> {
    let data = match name {
        "openai-responses" => json!({"type": "reasoning", "id": "rs", "encrypted_content": "x"}),
        "anthropic" => json!({"type": "thinking", "thinking": "x", "signature": "y"}),
        _ => return items,
    };
    for (at, item) in items.iter_mut().enumerate() {
        if let HistoryItem::Assistant { opaque, .. } = item
            && at % 3 > 0
        {
            opaque.push(Opaque {
                issuer: ModelRef {
                    provider: name.into(),
                    name: "m".into(),
                },
                kind: data["type"].as_str().unwrap().into(),
                data: data.to_string(),
            });
        }
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_longer_history_begins_with_the_bytes_of_the_shorter(items in history()) {
        let mut images = Images::default();
        images.insert("ab", &b"GIF89a"[..]);
        for name in PROVIDERS {
            let mut config = ProviderConfig::new(*name);
            config.base_url = Some("http://127.0.0.1:1/v1".into());
            let provider = build(config).unwrap();
            let items = with_opaque(name, items.clone());
            let whole = request_of(name, items.clone());
            let body = provider.body_with(&whole, &images);
            prop_assert_eq!(&body, &provider.body_with(&whole.clone(), &images));
            let long = history_of(&body);
            for cut in sent_at(&items) {
                let short = request_of(name, items[..cut].to_vec());
                let short = history_of(&provider.body_with(&short, &images));
                prop_assert!(long.starts_with(&short), "{} cut at {}: {} {}", name, cut, long, short);
            }
        }
    }
}

/// Every body made from a normalised history passes the strict server's own rules, and what is
/// sent begins with all bytes of what was sent before, but for the brackets that end it.
#[tokio::test]
async fn every_body_is_valid_and_begins_with_the_one_before() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    use threadline_strict_model::StrictModel;

    for name in crate::support::ONLINE {
        let model = StrictModel::start([]).await.unwrap();
        let provider = crate::support::provider_of(name, &model.base_url());
        let mut images = Images::default();
        images.insert("ab", &b"GIF89a"[..]);
        let mut runner = TestRunner::deterministic();
        for _ in 0..40 {
            let items = history().new_tree(&mut runner).unwrap().current();
            let mut before = String::new();
            for cut in sent_at(&items) {
                let request = request_of(name, items[..cut].to_vec());
                let outcome = drain(provider.stream_with(request, &images)).await;
                assert_eq!(outcome.code(), "done", "{:?}", model.violations());
                let sent = model.requests().pop().unwrap().body;
                let sent = String::from_utf8(sent.to_vec()).unwrap();
                // Chat's other keys stand behind the messages.
                let sent = sent.split(",\"model\":").next().unwrap();
                assert!(sent.starts_with(&before), "{name}\n{before}\n{sent}");
                before = sent.trim_end_matches([']', '}']).to_owned();
            }
        }
        model.assert_no_violations();
    }
}
