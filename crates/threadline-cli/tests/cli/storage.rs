//! How much is stored, clearing away, and moving between stores.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::support::World;

#[test]
fn du_shows_what_each_session_takes_up_largest_first() {
    let world = World::new();
    let (small, large) = (world.hello(), world.hello());
    world.call(&["run", "--session", &large, "more"]).ok();
    let fork = world.call(&["fork", &large]);
    let fork = fork.ok().stdout.trim().to_owned();
    let before = world.snapshot();
    let report = world.call(&["du", "--json"]).ok().json();
    let rows = report["sessions"].as_array().unwrap();
    let ids: Vec<&str> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&large, &small, &fork]);
    assert_eq!(rows[0]["log"], world.log(&large).len());
    assert_eq!(rows[2]["shared"], world.log(&large).len());
    let sum: u64 = rows.iter().map(|row| row["log"].as_u64().unwrap()).sum();
    assert_eq!(report["total"]["log"], sum);
    assert_eq!(report["blobs"]["count"], 0);
    let table = world.call(&["du", "--limit", "1"]);
    table
        .ok()
        .prints(&["SESSION", &large, "total of 3 sessions", "0 blobs"])
        .says(&["2 sessions more", "--limit 0"]);
    assert!(!table.stdout.contains(&small), "{table:?}");
    let one = world.call(&["du", &small]);
    one.ok().prints(&[&world.log(&small).len().to_string()]);
    assert!(!one.stdout.contains("total"), "{one:?}");
    world.call(&["du", "not-there"]).exits(3);
    assert!(world.snapshot() == before, "measuring writes nothing");
}

#[test]
fn gc_removes_an_old_blob_that_nothing_names_and_no_other() {
    let world = World::new();
    let id = world.hello();
    // As a tool's output would be named by an event: in a title it is as good.
    let put = |bytes: &[u8], age: u64| {
        let name = threadline_store::BlobId::of(bytes).to_string();
        let dir = world.store().join("blobs").join(&name[..2]);
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(&name);
        fs::write(&path, bytes).unwrap();
        let then = SystemTime::now() - Duration::from_secs(age);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(then))
            .unwrap();
        (name, path)
    };
    let days = 24 * 60 * 60;
    let (old, old_path) = put(b"old and nobody's", 3 * days);
    let (_, young_path) = put(b"young", 60);
    let (named, named_path) = put(b"old and named", 3 * days);
    let task = format!("see {named}");
    world.call(&["run", "--session", &id, &task]).ok();
    let before = world.snapshot();
    let dry = world.call(&["gc", "--dry-run"]);
    dry.ok().says(&[
        "Would remove 1 blob, 16 B",
        "1 named, 1 too young",
        "threadline gc",
    ]);
    assert_eq!(dry.stdout.trim(), old);
    assert!(world.snapshot() == before, "a dry run writes nothing");
    let report = world.call(&["gc", "--json"]).ok().json();
    assert_eq!(report["removed"], serde_json::json!([old]));
    assert_eq!(report["removedBytes"], 16);
    assert!(!old_path.exists() && young_path.exists() && named_path.exists());
    world.call(&["gc"]).ok().says(&["Nothing to remove"]);
}

/// Returns the lines of a session as they are stored.
fn lines(world: &World, store: &str, id: &str) -> String {
    let shown = world.call(&["--store", store, "show", id, "--raw"]);
    shown.ok();
    shown.stdout
}

#[test]
fn sessions_go_to_another_kind_of_store_and_back_byte_for_byte() {
    let world = World::new();
    let (one, two) = (world.hello(), world.hello());
    world
        .call(&["run", "--session", &two, "$ echo hi", "--approval", "never"])
        .ok();
    let fork = world.call(&["fork", &one, "--at", "3"]);
    let fork = fork.ok().stdout.trim().to_owned();
    world.call(&["rename", &one, "A title"]).ok();
    let path = |name: &str| world.root().join(name).display().to_string();
    let from = world.store().display().to_string();
    let (database, back) = (format!("sqlite:{}", path("all.db")), path("back"));
    let first = world.call(&["store", "copy", &from, &database]);
    first
        .ok()
        .says(&["3 new, 0 caught up, 0 the same, 0 failed"]);
    assert_eq!(first.stdout.matches("  new, ").count(), 3, "{first:?}");
    let again = world.call(&["store", "copy", &from, &database, "--json"]);
    let again = again.ok().json();
    assert_eq!((&again["same"], &again["new"]), (&3.into(), &0.into()));
    world.call(&["store", "copy", &database, &back]).ok();
    for id in [&one, &two, &fork] {
        let original = lines(&world, &from, id);
        assert_eq!(lines(&world, &database, id), original);
        assert_eq!(lines(&world, &back, id), original);
    }
    world
        .call(&["--store", &back, "verify", "--all", "--requests"])
        .ok();
    world
        .call(&["--store", &database, "verify", "--all", "--requests"])
        .ok();
    world
        .call(&["--store", &database, "ls"])
        .ok()
        .prints(&["A title"]);
    world
        .call(&["--store", &database, "doctor"])
        .ok()
        .prints(&[&database]);
    // What has grown since is caught up with, one session by its name.
    world.call(&["run", "--session", &one, "more"]).ok();
    let grown = world.call(&["store", "copy", &from, &database, "A title"]);
    grown.ok().prints(&["caught up, "]);
    assert_eq!(grown.stdout.lines().count(), 1);
    // The copy can be gone on with, and then the two differ.
    let run = ["--store", &database, "run", "--session", &one, "there"];
    world.call(&run).ok();
    world.call(&["run", "--session", &one, "here"]).ok();
    let differs = world.call(&["store", "copy", &from, &database]);
    differs
        .exits(1)
        .prints(&[&format!("{one}  failed: "), "differs from event "])
        .says(&["2 the same, 1 failed", "threadline verify"]);
}

#[test]
fn a_database_serves_all_verbs_and_reading_never_makes_it() {
    let world = World::new();
    let file = world.root().join("deep/er/all.db");
    let store = format!("sqlite:{}", file.display());
    let call = |args: &[&str]| {
        let mut all = vec!["--store", &store];
        all.extend(args);
        world.call(&all)
    };
    call(&["ls"]).exits(1).says(&["no file ", "threadline run"]);
    call(&["run", "--session", "x", "y"]).exits(1);
    call(&["run", "--provider", "openai-chat", "--model", "m", "y"]).exits(2);
    let copy = ["store", "copy", &store, "/nowhere"];
    world.call(&copy).exits(1);
    assert!(!file.parent().unwrap().exists());
    let ran = call(&["run", "--json", "--provider", "offline", "hello"]);
    let id = ran.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    call(&["run", "--session", &id, "again"]).ok();
    let fork = call(&["fork", &id]).ok().stdout.trim().to_owned();
    call(&["rewind", &fork, "--turns", "1"]).ok();
    call(&["redo", &fork]).ok();
    call(&["rename", &fork, "Branch"]).ok();
    call(&["verify", "--all", "--requests"]).ok();
    call(&["repair", &id]).ok();
    call(&["gc"]).ok();
    let listed: Value = call(&["ls", "--json"]).ok().json();
    assert_eq!(listed["total"], 2);
    assert_eq!(call(&["du", "--json"]).ok().json()["count"], 2);
    call(&["show", "Branch"]).ok().prints(&["hello", "again"]);
    call(&["rm", &id, "--yes"]).ok();
    call(&["verify", &fork, "--requests"]).ok();
}

#[test]
fn the_password_of_a_url_is_never_printed() {
    let world = World::new();
    // Nobody listens at port 1.
    let url = "postgres://me:sesame@127.0.0.1:1/db";
    for args in [
        &["--store", url, "ls"][..],
        &["--store", url, "doctor", "--json"],
        &["store", "copy", url, "/nowhere"],
        &["store", "copy", url, url],
        &["--store", "postgresql:me:sesame", "ls"],
    ] {
        let called = world.call(args);
        assert!(matches!(called.code(), Some(1 | 2)), "{called:?}");
        let said = format!("{}{}", called.stdout, called.stderr);
        assert!(!said.contains("sesame"), "{said}");
        assert!(said.contains("next:"), "{said}");
    }
    fs::create_dir_all(world.home().join(".config/threadline")).unwrap();
    let config = world.home().join(".config/threadline/config.toml");
    fs::write(config, format!("store = \"{url}\"\n")).unwrap();
    let mut world = world;
    world.env.remove("THREADLINE_HOME");
    let called = world.call(&["ls"]);
    called.exits(1);
    assert!(!called.stderr.contains("sesame"), "{called:?}");
}

#[test]
fn completions_and_help_know_the_verbs_with_an_example() {
    let world = World::new();
    let script = world.call(&["completions", "bash"]);
    for verb in [
        "fork", "rewind", "redo", "repair", "du", "gc", "ls", "verify", "replay", "compact",
    ] {
        script.ok().prints(&[verb]);
        let help = world.call(&[verb, "--help"]);
        help.ok().prints(&[&format!("Example: threadline {verb}")]);
    }
    // Made from the command line itself, so that no option is forgotten.
    script.ok().prints(&[
        "--requests",
        "--parent",
        "unsupported",
        "--before-compaction",
    ]);
    world
        .call(&["store", "copy", "--help"])
        .ok()
        .prints(&["Example: threadline store copy"]);
}
