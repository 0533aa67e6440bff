//! Titles that a model makes.

use std::time::Duration;

use serde_json::json;
use threadline_agent::{Agents, TitleModel};
use threadline_session::{
    SessionId,
    payload::{EndReason, ModelRef},
};
use threadline_store::{SessionSummary, SummaryPatch};

use crate::support::{Reply, World, finish};

const PATIENCE: Duration = Duration::from_secs(60);

fn agents(world: &World) -> Agents {
    let mut config = world.config();
    config.titles = Some(TitleModel::Same);
    Agents::new(config)
}

async fn summary(world: &World, id: &SessionId) -> SessionSummary {
    world.store().summary(id).await.unwrap()
}

#[tokio::test]
async fn the_first_completed_turn_gives_the_session_a_title_and_no_other_does() {
    let world = World::new([
        Reply::Cut("half"),
        Reply::Text("mended"),
        Reply::Text("\"Mending the\u{202e} parser.\"\nsurely"),
    ]);
    let agents = agents(&world);
    let (run, outcome) = finish(&agents, None, "mend the parser").await;
    assert!(matches!(outcome.reason, EndReason::Error { .. }));
    agents.settle(PATIENCE).await;
    assert_eq!(world.script.requests().len(), 1);
    let id = run.session_id();
    finish(&agents, Some(id), "go on").await;
    agents.settle(PATIENCE).await;
    let row = summary(&world, id).await;
    assert_eq!(row.title.as_deref(), Some("Mending the parser"));
    let made = row.made_title.unwrap();
    assert_eq!((made.model.name.as_str(), made.usage.tokens()), ("m-1", 15));
    // The question is no part of the session, and what was said to it is cut.
    let asked = world.script.requests().pop().unwrap();
    assert!(asked.tools.is_empty() && asked.items.len() == 1);
    let words = format!("{:?}", asked.items);
    assert!(
        words.contains("mend the parser") && words.contains("mended"),
        "{words}"
    );
    assert_eq!(row.usage.tokens(), 15);
    assert!(world.store().verify(id).await.unwrap().ok);

    world.script.push([Reply::Text("done")]);
    finish(&agents, Some(id), "more").await;
    agents.settle(PATIENCE).await;
    assert_eq!(world.script.requests().len(), 4);
}

#[tokio::test]
async fn a_persons_title_is_kept_and_no_model_is_asked_for_another() {
    let world = World::new([Reply::Cut("half"), Reply::Text("done"), Reply::Text("late")]);
    let agents = agents(&world);
    let (run, _) = finish(&agents, None, "go").await;
    let patch = SummaryPatch {
        title: Some(Some("mine".into())),
        ..SummaryPatch::default()
    };
    let id = run.session_id();
    world.store().update(id, patch, 0).await.unwrap();
    finish(&agents, Some(id), "on").await;
    agents.settle(PATIENCE).await;
    let row = summary(&world, id).await;
    assert_eq!((row.title.as_deref(), row.made_title), (Some("mine"), None));
    assert_eq!(world.script.requests().len(), 2);
}

#[tokio::test]
async fn subagents_and_models_that_fail_or_are_not_set_up_get_no_title() {
    let world = World::new([
        Reply::Calls(vec![("c", "agent", json!({ "task": "t" }))]),
        Reply::Text("child"),
        Reply::Text("done"),
        Reply::Cut("tit"),
    ]);
    let agents = agents(&world);
    let (run, outcome) = finish(&agents, None, "go").await;
    assert_eq!(outcome.answer, "done");
    agents.settle(PATIENCE).await;
    assert_eq!(world.script.requests().len(), 4);
    for id in world.store().ids().await.unwrap() {
        assert_eq!(summary(&world, &id).await.title, None);
    }
    assert!(world.store().verify(run.session_id()).await.unwrap().ok);

    let mut config = world.config();
    config.titles = Some(TitleModel::Named(ModelRef {
        provider: "nobody".into(),
        name: "m".into(),
    }));
    let agents = Agents::new(config);
    let (_, outcome) = finish(&agents, None, "go").await;
    assert_eq!(outcome.reason, EndReason::Completed);
    agents.settle(PATIENCE).await;
    assert_eq!(world.script.requests().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_says_nothing_delays_no_run_and_is_given_up() {
    let world = World::new([Reply::Text("one"), Reply::Hang("tit"), Reply::Text("two")]);
    let agents = agents(&world);
    let (run, outcome) = finish(&agents, None, "go").await;
    assert_eq!(outcome.answer, "one");
    // The title is asked for before the next task, so that the answers come in order.
    while world.script.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    let (_, outcome) = finish(&agents, Some(run.session_id()), "on").await;
    assert_eq!(outcome.answer, "two");
    agents.settle(Duration::from_secs(3600)).await;
    assert_eq!(summary(&world, run.session_id()).await.title, None);
}
