use serde_json::json;
use threadline_agent::{Agents, RunInput, tools::Effect, tools::Toolbox};
use threadline_session::{
    Payload, SessionId,
    payload::{EndReason, Outcome, ToolResult},
};

use crate::support::*;

async fn results(world: &World, id: &SessionId) -> Vec<ToolResult> {
    let results = world
        .payloads(id)
        .await
        .into_iter()
        .filter_map(|payload| match payload {
            Payload::ToolResult(result) => Some(result),
            _ => None,
        });
    results.collect()
}

async fn partial(world: &World, id: &SessionId) -> Option<(String, bool)> {
    world
        .payloads(id)
        .await
        .into_iter()
        .find_map(|payload| match payload {
            Payload::AssistantMessage(message) => Some((message.text(), message.interrupted)),
            _ => None,
        })
}

#[tokio::test]
async fn cancelling_a_stream_keeps_its_text() {
    let world = World::new([Reply::Hang("half an ans")]);
    let run = start(&world.agents(), None, task("x")).await;
    until(&mut run.stream(), "assistant/chunk").await;
    run.cancel();
    let outcome = run.wait().await;
    assert_eq!(outcome.reason, EndReason::Cancelled);
    assert_eq!(outcome.durable_seq, Some(outcome.last_seq));
    let kept = partial(&world, run.session_id()).await;
    assert_eq!(kept, Some(("half an ans".into(), true)));
    assert!(world.store().verify(run.session_id()).await.unwrap().ok);
}

#[tokio::test]
async fn cancelling_a_tool_answers_it_and_the_calls_behind_it() {
    let world = World::new([Reply::Calls(vec![
        ("c1", "slow", json!({})),
        ("c2", "slow", json!({})),
    ])]);
    let tool = Gated::new("slow", Effect::Writes);
    let mut config = world.config();
    config.toolbox = Toolbox::new();
    config.toolbox.register(tool.clone()).unwrap();
    let run = start(&Agents::new(config), None, task("x")).await;
    tool.begun.notified().await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    let outcomes: Vec<_> = results(&world, run.session_id())
        .await
        .into_iter()
        .map(|r| r.outcome)
        .collect();
    assert_eq!(outcomes, [Outcome::Cancelled, Outcome::Cancelled]);
}

#[tokio::test]
async fn a_broken_stream_ends_the_turn_with_the_error_and_keeps_the_text() {
    let world = World::new([Reply::Cut("so far")]);
    let (run, outcome) = finish(&world.agents(), None, "x").await;
    assert!(matches!(outcome.reason, EndReason::Error { code, .. } if code == "cut_stream"));
    assert_eq!(
        partial(&world, run.session_id()).await,
        Some(("so far".into(), true))
    );
    let (_, next) = finish(&world.agents(), Some(run.session_id()), "y").await;
    assert_eq!(next.reason, EndReason::Completed);
}

#[tokio::test]
async fn a_turn_stops_at_its_step_limit_with_every_call_answered() {
    let call = || Reply::Calls(vec![("c", "ls", json!({}))]);
    let world = World::new([call(), call(), call()]);
    let input = RunInput {
        max_steps: Some(2),
        ..task("x")
    };
    let run = start(&world.agents(), None, input).await;
    let outcome = run.wait().await;
    assert_eq!(outcome.reason, EndReason::MaxSteps);
    assert_eq!(outcome.usage.input_tokens, 20);
    assert_eq!(world.script.requests().len(), 2);
    assert_eq!(results(&world, run.session_id()).await.len(), 2);
    let facts = world.store().summary(run.session_id()).await.unwrap();
    assert_eq!(facts.usage.input_tokens, 20);
}

#[tokio::test]
async fn calls_that_cannot_run_are_answered_with_what_was_wrong() {
    let world = World::new([
        Reply::Calls(vec![
            ("c1", "no_such_tool", json!({})),
            ("c2", "ls", json!([1])),
        ]),
        Reply::Text("ok"),
    ]);
    let (run, outcome) = finish(&world.agents(), None, "x").await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let results = results(&world, run.session_id()).await;
    assert!(
        results
            .iter()
            .all(|result| result.outcome == Outcome::Error && result.is_error)
    );
    assert_eq!(results.len(), 2);
}

#[tokio::test]
async fn dropping_every_handle_does_not_end_the_run() {
    let world = World::new([
        Reply::Calls(vec![("c1", "slow", json!({}))]),
        Reply::Text("done"),
    ]);
    let tool = Gated::new("slow", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox = Toolbox::new();
    config.toolbox.register(tool.clone()).unwrap();
    let agents = Agents::new(config);
    let run = start(&agents, None, task("x")).await;
    let id = run.session_id().clone();
    drop(run.stream());
    drop(run);
    tool.begun.notified().await;
    let running = agents.running(&id).expect("it goes on");
    tool.go.notify_one();
    assert_eq!(running.wait().await.reason, EndReason::Completed);
    assert!(agents.running(&id).is_none());
}

#[tokio::test]
async fn shutting_down_logs_the_end_of_every_run() {
    let world = World::new([Reply::Hang("a"), Reply::Hang("b")]);
    let agents = world.agents();
    let runs = [
        start(&agents, None, task("x")).await,
        start(&agents, None, task("y")).await,
    ];
    agents.shutdown().await;
    for run in runs {
        assert_eq!(run.outcome().unwrap().reason, EndReason::Cancelled);
        let types = world.types(run.session_id()).await;
        assert_eq!(types.last().map(String::as_str), Some("turn/end"));
    }
}
