//! A full disk: the run stops before the tool, the log stays valid, and work goes on later.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use threadline_strict_model::Reply;

use crate::support::{Strict, World};

/// A file system of 512 KiB, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it, which takes root; `None` where that is refused.
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }

    /// Takes all space that is left.
    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        for size in [4096, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn tool_then_done() -> [Reply; 2] {
    // Larger than the room that is left in the log's last block.
    let call = json!({"command": format!("touch made-by-tool # {}", "x".repeat(9_000))});
    [
        Reply::default()
            .gate("before")
            .and_call("call_1", "shell", call),
        Reply::text("Done."),
    ]
}

#[test]
fn a_full_disk_exits_7_before_the_tool_runs_and_work_goes_on_with_space() {
    let strict = Strict::new(tool_then_done());
    let mut world = World::new().with_model(&strict);
    let Some(disk) = SmallDisk::mount(&world.root().join("disk")) else {
        return limited_file_size();
    };
    world.env.insert(
        "THREADLINE_HOME".into(),
        disk.0.join("store").display().to_string(),
    );
    let mut running = world.start(&["run", "--json", "--approval", "never", "use the tool"]);
    let id = running.wait_type("run_started")["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    strict.wait_reached("before");
    disk.fill();
    strict.model.gate("before").open();
    let (status, lines, stderr) = running.finish();
    assert_eq!(status.code(), Some(7), "{stderr}");
    assert!(
        stderr.contains("the storage is full") && stderr.contains("make space"),
        "{stderr}"
    );
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "error");
    assert_eq!(last["code"], "storage_full");
    assert!(
        !world.work().join("made-by-tool").exists(),
        "the tool must not have run"
    );
    // Still full: reading works, the log is valid, and a new turn is refused. What of the closing
    // events fits into the log's last block may be there.
    world.call(&["verify", &id, "--requests"]).ok();
    world.call(&["show", &id]).ok().prints(&["use the tool"]);
    let before = world.log(&id);
    world
        .call(&["run", "--session", &id, "go on"])
        .exits(7)
        .says(&["full"]);
    assert!(world.log(&id).starts_with(&before));
    world.call(&["verify", &id, "--requests"]).ok();
    // With space it goes on where it stopped, without a gap.
    disk.free();
    let on = world.call(&["run", "--json", "--session", &id, "go on"]);
    on.ok();
    assert!(world.log(&id).starts_with(&before));
    world.call(&["verify", &id, "--requests"]).ok();
    let seqs: Vec<u64> = world
        .events(&id)
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    strict.model.assert_no_violations();
}

#[test]
fn a_limit_on_file_sizes_is_a_full_disk() {
    limited_file_size();
}

/// The same with a limit that the shell sets: writes over it fail with EFBIG.
fn limited_file_size() {
    let strict = Strict::new([Reply::text("Short."), Reply::text("x".repeat(60_000))]);
    let world = World::new().with_model(&strict);
    let first = world.call(&["run", "--json", "hello"]);
    let id = first.ok().lines()[0]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = world.log(&id);
    let blocks = before.len() / 1024 + 8;
    let script = format!("ulimit -f {blocks}; exec \"$@\"");
    let program = env!("CARGO_BIN_EXE_threadline");
    let output = Command::new("bash")
        .args([
            "-c",
            &script,
            "bash",
            program,
            "run",
            "--json",
            "--session",
            &id,
            "a lot",
        ])
        .env_clear()
        .envs(&world.env)
        .current_dir(world.work())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert!(stderr.contains("the storage is full"), "{stderr}");
    let stopped = world.log(&id);
    assert!(stopped.starts_with(&before));
    world.call(&["verify", &id, "--requests"]).ok();
    world.call(&["run", "--session", &id, "go on"]).ok();
    assert!(world.log(&id).starts_with(&stopped));
    world.call(&["verify", &id, "--requests"]).ok();
    strict.model.assert_no_violations();
}
