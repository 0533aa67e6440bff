//! The loop, run again over its own log, makes every event again; a log that was changed is found.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{
    Agents, Answer, Answered, Approver, COMPACT_COMMAND, Divergence, QueueInput, ReplayOptions,
    ReplayReport, RunInput, replay,
    tools::{Effect, Toolbox},
};
use threadline_model::{ModelError, ModelEvent, ModelStream, Provider};
use threadline_session::{
    Event, Header, OsPath, Payload, Request, SessionId,
    payload::{
        ApprovalPolicy, AssistantPart, ContentPart, Delivery, EndReason, HeadReason, ModelTrouble,
        Outcome,
    },
    types,
};
use threadline_store::{AppendOptions, MemoryBackend, SessionStore, StoreOptions};

use crate::support::*;

fn fresh() -> SessionStore {
    SessionStore::new(Arc::new(MemoryBackend::new()), StoreOptions::default())
}

async fn events(store: &SessionStore, id: &SessionId) -> Vec<Event> {
    let mut events = Vec::new();
    store
        .each_event(id, |line| {
            events.push(line.event.clone());
            true
        })
        .await
        .unwrap();
    events
}

/// Makes a session of some events, and closes what they leave open.
async fn session_of(events: Vec<Event>) -> (SessionStore, SessionId) {
    let store = fresh();
    let id = SessionId::parse("copy").unwrap();
    let header = Header::new(id.clone(), 1, OsPath::from(std::path::PathBuf::from("/")));
    let writer = store.create(header).await.unwrap();
    // A move of the head stands in a batch of its own.
    for event in events {
        let options = AppendOptions::default();
        writer
            .append(event.seq, vec![event], options)
            .await
            .unwrap();
    }
    drop(writer);
    drop(store.load(&id).await.unwrap());
    (store, id)
}

async fn replayed(store: &SessionStore, id: &SessionId, toolbox: Toolbox) -> ReplayReport {
    let options = ReplayOptions {
        toolbox,
        ..ReplayOptions::default()
    };
    let before = events(store, id).await;
    let report = replay(store, id, options).await.unwrap();
    assert!(events(store, id).await == before, "nothing is written");
    report
}

#[track_caller]
fn identical(report: &ReplayReport) {
    assert!(
        report.identical && report.divergence.is_none(),
        "{report:#?}"
    );
}

/// Everything was made again by the loop.
#[track_caller]
fn all_driven(report: &ReplayReport) {
    identical(report);
    assert_eq!(report.notes, [], "{report:#?}");
    assert_eq!(report.driven_steps, report.steps);
}

fn notes(report: &ReplayReport) -> String {
    report.notes.iter().map(|note| note.why.as_str()).collect()
}

async fn changed(
    store: &SessionStore,
    id: &SessionId,
    mut change: impl FnMut(u64, &mut Payload),
) -> Divergence {
    let events = events(store, id).await.into_iter().map(|event| {
        let mut payload = event.payload().unwrap();
        change(event.seq, &mut payload);
        Event::new(event.seq, event.time, &payload).unwrap()
    });
    let (store, id) = session_of(events.collect()).await;
    let report = replayed(&store, &id, Toolbox::standard()).await;
    assert!(!report.identical);
    report.divergence.unwrap()
}

fn call(
    id: &'static str,
    name: &'static str,
    arguments: Value,
) -> (&'static str, &'static str, Value) {
    (id, name, arguments)
}

fn with_policy(text: &str, policy: ApprovalPolicy) -> RunInput {
    RunInput {
        approval_policy: Some(policy),
        ..task(text)
    }
}

/// A model that fails a few times before each answer, and answers a question for a summary.
#[derive(Clone)]
struct Moody {
    script: Script,
    refuses: Arc<std::sync::Mutex<Vec<ModelError>>>,
}

impl Moody {
    fn new(script: &Script, refuses: Vec<ModelError>) -> Self {
        Self {
            script: script.clone(),
            refuses: Arc::new(refuses.into()),
        }
    }
}

impl Provider for Moody {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn body(&self, request: &Request) -> Value {
        self.script.body(request)
    }

    fn stream(&self, request: Request) -> ModelStream {
        if request.tools.is_empty() {
            return Script::new([Reply::Text("Much was done.")]).stream(request);
        }
        if let Some(error) = self.refuses.lock().unwrap().pop() {
            return stream::iter([Err(error)]).boxed();
        }
        let retry = ModelTrouble {
            attempt: 1,
            status: Some(503),
            message: "busy".into(),
            delay_ms: Some(1),
        };
        stream::iter([Ok(ModelEvent::Retry(retry))])
            .chain(self.script.stream(request))
            .boxed()
    }
}

fn moody(world: &World, refuses: Vec<ModelError>, context_tokens: u64) -> Agents {
    let mut config = world.config();
    let model = Arc::new(Moody::new(&world.script, refuses));
    config.models = threadline_agent::Models::new(model, "m-1");
    config.compaction.context_tokens = context_tokens;
    Agents::new(config)
}

/// A session with calls of every kind: side by side, refused, unknown, broken, asked for.
async fn rich(world: &World) -> SessionId {
    std::fs::write(world.dir.path().join("a.txt"), "one\ntwo\n").unwrap();
    world.script.push([
        Reply::Calls(vec![
            call("c1", "ls", json!({})),
            call("c2", "read", json!({"path": "a.txt"})),
            call("c3", "read", json!({"path": "a.txt"})),
            call("c4", "nonsense", json!({})),
            call("c5", "read", json!("no object")),
            call("c1", "write", json!({"path": "b.txt", "content": "x"})),
        ]),
        Reply::Text("Looked."),
        Reply::Calls(vec![
            call("c1", "write", json!({"path": "c.txt", "content": "x"})),
            call("c2", "write", json!({"path": "d.txt", "content": "x"})),
            call("c3", "write", json!({"path": "c.txt", "content": "y"})),
        ]),
        Reply::Text("Written."),
    ]);
    let agents = world.agents();
    let (run, _) = finish(&agents, None, "look").await;
    let id = run.session_id().clone();
    let strict = with_policy("write", ApprovalPolicy::Strict);
    let run = start(&agents, Some(&id), strict).await;
    let mut stream = run.stream();
    for (call_id, answer, comment) in [
        ("c1", Answer::ApproveForSession, None),
        ("c2", Answer::Deny, Some("not there")),
    ] {
        until(&mut stream, "approval_required").await;
        let answered = Answered {
            answer,
            by: "test".into(),
            comment: comment.map(str::to_owned),
            prefix: None,
        };
        let board = agents.approvals();
        board.answer(run.run_id(), call_id, answered).unwrap();
    }
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    id
}

#[tokio::test]
async fn turns_with_calls_of_every_kind_are_made_again() {
    let world = World::new([]);
    let id = rich(&world).await;
    let report = replayed(&world.store(), &id, Toolbox::standard()).await;
    all_driven(&report);
    assert_eq!((report.turns, report.steps), (2, 4));
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_is_made_again_up_to_there() {
    let world = World::new([]);
    let id = rich(&world).await;
    let all = events(&world.store(), &id).await;
    for cut in 1..all.len() {
        let (store, id) = session_of(all[..cut].to_vec()).await;
        let report = replayed(&store, &id, Toolbox::standard()).await;
        assert!(report.identical, "cut before event {cut}: {report:#?}");
    }
}

#[tokio::test]
async fn forks_at_every_event_are_made_again() {
    let world = World::new([]);
    let id = rich(&world).await;
    let store = world.store();
    let last = events(&store, &id).await.len() as u64 - 1;
    for at in (0..=last).step_by(3) {
        let fork = SessionId::parse(format!("fork-{at}")).unwrap();
        store.fork(&id, Some(at), fork.clone()).await.unwrap();
        drop(store.load(&fork).await.unwrap());
        identical(&replayed(&store, &fork, Toolbox::standard()).await);
    }
}

#[tokio::test]
async fn calls_that_ended_in_another_order_are_made_again_in_that_order() {
    let (first, second) = (
        Gated::new("first", Effect::ReadOnly),
        Gated::new("second", Effect::ReadOnly),
    );
    let world = World::new([
        Reply::Calls(vec![
            call("c", "first", json!({})),
            call("c", "second", json!({})),
        ]),
        Reply::Text("done"),
    ]);
    let mut config = world.config();
    config.toolbox = Toolbox::new();
    for tool in [&first, &second] {
        config.toolbox.register(tool.clone()).unwrap();
    }
    let toolbox = config.toolbox.clone();
    let agents = Agents::new(config);
    let run = start(&agents, None, task("x")).await;
    let mut stream = run.stream();
    second.go.notify_one();
    until(&mut stream, "tool/result").await;
    first.go.notify_one();
    run.wait().await;
    let id = run.session_id();
    all_driven(&replayed(&world.store(), id, toolbox).await);
    // Without the tools nobody knows what the calls may do, so the turn is taken over.
    let report = replayed(&world.store(), id, Toolbox::standard()).await;
    identical(&report);
    assert!(notes(&report).contains("no tool named `first`"));
    assert_eq!((report.steps, report.driven_steps), (2, 0));
}

#[tokio::test]
async fn questions_that_nobody_answers_end_as_they_did() {
    let write = || {
        Reply::Calls(vec![call(
            "c",
            "write",
            json!({"path": "a", "content": "x"}),
        )])
    };
    let world = World::new([write(), Reply::Text("I see"), write()]);
    let mut config = world.config();
    config.approval_timeout = std::time::Duration::ZERO;
    let agents = Agents::new(config.clone());
    let strict = || with_policy("x", ApprovalPolicy::Strict);
    let run = start(&agents, None, strict()).await;
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    config.approver = Approver::Nobody;
    let agents = Agents::new(config);
    let run = start(&agents, Some(run.session_id()), strict()).await;
    assert_eq!(run.wait().await.reason, EndReason::Blocked);
    let report = replayed(&world.store(), run.session_id(), Toolbox::standard()).await;
    all_driven(&report);
    assert_eq!((report.turns, report.steps), (2, 3));
}

#[tokio::test]
async fn failed_calls_of_the_model_and_cancelled_ones_end_as_they_did() {
    let world = World::new([
        Reply::Cut("Half an"),
        Reply::Text("whole"),
        Reply::Hang("Ne"),
    ]);
    let status = ModelError::Status {
        status: 500,
        message: "no".into(),
    };
    let agents = moody(&world, vec![status], 128_000);
    let (run, outcome) = finish(&agents, None, "one").await;
    assert!(matches!(outcome.reason, EndReason::Error { .. }));
    let id = run.session_id().clone();
    for text in ["two", "three"] {
        finish(&agents, Some(&id), text).await;
    }
    all_driven(&replayed(&world.store(), &id, Toolbox::standard()).await);
    let run = start(&agents, Some(&id), task("four")).await;
    until(&mut run.stream(), "assistant/chunk").await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    finish(&agents, Some(&id), "five").await;
    let report = replayed(&world.store(), &id, Toolbox::standard()).await;
    identical(&report);
    assert_eq!(notes(&report), "the turn was cancelled");
    assert_eq!((report.turns, report.steps, report.driven_steps), (5, 5, 5));
}

#[tokio::test]
async fn compactions_stand_where_they_stood() {
    let world = World::new([]);
    let agents = moody(&world, Vec::new(), 6_000);
    let mut session = None;
    for turn in 0..12 {
        world.script.push([
            Reply::Calls(vec![call("c", "ls", json!({}))]),
            Reply::Text("done"),
        ]);
        let text = format!("{turn}: {}", "please ".repeat(500));
        let (run, outcome) = finish(&agents, session.as_ref(), &text).await;
        assert_eq!(outcome.reason, EndReason::Completed);
        session = Some(run.session_id().clone());
    }
    let id = session.unwrap();
    finish(&agents, Some(&id), COMPACT_COMMAND).await;
    finish(&agents, Some(&id), "and now").await;
    let report = replayed(&world.store(), &id, Toolbox::standard()).await;
    identical(&report);
    let told = notes(&report);
    assert!(told.contains("a compaction: its summary"), "{told}");
    assert!(told.contains("a person asked for"), "{told}");
    assert_eq!((report.turns, report.steps), (14, 25));
    assert_eq!(report.driven_steps, 25);
    // One byte of a summary that the requests behind it show.
    let mut done = false;
    let found = changed(&world.store(), &id, |_, payload| {
        if let Payload::CompactionSummary(summary) = payload
            && !std::mem::replace(&mut done, true)
        {
            summary.summary = vec![ContentPart::text("Much was Done.")];
        }
    })
    .await;
    assert_eq!(found.recorded, types::STEP_START);
    assert!(
        found.what.contains("the log and the replay both make"),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_request_that_was_too_long_is_followed_by_its_compaction() {
    let world = World::new([]);
    let agents = moody(&world, Vec::new(), 200_000);
    let long = "please ".repeat(3_000);
    let (run, _) = finish(&agents, None, &long).await;
    let id = run.session_id().clone();
    finish(&agents, Some(&id), &long).await;
    let too_long = ModelError::ContextLength {
        message: "too long".into(),
    };
    let agents = moody(&world, vec![too_long], 10_000_000);
    finish(&agents, Some(&id), "short").await;
    assert!(
        world
            .types(&id)
            .await
            .contains(&types::COMPACTION_SUMMARY.to_owned())
    );
    let report = replayed(&world.store(), &id, Toolbox::standard()).await;
    identical(&report);
    assert_eq!(
        notes(&report),
        "a failed model call: what came of it is the recorded"
    );
    assert_eq!((report.steps, report.driven_steps), (4, 4));
}

#[tokio::test]
async fn rewinds_and_redos_move_the_copy_as_well() {
    let world = World::new([]);
    let id = rich(&world).await;
    let store = world.store();
    let starts: Vec<u64> = events(&store, &id)
        .await
        .iter()
        .filter(|event| event.kind == types::TURN_START)
        .map(|event| event.seq)
        .collect();
    let writer = store.load(&id).await.unwrap().writer;
    writer.rewind(starts[1] - 1).await.unwrap();
    writer.redo().await.unwrap();
    writer.rewind(starts[1] - 1).await.unwrap();
    drop(writer);
    finish(&world.agents(), Some(&id), "another way").await;
    let report = replayed(&store, &id, Toolbox::standard()).await;
    all_driven(&report);
    assert_eq!((report.turns, report.steps), (3, 5));
    // A head that leads elsewhere gives the next step another request.
    let found = changed(&store, &id, |_, payload| {
        if let Payload::HistoryHead(head) = payload
            && head.reason == HeadReason::Rewind
        {
            head.seq = starts[1] + 1;
        }
    })
    .await;
    assert_eq!((found.turn, found.step), (3, 5));
}

#[tokio::test]
async fn long_outputs_are_shortened_again_and_without_the_blob_the_recorded_text_stands() {
    let world = World::new([
        Reply::Calls(vec![call("c", "read", json!({"path": "long.txt"}))]),
        Reply::Text("read"),
    ]);
    let line = "some words in a line\n";
    std::fs::write(world.dir.path().join("long.txt"), line.repeat(9_000)).unwrap();
    let (run, _) = finish(&world.agents(), None, "x").await;
    let id = run.session_id();
    all_driven(&replayed(&world.store(), id, Toolbox::standard()).await);
    let (elsewhere, copy) = session_of(events(&world.store(), id).await).await;
    all_driven(&replayed(&elsewhere, &copy, Toolbox::standard()).await);
}

#[tokio::test]
async fn what_was_changed_in_a_log_is_found_and_shown() {
    let world = World::new([]);
    let id = rich(&world).await;
    let store = world.store();
    let forged = changed(&store, &id, |_, payload| {
        if let Payload::StepStart(start) = payload
            && start.step == 3
        {
            start.request.fingerprint = "0".repeat(64);
        }
    })
    .await;
    assert_eq!((forged.turn, forged.step), (2, 3));
    assert!(
        forged.what.contains("the fingerprint 000000000000"),
        "{forged:?}"
    );

    // What a tool gave is taken from the log, so the next request tells.
    let told = changed(&store, &id, |_, payload| {
        if let Payload::ToolResult(result) = payload
            && result.outcome == Outcome::Ok
        {
            result.content = vec![ContentPart::text("otherwise")];
        }
    })
    .await;
    assert_eq!((told.step, told.recorded.as_str()), (2, types::STEP_START));

    // What the loop itself says, it says again.
    let refused = changed(&store, &id, |_, payload| {
        if let Payload::ToolResult(result) = payload
            && result.outcome == Outcome::Denied
        {
            result.content = vec![ContentPart::text(
                "the person refused this call and says: yes",
            )];
        }
    })
    .await;
    assert_eq!(refused.recorded, types::TOOL_RESULT);
    let difference = refused.difference.unwrap();
    assert!(difference.recorded.contains("says: yes"), "{difference:?}");
    assert!(
        difference.replayed.contains("says: not there"),
        "{difference:?}"
    );

    // A call that was not made, though the log has its result.
    let missing = changed(&store, &id, |_, payload| {
        if let Payload::AssistantMessage(message) = payload {
            let calls = |part: &AssistantPart| {
                !matches!(part, AssistantPart::ToolCall { call_id, .. } if call_id == "c2")
            };
            message.content.retain(calls);
        }
    })
    .await;
    assert_eq!(missing.step, 1);
    assert!(!missing.what.is_empty());

    let ended = changed(&store, &id, |_, payload| {
        if let Payload::TurnEnd(end) = payload {
            end.reason = EndReason::MaxSteps;
        }
    })
    .await;
    assert_eq!(ended.recorded, types::TURN_END);
    assert_eq!(ended.what, "the data of `turn/end` differs");
}

#[tokio::test]
async fn messages_that_came_in_meanwhile_are_delivered_where_they_were() {
    let world = World::new([Reply::Calls(vec![call("c", "wait", json!({}))])]);
    let gate = Gated::new("wait", Effect::ReadOnly);
    let mut config = world.config();
    config.toolbox.register(gate.clone()).unwrap();
    let toolbox = config.toolbox.clone();
    let agents = Agents::new(config);
    let run = start(&agents, None, task("first")).await;
    let id = run.session_id().clone();
    gate.begun.notified().await;
    let steer = QueueInput {
        delivery: Delivery::NextStep,
        ..QueueInput::new("the other way")
    };
    agents.queue(&id, steer, RunInput::default()).await.unwrap();
    let second = QueueInput::new("second");
    agents
        .queue(&id, second, RunInput::default())
        .await
        .unwrap();
    gate.go.notify_one();
    run.wait().await;
    while let Some(run) = agents.running(&id) {
        run.wait().await;
    }
    let report = replayed(&world.store(), &id, toolbox).await;
    all_driven(&report);
    assert_eq!((report.turns, report.steps), (2, 3));
}

#[tokio::test]
async fn a_session_without_a_turn_or_with_one_that_goes_on_is_replayed_as_far_as_it_is() {
    let world = World::new([Reply::Text("one"), Reply::Hang("tw")]);
    let agents = world.agents();
    let (run, _) = finish(&agents, None, "one").await;
    let id = run.session_id().clone();
    let run = start(&agents, Some(&id), task("two")).await;
    until(&mut run.stream(), "assistant/chunk").await;
    let report = replayed(&world.store(), &id, Toolbox::standard()).await;
    all_driven(&report);
    assert_eq!((report.turns, report.steps), (2, 2));
    run.cancel();
    run.wait().await;
    let unknown = SessionId::parse("nobody").unwrap();
    let error = replay(&world.store(), &unknown, ReplayOptions::default()).await;
    assert!(error.unwrap_err().to_string().contains("nobody"));
}
