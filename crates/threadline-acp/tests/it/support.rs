use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{
    Agents, AgentsConfig, Models,
    tools::{Effect, Tool, ToolContext, ToolOutput},
};
use threadline_model::{Completion, ModelError, ModelEvent, ModelStream, Provider};
use threadline_session::{
    Request,
    payload::{AssistantPart, ChunkKind, ChunkPart, StopReason, ToolDefinition, Usage},
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf},
    sync::Notify,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// The smallest thing that is taken for an image.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// One answer of the scripted model.
#[derive(Clone)]
pub enum Reply {
    /// Streams reasoning, then a text in pieces.
    Text(&'static str),
    /// Says something and calls tools.
    Calls(Vec<(&'static str, &'static str, Value)>),
    /// Streams the text, then says nothing more for ever.
    Hang(&'static str),
    /// Streams the text, then fails.
    Cut(&'static str),
}

#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<VecDeque<Reply>>>);

fn delta(index: u32, kind: ChunkKind, text: &str) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Delta(ChunkPart {
        index,
        kind,
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
        if request.tools.is_empty() {
            let part = AssistantPart::Text {
                text: "Task: go on.".into(),
            };
            return stream::iter([done(vec![part], StopReason::Stop)]).boxed();
        }
        let reply = self.0.lock().unwrap().pop_front();
        match reply.unwrap_or(Reply::Text("(end)")) {
            Reply::Text(text) => {
                let (head, tail) = text.split_at(text.len() / 2);
                let parts = vec![
                    AssistantPart::Reasoning {
                        text: "thinking".into(),
                    },
                    AssistantPart::Text { text: text.into() },
                ];
                stream::iter([
                    delta(0, ChunkKind::Reasoning, "think"),
                    delta(0, ChunkKind::Reasoning, "ing"),
                    delta(1, ChunkKind::Text, head),
                    delta(1, ChunkKind::Text, tail),
                    done(parts, StopReason::Stop),
                ])
                .boxed()
            }
            Reply::Calls(calls) => {
                let mut content = vec![AssistantPart::Text {
                    text: "I look.".into(),
                }];
                content.extend(calls.into_iter().map(|(call_id, name, arguments)| {
                    AssistantPart::ToolCall {
                        call_id: call_id.into(),
                        name: name.into(),
                        arguments: arguments.to_string(),
                    }
                }));
                let streamed = delta(0, ChunkKind::Text, "I look.");
                stream::iter([streamed, done(content, StopReason::ToolCalls)]).boxed()
            }
            Reply::Hang(text) => stream::iter([delta(0, ChunkKind::Text, text)])
                .chain(stream::pending())
                .boxed(),
            Reply::Cut(text) => {
                let cut = Err(ModelError::CutStream);
                stream::iter([delta(0, ChunkKind::Text, text), cut]).boxed()
            }
        }
    }
}

/// A tool that waits until the test lets it go on.
#[derive(Clone)]
pub struct Gated {
    name: &'static str,
    effect: Effect,
    pub begun: Arc<Notify>,
    pub go: Arc<Notify>,
}

#[async_trait]
impl Tool for Gated {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.into(),
            description: "waits".into(),
            parameters: json!({ "type": "object", "properties": { "b": {}, "a": {} } }),
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

/// A store, a model and two tools, over which any number of clients come and go.
pub struct World {
    backend: MemoryBackend,
    script: Script,
    pub dir: tempfile::TempDir,
    /// Only looks.
    pub looks: Gated,
    /// Is asked for.
    pub acts: Gated,
}

impl World {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let gated = |name, effect| Gated {
            name,
            effect,
            begun: Arc::default(),
            go: Arc::default(),
        };
        Self {
            backend: MemoryBackend::new(),
            script: Script(Arc::new(Mutex::new(replies.into_iter().collect()))),
            dir: tempfile::tempdir().unwrap(),
            looks: gated("looks", Effect::ReadOnly),
            acts: gated("acts", Effect::Executes),
        }
    }

    pub fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.0.lock().unwrap().extend(replies);
    }

    pub fn cwd(&self) -> &Path {
        self.dir.path()
    }

    pub fn store(&self) -> SessionStore {
        SessionStore::new(Arc::new(self.backend.clone()), StoreOptions::default())
    }

    pub fn agents(&self) -> Agents {
        let models = Models::new(Arc::new(self.script.clone()), "m-1");
        let mut config = AgentsConfig::new(Some(self.store()), models, self.dir.path().to_owned());
        for tool in [&self.looks, &self.acts] {
            config.toolbox.register(Arc::new(tool.clone())).unwrap();
        }
        Agents::new(config)
    }

    /// A client that has said who it is.
    pub async fn client(&self) -> Client {
        self.client_that(json!({})).await
    }

    /// A client that offers something.
    pub async fn client_that(&self, offers: Value) -> Client {
        let mut client = Client::new(self.agents());
        let params = json!({"protocolVersion": 1, "clientCapabilities": offers});
        client.ask("initialize", params).await.unwrap();
        client
    }

    /// A new session of a client.
    pub async fn session(&self, client: &mut Client) -> String {
        let params = json!({"cwd": self.cwd(), "mcpServers": []});
        let answer = client.ask("session/new", params).await.unwrap();
        answer["sessionId"].as_str().unwrap().to_owned()
    }
}

/// A client by hand. Whatever it reads, it keeps.
pub struct Client {
    writer: Option<WriteHalf<DuplexStream>>,
    reader: BufReader<ReadHalf<DuplexStream>>,
    served: JoinHandle<()>,
    pub shutdown: CancellationToken,
    next: u64,
    /// Everything read, in order.
    pub log: Vec<Value>,
    /// Up to where it was looked at.
    seen: usize,
}

impl Client {
    pub fn new(agents: Agents) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(theirs);
        let shutdown = CancellationToken::new();
        let token = shutdown.clone();
        let served = tokio::spawn(async move {
            threadline_acp::serve(agents, None, reader, writer, token)
                .await
                .unwrap();
        });
        let (reader, writer) = tokio::io::split(ours);
        Self {
            writer: Some(writer),
            reader: BufReader::new(reader),
            served,
            shutdown,
            next: 1,
            log: Vec::new(),
            seen: 0,
        }
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(bytes).await.unwrap();
    }

    pub async fn send(&mut self, message: Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// Sends a request and returns its id.
    pub async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// Reads the next line; `None` at the end.
    async fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).await.unwrap() == 0 {
            return None;
        }
        let message: Value = serde_json::from_str(&line).expect(&line);
        self.log.push(message.clone());
        Some(message)
    }

    /// Reads on until a message fits, and returns it. Messages before are passed over.
    pub async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            while let Some(message) = self.log.get(self.seen) {
                self.seen += 1;
                if fits(message) {
                    return message.clone();
                }
            }
            assert!(self.read().await.is_some(), "the agent ended first");
        }
    }

    /// Returns the answer to a request, whenever it came.
    pub async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        let answers = |message: &Value| message["id"] == id && message.get("method").is_none();
        loop {
            if let Some(found) = self.log.iter().find(|message| answers(message)) {
                return match found.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(found["result"].clone()),
                };
            }
            assert!(self.read().await.is_some(), "the agent ended first");
        }
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    pub async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request(
            "session/prompt",
            json!({"sessionId": session, "prompt": prompt}),
        )
        .await
    }

    pub async fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session}))
            .await;
    }

    /// Waits for an update of a kind.
    pub async fn update(&mut self, kind: &str) -> Value {
        let fits = |message: &Value| message["params"]["update"]["sessionUpdate"] == kind;
        self.until(fits).await["params"]["update"].clone()
    }

    /// Waits for a question.
    pub async fn question(&mut self) -> Value {
        self.until(|message| message["method"] == "session/request_permission")
            .await
    }

    /// Waits for a request of the agent.
    pub async fn asked(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && message.get("id").is_some())
            .await
    }

    /// Answers a request of the agent.
    pub async fn reply(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
            .await;
    }

    /// Answers a request of the agent with an error.
    pub async fn refuse(&mut self, request: &Value, message: &str) {
        let error = json!({"code": -32603, "message": message});
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
            .await;
    }

    /// Replays a session, and returns the updates before the response.
    pub async fn load(&mut self, world: &World, session: &str) -> Vec<Value> {
        let from = self.log.len();
        let params = json!({"sessionId": session, "cwd": world.cwd(), "mcpServers": []});
        let id = self.request("session/load", params).await;
        self.answer(id).await.unwrap();
        let answers = |m: &Value| m["id"] == id && m.get("result").is_some();
        let end = self.log.iter().position(answers).unwrap();
        let all = self.log.split_off(end);
        let updates = self.updates(session, from);
        self.log.extend(all);
        updates
    }

    pub async fn decide(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": "selected", "optionId": option});
        self.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}}))
            .await;
    }

    /// All updates of a session between two places of what was read.
    pub fn updates(&self, session: &str, from: usize) -> Vec<Value> {
        let of = |message: &Value| {
            (message["params"]["sessionId"] == session).then(|| message["params"]["update"].clone())
        };
        let found = self.log[from..]
            .iter()
            .filter(|m| m["method"] == "session/update");
        found.filter_map(of).collect()
    }

    /// Ends the input and waits until the agent has ended.
    pub async fn end(mut self) -> Vec<Value> {
        let mut writer = self.writer.take().unwrap();
        writer.shutdown().await.unwrap();
        drop(writer);
        while self.read().await.is_some() {}
        self.served.await.unwrap();
        self.log
    }
}

/// What a client shows after some updates: messages whole, calls as they stand at the end.
pub fn view(updates: &[Value]) -> Vec<Value> {
    let mut shown: Vec<Value> = Vec::new();
    for update in updates {
        let kind = update["sessionUpdate"].as_str().unwrap();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                let last = shown
                    .iter_mut()
                    .find(|item| item["kind"] == kind && item["id"] == update["messageId"]);
                let text = update["content"]["text"].as_str();
                match (last, text) {
                    (Some(item), Some(text)) if item["content"]["text"].is_string() => {
                        let whole = format!("{}{text}", item["content"]["text"].as_str().unwrap());
                        item["content"]["text"] = whole.into();
                    }
                    _ => shown.push(json!({
                        "kind": kind, "id": update["messageId"], "content": update["content"],
                    })),
                }
            }
            "tool_call" => shown.push(update.clone()),
            "tool_call_update" => {
                let item = shown
                    .iter_mut()
                    .find(|item| item["toolCallId"] == update["toolCallId"])
                    .expect("an update of a call that was never told of");
                for (name, value) in update.as_object().unwrap() {
                    if name != "sessionUpdate" {
                        item[name] = value.clone();
                    }
                }
            }
            "plan" => shown.push(update.clone()),
            _ => {}
        }
    }
    shown
}

impl World {
    /// Takes a session over as it is stored elsewhere at this moment, without its writer.
    pub async fn take_log_of(&self, other: &SessionStore, id: &threadline_session::SessionId) {
        other.copy_to(&self.store(), id).await.unwrap();
    }
}
