//! The read model by turn.

use threadline_session::{
    Event, Patch, Payload, SessionId, Status, Transcript, TurnItem, View,
    limits::VIEW_OUTPUT_BYTES,
    payload::{
        BlobRef, ChunkKind, Decision, EndReason, HeadReason, Outcome, SubagentUsage, ToolResult,
        Usage,
    },
    types,
};

use crate::{
    sequences::Page,
    support::{Log, call, result},
};

/// Feeds a view and a page's copy of it; they must agree after every event.
fn shown(log: &Log) -> (View, Vec<Patch>) {
    let mut view = View::new();
    let mut page = Page::default();
    let mut all = Vec::new();
    for event in &log.events {
        let patches = view.apply(event).unwrap();
        patches.iter().for_each(|patch| page.apply(patch));
        let fresh = serde_json::to_value(view.turns()).unwrap();
        assert_eq!(
            fresh,
            serde_json::Value::from(page.turns.clone()),
            "after {}",
            event.seq
        );
        all.extend(patches);
    }
    (view, all)
}

fn statuses(patches: &[Patch]) -> Vec<(Status, bool)> {
    let status = |patch: &Patch| match patch {
        Patch::Status { status, running } => Some((*status, *running)),
        _ => None,
    };
    patches.iter().filter_map(status).collect()
}

#[test]
fn a_page_of_a_whole_log_has_every_turn_with_its_items() {
    let (view, _) = shown(&Log::three_turns());
    let counts: Vec<_> = view
        .turns()
        .iter()
        .map(|t| (t.head.turn, t.items.len()))
        .collect();
    // System, prompt, answer; prompt, two calls with their message, one with its, answer; ...
    assert_eq!(counts, [(1, 3), (2, 7), (3, 2)]);
    assert!(
        view.turns()
            .iter()
            .all(|t| t.head.reason == Some(EndReason::Completed))
    );
}

#[test]
fn a_message_replaces_its_stream_under_the_same_id() {
    let mut log = Log::new();
    log.open_turn("go");
    log.chunk(&[(0, ChunkKind::Reasoning, "h"), (1, ChunkKind::Text, "do")]);
    log.chunk(&[(0, ChunkKind::Reasoning, "m"), (1, ChunkKind::Text, "ne")]);
    let (view, _) = shown(&log);
    let streaming = view.turns()[0].items.last().unwrap().clone();
    log.answer("done");
    let (view, _) = shown(&log);
    let items = &view.turns()[0].items;
    let last = items.last().unwrap();
    assert_eq!(last.id(), streaming.id());
    let (TurnItem::Assistant(before), TurnItem::Assistant(after)) = (&streaming, last) else {
        panic!("{streaming:?} {last:?}")
    };
    assert!(before.streaming && !after.streaming);
    assert_eq!(
        (before.parts[0].text.as_str(), before.parts[1].text.as_str()),
        ("hm", "done")
    );
}

#[test]
fn a_part_that_arrives_before_an_earlier_one_of_another_kind_is_shown_right() {
    let mut log = Log::new();
    log.open_turn("go");
    log.chunk(&[(1, ChunkKind::Text, "answer")]);
    log.chunk(&[(0, ChunkKind::Reasoning, "thought")]);
    let (view, _) = shown(&log);
    let Some(TurnItem::Assistant(item)) = view.turns()[0].items.last() else {
        panic!()
    };
    let parts: Vec<_> = item
        .parts
        .iter()
        .map(|p| (p.kind, p.text.as_str()))
        .collect();
    assert_eq!(
        parts,
        [
            (ChunkKind::Reasoning, "thought"),
            (ChunkKind::Text, "answer")
        ]
    );
}

#[test]
fn turns_with_a_repeated_number_are_shown_apart() {
    let mut log = Log::new();
    log.open_turn("one").answer("1");
    let again = log.events[0].clone();
    let next = log.state.next_seq();
    log.push_event(Event { seq: next, ..again });
    log.user("two");
    let (view, _) = shown(&log);
    let numbers: Vec<_> = view
        .turns()
        .iter()
        .map(|t| (t.head.turn, t.items.len()))
        .collect();
    assert_eq!(numbers, [(1, 3), (2, 1)]);
}

#[test]
fn a_stream_that_was_cut_stops_streaming_with_its_turn() {
    let mut log = Log::new();
    log.open_turn("go");
    log.chunk(&[(0, ChunkKind::ToolArgs, "{\"comm")]);
    log.recover();
    let (view, _) = shown(&log);
    let Some(TurnItem::Assistant(item)) = view.turns()[0].items.last() else {
        panic!()
    };
    assert!(!item.streaming);
}

#[test]
fn the_status_is_told_whenever_it_changes() {
    let mut log = Log::new();
    log.open_turn("go");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.asked("q", "a");
    log.decided("q", Decision::Approved);
    log.start("a");
    log.recover();
    log.open_turn("go on").answer("done");
    let (_, patches) = shown(&log);
    assert_eq!(
        statuses(&patches),
        [
            (Status::Running, true),
            (Status::Waiting, true),
            (Status::Running, true),
            (Status::Interrupted, false),
            (Status::Running, true),
            (Status::Idle, false),
        ]
    );
}

#[test]
fn an_approval_is_shown_at_its_call() {
    let mut log = Log::new();
    log.open_turn("go");
    log.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
    log.asked("q", "b");
    log.decided("q", Decision::Denied);
    let (view, _) = shown(&log);
    let Some(TurnItem::Tool(tool)) = view.turns()[0].items.last() else {
        panic!()
    };
    let approval = tool.approval.as_ref().unwrap();
    assert_eq!(
        (tool.call_id.as_str(), approval.decision),
        ("b", Some(Decision::Denied))
    );
}

#[test]
fn live_output_is_capped_on_a_character_boundary() {
    let mut log = Log::new();
    log.open_turn("go");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.start("a");
    log.output("a", &"x".repeat(VIEW_OUTPUT_BYTES - 1));
    log.output("a", "\u{1d11e}\u{1d11e}");
    log.output("a", "y");
    let (view, _) = shown(&log);
    let Some(TurnItem::Tool(tool)) = view.turns()[0].items.last() else {
        panic!()
    };
    assert_eq!(tool.output.len(), VIEW_OUTPUT_BYTES);
}

#[test]
fn a_shortened_result_says_where_the_whole_text_is() {
    let mut log = Log::new();
    log.open_turn("go");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.start("a");
    let full = Some(BlobRef { blob: "ab".into() });
    log.push(Payload::ToolResult(ToolResult {
        full: full.clone(),
        ..result("a", "the start")
    }));
    let (view, _) = shown(&log);
    let Some(TurnItem::Tool(tool)) = view.turns()[0].items.last() else {
        panic!()
    };
    assert_eq!(tool.full, full);
}

#[test]
fn tokens_of_a_turn_are_its_own() {
    let (view, _) = shown(&Log::three_turns());
    let tokens: Vec<_> = view
        .turns()
        .iter()
        .map(|t| t.head.usage.input_tokens)
        .collect();
    assert_eq!(tokens, [10, 30, 10]);
    assert_eq!(view.transcript().facts().usage.input_tokens, 50);
}

#[test]
fn what_comes_before_the_first_turn_is_not_shown_and_breaks_nothing() {
    let mut log = Log::new();
    log.user("early");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.start("a");
    log.output("a", "x");
    log.result("a", "done");
    log.turn_end(EndReason::Cancelled);
    let (view, patches) = shown(&log);
    assert!(view.turns().is_empty());
    assert!(patches.is_empty());
}

#[test]
fn what_subagents_use_is_counted_beside_the_session_and_by_turn() {
    let mut log = Log::new();
    let tokens = |n| Usage {
        input_tokens: n,
        output_tokens: n,
        ..Usage::default()
    };
    for (turn, added) in [3, 4].into_iter().enumerate() {
        log.turn_start();
        log.push(Payload::SubagentUsage(SubagentUsage {
            session_id: SessionId::parse("child").unwrap(),
            usage: tokens(100),
            added: tokens(added),
        }));
        log.turn_end(EndReason::Completed);
        let facts = log.state.facts();
        assert_eq!(facts.usage, Usage::default());
        // One event is 10 ms behind the other.
        assert_eq!(facts.active_ms, 20 * (turn as u64 + 1));
    }
    assert_eq!(log.state.facts().subagents, tokens(7));
    let (view, _) = shown(&log);
    let used: Vec<_> = view.turns().iter().map(|t| t.head.subagent_usage).collect();
    assert_eq!(used, [tokens(3), tokens(4)]);
    let thawed = Transcript::thaw(&log.state.freeze(), Default::default()).unwrap();
    assert_eq!(thawed.facts(), log.state.facts());
}

#[test]
fn lost_events_are_shown_once_in_their_place() {
    let mut log = Log::new();
    log.open_turn("go");
    let first = log.state.next_seq();
    for (seq, data) in [
        (
            first,
            format!(
                r#"{{"fromSeq":{first},"toSeq":{},"bytes":9,"reason":"torn"}}"#,
                first + 1
            ),
        ),
        (first + 1, format!(r#"{{"fromSeq":{first}}}"#)),
    ] {
        log.push_event(Event::from_json(seq, 1, types::LOG_LOST, &data, true).unwrap());
    }
    let (view, _) = shown(&log);
    let lost: Vec<_> = view.turns()[0]
        .items
        .iter()
        .filter(|item| matches!(item, TurnItem::Lost { .. }))
        .collect();
    let [
        TurnItem::Lost {
            events,
            bytes,
            reason,
            ..
        },
    ] = lost[..]
    else {
        panic!("{lost:?}")
    };
    assert_eq!((events.from_seq, events.to_seq), (first, first + 1));
    assert_eq!((*bytes, reason.as_str()), (9, "torn"));
}

#[test]
fn a_call_that_a_rewind_opens_again_keeps_the_outcome_it_had() {
    let mut log = Log::new();
    log.open_turn("go");
    log.assistant(vec![call("a", "shell", "{}")]);
    let started = log.start("a");
    log.result("a", "done");
    log.step_end();
    log.turn_end(EndReason::Completed);
    log.head(started, HeadReason::Rewind);
    assert_eq!(log.recover().len(), 1);
    let (view, _) = shown(&log);
    let Some(TurnItem::Tool(tool)) = view.turns()[0]
        .items
        .iter()
        .find(|item| matches!(item, TurnItem::Tool(_)))
    else {
        panic!()
    };
    assert_eq!((tool.outcome, tool.synthetic), (Some(Outcome::Ok), false));
}
