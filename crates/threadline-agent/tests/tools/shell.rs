use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::json;
use threadline_agent::limits::{LIVE_BYTES, OUTPUT_BYTES};
use threadline_agent::tools::{Shell, Tool as _, ToolContext};
use threadline_sandbox::Passed;
use threadline_session::payload::{Outcome, OutputStream, SandboxMode};
use tokio::sync::mpsc;

use crate::support::{Place, until};

async fn ok(place: &Place, command: &str) -> String {
    place.ok("shell", json!({ "command": command })).await
}

#[tokio::test]
async fn output_and_exit_code_are_shown() {
    let place = Place::writable();
    assert_eq!(ok(&place, "echo hi").await, "hi\n[exit code 0]");
    assert_eq!(ok(&place, "true").await, "[no output]\n[exit code 0]");
    assert_eq!(ok(&place, "printf x").await, "x\n[exit code 0]");
    let cwd = format!("{}\n[exit code 0]", place.ctx.cwd.display());
    assert_eq!(ok(&place, "pwd -P").await, cwd);
    let text = place
        .not_ok(
            "shell",
            json!({"command": "echo no >&2; exit 3"}),
            Outcome::Error,
        )
        .await;
    assert_eq!(text, "no\n[exit code 3]");
    let text = place
        .not_ok("shell", json!({"command": "kill -9 $$"}), Outcome::Error)
        .await;
    assert!(text.ends_with("[exit code 137]"), "{text}");
    let text = place
        .not_ok("shell", json!({"command": "kill -9 0"}), Outcome::Error)
        .await;
    // The supervisor of the command is outside the sandbox and cannot be reached from inside.
    assert!(text.ends_with("[exit code 137]"), "{text}");
}

#[tokio::test]
async fn streams_are_kept_in_the_order_they_come() {
    let place = Place::writable();
    // Each waits for the other to have been seen, so the order is certain.
    let (tx, mut rx) = mpsc::channel(4);
    let mut ctx = place.ctx.clone();
    ctx.output = Some(tx);
    let command = "look() { until [ -e $1 ]; do sleep 0.01; done; }
        echo out; look 1; echo err >&2; look 2; echo end";
    let arguments = json!({ "command": command });
    let feeder = async {
        let mut seen = Vec::new();
        while let Some(piece) = rx.recv().await {
            seen.push(piece);
            place.put(&seen.len().to_string(), "");
        }
        seen
    };
    let run = async {
        let output = Shell.run(&arguments, &ctx).await;
        drop(ctx);
        output
    };
    let (output, seen) = tokio::join!(run, feeder);
    assert_eq!(output.text(), "out\nerr\nend\n[exit code 0]");
    let wanted = [
        (OutputStream::Stdout, "out\n"),
        (OutputStream::Stderr, "err\n"),
        (OutputStream::Stdout, "end\n"),
    ];
    assert_eq!(seen, wanted.map(|(stream, text)| (stream, text.to_owned())));
}

#[tokio::test]
async fn input_is_closed_and_there_is_no_terminal() {
    let place = Place::writable();
    assert_eq!(ok(&place, "cat; echo done").await, "done\n[exit code 0]");
    let command = "if : </dev/tty; then echo terminal; else echo none; fi 2>/dev/null";
    assert_eq!(ok(&place, command).await, "none\n[exit code 0]");
}

#[tokio::test]
async fn the_environment_is_an_allowlist_without_keys() {
    let mut place = Place::writable();
    place.ctx.env = [
        ("OPENAI_API_KEY", "sk"),
        ("FOO", "bar"),
        ("my_api_key", "k"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    let text = ok(&place, "env").await;
    assert!(
        text.contains("FOO=bar\n") && text.contains("TERM=dumb\n"),
        "{text}"
    );
    assert!(text.contains("PATH="), "{text}");
    assert!(!text.to_ascii_lowercase().contains("api_key"), "{text}");
    // Cargo sets this for every test, and it is on no list.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!text.contains("CARGO"), "{text}");
}

#[tokio::test]
async fn variables_that_are_passed_are_seen() {
    let mut place = Place::writable();
    place.ctx.passed = Passed::parse(["CARGO_MANIFEST_*"]).unwrap();
    let text = ok(&place, "env").await;
    let wanted = format!("CARGO_MANIFEST_DIR={}\n", env!("CARGO_MANIFEST_DIR"));
    assert!(text.contains(&wanted), "{text}");
    assert!(!text.contains("CARGO_PKG"), "{text}");
}

#[tokio::test]
async fn long_output_is_given_whole_up_to_the_limit_and_beyond_it_with_head_and_tail() {
    let place = Place::writable();
    for (bytes, cut) in [(3_000_000, false), (OUTPUT_BYTES, true)] {
        let command = format!("echo begin; head -c {bytes} /dev/zero | tr '\\0' x; echo; echo end");
        let text = ok(&place, &command).await;
        assert!(text.len() <= OUTPUT_BYTES, "{}", text.len());
        assert!(text.starts_with("begin\nx") && text.ends_with("x\nend\n[exit code 0]"));
        assert_eq!(text.contains("bytes of output left out here"), cut);
        if !cut {
            assert_eq!(text.len(), bytes + "begin\n\nend\n[exit code 0]".len());
        }
    }
}

#[tokio::test]
async fn characters_are_never_split_and_control_bytes_are_written_out() {
    let mut place = Place::writable();
    let (tx, mut rx) = mpsc::channel(1);
    place.ctx.output = Some(tx);
    place.put("wide", format!("x{}", "\u{1f600}".repeat(50_000)));
    let arguments = json!({"command": "cat wide; printf '\\0\\033[1m\\377'"});
    let live = tokio::spawn(async move {
        let mut all = String::new();
        while let Some((_, piece)) = rx.recv().await {
            all.push_str(&piece);
        }
        all
    });
    let text = place.ok("shell", arguments).await;
    drop(place);
    let live = live.await.unwrap();
    assert_eq!(
        live,
        format!("x{}\\x00\\x1b[1m\u{fffd}", "\u{1f600}".repeat(50_000))
    );
    assert!(text.ends_with("\\x00\\x1b[1m\u{fffd}\n[exit code 0]"));
    assert_eq!(text.matches('\u{fffd}').count(), 1);
}

#[tokio::test]
async fn live_output_is_bounded_and_a_lost_listener_is_no_failure() {
    let mut place = Place::writable();
    let (tx, mut rx) = mpsc::channel(1);
    place.ctx.output = Some(tx);
    let live = tokio::spawn(async move {
        let mut bytes = 0;
        let mut last = String::new();
        while let Some((_, piece)) = rx.recv().await {
            bytes += piece.len();
            last = piece;
        }
        (bytes, last)
    });
    ok(&place, "head -c 3000000 /dev/zero | tr '\\0' x").await;
    place.ctx.output = None;
    let (bytes, last) = live.await.unwrap();
    assert!(bytes <= LIVE_BYTES + 100);
    assert!(last.contains("more output is not shown live"), "{last}");
    let (tx, rx) = mpsc::channel(1);
    place.ctx.output = Some(tx);
    drop(rx);
    assert_eq!(ok(&place, "echo hi").await, "hi\n[exit code 0]");
}

#[tokio::test]
async fn a_listener_that_does_not_listen_cannot_hold_the_call() {
    let mut place = Place::writable();
    let (tx, _rx) = mpsc::channel(1);
    place.ctx.output = Some(tx);
    let arguments = json!({"command": "yes", "timeout_ms": 50});
    let text = place.not_ok("shell", arguments, Outcome::Timeout).await;
    assert!(
        text.ends_with("[took longer than 50 ms; its processes were ended]"),
        "{text}"
    );
}

/// Returns whether a process is alive; a dead one that nobody has collected is not.
fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    })
}

fn pids(dir: &Path) -> Vec<i32> {
    let read = |name| {
        std::fs::read_to_string(dir.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    ["p1", "p2", "p3", "p4", "p5"]
        .into_iter()
        .filter_map(read)
        .collect()
}

/// Starts a child, a deaf one, a deaf grandchild whose parent is gone, and one in a group of its
/// own, then waits for ever.
const FAMILY: &str = "
    put() { echo $2 >$1.new; mv $1.new $1; }
    sleep 1000 & put p1 $!
    bash -c 'trap \"\" TERM INT HUP; while :; do sleep 1000; done' & put p2 $!
    (bash -c 'trap \"\" TERM INT HUP; echo $$ >p3.new; mv p3.new p3; while :; do sleep 1000; done' &)
    set -m; sleep 1000 & put p4 $!; set +m
    put p5 $$
";

fn all_gone(what: &str, dir: &Path) {
    let pids = pids(dir);
    assert_eq!(pids.len(), 5, "{what}");
    until(what, || !pids.iter().any(|pid| alive(*pid)));
}

#[tokio::test]
async fn what_is_left_in_the_background_is_ended_with_the_command() {
    let place = Place::writable();
    let command = format!("{FAMILY} until [ -e p3 ]; do sleep 0.01; done; echo done");
    assert_eq!(ok(&place, &command).await, "done\n[exit code 0]");
    let left: Vec<i32> = pids(&place.ctx.cwd)
        .into_iter()
        .filter(|pid| alive(*pid))
        .collect();
    assert_eq!(left, [0; 0], "alive after the call");
}

#[tokio::test]
async fn a_process_that_got_away_is_ended_with_the_command() {
    let sandbox = threadline_sandbox::Sandbox::open(&crate::support::launcher()).unwrap();
    if sandbox.layers() != threadline_sandbox::Layers::Namespaces {
        eprintln!("this system gives no namespaces, and nothing else tells such a process apart");
        return;
    }
    let place = Place::writable();
    let command = "setsid sh -c 'trap \"\" TERM HUP; echo $$ >p.new; mv p.new p1; exec sleep 1000' \
        >&- 2>&- & until [ -e p1 ]; do sleep 0.01; done; echo done";
    assert_eq!(ok(&place, command).await, "done\n[exit code 0]");
    let got_away = pids(&place.ctx.cwd);
    assert_eq!(got_away.len(), 1);
    assert!(!alive(got_away[0]), "alive after the call");
}

#[tokio::test]
async fn a_command_that_closes_its_output_is_waited_for() {
    let place = Place::writable();
    let command = "exec >&- 2>&-; touch a; until [ -e b ]; do sleep 0.01; done; touch c";
    let begin = async {
        while !place.path("a").exists() {
            tokio::task::yield_now().await;
        }
        place.put("b", "");
    };
    let (text, ()) = tokio::join!(ok(&place, command), begin);
    assert_eq!(text, "[no output]\n[exit code 0]");
    assert!(place.path("c").exists());
}

#[tokio::test]
async fn a_timeout_ends_every_process() {
    let place = Place::writable();
    let command = format!("{FAMILY} echo begun; wait; wait");
    let arguments = json!({"command": command, "timeout_ms": 1500});
    let text = place.not_ok("shell", arguments, Outcome::Timeout).await;
    assert!(
        text.ends_with("[took longer than 1500 ms; its processes were ended]"),
        "{text}"
    );
    // On a busy machine not all of them have begun by then.
    let pids = pids(&place.ctx.cwd);
    until("dead after the timeout", || {
        !pids.iter().any(|pid| alive(*pid))
    });
}

#[tokio::test]
async fn a_cancel_ends_every_process_and_keeps_what_was_printed() {
    let mut place = Place::writable();
    let (tx, mut rx) = mpsc::channel(8);
    place.ctx.output = Some(tx);
    let cancel = place.ctx.cancel.clone();
    let dir = place.ctx.cwd.clone();
    let canceller = tokio::spawn(async move {
        rx.recv().await;
        cancel.cancel();
    });
    let command = format!("{FAMILY} until [ -e p3 ]; do sleep 0.01; done; echo begun; wait");
    let begun = Instant::now();
    let text = place
        .not_ok("shell", json!({ "command": command }), Outcome::Cancelled)
        .await;
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(text, "begun\n[cancelled; its processes were ended]");
    canceller.await.unwrap();
    all_gone("dead after the cancel", &dir);
}

#[tokio::test]
async fn dropping_the_call_ends_every_process() {
    let place = Place::writable();
    let command = format!("{FAMILY} wait; wait");
    let ctx = place.ctx.clone();
    let call = tokio::spawn(async move { Shell.run(&json!({ "command": command }), &ctx).await });
    while pids(&place.ctx.cwd).len() < 5 {
        assert!(!call.is_finished());
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.is_err());
    all_gone("dead after the drop", &place.ctx.cwd);
}

/// The agent that the next test kills: this test binary, run once more.
#[tokio::test]
#[ignore = "a helper process of the test below"]
async fn helper_agent() {
    let Some(dir) = std::env::var_os("THREADLINE_TEST_DIR") else {
        return;
    };
    let ctx = ToolContext::new(PathBuf::from(dir), SandboxMode::WorkspaceWrite);
    let command = format!("{FAMILY} while :; do sleep 1000 & wait; done");
    Shell.run(&json!({ "command": command }), &ctx).await;
}

#[test]
fn a_killed_agent_takes_every_process_with_it() {
    for signal in [Signal::KILL, Signal::TERM] {
        let place = Place::writable();
        let mut agent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shell::helper_agent", "--ignored", "--nocapture"])
            .env("THREADLINE_TEST_DIR", &place.ctx.cwd)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the family is there", || {
            assert!(
                agent.try_wait().unwrap().is_none(),
                "the agent ended by itself"
            );
            pids(&place.ctx.cwd).len() == 5
        });
        let family = pids(&place.ctx.cwd);
        assert!(family.iter().all(|pid| alive(*pid)));
        let pid = Pid::from_raw(i32::try_from(agent.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        agent.wait().unwrap();
        all_gone("dead with the agent", &place.ctx.cwd);
    }
}

#[test]
fn a_command_outlives_the_thread_that_asked_for_it() {
    let place = Place::writable();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (tx, mut rx) = mpsc::channel(1);
    let mut ctx = place.ctx.clone();
    ctx.output = Some(tx);
    // The future is polled first by a thread that ends, and then by others.
    let mut call = Box::pin(async move {
        let command = "echo begun; until [ -e go ]; do sleep 0.01; done; echo done";
        Shell.run(&json!({ "command": command }), &ctx).await
    });
    let handle = runtime.handle().clone();
    let call = std::thread::spawn(move || {
        handle.block_on(async {
            tokio::select! {
                output = &mut call => panic!("ended early: {output:?}"),
                piece = rx.recv() => assert_eq!(piece.unwrap().1, "begun\n"),
            }
        });
        call
    })
    .join()
    .unwrap();
    place.put("go", "");
    assert_eq!(runtime.block_on(call).text(), "begun\ndone\n[exit code 0]");
}

#[tokio::test]
async fn a_safe_command_cannot_follow_a_link_out() {
    let place = Place::writable();
    place.link("../outside/secret", "innocent");
    place.put(".env", "SECRET=1");
    place.link(".env", "plain");
    place.put("fine", "ok\n");
    for name in ["innocent", "plain"] {
        let arguments = json!({"command": format!("cat fine {name}")});
        let text = place.not_ok("shell", arguments, Outcome::Denied).await;
        assert!(text.contains(name), "{text}");
    }
    assert_eq!(ok(&place, "cat fine").await, "ok\n[exit code 0]");
    assert_eq!(
        ok(&place, "echo innocence").await,
        "innocence\n[exit code 0]"
    );
}

#[tokio::test]
async fn a_missing_working_directory_is_named() {
    let mut place = Place::writable();
    place.ctx.cwd = place.path("gone");
    let text = place
        .not_ok("shell", json!({"command": "pwd"}), Outcome::Error)
        .await;
    assert!(text.contains("gone` does not exist"), "{text}");
}

#[tokio::test]
async fn a_write_into_git_that_the_sandbox_refuses_tells_of_the_way_outside() {
    let place = Place::writable();
    let git = |command: &str| json!({ "command": format!("git {command}") });
    let mut free = place.ctx.clone();
    free.sandbox = SandboxMode::DangerFullAccess;
    let made = Shell.run(&git("init -q ."), &free).await;
    assert_eq!(made.outcome, Outcome::Ok, "{}", made.text());
    place.put("a.txt", "x");
    let text = place
        .not_ok("shell", git("add a.txt"), Outcome::Error)
        .await;
    assert!(text.contains("`outside_sandbox: true`"), "{text}");
    // Another refusal is none of git's.
    let touch = json!({"command": "touch ../outside/x"});
    let text = place.not_ok("shell", touch, Outcome::Error).await;
    assert!(
        text.contains("workspace_write") && !text.contains("outside_sandbox"),
        "{text}"
    );
    // The argument alone lifts nothing: whoever runs the tool decides.
    let arguments = json!({
        "command": "git add a.txt", "outside_sandbox": true, "reason": "to commit",
    });
    place
        .not_ok("shell", arguments.clone(), Outcome::Error)
        .await;
    let added = Shell.run(&arguments, &free).await;
    assert_eq!(added.outcome, Outcome::Ok, "{}", added.text());
}

#[tokio::test]
async fn parts_of_a_granted_command_that_only_look_keep_to_the_workspace() {
    let mut place = Place::writable();
    place.link("../outside/secret", "way-out");
    let command = json!({"command": "printf x && cat way-out"});
    // A person has seen this one.
    let text = place.ok("shell", command.clone()).await;
    assert!(text.contains("hidden"), "{text}");
    place.ctx.granted = true;
    let output = place.run("shell", command).await;
    assert_ne!(output.outcome, Outcome::Ok);
    assert!(!output.text().contains("hidden"), "{}", output.text());
    assert_eq!(ok(&place, "printf x | cat").await, "x\n[exit code 0]");
    // Nothing makes git run another program either.
    let asked = |text: String| text.contains("core.pager");
    let config = "printf '%s ' $GIT_CONFIG_KEY_2";
    assert!(!asked(ok(&place, config).await));
}
