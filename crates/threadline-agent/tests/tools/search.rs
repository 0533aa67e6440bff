use serde_json::json;
use threadline_agent::limits::{GREP_LINE_BYTES, LS_ENTRIES, RESULT_BYTES};
use threadline_session::payload::Outcome;

use crate::support::Place;

#[tokio::test]
async fn ls_lists_by_name() {
    let place = Place::writable();
    assert_eq!(place.ok("ls", json!({})).await, "[the folder is empty]");
    place.put("b.txt", "12345");
    place.put("a/x", "");
    place.put("B", "");
    place.put("new\nline", "");
    place.link("a/x", "l");
    assert_eq!(
        place.ok("ls", json!({})).await,
        "B (0 bytes)\na/\nb.txt (5 bytes)\nl -> a/x\nnew\\x0aline (0 bytes)"
    );
    assert_eq!(place.ok("ls", json!({"path": "a"})).await, "x (0 bytes)");
    let text = place
        .not_ok("ls", json!({"path": "b.txt"}), Outcome::Error)
        .await;
    assert_eq!(text, "`b.txt` is not a folder");
    let text = place
        .not_ok("ls", json!({"path": "none"}), Outcome::Error)
        .await;
    assert_eq!(text, "`none` does not exist");
}

#[tokio::test]
async fn ls_is_capped() {
    let place = Place::writable();
    for number in 0..LS_ENTRIES {
        place.put(&format!("{number:04}"), "");
    }
    let text = place.ok("ls", json!({})).await;
    assert_eq!(text.lines().count(), LS_ENTRIES);
    place.put("zzz", "");
    let text = place.ok("ls", json!({})).await;
    assert_eq!(text.lines().count(), LS_ENTRIES + 1);
    assert!(
        text.ends_with("[the first 1000 of 1001 entries are shown; use `find` to narrow it down]")
    );
}

#[tokio::test]
async fn find_matches_names_and_paths_in_order() {
    let place = Place::writable();
    for name in [
        "src/b.rs",
        "src/a.rs",
        "src/deep/c.rs",
        "top.rs",
        ".github/x.rs",
        "target/t.rs",
    ] {
        place.put(name, "");
    }
    place.put(".gitignore", "target\n");
    place.link("src", "way");
    assert_eq!(
        place.ok("find", json!({"pattern": "*.rs"})).await,
        ".github/x.rs\nsrc/a.rs\nsrc/b.rs\nsrc/deep/c.rs\ntop.rs"
    );
    assert_eq!(
        place.ok("find", json!({"pattern": "src/*.rs"})).await,
        "src/a.rs\nsrc/b.rs"
    );
    assert_eq!(
        place.ok("find", json!({"pattern": "./**/d*"})).await,
        "src/deep/"
    );
    assert_eq!(
        place
            .ok("find", json!({"pattern": "deep/*", "path": "src"}))
            .await,
        "src/deep/c.rs"
    );
    assert_eq!(place.ok("find", json!({"pattern": "way"})).await, "way");
    let text = place.ok("find", json!({"pattern": "*.c"})).await;
    assert!(text.starts_with("[nothing matches"), "{text}");
    assert_eq!(
        place
            .ok("find", json!({"pattern": "*.rs", "limit": 5}))
            .await
            .lines()
            .count(),
        5
    );
    assert_eq!(
        place
            .ok("find", json!({"pattern": "*.rs", "limit": 2}))
            .await,
        ".github/x.rs\nsrc/a.rs\n[the first 2 are shown; there are more]"
    );
    let text = place
        .not_ok(
            "find",
            json!({"pattern": "*", "path": "none"}),
            Outcome::Error,
        )
        .await;
    assert_eq!(text, "`none` does not exist");
}

#[tokio::test]
async fn grep_shows_file_line_and_text_in_order() {
    let place = Place::writable();
    place.put("b.rs", "fn two() {}\n// fn\nFN three\n");
    place.put("a/x.rs", "fn one() {}\r\n");
    place.put("a/x.md", "fn text\n");
    place.put("ignored/x.rs", "fn no() {}\n");
    place.put("binary", b"\0fn");
    place.put("latin", b"fn caf\xe9\x1b");
    place.put(".gitignore", "ignored/\n");
    assert_eq!(
        place.ok("grep", json!({"pattern": "^fn"})).await,
        "a/x.md:1:fn text\na/x.rs:1:fn one() {}\nb.rs:1:fn two() {}\nlatin:1:fn caf\u{fffd}\\x1b"
    );
    assert_eq!(
        place
            .ok(
                "grep",
                json!({"pattern": "^fn", "glob": "*.rs", "ignore_case": true})
            )
            .await,
        "a/x.rs:1:fn one() {}\nb.rs:1:fn two() {}\nb.rs:3:FN three"
    );
    assert_eq!(
        place
            .ok("grep", json!({"pattern": "fn", "path": "b.rs"}))
            .await,
        "b.rs:1:fn two() {}\nb.rs:2:// fn"
    );
    assert_eq!(
        place
            .ok("grep", json!({"pattern": "fn", "path": "b.rs", "limit": 2}))
            .await,
        "b.rs:1:fn two() {}\nb.rs:2:// fn"
    );
    assert_eq!(
        place
            .ok("grep", json!({"pattern": "fn", "path": "b.rs", "limit": 1}))
            .await,
        "b.rs:1:fn two() {}\n[the first 1 lines are shown; there are more]"
    );
    let text = place.ok("grep", json!({"pattern": "nowhere"})).await;
    assert!(text.starts_with("[nothing matches"), "{text}");
}

#[tokio::test]
async fn grep_caps_lines_and_bytes_at_characters() {
    let place = Place::writable();
    place.put("exact", "x".repeat(GREP_LINE_BYTES));
    let text = place
        .ok("grep", json!({"pattern": "x", "path": "exact"}))
        .await;
    assert_eq!(text, format!("exact:1:{}", "x".repeat(GREP_LINE_BYTES)));
    place.put(
        "over",
        format!("x{}", "\u{1f600}".repeat(GREP_LINE_BYTES / 4)),
    );
    let text = place
        .ok("grep", json!({"pattern": "x", "path": "over"}))
        .await;
    let kept = "\u{1f600}".repeat((GREP_LINE_BYTES - 1) / 4);
    assert_eq!(text, format!("over:1:x{kept}..."));
    place.put("many", ("x".repeat(200) + "\n").repeat(400));
    let text = place
        .ok("grep", json!({"pattern": "x", "path": "many"}))
        .await;
    assert!(text.len() <= RESULT_BYTES);
    assert!(
        text.ends_with(" lines are shown; there are more]"),
        "{text}"
    );
}
