//! Attempts of the tools themselves to get out, in the modes that hold them in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use threadline_agent::tools::ToolContext;
use threadline_session::payload::{Outcome, SandboxMode};

use crate::support::Place;

const SECRET: &str = "TOP-SECRET";

const SANDBOXED: [SandboxMode; 2] = [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite];

/// A workspace with everything in and around it that is closed.
fn place(mode: SandboxMode) -> Place {
    let mut place = Place::new(mode);
    std::fs::write(place.root.join("outside/secret"), SECRET).unwrap();
    for name in [
        ".env",
        "sub/.env.local",
        "id_rsa",
        "sub/server.pem",
        "tls.key",
        ".ssh/config",
        ".aws/credentials",
        ".netrc",
        ".git/config",
        ".git/hooks/sample",
        "sub/.git/hooks/sample",
        "store/log",
    ] {
        place.put(name, SECRET);
    }
    place.put("plain", "plain\n");
    place.link("../outside", "way-out");
    place.link("../outside/secret", "link-out");
    place.link("../outside/later", "dangling");
    place.link(".env", "innocent");
    place.link(".git", "gitlink");
    place.link("store", "way-to-store");
    place.link("/proc/self/root", "root");
    std::fs::hard_link(
        place.root.join("outside/secret"),
        place.root.join("outside/twin"),
    )
    .unwrap();
    place.ctx.denied = vec![place.path("store")];
    place
}

/// Paths that no tool may read or write.
fn closed(ctx: &ToolContext) -> Vec<String> {
    let outside = ctx.cwd.parent().unwrap().join("outside/secret");
    let outside = outside.to_str().unwrap();
    let mut paths: Vec<String> = [
        "../outside/secret",
        "sub/../../outside/secret",
        "missing/../../outside/secret",
        "./././../outside/secret",
        "way-out/secret",
        "way-out/../outside/secret",
        "link-out",
        "dangling",
        ".env",
        ".ENV",
        "./sub/.env.local",
        "sub/../.env",
        "innocent",
        "id_rsa",
        "ID_RSA",
        "sub/server.pem",
        "tls.key",
        ".ssh/config",
        ".aws/credentials",
        ".netrc",
        ".git/config",
        ".git/hooks/sample",
        ".git/hooks/pre-commit",
        ".Git/hooks/pre-commit",
        "gitlink/hooks/pre-commit",
        "sub/.git/hooks/sample",
        "store/log",
        "store/new",
        "way-to-store/log",
        "sub/../store/log",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/sda",
        "~/../../etc/passwd/../../../outside/secret/../../../../etc/shadow",
    ]
    .map(String::from)
    .into();
    paths.push(outside.into());
    paths.push(format!("/proc/self/root{outside}"));
    paths.push(format!("/proc/self/cwd/{outside}"));
    paths.push(format!("root{outside}"));
    paths
}

fn snapshot(path: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    if meta.is_dir() {
        found.insert(path.into(), Vec::new());
        for entry in std::fs::read_dir(path).unwrap() {
            snapshot(&entry.unwrap().path(), found);
        }
    } else if meta.is_file() {
        found.insert(path.into(), std::fs::read(path).unwrap());
    }
}

#[tokio::test]
async fn no_file_tool_reads_or_writes_what_is_closed() {
    let mut attempts = 0;
    for mode in SANDBOXED {
        let place = place(mode);
        let mut before = BTreeMap::new();
        snapshot(&place.root, &mut before);
        for path in closed(&place.ctx) {
            let calls: [(&str, Value); 6] = [
                ("read", json!({ "path": path })),
                ("write", json!({"path": path, "content": "x"})),
                (
                    "edit",
                    json!({"path": path, "old_string": "SECRET", "new_string": "x"}),
                ),
                ("ls", json!({ "path": path })),
                ("find", json!({"path": path, "pattern": "*"})),
                ("grep", json!({"path": path, "pattern": "SECRET"})),
            ];
            for (tool, arguments) in calls {
                let output = place.run(tool, arguments).await;
                let text = output.text();
                assert!(!text.contains(SECRET), "{tool} {path}: {text}");
                // Below what is no folder there is nothing, which is no rule's doing.
                let nothing = output.outcome == Outcome::Error && path.starts_with('~');
                let refused = output.outcome == Outcome::Denied;
                assert!(refused || nothing, "{tool} {path} in {mode:?}: {text}");
                attempts += 1;
            }
        }
        let mut after = BTreeMap::new();
        snapshot(&place.root, &mut after);
        assert_eq!(before, after, "{mode:?}");
    }
    assert!(attempts >= 2 * 6 * 38, "{attempts}");
}

#[tokio::test]
async fn searching_the_whole_workspace_shows_nothing_that_is_closed() {
    for mode in SANDBOXED {
        let place = place(mode);
        let text = place.ok("grep", json!({"pattern": "SECRET"})).await;
        assert!(!text.contains(SECRET), "{text}");
        let text = place.ok("find", json!({"pattern": "**"})).await;
        for name in [
            "id_rsa", "config", "hooks", "log", "secret", ".env", "tls.key",
        ] {
            assert!(!text.contains(name), "{name}: {text}");
        }
    }
}

#[tokio::test]
async fn a_hard_link_to_a_file_outside_is_replaced_and_not_written_through() {
    let place = place(SandboxMode::WorkspaceWrite);
    let (outside, inside) = (place.root.join("outside/secret"), place.path("twin"));
    std::fs::hard_link(&outside, &inside).unwrap();
    let write = json!({"path": "twin", "content": "mine"});
    place.ok("write", write).await;
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), SECRET);
    assert_eq!(place.get("twin"), "mine");
}

#[tokio::test]
async fn commands_of_the_shell_are_held_by_the_kernel() {
    for mode in SANDBOXED {
        let place = place(mode);
        let mut before = BTreeMap::new();
        snapshot(&place.root, &mut before);
        for command in [
            "echo x > ../outside/new",
            "echo x > way-out/secret",
            "cat .env sub/.env.local id_rsa tls.key .ssh/config",
            "cat store/log way-to-store/log",
            "echo x > .git/hooks/pre-commit",
            "mv .git g",
            "rm -rf store .env .git",
            "chmod 777 ../outside/secret",
            "exec 3<>/dev/tcp/127.0.0.1/9",
            "kill -9 $PPID; cat /proc/$PPID/environ | grep . && echo TOP-SECRET",
        ] {
            let output = place.run("shell", json!({ "command": command })).await;
            let text = output.text();
            assert!(!text.contains(SECRET), "{command} in {mode:?}: {text}");
            assert!(output.is_error(), "{command} in {mode:?}: {text}");
        }
        let mut after = BTreeMap::new();
        snapshot(&place.root, &mut after);
        assert_eq!(before, after, "{mode:?}");
    }
}

#[tokio::test]
async fn the_private_folder_is_made_for_a_call_and_removed_after_it() {
    for mode in SANDBOXED {
        let place = place(mode);
        let command = "echo x > \"$TMPDIR/a\" && cat \"$TMPDIR/a\" && stat -c %a \"$TMPDIR\" && echo \"$TMPDIR\"";
        let text = place.ok("shell", json!({ "command": command })).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(&lines[..2], ["x", "700"], "{text}");
        assert!(!Path::new(lines[2]).exists(), "{text}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_sandbox_is_explained_to_the_model() {
    let place = place(SandboxMode::ReadOnly);
    let arguments = json!({"command": "echo x > new"});
    let text = place.not_ok("shell", arguments, Outcome::Error).await;
    assert!(text.contains("the sandbox mode read_only lets"), "{text}");
    let place = self::place(SandboxMode::WorkspaceWrite);
    let arguments = json!({"command": "echo x > ../new"});
    let text = place.not_ok("shell", arguments, Outcome::Error).await;
    assert!(
        text.contains("the sandbox mode workspace_write lets"),
        "{text}"
    );
}

#[tokio::test]
async fn a_command_is_not_run_when_the_launcher_does_not_work() {
    for mode in SANDBOXED {
        let mut place = place(mode);
        place.ctx.launcher = Some(threadline_sandbox::Launcher::new("/nowhere/threadline"));
        let arguments = json!({"command": "echo ran > \"${TMPDIR:-.}/ran\"; echo ran"});
        let text = place.not_ok("shell", arguments, Outcome::Error).await;
        assert!(
            text.contains("`/nowhere/threadline` does not work"),
            "{text}"
        );
        assert!(text.contains("reinstall threadline"), "{text}");
        assert!(!text.contains("exit code"), "{text}");
    }
    // Full access promises no sandbox.
    let mut place = place(SandboxMode::DangerFullAccess);
    place.ctx.launcher = Some(threadline_sandbox::Launcher::new("/nowhere/threadline"));
    assert_eq!(
        place.ok("shell", json!({"command": "echo ran"})).await,
        "ran\n[exit code 0]"
    );
}

#[tokio::test]
async fn the_store_is_out_of_reach_of_commands_with_full_access() {
    let place = place(SandboxMode::DangerFullAccess);
    let command = "cat store/log way-to-store/log; echo x > store/new; mv store s";
    let output = place.run("shell", json!({ "command": command })).await;
    assert!(!output.text().contains(SECRET), "{}", output.text());
    assert_eq!(place.get("store/log"), SECRET);
    assert!(!place.path("store/new").exists());
    place
        .ok("shell", json!({"command": "echo x > ../outside/new"}))
        .await;
}
