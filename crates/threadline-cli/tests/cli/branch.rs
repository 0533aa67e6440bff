//! Branching, going back, and taking a session over.

use serde_json::Value;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

/// Returns the roles and texts of a request's messages, without those of the system.
fn said(messages: &[Value]) -> String {
    messages
        .iter()
        .filter(|message| message["role"] != "system")
        .map(|message| format!("{}: {}\n", message["role"], message["content"]))
        .collect()
}

/// A session of two turns against a model.
fn two_turns(strict: &Strict) -> (World, String) {
    let world = World::new().with_model(strict);
    let first = world.call(&["run", "--json", "first task"]);
    let id = first.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call(&["run", "--session", &id, "second task"]).ok();
    (world, id)
}

/// Returns the number of the last event of a type.
fn last_of(world: &World, id: &str, kind: &str) -> u64 {
    let events = world.events(id);
    let found = events.iter().rev().find(|event| event["type"] == kind);
    found.unwrap()["seq"].as_u64().unwrap()
}

#[test]
fn a_fork_prints_its_id_and_goes_its_own_way() {
    let strict = Strict::new([
        Reply::text("One."),
        Reply::text("Two."),
        Reply::text("Forked."),
        Reply::text("Three."),
    ]);
    let (world, id) = two_turns(&strict);
    let parent = world.log(&id);
    let forked = world.call(&["fork", &id]);
    let child = forked.ok().stdout.trim().to_owned();
    assert_eq!(
        forked.redacted(),
        format!(
            "exit 0\n--- stdout\n{placeholder}\n--- stderr\nforked {placeholder} at event {last} of \
             {placeholder}\nGo on with: threadline run --session {placeholder} \"TASK\"\n",
            placeholder = "<id................................>",
            last = last_of(&world, &id, "turn/end")
        )
    );
    // A new id is of version 7, as every session's.
    assert_eq!(&child[14..15], "7", "{child}");
    world.call(&["run", "--session", &child, "other way"]).ok();
    let messages = said(&strict.last_messages());
    for text in ["first task", "One.", "second task", "Two.", "other way"] {
        assert!(messages.contains(text), "{messages}");
    }
    world.call(&["run", "--session", &id, "my way"]).ok();
    let messages = said(&strict.last_messages());
    assert!(
        messages.contains("my way") && !messages.contains("other way"),
        "{messages}"
    );
    assert!(world.log(&id).starts_with(&parent));
    let shown = world.call(&["show", &child, "--json"]);
    assert_eq!(shown.ok().json()["header"]["parent"]["id"], id.as_str());
    world.call(&["verify", "--all"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn run_in_a_fork_at_an_event_that_cuts_a_turn_in_two() {
    let strict = Strict::new([
        Reply::text("One."),
        Reply::text("Two."),
        Reply::text("In the fork."),
    ]);
    let (world, id) = two_turns(&strict);
    let parent = world.log(&id);
    let at = last_of(&world, &id, "user/message");
    let called = world.call(&["run", "--json", "--fork", &format!("{id}@{at}"), "third"]);
    let lines = called
        .ok()
        .says(&[&format!(
            "at event {at} of {id}; the turn was cut in two and is closed in the fork (1 event)"
        )])
        .lines();
    let child = lines[0]["sessionId"].as_str().unwrap();
    assert_ne!(child, id);
    assert_eq!(world.log(&id), parent, "the parent is not touched");
    let messages = said(&strict.last_messages());
    assert!(
        messages.contains("second task") && !messages.contains("Two."),
        "{messages}"
    );
    strict.model.assert_no_violations();
    // Deleting the parent leaves the fork whole.
    world.call(&["rm", &id, "--yes"]).ok();
    world.call(&["verify", child]).ok();
    world.call(&["show", child]).ok().prints(&["first task"]);
}

#[test]
fn a_fork_at_an_event_that_is_not_there_makes_nothing() {
    let world = World::new();
    let id = world.hello();
    let before = world.files();
    world
        .call(&["fork", &id, "--at", "999"])
        .exits(2)
        .says(&["has no event 999: fork at one of 0 to ", "show "]);
    let args = ["run", "--json", "--fork", &format!("{id}@999"), "x"];
    assert_eq!(world.call(&args).exits(2).json()["code"], "usage");
    world
        .call(&["fork", "not-there"])
        .exits(3)
        .says(&["threadline ls"]);
    assert_eq!(world.files(), before);
}

#[test]
fn a_rewound_turn_is_not_sent_and_a_redone_one_is() {
    let strict = Strict::new([
        Reply::text("One."),
        Reply::text("Two."),
        Reply::text("After going back."),
        Reply::text("After the redo."),
    ]);
    let (world, id) = two_turns(&strict);
    let before = world.log(&id);
    let back = world.call(&["rewind", &id, "--turns", "1", "--json"]);
    let moved = back
        .ok()
        .says(&[
            "is now what it was right after event ",
            "as to files, is not undone",
            "Nothing was removed from the log",
            &format!("threadline redo {id}"),
        ])
        .json();
    let last = world.events(&id).last().unwrap().clone();
    assert_eq!(last["type"], "history/head");
    assert_eq!(last["seq"], moved["seq"]);
    assert_eq!(last["data"]["seq"], moved["toSeq"]);
    assert!(world.log(&id).starts_with(&before));
    let redo = world.call(&["redo", &id]);
    redo.ok().says(&["as to files, is not undone"]);
    assert_eq!(redo.stdout, "");
    world.call(&["redo", &id]).exits(2).says(&[
        "nothing to redo",
        &format!("threadline rewind {id} --to SEQ"),
    ]);
    let to = moved["toSeq"].to_string();
    world.call(&["rewind", &id, "--to", &to]).ok();
    world.call(&["run", "--session", &id, "third task"]).ok();
    let messages = said(&strict.last_messages());
    assert!(
        messages.contains("first task") && !messages.contains("second task"),
        "{messages}"
    );
    // The turn that was gone back over does not count.
    world
        .call(&["rewind", &id, "--turns", "3"])
        .exits(2)
        .says(&["only 2 turns"]);
    world
        .call(&["rewind", &id, "--to", "999"])
        .exits(2)
        .says(&["no event 999"]);
    world.call(&["verify", &id]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn a_session_that_another_process_writes_is_taken_over_and_the_other_one_stores_nothing() {
    let strict = Strict::new([
        Reply::text("Held").gate("a").and_text(" back."),
        Reply::text("Taken."),
        Reply::text("On."),
    ]);
    let world = World::new().with_model(&strict);
    let mut first = world.start(&["run", "--json", "hello"]);
    let id = first.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    strict.wait_reached("a");
    let pid = first.pid().to_string();
    let args = ["run", "--json", "--session", &id, "mine"];
    let refused = world.call(&args).exits(4).json();
    let hint = refused["hint"].as_str().unwrap();
    assert!(
        hint.contains("--take-over") && hint.contains(&pid),
        "{refused}"
    );
    for args in [
        vec!["rewind", &id, "--to", "0"],
        vec!["redo", &id],
        vec!["repair", &id],
    ] {
        // Nothing is wrong with it, so there is nothing to repair.
        let code = if args[0] == "repair" { 0 } else { 4 };
        world.call(&args).exits(code);
    }
    let taken = world.call(&["run", "--session", &id, "--take-over", "mine"]);
    taken
        .ok()
        .prints(&["Taken."])
        .says(&[&format!("taken over from process {pid}"), "was closed with"]);
    let after = world.log(&id);
    strict.model.gate("a").open();
    let (status, lines, stderr) = first.finish();
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert_eq!(lines.last().unwrap()["code"], "fenced", "{lines:#?}");
    assert_eq!(world.log(&id), after, "a fenced writer stores nothing");
    world.call(&["verify", &id]).ok();
    world.call(&["run", "--session", &id, "go on"]).ok();
    world.call(&["doctor", &id]).ok().prints(&[
        "base-0.jsonl",
        "lock-1",
        "of a writer that was taken over",
    ]);
    strict.model.assert_no_violations();
    // With nobody to take it from, it is opened as usual.
    let quiet = world.call(&["redo", &id, "--take-over"]);
    quiet.exits(2);
    assert!(!quiet.stderr.contains("taken over"), "{quiet:?}");
}
