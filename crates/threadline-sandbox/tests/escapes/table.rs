//! The table.

use threadline_session::payload::SandboxMode;

use crate::world::{ESCAPED, SECRET, World, layers};

/// Whether the attempt has to succeed without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    /// It does, for everybody.
    Works,
    /// It depends on the user, the kernel's settings or the programs that are installed.
    Depends,
}
use Control::{Depends, Works};

type Row = (&'static str, Control, &'static str);

const WRITES: [Row; 31] = [
    ("make a file outside", Works, "echo x > ../outside/new"),
    ("replace a file outside", Works, "echo x > ../outside/file"),
    (
        "append to a file outside",
        Works,
        "echo x >> ../outside/file",
    ),
    ("write by an absolute path", Works, "echo x > \"$OUT/new\""),
    ("write to the home folder", Works, "echo x > ~/.bashrc"),
    ("tee", Works, "echo x | tee ../outside/file >/dev/null"),
    (
        "dd",
        Works,
        "dd if=/dev/zero of=../outside/file bs=1 count=1 2>&1",
    ),
    ("copy out", Works, "cp plain ../outside/new"),
    (
        "rename outside",
        Works,
        "mv ../outside/file ../outside/other",
    ),
    (
        "rename out",
        Works,
        "echo x > a; mv a ../outside/file; mv plain ../outside/new",
    ),
    ("rename in", Works, "mv ../outside/file stolen"),
    ("remove outside", Works, "rm -f ../outside/file"),
    ("remove a folder outside", Works, "rm -rf ../outside/folder"),
    ("make a folder outside", Works, "mkdir ../outside/made"),
    ("make a pipe outside", Works, "mkfifo ../outside/pipe"),
    ("make a link outside", Works, "ln -s /etc ../outside/link"),
    ("write through a link to a file", Works, "echo x > link-out"),
    (
        "write through a link to a folder",
        Works,
        "echo x > way-out/new",
    ),
    (
        "write through a new link",
        Works,
        "ln -s ../outside/file n; echo x > n; echo x > link-out",
    ),
    (
        "hard link from outside",
        Works,
        "ln ../outside/file h && echo x > h",
    ),
    ("hard link to outside", Works, "ln plain ../outside/h"),
    ("truncate", Works, "truncate -s 0 ../outside/file"),
    (
        "truncate by a handle",
        Works,
        "ATTEMPT=truncate-by-handle \"$SELF\" $HELPER",
    ),
    ("change a mode", Works, "chmod 777 ../outside/file"),
    (
        "change a mode by a handle",
        Works,
        "ATTEMPT=chmod-by-handle \"$SELF\" $HELPER",
    ),
    (
        "change a time",
        Works,
        "touch -d 2001-01-01 ../outside/file",
    ),
    ("edit in place", Works, "sed -i s/old/new/ ../outside/file"),
    (
        "open for reading and writing",
        Works,
        "exec 3<>../outside/file; echo x >&3",
    ),
    (
        "reopen a handle",
        Works,
        "exec 3<../outside/file; echo x > /proc/self/fd/3",
    ),
    (
        "write from a process that got away",
        Works,
        "setsid -w sh -c 'echo x > ../outside/new'",
    ),
    (
        "shared memory of the machine",
        Works,
        "echo x > /dev/shm/threadline-escape",
    ),
];

const AROUND: [Row; 12] = [
    (
        "the root of this process",
        Works,
        "echo x > \"/proc/self/root$OUT/new\"",
    ),
    (
        "the folder of this process",
        Works,
        "echo x > /proc/self/cwd/../outside/new",
    ),
    (
        "the root of another process",
        Works,
        "echo x > \"/proc/$VICTIM/root$OUT/new\"",
    ),
    (
        "unmount what covers",
        Depends,
        "umount .env; umount -l .env; cat .env",
    ),
    (
        "mount over",
        Depends,
        "mount --bind ../outside sub && echo x > sub/new",
    ),
    (
        "remount",
        Depends,
        "mount -o remount,rw,bind / && echo x > ../outside/new",
    ),
    (
        "own namespaces",
        Depends,
        "unshare -Urm sh -c 'mount -o remount,rw,bind /; umount .env; echo x > ../outside/new; cat .env'",
    ),
    (
        "the namespaces of another",
        Depends,
        "nsenter -t $VICTIM -m sh -c \"echo x > $OUT/new\"",
    ),
    (
        "another root",
        Depends,
        "chroot / sh -c \"echo x > $OUT/new\"",
    ),
    (
        "a device",
        Depends,
        "mknod d b 1 1 && echo ESCAPED; mknod c c 1 1 && echo ESCAPED",
    ),
    (
        "more privileges",
        Works,
        "grep -q 'NoNewPrivs:.0' /proc/self/status && echo ESCAPED",
    ),
    (
        "another user",
        Depends,
        "sudo -n sh -c \"echo x > $OUT/new\"; su -c \"echo x > $OUT/new\" </dev/null",
    ),
];

const STORE: [Row; 11] = [
    ("read the store", Works, "cat ../store/sessions/log"),
    (
        "read the store by an absolute path",
        Works,
        "cat \"$STORE/sessions/log\"",
    ),
    (
        "read the store through a link",
        Works,
        "cat way-to-store/sessions/log",
    ),
    (
        "copy the store",
        Works,
        "cp -r ../store copy; cat copy/sessions/log",
    ),
    (
        "find in the store",
        Works,
        "find .. -name log -exec cat {} +",
    ),
    ("search the store", Works, "grep -rs TOP ../store"),
    ("write the store", Works, "echo x >> ../store/sessions/log"),
    (
        "make a file in the store",
        Works,
        "echo x > ../store/sessions/new",
    ),
    ("rename the store", Works, "mv ../store ../gone"),
    ("link a log", Works, "ln ../store/sessions/log l && cat l"),
    (
        "read the store at another's root",
        Works,
        "cat \"/proc/$VICTIM/root$STORE/sessions/log\"",
    ),
];

const PROTECTED: [Row; 22] = [
    ("write a hook", Works, "echo x > .git/hooks/pre-commit"),
    ("write the settings of git", Works, "echo x >> .git/config"),
    (
        "set a setting of git",
        Works,
        "git config core.fsmonitor ./x",
    ),
    (
        "put another .git in its place",
        Works,
        "mv .git g; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    ),
    ("remove .git", Works, "rm -rf .git"),
    (
        "lead git elsewhere",
        Works,
        "echo ../plain > .git/commondir",
    ),
    (
        "link a hook",
        Works,
        "ln -s ../../plain .git/hooks/post-checkout",
    ),
    (
        "make hooks executable",
        Works,
        "chmod 755 .git/hooks/sample",
    ),
    (
        "write a hook of an inner repository",
        Works,
        "echo x > lib/.git/hooks/pre-commit",
    ),
    ("read an environment file", Works, "cat .env"),
    (
        "read an environment file further down",
        Works,
        "cat sub/.env.local",
    ),
    (
        "read what an environment file links to",
        Works,
        "cat real-secrets",
    ),
    ("write an environment file", Works, "echo x > .env"),
    ("remove an environment file", Works, "rm -f .env"),
    ("rename an environment file", Works, "mv .env e; cat e"),
    (
        "rename the folder of one",
        Works,
        "mv sub moved; cat moved/.env.local sub/.env.local",
    ),
    ("link an environment file", Works, "ln .env e; cat e"),
    ("pack an environment file", Works, "tar cf - .env"),
    ("read a key", Works, "cat sub/id_rsa"),
    ("read a certificate's key", Works, "cat server.pem"),
    (
        "read the person's keys",
        Works,
        "cat ~/.ssh/id_rsa ~/.aws/credentials",
    ),
    ("search for secrets", Works, "grep -rs TOP . ~"),
];

const PROCESSES: [Row; 7] = [
    (
        "end another process",
        Works,
        "kill -9 $VICTIM && echo ESCAPED",
    ),
    (
        "read another's environment",
        Works,
        "tr '\\0' '\\n' < /proc/$VICTIM/environ",
    ),
    (
        "open another's memory",
        Depends,
        "exec 3<>/proc/$VICTIM/mem && echo ESCAPED",
    ),
    ("trace", Works, "ATTEMPT=ptrace \"$SELF\" $HELPER"),
    (
        "trace another",
        Depends,
        "ATTEMPT=ptrace-victim \"$SELF\" $HELPER",
    ),
    ("copy memory", Works, "ATTEMPT=vm-read \"$SELF\" $HELPER"),
    (
        "limit another process",
        Works,
        "prlimit --pid $VICTIM --core=0:0 && echo ESCAPED",
    ),
];

const NETWORK: [Row; 13] = [
    (
        "connect from the shell",
        Works,
        "exec 3<>/dev/tcp/127.0.0.1/$TCP && echo ESCAPED",
    ),
    (
        "send from the shell",
        Works,
        "echo x > /dev/udp/127.0.0.1/$UDP && echo ESCAPED",
    ),
    ("connect", Works, "ATTEMPT=tcp \"$SELF\" $HELPER"),
    ("listen", Works, "ATTEMPT=listen \"$SELF\" $HELPER"),
    ("send", Works, "ATTEMPT=udp \"$SELF\" $HELPER"),
    (
        "connect to a service of the machine",
        Works,
        "ATTEMPT=unix \"$SELF\" $HELPER",
    ),
    (
        "offer a service",
        Works,
        "ATTEMPT=unix-listen \"$SELF\" $HELPER",
    ),
    (
        "make a datagram socket",
        Works,
        "ATTEMPT=unix-datagram \"$SELF\" $HELPER",
    ),
    (
        "make an abstract socket",
        Works,
        "ATTEMPT=abstract \"$SELF\" $HELPER",
    ),
    (
        "talk to the kernel",
        Works,
        "ATTEMPT=netlink \"$SELF\" $HELPER",
    ),
    (
        "make calls that no filter sees",
        Depends,
        "ATTEMPT=io-uring \"$SELF\" $HELPER",
    ),
    (
        "make a namespace",
        Depends,
        "ATTEMPT=user-namespace \"$SELF\" $HELPER",
    ),
    (
        "use keys of the kernel",
        Depends,
        "ATTEMPT=keyring \"$SELF\" $HELPER",
    ),
];

/// Pairs of commands, the first of which prepares the second.
const PREPARED: [(&str, &str); 9] = [
    ("mv sub node_modules", "cat node_modules/.env.local"),
    ("mv sub target", "cat target/.env.local"),
    ("chmod 000 sub", "chmod 700 sub; cat sub/.env.local"),
    ("chmod 600 sub", "chmod 700 sub; cat sub/.env.local"),
    (
        "mkdir j; cd j; seq 1 3000 | xargs touch",
        "cat .env sub/.env.local",
    ),
    (
        "seq 1 3000 | xargs touch",
        "cat .env; echo x > .git/hooks/new",
    ),
    (
        "mkdir target; mv sub lib target",
        "cat target/sub/.env.local; echo x > target/lib/.git/hooks/new",
    ),
    ("mv lib elsewhere", "echo x > elsewhere/.git/hooks/new"),
    (
        "ln -s sub .env.local; ln -s . .env.dot",
        "cat sub/.env.local .env",
    ),
];

/// What a row did, if it did anything.
fn harm(
    command: &str,
    bounds: Option<(SandboxMode, threadline_sandbox::Layers)>,
) -> Option<String> {
    let mut world = World::new();
    let before = world.guarded();
    let ran = world.run(command, bounds);
    let after = world.guarded();
    let _ = std::fs::remove_file("/dev/shm/threadline-escape");
    if ran.text.contains(SECRET) || ran.text.contains(ESCAPED) {
        return Some(format!("it said {:?}", ran.text));
    }
    if before != after {
        let changed: Vec<_> = after
            .iter()
            .filter(|(path, state)| before.get(*path) != Some(state))
            .chain(before.iter().filter(|(path, _)| !after.contains_key(*path)))
            .map(|(path, _)| path)
            .collect();
        return Some(format!("it changed {changed:?}"));
    }
    world
        .is_touched()
        .then(|| "it reached a listener or the other process".into())
}

fn refuse_all(rows: &[Row], modes: &[SandboxMode]) {
    let mut failures = Vec::new();
    for (what, control, command) in rows {
        if *control == Works && harm(command, None).is_none() {
            failures.push(format!("{what}: it does nothing even without a sandbox"));
        }
        for mode in modes {
            for layers in layers() {
                if let Some(harm) = harm(command, Some((*mode, layers))) {
                    failures.push(format!("{what} in {mode:?} with {layers:?}: {harm}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_command_cannot_prepare_the_next_one() {
    for (first, second) in PREPARED {
        for layers in layers() {
            let world = World::new();
            let bounds = Some((SandboxMode::WorkspaceWrite, layers));
            world.run(first, bounds);
            let text = world.run(second, bounds).text;
            assert!(
                !text.contains(SECRET),
                "{first}, then {second} with {layers:?}: {text}"
            );
            for hooks in [
                "w/.git/hooks",
                "w/lib/.git/hooks",
                "w/elsewhere/.git/hooks",
                "w/target/lib/.git/hooks",
            ] {
                let planted = world.at(hooks).join("new").exists();
                assert!(
                    !planted,
                    "{first}, then {second} with {layers:?} planted a hook"
                );
            }
        }
    }
}

#[test]
fn a_launcher_in_the_workspace_cannot_be_replaced() {
    for layers in layers() {
        let world = World::new();
        let own = world.at("w/target/launcher");
        std::fs::create_dir(world.at("w/target")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_threadline-sandbox"), &own).unwrap();
        let before = std::fs::read(&own).unwrap();
        let policy = world
            .policy(SandboxMode::WorkspaceWrite, layers)
            .to_json()
            .unwrap();
        for command in [
            "echo x > target/launcher",
            "cp plain n; mv n target/launcher",
            "rm -f target/launcher",
            "mv target t; mkdir target; cp plain target/launcher",
            "chmod 000 target/launcher",
        ] {
            let output = std::process::Command::new(&own)
                .args([
                    "__sandbox",
                    "--policy",
                    &policy,
                    "--",
                    "bash",
                    "-c",
                    command,
                ])
                .current_dir(world.at("w"))
                .output();
            output.unwrap();
            assert!(
                std::fs::read(&own).unwrap() == before,
                "{command} with {layers:?}"
            );
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&own.metadata().unwrap().permissions());
        assert_eq!(mode & 0o700, 0o700, "{layers:?}");
    }
}

const SANDBOXED: [SandboxMode; 2] = [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite];

#[test]
fn nothing_outside_is_written() {
    refuse_all(&WRITES, &SANDBOXED);
}

#[test]
fn nothing_leads_around_the_rules() {
    refuse_all(&AROUND, &SANDBOXED);
}

#[test]
fn the_store_is_out_of_reach_in_every_mode() {
    let modes = [
        SandboxMode::ReadOnly,
        SandboxMode::WorkspaceWrite,
        SandboxMode::DangerFullAccess,
    ];
    refuse_all(&STORE, &modes);
}

#[test]
fn protected_names_are_out_of_reach() {
    refuse_all(&PROTECTED, &SANDBOXED);
}

#[test]
fn other_processes_are_out_of_reach() {
    refuse_all(&PROCESSES, &SANDBOXED);
}

#[test]
fn the_network_is_out_of_reach() {
    refuse_all(&NETWORK, &SANDBOXED);
}
