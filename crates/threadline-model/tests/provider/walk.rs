//! Random walks over providers, models and answers: no request breaks a rule.

use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::json;
use threadline_model::Thinking;
use threadline_session::{
    HistoryItem,
    payload::{AssistantPart, ContentPart},
};
use threadline_strict_model::{Reply, Step};

use crate::{
    support::{ONLINE, drain, user},
    switch::Talk,
};

/// What happens next in a session.
#[derive(Debug, Clone)]
struct Stride {
    provider: usize,
    model: &'static str,
    thinking: Option<Thinking>,
    answer: Vec<Step>,
    /// The answer is cut off: what is left of it is what recovery makes of the chunks.
    cut: bool,
    /// The user speaks although tools have just answered.
    steered: bool,
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("same".into()),
        Just("functions.shell:0".into()),
        Just("x".repeat(70)),
        Just("é|\u{1f600}".into()),
        "toolu_[0-9]",
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let call = (id(), "[a-z]{0,3}").prop_map(|(id, word)| Step::ToolCall {
        id,
        name: "shell".into(),
        arguments: json!({ "word": word }),
    });
    prop_oneof![
        "[a-z ]{1,9}".prop_map(Step::Text),
        Just(Step::Text("\n \n".into())),
        "[a-z ]{1,9}".prop_map(Step::Reasoning),
        "[a-z]{1,4}".prop_map(Step::Redacted),
        call,
        // No object, and half a character.
        Just(Step::ToolCall {
            id: "bad".into(),
            name: "ghost".into(),
            arguments: json!("{\"x\":\"\\ud800\""),
        }),
    ]
}

fn stride() -> impl Strategy<Value = Stride> {
    let thinking = prop_oneof![
        Just(None),
        Just(Some(Thinking::Adaptive)),
        Just(Some(Thinking::Budget(1024)))
    ];
    let model = prop_oneof![3 => Just("m-1"), 1 => Just("m-2")];
    let rare = || prop_oneof![7 => Just(false), 1 => Just(true)];
    (
        0..3_usize,
        model,
        thinking,
        vec(step(), 1..7),
        rare(),
        rare(),
    )
        .prop_map(|(provider, model, thinking, answer, cut, steered)| Stride {
            provider,
            model,
            thinking,
            answer,
            cut,
            steered,
        })
}

async fn walk(talk: &mut Talk, stride: Stride) {
    let results = matches!(talk.items.last(), Some(HistoryItem::Tool { .. }));
    if !results || stride.steered {
        talk.items.push(user("go on"));
    }
    let seat = talk.seat(ONLINE[stride.provider], stride.model, stride.thinking);
    talk.server.push(Reply::steps(stride.answer.clone()));
    let stream = seat.provider.stream_with(talk.request(&seat), &talk.images);
    let outcome = drain(stream).await;
    talk.server.assert_no_violations();
    let mut done = outcome.end.unwrap();
    if stride.cut {
        done.opaque.clear();
        done.content
            .retain(|part| !matches!(part, AssistantPart::ToolCall { .. }));
    }
    let calls: Vec<String> = done
        .content
        .iter()
        .filter_map(|part| match part {
            AssistantPart::ToolCall { call_id, .. } => Some(call_id.clone()),
            _ => None,
        })
        .collect();
    talk.items.push(HistoryItem::Assistant {
        content: done.content,
        opaque: done.opaque,
    });
    for (n, call_id) in calls.into_iter().enumerate() {
        let image = ContentPart::Image {
            media_type: "image/png".into(),
            blob: if n % 2 == 0 { "ab" } else { "lost" }.into(),
        };
        talk.items.push(HistoryItem::Tool {
            call_id,
            name: "shell".into(),
            content: vec![ContentPart::text(" "), image],
            is_error: n % 3 == 1,
        });
    }
}

#[tokio::test]
async fn no_walk_leads_to_a_request_that_is_refused() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for _ in 0..40 {
        let strides = vec(stride(), 12).new_tree(&mut runner).unwrap().current();
        let mut talk = Talk::new().await;
        for stride in strides {
            walk(&mut talk, stride).await;
        }
    }
}
