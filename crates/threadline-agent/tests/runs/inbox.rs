//! Messages that are sent while a run goes on.

use serde_json::json;
use threadline_agent::{QueueError, QueueInput, ResumeOptions, RunInput, tools::Effect};
use threadline_session::{
    Payload, SessionId,
    payload::{ContentPart, Delivery, EndReason, UserSource, plain_text},
};

use crate::support::{Gated, Reply, World, finish, start, task, until};

/// What was said to the model, with where it came from, in order.
async fn said(world: &World, id: &SessionId) -> Vec<(String, UserSource)> {
    world
        .payloads(id)
        .await
        .into_iter()
        .filter_map(|payload| match payload {
            Payload::UserMessage(message) if message.source != UserSource::Context => {
                Some((plain_text(&message.content), message.source))
            }
            _ => None,
        })
        .collect()
}

fn texts(said: &[(String, UserSource)]) -> Vec<&str> {
    said.iter().map(|(text, _)| text.as_str()).collect()
}

#[tokio::test]
async fn queued_messages_become_turns_of_their_own_in_order() {
    let world = World::new([Reply::Calls(vec![("c", "wait", json!({}))])]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    let agents = threadline_agent::Agents::new(config);
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    gate.begun.notified().await;
    let (one, begun) = agents
        .queue(&id, QueueInput::new("one"), RunInput::default())
        .await
        .unwrap();
    assert!(begun.is_none());
    let (two, _) = agents
        .queue(&id, QueueInput::new("two"), RunInput::default())
        .await
        .unwrap();
    agents
        .queue(&id, QueueInput::new("three"), RunInput::default())
        .await
        .unwrap();
    // Changed in its place, and withdrawn.
    let changed = QueueInput {
        message_id: Some(one.message_id.clone()),
        ..QueueInput::new("one, changed")
    };
    agents
        .queue(&id, changed, RunInput::default())
        .await
        .unwrap();
    agents.withdraw(&id, &two.message_id).await.unwrap();
    let gone = agents.withdraw(&id, &two.message_id).await;
    assert!(matches!(gone, Err(QueueError::NotWaiting { .. })));
    gate.go.notify_one();
    run.wait().await;
    while let Some(run) = agents.running(&id) {
        run.wait().await;
    }
    let said = said(&world, &id).await;
    assert_eq!(texts(&said), ["first", "one, changed", "three"]);
    assert_eq!(said[1].1, UserSource::Queued);
    let starts = world.types(&id).await;
    assert_eq!(
        starts.iter().filter(|kind| *kind == "turn/start").count(),
        3
    );
    let late = QueueInput {
        message_id: Some(one.message_id),
        ..QueueInput::new("too late")
    };
    let refused = agents.queue(&id, late, RunInput::default()).await;
    assert!(matches!(refused, Err(QueueError::NotWaiting { .. })));
    assert_eq!(
        world.store().unequal_requests(&id).await.unwrap(),
        Vec::new()
    );
}

#[tokio::test]
async fn images_of_a_waiting_message_stay_unless_others_are_named() {
    let world = World::new([Reply::Calls(vec![("c", "wait", json!({}))])]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    let agents = threadline_agent::Agents::new(config);
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    gate.begun.notified().await;
    let image = |n: u8| [b"GIF89a".as_slice(), &[n]].concat();
    let held = async || -> Vec<String> {
        let inbox = world.store().inbox(&id).await.unwrap();
        let parts = inbox[0].content.iter();
        let blobs = parts.filter_map(|part| match part {
            ContentPart::Image { blob, .. } => Some(blob.clone()),
            _ => None,
        });
        blobs.collect()
    };
    let blob = |n| threadline_store::BlobId::of(&image(n)).to_string();
    let one = QueueInput {
        images: Some(vec![image(1)]),
        ..QueueInput::new("one")
    };
    let (one, _) = agents.queue(&id, one, RunInput::default()).await.unwrap();
    assert_eq!(held().await, [blob(1)]);
    let change = |text: &str, images| QueueInput {
        message_id: Some(one.message_id.clone()),
        images,
        ..QueueInput::new(text)
    };
    for (input, wanted) in [
        (change("other words", None), vec![blob(1)]),
        (change("other image", Some(vec![image(2)])), vec![blob(2)]),
        (change("no image", Some(vec![])), vec![]),
        (change("last", Some(vec![image(3)])), vec![blob(3)]),
    ] {
        agents.queue(&id, input, RunInput::default()).await.unwrap();
        assert_eq!(held().await, wanted);
    }
    let refused = agents
        .queue(
            &id,
            change("text", Some(vec![b"BM".to_vec()])),
            RunInput::default(),
        )
        .await;
    assert_eq!(refused.unwrap_err().code(), "bad_image");
    assert_eq!(held().await, [blob(3)]);
    gate.go.notify_one();
    run.wait().await;
    while let Some(run) = agents.running(&id) {
        run.wait().await;
    }
    // The model is shown it with the words.
    let sent = format!("{:?}", world.script.requests().pop().unwrap().items);
    assert!(sent.contains("last") && sent.contains(&blob(3)), "{sent}");
}

#[tokio::test]
async fn a_message_for_the_next_step_is_heard_before_it() {
    let world = World::new([Reply::Calls(vec![("c", "wait", json!({}))])]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    let agents = threadline_agent::Agents::new(config);
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    gate.begun.notified().await;
    let steer = QueueInput {
        delivery: Delivery::NextStep,
        ..QueueInput::new("the other way")
    };
    agents.queue(&id, steer, RunInput::default()).await.unwrap();
    gate.go.notify_one();
    run.wait().await;
    let said = said(&world, &id).await;
    assert_eq!(said[1], ("the other way".into(), UserSource::Steer));
    let requests = world.script.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].items.len(), requests[0].items.len() + 3);
    assert_eq!(
        world.store().unequal_requests(&id).await.unwrap(),
        Vec::new()
    );
}

#[tokio::test]
async fn a_message_for_a_session_at_rest_begins_a_run() {
    let world = World::new([]);
    let agents = world.agents();
    let (run, _) = finish(&agents, None, "first").await;
    let id = run.session_id().clone();
    let (_, begun) = agents
        .queue(&id, QueueInput::new("second"), RunInput::default())
        .await
        .unwrap();
    assert_eq!(begun.unwrap().wait().await.reason, EndReason::Completed);
    assert_eq!(texts(&said(&world, &id).await), ["first", "second"]);
    assert!(
        agents
            .deliver(&id, RunInput::default())
            .await
            .unwrap()
            .is_none()
    );
    let empty = agents
        .queue(&id, QueueInput::new(" "), RunInput::default())
        .await;
    assert!(matches!(empty, Err(QueueError::Empty)));
}

#[tokio::test]
async fn five_messages_survive_the_death_of_whoever_took_the_second() {
    let world = World::new([
        Reply::Calls(vec![("c", "wait", json!({}))]),
        Reply::Text("one"),
        Reply::Text("two"),
        // Dies while it works on the second message.
        Reply::Hang("thr"),
    ]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    let agents = threadline_agent::Agents::new(config.clone());
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    gate.begun.notified().await;
    for text in ["1", "2", "3", "4", "5"] {
        agents
            .queue(&id, QueueInput::new(text), RunInput::default())
            .await
            .unwrap();
    }
    gate.go.notify_one();
    run.wait().await;
    let second = loop {
        let run = agents.running(&id).unwrap();
        if texts(&said(&world, &id).await).contains(&"2") {
            break run;
        }
        run.wait().await;
    };
    until(&mut second.stream(), "assistant/chunk").await;
    // Another process takes the session over; the one before never hears of it.
    let after = threadline_agent::Agents::new(config);
    let resumed = ResumeOptions {
        take_over: true,
        ..ResumeOptions::new(id.clone())
    };
    let agent = after.resume(resumed).await.unwrap();
    world.script.push([Reply::Text("on")]);
    agent
        .start_queued(RunInput::default())
        .await
        .unwrap()
        .unwrap();
    drop(agent);
    while let Some(run) = after.running(&id) {
        run.wait().await;
    }
    let said = said(&world, &id).await;
    assert_eq!(texts(&said), ["first", "1", "2", "3", "4", "5"]);
    assert_eq!(
        world.store().unequal_requests(&id).await.unwrap(),
        Vec::new()
    );
}

#[tokio::test]
async fn what_waits_is_delivered_before_the_next_task() {
    let world = World::new([Reply::Cut("oh"), Reply::Text("yes")]);
    let agents = world.agents();
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    run.wait().await;
    // The turn failed, so nobody works on the queue by himself.
    let agent = agents.resume(ResumeOptions::new(id.clone())).await.unwrap();
    drop(agent);
    let queued = Payload::InboxQueued(threadline_session::payload::InboxQueued {
        message_id: "m".into(),
        content: vec![ContentPart::text("waits")],
        delivery: Delivery::AfterTurn,
    });
    let loaded = world.store().load(&id).await.unwrap();
    let options = threadline_store::AppendOptions::barrier();
    loaded.writer.record(vec![queued], options).await.unwrap();
    drop(loaded);
    finish(&agents, Some(&id), "second").await;
    assert_eq!(
        texts(&said(&world, &id).await),
        ["first", "waits", "second"]
    );
}
