use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{
    Agents, AgentsConfig, Models, Run, RunEvent, RunInput, RunOutcome, Started,
    tools::{Effect, Tool, ToolContext, ToolOutput},
};
use threadline_model::{Completion, ModelError, ModelEvent, ModelStream, Provider};
use threadline_session::{
    Payload, Request, SessionId,
    payload::{AssistantPart, ChunkKind, ChunkPart, StopReason, ToolDefinition, Usage},
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};
use tokio::sync::Notify;

/// One answer of the scripted model.
#[derive(Clone)]
pub enum Reply {
    Text(&'static str),
    Calls(Vec<(&'static str, &'static str, Value)>),
    /// Streams the text, then says nothing more for ever.
    Hang(&'static str),
    /// Streams the text, then fails.
    Cut(&'static str),
}

#[derive(Clone, Default)]
pub struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Script {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let script = Self::default();
        script.push(replies);
        script
    }

    pub fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().unwrap().extend(replies);
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn delta(text: &str) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Delta(ChunkPart {
        index: 0,
        kind: ChunkKind::Text,
        delta: text.into(),
    }))
}

fn done(content: Vec<AssistantPart>, stop_reason: StopReason) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Done(Completion {
        content,
        stop_reason,
        usage: Some(Usage {
            input_tokens: 10,
            output_tokens: 5,
            ..Usage::default()
        }),
        opaque: Vec::new(),
        model: "scripted-1".into(),
    }))
}

impl Provider for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn body(&self, request: &Request) -> Value {
        json!({ "items": request.items.len() })
    }

    fn stream(&self, request: Request) -> ModelStream {
        self.requests.lock().unwrap().push(request);
        let reply = self
            .replies
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Reply::Text("(end)"));
        match reply {
            Reply::Text(text) => {
                let part = AssistantPart::Text { text: text.into() };
                stream::iter([delta(text), done(vec![part], StopReason::Stop)]).boxed()
            }
            Reply::Calls(calls) => {
                let content = calls
                    .into_iter()
                    .map(|(call_id, name, arguments)| AssistantPart::ToolCall {
                        call_id: call_id.into(),
                        name: name.into(),
                        arguments: arguments.to_string(),
                    })
                    .collect();
                stream::iter([done(content, StopReason::ToolCalls)]).boxed()
            }
            Reply::Hang(text) => stream::iter([delta(text)]).chain(stream::pending()).boxed(),
            Reply::Cut(text) => stream::iter([delta(text), Err(ModelError::CutStream)]).boxed(),
        }
    }
}

/// A tool that waits until the test lets it go on.
pub struct Gated {
    pub name: &'static str,
    pub effect: Effect,
    pub begun: Arc<Notify>,
    pub go: Arc<Notify>,
}

impl Gated {
    pub fn new(name: &'static str, effect: Effect) -> Arc<Self> {
        Arc::new(Self {
            name,
            effect,
            begun: Arc::default(),
            go: Arc::default(),
        })
    }
}

#[async_trait]
impl Tool for Gated {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.into(),
            description: "waits".into(),
            parameters: json!({ "type": "object" }),
        }
    }

    fn effect(&self, _: &Value) -> Effect {
        self.effect
    }

    async fn run(&self, _: &Value, ctx: &ToolContext) -> ToolOutput {
        self.begun.notify_one();
        tokio::select! {
            () = self.go.notified() => ToolOutput::ok(format!("{} done", self.name)),
            () = ctx.cancel.cancelled() => ToolOutput::cancelled(),
        }
    }
}

pub struct World {
    pub backend: MemoryBackend,
    pub script: Script,
    pub dir: tempfile::TempDir,
}

impl World {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            backend: MemoryBackend::new(),
            script: Script::new(replies),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn store(&self) -> SessionStore {
        SessionStore::new(Arc::new(self.backend.clone()), StoreOptions::default())
    }

    pub fn config(&self) -> AgentsConfig {
        let models = Models::new(Arc::new(self.script.clone()), "m-1");
        AgentsConfig::new(Some(self.store()), models, self.dir.path().to_owned())
    }

    pub fn agents(&self) -> Agents {
        Agents::new(self.config())
    }

    /// The types of a session's events, in order.
    pub async fn types(&self, id: &SessionId) -> Vec<String> {
        let mut types = Vec::new();
        let store = self.store();
        store
            .each_event(id, |line| {
                types.push(line.event.kind.clone());
                true
            })
            .await
            .unwrap();
        types
    }

    pub async fn payloads(&self, id: &SessionId) -> Vec<Payload> {
        let mut payloads = Vec::new();
        let store = self.store();
        store
            .each_event(id, |line| {
                payloads.push(line.event.payload().unwrap());
                true
            })
            .await
            .unwrap();
        payloads
    }
}

pub fn task(text: &str) -> RunInput {
    RunInput {
        task: text.into(),
        ..RunInput::default()
    }
}

pub async fn start(agents: &Agents, session: Option<&SessionId>, input: RunInput) -> Run {
    match agents.start(session.cloned(), input).await.unwrap() {
        Started::New(run) => run,
        Started::Repeated { .. } => panic!("the run was repeated"),
    }
}

pub async fn finish(agents: &Agents, session: Option<&SessionId>, text: &str) -> (Run, RunOutcome) {
    let run = start(agents, session, task(text)).await;
    let outcome = run.wait().await;
    (run, outcome)
}

/// Reads a run's stream until an event of this name.
pub async fn until(stream: &mut threadline_agent::RunStream, name: &str) -> RunEvent {
    loop {
        let event = stream.next().await.expect("the run ended first");
        if event.name() == name {
            return event;
        }
    }
}
