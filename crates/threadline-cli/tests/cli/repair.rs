//! Damage in the middle of a log: found, explained, mended, and gone on with.

use std::fs;

use threadline_strict_model::Reply;

use crate::support::{Strict, World};

/// Changes a byte of an event's line, and returns where the line begins and its length.
fn flip(world: &World, id: &str, seq: usize) -> (usize, usize) {
    let mut log = world.log(id);
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let start: usize = lines[..=seq].iter().map(|line| line.len()).sum();
    let len = lines[seq + 1].len();
    log[start + len / 2] ^= 1;
    fs::write(world.log_path(id), log).unwrap();
    (start, len)
}

#[test]
fn a_log_with_a_changed_byte_is_repaired_and_gone_on_with() {
    let strict = Strict::new([
        Reply::text("One."),
        Reply::text("Two."),
        Reply::text("Three."),
    ]);
    let world = World::new().with_model(&strict);
    let first = world.call(&["run", "--json", "hello"]);
    let id = first.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call(&["run", "--session", &id, "again"]).ok();
    let events = world.events(&id);
    let count = events.len();
    let lost = events
        .iter()
        .position(|event| event["type"] == "assistant/message")
        .unwrap();
    let (at, len) = flip(&world, &id, lost);
    let damaged = world.log(&id);
    let before = world.snapshot();
    let hint = format!("threadline repair {id}");
    world.call(&["verify", &id]).exits(5).prints(&[&hint]);
    let report = world.call(&["verify", &id, "--json"]).exits(5).json();
    assert_eq!(report["sessions"][0]["repair"]["kept"], count - 1);
    world
        .call(&["run", "--session", &id, "x"])
        .exits(5)
        .says(&[&hint]);
    world.call(&["doctor", &id]).exits(5).prints(&[
        "log.jsonl      bad",
        &format!("damaged at byte {at}, where event {lost} belongs"),
        &hint,
    ]);
    let dry = world.call(&["repair", &id, "--dry-run"]);
    let path = world.log_path(&id).display().to_string();
    dry.ok()
        .prints(&[
            &format!("would be repaired, {} events kept, 1 lost", count - 1),
            &format!("  kept  events 0 to {}\n", lost - 1),
            &format!("  lost  event {lost}  {path} at byte {at}, {len} bytes"),
            &format!("  kept  events {} to {}\n", lost + 1, count - 1),
        ])
        .says(&["Nothing was changed"]);
    assert!(world.snapshot() == before, "a dry run writes nothing");

    let done = world.call(&["repair", &id]);
    done.ok().prints(&[": repaired, "]).says(&[
        "The log as it was is kept in ",
        "quarantine",
        "--session",
    ]);
    let kept = world.files().into_iter().any(|path| {
        path.to_string_lossy().contains("/quarantine/") && fs::read(path).unwrap() == damaged
    });
    assert!(kept, "the old log is kept byte for byte");
    world.call(&["verify", &id]).ok();
    world
        .call(&["verify", &id, "--requests"])
        .ok()
        .prints(&["note: 1 request cannot be rebuilt"]);
    world.call(&["doctor", &id]).ok().prints(&["quarantine"]);
    world.call(&["show", &id]).ok().prints(&["hello", "Two."]);
    world.call(&["run", "--session", &id, "go on"]).ok();
    strict.model.assert_no_violations();
    let again = world.call(&["repair", &id, "--json"]);
    assert_eq!(again.ok().json()["repaired"], false);
    again.says(&["Nothing is wrong"]);
    world
        .call(&["repair", "not-there"])
        .exits(3)
        .says(&["threadline ls"]);
}

#[test]
fn doctor_names_each_file_and_what_a_crash_left() {
    let strict = Strict::new([Reply::text("One").gate("a"), Reply::text("Two.")]);
    let world = World::new().with_model(&strict);
    let mut running = world.start(&["run", "--json", "hello"]);
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    strict.wait_reached("a");
    let pid = running.pid().to_string();
    world.call(&["doctor", &id]).ok().prints(&[
        &format!("process {pid} on "),
        "writes since",
        "[I8]",
    ]);
    assert!(running.kill());
    let dir = world.log_path(&id).parent().unwrap().to_owned();
    fs::write(dir.join("summary.json"), "no json").unwrap();
    fs::write(dir.join("index"), "no index").unwrap();
    fs::write(dir.join("log.jsonl.new"), "half").unwrap();
    fs::write(dir.join("notes.txt"), "mine").unwrap();
    let before = world.snapshot();
    let called = world.call(&["doctor", &id]);
    called.ok().prints(&[
        "its turn was cut short, and the next run appends",
        &format!("writer {pid} on "),
        "died; durable up to event ",
        "garbled",
        "what people set is missing",
        "no usable checkpoint",
        "a change that was cut short before it counted",
        "no file of Threadline's",
    ]);
    for line in called.stdout.lines().filter(|line| line.contains(" left ")) {
        assert!(line.contains("[I"), "{line}");
    }
    let report = world.call(&["doctor", &id, "--json"]).ok().json();
    let files = report["sessions"][0]["files"].as_array().unwrap();
    let state = |name: &str| {
        let file = files.iter().find(|file| file["name"] == name);
        file.unwrap()["state"].as_str().unwrap().to_owned()
    };
    for name in ["log.jsonl", "lock", "index", "summary.json", "notes.txt"] {
        assert_eq!(state(name), "left", "{name}");
    }
    assert!(world.snapshot() == before, "looking writes nothing");
    world.call(&["run", "--session", &id, "go on"]).ok();
    strict.model.assert_no_violations();
}
