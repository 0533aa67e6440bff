//! The file tools with an editor that holds texts of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use threadline_agent::limits::FILE_BYTES;
use threadline_agent::tools::{ClientError, ClientFiles, Files};
use threadline_session::payload::{Outcome, SandboxMode};
use tokio_util::sync::CancellationToken;

use crate::support::Place;

/// An editor. What it has no text of it reads from disk, as editors do.
#[derive(Default)]
struct Editor {
    reads: bool,
    writes: bool,
    /// Whether a text that it is given is saved at once.
    saves: bool,
    held: Mutex<HashMap<PathBuf, String>>,
    /// Paths that it has no access to.
    refused: Mutex<Vec<PathBuf>>,
    /// Paths whose text it gives and does not take.
    closed: Mutex<Vec<PathBuf>>,
    /// Paths whose writing it says nothing about.
    silent: Mutex<Vec<PathBuf>>,
    /// Everything it was asked for.
    asked: Mutex<Vec<String>>,
    /// Done while a text is asked for.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Done once a text was taken.
    written: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Editor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Editor").finish_non_exhaustive()
    }
}

impl Editor {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn held(&self, place: &Place, name: &str) -> Option<String> {
        self.held.lock().unwrap().get(&place.path(name)).cloned()
    }

    fn note(&self, verb: &str, path: &Path) -> Result<(), ClientError> {
        let name = path.file_name().unwrap().to_string_lossy();
        self.asked.lock().unwrap().push(format!("{verb} {name}"));
        if self.refused.lock().unwrap().iter().any(|p| p == path) {
            return Err(ClientError::Refused {
                reason: "it is none of mine".into(),
            });
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl ClientFiles for Editor {
    fn reads(&self) -> bool {
        self.reads
    }

    fn writes(&self) -> bool {
        self.writes
    }

    async fn read(&self, path: &Path, _: &CancellationToken) -> Result<String, ClientError> {
        self.note("read", path)?;
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        if let Some(text) = self.held.lock().unwrap().get(path) {
            return Ok(text.clone());
        }
        std::fs::read_to_string(path).map_err(|error| ClientError::Refused {
            reason: error.to_string(),
        })
    }

    async fn write(
        &self,
        path: &Path,
        text: &str,
        _: &CancellationToken,
    ) -> Result<(), ClientError> {
        self.note("write", path)?;
        if self.closed.lock().unwrap().iter().any(|p| p == path) {
            return Err(ClientError::Refused {
                reason: "it is closed".into(),
            });
        }
        if self.silent.lock().unwrap().iter().any(|p| p == path) {
            return Err(ClientError::Unclear {
                reason: "it has not answered within 30 s".into(),
            });
        }
        self.held
            .lock()
            .unwrap()
            .insert(path.to_owned(), text.to_owned());
        if self.saves {
            std::fs::write(path, text).unwrap();
        }
        if let Some(written) = self.written.lock().unwrap().take() {
            written();
        }
        Ok(())
    }
}

/// A workspace with an editor that reads, writes and saves, and holds these texts unsaved.
fn with_editor(held: &[(&str, &str)]) -> (Place, Arc<Editor>) {
    let editor = Editor {
        reads: true,
        writes: true,
        saves: true,
        ..Editor::default()
    };
    lent(Place::writable(), editor, held)
}

fn lent(mut place: Place, editor: Editor, held: &[(&str, &str)]) -> (Place, Arc<Editor>) {
    let editor = Arc::new(editor);
    for (name, text) in held {
        let mut texts = editor.held.lock().unwrap();
        texts.insert(place.path(name), (*text).to_owned());
    }
    place.ctx.files = Files::lent(editor.clone());
    (place, editor)
}

#[tokio::test]
async fn read_shows_what_the_editor_holds_and_says_when_it_is_not_saved() {
    let (place, editor) = with_editor(&[("a", "one\nnew\n"), ("fresh", "typed\n")]);
    place.put("a", "one\n");
    place.put("b", "saved\n");
    let text = place.ok("read", json!({"path": "a"})).await;
    assert!(text.starts_with("     1\tone\n     2\tnew\n"), "{text}");
    assert!(text.contains("not saved"), "{text}");
    assert_eq!(
        place.ok("read", json!({"path": "b"})).await,
        "     1\tsaved"
    );
    let text = place.ok("read", json!({"path": "fresh"})).await;
    assert!(text.starts_with("     1\ttyped\n["), "{text}");
    let page = json!({"path": "a", "offset": 2, "limit": 1});
    let text = place.ok("read", page).await;
    assert!(text.starts_with("     2\tnew\n["), "{text}");
    assert_eq!(editor.asked(), ["read a", "read b", "read fresh", "read a"]);
}

#[tokio::test]
async fn how_lines_end_is_no_unsaved_change() {
    let (place, _) = with_editor(&[("a", "one\ntwo\n")]);
    place.put("a", "\u{feff}one\r\ntwo\r\n");
    let text = place.ok("read", json!({"path": "a"})).await;
    assert_eq!(text, "     1\tone\n     2\ttwo");
}

#[tokio::test]
async fn what_the_rules_forbid_no_editor_is_asked_for() {
    for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
        let editor = Editor {
            reads: true,
            writes: true,
            ..Editor::default()
        };
        let (place, editor) = lent(Place::new(mode), editor, &[]);
        place.put(".env", "KEY=1\n");
        place.put("a", "one\n");
        place.link("../outside/secret", "link");
        for path in ["../outside/secret", ".env", "link", "/etc/hostname"] {
            place
                .not_ok("read", json!({ "path": path }), Outcome::Denied)
                .await;
            let write = json!({"path": path, "content": "x"});
            place.not_ok("write", write, Outcome::Denied).await;
        }
        if mode == SandboxMode::ReadOnly {
            let edit = json!({"path": "a", "old_string": "one", "new_string": "two"});
            place.not_ok("edit", edit, Outcome::Denied).await;
        }
        assert_eq!(editor.asked(), [""; 0]);
    }
}

#[tokio::test]
async fn folders_images_and_binary_files_are_read_from_disk() {
    let (place, editor) = with_editor(&[]);
    place.put("folder/a", "x");
    place.put("picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    place.put("binary", b"a\0b");
    place.put("latin", b"caf\xe9\n");
    place.put("long", "x".repeat(FILE_BYTES) + "\n");
    place
        .not_ok("read", json!({"path": "folder"}), Outcome::Error)
        .await;
    place
        .not_ok("read", json!({"path": "binary"}), Outcome::Error)
        .await;
    let picture = place.run("read", json!({"path": "picture"})).await;
    assert_eq!((picture.outcome, picture.blobs.len()), (Outcome::Ok, 1));
    let text = place.ok("read", json!({"path": "latin"})).await;
    assert!(text.contains("not UTF-8"), "{text}");
    let text = place.ok("read", json!({"path": "long"})).await;
    assert!(text.contains(&format!("more than {FILE_BYTES} bytes")));
    assert_eq!(editor.asked(), [""; 0]);
    let write = json!({"path": "binary", "content": "text"});
    let text = place.ok("write", write).await;
    assert!(
        text.contains("written on disk: what was there is binary"),
        "{text}"
    );
    assert_eq!(place.get("binary"), "text");
    assert_eq!(editor.asked(), [""; 0]);
}

#[tokio::test]
async fn an_edit_of_an_unsaved_text_changes_that_and_goes_through_the_editor() {
    let (place, editor) = with_editor(&[("a", "one\nnew\n")]);
    place.put("a", "one\n");
    let edit = json!({"path": "a", "old_string": "new", "new_string": "newer"});
    let text = place.ok("edit", edit).await;
    assert!(text.contains("-new\n+newer"), "{text}");
    assert_eq!(editor.held(&place, "a").unwrap(), "one\nnewer\n");
    assert_eq!(place.get("a"), "one\nnewer\n");
    assert_eq!(editor.asked(), ["read a", "write a"]);
}

#[tokio::test]
async fn a_text_that_the_editor_does_not_save_is_told_of() {
    let editor = Editor {
        reads: true,
        writes: true,
        ..Editor::default()
    };
    let (place, editor) = lent(Place::writable(), editor, &[]);
    place.put("a", "one\n");
    let edit = json!({"path": "a", "old_string": "one", "new_string": "two"});
    let text = place.ok("edit", edit).await;
    assert!(text.contains("not saved yet"), "{text}");
    assert_eq!(place.get("a"), "one\n");
    assert_eq!(editor.held(&place, "a").unwrap(), "two\n");
    // What the model itself has written it may write over.
    let write = json!({"path": "a", "content": "three\n"});
    place.ok("write", write).await;
    assert_eq!(editor.held(&place, "a").unwrap(), "three\n");
}

#[tokio::test]
async fn an_unsaved_text_is_written_over_or_deleted_only_by_who_has_read_it() {
    let (place, editor) = with_editor(&[("a", "typed\n"), ("b", "typed\n")]);
    place.put("a", "old\n");
    place.put("b", "old\n");
    let write = json!({"path": "a", "content": "mine\n"});
    let delete = json!({"patch": "*** Begin Patch\n*** Delete File: b\n*** End Patch"});
    for (tool, call) in [("write", &write), ("apply_patch", &delete)] {
        let text = place.not_ok(tool, call.clone(), Outcome::Error).await;
        assert!(
            text.contains("not saved") && text.contains("`read` it first"),
            "{text}"
        );
    }
    assert_eq!(editor.held(&place, "a").unwrap(), "typed\n");
    place.ok("read", json!({"path": "a"})).await;
    place.ok("read", json!({"path": "b"})).await;
    // What changes again after the reading has to be read again.
    editor
        .held
        .lock()
        .unwrap()
        .insert(place.path("a"), "typed on\n".into());
    place.not_ok("write", write.clone(), Outcome::Error).await;
    place.ok("read", json!({"path": "a"})).await;
    place.ok("write", write).await;
    assert_eq!(place.get("a"), "mine\n");
    place.ok("apply_patch", delete).await;
    assert!(!place.path("b").exists());
}

#[tokio::test]
async fn new_files_are_made_by_the_editor_and_their_folders_by_us() {
    let (place, editor) = with_editor(&[]);
    let write = json!({"path": "deep/er/new", "content": "x\n"});
    let text = place.ok("write", write).await;
    assert!(text.contains("the new file"), "{text}");
    assert_eq!(place.get("deep/er/new"), "x\n");
    assert_eq!(editor.asked(), ["read new", "write new"]);
}

#[tokio::test]
async fn a_file_that_the_editor_does_not_hold_is_read_and_changed_on_disk_and_that_is_said() {
    let (place, editor) = with_editor(&[]);
    place.put("a", "one\n");
    *editor.refused.lock().unwrap() = vec![place.path("a"), place.path("new")];
    let text = place.ok("read", json!({"path": "a"})).await;
    assert!(text.contains("it refused: it is none of mine"), "{text}");
    let edit = json!({"path": "a", "old_string": "one", "new_string": "two"});
    let text = place.ok("edit", edit).await;
    assert!(
        text.contains("changed on disk") && text.contains("refused"),
        "{text}"
    );
    assert_eq!(place.get("a"), "two\n");
    let text = place
        .ok("write", json!({"path": "new", "content": "x"}))
        .await;
    assert!(text.contains("written on disk"), "{text}");
    assert_eq!(place.get("new"), "x");
    assert_eq!(
        editor.asked(),
        ["read a", "read a", "read new", "write new"]
    );
}

#[tokio::test]
async fn a_text_that_the_editor_gave_and_does_not_take_is_not_written_behind_its_back() {
    let (place, editor) = with_editor(&[("a", "typed\n")]);
    place.put("a", "old\n");
    editor.silent.lock().unwrap().push(place.path("a"));
    let edit = json!({"path": "a", "old_string": "typed", "new_string": "mine"});
    let text = place.not_ok("edit", edit, Outcome::Unknown).await;
    assert!(
        text.contains("not known") && text.contains("30 s"),
        "{text}"
    );
    assert_eq!(place.get("a"), "old\n");
}

#[tokio::test]
async fn an_editor_that_only_reads_keeps_its_unsaved_texts() {
    let editor = Editor {
        reads: true,
        ..Editor::default()
    };
    let (place, editor) = lent(Place::writable(), editor, &[("a", "typed\n")]);
    place.put("a", "old\n");
    place.put("b", "one\n");
    let edit = json!({"path": "a", "old_string": "typed", "new_string": "mine"});
    let text = place.not_ok("edit", edit, Outcome::Error).await;
    assert!(text.contains("takes no text"), "{text}");
    let edit = json!({"path": "b", "old_string": "one", "new_string": "two"});
    place.ok("edit", edit).await;
    assert_eq!(
        (place.get("a"), place.get("b")),
        ("old\n".into(), "two\n".into())
    );
    assert_eq!(editor.asked(), ["read a", "read b"]);
}

#[tokio::test]
async fn an_editor_that_only_writes_takes_what_was_made_of_the_text_on_disk() {
    let editor = Editor {
        writes: true,
        saves: true,
        ..Editor::default()
    };
    let (place, editor) = lent(Place::writable(), editor, &[]);
    place.put("a", "one\n");
    let edit = json!({"path": "a", "old_string": "one", "new_string": "two"});
    place.ok("edit", edit).await;
    assert_eq!(editor.asked(), ["write a"]);
    assert_eq!(place.get("a"), "two\n");
}

#[tokio::test]
async fn a_write_protected_file_is_protected_from_the_editor_too() {
    use std::os::unix::fs::PermissionsExt as _;
    if rustix::process::geteuid().is_root() {
        // Nothing is protected from an administrator.
        return;
    }
    let (place, editor) = with_editor(&[]);
    place.put("a", "one\n");
    let mode = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(place.path("a"), mode).unwrap();
    let write = json!({"path": "a", "content": "x"});
    place.not_ok("write", write, Outcome::Error).await;
    assert_eq!(editor.asked(), ["read a"]);
}

#[tokio::test]
async fn a_path_that_comes_to_lead_elsewhere_gives_nothing() {
    let (place, editor) = with_editor(&[]);
    place.put("d/secret", "mine\n");
    let (folder, moved) = (place.path("d"), place.path("e"));
    let outside = place.root.join("outside");
    *editor.meanwhile.lock().unwrap() = Some(Box::new(move || {
        std::fs::rename(&folder, moved).unwrap();
        std::os::unix::fs::symlink(outside, folder).unwrap();
    }));
    let output = place.run("read", json!({"path": "d/secret"})).await;
    assert!(!output.text().contains("hidden"), "{}", output.text());
}

const PATCH: &str = "*** Begin Patch\n*** Update File: a\n-one\n+two\n*** Delete File: gone\n\
                     *** Add File: deep/new\n+fresh\n*** Update File: b\n-one\n+two\n\
                     *** End Patch";

fn patched(held: &[(&str, &str)]) -> (Place, Arc<Editor>) {
    let (place, editor) = with_editor(held);
    for name in ["a", "b", "gone"] {
        place.put(name, "one\n");
    }
    (place, editor)
}

#[tokio::test]
async fn a_patch_goes_through_the_editor_but_for_what_is_deleted() {
    let (place, editor) = patched(&[("b", "typed\none\n")]);
    let text = place.ok("apply_patch", json!({ "patch": PATCH })).await;
    assert!(text.contains("deleted `gone`"), "{text}");
    assert_eq!(place.get("a"), "two\n");
    assert_eq!(place.get("b"), "typed\ntwo\n");
    assert_eq!(place.get("deep/new"), "fresh\n");
    assert!(!place.path("gone").exists());
    let writes: Vec<_> = editor.asked();
    assert_eq!(writes[4..], ["write a", "write new", "write b"]);
}

#[tokio::test]
async fn a_patch_that_the_editor_takes_in_part_is_taken_back() {
    let (place, editor) = patched(&[("b", "typed\none\n")]);
    editor.silent.lock().unwrap().push(place.path("b"));
    let text = place
        .not_ok("apply_patch", json!({ "patch": PATCH }), Outcome::Unknown)
        .await;
    // Of the one it never answered nobody knows.
    assert!(text.contains("`b` is not known"), "{text}");
    assert!(!text.contains("`a`"), "{text}");
    assert_eq!(place.get("a"), "one\n");
    assert_eq!(editor.held(&place, "a").unwrap(), "one\n");
    assert!(place.path("gone").exists() && !place.path("deep").exists());

    let (place, editor) = patched(&[("b", "typed\none\n")]);
    editor.closed.lock().unwrap().push(place.path("b"));
    let text = place
        .not_ok("apply_patch", json!({ "patch": PATCH }), Outcome::Error)
        .await;
    assert!(text.contains("it is closed; nothing was changed"), "{text}");
    assert_eq!(place.get("a"), "one\n");
    assert!(place.path("gone").exists() && !place.path("deep").exists());
    assert_eq!(editor.held(&place, "b").unwrap(), "typed\none\n");
}

#[tokio::test]
async fn a_patch_that_fails_on_disk_is_taken_back_in_the_editor() {
    let (place, editor) = patched(&[]);
    let gone = place.path("gone");
    let patch = "*** Begin Patch\n*** Update File: a\n-one\n+two\n*** Delete File: gone\n\
                 *** End Patch";
    // Somebody is faster, after everything was looked at.
    *editor.written.lock().unwrap() = Some(Box::new(move || std::fs::remove_file(gone).unwrap()));
    let text = place
        .not_ok("apply_patch", json!({ "patch": patch }), Outcome::Error)
        .await;
    assert!(text.contains("nothing was changed"), "{text}");
    assert_eq!(place.get("a"), "one\n");
    assert_eq!(editor.held(&place, "a").unwrap(), "one\n");
    assert_eq!(
        editor.asked(),
        ["read a", "read gone", "write a", "write a"]
    );
}
