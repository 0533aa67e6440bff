//! What each bad input gets: an exit code, what and where, and the next command. And never a file.

use std::fs;

use serde_json::Value;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

#[test]
fn an_unknown_session_exits_3_and_creates_nothing() {
    let world = World::new();
    let unknown = "0199f3aa-0000-7000-8000-000000000000";
    for args in [
        &[
            "run",
            "--provider",
            "offline",
            "--session",
            unknown,
            "hello",
        ][..],
        &["show", unknown],
        &["verify", unknown],
        &["doctor", unknown],
        &["rename", unknown, "x"],
        &["archive", unknown],
        &["rm", unknown, "--yes"],
        &["show", "no such title"],
    ] {
        world
            .call(args)
            .exits(3)
            .says(&["there is no session", "threadline ls"]);
        assert!(!world.store().exists(), "{args:?} made the store");
    }
    let json = world.call(&["run", "--json", "--session", unknown, "hello"]);
    let line = json.exits(3).json();
    assert_eq!(line["type"], "error");
    assert_eq!(line["code"], "session_not_found");
    assert!(line["message"].as_str().unwrap().contains(unknown));
    assert!(line["hint"].as_str().unwrap().contains("threadline ls"));
}

#[test]
fn an_empty_task_exits_2_and_creates_nothing() {
    let world = World::new();
    for task in ["", "  \n "] {
        let args = ["run", "--provider", "offline", task];
        world
            .call(&args)
            .exits(2)
            .says(&["the task is empty", "threadline run"]);
    }
    world
        .call_with(&["run", "--provider", "offline"], b"\n")
        .exits(2);
    world
        .call_with(&["run", "--provider", "offline"], b"\xff\xfe")
        .exits(2)
        .says(&["UTF-8"]);
    let json = world.call(&["run", "--json", "--provider", "offline", " "]);
    assert_eq!(json.exits(2).json()["code"], "empty_task");
    assert!(!world.store().exists());
}

#[test]
fn a_missing_key_names_the_variable_and_creates_nothing() {
    let world = World::new();
    let args = ["run", "--provider", "openai-chat", "--model", "m", "hello"];
    world
        .call(&args)
        .exits(2)
        .says(&["OPENAI_API_KEY is not set", "export OPENAI_API_KEY="]);
    world
        .call(&["run", "--provider", "openai-chat", "hello"])
        .exits(2)
        .says(&["--model NAME"]);
    assert!(!world.store().exists());
}

#[test]
fn usage_errors_exit_2() {
    let world = World::new();
    for (args, said) in [
        (&["run", "--approval", "perhaps", "x"][..], "on_request"),
        (&["run", "--temperature", "hot", "x"], "0 to 2"),
        (&["run", "--temperature", "NaN", "x"], "0 to 2"),
        (&["run", "--max-steps", "0", "x"], "--max-steps"),
        (&["run", "--last", "--session", "x", "y"], "--last"),
        (&["run", "--nonsense", "x"], "--nonsense"),
        (&["run", "--provider", "psychic", "x"], "offline"),
        (
            &[
                "run",
                "--provider",
                "openai-chat",
                "--base-url",
                "ftp://x",
                "--model",
                "m",
                "x",
            ],
            "neither http",
        ),
        (
            &["run", "--provider", "offline", "--cwd", "/no/such/dir", "x"],
            "/no/such/dir",
        ),
        (&["verify"], "--all"),
        (&["serve", "--listen", "nowhere"], "--listen nowhere"),
        (
            &["serve", "--provider", "offline", "--listen", "0.0.0.0:0"],
            "--token",
        ),
        (
            &["--store", "s3://bucket", "ls"],
            "`jsonl:DIR` (or just a directory), `sqlite:FILE`, `postgres://USER@HOST/DATABASE`",
        ),
        (&["--store", "sqlite:", "ls"], "names no file"),
        (&["--store", "postgres://", "ls"], "no host and database"),
        (&["store", "copy", "jsonl:/a", "/a"], "both jsonl:/a"),
        (&["store", "copy", "ftp://a", "/a"], "FROM: `ftp:`"),
        (&["rewind", "some-id"], "--turns"),
        (&["run", "--fork", "x", "--last", "y"], "--last"),
        (
            &["run", "--provider", "offline", "--take-over", "y"],
            "--session ID --take-over",
        ),
        (&["fly"], "fly"),
        (&[], "Usage"),
    ] {
        world.call(args).exits(2).says(&[said]);
    }
    assert!(!world.store().exists());
}

#[test]
fn an_unknown_setting_names_the_key_the_file_and_the_line() {
    let mut world = World::new();
    let config = world.home().join("cfg/threadline");
    fs::create_dir_all(&config).unwrap();
    let xdg = world.home().join("cfg").display().to_string();
    world.env.insert("XDG_CONFIG_HOME".into(), xdg);
    let file = config.join("config.toml");
    fs::write(&file, "provider = \"offline\"\ncolour = 3\n").unwrap();
    let place = format!("{}:2", file.display());
    world.call(&["ls"]).exits(2).says(&[&place, "`colour`"]);
    fs::write(&file, "sandbox = \"none\"\n").unwrap();
    world.call(&["ls"]).exits(2).says(&["read_only"]);
    world.env.insert("THREADLINE_LOG".into(), "a=b=c".into());
    world.call(&["ls"]).exits(2).says(&["THREADLINE_LOG"]);
}

#[test]
fn a_second_writer_exits_4_and_is_told_who_has_it() {
    let strict = Strict::new([Reply::text("Slowly").gate("a")]);
    let world = World::new().with_model(&strict);
    let mut running = world.start(&["run", "--json", "hello"]);
    let started = running.wait_type("run_started");
    let id = started["sessionId"].as_str().unwrap();
    strict.wait_reached("a");
    running.wait_type("assistant/chunk");
    let before = world.snapshot();
    let second = world.call(&["run", "--session", id, "me too"]);
    let pid = format!("process {}", running.pid());
    second
        .exits(4)
        .says(&[id, &pid, " on ", " since ", "UTC", "kill"]);
    let json = world.call(&["run", "--json", "--session", id, "me too"]);
    assert_eq!(json.exits(4).json()["code"], "locked");
    world.call(&["rm", id, "--yes"]).exits(4).says(&[&pid]);
    assert!(world.snapshot() == before);
    // Readers and titles need no lock.
    world.call(&["show", id]).ok().prints(&["running"]);
    world.call(&["doctor", id]).ok().prints(&[&pid]);
    let listed = world.call(&["ls", "--json"]);
    assert_eq!(listed.ok().json()["sessions"][0]["status"], "running");
    world.call(&["rename", id, "Busy"]).ok();
    strict.model.gate("a").open();
    assert_eq!(running.finish().0.code(), Some(0));
    world.call(&["run", "--session", id, "now"]).ok();
    strict.model.assert_no_violations();
}

#[test]
fn a_torn_tail_is_recovered_and_reported_once() {
    let world = World::new();
    let id = world.hello();
    let whole = world.log(&id);
    let mut torn = whole.clone();
    torn.extend_from_slice(b"{\"seq\":99,\"time\":17");
    fs::write(world.log_path(&id), &torn).unwrap();
    world.call(&["ls"]).ok().prints(&["idle"]);
    world
        .call(&["show", &id])
        .ok()
        .says(&["never fully written"]);
    world
        .call(&["verify", &id])
        .ok()
        .prints(&["never fully written"]);
    world
        .call(&["doctor", &id])
        .ok()
        .prints(&["move 19 torn bytes", "quarantine/"]);
    assert!(world.log(&id) == torn, "readers leave it");
    let first = world.call(&["run", "--session", &id, "again"]);
    first.ok().says(&["recovered: 19 bytes", "quarantine"]);
    assert_eq!(first.stderr.matches("recovered:").count(), 1, "{first:?}");
    assert!(world.log(&id).starts_with(&whole));
    let kept = world
        .files()
        .into_iter()
        .find(|path| path.to_string_lossy().contains("quarantine/"));
    assert!(
        fs::read(kept.unwrap())
            .unwrap()
            .ends_with(b"{\"seq\":99,\"time\":17")
    );
    let second = world.call(&["run", "--json", "--session", &id, "once more"]);
    second.ok();
    assert_eq!(second.lines()[0].get("recovered"), None);
    assert!(!second.stderr.contains("recovered"), "{second:?}");
    world.call(&["verify", &id, "--requests"]).ok();
}

#[test]
fn a_torn_tail_is_told_to_programs_too() {
    let world = World::new();
    let id = world.hello();
    let mut torn = world.log(&id);
    torn.extend_from_slice(&[0; 100]);
    fs::write(world.log_path(&id), torn).unwrap();
    let called = world.call(&["run", "--json", "--session", &id, "again"]);
    let recovered = called.ok().lines()[0]["recovered"].clone();
    assert_eq!(recovered["torn"]["bytes"], 100);
    let moved = ["movedTo", "moved_to"]
        .iter()
        .find_map(|key| recovered[key].as_str());
    assert!(moved.unwrap().contains("quarantine"));
}

/// Changes one byte in the middle of a line.
fn damage(world: &World, id: &str, line: usize) -> u64 {
    let mut log = world.log(id);
    let starts: Vec<usize> = std::iter::once(0)
        .chain(
            log.iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n')
                .map(|(at, _)| at + 1),
        )
        .collect();
    log[starts[line] + 30] ^= 1;
    fs::write(world.log_path(id), log).unwrap();
    starts[line] as u64
}

#[test]
fn a_damaged_middle_lists_shows_and_is_refused_with_file_offset_and_seq() {
    let world = World::new();
    let (id, good) = (world.hello(), world.hello());
    let offset = damage(&world, &id, 5);
    let before = world.snapshot();
    let (file, at) = (
        world.log_path(&id).display().to_string(),
        format!("byte {offset}"),
    );
    let list = world.call(&["ls", "--json"]);
    let rows: Vec<Value> = list.ok().json()["sessions"].as_array().unwrap().clone();
    let row = rows.iter().find(|row| row["id"] == id.as_str()).unwrap();
    assert_eq!(row["status"], "damaged");
    assert_eq!(row["error"]["seq"], 4);
    assert_eq!(row["error"]["offset"], offset);
    assert!(
        rows.iter()
            .any(|row| row["id"] == good.as_str() && row["status"] == "idle")
    );
    world
        .call(&["ls"])
        .ok()
        .prints(&["damaged"])
        .says(&["doctor"]);
    world
        .call(&["show", &id])
        .ok()
        .prints(&["hello"])
        .says(&[&file, &at, "seq 4"]);
    let shown = world.call(&["show", &id, "--json"]);
    assert_eq!(shown.ok().json()["damage"][0]["seq"], 4);
    let raw = world.call(&["show", &id, "--raw"]);
    raw.ok().says(&[&at, "seq 4"]);
    assert_eq!(
        raw.stdout.lines().count(),
        world.log(&id).split(|b| *b == b'\n').count() - 2
    );
    let refused = world.call(&["run", "--session", &id, "go on"]);
    refused.exits(5).says(&[
        &file,
        &at,
        "event 4",
        "threadline show",
        "threadline repair",
    ]);
    let json = world.call(&["run", "--json", "--session", &id, "go on"]);
    assert_eq!(json.exits(5).json()["code"], "damaged");
    world
        .call(&["verify", &id])
        .exits(5)
        .prints(&["seq 4", &at]);
    world
        .call(&["verify", "--all"])
        .exits(5)
        .prints(&[&format!("{good}: ok")]);
    world
        .call(&["doctor", &id])
        .exits(5)
        .prints(&["I2   bad", "I4   bad", "reading only"]);
    assert!(world.snapshot() == before, "nothing repairs it unasked");
    world.call(&["run", "--session", &good, "go on"]).ok();
    world.call(&["rename", &id, "Broken"]).ok();
    world.call(&["rm", "broken", "--yes"]).ok();
}

#[test]
fn a_damaged_header_lists_and_is_refused() {
    let world = World::new();
    let id = world.hello();
    damage(&world, &id, 0);
    world.call(&["ls"]).ok().prints(&["damaged"]);
    world
        .call(&["run", "--session", &id, "go on"])
        .exits(5)
        .says(&["header"]);
    world.call(&["verify", &id]).exits(5).prints(&["seq 0"]);
    world.call(&["show", &id]).exits(5);
    world
        .call(&["show", &id, "--raw"])
        .ok()
        .prints(&["\"seq\":0"])
        .says(&["header is left out"]);
    world.call(&["doctor", &id]).exits(5);
}

#[test]
fn a_newer_format_is_refused_with_the_direction() {
    let world = World::new();
    let id = world.hello();
    let log = String::from_utf8(world.log(&id)).unwrap();
    let (header, events) = log.split_once('\n').unwrap();
    // Without its checksum a header is taken as it stands.
    let header = header.replace("\"version\":1", "\"version\":2");
    let header = format!("{}}}", &header[..header.find(",\"crc\"").unwrap()]);
    fs::write(world.log_path(&id), format!("{header}\n{events}")).unwrap();
    let before = world.snapshot();
    let refused = world.call(&["run", "--session", &id, "go on"]);
    refused.exits(5).says(&["newer threadline", "upgrade"]);
    world
        .call(&["ls"])
        .ok()
        .prints(&["unsupported"])
        .says(&["upgrade"]);
    let json = world.call(&["run", "--json", "--session", &id, "go on"]);
    assert_eq!(json.exits(5).json()["code"], "unsupported");
    world
        .call(&["show", &id])
        .exits(5)
        .says(&["upgrade", "--raw"]);
    world.call(&["show", &id, "--raw"]).ok();
    assert!(world.snapshot() == before);
}

#[test]
fn nobody_to_ask_exits_6_and_says_how_to_go_on() {
    let world = World::new();
    let args = [
        "run",
        "--json",
        "--provider",
        "offline",
        "$ touch made-by-tool",
    ];
    let blocked = world.call(&args);
    blocked
        .exits(6)
        .says(&["needs an approval", "threadline run --session"]);
    let lines = blocked.lines();
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "run_finished");
    assert_eq!(last["reason"]["kind"], "blocked");
    assert!(!world.work().join("made-by-tool").exists());
    let id = last["sessionId"].as_str().unwrap();
    let args = [
        "run",
        "--session",
        id,
        "--approval",
        "never",
        "$ touch made-by-tool",
    ];
    world.call(&args).ok();
    assert!(world.work().join("made-by-tool").exists());
}

#[test]
fn a_model_that_fails_exits_1_with_its_words() {
    let strict = Strict::new([Reply::status(400).message("no such thing")]);
    let world = World::new().with_model(&strict);
    let failed = world.call(&["run", "--json", "hello"]);
    failed.exits(1).says(&["no such thing", "Go on with"]);
    let last = failed.lines().pop().unwrap();
    assert_eq!(last["reason"]["kind"], "error");
    world
        .call(&[
            "run",
            "--session",
            last["sessionId"].as_str().unwrap(),
            "again",
        ])
        .ok();
    strict.model.assert_no_violations();
}

#[test]
fn the_step_limit_exits_1() {
    let call = || Reply::call("call_1", "ls", serde_json::json!({"path": "."}));
    let strict = Strict::new([call().repeat()]);
    let world = World::new().with_model(&strict);
    let limited = world.call(&["run", "--max-steps", "2", "loop"]);
    limited.exits(1).says(&["step limit", "go on"]);
    assert_eq!(strict.model.requests().len(), 2);
    strict.model.assert_no_violations();
}
