//! Sessions as files: each format, to a file and to standard output, and what is refused.

use std::fs;

use serde_json::Value;

use crate::support::World;

const FORMATS: [&str; 3] = ["jsonl", "markdown", "html"];

/// Returns whether a text is a whole export of the session that says "hello".
fn is_whole(format: &str, text: &str) -> bool {
    let ends = match format {
        "jsonl" => text.lines().all(|line| {
            let value: Result<Value, _> = serde_json::from_str(line);
            value.is_ok_and(|value| value.is_object())
        }),
        "markdown" => text.contains("## Turn 1") && text.contains("**You**"),
        "html" => text.starts_with("<!doctype html>") && text.ends_with("</html>\n"),
        other => panic!("no format {other}"),
    };
    ends && text.contains("hello") && text.ends_with('\n')
}

#[test]
fn each_format_is_the_same_to_a_file_and_to_standard_output() {
    let world = World::new();
    let id = world.hello();
    for format in FORMATS {
        let printed = world.call(&["export", &id, "--format", format]);
        let text = printed.ok().stdout.clone();
        assert!(is_whole(format, &text), "{format}: {text}");
        assert_eq!(printed.stderr, "", "{format}");
        let dash = world.call(&["export", &id, "--format", format, "-o", "-"]);
        assert_eq!(dash.ok().stdout, text, "{format}");
        let name = format!("session.{format}");
        let called = world.call(&["export", &id, "--format", format, "-o", &name]);
        called.ok().says(&["Written to", &name]);
        assert_eq!(called.stdout, "", "{format}");
        let written = fs::read_to_string(world.work().join(&name)).unwrap();
        assert_eq!(written, text, "{format}");
    }
    let mut names: Vec<_> = fs::read_dir(world.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["session.html", "session.jsonl", "session.markdown"]);
}

#[test]
fn the_log_is_exported_byte_for_byte_by_default() {
    let world = World::new();
    let id = world.hello();
    let log = world.log(&id);
    let exported = world.call(&["export", &id[..13]]);
    assert_eq!(exported.ok().stdout.as_bytes(), log);
    assert_eq!(world.log(&id), log);
}

#[test]
fn a_file_that_is_there_is_replaced_only_with_force() {
    let world = World::new();
    let id = world.hello();
    let path = world.work().join("kept.md");
    fs::write(&path, "mine").unwrap();
    let args = ["export", &id, "--format", "markdown", "-o", "kept.md"];
    world
        .call(&args)
        .exits(2)
        .says(&["kept.md exists already", "--force"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let mut forced = args.to_vec();
    forced.push("--force");
    world.call(&forced).ok();
    let written = fs::read_to_string(&path).unwrap();
    assert!(is_whole("markdown", &written), "{written}");
}

#[test]
fn what_cannot_be_exported_leaves_no_file() {
    let world = World::new();
    let id = world.hello();
    world
        .call(&["export", "nosuchsession", "-o", "out.jsonl"])
        .exits(3)
        .says(&["nosuchsession"]);
    world
        .call(&["export", &id, "--format", "pdf", "-o", "out.pdf"])
        .exits(2)
        .says(&["pdf"]);
    world
        .call(&["export", &id, "-o", "missing/out.jsonl"])
        .exits(1)
        .says(&["missing/out.jsonl", "folder exists"]);
    // A log that cannot be read to its end is no whole file.
    let path = world.log_path(&id);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] = bytes[at].wrapping_add(1);
    fs::write(&path, bytes).unwrap();
    world
        .call(&["export", &id, "-o", "out.jsonl"])
        .exits(5)
        .says(&["damaged"]);
    let left: Vec<_> = fs::read_dir(world.work()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
