//! Every change of a log is found, and the finding names the place.

use std::fs;

use serde_json::{Value, json};
use threadline_session::{
    Event, Payload,
    chain::Chain,
    codec::{Encoder, Line},
};
use threadline_strict_model::Reply;

use crate::support::{Called, Strict, World};

/// A session with three turns: text, tools, and one that was cut short.
fn session() -> (World, Strict, String) {
    let strict = Strict::new([
        Reply::text("Hello to you."),
        Reply::call("call_1", "ls", serde_json::json!({"path": "."})).and_call(
            "call_2",
            "shell",
            serde_json::json!({"command": "echo out"}),
        ),
        Reply::text("That was all."),
        Reply::text("cut").gate("a"),
    ]);
    let world = World::new().with_model(&strict);
    let first = world.call(&["run", "--json", "hello"]);
    let id = first.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    world
        .call(&["run", "--session", &id, "--approval", "never", "use tools"])
        .ok();
    let mut running = world.start(&["run", "--session", &id, "--json", "be cut"]);
    strict.wait_reached("a");
    running.signal(rustix::process::Signal::TERM);
    running.wait_type("run_finished");
    assert_eq!(running.finish().0.code(), Some(130));
    (world, strict, id)
}

#[track_caller]
fn found(called: &Called, what: &str) {
    assert_eq!(called.code(), Some(5), "{what}: {called:#?}");
    assert!(called.stdout.contains("seq "), "{what}: {called:#?}");
}

#[test]
fn a_good_log_passes_and_prints_its_head() {
    let (world, _strict, id) = session();
    let good = world.call(&["verify", &id, "--head"]);
    good.ok()
        .prints(&[": ok,", "3 turns chained", "  head "])
        .says(&["nothing is wrong"]);
    let json = world.call(&["verify", "--all", "--json"]);
    let json = json.ok().json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["checked"], 1);
    world.call(&["verify", &id, "--requests"]).ok();
    let head = json["sessions"][0]["head"].as_str().unwrap();
    assert!(good.stdout.contains(head));
}

#[test]
fn one_changed_byte_of_any_line_is_found() {
    let (world, _strict, id) = session();
    let path = world.log_path(&id);
    let log = world.log(&id);
    let mut start = 0;
    let mut changes = 0;
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        // The ends, the line feed itself, the checksum, and places between.
        let len = line.len();
        for at in [
            0,
            1,
            8,
            len / 4,
            len / 2,
            len * 3 / 4,
            len - 12,
            len - 5,
            len - 3,
            len - 2,
            len - 1,
        ] {
            let mut changed = log.clone();
            changed[start + at] ^= 1;
            fs::write(&path, &changed).unwrap();
            found(
                &world.call(&["verify", &id]),
                &format!("byte {at} of {}", String::from_utf8_lossy(line)),
            );
            changes += 1;
        }
        start += len;
    }
    fs::write(&path, &log).unwrap();
    world.call(&["verify", &id]).ok();
    assert!(changes > 200, "{changes}");
}

#[test]
fn a_deleted_or_swapped_line_is_found() {
    let (world, _strict, id) = session();
    let path = world.log_path(&id);
    let log = world.log(&id);
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    for at in 0..lines.len() {
        let mut without = lines.clone();
        without.remove(at);
        fs::write(&path, without.concat()).unwrap();
        found(&world.call(&["verify", &id]), &format!("line {at} deleted"));
        if at + 1 < lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            fs::write(&path, swapped.concat()).unwrap();
            found(
                &world.call(&["verify", &id]),
                &format!("lines {at} and {} swapped", at + 1),
            );
        }
    }
}

#[test]
fn a_log_cut_at_any_line_is_found() {
    let (world, _strict, id) = session();
    let path = world.log_path(&id);
    let log = world.log(&id);
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    for kept in 1..lines.len() {
        fs::write(&path, lines[..kept].concat()).unwrap();
        found(
            &world.call(&["verify", &id]),
            &format!("cut after line {kept}"),
        );
    }
}

#[test]
fn a_text_changed_together_with_its_checksum_is_found_by_the_chain() {
    let (world, _strict, id) = session();
    let log = String::from_utf8(world.log(&id)).unwrap();
    let changed: Vec<String> = log
        .lines()
        .map(|line| {
            if !line.contains("Hello to you.") {
                return line.to_owned();
            }
            let line = line.replace("Hello to you.", "Hello to him.");
            let body = &line[..line.rfind(",\"crc\"").unwrap()];
            let crc = threadline_session::codec::crc32c(body.as_bytes());
            format!("{body},\"crc\":\"{crc:08x}\"}}")
        })
        .collect();
    fs::write(world.log_path(&id), changed.join("\n") + "\n").unwrap();
    world
        .call(&["verify", &id])
        .exits(5)
        .prints(&["chain value does not match"]);
    let json = world.call(&["verify", &id, "--json"]);
    let report = json.exits(5).json();
    assert_eq!(report["ok"], false);
    for finding in report["sessions"][0]["findings"].as_array().unwrap() {
        assert!(finding["seq"].is_u64(), "{finding}");
        assert!(finding["message"].is_string(), "{finding}");
    }
}

/// Changes the fingerprint of the first request, and all that vouches for it.
fn forge_fingerprint(world: &World, id: &str) {
    let log = String::from_utf8(world.log(id)).unwrap();
    let mut encoder = Encoder::new(Chain::new());
    let mut lines = log.split_inclusive('\n');
    let mut forged = lines.next().unwrap().as_bytes().to_vec();
    encoder.header(&forged);
    let events: Vec<Event> = lines
        .map(|line| Line::decode(line.trim_end().as_bytes()).unwrap().event)
        .map(|event| match event.payload().unwrap() {
            Payload::StepStart(mut start) => {
                start.request.fingerprint = "0".repeat(64);
                Event::new(event.seq, event.time, &Payload::StepStart(start)).unwrap()
            }
            _ => event,
        })
        .collect();
    forged.extend_from_slice(&encoder.batch(0, &events, None).unwrap().bytes);
    fs::write(world.log_path(id), forged).unwrap();
}

#[test]
fn requests_are_rebuilt_only_when_that_is_asked_for() {
    let world = World::new();
    let (good, bad) = (world.hello(), world.hello());
    forge_fingerprint(&world, &bad);
    let hint = format!("`threadline verify {bad} --requests` does that too");
    let before = world.snapshot();
    world
        .call(&["verify", &bad])
        .ok()
        .says(&["not rebuilt", &hint]);
    world
        .call(&["verify", "--all"])
        .ok()
        .says(&["`threadline verify --all --requests`"]);
    let called = world.call(&["verify", "--all", "--requests"]);
    called.exits(5).prints(&[
        &format!("{good}: ok"),
        &format!("{bad}: 1 finding,"),
        "the log does not rebuild the request that step 1 sent",
    ]);
    assert!(!called.stderr.contains("not rebuilt"), "{called:#?}");

    let report = |args: &[&str], code| world.call(args).exits(code).json();
    let fast = report(&["verify", "--all", "--json"], 0);
    let full = report(&["verify", "--all", "--requests", "--json"], 5);
    let keys = |report: &Value| -> Vec<String> {
        let session = report["sessions"][0].as_object().unwrap();
        report
            .as_object()
            .unwrap()
            .keys()
            .chain(session.keys())
            .cloned()
            .collect()
    };
    assert_eq!(keys(&fast), keys(&full));
    let said = |report: &Value| {
        let session = &report["sessions"][1];
        assert_eq!(session["id"], bad.as_str());
        ["ok", "requests", "bereft"].map(|field| session[field].clone())
    };
    assert_eq!(said(&fast), [json!(true), json!(false), json!(null)]);
    assert_eq!(said(&full), [json!(false), json!(true), json!(0)]);
    assert_eq!(
        (&fast["requests"], &full["requests"]),
        (&json!(false), &json!(true))
    );
    let finding = &full["sessions"][1]["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["step"]),
        (&json!("request"), &json!(1))
    );
    assert!(world.snapshot() == before, "looking writes nothing");
}

#[test]
fn requests_of_a_damaged_log_are_not_rebuilt_and_that_is_said() {
    let world = World::new();
    let id = world.hello();
    let mut log = world.log(&id);
    let middle = log.len() / 2;
    log[middle] ^= 1;
    fs::write(world.log_path(&id), log).unwrap();
    world
        .call(&["verify", &id, "--requests"])
        .exits(5)
        .prints(&["requests were not rebuilt, because the log has findings"]);
    let report = world.call(&["verify", &id, "--requests", "--json"]);
    assert_eq!(report.exits(5).json()["sessions"][0]["requests"], false);
}

#[test]
fn at_a_terminal_the_outcome_is_the_same() {
    let world = World::new();
    let id = world.hello();
    let running = world.start_at_terminal(&["verify", &id, "--requests", "--json"]);
    let (status, lines, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert_eq!(lines[0]["ok"], true);
    assert!(stderr.contains("nothing is wrong"), "{stderr}");
}
