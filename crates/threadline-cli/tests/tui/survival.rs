//! What the interface outlives, and how it leaves the terminal.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use threadline_strict_model::Reply;

use crate::{
    support::{Strict, World, until},
    tmux::Tmux,
};

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn only_session(world: &World) -> String {
    let listed = world.call(&["ls", "--json"]).json();
    let rows = listed["sessions"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    rows[0]["id"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn killed_in_a_tool_it_resumes_with_the_outcome_unknown_and_the_queue_kept() {
    let wait = json!({"command": "mkfifo never; cat never"});
    let strict = Strict::new([
        Reply::call("call_1", "shell", wait).and_call(
            "call_2",
            "shell",
            json!({"command": "true"}),
        ),
        Reply::text("I have looked."),
    ]);
    let world = World::new().with_model(&strict);
    let tmux = Tmux::program(&world, &[]);
    tmux.sees(&["Enter begins one"]);
    tmux.press(&["Enter"]);
    tmux.says("wait for ever");
    tmux.sees(&["Approval needed"]);
    tmux.says("y");
    until("the tool", || world.work().join("never").exists());
    tmux.sees(&["running", "approved by terminal"]);
    tmux.says("look at it");
    tmux.sees(&["queued: look at it"]);
    kill(tmux.pid(), Signal::KILL);
    drop(tmux);
    let id = only_session(&world);
    let tmux = Tmux::program(&world, &["resume", &id]);
    tmux.sees(&[
        "OUTCOME UNKNOWN",
        "NOT STARTED",
        "The last turn was interrupted",
        "queued: look at it",
    ]);
    tmux.photograph("interrupted");
    tmux.says("/queue");
    tmux.press(&["s"]);
    tmux.sees(&["you (queued)", "I have looked."]);
    strict.model.assert_no_violations();
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_question_whose_process_was_killed_is_asked_again() {
    let command = json!({"command": "echo yes > made"});
    let ask = || Reply::call("call_1", "shell", command.clone());
    let strict = Strict::new([ask(), ask(), Reply::text("Made.")]);
    let world = World::new().with_model(&strict);
    let tmux = Tmux::program(&world, &[]);
    tmux.sees(&["Enter begins one"]);
    tmux.press(&["Enter"]);
    tmux.says("make it");
    tmux.sees(&["Approval needed"]);
    kill(tmux.pid(), Signal::KILL);
    drop(tmux);
    let id = only_session(&world);
    let tmux = Tmux::program(&world, &["resume", &id]);
    tmux.sees(&["Approval needed: shell", "its process is gone"]);
    tmux.says("y");
    tmux.sees(&["Made."]);
    let made = std::fs::read_to_string(world.work().join("made")).unwrap();
    assert_eq!(made, "yes\n");
    strict.model.assert_no_violations();
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn control_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back() {
    let world = World::new();
    let id = world.hello();
    let tmux = Tmux::shell(&world);
    tmux.says(&format!("threadline resume {id} --provider offline"));
    tmux.sees(&["so far: 1"]);
    tmux.types("half a mess");
    tmux.press(&["C-z"]);
    tmux.sees(&["Stopped", "sh> "]);
    // The shell has its line editing and its echo.
    tmux.says("echo $((20 + 3))");
    tmux.sees(&["\n23\n"]);
    tmux.says("fg");
    tmux.sees(&["so far: 1", "> half a mess"]);
    tmux.says("age");
    tmux.sees(&["You said: \"half a message\""]);
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_signal_ends_the_turn_as_cancelled_and_gives_the_terminal_back() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let strict = Strict::new([Reply::text("Some words.").gate("a").and_text("More.")]);
        let world = World::new().with_model(&strict);
        let tmux = Tmux::shell(&world);
        tmux.says("threadline; echo code=$?");
        tmux.sees(&["Enter begins one"]);
        tmux.press(&["Enter"]);
        tmux.says("tell me");
        strict.wait_reached("a");
        tmux.sees(&["Some words."]);
        let id = only_session(&world);
        kill(tmux.child(), signal);
        tmux.sees(&["code=130", &format!("threadline resume {id}")]);
        tmux.says("echo $((20 + 3))");
        tmux.sees(&["\n23\n"]);
        let events = world.events(&id);
        let end = events.last().unwrap();
        assert_eq!(end["type"], "turn/end", "{signal:?}");
        assert_eq!(end["data"]["reason"]["kind"], "cancelled");
        assert!(
            events
                .iter()
                .any(|event| event.to_string().contains("Some words."))
        );
        world.call(&["verify", &id, "--requests"]).ok();
        strict.model.gate("a").open();
    }
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn what_another_process_does_is_shown_as_it_happens() {
    let world = World::new();
    let id = world.hello();
    let tmux = Tmux::program(&world, &["resume", &id, "--provider", "offline"]);
    tmux.sees(&["so far: 1"]);
    let other = [
        "run",
        "--provider",
        "offline",
        "--session",
        &id,
        "from elsewhere",
    ];
    world.call(&other).ok();
    tmux.sees(&["│ from elsewhere", "so far: 2", "idle"]);
}
