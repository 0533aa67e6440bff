//! Approvals asked for at a terminal.

use threadline_strict_model::Reply;

use crate::support::{Running, Strict, World};

fn ask(world: &World, strict: &Strict, command: &str) -> Running {
    strict.model.push(Reply::call(
        "call_1",
        "shell",
        serde_json::json!({"command": command}),
    ));
    strict.model.push(Reply::text("Done."));
    world.start_at_terminal(&["run", "--json", "do it"])
}

#[test]
fn yes_runs_the_tool() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let mut running = ask(&world, &strict, "echo yes > made");
    let asked = running.wait_type("approval_required");
    assert_eq!(asked["name"], "shell");
    running.type_line("perhaps");
    running.type_line("y");
    let resolved = running.wait_type("approval_resolved");
    assert_eq!(resolved["decision"], "approved");
    assert_eq!(resolved["by"], "terminal");
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("Approval needed:") && stderr.contains("Run it?"),
        "{stderr}"
    );
    assert!(world.work().join("made").exists());
    strict.model.assert_no_violations();
}

#[test]
fn no_with_a_comment_is_told_to_the_model() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let mut running = ask(&world, &strict, "echo no > made");
    running.wait_type("approval_required");
    running.type_line("n use make instead");
    assert_eq!(running.finish().0.code(), Some(0));
    assert!(!world.work().join("made").exists());
    let told = serde_json::to_string(&strict.last_messages()).unwrap();
    assert!(told.contains("use make instead"), "{told}");
    strict.model.assert_no_violations();
}

#[test]
fn an_approval_for_the_session_holds_in_the_next_process() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let mut running = ask(&world, &strict, "echo x >> made");
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    running.wait_type("approval_required");
    running.type_line("s");
    assert_eq!(
        running.wait_type("approval_resolved")["decision"],
        "approved_for_session"
    );
    assert_eq!(running.finish().0.code(), Some(0));
    strict.model.push(Reply::call(
        "c",
        "shell",
        serde_json::json!({"command": "echo x >> made"}),
    ));
    strict.model.push(Reply::text("Done."));
    world
        .call(&["run", "--session", &id, "the same again"])
        .ok();
    assert_eq!(
        std::fs::read_to_string(world.work().join("made")).unwrap(),
        "x\nx\n"
    );
    strict.model.assert_no_violations();
}

#[test]
fn a_question_that_is_interrupted_expires() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    let mut running = ask(&world, &strict, "echo x > made");
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    running.wait_type("approval_required");
    running.signal(rustix::process::Signal::TERM);
    let (status, lines, stderr) = running.finish();
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert_eq!(lines.last().unwrap()["reason"]["kind"], "cancelled");
    let decided = world
        .events(&id)
        .into_iter()
        .find(|event| event["type"] == "approval/decided");
    assert_eq!(decided.unwrap()["data"]["decision"], "expired");
    assert!(!world.work().join("made").exists());
    world.call(&["run", "--session", &id, "go on"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn what_a_subagent_asks_is_asked_at_the_same_terminal() {
    let strict = Strict::new([]);
    let world = World::new().with_model(&strict);
    strict.model.push(Reply::call(
        "call_child",
        "agent",
        serde_json::json!({"task": "make the file"}),
    ));
    let mut running = ask(&world, &strict, "echo child > made");
    strict.model.push(Reply::text("All done."));
    // Nobody is asked by the run itself, so nothing of it is in its events.
    running.type_line("y");
    let end = running.wait_type("run_finished");
    assert_eq!(end["answer"], "All done.");
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("asked by the subagent"), "{stderr}");
    assert!(world.work().join("made").exists());
    strict.model.assert_no_violations();
}
