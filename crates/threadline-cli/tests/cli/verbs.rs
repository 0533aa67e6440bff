//! What each verb prints when all is well.

use serde_json::Value;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

#[test]
fn help_documents_the_exit_codes_and_the_environment() {
    let world = World::new();
    let help = world.call(&["--help"]);
    help.ok().prints(&[
        "0  completed",
        "1  failed",
        "2  usage",
        "3  session not found",
        "4  locked by another writer",
        "5  damaged",
        "6  approval needed",
        "7  storage full",
        "130  cancelled",
        "THREADLINE_HOME",
        "OPENAI_API_KEY",
    ]);
    world.call(&["--version"]).ok().prints(&["threadline 0."]);
    assert!(world.files().is_empty());
}

#[test]
fn commands_to_type_next_name_the_store_that_the_call_has_named() {
    let world = World::new();
    let store = world.root().join("my store");
    let address = format!("jsonl:{}", store.display());
    let called = world.call(&["--store", &address, "run", "--provider", "offline", "hello"]);
    let next = format!("Go on with: threadline --store '{address}' run --session ");
    called.ok().says(&[&next]);
}

#[test]
fn a_run_streams_its_answer_to_standard_output_and_says_how_to_go_on() {
    let world = World::new();
    let called = world.call(&["run", "--provider", "offline", "hello"]);
    called
        .ok()
        .prints(&["You said: \"hello\""])
        .says(&["Go on with: threadline run --session "]);
    assert!(!called.stdout.contains("Session"), "{called:?}");
    assert!(
        !called.stdout.contains('\u{1b}') && !called.stderr.contains('\u{1b}'),
        "{called:?}"
    );
}

#[test]
fn a_run_shows_its_tool_calls_on_standard_error() {
    let world = World::new();
    let args = [
        "run",
        "--provider",
        "offline",
        "--approval",
        "never",
        "$ echo out-of-tool",
    ];
    let called = world.call(&args);
    called
        .ok()
        .prints(&["out-of-tool"])
        .says(&["> shell ", "< shell ok: "]);
}

#[test]
fn the_task_comes_from_standard_input_when_there_is_no_argument() {
    let world = World::new();
    for args in [
        &["run", "--provider", "offline"][..],
        &["run", "--provider", "offline", "-"],
    ] {
        world
            .call_with(args, b"from a pipe\n")
            .ok()
            .prints(&["\"from a pipe\""]);
    }
}

#[test]
fn json_lines_are_run_started_then_the_log_verbatim_then_run_finished() {
    let world = World::new();
    let called = world.call(&["run", "--json", "--provider", "offline", "hello"]);
    called.ok();
    let lines = called.lines();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!(first["type"], "run_started");
    assert_eq!(first["sessionId"], first["runId"]);
    assert_eq!(first["resumed"], false);
    assert_eq!(first["policy"]["approvalPolicy"], "on_request");
    assert_eq!(first["policy"]["sandboxMode"], "workspace_write");
    assert_eq!(first["policy"]["provider"], "offline");
    assert_eq!(last["type"], "run_finished");
    assert_eq!(last["reason"]["kind"], "completed");
    assert!(last["answer"].as_str().unwrap().contains("hello"));
    assert!(last["usage"]["inputTokens"].as_u64().unwrap() > 0);
    let id = first["sessionId"].as_str().unwrap();
    let log = String::from_utf8(world.log(id)).unwrap();
    let stored: Vec<&str> = log.lines().skip(1).collect();
    let shown: Vec<&str> = called.stdout.lines().collect();
    assert_eq!(shown[1..shown.len() - 1], stored[..]);
    assert_eq!(last["durableSeq"], stored.len() as u64 - 1);
}

#[test]
fn ls_lists_newest_first_and_finds_by_words() {
    let world = World::new();
    let empty = world.call(&["ls"]);
    empty.ok().says(&["No sessions in jsonl:"]);
    assert_eq!(empty.stdout, "");
    let (one, two) = (world.hello(), world.hello());
    world.call(&["rename", &one, "Garden plan"]).ok();
    world.call(&["run", "--session", &one, "again"]).ok();
    let listed = world.call(&["ls", "--json"]);
    let listed = listed.ok().json();
    assert_eq!(listed["total"], 2);
    assert_eq!(listed["sessions"][0]["id"], one.as_str());
    assert_eq!(listed["sessions"][0]["title"], "Garden plan");
    assert_eq!(listed["sessions"][0]["turns"], 2);
    assert_eq!(listed["sessions"][1]["id"], two.as_str());
    assert_eq!(listed["sessions"][1]["firstPrompt"], "hello");
    let found = world.call(&["ls", "--query", "garden"]);
    found.ok().prints(&[
        "ID",
        "STATUS",
        "AGE",
        "TURNS",
        "ABOUT",
        "DIRECTORY",
        "Garden plan",
    ]);
    assert_eq!(found.stdout.lines().count(), 2, "{found:?}");
    let limited = world.call(&["ls", "--limit", "1"]);
    limited.ok().says(&["1 session more"]);
    assert_eq!(limited.stdout.lines().count(), 2, "{limited:?}");
    // The short ids of the table name the sessions, however close in time they were made.
    let table = world.call(&["ls"]);
    for line in table.ok().stdout.lines().skip(1) {
        let short = line.split_whitespace().next().unwrap();
        assert!(one.starts_with(short) || two.starts_with(short), "{line}");
        world.call(&["show", short]).ok();
    }
}

#[test]
fn ls_lists_those_that_stand_so_and_the_forks_of_one() {
    let world = World::new();
    let (one, cut) = (world.hello(), world.hello());
    let log = world.log(&cut);
    let end = log[..log.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    std::fs::write(world.log_path(&cut), &log[..=end]).unwrap();
    let fork = world.call(&["fork", &one, "--json"]).ok().json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let ids = |args: &[&str]| -> Vec<String> {
        let called = world.call(&[&["ls", "--json"], args].concat());
        let listed = called.ok().json();
        assert_eq!(listed["rebuilding"], false);
        let rows = listed["sessions"].as_array().unwrap();
        assert_eq!(listed["total"], rows.len());
        rows.iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&["--status", "interrupted"]), [cut.as_str()]);
    assert_eq!(
        ids(&["--status", "idle", "--parent", &one]),
        [fork.as_str()]
    );
    assert!(ids(&["--parent", &cut]).is_empty());
    world.call(&["rename", &one, "Garden plan"]).ok();
    assert_eq!(ids(&["--parent", "garden plan"]), [fork.as_str()]);
    world
        .call(&["ls", "--status", "missing"])
        .ok()
        .says(&["No such sessions in jsonl:"]);
    // Forks outlive their parent.
    world.call(&["rm", &one, "--yes"]).ok();
    assert_eq!(ids(&["--parent", &one]), [fork]);
    world
        .call(&["ls", "--parent", "nowhere"])
        .exits(3)
        .says(&["there is no session `nowhere`"]);
    world
        .call(&["ls", "--status", "broken"])
        .exits(2)
        .says(&["interrupted", "unsupported"]);
}

#[test]
fn archived_sessions_are_put_away_and_come_back() {
    let world = World::new();
    let id = world.hello();
    world.call(&["archive", &id]).ok().says(&["put away"]);
    let total = |args: &[&str]| world.call(args).ok().json()["total"].clone();
    assert_eq!(total(&["ls", "--json"]), 0);
    assert_eq!(total(&["ls", "--json", "--archived"]), 1);
    assert_eq!(total(&["ls", "--json", "--all"]), 1);
    world.call(&["unarchive", &id]).ok();
    assert_eq!(total(&["ls", "--json"]), 1);
}

#[test]
fn show_prints_the_session_by_turns() {
    let world = World::new();
    let id = world.hello();
    let args = [
        "run",
        "--session",
        &id,
        "--approval",
        "never",
        "$ echo tool-output",
    ];
    world.call(&args).ok();
    let shown = world.call(&["show", &id]);
    shown.ok().prints(&[
        &format!("Session {id}"),
        "status     idle",
        "model      offline/demonstration",
        "Turn 1  ",
        "completed",
        "  You\n    hello\n",
        "  Assistant\n",
        "Turn 2  ",
        "> shell ",
        "tool-output",
    ]);
    assert_eq!(shown.stderr, "");
    let json = world.call(&["show", &id, "--json"]);
    let json = json.ok().json();
    assert_eq!(json["turns"].as_array().unwrap().len(), 2);
    assert_eq!(json["header"]["id"], id.as_str());
    assert_eq!(json["summary"]["turns"], 2);
    assert_eq!(json["unstored"], 0);
}

#[test]
fn show_history_and_request_are_what_the_model_was_sent() {
    let strict = Strict::new([Reply::text("First."), Reply::text("Second.")]);
    let world = World::new().with_model(&strict);
    let first = world.call(&["run", "--json", "hello"]);
    let id = first.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    world.call(&["run", "--session", &id, "again"]).ok();
    let history = world.call(&["show", &id, "--history", "--json"]);
    let roles: Vec<Value> = history.ok().json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["role"].clone())
        .collect();
    assert_eq!(roles.last().unwrap(), "assistant");
    world
        .call(&["show", &id, "--history"])
        .ok()
        .prints(&["user", "hello", "First.", "again"]);
    let request = world.call(&["show", &id, "--request", "2", "--json"]);
    let request = request.ok().json();
    assert_eq!(request["matches"], true);
    assert_eq!(
        request["recorded"]["fingerprint"],
        request["rebuilt"]["fingerprint"]
    );
    assert!(request["request"].to_string().contains("First."));
    assert!(!request["request"].to_string().contains("Second."));
    world
        .call(&["show", &id, "--request", "3"])
        .exits(2)
        .says(&["has no step 3"]);
    strict.model.assert_no_violations();
}

#[test]
fn show_raw_prints_the_log_byte_for_byte() {
    let world = World::new();
    let id = world.hello();
    let raw = world.call(&["show", &id, "--raw"]);
    assert_eq!(raw.ok().stdout.as_bytes(), world.log(&id));
}

#[test]
fn sessions_are_found_by_id_beginning_and_title() {
    let world = World::new();
    let (one, two) = (world.hello(), world.hello());
    world
        .call(&["rename", &one, "Garden plan"])
        .ok()
        .says(&["is now \"Garden plan\""]);
    for name in [
        one.as_str(),
        &one[..one.len() - 1],
        &one.to_uppercase(),
        "garden PLAN",
    ] {
        let shown = world.call(&["show", name, "--json"]);
        assert_eq!(shown.ok().json()["summary"]["id"], one.as_str(), "{name}");
    }
    // Ids begin with their time, so two of one test share their first characters.
    let shared: String = one
        .chars()
        .zip(two.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect();
    let ambiguous = world.call(&["show", &shared]);
    ambiguous
        .exits(2)
        .says(&["names 2 sessions", &one, &two, "more of the id"]);
    world.call(&["rename", &two, "garden plan"]).ok();
    world
        .call(&["show", "Garden Plan"])
        .exits(2)
        .says(&["names 2 sessions"]);
    world
        .call(&["rename", &two, ""])
        .ok()
        .says(&["has no title now"]);
    world.call(&["show", "Garden Plan"]).ok();
}

#[test]
fn rm_deletes_only_when_told_to() {
    let world = World::new();
    let (one, two) = (world.hello(), world.hello());
    world
        .call(&["rm", &one])
        .exits(2)
        .says(&["nobody is here to be asked", "--yes"]);
    world
        .call(&["rm", &one, "--yes"])
        .ok()
        .says(&["is deleted"]);
    world.call(&["show", &one]).exits(3);
    world.call(&["show", &two]).ok();
    world.call(&["rm", &one, "--yes"]).exits(3);
}

#[test]
fn doctor_tells_of_the_store_and_of_each_session() {
    let world = World::new();
    let nothing = world.call(&["doctor"]);
    nothing.ok().prints(&["not there yet", "durability   step"]);
    assert!(world.files().is_empty() && !world.store().exists());
    let id = world.hello();
    let store = world.store().display().to_string();
    world.call(&["doctor", &id]).ok().prints(&[
        &store,
        "I1   ok   every acknowledged event is there",
        "I4   ok   it opens",
        "I5   ok   opening it writes nothing",
        "I8   ok   nobody writes it",
    ]);
    let report = world.call(&["doctor", "--json"]);
    let report = report.ok().json();
    assert_eq!(report["store"]["durability"], "step");
    assert_eq!(report["sessions"][0]["id"], id.as_str());
    assert_eq!(report["sessions"][0]["recovery"], serde_json::json!([]));
}

#[test]
fn completions_are_made_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        world
            .call(&["completions", shell])
            .ok()
            .prints(&["threadline"]);
    }
    world.call(&["completions", "tcsh"]).exits(2);
}

#[test]
fn reading_verbs_write_nothing() {
    let world = World::new();
    let id = world.hello();
    let before = world.snapshot();
    for args in [
        &["ls"][..],
        &["ls", "--json", "--all"],
        &["show", &id],
        &["show", &id, "--json"],
        &["show", &id, "--history"],
        &["show", &id, "--raw"],
        &["show", &id, "--request", "1"],
        &["verify", &id],
        &["verify", "--all", "--head", "--requests"],
        &["ls", "--status", "idle"],
        &["doctor"],
        &["doctor", &id],
    ] {
        world.call(args).ok();
        assert!(world.snapshot() == before, "{args:?} changed the store");
    }
}

#[test]
fn a_repeated_key_runs_nothing_and_shows_the_first_run() {
    let strict = Strict::new([Reply::text("Once."), Reply::text("Twice.")]);
    let world = World::new().with_model(&strict);
    let args = ["run", "--json", "--idempotency-key", "k1", "hello"];
    let first = world.call(&args);
    first.ok();
    let again = world.call(&args);
    again.ok().says(&["This key was used before"]);
    assert_eq!(strict.model.requests().len(), 1);
    assert_eq!(first.lines(), again.lines());
    let id = first.lines()[0]["sessionId"].as_str().unwrap().to_owned();
    let before = world.log(&id);
    let args = ["run", "--idempotency-key", "k2", "--session", &id, "more"];
    world.call(&args).ok().prints(&["Twice."]);
    let between = world.log(&id);
    world
        .call(&args)
        .ok()
        .prints(&["Twice."])
        .says(&["This key was used before"]);
    assert_eq!(strict.model.requests().len(), 2);
    assert!(between.len() > before.len() && world.log(&id) == between);
}

#[test]
fn settings_come_from_flags_then_the_environment_then_the_file() {
    let mut world = World::new();
    let config = world.home().join(".config/threadline");
    std::fs::create_dir_all(&config).unwrap();
    let from_file = world.root().join("from-file");
    let text = format!(
        "provider = \"offline\"\napproval = \"strict\"\nsandbox = \"read_only\"\nstore = \"jsonl:{}\"\n",
        from_file.display()
    );
    std::fs::write(config.join("config.toml"), text).unwrap();
    let started = world.call(&["run", "--json", "hello"]);
    let started = started.ok().lines()[0].clone();
    assert_eq!(started["policy"]["approvalPolicy"], "strict");
    assert_eq!(started["policy"]["sandboxMode"], "read_only");
    assert!(!from_file.exists(), "THREADLINE_HOME comes before the file");
    let flags = [
        "run",
        "--json",
        "--approval",
        "never",
        "--sandbox",
        "workspace_write",
        "hello",
    ];
    let started = world.call(&flags);
    assert_eq!(started.ok().lines()[0]["policy"]["approvalPolicy"], "never");
    world.env.remove("THREADLINE_HOME");
    world.call(&["run", "hello"]).ok();
    assert!(from_file.is_dir());
    let flag = world.root().join("from-flag");
    world
        .call(&["run", "--store", flag.to_str().unwrap(), "hello"])
        .ok();
    assert!(flag.is_dir());
    std::fs::remove_file(config.join("config.toml")).unwrap();
    world.call(&["run", "--provider", "offline", "hello"]).ok();
    assert!(world.home().join(".local/share/threadline").is_dir());
}

#[test]
fn the_last_session_of_this_directory_is_said_aloud() {
    let world = World::new();
    let none = world.call(&["run", "--provider", "offline", "--last", "hello"]);
    none.exits(3).says(&["no session of", "begin one"]);
    assert!(world.files().is_empty());
    let elsewhere = world.home().display().to_string();
    let id = world.hello();
    world
        .call(&[
            "run",
            "--provider",
            "offline",
            "--cwd",
            &elsewhere,
            "other place",
        ])
        .ok();
    let last = world.call(&["run", "--json", "--last", "more"]);
    last.ok()
        .says(&[&format!("Continuing session {id}: hello")]);
    assert_eq!(last.lines()[0]["sessionId"], id.as_str());
    assert_eq!(last.lines()[0]["resumed"], true);
}

#[test]
fn a_reader_that_leaves_does_not_end_the_run() {
    let strict = Strict::new([Reply::text("Part one.").gate("a").and_text("Part two.")]);
    let world = World::new().with_model(&strict);
    let mut running = world.start(&["run", "--json", "hello"]);
    let started = running.wait_type("run_started");
    running.wait_type("step/start");
    running.close_stdout();
    strict.wait_reached("a");
    strict.model.gate("a").open();
    let (status, _, stderr) = running.finish();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let events = world.events(started["sessionId"].as_str().unwrap());
    assert_eq!(
        events.last().unwrap()["data"]["reason"]["kind"],
        "completed"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let world = World::new();
    let id = world.hello();
    let mut running = world.start(&["show", &id, "--raw"]);
    running.close_stdout();
    let (status, _, stderr) = running.finish();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}
