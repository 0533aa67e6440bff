//! What completes a log that ended in the middle of a turn.

use threadline_session::{
    INTERRUPTED_MARK, Payload, Status, Transcript, closers,
    payload::{AssistantMessage, ChunkKind, Decision, EndReason, Outcome, ToolResult, plain_text},
};

use crate::support::{Log, call, closed_with, items_json, says, thinks};

fn kinds(payloads: &[Payload]) -> Vec<&str> {
    payloads.iter().map(Payload::kind).collect()
}

fn results(payloads: &[Payload]) -> Vec<ToolResult> {
    let result = |payload: &Payload| match payload {
        Payload::ToolResult(result) => Some(result.clone()),
        _ => None,
    };
    payloads.iter().filter_map(result).collect()
}

fn partial(payloads: &[Payload]) -> &AssistantMessage {
    match payloads.first() {
        Some(Payload::AssistantMessage(message)) => message,
        other => panic!("no partial message first: {other:?}"),
    }
}

fn in_a_batch() -> Log {
    let mut log = Log::new();
    log.open_turn("do it");
    log.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
    log
}

#[test]
fn killed_after_the_prompt_keeps_the_prompt() {
    let mut log = Log::new();
    log.open_turn("do it");
    assert_eq!(kinds(&closed_with(&log)), ["step/end", "turn/end"]);
    log.recover();
    let items = items_json(&log.state);
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["content"][0]["text"], "do it");
    assert_eq!(log.state.status(), Status::Interrupted);
}

#[test]
fn killed_before_the_first_step_closes_the_turn_alone() {
    let mut log = Log::new();
    log.turn_start();
    log.user("do it");
    assert_eq!(kinds(&closed_with(&log)), ["turn/end"]);
}

#[test]
fn killed_mid_stream_keeps_the_partial_text_marked_interrupted() {
    let mut log = Log::new();
    log.open_turn("do it");
    log.chunk(&[(0, ChunkKind::Reasoning, "hm")]);
    log.chunk(&[
        (1, ChunkKind::Text, "I wi"),
        (2, ChunkKind::ToolArgs, "{\"comm"),
    ]);
    log.chunk(&[
        (1, ChunkKind::Text, "ll"),
        (2, ChunkKind::ToolArgs, "and\":\"l"),
    ]);
    let closed = closed_with(&log);
    assert_eq!(
        kinds(&closed),
        ["assistant/message", "step/end", "turn/end"]
    );
    let message = partial(&closed);
    assert!(message.interrupted);
    assert_eq!(message.content, [thinks("hm"), says("I will")]);
    assert_eq!((message.turn, message.step), (1, 1));
    log.recover();
    assert_eq!(items_json(&log.state)[1]["content"][1]["text"], "I will");
}

#[test]
fn killed_while_only_tool_arguments_streamed_adds_no_message() {
    let mut log = Log::new();
    log.open_turn("do it");
    log.chunk(&[(0, ChunkKind::ToolArgs, "{\"comm")]);
    assert_eq!(kinds(&closed_with(&log)), ["step/end", "turn/end"]);
}

#[test]
fn chunks_of_a_message_that_was_logged_are_not_repeated() {
    let mut log = Log::new();
    log.open_turn("do it");
    log.chunk(&[(0, ChunkKind::Text, "done")]);
    log.assistant(vec![says("done")]);
    assert_eq!(kinds(&closed_with(&log)), ["step/end", "turn/end"]);
}

#[test]
fn chunks_that_come_after_their_message_make_no_second_one() {
    let mut log = Log::new();
    log.open_turn("do it");
    log.assistant(vec![says("done")]);
    log.chunk(&[(0, ChunkKind::Text, "late")]);
    assert_eq!(kinds(&closed_with(&log)), ["step/end", "turn/end"]);
}

#[test]
fn killed_in_a_tool_the_call_is_unknown_and_the_next_one_not_started() {
    let mut log = in_a_batch();
    log.start("a");
    let closed = results(&closed_with(&log));
    let got: Vec<_> = closed
        .iter()
        .map(|r| (r.call_id.as_str(), r.outcome))
        .collect();
    assert_eq!(got, [("a", Outcome::Unknown), ("b", Outcome::NotStarted)]);
    for result in &closed {
        assert!(result.synthetic && result.is_error, "{result:?}");
        assert!(
            plain_text(&result.content).starts_with(INTERRUPTED_MARK),
            "{result:?}"
        );
    }
    let said: Vec<_> = closed.iter().map(|r| plain_text(&r.content)).collect();
    assert!(
        said[0].contains("unknown") && said[0].contains("Check"),
        "{}",
        said[0]
    );
    assert!(
        said[1].contains("never started") && said[1].contains("safe"),
        "{}",
        said[1]
    );
}

#[test]
fn killed_between_two_tools_keeps_the_real_result() {
    let mut log = in_a_batch();
    log.start("a");
    log.result("a", "real");
    let closed = results(&closed_with(&log));
    let got: Vec<_> = closed
        .iter()
        .map(|r| (r.call_id.as_str(), r.outcome))
        .collect();
    assert_eq!(got, [("b", Outcome::NotStarted)]);
    log.recover();
    let items = items_json(&log.state);
    assert_eq!(items[2]["content"][0]["text"], "real");
    assert_eq!(items[3]["callId"], "b");
}

#[test]
fn the_second_of_two_parallel_tools_finished_first_and_keeps_its_result() {
    let mut log = in_a_batch();
    log.start("a");
    log.start("b");
    log.result("b", "real");
    let closed = results(&closed_with(&log));
    let got: Vec<_> = closed
        .iter()
        .map(|r| (r.call_id.as_str(), r.outcome))
        .collect();
    assert_eq!(got, [("a", Outcome::Unknown)]);
}

#[test]
fn killed_after_the_last_result_closes_step_and_turn() {
    let mut log = in_a_batch();
    for id in ["a", "b"] {
        log.start(id);
        log.result(id, "real");
    }
    assert_eq!(kinds(&closed_with(&log)), ["step/end", "turn/end"]);
}

#[test]
fn a_pending_approval_expires_and_its_call_never_started() {
    let mut log = in_a_batch();
    log.asked("q1", "a");
    assert_eq!(log.state.status(), Status::Waiting);
    let closed = closed_with(&log);
    assert_eq!(
        kinds(&closed),
        [
            "approval/decided",
            "tool/result",
            "tool/result",
            "step/end",
            "turn/end"
        ]
    );
    let Payload::ApprovalDecided(decided) = &closed[0] else {
        panic!("{:?}", closed[0])
    };
    assert_eq!(
        (decided.approval_id.as_str(), decided.decision),
        ("q1", Decision::Expired)
    );
    assert!(
        results(&closed)
            .iter()
            .all(|r| r.outcome == Outcome::NotStarted)
    );
    log.recover();
    assert!(log.state.pending_approvals().is_empty());
}

#[test]
fn an_approved_call_that_had_not_started_is_not_started() {
    let mut log = in_a_batch();
    log.asked("q1", "a");
    log.decided("q1", Decision::Approved);
    assert_eq!(results(&closed_with(&log))[0].outcome, Outcome::NotStarted);
}

#[test]
fn closing_twice_adds_nothing() {
    let mut log = in_a_batch();
    log.start("a");
    log.asked("q1", "b");
    assert!(!log.recover().is_empty());
    assert!(log.recover().is_empty());
    assert!(log.state.open_turn().is_none());
    assert!(log.state.open_step().is_none());
    assert!(log.state.open_calls().is_empty());
}

#[test]
fn closers_carry_the_last_real_time_and_are_the_same_everywhere() {
    let mut log = in_a_batch();
    log.start("a");
    let here = closers(&log.state).unwrap();
    let there = closers(&Transcript::fold(&log.events).unwrap()).unwrap();
    assert_eq!(here, there);
    let last = log.events.last().unwrap();
    for (event, seq) in here.iter().zip(last.seq + 1..) {
        assert_eq!((event.seq, event.time), (seq, last.time));
    }
}

#[test]
fn a_finished_log_needs_no_closers() {
    assert!(closers(&Log::three_turns().state).unwrap().is_empty());
    assert!(closers(&Transcript::new()).unwrap().is_empty());
}

#[test]
fn every_prefix_of_a_log_closes_to_a_balanced_one() {
    let log = Log::three_turns();
    for end in 0..=log.events.len() {
        let mut cut = Log::new();
        log.events[..end]
            .iter()
            .for_each(|event| cut.push_event(event.clone()));
        cut.recover();
        assert!(cut.state.open_turn().is_none(), "after {end} events");
        assert!(cut.state.open_calls().is_empty(), "after {end} events");
        assert!(
            closers(&cut.state).unwrap().is_empty(),
            "after {end} events"
        );
    }
}

#[test]
fn an_interrupted_turn_can_be_followed_by_the_next_one() {
    let mut log = in_a_batch();
    log.start("a");
    log.recover();
    log.open_turn("go on").answer("done");
    assert_eq!(log.state.last_turn(), 2);
    assert_eq!(log.state.facts().last_reason, Some(EndReason::Completed));
    let roles: Vec<_> = items_json(&log.state)
        .iter()
        .map(|i| i["role"].clone())
        .collect();
    assert_eq!(
        roles,
        ["user", "assistant", "tool", "tool", "user", "assistant"]
    );
}
