//! Commands that are approved beforehand, and calls outside of the sandbox.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use threadline_strict_model::Reply;

use crate::support::{Running, Strict, World};

fn demo(world: &World, args: &[&str]) -> crate::support::Called {
    let mut all = vec!["run", "--json", "--provider", "offline"];
    all.extend_from_slice(args);
    world.call(&all)
}

fn session(called: &crate::support::Called) -> String {
    called.lines()[0]["sessionId"].as_str().unwrap().to_owned()
}

fn listed(world: &World, id: &str) -> Vec<Value> {
    let called = world.call(&["grants", id, "--json"]);
    let grants = called.ok().json()["grants"].clone();
    serde_json::from_value(grants).unwrap()
}

fn count(world: &World, id: &str, kind: &str) -> usize {
    let events = world.events(id);
    events.iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn allowed_commands_run_unasked_until_they_are_revoked() {
    let world = World::new();
    let task = "$ printf one two";
    demo(&world, &[task]).exits(6);
    let allowed = demo(&world, &["--allow", "printf one", task]);
    let id = session(allowed.ok());
    // The log has it, so the next process knows.
    demo(&world, &["--session", &id, task]).ok();
    let grants = listed(&world, &id);
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0]["prefix"], json!(["printf", "one"]));
    assert_eq!(grants[0]["by"], "cli");
    let grant = grants[0]["grantId"].as_str().unwrap();
    world
        .call(&["grants", &id])
        .ok()
        .prints(&["printf one", grant]);
    world
        .call(&["show", &id])
        .ok()
        .prints(&[&format!("covered by the grant {grant}")]);
    // Naming it again is no second grant, and naming another widens explicitly.
    demo(
        &world,
        &[
            "--session",
            &id,
            "--allow",
            "printf one",
            "--allow",
            "make x",
            "hi",
        ],
    )
    .ok();
    assert_eq!(count(&world, &id, "approval/granted"), 2);
    world.call(&["grants", &id, "--revoke", grant]).ok();
    assert_eq!(listed(&world, &id).len(), 1);
    world.call(&["grants", &id, "--revoke", grant]).exits(2);
    demo(&world, &["--session", &id, task]).exits(6);
    world.call(&["grants", &id, "--allow", "printf one"]).ok();
    demo(&world, &["--session", &id, task]).ok();
    world.call(&["verify", &id, "--requests"]).ok();
    world.call(&["replay", &id]).ok();
}

#[test]
fn words_that_would_allow_anything_are_refused_where_they_are_said() {
    let world = World::new();
    let before = world.snapshot();
    for words in ["sh", "env", "python", "git", "", "make > x", "sudo make"] {
        let called = world.call(&["run", "--allow", words, "x"]);
        called.exits(2).says(&["--allow"]);
    }
    assert_eq!(world.snapshot(), before);
    let config = world.home().join(".config/threadline");
    fs::create_dir_all(&config).unwrap();
    let file = config.join("config.toml");
    fs::write(&file, "[approval]\nallow = [\"bash\"]\n").unwrap();
    demo(&world, &["x"])
        .exits(2)
        .says(&["config.toml", "`bash`"]);
    let table = "[approval]\nallow = [\"printf one\"]\n";
    fs::write(&file, table).unwrap();
    let called = demo(&world, &["$ printf one two"]);
    let grants = listed(&world, &session(called.ok()));
    assert_eq!(grants[0]["by"], "config");
}

fn shell(arguments: Value) -> Reply {
    Reply::call("call_1", "shell", arguments)
}

fn at_terminal(world: &World, strict: &Strict, arguments: Value) -> (Running, String) {
    strict.model.push(shell(arguments));
    strict.model.push(Reply::text("Done."));
    let mut running = world.start_at_terminal(&["run", "--json", "do it"]);
    let started = running.wait_type("run_started");
    let id = started["sessionId"].as_str().unwrap().to_owned();
    (running, id)
}

#[test]
fn the_words_that_are_offered_at_the_terminal_hold_in_the_next_process() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    fs::write(world.work().join("Makefile"), "check:\n\techo made\n").unwrap();
    let (mut running, id) = at_terminal(&world, &strict, json!({"command": "make check"}));
    let asked = running.wait_type("approval_required");
    assert_eq!(asked["prefix"], json!(["make", "check"]));
    running.type_line("a");
    let resolved = running.wait_type("approval_resolved");
    assert_eq!(resolved["decision"], "approved_for_session");
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("[a]ll that begin with `make check`"),
        "{stderr}"
    );
    strict
        .model
        .push(shell(json!({"command": "make check -s"})));
    strict.model.push(Reply::text("Done."));
    world.call(&["run", "--session", &id, "again"]).ok();
    assert_eq!(listed(&world, &id)[0]["grantId"], asked["approvalId"]);
    strict.model.assert_no_violations();
}

#[test]
fn a_call_outside_of_the_sandbox_is_asked_for_plainly_and_holds_once() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x";
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        let output = command.arg("-C").arg(world.work()).args(args).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    git(&["init", "-q", "."]);
    // In the sandbox it fails, and the model is told what it may do.
    strict.model.push(shell(json!({"command": commit})));
    strict.model.push(Reply::text("Refused."));
    let called = world.call(&["run", "--json", "--approval", "never", "commit"]);
    let id = session(called.ok());
    let told = serde_json::to_string(&strict.last_messages()).unwrap();
    assert!(told.contains("outside_sandbox: true"), "{told}");
    assert_eq!(git(&["log", "--oneline"]).lines().count(), 0);

    strict.model.push(shell(json!({
        "command": commit, "outside_sandbox": true, "reason": "to commit the work",
    })));
    strict.model.push(Reply::text("Done."));
    let args = [
        "run",
        "--json",
        "--session",
        &id,
        "--approval",
        "on_request",
        "go on",
    ];
    let mut running = world.start_at_terminal(&args);
    assert_eq!(
        running.wait_type("approval_required")["outsideSandbox"],
        true
    );
    // It is no answer here, so it is asked again.
    running.type_line("s");
    running.type_line("a");
    running.type_line("y");
    assert_eq!(
        running.wait_type("approval_resolved")["decision"],
        "approved"
    );
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    for said in ["WITHOUT the sandbox", "to commit the work", "this once?"] {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    assert_eq!(git(&["log", "--oneline"]).lines().count(), 1);
    world
        .call(&["show", &id])
        .ok()
        .prints(&["ran WITHOUT the sandbox"]);
    assert_eq!(listed(&world, &id), [] as [Value; 0]);
    world.call(&["verify", &id, "--requests"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn a_question_that_nobody_answers_in_the_time_that_is_set_is_denied() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let config = world.home().join(".config/threadline/config.toml");
    let mut text = fs::read_to_string(&config).unwrap();
    text.push_str("[approval]\ntimeout_seconds = 1\n");
    fs::write(&config, text).unwrap();
    let (mut running, id) = at_terminal(&world, &strict, json!({"command": "echo x > made"}));
    let resolved = running.wait_type("approval_resolved");
    assert_eq!(resolved["decision"], "expired");
    assert_eq!(resolved["by"], "timeout");
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let events = world.events(&id);
    let result = events.iter().find(|event| event["type"] == "tool/result");
    assert_eq!(result.unwrap()["data"]["outcome"], "denied");
    assert!(!world.work().join("made").exists());
    strict.model.assert_no_violations();
}

/// Starts a server and returns its address and token.
fn serve(world: &World) -> (Running, String, String) {
    let mut running = world.start(&["serve", "--listen", "127.0.0.1:0"]);
    let line = running.next_line().unwrap();
    let url = line.strip_prefix("Threadline is at http://").unwrap();
    let (address, token) = url.split_once("/?token=").unwrap();
    let (address, token) = (address.to_owned(), token.to_owned());
    (running, address, token)
}

fn send((address, token): (&str, &str), method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    // A server that is killed resets the connection.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_grant_outlives_the_server_that_was_killed_before_it_was_used() {
    let strict = Strict::new([
        Reply::text("Waiting.").gate("a"),
        shell(json!({"command": "printf one two"})),
        Reply::text("Done."),
        shell(json!({"command": "printf one three"})),
        Reply::text("Refused."),
    ]);
    let world = World::new().with_model(&strict);
    let id = world.hello();
    let (running, address, token) = serve(&world);
    let at = (address.as_str(), token.as_str());
    let path = format!("/api/agent/sessions/{id}/grants");
    // The server dies in the middle of a turn that began after the grant.
    let granted = send(at, "POST", &path, r#"{"prefix":"printf one"}"#);
    assert!(granted.starts_with("HTTP/1.1 201"), "{granted}");
    let input = json!({"task": "go", "sessionId": id, "model": "openai-chat/m"}).to_string();
    let client = std::thread::spawn({
        let (address, token) = (address.clone(), token.clone());
        move || send((&address, &token), "POST", "/api/agent/stream", &input)
    });
    strict.wait_reached("a");
    running.signal(Signal::KILL);
    running.finish();
    // What it had received is all it gets.
    drop(client.join());

    let (running, address, token) = serve(&world);
    let at = (address.as_str(), token.as_str());
    let shown = send(at, "GET", &path, "");
    assert!(shown.contains(r#"["printf","one"]"#), "{shown}");
    let run = |task: &str| {
        let input = json!({"task": task, "sessionId": id}).to_string();
        send(at, "POST", "/api/agent/stream", &input)
    };
    let done = run("go on");
    assert!(done.contains(r#""kind":"completed""#), "{done}");
    assert_eq!(count(&world, &id, "approval/asked"), 0);
    // A second server, or the command line, revokes; the first asks again.
    running.signal(Signal::TERM);
    running.finish();
    let grant = listed(&world, &id)[0]["grantId"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call(&["grants", &id, "--revoke", &grant]).ok();
    let called = world.call(&["run", "--session", &id, "once more"]);
    called.exits(6);
    world.call(&["verify", &id, "--requests"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn the_grants_of_a_session_that_runs_elsewhere_are_shown_and_changed_there() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    strict.model.push(shell(json!({"command": "echo x > y"})));
    strict.model.push(Reply::text("Done."));
    let mut running = world.start_at_terminal(&["run", "--json", "--allow", "make x", "go"]);
    let started = running.wait_type("run_started");
    let id = started["sessionId"].as_str().unwrap().to_owned();
    running.wait_type("approval_required");
    let grants = listed(&world, &id);
    let grant = grants[0]["grantId"].as_str().unwrap();
    let refused = world.call(&["grants", &id, "--revoke", grant]);
    refused.exits(4).says(&["/grants"]);
    running.type_line("n");
    running.finish();
    assert_eq!(listed(&world, &id).len(), 1);
}
