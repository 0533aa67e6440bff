//! Kills at chosen moments, and what the next request says about them.

use serde_json::{Value, json};
use threadline_strict_model::{Reply, Step};

use crate::{
    run_args, strs,
    support::{Running, Strict, World, alive, pids, until},
    world,
};

struct Case {
    world: World,
    strict: Strict,
}

impl Case {
    fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            world: world(),
            strict: Strict::new(script),
        }
    }

    fn start(&self, more: &[&str]) -> (Running, String) {
        let args = run_args(&self.strict, more);
        let mut running = self.world.start(&strs(&args));
        let id = running.wait_type("run_started")["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        (running, id)
    }

    /// Resumes twice, checks that nothing of the log before changes, and returns the messages that
    /// the first resumed request held.
    fn resume_twice(&self, id: &str) -> Vec<Value> {
        let killed = self.world.log(id);
        self.world.call(&["verify", id, "--requests"]).ok();
        assert!(self.world.log(id) == killed, "looking changes nothing");
        self.strict.model.push(Reply::text("Back again."));
        let args = run_args(&self.strict, &["--session", id, "what happened?"]);
        self.world.call(&strs(&args)).ok();
        let messages = self.strict.last_messages();
        let resumed = self.world.log(id);
        assert!(
            resumed.starts_with(&killed),
            "the killed run's log is a prefix"
        );
        self.strict.model.push(Reply::text("And again."));
        let args = run_args(&self.strict, &["--session", id, "and now?"]);
        self.world.call(&strs(&args)).ok();
        assert!(
            self.world.log(id).starts_with(&resumed),
            "the first resume's log is a prefix"
        );
        self.world.call(&["verify", id, "--requests"]).ok();
        self.world.call(&["replay", id]).ok();
        self.strict.model.assert_no_violations();
        messages
    }

    /// Returns the data of all events of a type.
    fn data(&self, id: &str, kind: &str) -> Vec<Value> {
        let events = self.world.events(id).into_iter();
        events
            .filter(|event| event["type"] == kind)
            .map(|event| event["data"].clone())
            .collect()
    }

    fn outcomes(&self, id: &str) -> Vec<Value> {
        self.data(id, "tool/result")
            .into_iter()
            .map(|data| data["outcome"].clone())
            .collect()
    }

    fn reasons(&self, id: &str) -> Vec<Value> {
        self.data(id, "turn/end")
            .into_iter()
            .map(|data| data["reason"]["kind"].clone())
            .collect()
    }
}

/// Returns the texts of the messages with a role, in order.
fn texts(messages: &[Value], role: &str) -> Vec<String> {
    messages
        .iter()
        .filter(|m| m["role"] == role)
        .map(|m| m["content"].to_string())
        .collect()
}

fn shell(reply: Reply, id: &str, command: &str) -> Reply {
    reply.and_call(id, "shell", json!({"command": command}))
}

/// Writes the process ids of the shell and of a grandchild to a file and waits for ever.
const WAITS: &str = "mkfifo never; (echo $BASHPID >> ids 2>/dev/null; cat never) & \
                     echo $! >> ids; echo $$ >> ids; cat never";

#[test]
fn a_kill_before_the_first_token_keeps_the_prompt() {
    let case = Case::new([Reply::default().gate("a").and_text("never said")]);
    let (mut running, id) = case.start(&["the first task"]);
    case.strict.wait_reached("a");
    assert!(running.kill());
    let messages = case.resume_twice(&id);
    let users = texts(&messages, "user").join(" ");
    assert!(
        users.contains("the first task") && users.contains("what happened?"),
        "{users}"
    );
    assert!(
        !serde_json::to_string(&messages)
            .unwrap()
            .contains("never said")
    );
    assert_eq!(case.reasons(&id), ["interrupted", "completed", "completed"]);
}

#[test]
fn a_kill_mid_stream_keeps_the_partial_text_marked_interrupted() {
    let steps = [
        Step::Text("The answer begins".into()),
        Step::Gate("a".into()),
    ];
    let case = Case::new([Reply::steps(steps).and_text(" never said")]);
    let (mut running, id) = case.start(&["answer me"]);
    case.strict.wait_reached("a");
    running.wait_for("the piece", |line| {
        line["type"] == "assistant/chunk" && line["data"].to_string().contains("begins")
    });
    assert!(running.kill());
    let messages = case.resume_twice(&id);
    let said = texts(&messages, "assistant");
    assert!(
        said.len() == 1 && said[0].contains("The answer begins"),
        "{said:?}"
    );
    let logged = case.data(&id, "assistant/message");
    assert_eq!(logged[0]["interrupted"], true);
    assert!(logged[0].to_string().contains("The answer begins"));
    assert_eq!(case.reasons(&id)[0], "interrupted");
}

#[test]
fn a_kill_inside_a_tool_says_unknown_and_the_call_after_it_was_not_started() {
    let reply = shell(Reply::default(), "call_1", WAITS);
    let case = Case::new([shell(reply, "call_2", "echo second > second")]);
    let (mut running, id) = case.start(&["--approval", "never", "use both tools"]);
    let ids = pids(&case.world.work().join("ids"), 2);
    assert!(running.kill());
    until("the tool's processes are gone", || {
        ids.iter().all(|pid| !alive(*pid))
    });
    let messages = case.resume_twice(&id);
    assert_eq!(case.outcomes(&id), ["unknown", "not_started"]);
    let told = texts(&messages, "tool");
    assert!(told[0].contains("outcome is unknown"), "{told:?}");
    assert!(told[1].contains("never started"), "{told:?}");
    assert!(!case.world.work().join("second").exists());
    assert_eq!(case.reasons(&id)[0], "interrupted");
}

#[test]
fn a_kill_between_two_tools_keeps_the_finished_ones_result() {
    let reply = shell(
        Reply::default(),
        "call_1",
        "echo the-real-result; echo done > first",
    );
    let case = Case::new([shell(reply, "call_2", WAITS)]);
    let (mut running, id) = case.start(&["--approval", "never", "use both tools"]);
    running.wait_type("tool/result");
    let ids = pids(&case.world.work().join("ids"), 2);
    assert!(running.kill());
    until("the tool's processes are gone", || {
        ids.iter().all(|pid| !alive(*pid))
    });
    let messages = case.resume_twice(&id);
    assert_eq!(case.outcomes(&id), ["ok", "unknown"]);
    let told = texts(&messages, "tool");
    assert!(told[0].contains("the-real-result"), "{told:?}");
    assert!(told[1].contains("outcome is unknown"), "{told:?}");
}

#[test]
fn a_kill_while_a_person_is_asked_expires_the_question() {
    let reply = Reply::default().and_call("call_1", "ls", json!({"path": "."}));
    let case = Case::new([shell(reply, "call_2", "echo second > second")]);
    std::fs::write(case.world.work().join("the-real-file"), "").unwrap();
    let args = run_args(&case.strict, &["look, then write"]);
    let mut running = case.world.start_at_terminal(&strs(&args));
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    running.wait_type("approval_required");
    assert!(running.kill());
    let messages = case.resume_twice(&id);
    assert_eq!(case.outcomes(&id), ["ok", "not_started"]);
    let told = texts(&messages, "tool");
    assert!(told[0].contains("the-real-file"), "{told:?}");
    assert!(told[1].contains("never started"), "{told:?}");
    let decided = case.data(&id, "approval/decided");
    assert_eq!(decided[0]["decision"], "expired");
    assert!(!case.world.work().join("second").exists());
}

#[test]
fn calls_that_ran_side_by_side_and_one_that_was_killed_keep_their_order() {
    let reply = Reply::default().and_call("call_1", "read", json!({"path": "not-there"}));
    let reply = reply.and_call("call_2", "ls", json!({"path": "."}));
    let case = Case::new([shell(reply, "call_3", WAITS)]);
    let (mut running, id) = case.start(&["--approval", "never", "look twice"]);
    let ids = pids(&case.world.work().join("ids"), 2);
    assert!(running.kill());
    until("the tool's processes are gone", || {
        ids.iter().all(|pid| !alive(*pid))
    });
    let messages = case.resume_twice(&id);
    let order: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["call_1", "call_2", "call_3"]);
    let mut outcomes = case.outcomes(&id);
    assert_eq!(outcomes.pop().unwrap(), "unknown");
    // Logged in the order in which they were done.
    outcomes.sort_by_key(ToString::to_string);
    assert_eq!(outcomes, ["error", "ok"]);
}
