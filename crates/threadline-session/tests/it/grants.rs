//! What is approved for the session: given, revoked, carried, and never given by moving the head.

use std::sync::Arc;

use threadline_session::{
    Covers, Payload, Transcript, TurnItem, View,
    payload::{
        ApprovalAsked, ApprovalDecided, ApprovalGranted, ApprovalRevoked, Decision, HeadReason,
        ToolStart,
    },
};

use crate::support::{Log, call};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(Into::into).collect()
}

fn grant(log: &mut Log, id: &str, prefix: &str) -> u64 {
    log.push(Payload::ApprovalGranted(ApprovalGranted {
        grant_id: id.into(),
        prefix: words(prefix),
        by: "test".into(),
    }))
}

fn revoke(log: &mut Log, id: &str) -> u64 {
    log.push(Payload::ApprovalRevoked(ApprovalRevoked {
        grant_id: id.into(),
        by: "test".into(),
    }))
}

/// A call that was asked about, and its question.
fn ask(log: &mut Log, outside: bool) -> u64 {
    log.open_turn("go");
    log.assistant(vec![call("c", "shell", r#"{"command":"cargo test"}"#)]);
    log.push(Payload::ApprovalAsked(ApprovalAsked {
        approval_id: "q".into(),
        call_id: "c".into(),
        name: "shell".into(),
        arguments: r#"{"command":"cargo test"}"#.into(),
        reason: "r".into(),
        prefix: (!outside).then(|| words("cargo test")),
        outside_sandbox: outside,
    }))
}

fn decide(log: &mut Log, prefix: Option<&str>) -> u64 {
    log.push(Payload::ApprovalDecided(ApprovalDecided {
        approval_id: "q".into(),
        decision: Decision::ApprovedForSession,
        by: "me".into(),
        comment: None,
        prefix: prefix.map(words),
    }))
}

fn ids(state: &Transcript) -> Vec<&str> {
    state
        .session_grants()
        .iter()
        .map(|grant| grant.id.as_str())
        .collect()
}

#[test]
fn grants_hold_until_they_are_revoked() {
    let mut log = Log::new();
    log.open_turn("one").answer("1");
    let seq = grant(&mut log, "a", "cargo test");
    grant(&mut log, "b", "make check");
    let first = &log.state.session_grants()[0];
    assert_eq!((first.seq, first.by.as_str()), (seq, "test"));
    let covers = Covers::Commands {
        prefix: words("cargo test"),
    };
    assert_eq!(first.covers, covers);
    // The same id again is no second grant.
    grant(&mut log, "a", "rm");
    assert_eq!(ids(&log.state), ["a", "b"]);
    assert_eq!(log.state.session_grants()[0].covers, covers);
    revoke(&mut log, "a");
    revoke(&mut log, "never given");
    assert_eq!(ids(&log.state), ["b"]);
}

#[test]
fn an_answer_for_the_session_grants_the_call_or_the_words_it_names() {
    let mut log = Log::new();
    ask(&mut log, false);
    let mut with_words = log.clone();
    decide(&mut log, None);
    let held = &log.state.session_grants()[0];
    assert_eq!((held.id.as_str(), held.by.as_str()), ("q", "me"));
    let arguments = r#"{"command":"cargo test"}"#.into();
    let name = "shell".into();
    assert_eq!(held.covers, Covers::Call { name, arguments });
    decide(&mut with_words, Some("cargo test"));
    let prefix = words("cargo test");
    let held = &with_words.state.session_grants()[0];
    assert_eq!(held.covers, Covers::Commands { prefix });
    revoke(&mut with_words, "q");
    assert!(ids(&with_words.state).is_empty());
}

#[test]
fn leaving_the_sandbox_is_never_granted_for_the_session() {
    for prefix in [None, Some("git commit")] {
        let mut log = Log::new();
        ask(&mut log, true);
        decide(&mut log, prefix);
        assert!(ids(&log.state).is_empty());
    }
}

#[test]
fn moving_the_head_takes_grants_away_and_never_gives_any() {
    let mut log = Log::new();
    log.open_turn("one").answer("1");
    let early = grant(&mut log, "early", "make a");
    log.open_turn("two").answer("2");
    grant(&mut log, "late", "make b");
    grant(&mut log, "revoked", "make c");
    let with_all = log.state.next_seq() - 1;
    revoke(&mut log, "revoked");
    let last = log.state.next_seq() - 1;

    // A rewind to where it was in force does not bring a revoked one back.
    let mut moved = log.clone();
    moved.head(with_all, HeadReason::Rewind);
    assert_eq!(ids(&moved.state), ["early", "late"]);

    // What a rewind takes away, no redo gives back.
    let mut moved = log.clone();
    moved.head(early, HeadReason::Rewind);
    assert_eq!(ids(&moved.state), ["early"]);
    moved.head(last, HeadReason::Redo);
    assert_eq!(ids(&moved.state), ["early"]);

    // Wherever the head goes, nothing is in force that was not before.
    for to in 0..log.state.next_seq() {
        for reason in [HeadReason::Rewind, HeadReason::Redo] {
            let mut moved = log.clone();
            moved.head(to, reason);
            let before = ids(&log.state);
            assert!(ids(&moved.state).iter().all(|id| before.contains(id)));
            let then = &log.events[..usize::try_from(to + 1).unwrap()];
            let then = Transcript::fold(then).unwrap();
            let of_then = ids(&then);
            assert!(ids(&moved.state).iter().all(|id| of_then.contains(id)));
        }
    }
}

#[test]
fn grants_are_kept_in_the_frozen_state() {
    let mut log = Log::new();
    ask(&mut log, false);
    decide(&mut log, None);
    grant(&mut log, "a", "cargo test");
    let state = Transcript::thaw(&log.state.freeze(), Arc::default()).unwrap();
    assert_eq!(state.session_grants(), log.state.session_grants());
    assert_eq!(ids(&state), ["q", "a"]);
}

#[test]
fn the_view_tells_the_words_offered_and_given_and_who_left_the_sandbox() {
    let mut log = Log::new();
    ask(&mut log, true);
    log.push(Payload::ToolStart(ToolStart {
        call_id: "c".into(),
        name: "shell".into(),
        cwd: "/work".into(),
        outside_sandbox: true,
        grant_id: None,
    }));
    let shown = |log: &Log| {
        let mut view = View::new();
        for event in &log.events {
            view.apply(event).unwrap();
        }
        let items = view.turns()[0].items.clone();
        items.into_iter().find_map(|item| match item {
            TurnItem::Tool(tool) => Some(tool),
            _ => None,
        })
    };
    let tool = shown(&log).unwrap();
    assert!(tool.outside_sandbox && tool.approval.unwrap().outside_sandbox);

    let mut log = Log::new();
    ask(&mut log, false);
    let approval = shown(&log).unwrap().approval.unwrap();
    assert_eq!(approval.prefix, Some(words("cargo test")));
    let mut once = log.clone();
    decide(&mut log, Some("cargo test"));
    let approval = shown(&log).unwrap().approval.unwrap();
    assert_eq!(approval.prefix, Some(words("cargo test")));
    decide(&mut once, None);
    assert_eq!(shown(&once).unwrap().approval.unwrap().prefix, None);
}
