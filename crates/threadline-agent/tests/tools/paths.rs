use std::path::Path;

use serde_json::json;
use threadline_agent::tools::{Access, PathRules};
use threadline_session::payload::{Outcome, SandboxMode};

use crate::support::{MODES, Place};

fn refused(place: &Place, path: &str, access: Access) -> Option<String> {
    let rules = PathRules::new(&place.ctx).unwrap();
    match rules.resolve(Path::new(path), access) {
        Ok(_) => None,
        Err(error) if error.is_refusal() => Some(error.to_string()),
        Err(error) => panic!("{path}: {error}"),
    }
}

#[test]
fn what_leaves_the_workspace_is_refused_unless_the_mode_is_full_access() {
    for mode in MODES {
        let place = Place::new(mode);
        place.put("dir/file", "x");
        place.link("../outside", "out");
        place.link(place.root.join("outside/secret"), "absolute");
        place.link("../outside/not-there", "dangling");
        place.link("out", "twice");
        place.link("dir", "inner");
        let outside = place.root.join("outside/secret");
        let leaves = [
            "../outside/secret",
            "dir/../../outside/secret",
            "missing/../../outside/secret",
            "out/secret",
            "twice/secret",
            "absolute",
            "dangling",
            "out/new/deep",
            "inner/../../outside/secret",
            "..",
            "/",
            "/etc/passwd",
            outside.to_str().unwrap(),
        ];
        for path in leaves {
            for access in [Access::Read, Access::Write] {
                let text = refused(&place, path, access);
                if mode == SandboxMode::DangerFullAccess {
                    assert_eq!(text, None, "{path}");
                    continue;
                }
                let text = text.unwrap_or_else(|| panic!("{path} was let through in {mode:?}"));
                let rule = if mode == SandboxMode::ReadOnly && access == Access::Write {
                    "cannot be written, because the sandbox mode is read_only"
                } else {
                    "outside the working directory"
                };
                assert!(text.contains(rule) && text.contains(path), "{text}");
            }
        }
        for path in [
            ".",
            "dir/file",
            "dir/../dir/file",
            "inner/file",
            "new/deep",
            "./x",
        ] {
            assert_eq!(refused(&place, path, Access::Read), None, "{path}");
            let written = refused(&place, path, Access::Write);
            assert_eq!(written.is_some(), mode == SandboxMode::ReadOnly, "{path}");
        }
    }
}

#[test]
fn a_path_is_resolved_to_what_it_stands_for() {
    let place = Place::writable();
    place.put("real/file", "x");
    place.link("real", "a");
    place.link("a/file", "b");
    place.link("real/new", "dangling");
    let rules = PathRules::new(&place.ctx).unwrap();
    for (given, wanted) in [
        ("b", "real/file"),
        ("a/../b", "real/file"),
        ("a/file", "real/file"),
        ("dangling/x", "real/new/x"),
        ("a/new/../x", "real/x"),
    ] {
        let found = rules.resolve(Path::new(given), Access::Write).unwrap();
        assert_eq!(found, place.path(wanted), "{given}");
    }
    place.link("loop2", "loop1");
    place.link("loop1", "loop2");
    let error = rules.resolve(Path::new("loop1"), Access::Read).unwrap_err();
    assert!(!error.is_refusal());
    assert!(error.to_string().contains("too many symbolic links"));
    assert!(rules.resolve(Path::new("b/x"), Access::Read).is_err());
}

#[test]
fn a_workspace_that_is_named_through_a_link_is_the_same_workspace() {
    let mut place = Place::writable();
    place.put("file", "x");
    let alias = place.root.join("alias");
    std::os::unix::fs::symlink("w", &alias).unwrap();
    place.ctx.cwd.clone_from(&alias);
    let rules = PathRules::new(&place.ctx).unwrap();
    assert_eq!(rules.root(), place.root.join("w"));
    for path in ["file", alias.join("file").to_str().unwrap()] {
        assert!(rules.resolve(Path::new(path), Access::Write).is_ok());
    }
}

const PROTECTED: [&str; 13] = [
    ".git",
    ".git/config",
    "sub/.git/HEAD",
    "sub/.GIT/HEAD",
    ".env",
    ".ENV",
    ".env.local",
    ".env.production",
    ".envrc",
    "sub/.env",
    ".env/inner",
    "sub/../.env",
    "x/.git",
];

#[test]
fn protected_names_are_refused_in_every_mode() {
    for mode in MODES {
        let place = Place::new(mode);
        place.put("sub/.env", "SECRET=1");
        place.link("sub/.env", "innocent");
        place.link("/dev/null", ".env.d");
        for path in PROTECTED.into_iter().chain(["innocent", ".env.d"]) {
            for access in [Access::Read, Access::Write] {
                let text = refused(&place, path, access);
                assert!(text.is_some(), "{path} was let through in {mode:?}");
                if !(mode == SandboxMode::ReadOnly && access == Access::Write) {
                    let text = text.unwrap_or_default();
                    let known = ["tools never read or write", "outside the working directory"];
                    assert!(known.iter().any(|rule| text.contains(rule)), "{text}");
                }
            }
        }
        for path in [
            ".env.example",
            ".env.sample",
            ".env.template",
            ".gitignore",
            ".github/x",
            "env",
        ] {
            assert_eq!(refused(&place, path, Access::Read), None, "{path}");
        }
    }
}

#[test]
fn closed_folders_are_refused_in_every_mode() {
    for mode in MODES {
        let mut place = Place::new(mode);
        place.put("store/sessions/a.jsonl", "x");
        place.link("store/sessions", "way");
        place.link("../outside", "out");
        // One inside, one named through a link, one that does not exist yet.
        place.ctx.denied = vec![place.path("store"), place.path("out"), place.path("later")];
        let secret = place.root.join("outside/secret");
        for path in [
            "store",
            "store/sessions/a.jsonl",
            "store/new",
            "way/a.jsonl",
            "out/secret",
            secret.to_str().unwrap(),
            "later/x",
        ] {
            for access in [Access::Read, Access::Write] {
                let text = refused(&place, path, access);
                assert!(text.is_some(), "{path} was let through in {mode:?}");
                if mode == SandboxMode::DangerFullAccess {
                    let text = text.unwrap_or_default();
                    assert!(
                        text.contains("closed to tools in every sandbox mode"),
                        "{text}"
                    );
                }
            }
        }
        assert_eq!(refused(&place, "storehouse", Access::Read), None);
    }
}

#[tokio::test]
async fn every_file_tool_obeys_the_rules() {
    for mode in MODES {
        let mut place = Place::new(mode);
        place.put(".env", "needle=1");
        place.put(".git/config", "needle");
        place.put("store/log", "needle");
        place.put("sub/.envrc", "needle");
        place.put("open.txt", "needle");
        place.put(".env.example", "needle");
        place.link(".env", "alias");
        place.ctx.denied = vec![place.path("store")];
        for path in [".env", ".git/config", "store/log", "sub/.envrc", "alias"] {
            place
                .not_ok("read", json!({ "path": path }), Outcome::Denied)
                .await;
            place
                .not_ok(
                    "write",
                    json!({"path": path, "content": ""}),
                    Outcome::Denied,
                )
                .await;
            let edit = json!({"path": path, "old_string": "needle", "new_string": "x"});
            place.not_ok("edit", edit, Outcome::Denied).await;
            let search = json!({"pattern": "needle", "path": path});
            place.not_ok("grep", search.clone(), Outcome::Denied).await;
            place.not_ok("find", search, Outcome::Denied).await;
        }
        for path in [".git", "store"] {
            place
                .not_ok("ls", json!({ "path": path }), Outcome::Denied)
                .await;
        }
        let listed = place.ok("ls", json!({})).await;
        assert!(listed.contains(".git/ (closed to tools)"), "{listed}");
        assert!(listed.contains(".env (closed to tools)"), "{listed}");
        assert!(listed.contains("store/ (closed to tools)"), "{listed}");
        let found = place.ok("grep", json!({"pattern": "needle"})).await;
        assert_eq!(found, ".env.example:1:needle\nopen.txt:1:needle");
        let found = place.ok("find", json!({"pattern": "**/*"})).await;
        assert_eq!(found, ".env.example\nalias\nopen.txt\nsub/");
        assert_eq!(place.get(".env"), "needle=1");
    }
}

#[tokio::test]
async fn read_only_denies_changes() {
    let place = Place::new(SandboxMode::ReadOnly);
    place.put("a", "old");
    let write = json!({"path": "a", "content": "new"});
    let text = place.not_ok("write", write, Outcome::Denied).await;
    assert!(text.contains("`a` cannot be written"), "{text}");
    let edit = json!({"path": "a", "old_string": "old", "new_string": "new"});
    place.not_ok("edit", edit, Outcome::Denied).await;
    assert_eq!(place.get("a"), "old");
}
