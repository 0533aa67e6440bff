//! What a grant of words covers, and which words are refused.

use serde_json::{Value, json};
use threadline_agent::{
    limits::{PREFIX_BYTES, PREFIX_WORDS},
    policy::{CommandPrefix, Effect, Grant, Granted, PrefixError, Verdict, judge, suggest},
};
use threadline_session::{
    Covers, SessionGrant,
    payload::{
        ApprovalPolicy::{self, Never, OnRequest, Strict},
        SandboxMode::{self, DangerFullAccess, ReadOnly, WorkspaceWrite},
    },
};

fn grants(prefixes: &[&str]) -> Vec<Grant> {
    prefixes
        .iter()
        .map(|prefix| Grant {
            id: (*prefix).to_owned(),
            covers: Granted::Commands(CommandPrefix::parse(prefix).unwrap()),
        })
        .collect()
}

fn verdict(policy: ApprovalPolicy, mode: SandboxMode, prefixes: &[&str], call: &Value) -> Verdict {
    let grants = grants(prefixes);
    judge(policy, mode, Effect::Executes, "shell", call, &grants)
}

fn covered(prefixes: &[&str], command: &str) -> bool {
    let call = json!({"command": command});
    match verdict(OnRequest, WorkspaceWrite, prefixes, &call) {
        Verdict::Granted { grant_id } => {
            assert!(prefixes.contains(&grant_id.as_str()), "{command}");
            true
        }
        Verdict::Ask { .. } => false,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn commands_that_begin_with_the_words_are_covered() {
    for command in [
        "cargo test",
        "  cargo   test  ",
        "cargo test --workspace",
        "cargo test -p threadline-agent --test runs -- --nocapture",
        "cargo test --features=a,b",
        "cargo test 'a name'",
        "cargo 'test'",
        "cargo test HEAD~1",
        "cargo test | tail -20",
        "cargo test && git status --short",
        "cargo test && cargo test --release",
        "ls && cargo test | grep failed",
        "cargo test; date",
        "cargo test || echo failed",
    ] {
        assert!(covered(&["cargo test"], command), "{command}");
    }
    // Several grants cover a list together.
    let both = ["cargo fmt", "cargo test"];
    assert!(covered(&both, "cargo fmt --all && cargo test"));
    assert!(!covered(&both[..1], "cargo fmt --all && cargo test"));
    assert!(covered(&["./gradlew test"], "./gradlew test --info"));
    assert!(covered(&["npm run lint"], "npm run lint -- --fix"));
}

/// Each would run something else if it were covered.
const ESCAPES: [&str; 74] = [
    "",
    " ",
    "cargo",
    "cargo tests",
    "cargo testx",
    "cargo run",
    "cargo -v test",
    "cargo +nightly test",
    "test cargo",
    "xcargo test",
    "Cargo test",
    "./cargo test",
    "/usr/bin/cargo test",
    "../cargo test",
    "bin/cargo test",
    "~/cargo test",
    "\"cargo test\"",
    "'cargo test' x",
    "cargo '' test",
    "cargo\ttest",
    "cargo\u{a0}test",
    "cargo\u{2003}test",
    "cargo\u{200b} test",
    "c\u{430}rgo test",
    "cargo te\u{455}t",
    "cargo test\u{202e}",
    "cargo\ntest",
    "cargo test\nrm -rf x",
    "cargo test\r\nrm -rf x",
    "cargo test\\\nx",
    "cargo test; rm -rf x",
    "cargo test;rm -rf x",
    "cargo test && rm -rf x",
    "cargo test || rm -rf x",
    "cargo test & rm -rf x",
    "cargo test &",
    "rm -rf x && cargo test",
    "cargo test | sh",
    "cargo test | tee x",
    "cargo test |& sh",
    "cargo test | xargs rm",
    "cargo test && cat /etc/passwd",
    "cargo test && cat .env",
    "cargo test && cat ../x",
    "cargo test && git -c core.pager=x log",
    "cargo test && git log --output=x",
    "cargo test && git log '--output=x'",
    "cargo test && find . -delete",
    "cargo test && sort -o a a",
    "cargo test $(x)",
    "cargo test `x`",
    "cargo test \"$(x)\"",
    "cargo test \"`x`\"",
    "cargo test $X",
    "cargo test ${X}",
    "cargo test <(x)",
    "cargo test > y",
    "cargo test >> y",
    "cargo test 2>y",
    "cargo test &> y",
    "cargo test < y",
    "cargo test <<< y",
    "cargo test *",
    "cargo test ?",
    "cargo test [a]",
    "cargo test {a,b}",
    "cargo test ~/x",
    "cargo test --target-dir=~/x",
    "cargo test a:~/x",
    "X=1 cargo test",
    "RUSTC_WRAPPER=./x cargo test",
    "env cargo test",
    "(cargo test)",
    "cargo() { rm x; }; cargo test",
];

#[test]
fn nothing_else_is_covered() {
    for command in ESCAPES {
        assert!(!covered(&["cargo test"], command), "{command:?}");
    }
    for (prefix, command) in [
        ("./build.sh", "cd evil && ./build.sh"),
        ("./build.sh", "./build.sh; ./other.sh"),
        ("./build.sh", "././build.sh"),
        ("python manage.py", "python -c x manage.py"),
        ("npm run lint", "npm run lintx"),
        ("npm run lint", "npm run"),
        ("make test", "make SHELL=./x test"),
        ("git add", "git -c alias.add=!x add"),
    ] {
        assert!(!covered(&[prefix], command), "{prefix}: {command}");
    }
    assert!(!covered(&[], "cargo test"));
}

#[test]
fn only_a_question_about_a_command_of_the_shell_is_answered() {
    let call = json!({"command": "cargo test"});
    let words = ["cargo test"];
    for (policy, mode, wanted) in [
        (Strict, ReadOnly, "granted"),
        (Strict, WorkspaceWrite, "granted"),
        (OnRequest, ReadOnly, "granted"),
        (OnRequest, WorkspaceWrite, "granted"),
        (Strict, DangerFullAccess, "granted"),
        (OnRequest, DangerFullAccess, "allow"),
        (Never, WorkspaceWrite, "allow"),
        (Never, ReadOnly, "deny"),
    ] {
        let found = match verdict(policy, mode, &words, &call) {
            Verdict::Granted { .. } => "granted",
            Verdict::Allow => "allow",
            Verdict::Deny { .. } => "deny",
            Verdict::Ask { .. } | Verdict::AskOutside { .. } => "ask",
        };
        assert_eq!(found, wanted, "{policy:?}, {mode:?}");
    }
    let grants = grants(&words);
    for (tool, effect) in [
        ("job_start", Effect::Executes),
        ("plugin", Effect::Executes),
        ("write", Effect::Writes),
    ] {
        let verdict = judge(Strict, WorkspaceWrite, effect, tool, &call, &grants);
        assert!(matches!(verdict, Verdict::Ask { .. }), "{tool}");
    }
}

#[test]
fn leaving_the_sandbox_is_asked_for_each_time_and_needs_a_reason() {
    let call = |command: &str| {
        json!({
            "command": command, "outside_sandbox": true,
            "reason": "commit\u{1b}[2J the\n\u{202e}work",
        })
    };
    for command in ["git commit -m x", "cargo test", "ls", "git status"] {
        let call = call(command);
        let mut all = grants(&["cargo test", "git commit"]);
        all.push(Grant {
            id: "same".into(),
            covers: Granted::Call {
                tool: "shell".into(),
                arguments: call.clone(),
            },
        });
        for policy in [Strict, OnRequest] {
            for mode in [ReadOnly, WorkspaceWrite] {
                let verdict = judge(policy, mode, Effect::Executes, "shell", &call, &all);
                let Verdict::AskOutside { reason } = verdict else {
                    panic!("{command}: {verdict:?}")
                };
                assert!(reason.contains("WITHOUT the sandbox"), "{reason}");
                assert!(
                    reason.contains("commit") && !reason.contains(['\u{1b}', '\n', '\u{202e}'])
                );
            }
        }
        for mode in [ReadOnly, WorkspaceWrite] {
            let verdict = judge(Never, mode, Effect::Executes, "shell", &call, &all);
            assert!(
                matches!(&verdict, Verdict::Deny { reason } if reason.contains("never asks")),
                "{verdict:?}"
            );
        }
    }
    for reason in [json!(null), json!(""), json!("  "), json!(7)] {
        let call = json!({"command": "ls", "outside_sandbox": true, "reason": reason});
        let verdict = verdict(OnRequest, WorkspaceWrite, &[], &call);
        assert!(
            matches!(&verdict, Verdict::Deny { reason } if reason.contains("`reason`")),
            "{verdict:?}"
        );
    }
    // There is nothing to leave; what is no boolean asks for nothing.
    let verdict_of = |mode, call| verdict(OnRequest, mode, &[], &call);
    assert_eq!(verdict_of(DangerFullAccess, call("make")), Verdict::Allow);
    for odd in [json!(false), json!("true"), json!(1), json!(null)] {
        let call = json!({"command": "make", "outside_sandbox": odd, "reason": "x"});
        assert!(matches!(
            verdict_of(WorkspaceWrite, call),
            Verdict::Ask { .. }
        ));
    }
}

#[test]
fn words_that_could_run_anything_are_refused() {
    for prefix in [
        "sh",
        "bash",
        "/bin/sh",
        "./sh",
        "zsh",
        "env",
        "env X",
        "sudo",
        "sudo make",
        "xargs",
        "xargs grep",
        "find",
        "find .",
        "python",
        "python3",
        "python3.12",
        "/usr/bin/python3",
        "perl",
        "perl5.36",
        "ruby",
        "node",
        "awk",
        "awk x",
        "gawk",
        "sed",
        "sed -n",
        "tar",
        "git",
        "git -c",
        "git config",
        "git -C x",
        "git --exec-path",
        "git push",
        "git rebase",
        "git submodule",
        "npm",
        "npx",
        "npm exec",
        "npm run",
        "npm run -s",
        "pnpm dlx",
        "yarn",
        "cargo",
        "cargo --config",
        "cargo +nightly",
        "make",
        "make -f",
        "make SHELL",
        "docker",
        "docker run",
        "docker run alpine",
        "docker exec",
        "podman run",
        "kubectl",
        "kubectl exec",
        "go",
        "go run",
        "uv",
        "uv run",
        "uv run sh",
        "uv run python",
        "poetry run bash",
        "bundle exec",
        "bundle exec sh",
        "nix run",
        "bash -c",
        "sh -c",
        "sh -s",
        "python -c",
        "python -m",
        "python -",
        "perl -e",
        "node -e",
        "node --eval",
        "eval",
        "exec",
        "command",
        "command ls",
        "builtin",
        "source",
        "source x",
        ".",
        ". x",
        "alias",
        "trap",
        "cd",
        "cd x",
        "export",
        "export X",
        "set",
        "time",
        "time ls",
        "timeout 5",
        "nohup",
        "nice",
        "watch",
        "ssh",
        "ssh host",
        "script",
        "strace",
        "busybox",
        "busybox ls",
        "parallel",
        "at",
        "crontab",
        "su",
        "doas",
        "chroot",
        "unshare",
        "flock",
        "setsid",
        "stdbuf",
        "taskset",
        "while",
        "if",
        "for",
        "vim",
        "less",
        "man",
        "threadline",
        "threadline run",
        "SH",
        "Bash",
        "ENV",
    ] {
        // `make SHELL` is a target as any other.
        if prefix == "make SHELL" {
            continue;
        }
        let error = CommandPrefix::parse(prefix).unwrap_err();
        assert!(
            matches!(
                error,
                PrefixError::TooWide { .. } | PrefixError::Anything { .. }
            ),
            "{prefix}: {error:?}"
        );
        assert!(error.to_string().contains('`'), "{error}");
    }
}

#[test]
fn words_that_are_no_plain_command_are_refused() {
    for prefix in ["", " ", "\t"] {
        assert!(matches!(
            CommandPrefix::parse(prefix),
            Err(PrefixError::Empty | PrefixError::NotPlain { .. })
        ));
    }
    for prefix in [
        "cargo test; ls",
        "cargo test && ls",
        "cargo | sh",
        "cargo test > x",
        "X=1 cargo test",
        "cargo $X",
        "cargo *",
        "cargo test &",
        "cargo\ttest",
        "cargo\ntest",
        "(cargo)",
        "-x",
        "'car go' test",
        "c\u{430}rgo test",
        "~/x",
        "! ls",
        "cargo 'te\u{202e}st'",
        "cargo \"",
    ] {
        let error = CommandPrefix::parse(prefix).unwrap_err();
        assert!(matches!(error, PrefixError::NotPlain { .. }), "{prefix}");
        assert!(!error.to_string().contains(['\u{202e}', '\n', '\t']));
    }
    let words = |words: &[&str]| {
        CommandPrefix::from_words(words.iter().map(|word| (*word).to_owned()).collect())
    };
    assert_eq!(words(&[]), Err(PrefixError::Empty));
    assert_eq!(words(&["", ""]), Err(PrefixError::Empty));
    for bad in [
        &["cargo test"][..],
        &["cargo", ""],
        &["cargo", " test"],
        &["cargo", "te\nst"],
        &["car;go", "test"],
        &["$(x)"],
        &["X=1", "cargo"],
    ] {
        assert!(
            matches!(words(bad), Err(PrefixError::NotPlain { .. })),
            "{bad:?}"
        );
    }
    let most = vec!["a"; PREFIX_WORDS].join(" ");
    assert!(CommandPrefix::parse(&most).is_ok());
    assert_eq!(
        CommandPrefix::parse(&format!("{most} a")),
        Err(PrefixError::TooLong)
    );
    let long = |bytes| CommandPrefix::from_words(vec!["a".repeat(bytes)]);
    assert!(long(PREFIX_BYTES).is_ok());
    assert_eq!(long(PREFIX_BYTES + 1), Err(PrefixError::TooLong));
}

#[test]
fn words_that_say_what_runs_are_taken() {
    for prefix in [
        "cargo test",
        "cargo nextest run",
        "npm test",
        "npm run build",
        "pytest",
        "make check",
        "git add",
        "git stash",
        "./build.sh",
        "./gradlew test",
        "python manage.py test",
        "python -m pytest",
        "node server.js",
        "bash build.sh",
        "go test",
        "go run main.go",
        "uv run pytest",
        "uv run python -m pytest",
        "mkdir",
        "rustfmt",
        "cargo test 'a b'",
        "docker compose up",
        "cargo build --features=x",
    ] {
        let parsed = CommandPrefix::parse(prefix);
        let parsed = parsed.unwrap_or_else(|error| panic!("{prefix}: {error}"));
        // What is shown reads as the same again.
        assert_eq!(parsed.to_string(), *prefix);
        assert_eq!(CommandPrefix::parse(&parsed.to_string()), Ok(parsed));
    }
}

#[test]
fn a_grant_of_a_log_that_nobody_may_be_given_covers_nothing() {
    let read = |words: &[&str]| {
        Grant::read(&SessionGrant {
            id: "g".into(),
            seq: 0,
            time: 0,
            by: "somebody".into(),
            covers: Covers::Commands {
                prefix: words.iter().map(|word| (*word).to_owned()).collect(),
            },
        })
    };
    assert!(read(&["cargo", "test"]).is_some());
    for words in [&["sh"][..], &["sh", "-c"], &[], &[""], &["cargo"], &["env"]] {
        assert!(read(words).is_none(), "{words:?}");
    }
}

#[test]
fn a_question_offers_the_words_of_what_builds_and_tests() {
    for (command, offered) in [
        ("cargo test --workspace", Some("cargo test")),
        ("cargo test 2>&1 | tail", None),
        ("cargo test | tail -5", Some("cargo test")),
        ("cargo test && cargo test --doc", Some("cargo test")),
        ("cargo fmt && cargo test", None),
        ("cargo publish", None),
        ("npm run build -- --x", Some("npm run build")),
        ("npm install", None),
        ("python3 -m pytest tests", Some("python3 -m pytest")),
        ("python3 x.py", None),
        ("uv run pytest -q", Some("uv run pytest")),
        ("uv run x.py", None),
        ("pytest tests", Some("pytest")),
        ("make test", Some("make test")),
        ("make deploy", None),
        ("rm -rf x", None),
        ("git commit -m x", None),
        ("curl x", None),
        ("ls", None),
        ("cargo test > x", None),
    ] {
        let found = suggest(command).map(|prefix| prefix.to_string());
        assert_eq!(found.as_deref(), offered, "{command}");
        if let Some(prefix) = found {
            assert!(covered(&[&prefix], command), "{command}");
        }
    }
}
