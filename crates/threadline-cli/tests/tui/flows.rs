//! What people do in it.

use serde_json::json;
use threadline_strict_model::Reply;

use crate::{
    support::{Strict, World, until},
    tmux::Tmux,
};

const OFFLINE: [&str; 2] = ["--provider", "offline"];

fn offline(args: &[&str]) -> Vec<String> {
    args.iter()
        .chain(&OFFLINE)
        .map(|arg| (*arg).to_owned())
        .collect()
}

fn start(world: &World, args: &[&str]) -> Tmux {
    let args = offline(args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Tmux::program(world, &args)
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_session_is_picked_gone_on_with_and_its_command_printed_at_the_end() {
    let world = World::new();
    let id = world.hello();
    world
        .call(&["run", "--provider", "offline", "something else"])
        .ok();
    let tmux = Tmux::shell(&world);
    tmux.says("threadline --provider offline; echo code=$?");
    tmux.sees(&["2 sessions", "> something else", "hello"]);
    tmux.types("hel");
    tmux.sees(&[
        "Search: hel",
        "1 session\n",
        "> hello",
        "You said: \"hello\"",
    ]);
    tmux.photograph("picker");
    tmux.press(&["Enter"]);
    tmux.sees(&["turn 1", &id[..8], "idle"]);
    tmux.says("and again");
    tmux.sees(&["turn 2", "You said: \"and again\"", "so far: 2", " idle "]);
    tmux.photograph("conversation");
    tmux.says("/quit");
    tmux.sees(&[&format!("Go on with: threadline resume {id}"), "code=0"]);
    let listed = world.call(&["ls", "--json"]).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2);
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_session_is_begun_named_and_searched_for() {
    let world = World::new();
    let tmux = start(&world, &[]);
    tmux.sees(&["No session in this folder. Enter begins one"]);
    tmux.press(&["Enter"]);
    tmux.sees(&["A new session"]);
    tmux.types("two");
    tmux.press(&["M-Enter"]);
    tmux.says("lines");
    tmux.sees(&["│ two", "│ lines", "so far: 1"]);
    tmux.says("/name my work");
    tmux.sees(&["Changed.", " my work · "]);
    tmux.press(&["C-s"]);
    tmux.sees(&["1 session", "> my work"]);
    tmux.press(&["C-x"]);
    tmux.sees(&["Ctrl-B brings it back", "0 sessions"]);
    tmux.press(&["C-b"]);
    tmux.sees(&["Kept: my work", "1 session\n"]);
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_call_is_approved_and_another_denied_with_a_comment() {
    let ask = |id: &str, command: &str| Reply::call(id, "shell", json!({"command": command}));
    let strict = Strict::new([
        ask("call_1", "echo yes > made"),
        ask("call_2", "echo no > refused"),
        Reply::text("All done."),
    ]);
    let world = World::new().with_model(&strict);
    let tmux = Tmux::program(&world, &[]);
    tmux.sees(&["Enter begins one"]);
    tmux.press(&["Enter"]);
    tmux.says("do it");
    tmux.sees(&[
        "Approval needed: shell",
        "  echo yes > made",
        "waits for you",
    ]);
    tmux.photograph("approval");
    tmux.says("y");
    tmux.sees(&["Approval needed: shell", "  echo no > refused"]);
    tmux.says("n use make instead");
    tmux.sees(&["approved by terminal", "denied by terminal", "All done."]);
    assert!(world.work().join("made").exists());
    assert!(!world.work().join("refused").exists());
    let told = serde_json::to_string(&strict.last_messages()).unwrap();
    assert!(told.contains("use make instead"), "{told}");
    strict.model.assert_no_violations();
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn escape_stops_a_run_and_what_was_queued_stays() {
    let strict = Strict::new([Reply::text("Part one.").gate("a").and_text(" Part two.")]);
    let world = World::new().with_model(&strict);
    let tmux = Tmux::program(&world, &[]);
    tmux.sees(&["Enter begins one"]);
    tmux.press(&["Enter"]);
    tmux.says("tell me");
    strict.wait_reached("a");
    tmux.sees(&["Part one.", "running"]);
    tmux.says("and then this");
    tmux.sees(&["queued: and then this"]);
    tmux.press(&["Escape"]);
    tmux.sees(&[
        "[cut short here]",
        "stopped",
        "idle",
        "queued: and then this",
    ]);
    tmux.says("/queue");
    tmux.sees(&["Waiting messages", "> and then this"]);
    tmux.press(&["d"]);
    tmux.sees(&["Nothing waits."]);
    strict.model.gate("a").open();
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_session_is_forked_from_a_turn_and_rewound_to_one() {
    let world = World::new();
    let id = world.hello();
    let tmux = start(&world, &["resume", &id]);
    tmux.sees(&["so far: 1"]);
    tmux.says("second");
    tmux.sees(&["so far: 2", " idle "]);
    tmux.says("/fork");
    tmux.sees(&["Fork after which turn", "> turn 2: second", "turn 1: hello"]);
    tmux.press(&["Down", "Enter"]);
    tmux.sees(&["Forked after event", "so far: 1"]);
    tmux.looks("the fork's turns", |screen| !screen.contains("turn 2"));
    tmux.says("instead");
    tmux.sees(&["You said: \"instead\"", "so far: 2", " idle "]);
    tmux.says("/rewind");
    tmux.sees(&["> turn 2: instead"]);
    tmux.press(&["Down", "Enter"]);
    tmux.sees(&["went back: the history is what it was after event"]);
    tmux.says("third");
    tmux.sees(&["You said: \"third\"", "so far: 2"]);
    tmux.press(&["C-s"]);
    tmux.sees(&["2 sessions", "└ hello"]);
    tmux.photograph("tree");
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn the_screen_follows_the_size_of_the_terminal() {
    let world = World::new();
    let id = world.hello();
    let tmux = start(&world, &["resume", &id]);
    tmux.sees(&["so far: 1"]);
    tmux.resize(40, 10);
    tmux.looks("40 by 10", |screen| {
        let rule = "─".repeat(40);
        screen.lines().count() == 10 && screen.lines().any(|line| line == rule)
    });
    tmux.photograph("small");
    tmux.resize(12, 4);
    tmux.looks("12 by 4", |screen| screen.lines().count() == 4);
    tmux.resize(120, 30);
    tmux.looks("120 by 30", |screen| screen.contains(&"─".repeat(120)));
    tmux.says("still here");
    tmux.sees(&["You said: \"still here\""]);
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn without_colour_nothing_is_painted_in_one() {
    let mut world = World::new();
    let id = world.hello();
    // However the terminal names a foreground: the default one is 39.
    let coloured = |screen: &str| {
        let basic = (30..38).any(|code: u8| screen.contains(&format!("[{code}m")));
        basic || screen.contains("38;5;") || screen.contains("38;2;")
    };
    let tmux = start(&world, &["resume", &id]);
    tmux.sees(&["so far: 1"]);
    assert!(coloured(&tmux.painted()));
    world.env.insert("NO_COLOR".into(), "1".into());
    let tmux = start(&world, &["resume", &id]);
    tmux.sees(&["so far: 1"]);
    let painted = tmux.painted();
    assert!(!coloured(&painted), "{painted:?}");
}

#[test]
#[ignore = "needs tmux: cargo xtask test tui"]
fn a_session_is_exported_and_the_file_that_is_there_is_kept() {
    let world = World::new();
    let id = world.hello();
    let tmux = start(&world, &["resume", "--last"]);
    tmux.sees(&["so far: 1"]);
    tmux.says("/export out.md");
    tmux.sees(&["Written to out.md."]);
    let path = world.work().join("out.md");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("hello") && text.contains(&id), "{text}");
    tmux.says("/export out.md");
    tmux.sees(&["name another file"]);
    until("the file", || {
        std::fs::read_to_string(&path).unwrap() == text
    });
}
