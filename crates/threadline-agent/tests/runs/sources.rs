//! Tools from a source: in force from the first step, told when something is missing, replayed
//! without the source.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_agent::{
    Agents, Approver, COMPACT_COMMAND, ReplayOptions, RunInput, replay,
    tools::{Effect, Ready, Tool, ToolContext, ToolOutput, ToolSource},
};
use threadline_session::{
    Payload, SessionId,
    payload::{ApprovalPolicy, EndReason, SandboxMode, ToolDefinition, UserSource, plain_text},
};
use tokio::sync::Notify;

use crate::support::*;

struct Remote(&'static str, Effect);

#[async_trait]
impl Tool for Remote {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.0.into(),
            description: "far away".into(),
            parameters: json!({ "type": "object", "properties": { "z": {}, "a": {} } }),
        }
    }

    fn effect(&self, _: &Value) -> Effect {
        self.1
    }

    async fn run(&self, _: &Value, _: &ToolContext) -> ToolOutput {
        ToolOutput::ok(format!("{} answered", self.0))
    }
}

#[derive(Debug, Default)]
struct Far {
    tools: Mutex<Vec<(&'static str, Effect)>>,
    told: Mutex<Option<String>>,
    /// The sessions that were asked for.
    asked: Mutex<Vec<SessionId>>,
    held: Arc<AtomicUsize>,
    /// When it is set, the source is never ready.
    hangs: Mutex<Option<Arc<Notify>>>,
}

struct Hold(Arc<AtomicUsize>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Far {
    fn new(tools: &[(&'static str, Effect)]) -> Arc<Self> {
        let far = Self::default();
        *far.tools.lock().unwrap() = tools.to_vec();
        Arc::new(far)
    }

    fn says(&self, told: Option<&str>) {
        *self.told.lock().unwrap() = told.map(str::to_owned);
    }
}

#[async_trait]
impl ToolSource for Far {
    fn serves(&self, _: &SessionId) -> bool {
        true
    }

    async fn ready(&self, session: &SessionId, _: &Path) -> Ready {
        self.asked.lock().unwrap().push(session.clone());
        let hangs = self.hangs.lock().unwrap().clone();
        if let Some(reached) = hangs {
            reached.notify_one();
            std::future::pending::<()>().await;
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        let tools = self.tools.lock().unwrap().clone();
        Ready {
            tools: tools
                .into_iter()
                .map(|(name, effect)| Arc::new(Remote(name, effect)) as Arc<dyn Tool>)
                .collect(),
            told: self.told.lock().unwrap().clone(),
            hold: Some(Box::new(Hold(self.held.clone()))),
        }
    }

    fn lacks(&self, _: &SessionId) -> Vec<String> {
        Vec::new()
    }

    async fn shutdown(&self) {}
}

fn agents(world: &World, far: &Arc<Far>) -> Agents {
    let mut config = world.config();
    config.source = Some(far.clone());
    config.defaults.approval_policy = ApprovalPolicy::Never;
    Agents::new(config)
}

const READS: (&str, Effect) = ("mcp__far__look", Effect::ReadOnly);
const ACTS: (&str, Effect) = ("mcp__far__act", Effect::Executes);

fn call(id: &'static str, name: &'static str) -> (&'static str, &'static str, Value) {
    (id, name, json!({}))
}

fn context_texts(payloads: &[Payload]) -> Vec<String> {
    let about = |payload: &Payload| match payload {
        Payload::UserMessage(message) if message.source == UserSource::Context => {
            Some(plain_text(&message.content)).filter(|text| text.starts_with("Servers:"))
        }
        _ => None,
    };
    payloads.iter().filter_map(about).collect()
}

#[tokio::test]
async fn a_turn_has_the_tools_of_its_source_and_lets_go_of_them_at_its_end() {
    let world = World::new([
        Reply::Calls(vec![call("c1", ACTS.0)]),
        Reply::Text("done"),
        Reply::Text("again"),
    ]);
    let far = Far::new(&[ACTS]);
    let agents = agents(&world, &far);
    let (run, outcome) = finish(&agents, None, "go").await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(far.held.load(Ordering::SeqCst), 0);
    let (_, _) = finish(&agents, Some(run.session_id()), "again").await;
    let requests = world.script.requests();
    let names: Vec<_> = requests[0].tools.iter().map(|tool| &tool.name).collect();
    assert!(names.iter().any(|name| *name == ACTS.0) && names.is_sorted());
    assert_eq!(requests[0].tools, requests[2].tools);
    let types = world.types(run.session_id()).await;
    let prompts = types.iter().filter(|kind| *kind == "system/prompt");
    assert_eq!(prompts.count(), 1, "{types:?}");
    let payloads = world.payloads(run.session_id()).await;
    assert!(payloads.iter().any(
        |p| matches!(p, Payload::ToolResult(r) if plain_text(&r.content) == "mcp__far__act answered")
    ));
}

#[tokio::test]
async fn what_is_missing_is_told_once_and_taken_back_when_it_is_there_again() {
    let world = World::new([]);
    let far = Far::new(&[]);
    let agents = agents(&world, &far);
    far.says(Some("`far` is missing."));
    let (run, _) = finish(&agents, None, "one").await;
    let id = run.session_id();
    finish(&agents, Some(id), "two").await;
    far.says(None);
    *far.tools.lock().unwrap() = vec![READS];
    finish(&agents, Some(id), "three").await;
    finish(&agents, Some(id), "four").await;
    let payloads = world.payloads(id).await;
    let texts = context_texts(&payloads);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(texts[0], "Servers: `far` is missing.");
    assert!(
        texts[1].contains("no tool server is missing"),
        "{}",
        texts[1]
    );
    let prompts = payloads
        .iter()
        .filter(|p| matches!(p, Payload::SystemPrompt(_)));
    assert_eq!(prompts.count(), 2);
}

#[tokio::test]
async fn a_run_is_cancelled_while_its_source_gets_ready() {
    let world = World::new([]);
    let far = Far::new(&[]);
    let reached = Arc::new(Notify::new());
    *far.hangs.lock().unwrap() = Some(reached.clone());
    let agents = agents(&world, &far);
    let run = start(&agents, None, task("go")).await;
    reached.notified().await;
    run.cancel();
    assert_eq!(run.wait().await.reason, EndReason::Cancelled);
    // The prompt was stored before.
    let types = world.types(run.session_id()).await;
    assert!(types.iter().any(|kind| kind == "user/message"), "{types:?}");
}

#[tokio::test]
async fn a_subagent_has_what_the_session_has_that_it_works_for() {
    let world = World::new([
        Reply::Calls(vec![("c1", "agent", json!({ "task": "look" }))]),
        Reply::Text("looked"),
        Reply::Text("done"),
    ]);
    let far = Far::new(&[READS]);
    let agents = agents(&world, &far);
    let (run, _) = finish(&agents, None, "go").await;
    let asked = far.asked.lock().unwrap().clone();
    assert_eq!(asked, [run.session_id().clone(), run.session_id().clone()]);
    assert_eq!(
        world.script.requests()[0].tools,
        world.script.requests()[1].tools
    );
}

#[tokio::test]
async fn a_compaction_asks_no_source() {
    let world = World::new([]);
    let far = Far::new(&[READS]);
    let agents = agents(&world, &far);
    let (run, outcome) = finish(&agents, None, COMPACT_COMMAND).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert!(far.asked.lock().unwrap().is_empty());
    assert_eq!(
        finish(&agents, Some(run.session_id()), "go").await.1.reason,
        EndReason::Completed
    );
}

async fn replays(world: &World, id: &SessionId, steps: u64) {
    let report = replay(&world.store(), id, ReplayOptions::default())
        .await
        .unwrap();
    assert!(report.identical, "{report:#?}");
    assert_eq!(
        (report.driven_steps, report.notes.as_slice()),
        (steps, [].as_slice())
    );
}

#[tokio::test]
async fn a_replay_needs_no_source_and_drives_every_step() {
    let world = World::new([
        Reply::Calls(vec![
            call("c1", READS.0),
            call("c2", READS.0),
            call("c3", ACTS.0),
        ]),
        Reply::Calls(vec![call("c4", ACTS.0), call("c5", ACTS.0)]),
        Reply::Text("done"),
    ]);
    let far = Far::new(&[READS, ACTS]);
    let (run, _) = finish(&agents(&world, &far), None, "go").await;
    replays(&world, run.session_id(), 3).await;
}

#[tokio::test]
async fn a_replay_knows_a_trusted_tool_that_was_not_asked_for() {
    let world = World::new([
        Reply::Calls(vec![call("c1", READS.0)]),
        Reply::Calls(vec![call("c2", ACTS.0)]),
        Reply::Text("done"),
    ]);
    let far = Far::new(&[READS, ACTS]);
    let mut config = world.config();
    config.source = Some(far);
    config.approver = Approver::Nobody;
    let agents = Agents::new(config);
    let input = RunInput {
        sandbox_mode: Some(SandboxMode::ReadOnly),
        ..task("go")
    };
    let run = start(&agents, None, input).await;
    // The second may do anything, so it is asked for, and nobody is there.
    assert_eq!(run.wait().await.reason, EndReason::Blocked);
    let report = replay(&world.store(), run.session_id(), ReplayOptions::default())
        .await
        .unwrap();
    assert!(report.identical, "{report:#?}");
}
