//! Whole runs of an agent with servers.

use std::sync::Arc;

use serde_json::json;
use threadline_agent::{ReplayOptions, replay};
use threadline_session::{
    HistoryItem,
    payload::{ContentPart, EndReason, Outcome, plain_text},
};

use crate::support::*;

#[tokio::test]
async fn a_run_calls_a_server_and_keeps_its_image() {
    let world = World::new();
    world.script.will_call("mcp__s__image", json!({}));
    let agents = world.agents(vec![world.place.server("s", "plain")]);
    let (run, outcome) = turn(&agents, None).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let results = world.results(run.session_id()).await;
    let [
        ContentPart::Image { media_type, blob },
        ContentPart::Text { text },
    ] = results[0].content.as_slice()
    else {
        panic!("{results:?}");
    };
    assert_eq!(media_type, "image/png");
    let blob = threadline_store::BlobId::parse(blob).unwrap();
    assert!(
        world
            .store()
            .get_blob(&blob)
            .await
            .unwrap()
            .starts_with(b"\x89PNG")
    );
    assert!(text.contains("an image that is no PNG"), "{text}");
    agents.shutdown().await;
    assert!(!world.place.pids("s").into_iter().any(is_alive));
}

#[tokio::test]
async fn a_long_answer_is_kept_whole() {
    let world = World::new();
    world.script.will_call("mcp__s__long", json!({}));
    let agents = world.agents(vec![world.place.server("s", "plain")]);
    let (run, _) = turn(&agents, None).await;
    let results = world.results(run.session_id()).await;
    let blob = threadline_store::BlobId::parse(&results[0].full.as_ref().unwrap().blob).unwrap();
    assert_eq!(world.store().get_blob(&blob).await.unwrap().len(), 100_000);
}

#[tokio::test]
async fn a_session_is_resumed_with_its_server_connected_again_and_the_same_tools() {
    let world = World::new();
    world.script.will_call("mcp__s__die", json!({}));
    let configs = || vec![world.place.server("s", "plain")];
    let agents = world.agents(configs());
    let (run, outcome) = turn(&agents, None).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let id = run.session_id().clone();
    agents.shutdown().await;
    drop(agents);
    // As in another process.
    let agents = world.agents(configs());
    world
        .script
        .will_call("mcp__s__echo", json!({ "text": "again" }));
    turn(&agents, Some(&id)).await;
    let results = world.results(&id).await;
    assert_eq!(results[0].outcome, Outcome::Unknown);
    assert_eq!(plain_text(&results[1].content), "you said again");
    let requests = world.script.requests();
    let tools = |at: usize| serde_json::to_string(&requests[at].tools).unwrap();
    assert_eq!(tools(0), tools(requests.len() - 1));
    assert_eq!(world.told(&id).await.len(), 1);
    agents.shutdown().await;
    // Neither of the two is needed to run the loop again over the log.
    let report = replay(&world.store(), &id, ReplayOptions::default())
        .await
        .unwrap();
    assert!(report.identical && report.notes.is_empty(), "{report:#?}");
    assert_eq!(report.driven_steps, report.steps);
}

#[tokio::test]
async fn a_missing_server_stops_nothing_and_is_told_to_the_model_and_the_person() {
    let world = World::new();
    let agents = world.agents(vec![
        world.place.server("bad", "ends"),
        world.place.server("good", "pages"),
    ]);
    let (run, outcome) = turn(&agents, None).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    let id = run.session_id();
    let told = world.told(id).await;
    assert!(
        told[0].contains("`bad` is missing") && told[0].contains("exit code 4"),
        "{told:?}"
    );
    let request = &world.script.requests()[0];
    assert!(request.items.iter().any(|item| matches!(
        item,
        HistoryItem::User { content } if plain_text(content).contains("`bad` is missing")
    )));
    assert!(
        request
            .tools
            .iter()
            .any(|tool| tool.name == "mcp__good__first")
    );
    let source = Arc::clone(agents.config().source.as_ref().unwrap());
    let lacks = source.lacks(id);
    assert!(
        lacks.len() == 1 && lacks[0].contains("the token is missing"),
        "{lacks:?}"
    );
    // As long as it stays so, it is not told again.
    turn(&agents, Some(id)).await;
    assert_eq!(world.told(id).await.len(), 1);
}

#[tokio::test]
async fn servers_with_too_many_tools_together_cost_their_own_tools_and_not_the_run() {
    let world = World::new();
    let names: Vec<String> = (0..5).map(|n| format!("s{n}")).collect();
    let servers = names.iter().map(|name| world.place.server(name, "wide"));
    let agents = world.agents(servers.collect());
    let (run, outcome) = turn(&agents, None).await;
    assert_eq!(outcome.reason, EndReason::Completed, "{outcome:?}");
    let told = world.told(run.session_id()).await.join("\n");
    assert!(
        told.contains("`s4` is missing") && told.contains("786432 bytes at most"),
        "{told}"
    );
    let tools = &world.script.requests()[0].tools;
    assert!(tools.iter().any(|tool| tool.name.starts_with("mcp__s0__")));
    assert!(!tools.iter().any(|tool| tool.name.starts_with("mcp__s4__")));
}
