//! Rewind, redo and fork: the history of any earlier point, exactly.

use threadline_session::{
    Payload, Request, Transcript,
    payload::{HeadReason, Outcome},
};

use crate::support::{Log, call, closed_with, items_json, request_json, surface};

fn prefix(log: &Log, end: u64) -> Transcript {
    Transcript::fold(&log.events[..usize::try_from(end).unwrap()]).unwrap()
}

fn with_everything() -> Log {
    let mut log = Log::three_turns();
    log.compact(3, 12, &[5]);
    log.open_turn("fourth")
        .tool_step(&["a", "b"])
        .answer("four");
    log.head(9, HeadReason::Rewind);
    log.open_turn("another fourth").answer("four again");
    log
}

#[test]
fn rewinding_to_any_event_gives_the_history_of_that_moment() {
    let log = with_everything();
    for seq in 0..log.state.next_seq() {
        let mut moved = log.clone();
        moved.head(seq, HeadReason::Rewind);
        let then = prefix(&log, seq + 1);
        assert_eq!(surface(&moved.state), surface(&then), "after {seq}");
        assert_eq!(moved.state.system(), then.system(), "after {seq}");
        assert_eq!(items_json(&moved.state), items_json(&then), "after {seq}");
    }
}

#[test]
fn redo_gives_back_what_a_rewind_left() {
    let log = with_everything();
    let last = log.state.next_seq() - 1;
    for seq in 0..=last {
        let mut moved = log.clone();
        moved.head(seq, HeadReason::Rewind);
        moved.head(last, HeadReason::Redo);
        assert_eq!(surface(&moved.state), surface(&log.state), "from {seq}");
    }
}

#[test]
fn a_new_turn_after_a_rewind_builds_on_the_earlier_history() {
    let mut log = Log::new();
    let first_end = log.open_turn("one").answer("1").state.next_seq() - 1;
    log.open_turn("wrong").answer("no");
    log.head(first_end, HeadReason::Rewind);
    log.open_turn("two").answer("2");
    let said: Vec<_> = items_json(&log.state)
        .iter()
        .map(|item| item["content"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, ["one", "1", "two", "2"]);
    assert_eq!(log.state.last_turn(), 3);
    // The abandoned branch is still there to go back to.
    log.head(first_end + 6, HeadReason::Redo);
    assert!(
        surface(&log.state)
            .iter()
            .any(|(_, item)| item.contains("wrong"))
    );
}

#[test]
fn a_head_that_points_behind_the_end_changes_nothing() {
    let mut log = Log::three_turns();
    let before = surface(&log.state);
    log.head(u64::MAX, HeadReason::Redo);
    assert_eq!(surface(&log.state), before);
}

#[test]
fn a_fork_at_any_event_sends_the_request_of_that_moment() {
    let log = with_everything();
    let mut live = Transcript::new();
    for (k, event) in log.events.iter().enumerate() {
        live.apply(event).unwrap();
        let fork = Transcript::fold(&log.events[..=k]).unwrap();
        assert_eq!(request_json(&fork), request_json(&live), "fork at {k}");
    }
}

#[test]
fn a_fork_at_a_step_sends_the_request_whose_fingerprint_was_recorded() {
    let log = with_everything();
    for event in &log.events {
        if let Payload::StepStart(start) = event.payload().unwrap() {
            let (request, _) = Request::build(&prefix(&log, event.seq)).unwrap();
            assert_eq!(
                request.fingerprint().unwrap().hash,
                start.request.fingerprint
            );
        }
    }
}

#[test]
fn a_call_that_ran_is_never_said_to_be_not_started_after_a_rewind() {
    let mut log = Log::new();
    log.open_turn("go");
    let asked = log.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
    log.start("a");
    log.result("a", "the file is gone");
    log.head(asked, HeadReason::Rewind);
    let outcomes: Vec<_> = closed_with(&log)
        .into_iter()
        .filter_map(|payload| match payload {
            Payload::ToolResult(result) => Some((result.call_id, result.outcome)),
            _ => None,
        })
        .collect();
    // What happened behind the head is not kept for ever, so every call that a rewind opens again
    // is one to check.
    let wanted = ["a", "b"].map(|id| (id.to_owned(), Outcome::Unknown));
    assert_eq!(outcomes, wanted);
}
