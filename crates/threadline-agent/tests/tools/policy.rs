use std::ffi::OsStr;

use serde_json::{Value, json};
use threadline_agent::policy::{
    Effect, Grant, Granted, Protected, Verdict, is_safe_shell, judge, narrow, protected_name,
    widens,
};
use threadline_session::payload::ApprovalPolicy::{Never, OnRequest, Strict};
use threadline_session::payload::SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
use threadline_session::payload::{ApprovalPolicy, SandboxMode};
use threadline_session::{Covers, SessionGrant};

const POLICIES: [ApprovalPolicy; 3] = [Strict, OnRequest, Never];
const MODES: [SandboxMode; 3] = [ReadOnly, WorkspaceWrite, DangerFullAccess];

/// What a cell of the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Allow,
    Ask,
    Deny,
}
use Cell::{Allow, Ask, Deny};

fn cell(verdict: &Verdict) -> Cell {
    match verdict {
        Verdict::Allow | Verdict::Granted { .. } => Allow,
        Verdict::Ask { reason } | Verdict::AskOutside { reason } | Verdict::Deny { reason } => {
            assert!(!reason.is_empty());
            if matches!(verdict, Verdict::Deny { .. }) {
                Deny
            } else {
                Ask
            }
        }
    }
}

/// A column: a call, and per mode its cells in the order of the policies.
type Column = (&'static str, Effect, &'static str, Value, [[Cell; 3]; 3]);

fn table() -> Vec<Column> {
    vec![
        (
            "reading",
            Effect::ReadOnly,
            "read",
            json!({"path": "a"}),
            [[Allow; 3], [Allow; 3], [Allow; 3]],
        ),
        (
            "writing",
            Effect::Writes,
            "write",
            json!({"path": "a", "content": ""}),
            [[Deny; 3], [Ask, Allow, Allow], [Ask, Allow, Allow]],
        ),
        (
            "a safe command",
            Effect::Executes,
            "shell",
            json!({"command": "git status --short"}),
            [
                [Ask, Allow, Allow],
                [Ask, Allow, Allow],
                [Ask, Allow, Allow],
            ],
        ),
        (
            "another command",
            Effect::Executes,
            "shell",
            json!({"command": "cargo test"}),
            [[Ask, Ask, Deny], [Ask, Ask, Allow], [Ask, Allow, Allow]],
        ),
        (
            "a command of another tool, however safe it looks",
            Effect::Executes,
            "plugin",
            json!({"command": "ls"}),
            [[Ask, Ask, Deny], [Ask, Ask, Allow], [Ask, Allow, Allow]],
        ),
        (
            "a shell call without a command",
            Effect::Executes,
            "shell",
            json!({}),
            [[Ask, Ask, Deny], [Ask, Ask, Allow], [Ask, Allow, Allow]],
        ),
    ]
}

#[test]
fn every_cell_of_the_table() {
    for (what, effect, tool, arguments, rows) in table() {
        for (mode, row) in MODES.into_iter().zip(rows) {
            for (policy, wanted) in POLICIES.into_iter().zip(row) {
                let verdict = judge(policy, mode, effect, tool, &arguments, &[]);
                assert_eq!(cell(&verdict), wanted, "{what}, {policy:?}, {mode:?}");
                // A grant answers a question and lifts no refusal.
                let grant = Grant {
                    id: "g".into(),
                    covers: Granted::Call {
                        tool: tool.into(),
                        arguments: arguments.clone(),
                    },
                };
                let granted = judge(policy, mode, effect, tool, &arguments, &[grant]);
                let has_command = tool != "shell" || arguments.get("command").is_some();
                let lifted = if wanted == Ask && has_command {
                    Allow
                } else {
                    wanted
                };
                assert_eq!(
                    cell(&granted),
                    lifted,
                    "granted {what}, {policy:?}, {mode:?}"
                );
            }
        }
    }
}

#[test]
fn the_question_for_a_command_in_read_only_names_the_mode() {
    for policy in [Strict, OnRequest] {
        let arguments = json!({"command": "make"});
        let verdict = judge(policy, ReadOnly, Effect::Executes, "shell", &arguments, &[]);
        let Verdict::Ask { reason } = verdict else {
            panic!("{verdict:?}")
        };
        assert!(reason.contains("the sandbox mode is read_only"), "{reason}");
    }
}

#[test]
fn a_grant_covers_the_same_call_only() {
    let grant = |tool: &str, arguments: &str| {
        Grant::read(&SessionGrant {
            id: "a".into(),
            seq: 0,
            time: 0,
            by: "me".into(),
            covers: Covers::Call {
                name: tool.into(),
                arguments: arguments.into(),
            },
        })
    };
    let shell = grant("shell", r#"{"command":"make","timeout_ms":5}"#).unwrap();
    assert!(shell.covers("shell", &json!({"command": "make"})));
    assert!(!shell.covers("shell", &json!({"command": "make "})));
    assert!(!shell.covers("shell", &json!({"command": "make; rm x"})));
    assert!(!shell.covers("shell", &json!({})));
    assert!(!shell.covers("write", &json!({"command": "make"})));
    let write = grant("write", r#"{"path":"./a//b","content":"x"}"#).unwrap();
    assert!(write.covers("write", &json!({"path": "a/b", "content": "other"})));
    assert!(!write.covers("write", &json!({"path": "a/../a/b", "content": "x"})));
    assert!(!write.covers("write", &json!({"path": "/a/b"})));
    assert!(!write.covers("edit", &json!({"path": "a/b"})));
    assert!(!write.covers("write", &json!({})));
    let other = grant("plugin", r#"{"n":1}"#).unwrap();
    assert!(other.covers("plugin", &json!({"n": 1})));
    assert!(!other.covers("plugin", &json!({"n": 2})));
    let empty = grant("shell", "{}").unwrap();
    assert!(!empty.covers("shell", &json!({})));
    assert!(grant("shell", "[").is_none());
}

#[test]
fn a_tool_of_a_server_is_judged_like_a_doubtful_command_and_granted_by_its_arguments() {
    let tool = "mcp__far__request";
    let arguments = json!({ "path": "/a", "method": "GET" });
    let judged = |policy, mode, grants: &[Grant]| {
        judge(policy, mode, Effect::Executes, tool, &arguments, grants)
    };
    use ApprovalPolicy::{Never, OnRequest, Strict};
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
    for (policy, mode) in [
        (Strict, ReadOnly),
        (OnRequest, ReadOnly),
        (Strict, WorkspaceWrite),
        (OnRequest, WorkspaceWrite),
        (Strict, DangerFullAccess),
    ] {
        let Verdict::Ask { reason } = judged(policy, mode, &[]) else {
            panic!("{policy:?} {mode:?} is not asked for");
        };
        assert!(reason.contains("runs outside of the sandbox"), "{reason}");
    }
    assert!(matches!(judged(Never, ReadOnly, &[]), Verdict::Deny { .. }));
    let grant = |arguments| Grant {
        id: "g".into(),
        covers: Granted::Call {
            tool: tool.into(),
            arguments,
        },
    };
    let other = grant(json!({ "path": "/a", "method": "DELETE" }));
    assert!(matches!(
        judged(Strict, ReadOnly, &[other]),
        Verdict::Ask { .. }
    ));
    let same = grant(arguments.clone());
    let grant_id = "g".into();
    let granted = Verdict::Granted { grant_id };
    assert_eq!(judged(Strict, ReadOnly, &[same]), granted);
}

#[test]
fn widening_is_told_in_both_respects() {
    for (a, from_policy) in POLICIES.into_iter().enumerate() {
        for (b, from_mode) in MODES.into_iter().enumerate() {
            for (c, to_policy) in POLICIES.into_iter().enumerate() {
                for (d, to_mode) in MODES.into_iter().enumerate() {
                    let (from, to) = ((from_policy, from_mode), (to_policy, to_mode));
                    assert_eq!(widens(from, to), c > a || d > b, "{from:?} {to:?}");
                    let narrowed = narrow(to, from);
                    assert!(!widens(from, narrowed) && !widens(to, narrowed));
                    assert_eq!(narrowed, (POLICIES[a.min(c)], MODES[b.min(d)]));
                }
            }
        }
    }
}

#[test]
fn safe_commands() {
    for command in [
        "ls",
        "ls -la src",
        "  ls   -1 ",
        "pwd",
        "pwd -P",
        "cat Cargo.toml src/lib.rs",
        "cat -n .env.example",
        "head -20 a.txt",
        "head -n 20 a.txt",
        "tail -n5 a.txt",
        "wc -l a b",
        "echo hello, world",
        "date",
        "date -u +%Y-%m-%d",
        "git status",
        "git status --short --branch",
        "git log --oneline -20",
        "git log -n 5 --stat HEAD~3",
        "git diff",
        "git diff --cached --stat -- src/lib.rs",
        "git diff HEAD^ main:src/lib.rs",
        "cat na\u{ef}ve.txt",
        "cat 'a b' \"c d\"",
        "cat 'it costs $5 & more'",
        "c'a't a",
        "git status --short && git diff --stat",
        "git log --oneline -5 | head -3",
        "ls; pwd; date",
        "ls || true",
        "cat a | sort -u | uniq -c | wc -l",
        "grep -n 'fn .*(self' src/lib.rs",
        "grep -A3 needle a.txt",
        "find . -maxdepth 2 -type f -name '*.rs'",
        "find src -not -path 'target/*'",
        "stat -L a",
        "echo '; rm a'",
    ] {
        assert!(is_safe_shell(command), "{command}");
    }
}

#[test]
fn commands_that_are_not_known_to_be_safe() {
    for command in [
        "",
        " ",
        "rm a",
        "/bin/ls",
        "./ls",
        "LS",
        "sh -c ls",
        "sudo ls",
        "env",
        "X=1 ls",
        "PATH=. ls",
        "ls; rm a",
        "ls && rm a",
        "ls || rm a",
        "ls | sh",
        "ls & rm a",
        "ls\nrm a",
        "ls\rrm a",
        "ls\trm",
        "ls > a",
        "cat < a",
        "cat <<x",
        "echo $(rm a)",
        "echo `rm a`",
        "echo $HOME",
        "echo ${HOME}",
        "cat *",
        "cat .e?v",
        "cat .[e]nv",
        "cat .{env,git}",
        "cat \\.env",
        "ls !1",
        "ls # x",
        "(ls)",
        "{ ls }",
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat ~root",
        "cat ../x",
        "cat a/../../x",
        "ls ..",
        "cat .env",
        "cat sub/.env.local",
        "cat .ENV",
        "cat .envrc",
        "ls .git",
        "cat .git/config",
        "cat -",
        "cat --files x",
        "wc --files0-from x",
        "tail -f a",
        "tail -F a",
        "tail -n 5 -f a",
        "ls --color",
        "date -s x",
        "date -f a",
        "date -r a",
        "date 0101",
        "pwd a",
        "git",
        "git -c core.pager=x log",
        "git -C x status",
        "git --git-dir x status",
        "git commit",
        "git push",
        "git branch -D x",
        "git show",
        "git config -l",
        "git diff --output x",
        "git diff --output=x",
        "git diff -o x",
        "git log --ext-diff",
        "git diff --textconv",
        "git diff --no-index a b",
        "git diff -Ox",
        "git diff HEAD:.env",
        "git diff HEAD:/x",
        "git diff -- .git/config",
        "git diff -- ../x",
        "git log --format=%H",
        "git log --output-indicator-new=x",
        "git status --help",
        "ls\u{a0}-l",
        "ls \u{202e}x",
        // Programs that run, write or delete as an option.
        "find . -exec rm {} +",
        "find . -execdir rm a",
        "find . -ok rm a",
        "find . -okdir rm a",
        "find . -delete",
        "find . -fprint x",
        "find . -fprintf x y",
        "find . -fls x",
        "find . '-delete'",
        "find . -files0-from x",
        "find /etc -name passwd",
        "find .. -name x",
        "find .git -name config",
        "sort -o a a",
        "sort --output a a",
        "sort -T x a",
        "sort --compress-program sh a",
        "uniq a b",
        "sed -i s/a/b/ a",
        "sed -n 'w x' a",
        "sed '1e rm a' a",
        "awk 'BEGIN { system(\"rm a\") }'",
        "tee a",
        "echo x | tee a",
        "ls | xargs rm",
        "env ls",
        "env -S 'rm a'",
        "rg --pre sh x",
        "rg x",
        "grep -r x .",
        "grep -R x .",
        "grep -f .env x",
        "grep x .env",
        "tar --to-command sh -xf a.tar",
        "tar -xf a.tar",
        "less a",
        "less '+!rm a' a",
        "more a",
        "man -P sh ls",
        "man ls",
        "vim -c ':!rm a'",
        "git --exec-path=. status",
        "git -p log",
        "git diff '--output=x'",
        "git log '--ext-diff'",
        "git grep -O x",
        "git status -c core.fsmonitor=./x",
        "git log --open-files-in-pager",
        "command ls",
        "exec ls",
        "eval ls",
        "builtin echo x",
        "source a",
        ". a",
        "time ls",
        "! ls",
        "if ls",
        "nohup ls",
        "timeout 5 ls",
        "watch ls",
        "nice ls",
        "sudo -n ls",
        "python3 -c 'print(1)'",
        // Chains of which one part is not safe.
        "ls && cat .env",
        "ls; cat /etc/passwd",
        "ls | grep x ../y",
        "pwd | sh",
        "ls | bash -s",
        "cat a; rm b; ls",
        "ls |& cat",
        "ls &",
        "ls ;; ls",
        "ls &&",
        "ls |",
        "| ls",
        "; ls",
        "&& ls",
        "ls && && ls",
        "ls ||| ls",
        "ls ; ; ls",
        // Redirections, here-documents and substitutions.
        "ls 2>a",
        "ls &>a",
        "ls >>a",
        "ls>|a",
        "cat <<< x",
        "cat <(rm a)",
        "ls >(tee a)",
        "echo \"$(rm a)\"",
        "echo \"`rm a`\"",
        "echo \"$HOME\"",
        "echo $'\\x41'",
        "echo $((1))",
        "echo \"a\\\"; rm a\"",
        "echo 'a'\\''; rm a'",
        "ls\\\nrm a",
        // Assignments and aliases.
        "LD_PRELOAD=./x.so ls",
        "GIT_PAGER=sh git log",
        "'X=1' ls",
        "alias ls=rm",
        "ls() { rm a; }",
        // Quotes that hide a protected or outer path, or are not closed.
        "cat '.env'",
        "cat .e'n'v",
        "cat \".ENV\"",
        "cat '/etc/passwd'",
        "cat '../x'",
        "cat .'.'/x",
        "cat '~/x'",
        "cat 'a",
        "cat \"a",
        "'rm' a",
        "r'm' a",
        "''",
        // Keys.
        "cat id_rsa",
        "cat server.pem",
        "cat .ssh/config",
        "cat sub/.aws/credentials",
        "git diff HEAD:deploy/id_ed25519",
        // Expansion outside quotes, and letters that only look like others.
        "ls *",
        "ls a?",
        "ls [a]",
        "cat {a,b}",
        "\u{441}at a",
        "l\u{455} -l",
        "cat \u{2e}\u{200b}env",
        "cat 'a\u{202e}b'",
        "cat 'a\u{0}b'",
        "cat '\u{1b}[2J'",
        "cat 'a\nb'",
    ] {
        assert!(!is_safe_shell(command), "{command:?}");
    }
}

#[test]
fn protected_names() {
    for (name, wanted) in [
        (".git", Some(Protected::Git)),
        (".Git", Some(Protected::Git)),
        (".gitignore", None),
        (".github", None),
        ("git", None),
        (".env", Some(Protected::Environment)),
        (".env.local", Some(Protected::Environment)),
        (".env.example.local", Some(Protected::Environment)),
        (".envrc", Some(Protected::Environment)),
        (".Env", Some(Protected::Environment)),
        (".env.example", None),
        (".env.local.sample", None),
        (".env.template", None),
        ("env", None),
        ("prod.env", None),
        (".ssh", Some(Protected::Key)),
        (".AWS", Some(Protected::Key)),
        (".gnupg", Some(Protected::Key)),
        (".netrc", Some(Protected::Key)),
        ("id_rsa", Some(Protected::Key)),
        ("id_rsa.pub", None),
        ("server.PEM", Some(Protected::Key)),
        ("tls.key", Some(Protected::Key)),
        ("keyboard", None),
        ("pem", None),
    ] {
        assert_eq!(protected_name(OsStr::new(name)), wanted, "{name}");
    }
}
