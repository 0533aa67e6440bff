use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_agent::{
    Agents, Approver, Run, RunInput,
    limits::{JOB_FRESH_BYTES, JOBS},
    tools::{Effect, Tool, ToolContext, ToolOutput},
};
use threadline_session::{
    Payload, SessionId,
    payload::{ApprovalPolicy, EndReason, Outcome, ToolDefinition, ToolResult, plain_text},
};

use crate::support::*;

/// Waits until a file in the workspace has content.
struct Await;

#[async_trait]
impl Tool for Await {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "await".into(),
            description: "waits for a file".into(),
            parameters: json!({ "type": "object" }),
        }
    }

    fn effect(&self, _: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let path = ctx.cwd.join(arguments["file"].as_str().unwrap());
        wait_for("the file", || {
            std::fs::read_to_string(&path).is_ok_and(|text| !text.is_empty())
        })
        .await;
        ToolOutput::ok("there")
    }
}

async fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Writes its number into `pid`, then does nothing for long.
const LONG: &str = "echo up; echo $$ > pid; sleep 1000";

fn one(name: &'static str, arguments: Value) -> Reply {
    Reply::Calls(vec![("c", name, arguments)])
}

fn begin(command: &str) -> Reply {
    one("job_start", json!({ "command": command }))
}

fn status(id: &str) -> Reply {
    one("job_status", json!({ "id": id, "wait_ms": 60_000 }))
}

fn ready() -> Reply {
    one("await", json!({ "file": "pid" }))
}

fn agents(world: &World) -> Agents {
    let mut config = world.config();
    config.toolbox.register(Arc::new(Await)).unwrap();
    Agents::new(config)
}

async fn go(agents: &Agents, session: Option<&SessionId>) -> Run {
    let input = RunInput {
        approval_policy: Some(ApprovalPolicy::Never),
        ..task("go")
    };
    start(agents, session, input).await
}

async fn results(world: &World, run: &Run) -> Vec<ToolResult> {
    let payloads = world.payloads(run.session_id()).await.into_iter();
    let results = payloads.filter_map(|payload| match payload {
        Payload::ToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

fn text(result: &ToolResult) -> String {
    plain_text(&result.content)
}

async fn is_dead(world: &World) {
    let pid = std::fs::read_to_string(world.dir.path().join("pid")).unwrap();
    let proc = PathBuf::from("/proc").join(pid.trim());
    wait_for("the job is dead", || !proc.exists()).await;
}

#[tokio::test]
async fn a_job_is_started_looked_at_and_its_whole_output_kept() {
    let world = World::new([
        begin("seq 1000 40000"),
        status("job-1.1"),
        status("job-1.1"),
        begin("echo no; exit 3"),
        status("job-1.2"),
        Reply::Text("done"),
    ]);
    let run = go(&agents(&world), None).await;
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    let results = results(&world, &run).await;
    assert_eq!(
        text(&results[0]),
        "job `job-1.1` runs `seq 1000 40000`; look at it with job_status. It is ended when this \
         turn ends."
    );
    let shown = text(&results[1]);
    assert!(
        shown.starts_with("job `job-1.1` has ended:\n1000\n1001\n"),
        "{shown}"
    );
    assert!(results[1].full.is_some() && results[1].outcome == Outcome::Ok);
    assert_eq!(
        text(&results[2]),
        "job `job-1.1` has ended; an earlier call showed its output"
    );
    assert_eq!(
        text(&results[4]),
        "job `job-1.2` has ended:\nno\n[exit code 3]"
    );
    assert_eq!(results[4].outcome, Outcome::Error);
}

#[tokio::test]
async fn a_job_is_killed_when_the_model_says_so() {
    let world = World::new([
        begin(LONG),
        ready(),
        one("job_status", json!({ "id": "job-1.1" })),
        one("job_kill", json!({ "id": "job-1.1" })),
        one("job_kill", json!({ "id": "job-1.1" })),
        Reply::Text("done"),
    ]);
    let run = go(&agents(&world), None).await;
    run.wait().await;
    let results = results(&world, &run).await;
    assert!(
        text(&results[2]).starts_with("job `job-1.1` is running"),
        "{}",
        text(&results[2])
    );
    assert_eq!(
        text(&results[3]),
        "job `job-1.1` has ended:\nup\n[cancelled; its processes were ended]"
    );
    assert_eq!(results[3].outcome, Outcome::Ok);
    assert!(text(&results[4]).contains("an earlier call showed"));
    is_dead(&world).await;
}

#[tokio::test]
async fn a_job_ends_with_its_run_and_the_next_turn_is_told() {
    let world = World::new([begin(LONG), ready(), Reply::Text("done")]);
    let run = go(&agents(&world), None).await;
    assert_eq!(run.wait().await.reason, EndReason::Completed);
    is_dead(&world).await;
    world.script.push([
        one("job_status", json!({ "id": "job-1.1" })),
        one("job_kill", json!({ "id": "job-7.1" })),
        Reply::Text("done"),
    ]);
    // As after a restart.
    let next = go(&agents(&world), Some(run.session_id())).await;
    next.wait().await;
    let results = results(&world, &run).await;
    assert_eq!(results[2].outcome, Outcome::Unknown);
    assert!(
        text(&results[2]).contains("started in an earlier turn"),
        "{}",
        text(&results[2])
    );
    assert_eq!(
        text(&results[3]),
        "there is no job `job-7.1`; this turn has started none"
    );
}

#[tokio::test]
async fn a_job_ends_when_its_run_is_cancelled() {
    let world = World::new([begin(LONG), ready(), Reply::Hang("...")]);
    let run = go(&agents(&world), None).await;
    let mut stream = run.stream();
    until(&mut stream, "assistant/chunk").await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    is_dead(&world).await;
}

#[tokio::test]
async fn there_are_only_so_many_jobs_and_each_needs_an_approval() {
    let starts = |count| {
        let call = ("c", "job_start", json!({ "command": "sleep 1000" }));
        Reply::Calls(vec![call; count])
    };
    let world = World::new([starts(JOBS + 1), Reply::Text("done")]);
    let run = go(&agents(&world), None).await;
    run.wait().await;
    let results = results(&world, &run).await;
    assert!(results[JOBS - 1].outcome == Outcome::Ok);
    let refused = text(&results[JOBS]);
    assert!(refused.contains("there are 8 jobs already") && refused.contains("job-1.8"));

    let world = World::new([begin("ls")]);
    let mut config = world.config();
    config.approver = Approver::Nobody;
    let (_, outcome) = finish(&Agents::new(config), None, "go").await;
    assert_eq!(outcome.reason, EndReason::Blocked);
}

#[tokio::test]
async fn of_a_running_jobs_long_output_the_end_is_shown() {
    let command = "seq 1000 40000; echo $$ > pid; sleep 1000";
    let world = World::new([
        begin(command),
        ready(),
        one("job_status", json!({ "id": "job-1.1" })),
        one("job_status", json!({})),
        one("job_start", json!({ "command": " " })),
        one(
            "job_start",
            json!({ "command": "x", "timeout_ms": 90_000_000 }),
        ),
        Reply::Text("done"),
    ]);
    let run = go(&agents(&world), None).await;
    run.wait().await;
    let results = results(&world, &run).await;
    assert!(text(&results[2]).len() < JOB_FRESH_BYTES + 200);
    for (result, wanted) in results[3..].iter().zip([
        "argument `id` is missing",
        "argument `command` is empty",
        "from 1 to 86400000",
    ]) {
        assert!(text(result).contains(wanted), "{}", text(result));
    }
}
