use std::sync::Arc;

use serde_json::json;
use threadline_agent::{
    Agents, ResumeOptions, RunEvent, RunInput, StartError, Started, tools::Effect, tools::Toolbox,
};
use threadline_session::{
    HistoryItem, SessionId,
    payload::{ApprovalPolicy, EndReason, SandboxMode},
};
use threadline_store::{OpenError, ReadError};

use crate::support::*;

#[tokio::test]
async fn a_new_session_takes_the_id_of_its_first_run_and_keeps_it() {
    let world = World::new([Reply::Text("one"), Reply::Text("two")]);
    let agents = world.agents();
    let (first, outcome) = finish(&agents, None, "hello").await;
    assert_eq!(first.session_id().as_str(), first.run_id().as_str());
    assert!(!first.resumed());
    assert_eq!(
        (outcome.reason, outcome.answer.as_str()),
        (EndReason::Completed, "one")
    );
    assert_eq!(outcome.durable_seq, Some(outcome.last_seq));

    let (second, _) = finish(&world.agents(), Some(first.session_id()), "again").await;
    assert!(second.resumed());
    assert_eq!(second.session_id(), first.session_id());
    assert_ne!(second.run_id(), first.run_id());
    assert_eq!(second.start_seq(), outcome.last_seq + 1);

    let requests = world.script.requests();
    assert_eq!(
        requests[1].items[..requests[0].items.len()],
        requests[0].items[..]
    );
    assert_eq!(requests[1].items.len(), requests[0].items.len() + 2);
    assert_eq!(requests[0].system, requests[1].system);
}

#[tokio::test]
async fn a_turn_logs_its_events_in_the_order_of_their_barriers() {
    let world = World::new([
        Reply::Calls(vec![("c1", "ls", json!({}))]),
        Reply::Text("seen"),
    ]);
    let (run, _) = finish(&world.agents(), None, "look").await;
    let types = world.types(run.session_id()).await;
    assert_eq!(
        types,
        [
            "turn/start",
            "system/prompt",
            "user/message",
            "user/message",
            "step/start",
            "assistant/message",
            "tool/start",
            "tool/result",
            "step/end",
            "step/start",
            "assistant/chunk",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
    );
}

#[tokio::test]
async fn every_step_can_be_rebuilt_from_the_log_with_its_fingerprint() {
    let world = World::new([
        Reply::Calls(vec![("c1", "ls", json!({})), ("c2", "nothing", json!({}))]),
        Reply::Text("one"),
        Reply::Text("two"),
    ]);
    let (run, _) = finish(&world.agents(), None, "a").await;
    finish(&world.agents(), Some(run.session_id()), "b").await;
    let live = world.script.requests();
    for step in 1..=3_u64 {
        let found = world
            .store()
            .request_of_step(run.session_id(), step)
            .await
            .unwrap();
        let rebuilt = found.expect("the step exists").unwrap();
        let print = rebuilt.request.fingerprint().unwrap();
        assert_eq!(print.hash, rebuilt.start.request.fingerprint, "step {step}");
        assert_eq!(rebuilt.request, live[usize::try_from(step).unwrap() - 1]);
    }
}

#[tokio::test]
async fn parallel_calls_finished_in_either_order_give_the_same_request() {
    let mut prints = Vec::new();
    for reversed in [false, true] {
        let world = World::new([
            Reply::Calls(vec![("c1", "left", json!({})), ("c2", "right", json!({}))]),
            Reply::Text("both"),
            Reply::Text("more"),
        ]);
        let tools = [
            Gated::new("left", Effect::ReadOnly),
            Gated::new("right", Effect::ReadOnly),
        ];
        let mut toolbox = Toolbox::new();
        for tool in &tools {
            toolbox.register(tool.clone()).unwrap();
        }
        let mut config = world.config();
        config.toolbox = toolbox;
        let agents = Agents::new(config.clone());
        let run = start(&agents, None, task("both")).await;
        let mut stream = run.stream();
        for tool in &tools {
            tool.begun.notified().await;
        }
        let order = if reversed { [1, 0] } else { [0, 1] };
        for at in order {
            tools[at].go.notify_one();
            until(&mut stream, "tool/result").await;
        }
        run.wait().await;
        finish(&Agents::new(config), Some(run.session_id()), "on").await;
        let requests = world.script.requests();
        let live: Vec<_> = requests
            .iter()
            .map(|request| serde_json::to_string(&request.items[1..]).unwrap())
            .collect();
        let resumed = world
            .store()
            .request_of_step(run.session_id(), 2)
            .await
            .unwrap();
        let resumed = resumed.unwrap().unwrap().request;
        assert_eq!(serde_json::to_string(&resumed.items[1..]).unwrap(), live[1]);
        prints.push(live);
    }
    assert_eq!(prints[0], prints[1]);
}

#[tokio::test]
async fn resuming_restores_the_policy_and_a_default_never_widens_it() {
    let world = World::new([]);
    let input = RunInput {
        sandbox_mode: Some(SandboxMode::ReadOnly),
        approval_policy: Some(ApprovalPolicy::Strict),
        model: Some("m-2".into()),
        ..task("a")
    };
    let run = start(&world.agents(), None, input).await;
    run.wait().await;
    let (again, _) = finish(&world.agents(), Some(run.session_id()), "b").await;
    assert_eq!(again.policy(), run.policy());
    assert_eq!(again.policy().model, "m-2");
    let wider = RunInput {
        sandbox_mode: Some(SandboxMode::WorkspaceWrite),
        ..task("c")
    };
    let run = start(&world.agents(), Some(run.session_id()), wider).await;
    run.wait().await;
    assert_eq!(run.policy().sandbox_mode, SandboxMode::WorkspaceWrite);
}

#[tokio::test]
async fn an_unknown_session_is_an_error_and_creates_nothing() {
    let world = World::new([]);
    let id = SessionId::parse("0192f0c1-0000-7000-8000-000000000000").unwrap();
    let error = world.agents().start(Some(id), task("x")).await.unwrap_err();
    assert_eq!(error.code(), "session_not_found");
    assert!(matches!(
        error,
        StartError::Open(OpenError::Read(ReadError::NotFound { .. }))
    ));
    assert!(world.store().ids().await.unwrap().is_empty());
    assert!(world.script.requests().is_empty());
}

#[tokio::test]
async fn without_a_store_sessions_run_and_resuming_says_why_it_cannot() {
    let world = World::new([]);
    let mut config = world.config();
    config.store = None;
    let agents = Agents::new(config);
    let (run, _) = finish(&agents, None, "x").await;
    let session_id = run.session_id().clone();
    let error = agents
        .resume(ResumeOptions::new(session_id))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "no_store");
}

#[tokio::test]
async fn an_empty_task_is_refused_before_anything_is_stored() {
    let world = World::new([]);
    let error = world.agents().start(None, task("  \n")).await.unwrap_err();
    assert_eq!(error.code(), "empty_task");
    assert!(world.store().ids().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_missing_folder_or_provider_fails_clearly() {
    let world = World::new([]);
    let (run, _) = finish(&world.agents(), None, "x").await;
    let gone = RunInput {
        cwd: Some("/no/such/folder".into()),
        ..task("y")
    };
    let error = world
        .agents()
        .start(Some(run.session_id().clone()), gone)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "missing_folder");
    let mut config = world.config();
    let other = threadline_agent::Models::new(Arc::new(Renamed(world.script.clone())), "x");
    config.models = other;
    let agents = Agents::new(config);
    let error = agents
        .start(Some(run.session_id().clone()), task("y"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "unknown_provider");
}

struct Renamed(Script);

impl threadline_model::Provider for Renamed {
    fn name(&self) -> &str {
        "other"
    }

    fn body(&self, request: &threadline_session::Request) -> serde_json::Value {
        self.0.body(request)
    }

    fn stream(&self, request: threadline_session::Request) -> threadline_model::ModelStream {
        self.0.stream(request)
    }
}

#[tokio::test]
async fn a_second_run_on_a_busy_session_is_refused_and_free_right_after_the_end() {
    let world = World::new([Reply::Hang("half")]);
    let agents = world.agents();
    let run = start(&agents, None, task("x")).await;
    let id = run.session_id().clone();
    until(&mut run.stream(), "assistant/chunk").await;
    let error = agents.start(Some(id.clone()), task("y")).await.unwrap_err();
    assert_eq!(error.code(), "session_busy");
    run.cancel();
    run.wait().await;
    let (_, outcome) = finish(&agents, Some(&id), "z").await;
    assert_eq!(outcome.reason, EndReason::Completed);
}

#[tokio::test]
async fn a_repeat_of_an_idempotency_key_starts_nothing() {
    let world = World::new([]);
    let agents = world.agents();
    let keyed = RunInput {
        idempotency_key: Some("k1".into()),
        ..task("x")
    };
    let run = start(&agents, None, keyed.clone()).await;
    run.wait().await;
    let again = agents.start(None, keyed.clone()).await.unwrap();
    assert!(
        matches!(again, Started::Repeated { session_id, .. } if session_id == *run.session_id())
    );
    let keyed = RunInput {
        idempotency_key: Some("k2".into()),
        ..task("y")
    };
    let second = start(&agents, Some(run.session_id()), keyed.clone()).await;
    second.wait().await;
    let again = world
        .agents()
        .start(Some(run.session_id().clone()), keyed)
        .await
        .unwrap();
    assert!(matches!(again, Started::Repeated { seq, .. } if seq >= second.start_seq()));
    assert_eq!(world.script.requests().len(), 2);
}

#[tokio::test]
async fn the_stream_gives_every_event_once_between_start_and_finish() {
    let world = World::new([
        Reply::Calls(vec![("c1", "ls", json!({}))]),
        Reply::Text("done"),
    ]);
    let run = start(&world.agents(), None, task("x")).await;
    let mut stream = run.stream();
    let mut seqs = Vec::new();
    let mut names = Vec::new();
    while let Some(event) = stream.next().await {
        if let RunEvent::Log(line) = &event {
            seqs.push(line.event.seq);
        } else {
            names.push(event.name().to_owned());
        }
    }
    assert_eq!(names, ["run_started", "run_finished"]);
    let all: Vec<u64> = (0..seqs.len() as u64).collect();
    assert_eq!(seqs, all);
    let late: usize = {
        let mut stream = run.stream();
        let mut count = 0;
        while stream.next().await.is_some() {
            count += 1;
        }
        count
    };
    assert_eq!(
        late,
        seqs.len() + 2,
        "a stream opened after the end shows the same"
    );
}

#[tokio::test]
async fn the_first_message_tells_the_folder_once() {
    let world = World::new([]);
    let (run, _) = finish(&world.agents(), None, "a").await;
    finish(&world.agents(), Some(run.session_id()), "b").await;
    let users = |at: usize| {
        world.script.requests()[at]
            .items
            .iter()
            .filter(|item| matches!(item, HistoryItem::User { .. }))
            .count()
    };
    assert_eq!((users(0), users(1)), (2, 3));
}

#[tokio::test]
async fn a_timed_key_gives_an_id_of_its_time_and_others_an_id_of_the_key_alone() {
    let world = World::new([]);
    for (key, version) in [("01a22ba0-9206-745a-a02c-598d84a310bd", 7), ("anything", 5)] {
        let keyed = RunInput {
            idempotency_key: Some(key.into()),
            ..task("x")
        };
        let run = start(&world.agents(), None, keyed.clone()).await;
        run.wait().await;
        let id = run.session_id().as_uuid().unwrap();
        assert_eq!(id.get_version_num(), version);
        assert_ne!(id.to_string(), key);
        if version == 7 {
            assert_eq!(id.to_string()[..13], key[..13]);
        }
        let again = world.agents().start(None, keyed).await.unwrap();
        assert!(matches!(again, Started::Repeated { .. }));
    }
}
