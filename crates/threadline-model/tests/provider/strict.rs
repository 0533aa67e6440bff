//! Good answers, in conversation with the strict server.

use serde_json::json;
use threadline_model::ModelEvent;
use threadline_session::{
    HistoryItem,
    payload::{AssistantPart, StopReason, Usage},
};
use threadline_strict_model::{Reply, Step, StrictModel};

use crate::support::{KEY, call, provider, request, text, tool_call, tool_result, user};

#[tokio::test]
async fn a_whole_turn_with_parallel_tools_is_valid_at_every_step() {
    let model = StrictModel::start([
        Reply::default()
            .and_reasoning("two ")
            .and_reasoning("calls")
            .and_text("Let me look.")
            .step(Step::ToolStart {
                index: 0,
                id: "a".into(),
                name: "shell".into(),
            })
            .step(Step::ToolStart {
                index: 1,
                id: "b".into(),
                name: "shell".into(),
            })
            .step(Step::ToolArgs {
                index: 1,
                delta: "{\"command\":".into(),
            })
            .step(Step::ToolArgs {
                index: 0,
                delta: "{\"command\":\"ls\"}".into(),
            })
            .step(Step::ToolArgs {
                index: 1,
                delta: "\"pwd\"}".into(),
            })
            .usage(100, 20, 60),
        Reply::text("All done."),
    ])
    .await
    .unwrap();
    let provider = provider(&model.base_url());
    let mut items = vec![user("look around")];
    let first = call(&*provider, request(items.clone())).await;
    let done = first.end.unwrap();
    assert_eq!(
        done.content,
        [
            AssistantPart::Reasoning {
                text: "two calls".into()
            },
            text("Let me look."),
            tool_call("a", "{\"command\":\"ls\"}"),
            tool_call("b", "{\"command\":\"pwd\"}"),
        ]
    );
    assert_eq!(done.stop_reason, StopReason::ToolCalls);
    assert_eq!(
        done.usage,
        Some(Usage {
            input_tokens: 100,
            output_tokens: 20,
            cached_input_tokens: Some(60),
            reasoning_tokens: Some(0),
        })
    );
    items.extend([
        HistoryItem::Assistant {
            content: done.content,
            opaque: Vec::new(),
        },
        tool_result("a", "x"),
        tool_result("b", "/"),
    ]);
    let second = call(&*provider, request(items)).await;
    assert_eq!(second.end.unwrap().content, [text("All done.")]);
    model.assert_no_violations();
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    let bearer = format!("Bearer {KEY}");
    assert!(
        requests
            .iter()
            .all(|r| r.authorization.as_ref() == Some(&bearer))
    );
    // What is logged as the request's body is what was sent.
    assert_eq!(
        requests[0].body,
        provider
            .body(&request(vec![user("look around")]))
            .to_string()
    );
    let messages = |at: usize| requests[at].json["messages"].to_string();
    assert!(messages(1).starts_with(messages(0).trim_end_matches(']')));
}

#[tokio::test]
async fn deltas_arrive_while_the_model_still_writes() {
    let reply = Reply::text("one two ").gate("middle").and_text("three");
    let model = StrictModel::start([reply]).await.unwrap();
    let provider = provider(&model.base_url());
    let mut stream = provider.stream(request(vec![user("count")]));
    let mut seen = String::new();
    while seen != "one two " {
        match futures_util::StreamExt::next(&mut stream).await {
            Some(Ok(ModelEvent::Delta(chunk))) => seen.push_str(&chunk.delta),
            other => panic!("{other:?}"),
        }
    }
    model.gate("middle").wait_reached().await;
    model.gate("middle").open();
    let rest: Vec<_> = futures_util::StreamExt::collect(stream).await;
    assert!(
        matches!(rest.last(), Some(Ok(ModelEvent::Done(done))) if done.content == [text("one two three")])
    );
}

#[tokio::test]
async fn dropping_the_stream_aborts_the_request() {
    let model = StrictModel::start([Reply::text("one ").gate("middle")])
        .await
        .unwrap();
    let provider = provider(&model.base_url());
    let mut stream = provider.stream(request(vec![user("count")]));
    let first = futures_util::StreamExt::next(&mut stream).await;
    assert!(matches!(first, Some(Ok(ModelEvent::Delta(_)))));
    let gate = model.gate("middle");
    gate.wait_reached().await;
    drop(stream);
    gate.wait_abandoned().await;
}

#[tokio::test]
async fn a_stream_that_is_never_polled_sends_nothing() {
    let model = StrictModel::start([]).await.unwrap();
    let provider = provider(&model.base_url());
    drop(provider.stream(request(vec![user("a")])));
    call(&*provider, request(vec![user("b")]))
        .await
        .end
        .unwrap();
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn finish_reasons_and_whole_calls_are_understood() {
    let model = StrictModel::start([
        Reply::text("cut off he").finish("length"),
        Reply::call("", "shell", json!({"command": "é😀 \" \\ \n"})),
    ])
    .await
    .unwrap();
    let provider = provider(&model.base_url());
    let first = call(&*provider, request(vec![user("a")])).await;
    assert_eq!(first.end.unwrap().stop_reason, StopReason::Length);
    let done = call(&*provider, request(vec![user("a")]))
        .await
        .end
        .unwrap();
    let arguments = json!({"command": "é😀 \" \\ \n"}).to_string();
    assert_eq!(done.content, [tool_call("call_0", &arguments)]);
}

#[tokio::test]
async fn the_base_url_may_end_in_many_ways() {
    let model = StrictModel::start([]).await.unwrap();
    for end in ["", "/", "/chat/completions"] {
        let provider = provider(&format!("{}{end}", model.base_url()));
        let done = call(&*provider, request(vec![user("hi there")]))
            .await
            .end
            .unwrap();
        assert_eq!(done.content, [text("echo: hi there")], "{end}");
    }
}

#[tokio::test]
async fn a_tool_that_nobody_offered_can_be_sent_back() {
    let model = StrictModel::start([Reply::call("a", "ghost", json!({}))])
        .await
        .unwrap();
    let provider = provider(&model.base_url());
    let done = call(&*provider, request(vec![user("a")]))
        .await
        .end
        .unwrap();
    let answer = HistoryItem::Assistant {
        content: done.content,
        opaque: Vec::new(),
    };
    let items = vec![user("a"), answer, tool_result("a", "no such tool")];
    let outcome = call(&*provider, request(items)).await;
    assert_eq!(outcome.end.unwrap().content, [text("echo: no such tool")]);
    model.assert_no_violations();
}
