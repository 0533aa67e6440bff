use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use threadline_agent::limits::{DIFF_BYTES, FILE_BYTES, NOTE_BYTES, PATCH_BYTES};
use threadline_session::payload::{Outcome, SandboxMode};

use crate::support::Place;

async fn ok(place: &Place, patch: &str) -> String {
    place.ok("apply_patch", json!({ "patch": patch })).await
}

async fn not_ok(place: &Place, patch: &str, outcome: Outcome) -> String {
    let arguments = json!({ "patch": patch });
    place.not_ok("apply_patch", arguments, outcome).await
}

fn envelope(body: &str) -> String {
    format!("*** Begin Patch\n{body}*** End Patch\n")
}

/// Everything below the workspace, by name, with its content.
fn tree(place: &Place) -> Vec<(String, Option<String>)> {
    fn walk(at: &std::path::Path, found: &mut Vec<(String, Option<String>)>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                found.push((name, None));
                walk(&path, found);
            } else {
                found.push((name, Some(std::fs::read_to_string(&path).unwrap())));
            }
        }
    }
    let mut found = Vec::new();
    walk(&place.path(""), &mut found);
    found.sort();
    found
}

#[tokio::test]
async fn several_files_are_added_changed_moved_and_deleted() {
    let place = Place::writable();
    place.put("a.rs", "fn f() {\n    x();\n}\n\nfn g() {\n    x();\n}\n");
    place.put("old.sh", "echo 1\necho 2\n");
    place.put("gone", "bye\n");
    let mode = PermissionsExt::from_mode(0o750);
    std::fs::set_permissions(place.path("old.sh"), mode).unwrap();
    let text = ok(
        &place,
        &envelope(
            "*** Add File: new/deep/n\n+one\n+\n*** Update File: a.rs\n@@ fn g() {\n-    x();\n+    \
             y();\n*** Update File: old.sh\n*** Move to: bin/new.sh\n@@\n echo 1\n-echo 2\n+echo 3\n\
             *** Delete File: gone\n",
        ),
    )
    .await;
    assert_eq!(
        text,
        "added `new/deep/n`\nchanged `a.rs`\nmoved `old.sh` to `bin/new.sh`\ndeleted `gone`\n\
         --- a/new/deep/n\n+++ b/new/deep/n\n@@ -0,0 +1,2 @@\n+one\n+\n\
         --- a/a.rs\n+++ b/a.rs\n@@ -3,5 +3,5 @@\n }\n \n fn g() {\n-    x();\n+    y();\n }\n\
         --- a/old.sh\n+++ b/old.sh\n@@ -1,2 +0,0 @@\n-echo 1\n-echo 2\n\
         --- a/bin/new.sh\n+++ b/bin/new.sh\n@@ -0,0 +1,2 @@\n+echo 1\n+echo 3\n\
         --- a/gone\n+++ b/gone\n@@ -1 +0,0 @@\n-bye"
    );
    assert_eq!(
        place.get("a.rs"),
        "fn f() {\n    x();\n}\n\nfn g() {\n    y();\n}\n"
    );
    assert_eq!(place.get("new/deep/n"), "one\n\n");
    assert_eq!(place.get("bin/new.sh"), "echo 1\necho 3\n");
    let mode = std::fs::metadata(place.path("bin/new.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert!(!place.path("gone").exists() && !place.path("old.sh").exists());
    // Nothing else is left behind.
    assert_eq!(tree(&place).len(), 3 + 3);
}

#[tokio::test]
async fn a_unified_diff_is_applied_and_its_numbers_are_hints() {
    let place = Place::writable();
    let block = "begin\nx\nend\n";
    place.put("a", format!("{block}{}{block}", "-\n".repeat(20)));
    // The second block is at line 24; the numbers point near it.
    let patch = "--- a/a\n+++ b/a\n@@ -20,9 +20,9 @@\n begin\n-x\n+y\n end\n";
    ok(&place, patch).await;
    let wanted = format!("{block}{}begin\ny\nend\n", "-\n".repeat(20));
    assert_eq!(place.get("a"), wanted);
    // A new file, one that goes, and a last line without its end.
    place.put("b", "one\ntwo");
    ok(
        &place,
        "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1,2 +1,3 @@\n one\n-two\n\
         \\ No newline at end of file\n+2\n+3\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+c\n\
         \\ No newline at end of file\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
    )
    .await;
    assert_eq!(place.get("b"), "one\n2\n3\n");
    assert_eq!(place.get("c"), "c");
    assert!(!place.path("a").exists());
}

#[tokio::test]
async fn line_ends_are_kept() {
    let place = Place::writable();
    place.put("dos", "one\r\ntwo\r\nthree\r\n");
    ok(
        &place,
        &envelope("*** Update File: dos\n@@\n one\n-two\n+2\n+2b\n"),
    )
    .await;
    assert_eq!(place.get("dos"), "one\r\n2\r\n2b\r\nthree\r\n");
    for (before, patch, after) in [
        // A missing end stays missing, whether the last line changes or one comes behind it.
        ("a\nb", "@@\n-b\n+c\n", "a\nc"),
        ("a\nb", "@@\n b\n+c\n", "a\nb\nc"),
        ("a\nb\n", "@@\n b\n+c\n", "a\nb\nc\n"),
        ("", "@@\n+c\n", "c\n"),
        ("a\nb\nc\n", "@@\n-b\n", "a\nc\n"),
        // Only added lines come at the end, or below their anchor.
        ("a\nb\n", "@@\n+c\n", "a\nb\nc\n"),
        ("a\nb\n", "@@ a\n+c\n", "a\nc\nb\n"),
        ("x\nx\n", "@@\n-x\n+y\n*** End of File\n", "x\ny\n"),
        ("f\nx\ng\nx\n", "@@ g\n-x\n+y\n", "f\nx\ng\ny\n"),
        ("1\n\n2\n", "@@\n 1\n\n-2\n+3\n", "1\n\n3\n"),
        ("a\nb\nc\n", "@@\n-a\n+A\n@@\n-c\n+C\n", "A\nb\nC\n"),
    ] {
        place.put("f", before);
        ok(&place, &envelope(&format!("*** Update File: f\n{patch}"))).await;
        assert_eq!(place.get("f"), after, "{before:?} {patch:?}");
    }
}

#[tokio::test]
async fn a_file_named_twice_is_changed_twice() {
    let place = Place::writable();
    place.put("a", "1\n2\n");
    ok(
        &place,
        &envelope(
            "*** Update File: a\n@@\n-1\n+one\n*** Update File: ./a\n@@\n one\n-2\n+two\n\
             *** Add File: b\n+b\n*** Update File: b\n*** Move to: c\n",
        ),
    )
    .await;
    assert_eq!(place.get("a"), "one\ntwo\n");
    assert_eq!(place.get("c"), "b\n");
    assert!(!place.path("b").exists());
}

#[tokio::test]
async fn nothing_is_changed_unless_all_of_it_fits() {
    let place = Place::writable();
    place.put("a", "one\ntwo\nthree\n");
    place.put("b", "x\n    y = 1;\nz\nx\n");
    place.put("dir/d", "d\n");
    place.link("a", "alias");
    let before = tree(&place);
    let first = "*** Add File: new/n\n+n\n*** Update File: a\n@@\n-one\n+1\n";
    for (body, wanted) in [
        (
            "*** Update File: b\n@@\n x\n-    y = 2;\n+    y = 3;\n z\n",
            "`b`, hunk 1: its old lines are not in the file; the nearest match begins at line 1, \
             but at line 2 the file has `    y = 1;` and the hunk `    y = 2;`",
        ),
        (
            "*** Update File: b\n@@\n z\n+w\n@@\n-    y = 1;\n",
            "`b`, hunk 2: its old lines stand at line 2, above line 4",
        ),
        (
            "*** Update File: b\n@@\n-x\n",
            "fit more than once, at lines 1, 4;",
        ),
        (
            "*** Update File: b\n@@ q\n-x\n",
            "no line from 1 on is `q`, which its `@@` names",
        ),
        (
            "*** Update File: b\n@@\n-q\n",
            "no line of the file is like them",
        ),
        (
            "*** Update File: b\n@@\n-z\n*** End of File\n",
            "does not end with its old lines",
        ),
        ("*** Update File: none\n@@\n-z\n", "`none`: does not exist"),
        ("*** Delete File: alias\n", "`alias`: is a symbolic link"),
        ("*** Delete File: none\n", "`none`: does not exist"),
        ("*** Add File: b\n+z\n", "`b`: exists already"),
        (
            "*** Update File: b\n*** Move to: dir/d\n",
            "`dir/d`: exists already",
        ),
        ("*** Add File: b/c\n+z\n", "`b/c`"),
        ("*** Add File: dir\n+z\n", "`dir` is a folder"),
        ("*** Add File: dir/\n+z\n", "`dir/`"),
    ] {
        let text = not_ok(&place, &envelope(&format!("{first}{body}")), Outcome::Error).await;
        assert!(text.contains(wanted), "{text}");
        assert_eq!(tree(&place), before, "{body}");
    }
    let text = not_ok(&place, "hello", Outcome::Error).await;
    assert!(
        text.contains("line 1 of the patch: this is neither"),
        "{text}"
    );
    let none = envelope("*** Update File: a\n@@\n-one\n+one\n");
    assert_eq!(
        not_ok(&place, &none, Outcome::Error).await,
        "the patch changes nothing"
    );
    place.ctx.cancel.cancel();
    not_ok(&place, &envelope(first), Outcome::Cancelled).await;
    assert_eq!(tree(&place), before);
}

#[tokio::test]
async fn a_rename_that_fails_takes_the_others_back() {
    let place = Place::writable();
    place.put("a", "one\n");
    place.put("locked/b", "two\n");
    let body = "*** Update File: a\n@@\n-one\n+1\n*** Add File: fresh/n\n+n\n\
                *** Update File: locked/b\n@@\n-two\n+2\n";
    let folder = place.path("locked");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o555)).unwrap();
    // A privileged user may write everywhere.
    let may = std::fs::write(place.path("locked/probe"), "").is_ok();
    let _ = std::fs::remove_file(place.path("locked/probe"));
    let before = tree(&place);
    if !may {
        let text = not_ok(&place, &envelope(body), Outcome::Error).await;
        assert!(
            text.contains("locked/b") && text.contains("nothing was changed"),
            "{text}"
        );
        assert_eq!(tree(&place), before);
    }
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn the_path_rules_hold_for_every_path() {
    for (sandbox, body) in [
        (SandboxMode::ReadOnly, "*** Add File: n\n+n\n"),
        (
            SandboxMode::WorkspaceWrite,
            "*** Add File: ../outside/n\n+n\n",
        ),
        (
            SandboxMode::WorkspaceWrite,
            "*** Delete File: ../outside/secret\n",
        ),
        (
            SandboxMode::WorkspaceWrite,
            "*** Update File: a\n*** Move to: ../outside/n\n",
        ),
        (
            SandboxMode::WorkspaceWrite,
            "*** Update File: link\n@@\n-hidden\n+seen\n",
        ),
        (
            SandboxMode::DangerFullAccess,
            "*** Add File: .git/hooks/x\n+n\n",
        ),
        (SandboxMode::DangerFullAccess, "*** Add File: .env\n+n\n"),
    ] {
        let place = Place::new(sandbox);
        place.put("a", "a\n");
        place.link("../outside/secret", "link");
        let text = not_ok(&place, &envelope(body), Outcome::Denied).await;
        assert!(text.starts_with("refused: "), "{text}");
        let secret = std::fs::read_to_string(place.root.join("outside/secret")).unwrap();
        assert_eq!(secret, "hidden\n");
        assert!(place.path("a").exists() && !place.root.join("outside/n").exists());
    }
}

#[tokio::test]
async fn what_is_too_big_is_refused_and_the_difference_is_capped() {
    let place = Place::writable();
    let text = not_ok(&place, &"x".repeat(PATCH_BYTES + 1), Outcome::Error).await;
    assert!(text.contains("has 2097153 bytes"), "{text}");
    let files: String = (0..201)
        .map(|n| format!("*** Add File: {n}\n+x\n"))
        .collect();
    let text = not_ok(&place, &envelope(&files), Outcome::Error).await;
    assert!(text.contains("has 201 files"), "{text}");
    let hunks = format!("*** Update File: a\n{}", "@@\n-x\n".repeat(1_001));
    let text = not_ok(&place, &envelope(&hunks), Outcome::Error).await;
    assert!(text.contains("has 1001 hunks"), "{text}");
    place.put("big", "x".repeat(FILE_BYTES + 1));
    let text = not_ok(&place, &envelope("*** Delete File: big\n"), Outcome::Error).await;
    assert!(text.contains("too many for `apply_patch`"), "{text}");
    // Nine contents of 8 MiB are more than is held at once.
    let mut body = String::new();
    for n in 0..9 {
        place.put(&format!("b{n}"), "x\n".repeat(FILE_BYTES / 2));
        body.push_str(&format!("*** Delete File: b{n}\n"));
    }
    let text = not_ok(&place, &envelope(&body), Outcome::Error).await;
    assert!(
        text.contains("`b8`: the files of the patch have more than"),
        "{text}"
    );
    // Hard to match: every line of the hunk but the last fits everywhere.
    let hunk = format!("*** Update File: b0\n@@\n{}-y\n", " x\n".repeat(100_000));
    let text = not_ok(&place, &envelope(&hunk), Outcome::Error).await;
    assert!(text.contains("not in the file"), "{text}");
    let lines = format!("*** Add File: many\n{}", "+\u{1f600}\n".repeat(20_000));
    let text = ok(&place, &envelope(&lines)).await;
    assert!(text.len() <= DIFF_BYTES + NOTE_BYTES, "{}", text.len());
    assert_eq!(place.get("many").len(), 5 * 20_000);
    let files: String = (0..150)
        .map(|n| format!("*** Add File: d{n}\n{}", "+some line\n".repeat(20)))
        .collect();
    let text = ok(&place, &envelope(&files)).await;
    assert!(
        text.ends_with("more files are not shown]") && text.len() < 2 * DIFF_BYTES,
        "{text}"
    );
}
