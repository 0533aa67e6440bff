use serde_json::json;
use threadline_agent::{
    Agents, Answer, AnswerError, Answered, ApprovalInfo, Approver, RunEvent, RunInput,
    tools::Toolbox,
};
use threadline_session::{
    Header, OsPath, Payload, SessionId,
    payload::{ApprovalPolicy, Decision, EndReason, Outcome, plain_text},
};

use threadline_store::AppendOptions;

use crate::support::*;

fn write(call_id: &'static str, path: &str) -> (&'static str, &'static str, serde_json::Value) {
    (call_id, "write", json!({ "path": path, "content": "x" }))
}

fn strict(text: &str) -> RunInput {
    RunInput {
        approval_policy: Some(ApprovalPolicy::Strict),
        ..task(text)
    }
}

fn answered(answer: Answer, comment: Option<&str>) -> Answered {
    Answered {
        answer,
        by: "test".into(),
        comment: comment.map(Into::into),
        prefix: None,
    }
}

#[tokio::test]
async fn an_approved_call_runs_once_and_a_second_answer_is_refused() {
    let world = World::new([
        Reply::Calls(vec![write("c1", "a.txt")]),
        Reply::Text("done"),
    ]);
    let agents = world.agents();
    let run = start(&agents, None, strict("x")).await;
    let mut stream = run.stream();
    let RunEvent::ApprovalRequired(info) = until(&mut stream, "approval_required").await else {
        panic!("not a question")
    };
    assert_eq!(
        (info.tool_call_id.as_str(), info.name.as_str()),
        ("c1", "write")
    );
    assert_eq!(agents.approvals().waiting(Some(run.run_id())).len(), 1);
    assert!(!world.dir.path().join("a.txt").exists());
    let board = agents.approvals();
    board
        .answer(run.run_id(), "c1", answered(Answer::Approve, None))
        .unwrap();
    let twice = board.answer(run.run_id(), "c1", answered(Answer::Deny, None));
    assert_eq!(
        twice,
        Err(AnswerError::AlreadyDecided {
            call_id: "c1".into()
        })
    );
    let resolved = until(&mut stream, "approval_resolved").await;
    assert!(
        matches!(resolved, RunEvent::ApprovalResolved { tool_call_id, decision, .. }
            if tool_call_id == "c1" && decision == Decision::Approved)
    );
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    assert!(world.dir.path().join("a.txt").exists());
    let gone = agents
        .approvals()
        .answer(run.run_id(), "c1", answered(Answer::Approve, None));
    assert!(matches!(gone, Err(AnswerError::NotFound { .. })));
}

#[tokio::test]
async fn a_refusal_with_a_comment_reaches_the_model() {
    let world = World::new([
        Reply::Calls(vec![write("c1", "a.txt")]),
        Reply::Text("I see"),
    ]);
    let agents = world.agents();
    let run = start(&agents, None, strict("x")).await;
    until(&mut run.stream(), "approval_required").await;
    let answer = answered(Answer::Deny, Some("use b.txt instead"));
    agents
        .approvals()
        .answer(run.run_id(), "c1", answer)
        .unwrap();
    run.wait().await;
    assert!(!world.dir.path().join("a.txt").exists());
    let told =
        world
            .payloads(run.session_id())
            .await
            .into_iter()
            .find_map(|payload| match payload {
                Payload::ToolResult(result) => Some((result.outcome, plain_text(&result.content))),
                _ => None,
            });
    let (outcome, text) = told.unwrap();
    assert_eq!(outcome, Outcome::Denied);
    assert!(text.contains("use b.txt instead"), "{text}");
}

#[tokio::test]
async fn an_approval_for_the_session_holds_for_the_like_and_after_resuming() {
    let world = World::new([
        Reply::Calls(vec![write("c1", "a.txt"), write("c2", "a.txt")]),
        Reply::Text("one"),
        Reply::Calls(vec![write("c3", "a.txt")]),
        Reply::Text("two"),
    ]);
    let agents = world.agents();
    let run = start(&agents, None, strict("x")).await;
    until(&mut run.stream(), "approval_required").await;
    let answer = answered(Answer::ApproveForSession, None);
    agents
        .approvals()
        .answer(run.run_id(), "c1", answer)
        .unwrap();
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    let (_, outcome) = finish(&world.agents(), Some(run.session_id()), "y").await;
    assert_eq!(outcome.answer, "two");
    let asked = world.types(run.session_id()).await;
    assert_eq!(
        asked
            .iter()
            .filter(|kind| *kind == "approval/asked")
            .count(),
        1
    );
}

#[tokio::test]
async fn with_nobody_to_ask_the_turn_is_blocked_and_every_call_answered() {
    let world = World::new([Reply::Calls(vec![
        write("c1", "a.txt"),
        write("c2", "b.txt"),
    ])]);
    let mut config = world.config();
    config.approver = Approver::Nobody;
    let run = start(&Agents::new(config), None, strict("x")).await;
    assert_eq!(run.wait().await.reason, EndReason::Blocked);
    let denied = world
        .payloads(run.session_id())
        .await
        .into_iter()
        .filter(|p| matches!(p, Payload::ToolResult(r) if r.outcome == Outcome::Denied))
        .count();
    assert_eq!(denied, 2);
    assert!(!world.dir.path().join("a.txt").exists());
}

#[tokio::test]
async fn cancelling_while_a_person_is_asked_expires_the_question() {
    let world = World::new([Reply::Calls(vec![write("c1", "a.txt")])]);
    let agents = world.agents();
    let run = start(&agents, None, strict("x")).await;
    until(&mut run.stream(), "approval_required").await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    assert!(agents.approvals().waiting(None).is_empty());
    let expired = world.payloads(run.session_id()).await.into_iter().any(
        |payload| matches!(payload, Payload::ApprovalDecided(d) if d.decision == Decision::Expired),
    );
    assert!(expired);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_in_time_counts_as_refused() {
    let world = World::new([
        Reply::Calls(vec![write("c1", "a.txt")]),
        Reply::Text("then not"),
    ]);
    let run = start(&world.agents(), None, strict("x")).await;
    let outcome = run.wait().await;
    assert_eq!(
        (outcome.reason, outcome.answer.as_str()),
        (EndReason::Completed, "then not")
    );
    assert!(!world.dir.path().join("a.txt").exists());
}

#[tokio::test]
async fn the_store_is_out_of_reach_of_the_tools() {
    let world = World::new([Reply::Calls(vec![write("c1", "kept/x")]), Reply::Text("ok")]);
    let mut config = world.config();
    config.toolbox = Toolbox::standard();
    config.denied = vec![world.dir.path().join("kept")];
    let run = start(&Agents::new(config), None, task("x")).await;
    run.wait().await;
    assert!(!world.dir.path().join("kept").exists());
}

/// Runs until a person is asked about a call, and lets the process die there.
async fn dead_while_asking(world: &World) -> (SessionId, ApprovalInfo) {
    world.script.push([Reply::Calls(vec![(
        "c-1",
        "write",
        json!({ "path": "new.txt", "content": "hello" }),
    )])]);
    let agents = world.agents();
    let run = start(&agents, None, strict("write it")).await;
    until(&mut run.stream(), "approval_required").await;
    let asked = agents.approvals().waiting(None).remove(0);
    // What is in the log at this point is all that outlives the process.
    let id = run.session_id().clone();
    let copy = SessionId::parse("copy").unwrap();
    let mut events = Vec::new();
    world
        .store()
        .each_event(&id, |line| {
            events.push(line.event.payload().unwrap());
            true
        })
        .await
        .unwrap();
    let header = Header::new(copy.clone(), 1, OsPath::from(world.dir.path().to_owned()));
    let writer = world.store().begin(header).unwrap();
    writer
        .record(events, AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);
    agents.shutdown().await;
    (copy, asked)
}

#[tokio::test]
async fn a_question_that_outlived_its_process_is_offered_again_and_runs_once() {
    let world = World::new([]);
    let (id, asked) = dead_while_asking(&world).await;
    let agents = world.agents();
    let offers = agents.offers().await.unwrap();
    assert_eq!(offers.len(), 1);
    assert_eq!(
        (&offers[0].session_id, &offers[0].tool_call_id),
        (&id, &asked.tool_call_id)
    );
    assert!(!world.dir.path().join("new.txt").exists());

    world.script.push([
        Reply::Calls(vec![(
            "c-2",
            "write",
            json!({ "content": "hello", "path": "new.txt" }),
        )]),
        Reply::Text("written"),
    ]);
    let yes = |by: &str| Answered {
        answer: Answer::Approve,
        by: by.into(),
        comment: None,
        prefix: None,
    };
    let (one, two) = tokio::join!(
        agents.answer_offer(&asked.run_id, "c-1", yes("one"), RunInput::default()),
        agents.answer_offer(&asked.run_id, "c-1", yes("two"), RunInput::default()),
    );
    // One answer counts.
    let run = match (one, two) {
        (Ok(Some(run)), Err(_)) | (Err(_), Ok(Some(run))) => run,
        other => panic!("{other:?}"),
    };
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    assert!(world.dir.path().join("new.txt").exists());
    let starts = world.types(&id).await;
    assert_eq!(
        starts.iter().filter(|kind| *kind == "tool/start").count(),
        1
    );
    assert!(agents.offers().await.unwrap().is_empty());
    let again = agents.answer_offer(&asked.run_id, "c-1", yes("three"), RunInput::default());
    assert!(again.await.is_err());
    assert_eq!(
        world.store().unequal_requests(&id).await.unwrap(),
        Vec::new()
    );
}

#[tokio::test]
async fn a_no_to_an_old_question_closes_its_turn() {
    let world = World::new([]);
    let (id, asked) = dead_while_asking(&world).await;
    let agents = world.agents();
    let no = Answered {
        answer: Answer::Deny,
        by: "me".into(),
        comment: None,
        prefix: None,
    };
    let run = agents.answer_offer(&asked.run_id, "c-1", no, RunInput::default());
    assert!(run.await.unwrap().is_none());
    assert!(agents.offers().await.unwrap().is_empty());
    assert_eq!(world.types(&id).await.last().unwrap(), "turn/end");
    assert!(!world.dir.path().join("new.txt").exists());
}

#[tokio::test]
async fn whoever_watches_the_board_hears_of_questions_and_answers() {
    let world = World::new([Reply::Calls(vec![write("c1", "a.txt")])]);
    let agents = world.agents();
    let mut watch = agents.approvals().watch();
    let run = start(&agents, None, strict("x")).await;
    while agents.approvals().waiting(None).is_empty() {
        watch.changed().await.unwrap();
    }
    watch.mark_unchanged();
    let no = answered(Answer::Deny, None);
    agents.approvals().answer(run.run_id(), "c1", no).unwrap();
    assert!(watch.has_changed().unwrap());
    run.wait().await;
}
