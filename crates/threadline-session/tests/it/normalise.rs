//! From the surface to a history that every provider accepts.

use threadline_session::{
    HistoryItem, NormaliseReport, Payload, Request, Transcript, normalise,
    payload::{
        AssistantMessage, ContentPart, EndReason, ItemRejected, ModelRef, Opaque, RejectedPart,
        UserMessage, UserSource,
    },
};

use crate::{
    sequences::check_history,
    support::{Log, call, items_json, message, model, request_json, result, says, text, thinks},
};

fn report(state: &Transcript) -> NormaliseReport {
    let (items, report) = normalise(state, &model());
    check_history(&items).unwrap();
    report
}

fn said(items: &[serde_json::Value], at: usize) -> &str {
    items[at]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_clean_log_is_not_changed() {
    assert!(report(&Log::three_turns().state).is_clean());
}

#[test]
fn parallel_calls_give_the_same_request_in_whichever_order_they_finish() {
    let finished = |order: [&str; 2]| {
        let mut log = Log::new();
        log.open_turn("both");
        log.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
        log.start("a");
        log.start("b");
        for id in order {
            log.result(id, &format!("output of {id}"));
        }
        log.step_end();
        assert!(report(&log.state).is_clean());
        let (request, _) = Request::build(&log.state).unwrap();
        (request_json(&log.state), request.fingerprint().unwrap())
    };
    assert_eq!(finished(["a", "b"]), finished(["b", "a"]));
}

#[test]
fn repeated_call_ids_across_steps_pair_by_position() {
    let mut log = Log::new();
    log.open_turn("twice");
    for said in ["one", "two"] {
        log.assistant(vec![call("same", "shell", "{}")]);
        log.start("same");
        log.result("same", said);
        log.step_end();
        log.step_start();
    }
    assert!(report(&log.state).is_clean());
    let items = items_json(&log.state);
    assert_eq!((said(&items, 2), said(&items, 4)), ("one", "two"));
}

#[test]
fn repeated_call_ids_within_one_message_pair_by_position() {
    let mut log = Log::new();
    log.open_turn("twice");
    log.assistant(vec![
        call("same", "shell", "{}"),
        call("same", "shell", "{}"),
    ]);
    log.start("same");
    log.start("same");
    log.result("same", "one");
    log.result("same", "two");
    assert!(report(&log.state).is_clean());
    let items = items_json(&log.state);
    assert_eq!((said(&items, 2), said(&items, 3)), ("one", "two"));
}

#[test]
fn a_result_answers_a_started_call_before_one_that_was_not_started() {
    let mut log = Log::new();
    log.open_turn("twice");
    log.assistant(vec![call("same", "shell", "{}")]);
    log.start("same");
    log.assistant(vec![call("same", "shell", "{}")]);
    log.result("same", "of the first");
    let items = items_json(&log.state);
    assert_eq!(said(&items, 2), "of the first");
    assert_eq!(report(&log.state).missing_results, 1);
}

#[test]
fn of_two_results_the_first_wins_and_the_other_is_reported() {
    let mut log = Log::new();
    log.open_turn("once");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.result("a", "first");
    log.result("a", "second");
    assert_eq!(
        report(&log.state),
        NormaliseReport {
            orphan_results: 1,
            ..Default::default()
        }
    );
    let items = items_json(&log.state);
    assert_eq!((items.len(), said(&items, 2)), (3, "first"));
}

#[test]
fn a_repeated_result_does_not_answer_the_next_call() {
    let mut log = Log::new();
    log.open_turn("both");
    log.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
    log.result("a", "first");
    log.result("a", "second");
    let report = report(&log.state);
    assert_eq!((report.orphan_results, report.missing_results), (1, 1));
    assert!(said(&items_json(&log.state), 3).starts_with(threadline_session::INTERRUPTED_MARK));
}

#[test]
fn an_orphan_result_is_dropped_and_reported() {
    let mut log = Log::new();
    log.open_turn("nothing");
    log.result("nobody", "lost");
    assert_eq!(
        report(&log.state),
        NormaliseReport {
            orphan_results: 1,
            ..Default::default()
        }
    );
    assert_eq!(items_json(&log.state).len(), 1);
}

#[test]
fn a_call_without_a_result_is_given_one() {
    let mut log = Log::new();
    log.open_turn("cut");
    log.assistant(vec![call("a", "shell", "{}")]);
    log.user("and then?");
    assert_eq!(report(&log.state).missing_results, 1);
    let items = items_json(&log.state);
    assert_eq!(items[2]["role"], "tool");
    assert_eq!(items[3]["role"], "user");
}

#[test]
fn arguments_that_are_no_object_are_wrapped() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(300), "]".repeat(300));
    for arguments in [
        "[1]",
        "{\"a\":",
        "nonsense",
        "\"text\"",
        "{\"a\":1e999}",
        &deep,
    ] {
        let mut log = Log::new();
        log.open_turn("x");
        log.assistant(vec![call("a", "shell", arguments)]);
        log.result("a", "done");
        assert_eq!(report(&log.state).bad_arguments, 1, "{arguments}");
        let items = items_json(&log.state);
        let sent = items[1]["content"][0]["arguments"].as_str().unwrap();
        let sent: serde_json::Value = serde_json::from_str(sent).unwrap();
        assert_eq!(sent["invalid_arguments"], arguments);
    }
}

#[test]
fn good_arguments_are_kept_byte_for_byte_and_none_become_an_empty_object() {
    for (arguments, wanted) in [
        ("{ \"b\": 1,\"a\":1.0 }", "{ \"b\": 1,\"a\":1.0 }"),
        ("", "{}"),
        (" ", "{}"),
        ("{\"a\":\"\\ud800\"}", "{\"a\":\"\\ufffd\"}"),
    ] {
        let mut log = Log::new();
        log.open_turn("x");
        log.assistant(vec![call("a", "shell", arguments)]);
        log.result("a", "done");
        assert!(report(&log.state).is_clean());
        assert_eq!(items_json(&log.state)[1]["content"][0]["arguments"], wanted);
    }
}

#[test]
fn empty_and_blank_content_is_replaced_by_a_placeholder() {
    for content in [Vec::new(), text(""), text(" \n")] {
        let mut log = Log::new();
        log.turn_start();
        log.user_parts(content.clone());
        log.step_start();
        log.assistant(vec![says(" "), call("a", "shell", "{}")]);
        log.push(Payload::ToolResult(
            threadline_session::payload::ToolResult {
                content,
                ..result("a", "")
            },
        ));
        assert_eq!(report(&log.state).placeholders, 2);
        let items = items_json(&log.state);
        assert_eq!(said(&items, 0), "[empty message]");
        assert_eq!(said(&items, 2), "[no output]");
        assert_eq!(items[1]["content"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_part_of_an_unknown_kind_is_replaced_by_a_placeholder() {
    let mut log = Log::new();
    log.turn_start();
    log.user_parts(vec![ContentPart::Unknown, ContentPart::text("and this")]);
    assert_eq!(report(&log.state).placeholders, 1);
    assert_eq!(
        items_json(&log.state)[0]["content"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_message_of_reasoning_alone_is_dropped() {
    let mut log = Log::new();
    log.open_turn("think");
    log.assistant(vec![thinks("hm")]);
    log.step_end();
    log.turn_end(EndReason::Interrupted);
    assert_eq!(report(&log.state).empty_messages, 1);
    assert_eq!(items_json(&log.state).len(), 1);
}

#[test]
fn opaque_items_go_back_to_their_issuer_alone() {
    let issuer = model();
    let other = ModelRef {
        name: "another".into(),
        ..model()
    };
    let secret = Opaque {
        issuer: issuer.clone(),
        kind: "signature".into(),
        data: "s3cr3t".into(),
    };
    let mut log = Log::new();
    log.open_turn("think");
    let mut given = message(1, 1, vec![thinks("hm"), says("yes")]);
    given.opaque = vec![secret.clone()];
    log.push(Payload::AssistantMessage(given));
    let sent_to = |target: &ModelRef| {
        let (items, report) = normalise(&log.state, target);
        match &items[1] {
            HistoryItem::Assistant { opaque, .. } => (opaque.clone(), report.foreign_opaque),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent_to(&issuer), (vec![secret], 0));
    assert_eq!(sent_to(&other), (Vec::new(), 1));
}

#[test]
fn each_request_begins_with_the_one_before() {
    let log = Log::three_turns();
    let mut before: Vec<serde_json::Value> = Vec::new();
    let mut state = Transcript::new();
    for event in &log.events {
        if event.kind == threadline_session::types::STEP_START {
            let items = items_json(&state);
            assert_eq!(items[..before.len()], before[..], "at event {}", event.seq);
            // As bytes too: this is what a provider's prompt cache compares.
            let (old, new) = (
                serde_json::to_string(&before),
                serde_json::to_string(&items),
            );
            let old = old.unwrap();
            assert!(new.unwrap().starts_with(old.trim_end_matches(']')));
            assert!(items.len() > before.len());
            before = items;
        }
        state.apply(event).unwrap();
    }
}

#[test]
fn every_step_recorded_the_fingerprint_that_the_log_rebuilds() {
    let log = Log::three_turns();
    let mut state = Transcript::new();
    let mut steps = 0;
    for event in &log.events {
        if let Payload::StepStart(start) = event.payload().unwrap() {
            let (request, _) = Request::build(&state).unwrap();
            assert_eq!(start.request, request.fingerprint().unwrap().into());
            steps += 1;
        }
        state.apply(event).unwrap();
    }
    assert_eq!(steps, 5);
}

#[test]
fn there_is_no_request_before_the_first_turn() {
    assert!(Request::build(&Transcript::new()).is_err());
}

#[test]
fn what_a_model_refused_is_sent_to_others_only() {
    let image = |blob: &str| ContentPart::Image {
        media_type: "image/png".into(),
        blob: blob.into(),
    };
    let mut log = Log::new();
    log.open_turn("look");
    log.push(Payload::UserMessage(UserMessage {
        content: vec![image("bad"), image("good")],
        source: UserSource::User,
    }));
    let opaque = |data: &str| Opaque {
        issuer: model(),
        kind: "reasoning".into(),
        data: data.into(),
    };
    log.push(Payload::AssistantMessage(AssistantMessage {
        opaque: vec![opaque("old")],
        ..message(1, 1, vec![says("seen")])
    }));
    let refuse = |part, blobs: Vec<String>| {
        Payload::ItemRejected(ItemRejected {
            model: model(),
            part,
            blobs,
            message: "no".into(),
        })
    };
    let before = items_json(&log.state);
    log.push(refuse(RejectedPart::Images, vec!["bad".into()]));
    log.push(refuse(RejectedPart::Opaque, Vec::new()));
    log.push(Payload::AssistantMessage(AssistantMessage {
        opaque: vec![opaque("new")],
        ..message(1, 1, vec![says("again")])
    }));
    let (items, _) = normalise(&log.state, &model());
    let HistoryItem::User { content } = &items[1] else {
        panic!("{items:?}");
    };
    assert!(matches!(&content[0], ContentPart::Text { text } if text.contains("refused")));
    assert_eq!(content[1], image("good"));
    let kept: Vec<usize> = items
        .iter()
        .filter_map(|item| match item {
            HistoryItem::Assistant { opaque, .. } => Some(opaque.len()),
            _ => None,
        })
        .collect();
    assert_eq!(kept, [0, 1]);
    let other = ModelRef {
        provider: "another".into(),
        name: "m".into(),
    };
    let (items, _) = normalise(&log.state, &other);
    let HistoryItem::User { content } = &items[1] else {
        panic!("{items:?}");
    };
    assert_eq!(content[0], image("bad"));
    // What had been sent before is still rebuilt as it was.
    let log_before = Transcript::fold(&log.events[..log.events.len() - 3]).unwrap();
    assert_eq!(items_json(&log_before), before);
    // And a checkpoint knows it too.
    let thawed = Transcript::thaw(&log.state.freeze(), Default::default()).unwrap();
    assert_eq!(thawed.freeze(), log.state.freeze());
}
