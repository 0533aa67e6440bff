//! A session of 100,000 events, replayed by the real program to a client that reads slowly.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_session::{
    Header, OsPath, Payload, RunId, SessionId,
    payload::{
        ApprovalPolicy, AssistantChunk, AssistantMessage, AssistantPart, ChunkKind, ChunkPart,
        ContentPart, EndReason, ModelRef, Outcome, OutputStream, RequestMark, SandboxMode, StepEnd,
        StepStart, StopReason, ToolOutput, ToolResult, ToolStart, TurnContext, TurnEnd, TurnStart,
        UserMessage, UserSource,
    },
};
use threadline_store::{AppendOptions, Durability, SessionStore, StoreOptions};

const EVENTS: u64 = 100_000;
/// Most memory that the agent may take, in MiB.
const MOST: u64 = 100;

fn program() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let built = target.parent().unwrap().join("debug/threadline");
    std::env::var_os("THREADLINE_BIN").map_or(built, PathBuf::from)
}

fn words(count: usize) -> String {
    "the quick brown fox jumps over the lazy dog and runs ".repeat(count)
}

/// One turn with a call and its output: 25 events.
fn turn(number: u64, cwd: &Path) -> Vec<Payload> {
    let cwd = OsPath::from(cwd.to_owned());
    let model = ModelRef {
        provider: "offline".into(),
        name: "demonstration".into(),
    };
    let step = |step: u64| {
        Payload::StepStart(StepStart {
            turn: number,
            step,
            request: RequestMark {
                fingerprint: "0".repeat(64),
                items: 1,
                bytes: 1,
            },
        })
    };
    let end = |step: u64| {
        Payload::StepEnd(StepEnd {
            turn: number,
            step,
            usage: None,
        })
    };
    let message = |step: u64, content: Vec<AssistantPart>, stop_reason| {
        Payload::AssistantMessage(AssistantMessage {
            turn: number,
            step,
            content,
            model: model.clone(),
            stop_reason,
            usage: None,
            opaque: Vec::new(),
            interrupted: false,
        })
    };
    let chunk = |step: u64, text: String| {
        Payload::AssistantChunk(AssistantChunk {
            turn: number,
            step,
            parts: vec![ChunkPart {
                index: 0,
                kind: ChunkKind::Text,
                delta: text,
            }],
        })
    };
    let (first, second) = (2 * number - 1, 2 * number);
    let call_id = format!("call_{number}");
    let text = |text: String| AssistantPart::Text { text };
    let call = AssistantPart::ToolCall {
        call_id: call_id.clone(),
        name: "shell".into(),
        arguments: json!({"command": "make test"}).to_string(),
    };
    let mut payloads = vec![
        Payload::TurnStart(TurnStart {
            turn: number,
            run_id: RunId::parse(format!("run-{number}")).unwrap(),
            context: TurnContext {
                provider: model.provider.clone(),
                model: model.name.clone(),
                approval_policy: ApprovalPolicy::Never,
                sandbox_mode: SandboxMode::WorkspaceWrite,
                cwd: cwd.clone(),
                temperature: None,
                max_steps: None,
                confined: false,
            },
        }),
        Payload::UserMessage(UserMessage {
            content: vec![ContentPart::text(words(4))],
            source: UserSource::User,
        }),
        step(first),
    ];
    payloads.extend((0..3).map(|_| chunk(first, words(1))));
    payloads.push(message(
        first,
        vec![text(words(3)), call],
        StopReason::ToolCalls,
    ));
    payloads.push(Payload::ToolStart(ToolStart {
        call_id: call_id.clone(),
        name: "shell".into(),
        cwd,
        grant_id: None,
        outside_sandbox: false,
    }));
    payloads.extend((0..8).map(|_| {
        Payload::ToolOutput(ToolOutput {
            call_id: call_id.clone(),
            stream: OutputStream::Stdout,
            delta: words(4),
        })
    }));
    payloads.push(Payload::ToolResult(ToolResult {
        call_id,
        name: "shell".into(),
        content: vec![ContentPart::text(words(40))],
        is_error: false,
        outcome: Outcome::Ok,
        full: None,
        synthetic: false,
    }));
    payloads.extend([end(first), step(second)]);
    payloads.extend((0..3).map(|_| chunk(second, words(1))));
    payloads.extend([
        message(second, vec![text(words(3))], StopReason::Stop),
        end(second),
        Payload::TurnEnd(TurnEnd {
            turn: number,
            reason: EndReason::Completed,
        }),
    ]);
    payloads
}

async fn write_session(root: &Path, cwd: &Path) -> SessionId {
    let options = StoreOptions {
        durability: Durability::Os,
        ..StoreOptions::default()
    };
    let backend = JsonlBackend::open(root.to_owned(), JsonlOptions::default()).unwrap();
    let store = SessionStore::new(Arc::new(backend), options);
    let id = SessionId::parse("run-1").unwrap();
    let header = Header::new(id.clone(), 1, OsPath::from(cwd.to_owned()));
    let writer = store.begin(header).unwrap();
    let mut number = 0;
    while writer.next_seq().await < EVENTS {
        number += 1;
        let payloads = turn(number, cwd);
        writer
            .record(payloads, AppendOptions::default())
            .await
            .unwrap();
    }
    id
}

/// Returns a line of what the kernel tells of a process, in KiB.
fn status(child: &Child, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "a measurement of the built program; the lane `acp` runs it"]
async fn a_long_session_is_replayed_in_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let id = write_session(&root, dir.path()).await;
    let mut child = Command::new(program())
        .args(["--provider", "offline", "--store"])
        .arg(&root)
        .arg("acp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let params = json!({"sessionId": id, "cwd": dir.path(), "mcpServers": []});
    let load = json!({"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": params});
    writeln!(input, "{load}").unwrap();
    let (mut updates, mut bytes, mut line) = (0_u64, 0, String::new());
    let begun = Instant::now();
    let mut read = Duration::ZERO;
    loop {
        line.clear();
        let before = Instant::now();
        bytes += output.read_line(&mut line).unwrap();
        read += before.elapsed();
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == 1 {
            assert!(message["error"].is_null(), "{message}");
            break;
        }
        updates += 1;
        // Slower than the agent by far: what it sends ahead, it must hold.
        if updates.is_multiple_of(200) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let peak = status(&child, "VmHWM:") / 1024;
    let waited = begun.elapsed();
    drop(input);
    assert!(child.wait().unwrap().success());
    println!(
        "acp load: {EVENTS} events, {updates} updates, {:.1} MB, peak RSS {peak} MiB, {:.1} s with \
         a slow reader, {:.1} s of them waited for the agent",
        bytes as f64 / 1e6,
        waited.as_secs_f64(),
        read.as_secs_f64(),
    );
    assert!(updates > 15_000, "{updates}");
    assert!(peak < MOST, "{peak} MiB");
}
