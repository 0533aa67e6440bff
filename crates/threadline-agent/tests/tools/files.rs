use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use rustix::fs::Mode;
use serde_json::json;
use threadline_agent::limits::{DIFF_BYTES, FILE_BYTES, NOTE_BYTES, READ_LINES, RESULT_BYTES};
use threadline_model::limits::MAX_IMAGE_BYTES;
use threadline_session::payload::{ContentPart, Outcome, SandboxMode};

use crate::support::Place;

#[tokio::test]
async fn read_numbers_lines_and_pages() {
    let place = Place::writable();
    place.put("a", "one\ntwo\r\n\nfour");
    assert_eq!(
        place.ok("read", json!({"path": "a"})).await,
        "     1\tone\n     2\ttwo\r\n     3\t\n     4\tfour"
    );
    assert_eq!(
        place
            .ok("read", json!({"path": "a", "offset": 2, "limit": 1}))
            .await,
        "     2\ttwo\r\n[lines 2 to 2 are shown and more follow; read on with offset 3]"
    );
    assert_eq!(
        place
            .ok("read", json!({"path": "a", "offset": 4, "limit": 1}))
            .await,
        "     4\tfour"
    );
    let past = json!({"path": "a", "offset": 5});
    let text = place.not_ok("read", past, Outcome::Error).await;
    assert!(
        text.contains("`offset` 5 is past the end: the file has 4 lines"),
        "{text}"
    );
    place.put("empty", "");
    assert_eq!(
        place.ok("read", json!({"path": "empty"})).await,
        "[the file is empty]"
    );
}

#[tokio::test]
async fn read_shows_as_many_lines_as_allowed_and_no_more() {
    let place = Place::writable();
    let lines = usize::try_from(READ_LINES).unwrap();
    place.put("exact", "x\n".repeat(lines));
    let text = place.ok("read", json!({"path": "exact"})).await;
    assert_eq!(text.lines().count(), lines);
    assert!(text.ends_with("  2000\tx"));
    place.put("more", "x\n".repeat(lines + 1));
    let text = place.ok("read", json!({"path": "more"})).await;
    assert_eq!(text.lines().count(), lines + 1);
    assert!(
        text.ends_with("[lines 1 to 2000 are shown and more follow; read on with offset 2001]")
    );
    let rest = place
        .ok("read", json!({"path": "more", "offset": 2001}))
        .await;
    assert_eq!(rest, "  2001\tx");
}

#[tokio::test]
async fn read_keeps_to_the_bytes_of_a_result_and_never_splits_a_character() {
    let place = Place::writable();
    let budget = RESULT_BYTES - NOTE_BYTES;
    let numbers = "     1\t\n".len();
    place.put("exact", "x".repeat(budget - numbers));
    let text = place.ok("read", json!({"path": "exact"})).await;
    assert_eq!(text.len(), budget - 1);
    for (name, content) in [
        ("one", "x".repeat(budget - numbers + 1)),
        ("wide", "\u{1f600}".repeat(RESULT_BYTES)),
        ("shifted", format!("x{}", "\u{1f600}".repeat(RESULT_BYTES))),
        ("long", "x".repeat(4 * RESULT_BYTES)),
    ] {
        place.put(name, content + "\nlast");
        let text = place.ok("read", json!({ "path": name })).await;
        assert!(text.len() <= RESULT_BYTES, "{}", text.len());
        assert!(
            text.contains("[line 1 is too long and only its start is shown"),
            "{name}"
        );
        assert!(!text.contains('\u{fffd}'), "{name}");
        assert!(text.ends_with("read on with offset 2]"));
        let rest = place.ok("read", json!({"path": name, "offset": 2})).await;
        assert_eq!(rest, "     2\tlast");
    }
    // Pages follow each other without a gap.
    let all: Vec<String> = (1..=2000)
        .map(|n| format!("{n:>6}\t{}", "y".repeat(40)))
        .collect();
    place.put("pages", ("y".repeat(40) + "\n").repeat(2000));
    let (mut offset, mut seen) = (1, Vec::new());
    while offset <= 2000 {
        let text = place
            .ok("read", json!({"path": "pages", "offset": offset}))
            .await;
        seen.extend(
            text.lines()
                .filter(|line| !line.starts_with('['))
                .map(str::to_owned),
        );
        offset = seen.len() + 1;
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn read_shows_an_image_by_its_bytes_and_a_text_as_a_text() {
    let place = Place::writable();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    // The name says nothing.
    place.put("picture.txt", png);
    let output = place.run("read", json!({"path": "picture.txt"})).await;
    assert_eq!(output.outcome, Outcome::Ok);
    assert_eq!(output.text(), "`picture.txt`: image/png, 16 bytes");
    assert_eq!(output.blobs, [png.to_vec()]);
    let blob = threadline_store::BlobId::of(png).to_string();
    assert_eq!(
        output.content[1],
        ContentPart::Image {
            media_type: "image/png".into(),
            blob
        }
    );
    place.put("about.png", "GIF89a is a format\n");
    assert_eq!(
        place.ok("read", json!({"path": "about.png"})).await,
        "     1\tGIF89a is a format"
    );
    let mut largest = b"\xff\xd8\xff\xe0\0".to_vec();
    largest.resize(MAX_IMAGE_BYTES, 0);
    place.put("large.jpg", &largest);
    let output = place.run("read", json!({"path": "large.jpg"})).await;
    assert_eq!(output.blobs, [largest.clone()]);
    largest.push(0);
    place.put("large.jpg", &largest);
    let text = place
        .not_ok("read", json!({"path": "large.jpg"}), Outcome::Error)
        .await;
    assert!(text.contains("make a smaller copy"), "{text}");
}

#[tokio::test]
async fn read_names_what_it_does_not_show() {
    let place = Place::writable();
    place.put("binary", b"ELF\0\x01\x02");
    let text = place
        .not_ok("read", json!({"path": "binary"}), Outcome::Error)
        .await;
    assert_eq!(
        text,
        "`binary` is a binary file of 6 bytes; `read` shows text only"
    );
    place.put("latin", b"caf\xe9 \x1b[1m\n");
    assert_eq!(
        place.ok("read", json!({"path": "latin"})).await,
        "     1\tcaf\u{fffd} \\x1b[1m"
    );
    place.put("dir/x", "");
    let text = place
        .not_ok("read", json!({"path": "dir"}), Outcome::Error)
        .await;
    assert_eq!(text, "`dir` is a folder; use `ls`");
    let text = place
        .not_ok("read", json!({"path": "none"}), Outcome::Error)
        .await;
    assert_eq!(text, "`none` does not exist");
    // A pipe that nobody writes to must not hold the call.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for (tool, arguments) in [
        ("read", json!({"path": "pipe"})),
        ("write", json!({"path": "pipe", "content": "x"})),
        (
            "edit",
            json!({"path": "pipe", "old_string": "x", "new_string": "y"}),
        ),
    ] {
        let text = place.not_ok(tool, arguments, Outcome::Error).await;
        assert!(text.contains("not a regular file"), "{text}");
    }
}

#[tokio::test]
async fn write_makes_and_replaces_files_whole() {
    let place = Place::writable();
    let text = place
        .ok("write", json!({"path": "new/deep/a", "content": "one"}))
        .await;
    assert_eq!(text, "wrote 3 bytes to the new file `new/deep/a`");
    assert_eq!(place.get("new/deep/a"), "one");
    let script = place.path("script");
    place.put("script", "old");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o750)).unwrap();
    let before = std::fs::metadata(&script).unwrap();
    let text = place
        .ok("write", json!({"path": "script", "content": "fresh"}))
        .await;
    assert_eq!(text, "wrote 5 bytes to the existing file `script`");
    let after = std::fs::metadata(&script).unwrap();
    assert_eq!(after.permissions().mode() & 0o7777, 0o750);
    assert_ne!(before.ino(), after.ino(), "the file was changed in place");
    assert_eq!(place.get("script"), "fresh");
    // Through a link inside the workspace the target changes and the link stays.
    place.link("script", "alias");
    place
        .ok("write", json!({"path": "alias", "content": "again"}))
        .await;
    assert_eq!(place.get("script"), "again");
    assert!(place.path("alias").is_symlink());
    let names: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[tokio::test]
async fn write_refuses_what_it_cannot_do() {
    let place = Place::writable();
    place.put("dir/x", "");
    for path in ["dir", "dir/", "fresh/"] {
        place
            .not_ok(
                "write",
                json!({"path": path, "content": "x"}),
                Outcome::Error,
            )
            .await;
    }
    let text = place
        .not_ok(
            "write",
            json!({"path": "dir/x/y", "content": "x"}),
            Outcome::Error,
        )
        .await;
    assert!(text.contains("dir/x/y"), "{text}");
    assert!(!place.path("fresh").exists());
    let most = json!({"path": "big", "content": "x".repeat(FILE_BYTES)});
    place.ok("write", most).await;
    let over = json!({"path": "big", "content": "x".repeat(FILE_BYTES + 1)});
    let text = place.not_ok("write", over, Outcome::Error).await;
    assert!(
        text.contains("argument `content` has 8388609 bytes"),
        "{text}"
    );
}

#[tokio::test]
async fn nothing_changes_after_a_cancel() {
    let place = Place::writable();
    place.put("a", "old");
    place.ctx.cancel.cancel();
    let write = json!({"path": "a", "content": "new"});
    place.not_ok("write", write, Outcome::Cancelled).await;
    let edit = json!({"path": "a", "old_string": "old", "new_string": "new"});
    place.not_ok("edit", edit, Outcome::Cancelled).await;
    assert_eq!(place.get("a"), "old");
    for (tool, arguments) in [
        ("read", json!({"path": "a"})),
        ("ls", json!({})),
        ("find", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "o"})),
        ("shell", json!({"command": "touch b"})),
    ] {
        place.not_ok(tool, arguments, Outcome::Cancelled).await;
    }
    assert!(!place.path("b").exists());
}

fn edit(path: &str, old: &str, new: &str, all: bool) -> serde_json::Value {
    json!({"path": path, "old_string": old, "new_string": new, "replace_all": all})
}

#[tokio::test]
async fn edit_replaces_exactly_one_place_and_shows_it() {
    let place = Place::writable();
    place.put("a.txt", "one\ntwo\nthree\nfour\n");
    let text = place
        .ok("edit", edit("a.txt", "two\nthree", "2\n3", false))
        .await;
    assert_eq!(
        text,
        "replaced 1 time in `a.txt`\n--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n one\n-two\n\
         -three\n+2\n+3\n four\n"
    );
    assert_eq!(place.get("a.txt"), "one\n2\n3\nfour\n");
}

#[tokio::test]
async fn edit_says_how_often_and_where_when_it_is_not_once() {
    let place = Place::writable();
    let content = "x = 1\ny = 2\nx = 1\n\nx = 1\n";
    place.put("a", content);
    let text = place
        .not_ok("edit", edit("a", "x = 1", "z", false), Outcome::Error)
        .await;
    assert!(
        text.contains("occurs 3 times in `a`, near lines 1, 3, 5;"),
        "{text}"
    );
    let text = place
        .not_ok("edit", edit("a", "q", "z", false), Outcome::Error)
        .await;
    assert!(
        text.contains("occurs 0 times in `a`; read the file again"),
        "{text}"
    );
    let text = place
        .not_ok("edit", edit("a", "  y = 2\n\n", "z", false), Outcome::Error)
        .await;
    assert!(
        text.contains("occurs 0 times in `a`; its first line is near line 2,"),
        "{text}"
    );
    assert_eq!(place.get("a"), content);
    place.put("b", "aaa");
    let text = place
        .not_ok("edit", edit("b", "aa", "z", false), Outcome::Error)
        .await;
    assert!(
        text.contains("occurs 2 times in `b`, near line 1;"),
        "{text}"
    );
    place.put("many", "x\n".repeat(30));
    let text = place
        .not_ok("edit", edit("many", "x", "y", false), Outcome::Error)
        .await;
    assert!(
        text.contains("30 times") && text.contains("9, 10 and more;"),
        "{text}"
    );
    place.put("dos", "one\r\ntwo\r\nthree\n");
    let text = place
        .not_ok("edit", edit("dos", "one\ntwo", "z", false), Outcome::Error)
        .await;
    assert!(text.contains("of the file's lines end in \\r\\n"), "{text}");
    place.put("latin", b"caf\xe9");
    let text = place
        .not_ok("edit", edit("latin", "caf", "z", false), Outcome::Error)
        .await;
    assert!(
        text.contains("is not UTF-8 text; it was not changed"),
        "{text}"
    );
    let text = place
        .not_ok("edit", edit("none", "a", "b", true), Outcome::Error)
        .await;
    assert_eq!(text, "`none` does not exist");
}

#[tokio::test]
async fn edit_replaces_all_when_told() {
    let place = Place::writable();
    place.put("a", "x1\nx2\n\u{e4}x\n");
    let text = place.ok("edit", edit("a", "x", "yy", true)).await;
    assert!(text.starts_with("replaced 3 times in `a`\n"), "{text}");
    assert_eq!(place.get("a"), "yy1\nyy2\n\u{e4}yy\n");
}

#[tokio::test]
async fn edit_makes_several_replacements_or_none() {
    let place = Place::writable();
    place.put("a", "one\ntwo\ntwo\n");
    let several = |edits: serde_json::Value| json!({"path": "a", "edits": edits});
    let edits = json!([
        {"old_string": "one", "new_string": "1"},
        {"old_string": "two", "new_string": "2", "replace_all": true},
        {"old_string": "1\n2\n", "new_string": "12\n"},
    ]);
    let text = place.ok("edit", several(edits)).await;
    assert!(
        text.starts_with("replaced 4 times in `a`\n--- a/a\n"),
        "{text}"
    );
    assert_eq!(place.get("a"), "12\n2\n");
    for (edits, wanted) in [
        (
            json!([{"old_string": "12", "new_string": "x"}, {"old_string": "y", "new_string": "z"}]),
            "edit 2: `old_string` occurs 0 times in `a`; read the file again and copy the text \
             exactly; nothing was changed",
        ),
        (
            json!([{"old_string": "12", "new_string": "x"}, {"old_string": "x", "new_string": "12"}]),
            "the edits undo one another",
        ),
        (
            json!([{"old_string": "12"}]),
            "number 1: argument `new_string` is missing",
        ),
        (
            json!(["x"]),
            "number 1: the arguments must be one JSON object, not a string",
        ),
        (json!([]), "from 1 to 100 replacements, not 0"),
        (json!({}), "must be an array, not an object"),
    ] {
        let text = place.not_ok("edit", several(edits), Outcome::Error).await;
        assert!(text.contains(wanted), "{text}");
    }
    let both = json!({"path": "a", "old_string": "12", "edits": [{"old_string": "1"}]});
    let text = place.not_ok("edit", both, Outcome::Error).await;
    assert!(text.contains("together with"), "{text}");
    assert_eq!(place.get("a"), "12\n2\n");
}

#[tokio::test]
async fn edit_keeps_the_line_ends_of_a_file() {
    let place = Place::writable();
    place.put("dos", "one\r\ntwo\r\nthree\r\n");
    let text = place
        .ok("edit", edit("dos", "one\ntwo", "1\n2\n2b", false))
        .await;
    assert!(text.contains("+2b\r\n three\r\n"), "{text}");
    assert_eq!(place.get("dos"), "1\r\n2\r\n2b\r\nthree\r\n");
    place.ok("edit", edit("dos", "2b\r\n", "", false)).await;
    assert_eq!(place.get("dos"), "1\r\n2\r\nthree\r\n");
    // No line feed comes to the end of a file that has none.
    place.put("open", "one\ntwo");
    let text = place.ok("edit", edit("open", "two", "2", false)).await;
    assert!(text.contains("\\ No newline at end of file"), "{text}");
    assert_eq!(place.get("open"), "one\n2");
}

#[tokio::test]
async fn the_difference_is_capped_and_the_change_is_whole() {
    let place = Place::writable();
    place.put("a", "\u{1f600}x\n".repeat(5_000));
    let text = place.ok("edit", edit("a", "x", "y", true)).await;
    assert!(text.len() <= DIFF_BYTES + NOTE_BYTES, "{}", text.len());
    assert!(text.contains("[the difference has "), "{text}");
    assert_eq!(place.get("a"), "\u{1f600}y\n".repeat(5_000));
    let repeated = "a".repeat(FILE_BYTES);
    place.put("b", &repeated);
    let half = "a".repeat(FILE_BYTES / 2 + 1);
    let text = place
        .not_ok("edit", edit("b", &half, "z", false), Outcome::Error)
        .await;
    assert!(text.contains("2 times"), "{text}");
    let text = place
        .not_ok("edit", edit("b", "a", "bb", true), Outcome::Error)
        .await;
    assert!(text.contains("would have 16777216 bytes"), "{text}");
    place.put("b", repeated + "a");
    let text = place
        .not_ok("edit", edit("b", "a", "z", true), Outcome::Error)
        .await;
    assert!(text.contains("has more than 8388608 bytes"), "{text}");
}

#[tokio::test]
async fn full_access_reaches_beyond_the_workspace() {
    let place = Place::new(SandboxMode::DangerFullAccess);
    let path = place.root.join("outside/secret");
    let text = place.ok("read", json!({ "path": path })).await;
    assert_eq!(text, "     1\thidden");
    let write = json!({"path": "../outside/secret", "content": "changed"});
    place.ok("write", write).await;
    assert_eq!(std::fs::read_to_string(path).unwrap(), "changed");
}
