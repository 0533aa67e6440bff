//! Kernels that lack something, played by a filter that the launcher inherits.

use std::collections::BTreeMap;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use threadline_sandbox::{Error, FAILED, Launcher, Layers, Sandbox};
use threadline_session::payload::SandboxMode;

use crate::world::World;

/// Runs something on a thread whose processes do not have a system call.
fn without<T: Send + 'static>(
    call: i64,
    errno: i32,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    let limited = move || {
        let filter = SeccompFilter::new(
            BTreeMap::from([(call, Vec::new())]),
            SeccompAction::Allow,
            SeccompAction::Errno(errno.unsigned_abs()),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program = BpfProgram::try_from(filter.unwrap()).unwrap();
        seccompiler::apply_filter(&program).unwrap();
        run()
    };
    std::thread::spawn(limited).join().unwrap()
}

/// Returns the launcher under a name of its own, so that nothing is known of it yet.
fn renamed(world: &World, name: &str) -> Launcher {
    let path = world.at(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_threadline-sandbox"), &path).unwrap();
    Launcher::new(path)
}

#[test]
fn without_landlock_no_command_runs_and_the_sentence_says_what_is_missing() {
    for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
        let world = World::new();
        let launcher = renamed(&world, "launcher");
        let open = move || Sandbox::open(&launcher).unwrap_err();
        let error = without(libc::SYS_landlock_create_ruleset, errno, open);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let text = error.to_string();
        for part in ["Landlock", "Linux 6.2 or later", "danger_full_access"] {
            assert!(text.contains(part), "{text}");
        }
        // Also when the launcher is told to go on as if it were there.
        for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
            for layers in [Layers::Namespaces, Layers::LandlockOnly] {
                let policy = world.policy(mode, layers);
                let sandbox = crate::world::sandbox();
                let line = sandbox.command_line(&policy, ["echo", "ran"]).unwrap();
                let run = move || Command::new(&line[0]).args(&line[1..]).output().unwrap();
                let output = without(libc::SYS_landlock_create_ruleset, errno, run);
                assert_eq!(output.status.code(), Some(i32::from(FAILED)));
                assert!(output.stdout.is_empty(), "{mode:?} {layers:?}");
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("Linux 6.2 or later"), "{said}");
            }
        }
    }
}

#[test]
fn without_seccomp_no_command_runs() {
    let world = World::new();
    let launcher = renamed(&world, "launcher");
    let open = move || Sandbox::open(&launcher).unwrap_err();
    let error = without(libc::SYS_seccomp, libc::ENOSYS, open);
    assert!(
        error.to_string().contains("seccomp is not there"),
        "{error}"
    );
}

#[test]
fn without_namespaces_landlock_holds_alone_and_is_never_more_than_was_asked_for() {
    let world = World::new();
    let launcher = renamed(&world, "launcher");
    let open = move || Sandbox::open(&launcher).unwrap();
    let sandbox = without(libc::SYS_unshare, libc::EPERM, open);
    assert_eq!(sandbox.layers(), Layers::LandlockOnly);
    // Who asks for namespaces gets them or nothing.
    let policy = world.policy(SandboxMode::ReadOnly, Layers::Namespaces);
    let line = sandbox.command_line(&policy, ["echo", "ran"]).unwrap();
    let run = move || Command::new(&line[0]).args(&line[1..]).output().unwrap();
    let output = without(libc::SYS_unshare, libc::EPERM, run);
    assert_eq!(output.status.code(), Some(i32::from(FAILED)));
    assert!(output.stdout.is_empty());
}
