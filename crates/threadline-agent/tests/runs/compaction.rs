//! Histories far longer than the model takes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{
    Agents, AgentsConfig, COMPACT_COMMAND, CompactionOptions, Models,
    tools::{Effect, Tool, ToolContext, ToolOutput, Toolbox},
};
use threadline_model::{Completion, ModelError, ModelEvent, ModelStream, Provider};
use threadline_session::{
    HistoryItem, Payload, Request, SessionId,
    payload::{
        AssistantPart, CompactionSummary, ContentPart, EndReason, StopReason, ToolDefinition,
        Usage, plain_text,
    },
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};

use crate::support::finish;

const LIMIT: u64 = 8_000;

/// How the model with a small window answers when it is asked for a summary.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    /// With a short text.
    Good,
    /// With nothing.
    Silent,
}

/// A model that refuses what is over its limit, calls a tool as often as it is told to, and then
/// repeats the last message of the person, as far as it can still see it.
#[derive(Clone)]
struct Narrow {
    memory: Memory,
    /// Tokens that it says it takes; the agent may have been told otherwise.
    limit: u64,
    asked: Arc<Mutex<Vec<(Request, u64)>>>,
}

impl Narrow {
    fn new(memory: Memory, limit: u64) -> Self {
        Self {
            memory,
            limit,
            asked: Arc::default(),
        }
    }

    fn answer(&self, request: &Request) -> Vec<AssistantPart> {
        let text = |text: String| vec![AssistantPart::Text { text }];
        if request.tools.is_empty() {
            return match self.memory {
                Memory::Good => text("Task: go on. State: much was done.".into()),
                Memory::Silent => Vec::new(),
            };
        }
        let said = |item: &HistoryItem| match item {
            HistoryItem::User { content } => Some(plain_text(content)),
            _ => None,
        };
        let is_task = |text: &String| text.starts_with("Do ");
        let task = request.items.iter().rev().filter_map(said).find(is_task);
        let Some(task) = task else {
            return text("I cannot see a task.".into());
        };
        let wanted: usize = task.split(' ').nth(1).unwrap().parse().unwrap();
        let asked = self.asked.lock().unwrap();
        let done = asked
            .iter()
            .rev()
            .filter(|(request, _)| !request.tools.is_empty())
            .take_while(|(request, _)| {
                let last = request.items.iter().rev().filter_map(said).find(is_task);
                last.as_ref() == Some(&task)
            })
            .count();
        if done <= wanted {
            let call = |n: usize| AssistantPart::ToolCall {
                call_id: format!("call-{done}-{n}"),
                name: "much".into(),
                arguments: "{}".into(),
            };
            let at_once = if task.contains("two at once") { 2 } else { 1 };
            return (0..at_once).map(call).collect();
        }
        text(format!("You said: {task}"))
    }
}

impl Provider for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    fn body(&self, request: &Request) -> Value {
        json!({ "items": request.items.len() })
    }

    fn stream(&self, request: Request) -> ModelStream {
        let tokens = serde_json::to_vec(&request).unwrap().len() as u64 / 4;
        if tokens > self.limit {
            let message = format!("{tokens} tokens are too many");
            return stream::iter([Err(ModelError::ContextLength { message })]).boxed();
        }
        self.asked.lock().unwrap().push((request.clone(), tokens));
        let content = self.answer(&request);
        let calls = content
            .iter()
            .any(|part| matches!(part, AssistantPart::ToolCall { .. }));
        let done = Completion {
            content,
            stop_reason: if calls {
                StopReason::ToolCalls
            } else {
                StopReason::Stop
            },
            usage: Some(Usage {
                input_tokens: tokens,
                output_tokens: 10,
                ..Usage::default()
            }),
            opaque: Vec::new(),
            model: "narrow-1".into(),
        };
        stream::iter([Ok(ModelEvent::Done(done))]).boxed()
    }
}

/// A tool whose results are long.
struct Much;

#[async_trait]
impl Tool for Much {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "much".into(),
            description: "says much".into(),
            parameters: json!({ "type": "object" }),
        }
    }

    fn effect(&self, _: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, _: &Value, _: &ToolContext) -> ToolOutput {
        ToolOutput::ok("much was found. ".repeat(300))
    }
}

struct World {
    store: SessionStore,
    model: Narrow,
    agents: Agents,
    _dir: tempfile::TempDir,
}

impl World {
    /// `told` is what the agent believes that the model takes.
    fn new(model: Narrow, told: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let backend = Arc::new(MemoryBackend::new());
        let store = SessionStore::new(backend, StoreOptions::default());
        let models = Models::new(Arc::new(model.clone()), "m-1");
        let mut config = AgentsConfig::new(Some(store.clone()), models, dir.path().to_owned());
        config.toolbox = Toolbox::new();
        config.toolbox.register(Arc::new(Much)).unwrap();
        // The model of these tests makes the same call again and again.
        config.limits.repeated_steps = None;
        config.compaction = CompactionOptions {
            context_tokens: told,
            ..CompactionOptions::default()
        };
        Self {
            store,
            model,
            agents: Agents::new(config),
            _dir: dir,
        }
    }

    async fn compactions(&self, id: &SessionId) -> Vec<(u64, CompactionSummary)> {
        let mut found = Vec::new();
        self.store
            .each_event(id, |line| {
                if let Payload::CompactionSummary(summary) = line.event.payload().unwrap() {
                    found.push((line.event.seq, summary));
                }
                true
            })
            .await
            .unwrap();
        found
    }

    async fn sound(&self, id: &SessionId) {
        assert_eq!(self.store.unequal_requests(id).await.unwrap(), Vec::new());
        assert!(self.store.verify(id).await.unwrap().ok);
    }

    fn sent(&self) -> u64 {
        let asked = self.model.asked.lock().unwrap();
        asked.iter().map(|(_, tokens)| *tokens).max().unwrap()
    }
}

#[tokio::test]
async fn a_conversation_of_ten_times_the_limit_still_knows_what_was_said_last() {
    let world = World::new(Narrow::new(Memory::Good, LIMIT), LIMIT);
    let mut session = None;
    let mut said = 0;
    for turn in 0..80 {
        let text = format!("Do 0 things, number {turn}. {}", "please ".repeat(600));
        said += text.len() as u64 / 4;
        let (run, outcome) = finish(&world.agents, session.as_ref(), &text).await;
        assert_eq!(outcome.reason, EndReason::Completed, "turn {turn}");
        session = Some(run.session_id().clone());
    }
    assert!(said > 10 * LIMIT);
    let (run, outcome) = finish(&world.agents, session.as_ref(), "Do 0 more: swordfish").await;
    assert_eq!(outcome.answer, "You said: Do 0 more: swordfish");
    let compactions = world.compactions(run.session_id()).await;
    assert!(compactions.len() >= 3);
    for (seq, summary) in &compactions {
        println!(
            "event {seq}: {} tokens before, {} after",
            summary.tokens_before,
            summary.tokens_after.unwrap()
        );
        assert!(summary.tokens_after.unwrap() < summary.tokens_before);
    }
    assert!(world.sent() <= LIMIT);
    world.sound(run.session_id()).await;
}

#[tokio::test]
async fn a_turn_of_ten_times_the_limit_in_results_still_knows_its_task() {
    let world = World::new(Narrow::new(Memory::Good, LIMIT), LIMIT);
    // Each result has about 1,200 tokens.
    let (run, outcome) = finish(&world.agents, None, "Do 75 things for swordfish").await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(outcome.answer, "You said: Do 75 things for swordfish");
    let compactions = world.compactions(run.session_id()).await;
    assert!(compactions.len() >= 10, "{}", compactions.len());
    assert!(world.sent() <= LIMIT);
    // The newest result was never replaced, and each call has its result.
    let asked = world.model.asked.lock().unwrap().clone();
    for (request, _) in asked
        .iter()
        .filter(|(request, _)| !request.tools.is_empty())
        .skip(1)
    {
        let Some(HistoryItem::Tool { content, .. }) = request.items.last() else {
            panic!("a request does not end with the newest result");
        };
        assert!(matches!(&content[0], ContentPart::Text { text } if text.len() > 4_000));
    }
    world.sound(run.session_id()).await;
}

#[tokio::test]
async fn a_request_that_the_provider_finds_too_long_is_sent_again_shorter() {
    // The agent believes that the model takes ten times of what it does.
    let world = World::new(Narrow::new(Memory::Good, LIMIT), 10 * LIMIT);
    let (run, outcome) = finish(&world.agents, None, "Do 20 things").await;
    assert_eq!(outcome.reason, EndReason::Completed, "{outcome:?}");
    assert!(!world.compactions(run.session_id()).await.is_empty());
    world.sound(run.session_id()).await;
}

#[tokio::test]
async fn a_history_that_nothing_makes_fit_says_so_and_stays_as_it_is() {
    let world = World::new(Narrow::new(Memory::Silent, LIMIT), LIMIT);
    let (run, outcome) = finish(&world.agents, None, "Do 75 things").await;
    let EndReason::Error { code, message } = outcome.reason else {
        panic!("{:?}", outcome.reason);
    };
    assert_eq!(code, "compaction_failed");
    assert!(message.contains("fork"), "{message}");
    // What the useless summaries took is counted, too.
    let calls = world.model.asked.lock().unwrap().len() as u64;
    assert_eq!(outcome.usage.output_tokens, 10 * calls);
    assert!(world.compactions(run.session_id()).await.is_empty());
    world.sound(run.session_id()).await;

    let long = format!("Do 0 things. {}", "x ".repeat(40_000));
    let world = World::new(Narrow::new(Memory::Good, LIMIT), LIMIT);
    let (run, outcome) = finish(&world.agents, None, &long).await;
    assert!(
        matches!(outcome.reason, EndReason::Error { .. }),
        "{outcome:?}"
    );
    assert!(world.compactions(run.session_id()).await.len() <= 1);
    world.sound(run.session_id()).await;
}

#[tokio::test]
async fn a_person_can_ask_for_it() {
    let world = World::new(Narrow::new(Memory::Good, LIMIT), 100 * LIMIT);
    let (run, _) = finish(&world.agents, None, "Do 4 things").await;
    let id = run.session_id().clone();
    let (_, outcome) = finish(&world.agents, Some(&id), COMPACT_COMMAND).await;
    assert_eq!(outcome.reason, EndReason::Completed);
    assert!(
        outcome.answer.contains("replaced by a summary"),
        "{}",
        outcome.answer
    );
    let compactions = world.compactions(&id).await;
    assert_eq!(compactions.len(), 1);
    // The tokens of the summary are the turn's.
    assert_eq!(outcome.usage.output_tokens, 10);
    let (_, outcome) = finish(&world.agents, Some(&id), "Do 0 more").await;
    assert_eq!(outcome.answer, "You said: Do 0 more");
    world.sound(&id).await;
}

#[tokio::test]
async fn whatever_part_of_the_log_there_is_rebuilds_its_requests() {
    let world = World::new(Narrow::new(Memory::Good, LIMIT), LIMIT);
    let (run, _) = finish(&world.agents, None, "Do 14 things").await;
    let id = run.session_id().clone();
    // Back to before the first compaction, and on from there into another one.
    let first = world.compactions(&id).await[0].0;
    world.store.rewind(&id, first - 1).await.unwrap();
    finish(&world.agents, Some(&id), "Do 8 others, two at once").await;
    assert!(world.compactions(&id).await.len() >= 3);
    let mut steps = BTreeMap::new();
    let mut last = 0;
    world
        .store
        .each_event(&id, |line| {
            last = line.event.seq;
            if let Payload::StepStart(start) = line.event.payload().unwrap() {
                steps.insert(last, start);
            }
            true
        })
        .await
        .unwrap();
    // A fork has what a process leaves behind that dies right after the event.
    for seq in 0..=last {
        let fork = SessionId::parse(format!("fork-{seq}")).unwrap();
        world
            .store
            .fork(&id, Some(seq), fork.clone())
            .await
            .unwrap();
        world.sound(&fork).await;
        if let Some(start) = steps.get(&seq) {
            let rebuilt = world.store.request_of_step(&fork, start.step).await;
            let request = rebuilt.unwrap().unwrap().unwrap().request;
            let print = request.fingerprint().unwrap();
            assert_eq!(print.hash, start.request.fingerprint);
        }
    }
}
