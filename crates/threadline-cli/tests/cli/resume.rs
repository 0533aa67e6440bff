//! Going on with a session from another process.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, value::RawValue};
use threadline_strict_model::Reply;

use crate::support::{Strict, World, alive, pids, until};

/// Returns the text of a request's messages without the closing bracket.
fn messages(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        messages: Box<RawValue>,
    }
    let body: Body = serde_json::from_slice(body).unwrap();
    body.messages.get().trim_end_matches(']').to_owned()
}

#[test]
fn the_second_turn_continues_the_first() {
    let strict = Strict::new([Reply::text("Hello to you."), Reply::text("Again indeed.")]);
    let world = World::new().with_model(&strict);
    let first = world.call(&["run", "--json", "hello"]);
    let first = first.ok().lines();
    let id = first[0]["sessionId"].as_str().unwrap();
    assert_eq!(first[0]["runId"], id);
    assert_eq!(first[0]["resumed"], false);
    let before = world.log(id);
    let second = world.call(&["run", "--json", "--session", id, "again"]);
    second.ok();
    let lines = second.lines();
    assert_eq!(lines[0]["sessionId"], id);
    assert_eq!(lines[0]["resumed"], true);
    assert_ne!(lines[0]["runId"], id);
    // The log grew by the second turn's events, and by nothing else.
    let after = world.log(id);
    assert!(after.starts_with(&before));
    let shown: Vec<&str> = second.stdout.lines().collect();
    let grown = shown[1..shown.len() - 1].join("\n") + "\n";
    assert_eq!(String::from_utf8_lossy(&after[before.len()..]), grown);
    // The second request holds the first turn, byte for byte.
    let requests = strict.model.requests();
    assert_eq!(requests.len(), 2);
    let (one, two) = (messages(&requests[0].body), messages(&requests[1].body));
    assert!(two.starts_with(&one), "{one}\n{two}");
    assert!(two[one.len()..].contains("Hello to you."), "{two}");
    let list = requests[1].json["messages"].as_array().unwrap();
    let roles: Vec<&str> = list.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles[roles.len() - 3..], ["user", "assistant", "user"]);
    assert!(
        list[list.len() - 3]["content"]
            .to_string()
            .contains("hello")
    );
    assert!(
        list[list.len() - 1]["content"]
            .to_string()
            .contains("again")
    );
    assert_eq!(requests[0].authorization.as_deref(), Some("Bearer test"));
    strict.model.assert_no_violations();
}

#[test]
fn a_session_is_found_from_anywhere_and_keeps_its_directory_and_policy() {
    let world = World::new();
    let id = world.hello();
    let args = [
        "run",
        "--json",
        "--session",
        &id,
        "--approval",
        "never",
        "$ pwd",
    ];
    let out = world
        .command(&args)
        .current_dir(world.home())
        .output()
        .unwrap();
    let lines: Vec<Value> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["policy"]["cwd"], world.work().to_str().unwrap());
    assert_eq!(lines[0]["policy"]["approvalPolicy"], "never");
    // What was widened by a flag stays in force; a default never replaces it.
    let kept = world.call(&["run", "--json", "--session", &id, "more"]);
    assert_eq!(kept.ok().lines()[0]["policy"]["approvalPolicy"], "never");
}

#[test]
fn a_session_keeps_its_model_when_the_settings_change() {
    let strict = Strict::new([Reply::text("From the server.")]);
    let world = World::new();
    let id = world.hello();
    let world = world.with_model(&strict);
    let kept = world.call(&["run", "--json", "--session", &id, "more"]);
    assert_eq!(kept.ok().lines()[0]["policy"]["provider"], "offline");
    assert!(strict.model.requests().is_empty());
    let moved = world.call(&[
        "run",
        "--json",
        "--provider",
        "openai-chat",
        "--session",
        &id,
        "more",
    ]);
    assert_eq!(moved.ok().lines()[0]["policy"]["provider"], "openai-chat");
    assert_eq!(strict.model.requests().len(), 1);
    strict.model.assert_no_violations();
}

#[test]
fn sigterm_ends_the_turn_as_cancelled_with_everything_flushed() {
    for signal in [Signal::TERM, Signal::INT] {
        let strict = Strict::new([Reply::text("Some words of").gate("a"), Reply::text("On.")]);
        let world = World::new().with_model(&strict);
        let mut running = world.start(&["run", "--json", "hello"]);
        let id = running.wait_type("run_started")["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        strict.wait_reached("a");
        running.wait_type("assistant/chunk");
        running.signal(signal);
        let (status, lines, stderr) = running.finish();
        assert_eq!(status.code(), Some(130), "{stderr}");
        let last = lines.last().unwrap();
        assert_eq!(last["type"], "run_finished");
        assert_eq!(last["reason"]["kind"], "cancelled");
        let events = world.events(&id);
        let end = events.last().unwrap();
        assert_eq!(end["type"], "turn/end");
        assert_eq!(end["data"]["reason"]["kind"], "cancelled");
        assert_eq!(last["durableSeq"], end["seq"]);
        let partial = events
            .iter()
            .find(|event| event["type"] == "assistant/message")
            .unwrap();
        assert_eq!(partial["data"]["interrupted"], true);
        assert!(partial["data"].to_string().contains("Some words of"));
        world.call(&["verify", &id, "--requests"]).ok();
        world.call(&["run", "--session", &id, "go on"]).ok();
        assert!(
            serde_json::to_string(&strict.last_messages())
                .unwrap()
                .contains("Some words of")
        );
        strict.model.assert_no_violations();
    }
}

#[test]
fn sigterm_in_a_tool_ends_its_processes_and_says_so_to_the_model() {
    let work = "echo $$ > pids; mkfifo never; cat never";
    let strict = Strict::new([
        Reply::call("call_1", "shell", serde_json::json!({"command": work})).and_call(
            "call_2",
            "shell",
            serde_json::json!({"command": "echo second"}),
        ),
        Reply::text("On."),
    ]);
    let world = World::new().with_model(&strict);
    let mut running = world.start(&["run", "--json", "--approval", "never", "hello"]);
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let ids = pids(&world.work().join("pids"), 1);
    running.signal(Signal::TERM);
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(130), "{stderr}");
    until("the tool is gone", || ids.iter().all(|pid| !alive(*pid)));
    let outcomes: Vec<Value> = world
        .events(&id)
        .into_iter()
        .filter(|event| event["type"] == "tool/result")
        .map(|event| event["data"]["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["cancelled", "cancelled"]);
    world.call(&["run", "--session", &id, "go on"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn a_second_interrupt_exits_at_once() {
    let long = Reply::text("x".repeat(400_000));
    let strict = Strict::new([long, Reply::text("On.")]);
    let world = World::new().with_model(&strict);
    // Nobody reads the output, so the program waits at a full pipe after its run has ended.
    let mut child = world
        .command(&["run", "--json", "hello"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = || {
        world.files().iter().any(|path| {
            path.ends_with("log.jsonl")
                && fs::read(path)
                    .unwrap()
                    .windows(10)
                    .any(|bytes| bytes == b"\"turn/end\"")
        })
    };
    until("the run's end is logged", ended);
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("press Ctrl-C again"), "{said}");
    assert!(
        child.try_wait().unwrap().is_none(),
        "the first interrupt waits for good order"
    );
    kill_process(pid, Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let listed = world.call(&["ls", "--json"]);
    let id = listed.ok().json()["sessions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call(&["verify", &id, "--requests"]).ok();
    world.call(&["run", "--session", &id, "go on"]).ok();
    strict.model.assert_no_violations();
}
