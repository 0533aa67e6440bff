//! What commands can do.

use threadline_sandbox::Layers;
use threadline_session::payload::SandboxMode;

use crate::world::{World, layers};

fn works(world: &World, mode: SandboxMode, layers: Layers, command: &str) -> String {
    let ran = world.run(command, Some((mode, layers)));
    assert!(
        ran.ok,
        "{command:?} in {mode:?} with {layers:?}: {}",
        ran.text
    );
    ran.text
}

#[test]
fn reading_and_temporary_files_work_in_every_mode() {
    for mode in [
        SandboxMode::ReadOnly,
        SandboxMode::WorkspaceWrite,
        SandboxMode::DangerFullAccess,
    ] {
        for layers in layers() {
            let world = World::new();
            let text = works(&world, mode, layers, "ls -a; cat plain; cat plain | wc -l");
            assert!(text.contains("plain\n1\n"), "{text}");
            for command in [
                "git --version && git status --short",
                "git log -1 || true",
                "cat ../outside/file /etc/passwd > /dev/null",
                "f=$(mktemp) && echo x > \"$f\" && chmod 700 \"$TMPDIR\" || [ -s \"$f\" ]",
                "cat <(echo x) <<< y",
                "(sleep 0 & wait); trap 'exit 0' TERM; kill -TERM $$; exit 1",
                "mkfifo \"$TMPDIR/pipe\"; cat \"$TMPDIR/pipe\" & echo x > \"$TMPDIR/pipe\"; wait",
                "find . -name plain | xargs cat",
                "awk 'BEGIN { print 1 }' && sed -n 1p plain && sort plain && date",
                "head -c 16 /dev/urandom > /dev/null; echo x > /dev/null; echo x >&2",
                "cargo --version",
            ] {
                works(&world, mode, layers, command);
            }
        }
    }
}

#[test]
fn the_workspace_is_written_in_workspace_write() {
    for layers in layers() {
        let world = World::new();
        let run = |command: &str| works(&world, SandboxMode::WorkspaceWrite, layers, command);
        run(
            "echo new > plain && echo x > open/new && mkdir open/made && mv open/new open/made/moved",
        );
        assert_eq!(std::fs::read(world.at("w/plain")).unwrap(), b"new\n");
        assert!(world.at("w/open/made/moved").is_file());
        run("rm -r open/made && echo newer >> plain");
    }
}

#[test]
fn with_namespaces_new_entries_and_modes_work_beside_protected_names() {
    if !layers().contains(&Layers::Namespaces) {
        eprintln!("this system gives no namespaces to this user, so there is nothing to test");
        return;
    }
    let world = World::new();
    let run = |command: &str| {
        let mode = SandboxMode::WorkspaceWrite;
        works(&world, mode, Layers::Namespaces, command)
    };
    run(
        "cargo init -q --offline --vcs none --name made crate && cd crate && cargo build -q --offline && cargo run -q --offline",
    );
    run("mkdir -p target/debug && echo '#!/bin/sh' > run.sh && chmod +x run.sh && ./run.sh");
    run("touch -d 2001-01-01 run.sh && sed -i s/plain/other/ plain && mv plain renamed");
    run("echo x > sub/new && mv sub/new open/moved && cp open/moved sub/again && rm sub/again");
    run("echo x > /dev/shm/threadline-shared && cat \"$TMPDIR/threadline-shared\"");
    // A repository that a command makes is its own until the command ends.
    run("git init -q made && cd made && git status --short");
    let text = world.run(
        "echo x > made/.git/hooks/x",
        Some((SandboxMode::WorkspaceWrite, Layers::Namespaces)),
    );
    assert!(!text.ok, "{}", text.text);
}

#[test]
fn full_access_is_everything_but_the_store() {
    for layers in layers() {
        let world = World::new();
        let run = |command: &str| works(&world, SandboxMode::DangerFullAccess, layers, command);
        run("echo x > ../outside/file && chmod 600 ../outside/file && cat .env ~/.ssh/id_rsa");
        run("echo x > .git/hooks/made && exec 3<>/dev/tcp/127.0.0.1/$TCP");
        assert!(world.at("w/.git/hooks/made").is_file());
    }
}

#[test]
fn a_workspace_that_cannot_be_held_is_refused() {
    use std::process::Command;
    use threadline_sandbox::Policy;
    let world = World::new();
    let sandbox = crate::world::sandbox();
    for (workspace, problem) in [
        ("/", "root of the file system"),
        ("/proc", "belongs to the system"),
        ("w/.git", "git's own data"),
        ("store/sessions", "closed to tools in every sandbox mode"),
        ("w/plain", "choose another folder"),
        ("nowhere", "choose another folder"),
    ] {
        let policy = Policy::new(
            SandboxMode::WorkspaceWrite,
            &world.at(workspace),
            &world.at("temp"),
            &[world.at("store")],
            None,
            sandbox.layers(),
        );
        let line = sandbox.command_line(&policy, ["true"]).unwrap();
        let output = Command::new(&line[0]).args(&line[1..]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{workspace}: {said}");
        assert!(said.contains(problem), "{workspace}: {said}");
    }
}

#[test]
fn a_launcher_that_is_called_wrongly_runs_nothing() {
    use std::process::Command;
    let launcher = env!("CARGO_BIN_EXE_threadline-sandbox");
    for arguments in [
        vec![],
        vec!["__sandbox"],
        vec!["__sandbox", "--policy"],
        vec!["__sandbox", "--policy", "{}", "--", "echo", "ran"],
        vec!["__sandbox", "--policy", "nonsense", "--", "echo", "ran"],
        vec!["__sandbox", "echo", "ran"],
    ] {
        let output = Command::new(launcher).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("__sandbox --policy JSON"), "{said}");
    }
}
