//! Properties of request bodies over random histories.

use proptest::{collection::vec, prelude::*};
use threadline_model::{Provider, ProviderConfig, build};
use threadline_session::{
    HistoryItem, Request,
    payload::{AssistantPart, ContentPart},
};

use crate::support::{request, text, tool_call, tool_result, user};

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,12}",
        Just("é😀\"\\\n".to_owned()),
        Just("a\0b".to_owned()),
        "\\PC{1,8}",
    ]
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
        }
        items.push(HistoryItem::User {
            content: vec![
                ContentPart::Image {
                    media_type: "image/png".into(),
                    blob: "ab".into(),
                },
                ContentPart::text("see"),
            ],
        });
        items
    })
}

fn history() -> impl Strategy<Value = Vec<HistoryItem>> {
    vec(exchange(), 1..6).prop_map(|exchanges| exchanges.concat())
}

fn messages(provider: &dyn Provider, request: &Request) -> String {
    provider.body(request)["messages"].to_string()
}

proptest! {
    #[test]
    fn a_longer_history_begins_with_the_bytes_of_the_shorter(items in history()) {
        for name in ["openai-chat", "offline"] {
            let mut config = ProviderConfig::new(name);
            config.base_url = Some("http://127.0.0.1:1/v1".into());
            let provider = build(config).unwrap();
            let whole = request(items.clone());
            let bytes = provider.body(&whole).to_string();
            prop_assert_eq!(&bytes, &provider.body(&whole.clone()).to_string());
            let long = messages(&*provider, &whole);
            for cut in 0..items.len() {
                let short = messages(&*provider, &request(items[..cut].to_vec()));
                prop_assert!(long.starts_with(short.trim_end_matches(']')), "cut at {}", cut);
            }
        }
    }
}

/// Every body made from a normalised history passes the strict server's own rules.
#[tokio::test]
async fn every_body_is_valid() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    use threadline_strict_model::StrictModel;

    let model = StrictModel::start([]).await.unwrap();
    let provider = crate::support::provider(&model.base_url());
    let mut runner = TestRunner::deterministic();
    for _ in 0..100 {
        let items = history().new_tree(&mut runner).unwrap().current();
        let outcome = crate::support::call(&*provider, request(items)).await;
        assert_eq!(outcome.code(), "done", "{:?}", model.violations());
    }
    model.assert_no_violations();
}
