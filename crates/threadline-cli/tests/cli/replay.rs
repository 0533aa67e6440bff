//! Replaying, compacting, forking before a compaction, and what vouches for a summary.

use std::{collections::BTreeSet, fs};

use serde_json::Value;
use threadline_session::{
    Event, Payload,
    chain::Chain,
    codec::{Encoder, Line},
    payload::ContentPart,
};

use crate::support::World;

/// A session of three turns that was compacted, and has gone on.
fn compacted(world: &World) -> String {
    let id = world.hello();
    let long = format!("{}\n$ echo done", "please ".repeat(900));
    let run = |task: &str| {
        world
            .call(&["run", "--session", &id, "--approval", "never", task])
            .ok();
    };
    run(&long);
    world.call(&["compact", &id]).ok();
    run("go on");
    id
}

fn find(world: &World, id: &str, kind: &str) -> Value {
    let events = world.events(id);
    let found = events.into_iter().find(|event| event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {id}"))
}

/// Changes one byte of the first summary in a log, with a checksum that is right again, and
/// with a chain that is too if `chained`.
fn change_summary(path: &std::path::Path, chained: bool) {
    let log = fs::read_to_string(path).unwrap();
    let mut lines = log.split_inclusive('\n');
    let mut changed = lines.next().unwrap().as_bytes().to_vec();
    let mut encoder = Encoder::new(Chain::new());
    encoder.header(&changed);
    let mut done = false;
    for line in lines {
        let decoded = Line::decode(line.trim_end().as_bytes()).unwrap();
        let mut event = decoded.event;
        let Ok(Payload::CompactionSummary(mut summary)) = event.payload() else {
            if chained {
                changed.extend(encoder.batch(event.seq, &[event], None).unwrap().bytes);
            } else {
                changed.extend(line.as_bytes());
            }
            continue;
        };
        assert!(
            !std::mem::replace(&mut done, true),
            "one summary is changed"
        );
        let ContentPart::Text { text } = &mut summary.summary[0] else {
            panic!("a summary is text");
        };
        text.replace_range(0..1, "s");
        event = Event::new(event.seq, event.time, &Payload::CompactionSummary(summary)).unwrap();
        let bytes = encoder.batch(event.seq, &[event], None).unwrap().bytes;
        changed.extend(bytes);
    }
    assert!(done);
    // A frozen beginning may not be written to; it is replaced.
    fs::remove_file(path).unwrap();
    fs::write(path, changed).unwrap();
}

/// Every file of a session that holds its summary, so that forks share what was changed.
fn holders(world: &World) -> Vec<std::path::PathBuf> {
    let mut files = world.files();
    let mut seen = BTreeSet::new();
    files.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_log = name == "log.jsonl" || (name.starts_with("base-") && name.ends_with(".jsonl"));
        is_log
            && fs::read_to_string(path)
                .unwrap()
                .contains("\"compaction/summary\"")
            && seen.insert(path.clone())
    });
    files
}

#[test]
fn a_compacted_session_is_replayed_shown_and_forked_before_its_compaction() {
    let world = World::new();
    let id = compacted(&world);
    let before = world.snapshot();
    let called = world.call(&["replay", &id]);
    called.ok().prints(&[
        "replayed 4 steps of 4 turns: identical",
        "note: turn 3: taken over from event ",
        "a compaction that a person asked for",
    ]);
    let report = world.call(&["replay", &id, "--json"]).ok().json();
    assert_eq!(report["identical"], true);
    assert_eq!(
        (&report["steps"], &report["drivenSteps"]),
        (&4.into(), &4.into())
    );
    assert_eq!(report["divergence"], Value::Null);

    let summary = find(&world, &id, "compaction/summary");
    let seq = summary["seq"].as_u64().unwrap();
    let (from, to) = (
        &summary["data"]["replaces"]["fromSeq"],
        &summary["data"]["replaces"]["toSeq"],
    );
    let tokens = format!(
        "about {} tokens before, {} after",
        summary["data"]["tokensBefore"], summary["data"]["tokensAfter"]
    );
    world.call(&["show", &id]).ok().prints(&[
        &format!("a summary stands for events {from} to {to}; {tokens} ----"),
        &format!("go on with them: threadline fork {id} --at {}", seq - 1),
    ]);
    let shown = world.call(&["show", &id, "--json"]).ok().json();
    assert_eq!(shown["compactions"][0]["seq"], seq);
    assert_eq!(
        shown["compactions"][0]["tokensBefore"],
        summary["data"]["tokensBefore"]
    );
    assert!(world.snapshot() == before, "looking writes nothing");

    // The turn that asked for the compaction is left out, and nothing is cut in two.
    let forked = world.call(&["fork", &id, "--before-compaction", "--json"]);
    let forked = forked.ok().json();
    assert_eq!(forked["closed"], 0);
    assert!(forked["parent"]["seq"].as_u64().unwrap() < seq);
    let child = forked["id"].as_str().unwrap();
    let history = world.call(&["show", child, "--history"]);
    history.ok().prints(&["please please"]);
    assert!(!history.stdout.contains("Summary of the conversation"));
    world
        .call(&["fork", child, "--before-compaction"])
        .exits(2)
        .says(&["no compaction is in force", "--at SEQ"]);
    world
        .call(&["fork", &id, "--before-compaction", "--at", "1"])
        .exits(2)
        .says(&["cannot be used with"]);
}

#[test]
fn compacting_says_what_it_came_to_and_the_limit_of_a_model_is_kept_to() {
    let world = World::new();
    let id = world.hello();
    let called = world.call(&["compact", &id]);
    called.ok().prints(&["Nothing was replaced"]);
    let long = "please ".repeat(900);
    world.call(&["run", "--session", &id, &long]).ok();
    let lines = world.call(&["compact", &id, "--json"]).ok().lines();
    assert!(
        lines
            .iter()
            .any(|line| line["type"] == "compaction/summary")
    );
    assert_eq!(lines.last().unwrap()["type"], "run_finished");
    world.call(&["compact", "not-there"]).exits(3);

    // A model that takes little has its history compacted before the next request.
    let config = world.home().join(".config/threadline");
    fs::create_dir_all(&config).unwrap();
    let model = |id: &str| {
        let start = find(&world, id, "turn/start");
        let context = &start["data"]["context"];
        format!(
            "{}/{}",
            context["provider"].as_str().unwrap(),
            context["model"].as_str().unwrap()
        )
    };
    let id = world.hello();
    // Room for two of the messages, as tokens are counted as long as no provider says.
    let empty = find(&world, &id, "step/start")["data"]["request"]["bytes"].as_u64();
    let room = empty.unwrap() + long.len() as u64 * 27 / 10;
    let limit = format!(
        "[models.\"{}\"]\ncontext_tokens = {}\n",
        model(&id),
        room * 28 / 80
    );
    fs::write(config.join("config.toml"), limit).unwrap();
    for _ in 0..2 {
        world.call(&["run", "--session", &id, &long]).ok();
    }
    let events = world.events(&id);
    assert!(
        !events.iter().any(|e| e["type"] == "compaction/summary"),
        "it fits"
    );
    let called = world.call(&["run", "--session", &id, &long]);
    called.ok().says(&["the history was compacted: from about"]);
    world.call(&["verify", &id, "--requests"]).ok();
    world
        .call(&["replay", &id])
        .ok()
        .prints(&["identical", "a compaction:"]);
    let flag = world.call(&["run", "--session", &id, "--context-tokens", "0", "x"]);
    flag.exits(2);
}

#[test]
fn a_replay_that_parts_from_the_log_says_where_and_exits_1() {
    let world = World::new();
    let id = compacted(&world);
    change_summary(&world.log_path(&id), true);
    world.call(&["verify", &id]).ok();
    let called = world.call(&["replay", &id]);
    called.exits(1).says(&["verify", "--requests"]).prints(&[
        "diverged",
        "turn 4, step 4, seq ",
        "what was sent had",
    ]);
    let report = world.call(&["replay", &id, "--json"]).exits(1).json();
    assert_eq!(report["identical"], false);
    assert_eq!(report["divergence"]["recorded"], "step/start");
    world.call(&["replay", "not-there"]).exits(3);
    let mut log = world.log(&id);
    let middle = log.len() / 2;
    log[middle] ^= 1;
    fs::write(world.log_path(&id), log).unwrap();
    world.call(&["replay", &id]).exits(5);
}

#[test]
fn a_changed_summary_is_found_in_sessions_rewound_forked_and_copied() {
    let world = World::new();
    let id = compacted(&world);
    let run = |id: &str| world.call(&["run", "--session", id, "and on"]).ok().code();
    // Gone back and forth, forked, forked from the fork, and copied to another store.
    world.call(&["rewind", &id, "--turns", "1"]).ok();
    run(&id);
    let fork = |of: &str| world.call(&["fork", of]).ok().stdout.trim().to_owned();
    let child = fork(&id);
    run(&child);
    let grandchild = fork(&child);
    run(&grandchild);
    let other = world.root().join("other");
    let other = other.to_str().unwrap();
    let store = world.store();
    let copy = |to: &str| {
        let from = store.to_str().unwrap();
        world.call(&["store", "copy", from, to])
    };
    copy(other).ok();
    let all = [&id, &child, &grandchild];
    for id in all {
        for store in [store.to_str().unwrap(), other] {
            let args = ["verify", id, "--requests", "--store", store];
            world.call(&args).ok().prints(&["ok,"]);
            world.call(&["replay", id, "--store", store]).ok();
        }
    }

    let mut world = world;
    let stores = [store.to_str().unwrap().to_owned(), other.to_owned()];
    for at in &stores {
        world.env.insert("THREADLINE_HOME".into(), at.clone());
        let pristine: Vec<_> = holders(&world)
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        // The checksum is right, so the chain tells, and requests are not even looked at.
        change_all(&pristine, false);
        for id in all {
            let called = world.call(&["verify", id, "--requests"]);
            called.exits(5).prints(&["chain value does not match"]);
        }
        let third = world.root().join("third");
        let copied = world.call(&["store", "copy", at, third.to_str().unwrap()]);
        copied.exits(1).prints(&["the chain is broken"]);

        // With a chain that was made again only the requests tell.
        change_all(&pristine, true);
        world.call(&["verify", &id]).ok();
        let called = world.call(&["verify", &id, "--requests"]);
        called
            .exits(5)
            .prints(&["the log does not rebuild the request that step 4 sent"]);
    }
}

fn change_all(pristine: &[(Vec<u8>, std::path::PathBuf)], chained: bool) {
    for (bytes, path) in pristine {
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
        change_summary(path, chained);
    }
}
