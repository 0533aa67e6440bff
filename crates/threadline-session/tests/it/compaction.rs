//! Compaction replaces a range of the history and nothing else.

use threadline_session::{Payload, Transcript, payload::EndReason};

use crate::support::{Log, call, items_json, request_json, surface};

fn roles(log: &Log) -> Vec<String> {
    items_json(&log.state)
        .iter()
        .map(|i| i["role"].as_str().unwrap().into())
        .collect()
}

/// Sequence numbers of the items on the surface.
fn seqs(log: &Log) -> Vec<u64> {
    surface(&log.state)
        .into_iter()
        .map(|(seq, _)| seq)
        .collect()
}

#[test]
fn a_summary_stands_where_the_replaced_items_stood() {
    let mut log = Log::new();
    let first = log.open_turn("one").answer("1").events.len() as u64 - 1;
    log.open_turn("two");
    let kept_end = seqs(&log);
    let summary = log.compact(0, first, &[]);
    let now = seqs(&log);
    assert_eq!(now[0], summary);
    assert_eq!(now[1..], kept_end[2..]);
    let items = items_json(&log.state);
    assert_eq!(items[0]["content"][0]["text"], "what happened so far");
    assert_eq!(items[1]["content"][0]["text"], "two");
}

#[test]
fn kept_items_stay_as_they_are() {
    let mut log = Log::new();
    log.open_turn("keep me").answer("1");
    log.open_turn("two").answer("2");
    let before = seqs(&log);
    let end = log.state.next_seq() - 1;
    let summary = log.compact(0, end, &[before[0]]);
    assert_eq!(seqs(&log), [before[0], summary]);
}

#[test]
fn the_system_prompt_is_never_compacted() {
    let mut log = Log::new();
    log.open_turn("one").answer("1");
    let end = log.state.next_seq() - 1;
    log.compact(0, end, &[]);
    assert_eq!(log.state.system().unwrap().text, "You are an agent.");
}

#[test]
fn a_boundary_between_a_call_and_its_result_splits_nothing() {
    let mut whole = Log::new();
    whole.turn_start();
    whole.user("go");
    whole.step_start();
    let asked = whole.assistant(vec![call("a", "shell", "{}"), call("b", "shell", "{}")]);
    whole.start("a");
    let answered = whole.result("a", "A");
    whole.result("b", "B");
    for (from, to, wanted) in [
        // Ends after the call, before its results: the whole group goes.
        (0, asked, vec!["user"]),
        (0, answered, vec!["user"]),
        // Begins behind the call: the whole group stays.
        (
            asked + 1,
            answered,
            vec!["user", "assistant", "tool", "tool", "user"],
        ),
    ] {
        let mut log = whole.clone();
        log.compact(from, to, &[]);
        assert_eq!(roles(&log), wanted, "{from}..={to}");
        let (_, report) = threadline_session::normalise(&log.state, &crate::support::model());
        assert!(report.is_clean(), "{from}..={to}: {report:?}");
    }
}

#[test]
fn a_result_that_arrives_after_its_call_was_compacted_is_dropped() {
    let mut log = Log::new();
    log.open_turn("go");
    let asked = log.assistant(vec![call("a", "shell", "{}")]);
    log.start("a");
    log.compact(0, asked, &[]);
    log.result("a", "late");
    assert_eq!(roles(&log), ["user"]);
    assert!(log.state.open_calls().is_empty());
}

#[test]
fn a_second_compaction_takes_in_the_first_summary() {
    let mut log = Log::new();
    log.open_turn("one").answer("1");
    log.compact(0, log.state.next_seq() - 1, &[]);
    log.open_turn("two").answer("2");
    let second = log.compact(0, log.state.next_seq() - 1, &[]);
    assert_eq!(seqs(&log), [second]);
}

#[test]
fn a_range_that_holds_nothing_only_adds_the_summary() {
    for (from, to) in [(500, 900), (9, 2), (u64::MAX, u64::MAX)] {
        let mut log = Log::new();
        log.open_turn("one").answer("1");
        let before = seqs(&log);
        let summary = log.compact(from, to, &[]);
        assert_eq!(seqs(&log), [before, vec![summary]].concat());
    }
}

#[test]
fn nothing_of_the_log_is_lost_and_replay_gives_the_same_history() {
    let mut log = Log::three_turns();
    log.compact(0, 12, &[2]);
    log.open_turn("four").answer("4");
    log.turn_start();
    log.turn_end(EndReason::Cancelled);
    let again = Transcript::fold(&log.events).unwrap();
    assert_eq!(request_json(&again), request_json(&log.state));
    let users = log
        .events
        .iter()
        .filter(|e| matches!(e.payload(), Ok(Payload::UserMessage(_))));
    assert_eq!(users.count(), 4);
}
