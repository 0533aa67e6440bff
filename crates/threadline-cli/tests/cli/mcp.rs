//! MCP servers of the configuration: listed, used, missed, and ended with the program.

use std::{fs, io::Write as _};

use serde_json::{Value, json};
use threadline_strict_model::Reply;

use crate::support::{Strict, World, alive, until};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../threadline-mcp/tests/mcp/server.sh"
);

/// Adds a server that is the script in one of its modes; it logs into the working directory.
fn add(world: &World, name: &str, mode: &str) {
    let config = world.home().join(".config/threadline");
    fs::create_dir_all(&config).unwrap();
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(config.join("config.toml"))
        .unwrap();
    writeln!(
        file,
        "[mcp.{name}]\ncommand = \"sh\"\nargs = [{SCRIPT:?}, {mode:?}]\n\
         env = {{ LOG = \"{name}.log\", TOKEN = \"${{HOME}}\" }}"
    )
    .unwrap();
}

fn pid(world: &World, name: &str) -> Option<u32> {
    let log = fs::read_to_string(world.work().join(format!("{name}.log"))).ok()?;
    log.lines()
        .find_map(|line| line.strip_prefix("pid ")?.parse().ok())
}

#[test]
fn servers_are_listed_with_their_tools_or_why_they_are_missing() {
    let world = World::new();
    let none = world.call(&["mcp", "list", "--json"]);
    assert_eq!(none.ok().json(), json!({ "servers": [] }));
    world
        .call(&["mcp", "list"])
        .ok()
        .says(&["[mcp.NAME]", "config.toml"]);
    add(&world, "bad", "ends");
    add(&world, "good", "pages");
    let called = world.call(&["mcp", "list", "--json"]);
    let servers = called.ok().json()["servers"].clone();
    assert_eq!(servers[0]["state"], "missing");
    assert_eq!(
        servers[0]["reason"],
        "its program ended with the exit code 4"
    );
    assert_eq!(servers[0]["detail"], "the token is missing");
    assert_eq!(servers[1]["state"], "connected");
    let names: Vec<&Value> = servers[1]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["mcp__good__first", "mcp__good__second"]);
    let called = world.call(&["mcp", "list"]);
    called.ok().prints(&[
        "bad  stdio  missing: its program ended with the exit code 4",
        "it said: the token is missing",
        "good  stdio  connected  2 tools",
        "mcp__good__first  does first",
    ]);
    // Nothing is stored for a look, and no server is left running.
    assert!(!world.store().exists());
    assert!(!alive(pid(&world, "good").unwrap()));
}

#[test]
fn a_wrong_server_is_told_with_file_and_key() {
    let world = World::new();
    let config = world.home().join(".config/threadline");
    fs::create_dir_all(&config).unwrap();
    let file = config.join("config.toml");
    fs::write(&file, "[mcp.a]\nurl = \"http://x\"\nargs = []\n").unwrap();
    let place = file.display().to_string();
    let called = world.call(&["run", "hello"]);
    called.exits(2).says(&[&place, "`mcp.a.args`", "`command`"]);
}

#[test]
fn a_run_uses_a_server_tells_of_a_missing_one_and_leaves_none_behind() {
    let strict = Strict::new([
        Reply::call("call_1", "mcp__good__echo", json!({ "text": "hello" })),
        Reply::text("Done."),
        Reply::text("Again."),
    ]);
    let world = World::new().with_model(&strict);
    add(&world, "bad", "ends");
    add(&world, "good", "plain");
    let called = world.call(&["run", "--json", "--approval", "never", "go"]);
    let missing = "MCP server `bad` is missing: its program ended with the exit code 4 (it said: \
                   the token is missing)";
    called.ok().says(&[missing]);
    let id = called.lines()[0]["sessionId"].as_str().unwrap().to_owned();
    let events = world.events(&id);
    let result = events
        .iter()
        .find(|event| event["type"] == "tool/result")
        .unwrap();
    assert_eq!(result["data"]["content"][0]["text"], "you said hello");
    assert!(!alive(pid(&world, "good").unwrap()));
    // The person is told each time, the model once.
    world
        .call(&["run", "--session", &id, "again"])
        .ok()
        .says(&[missing]);
    let told = |event: &&Value| event["data"].to_string().contains("`bad` is missing");
    assert_eq!(world.events(&id).iter().filter(told).count(), 1);
    world.call(&["verify", &id, "--requests"]).ok();
    world.call(&["replay", &id]).ok();
}

#[test]
fn a_server_dies_with_the_program_and_the_session_goes_on_with_another() {
    let strict = Strict::new([
        Reply::call("call_1", "mcp__s__slow", json!({})),
        Reply::call("call_2", "mcp__s__echo", json!({ "text": "back" })),
        Reply::text("Done."),
    ]);
    let world = World::new().with_model(&strict);
    add(&world, "s", "stubborn");
    let mut running = world.start(&["run", "--json", "--approval", "never", "go"]);
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    running.wait_type("tool/start");
    until("the call arrives", || {
        fs::read_to_string(world.work().join("s.log")).is_ok_and(|log| log.contains("\"slow\""))
    });
    let first = pid(&world, "s").unwrap();
    assert!(alive(first));
    running.kill();
    until("the server is dead", || !alive(first));
    world
        .call(&["run", "--session", &id, "--approval", "never", "go on"])
        .ok();
    let events = world.events(&id);
    let outcomes: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "tool/result")
        .map(|event| &event["data"]["outcome"])
        .collect();
    assert_eq!(outcomes, ["unknown", "ok"]);
}
