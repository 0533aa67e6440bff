use std::time::Duration;

use serde_json::{Value, json};
use threadline_agent::{Agents, Answer, Answered, RunInput, limits::SUBAGENTS};
use threadline_session::{
    HistoryItem, Origin, Payload, SessionId,
    payload::{
        ApprovalPolicy, EndReason, Outcome, RunLimit, SandboxMode, ToolResult, TurnContext,
        plain_text,
    },
};

use crate::support::*;

fn agent(arguments: Value) -> Reply {
    Reply::Calls(vec![("c1", "agent", arguments)])
}

async fn results(world: &World, id: &SessionId) -> Vec<ToolResult> {
    let payloads = world.payloads(id).await.into_iter();
    let results = payloads.filter_map(|payload| match payload {
        Payload::ToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

async fn context(world: &World, id: &SessionId) -> TurnContext {
    let payloads = world.payloads(id).await.into_iter();
    let mut contexts = payloads.filter_map(|payload| match payload {
        Payload::TurnStart(start) => Some(start.context),
        _ => None,
    });
    contexts.next_back().unwrap()
}

/// All sessions but one.
async fn others(world: &World, id: &SessionId) -> Vec<SessionId> {
    let mut ids = world.store().ids().await.unwrap();
    ids.retain(|other| other != id);
    ids
}

async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_child_answers_in_a_session_of_its_own() {
    let world = World::new([
        agent(json!({ "task": "look for it" })),
        Reply::Text("found it"),
        Reply::Text("done"),
    ]);
    let (run, outcome) = finish(&world.agents(), None, "find it").await;
    assert_eq!(
        (outcome.reason, outcome.answer.as_str()),
        (EndReason::Completed, "done")
    );
    let [child] = others(&world, run.session_id()).await.try_into().unwrap();
    let result = results(&world, run.session_id()).await.remove(0);
    assert_eq!(result.outcome, Outcome::Ok);
    assert_eq!(
        plain_text(&result.content),
        format!(
            "found it\n[the subagent is done; its session is {child}, and `resume` goes on with \
             it]"
        )
    );
    let header = world.store().header(&child).await.unwrap().header;
    assert_eq!(header.parent.unwrap().id, *run.session_id());
    assert_eq!(
        header.origin,
        Origin::Subagent {
            call_id: Some("c1".into())
        }
    );
    let mut wanted = context(&world, run.session_id()).await;
    wanted.max_steps = context(&world, &child).await.max_steps;
    assert_eq!(context(&world, &child).await, wanted);
    // The child knows its task and nothing of the parent's.
    let request = format!("{:?}", world.script.requests()[1].items);
    assert!(
        request.contains("look for it") && !request.contains("find it"),
        "{request}"
    );
    assert!(
        world
            .store()
            .verify(&child)
            .await
            .unwrap()
            .findings
            .is_empty()
    );
}

#[tokio::test]
async fn a_child_may_do_the_same_or_less_also_when_it_is_resumed() {
    let write = || Reply::Calls(vec![("w", "write", json!({ "path": "x", "content": "x" }))]);
    let world = World::new([
        agent(json!({ "task": "t", "mode": "explore" })),
        write(),
        Reply::Text("no"),
        Reply::Text("done"),
    ]);
    let agents = world.agents();
    let (run, _) = finish(&agents, None, "go").await;
    let [child] = others(&world, run.session_id()).await.try_into().unwrap();
    assert_eq!(
        context(&world, &child).await.sandbox_mode,
        SandboxMode::ReadOnly
    );
    assert_eq!(results(&world, &child).await[0].outcome, Outcome::Denied);
    // Resumed without the mode, it is as narrow as it was; under a stricter parent, stricter.
    let again = json!({ "task": "again", "resume": child });
    world
        .script
        .push([agent(again), Reply::Text("two"), Reply::Text("done")]);
    let inner = world.dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let input = RunInput {
        approval_policy: Some(ApprovalPolicy::Strict),
        cwd: Some(inner.clone()),
        ..task("go on")
    };
    start(&agents, Some(run.session_id()), input)
        .await
        .wait()
        .await;
    let now = context(&world, &child).await;
    assert_eq!(
        (now.approval_policy, now.sandbox_mode),
        (ApprovalPolicy::Strict, SandboxMode::ReadOnly)
    );
    assert_eq!(now.cwd.as_path(), inner);
    let text = plain_text(&results(&world, run.session_id()).await[1].content);
    assert!(text.starts_with("two\n"), "{text}");
    assert_eq!(others(&world, run.session_id()).await, [child]);
}

#[tokio::test]
async fn only_children_are_resumed_and_only_so_deep() {
    let world = World::new([Reply::Text("one")]);
    let (stranger, _) = finish(&world.agents(), None, "hello").await;
    world.script.push([
        Reply::Calls(vec![
            (
                "a",
                "agent",
                json!({ "task": "t", "resume": stranger.session_id() }),
            ),
            ("b", "agent", json!({ "task": "t", "resume": "nowhere" })),
            ("c", "agent", json!({ "task": " " })),
            ("d", "agent", json!({ "task": "t", "mode": "yolo" })),
        ]),
        Reply::Text("done"),
    ]);
    let (run, _) = finish(&world.agents(), None, "go").await;
    let found = results(&world, run.session_id()).await;
    for (call_id, wanted) in [
        ("a", "is no subagent of this session"),
        ("b", "is no subagent of this session"),
        ("c", "argument `task` is empty"),
        ("d", "must be `explore` or `work`, not `yolo`"),
    ] {
        let result = found
            .iter()
            .find(|result| result.call_id == call_id)
            .unwrap();
        let text = plain_text(&result.content);
        assert!(result.is_error && text.contains(wanted), "{text}");
    }

    let world = World::new([
        agent(json!({ "task": "1" })),
        agent(json!({ "task": "2" })),
        agent(json!({ "task": "3" })),
        Reply::Text("too deep"),
        Reply::Text("middle"),
        Reply::Text("top"),
    ]);
    let (run, outcome) = finish(&world.agents(), None, "go").await;
    assert_eq!(outcome.answer, "top");
    let ids = others(&world, run.session_id()).await;
    assert_eq!(ids.len(), 2);
    let mut refused = Vec::new();
    for id in &ids {
        refused.extend(results(&world, id).await.into_iter().filter(|r| r.is_error));
    }
    assert!(plain_text(&refused[0].content).contains("2 levels of subagents already"));
    assert_eq!((refused.len(), refused[0].outcome), (1, Outcome::Denied));
}

#[tokio::test]
async fn children_end_with_their_parent_and_only_so_many_work_at_once() {
    let call = |id| (id, "agent", json!({ "task": "t" }));
    let calls = ["a", "b", "c", "d", "e", "f"].map(call);
    let world = World::new([Reply::Calls(calls.to_vec())]);
    world.script.push(vec![Reply::Hang("..."); 6]);
    let agents = world.agents();
    let run = start(&agents, None, task("go")).await;
    wait_for("all permits are taken", || {
        world.script.requests().len() == 1 + SUBAGENTS
    })
    .await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    assert!(agents.runs().is_empty());
    let ids = others(&world, run.session_id()).await;
    assert_eq!(ids.len(), SUBAGENTS);
    for id in &ids {
        let last = world.payloads(id).await.pop().unwrap();
        assert!(matches!(last, Payload::TurnEnd(end) if end.reason == EndReason::Cancelled));
    }
    let found = results(&world, run.session_id()).await;
    assert!(
        found
            .iter()
            .all(|result| result.outcome == Outcome::Cancelled)
    );
    let named = |result: &&ToolResult| plain_text(&result.content).contains("its session is");
    assert_eq!(found.iter().filter(named).count(), SUBAGENTS);
}

#[tokio::test]
async fn calls_of_one_id_begin_one_child() {
    let call = ("a", "agent", json!({ "task": "t" }));
    let world = World::new([
        Reply::Calls(vec![call; 2]),
        Reply::Text("one"),
        Reply::Text("done"),
    ]);
    let (run, outcome) = finish(&world.agents(), None, "go").await;
    assert_eq!(outcome.answer, "done");
    assert_eq!(others(&world, run.session_id()).await.len(), 1);
    let found = results(&world, run.session_id()).await;
    assert_eq!(found.iter().filter(|result| result.is_error).count(), 1);
}

#[tokio::test]
async fn a_childs_questions_are_on_the_same_board() {
    let world = World::new([
        agent(json!({ "task": "t" })),
        Reply::Calls(vec![("s", "shell", json!({ "command": "touch x" }))]),
        Reply::Text("asked"),
        Reply::Text("done"),
    ]);
    let agents = world.agents();
    let run = start(&agents, None, task("go")).await;
    let board = agents.approvals().clone();
    wait_for("a question", || !board.waiting(None).is_empty()).await;
    let info = board.waiting(None).remove(0);
    assert_ne!(info.session_id, *run.session_id());
    let no = Answered {
        answer: Answer::Deny,
        by: "test".into(),
        comment: None,
        prefix: None,
    };
    board.answer(&info.run_id, &info.tool_call_id, no).unwrap();
    run.wait().await;
    assert_eq!(
        results(&world, &info.session_id).await[0].outcome,
        Outcome::Denied
    );
}

#[tokio::test]
async fn after_a_crash_the_model_is_told_of_the_child_and_goes_on_with_it() {
    let world = World::new([agent(json!({ "task": "t" })), Reply::Hang("half")]);
    let dead = world.agents();
    let run = start(&dead, None, task("go")).await;
    wait_for("the child works", || world.script.requests().len() == 2).await;
    let [child] = others(&world, run.session_id()).await.try_into().unwrap();
    // As another process sees it once this one is gone.
    let store = world.store();
    for id in [run.session_id(), &child] {
        drop(store.take_over(id).await.unwrap());
    }
    let agents = Agents::new(world.config());
    world.script.push([
        agent(json!({ "task": "go on", "resume": child })),
        Reply::Text("whole"),
        Reply::Text("done"),
    ]);
    let (_, outcome) = finish(&agents, Some(run.session_id()), "go on").await;
    assert_eq!(outcome.answer, "done");
    let told = |items: &[HistoryItem]| format!("{items:?}").matches(child.as_str()).count();
    let requests = world.script.requests();
    assert_eq!(told(&requests[2].items), 1, "{:?}", requests[2].items);
    let found = results(&world, run.session_id()).await;
    assert_eq!(found[0].outcome, Outcome::Unknown);
    assert!(plain_text(&found[1].content).starts_with("whole\n"));
    // It is told once.
    world.script.push([Reply::Text("bye")]);
    finish(&agents, Some(run.session_id()), "bye").await;
    let payloads = world.payloads(run.session_id()).await;
    let notes = payloads.iter().filter(|payload| {
        matches!(payload, Payload::UserMessage(message)
            if plain_text(&message.content).contains("Subagent: the interrupted call"))
    });
    assert_eq!(notes.count(), 1);
}

/// What a session's log tells of its children, as tokens in all and added.
async fn told(world: &World, id: &SessionId) -> Vec<(u64, u64)> {
    let payloads = world.payloads(id).await.into_iter();
    let told = payloads.filter_map(|payload| match payload {
        Payload::SubagentUsage(used) => Some((used.usage.tokens(), used.added.tokens())),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn what_children_use_counts_for_their_parent_once() {
    // Each answer takes 15 tokens.
    let world = World::new([
        agent(json!({ "task": "1" })),
        agent(json!({ "task": "2" })),
        Reply::Text("deep"),
        Reply::Text("middle"),
        Reply::Text("top"),
    ]);
    let agents = world.agents();
    let (run, outcome) = finish(&agents, None, "go").await;
    assert_eq!(
        (outcome.usage.tokens(), outcome.subagent_usage.tokens()),
        (30, 45)
    );
    let summary = world.store().summary(run.session_id()).await.unwrap();
    assert_eq!(summary.usage.tokens(), 30);
    assert_eq!(summary.subagent_usage.tokens(), 45);
    assert_eq!(told(&world, run.session_id()).await, [(45, 45)]);
    let ids = others(&world, run.session_id()).await;
    let mut child = None;
    for id in ids {
        let parent = world.store().header(&id).await.unwrap().header.parent;
        if parent.unwrap().id == *run.session_id() {
            child = Some(id);
        }
    }
    // Going on with it adds what is new.
    world.script.push([
        agent(json!({ "task": "again", "resume": child.unwrap() })),
        Reply::Text("again"),
        Reply::Text("done"),
    ]);
    let (_, outcome) = finish(&agents, Some(run.session_id()), "go on").await;
    assert_eq!(outcome.subagent_usage.tokens(), 15);
    assert_eq!(told(&world, run.session_id()).await, [(45, 45), (60, 15)]);
    let report = threadline_agent::replay(&world.store(), run.session_id(), Default::default())
        .await
        .unwrap();
    assert!(report.identical, "{report:#?}");
}

#[tokio::test]
async fn a_child_uses_no_more_than_its_parent_has_left() {
    let listing = || Reply::Calls(vec![("l", "ls", json!({ "path": "." }))]);
    let world = World::new([agent(json!({ "task": "t" }))]);
    world.script.push((0..9).map(|_| listing()));
    let mut config = world.config();
    config.limits.run_tokens = Some(40);
    let agents = Agents::new(config);
    let (run, outcome) = finish(&agents, None, "go").await;
    // 15 of the parent, and 25 are left: two steps of the child.
    assert_eq!(world.script.requests().len(), 3);
    let ended = |reason: &EndReason| {
        matches!(
            reason,
            EndReason::Limit {
                limit: RunLimit::RunTokens,
                ..
            }
        )
    };
    assert!(ended(&outcome.reason), "{outcome:?}");
    let [child] = others(&world, run.session_id()).await.try_into().unwrap();
    let last = world.payloads(&child).await.pop().unwrap();
    assert!(matches!(last, Payload::TurnEnd(end) if ended(&end.reason)));
}

#[tokio::test]
async fn what_a_child_used_before_a_crash_is_told_by_the_next_turn_and_once() {
    let listing = Reply::Calls(vec![("l", "ls", json!({ "path": "." }))]);
    let world = World::new([agent(json!({ "task": "t" })), listing, Reply::Hang("half")]);
    let dead = world.agents();
    let run = start(&dead, None, task("go")).await;
    wait_for("the child works", || world.script.requests().len() == 3).await;
    let [child] = others(&world, run.session_id()).await.try_into().unwrap();
    let store = world.store();
    for id in [run.session_id(), &child] {
        drop(store.take_over(id).await.unwrap());
    }
    let agents = Agents::new(world.config());
    world.script.push([
        agent(json!({ "task": "go on", "resume": child })),
        Reply::Text("whole"),
        Reply::Text("done"),
    ]);
    let (_, outcome) = finish(&agents, Some(run.session_id()), "go on").await;
    assert_eq!(told(&world, run.session_id()).await, [(15, 15), (30, 15)]);
    // What was used before the crash is no part of this run.
    assert_eq!(outcome.subagent_usage.tokens(), 15);
    assert!(store.verify(run.session_id()).await.unwrap().ok);
}
