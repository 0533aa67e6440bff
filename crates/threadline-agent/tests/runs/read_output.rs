use serde_json::{Value, json};
use threadline_agent::limits::RESULT_BYTES;
use threadline_session::{
    Payload, SessionId,
    payload::{ApprovalPolicy, Outcome, ToolResult, plain_text},
};
use threadline_store::BlobId;

use crate::support::*;

/// Prints the numbers from 1000 to 40000, five digits and a line feed each from 10000 on.
const COMMAND: &str = "seq 1000 40000";

fn full() -> String {
    let lines: String = (1000..=40_000).map(|n| format!("{n}\n")).collect();
    lines + "[exit code 0]"
}

fn name() -> String {
    BlobId::of(full().as_bytes()).as_str()[..12].to_owned()
}

fn shell() -> Reply {
    Reply::Calls(vec![("c1", "shell", json!({ "command": COMMAND }))])
}

fn read(arguments: Value) -> Reply {
    Reply::Calls(vec![("c2", "read_output", arguments)])
}

async fn run(world: &World, session: Option<&SessionId>) -> SessionId {
    let input = threadline_agent::RunInput {
        approval_policy: Some(ApprovalPolicy::Never),
        ..task("go")
    };
    let run = start(&world.agents(), session, input).await;
    run.wait().await;
    run.session_id().clone()
}

async fn results(world: &World, id: &SessionId) -> Vec<ToolResult> {
    let payloads = world.payloads(id).await.into_iter();
    let results = payloads.filter_map(|payload| match payload {
        Payload::ToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

/// Runs the command and then reads with these arguments.
async fn read_after(arguments: Value) -> (Outcome, String) {
    let world = World::new([shell(), read(arguments), Reply::Text("done")]);
    let id = run(&world, None).await;
    let last = results(&world, &id).await.pop().unwrap();
    assert!(last.name == "read_output" && last.full.is_none());
    let text = plain_text(&last.content);
    assert!(text.len() <= RESULT_BYTES, "{}", text.len());
    (last.outcome, text)
}

async fn shown(mut arguments: Value) -> String {
    arguments["name"] = name().into();
    let (outcome, text) = read_after(arguments).await;
    assert_eq!(outcome, Outcome::Ok, "{text}");
    text
}

#[tokio::test]
async fn lines_are_read_by_number() {
    let text = shown(json!({ "offset": 20_000, "limit": 2 })).await;
    assert_eq!(
        text,
        " 20000\t20999\n 20001\t21000\n[lines 20000 to 20001 are shown and more follow; read on \
         with offset 20002]"
    );
    let text = shown(json!({ "offset": 39_001 })).await;
    assert_eq!(text, " 39001\t40000\n 39002\t[exit code 0]");
    // What does not fit is told, and reading on gets all of it.
    let text = shown(json!({ "limit": 1_000_000 })).await;
    assert!(text.ends_with("lines 1 to 2000 are shown and more follow; read on with offset 2001]"));
}

#[tokio::test]
async fn bytes_are_read_by_number() {
    let text = shown(json!({ "unit": "bytes", "offset": 6, "limit": 4 })).await;
    let all = full().len();
    assert_eq!(
        text,
        format!("1001\n[bytes 6 to 9 of {all} are shown; read on with offset 10]")
    );
    let text = shown(json!({ "unit": "bytes", "offset": all - 3 })).await;
    assert_eq!(text, "e 0]");
    let text = shown(json!({ "unit": "bytes" })).await;
    assert!(text.len() > RESULT_BYTES / 2 && full().starts_with(&text[..30_000]));
}

#[tokio::test]
async fn lines_are_found_by_pattern() {
    let text = shown(json!({ "pattern": "^3[0-9]33$" })).await;
    let wanted: Vec<String> = (0..10)
        .map(|n| 3033 + n * 100)
        .map(|n| format!("{:>6}\t{n}", n - 999))
        .collect();
    assert_eq!(text, wanted.join("\n"));
    let text = shown(json!({ "pattern": "EXIT", "ignore_case": true })).await;
    assert_eq!(text, " 39002\t[exit code 0]");
    let text = shown(json!({ "pattern": "^1", "offset": 5, "limit": 1 })).await;
    assert_eq!(
        text,
        "     5\t1004\n[1 lines are shown and more match; read on with offset 6]"
    );
    let text = shown(json!({ "pattern": "nowhere" })).await;
    assert_eq!(text, "[no line from 1 on matches]");
}

#[tokio::test]
async fn what_cannot_be_read_is_told() {
    let name = name();
    for (arguments, wanted) in [
        (json!({}), "`name` is missing"),
        (
            json!({ "name": "../../etc/passwd" }),
            "is no name of an output",
        ),
        (json!({ "name": &name[..11] }), "is no name of an output"),
        (
            json!({ "name": "0".repeat(12) }),
            "no result of this session has an output named",
        ),
        (
            json!({ "name": name, "offset": 39_003 }),
            "past the end: the output has 39002 lines",
        ),
        (
            json!({ "name": name, "offset": 10_000_000, "unit": "bytes" }),
            "past the end: the output has",
        ),
        (
            json!({ "name": name, "unit": "words" }),
            "must be `lines` or `bytes`",
        ),
        (
            json!({ "name": name, "unit": "bytes", "pattern": "x" }),
            "must be `lines` when",
        ),
        (
            json!({ "name": name, "pattern": "(" }),
            "no usable regular expression",
        ),
    ] {
        let (outcome, text) = read_after(arguments).await;
        assert_eq!(outcome, Outcome::Error, "{text}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[tokio::test]
async fn another_sessions_output_is_out_of_reach() {
    let world = World::new([shell(), Reply::Text("seen")]);
    let first = run(&world, None).await;
    let whole = BlobId::of(full().as_bytes());
    // Its name in a text of the second session opens nothing either.
    world.script.push([
        Reply::Calls(vec![(
            "c1",
            "shell",
            json!({ "command": format!("echo {whole}") }),
        )]),
        read(json!({ "name": whole.as_str() })),
        Reply::Text("no"),
    ]);
    let second = run(&world, None).await;
    let last = results(&world, &second).await.pop().unwrap();
    assert_eq!(last.outcome, Outcome::Error);
    assert!(plain_text(&last.content).contains("no result of this session"));
    // The first one still has it, after a restart and also when it is no longer in the history.
    world.script.push([
        read(json!({ "name": whole.as_str(), "limit": 1 })),
        Reply::Text("yes"),
    ]);
    run(&world, Some(&first)).await;
    let last = results(&world, &first).await.pop().unwrap();
    assert!(plain_text(&last.content).starts_with("     1\t1000\n"));
    let writer = world.store().load(&first).await.unwrap().writer;
    let head = threadline_session::payload::HistoryHead {
        seq: 2,
        reason: threadline_session::payload::HeadReason::Rewind,
    };
    writer
        .record(vec![Payload::HistoryHead(head)], Default::default())
        .await
        .unwrap();
    drop(writer);
    world.script.push([
        read(json!({ "name": name(), "offset": 2, "limit": 1 })),
        Reply::Text("yes"),
    ]);
    run(&world, Some(&first)).await;
    let last = results(&world, &first).await.pop().unwrap();
    assert!(plain_text(&last.content).starts_with("     2\t1001\n"));
}
