//! A server on a real socket, a client that sees every byte, and models under the test's control.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{Agents, AgentsConfig, Models};
use threadline_model::{Completion, ModelEvent, ModelStream, Provider, ProviderConfig};
use threadline_server::{ServerConfig, serve};
use threadline_session::{
    Request,
    payload::{AssistantPart, ChunkKind, ChunkPart, StopReason, Usage},
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::schema;

pub(crate) const TOKEN: &str = "secret-token";

/// How long anything may take before a test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what} takes too long"),
    }
}

/// A model that says what the test sends it.
#[derive(Default)]
pub(crate) struct Script {
    calls: Mutex<VecDeque<mpsc::UnboundedReceiver<ModelEvent>>>,
}

impl Provider for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn body(&self, request: &Request) -> Value {
        assert!(request.model != "panics", "a provider with a defect");
        json!({"items": request.items.len()})
    }

    fn stream(&self, _: Request) -> ModelStream {
        let next = self.calls.lock().unwrap().pop_front();
        let Some(events) = next else {
            return stream::empty().boxed();
        };
        stream::unfold(events, async |mut events| {
            let event = events.recv().await?;
            Some((Ok(event), events))
        })
        .boxed()
    }
}

/// One call of the scripted model, in the making.
pub(crate) struct Call(mpsc::UnboundedSender<ModelEvent>);

impl Call {
    pub(crate) fn say(&self, text: &str) {
        let part = ChunkPart {
            index: 0,
            kind: ChunkKind::Text,
            delta: text.into(),
        };
        self.0.send(ModelEvent::Delta(part)).unwrap();
    }

    /// Ends with a call of the shell.
    pub(crate) fn shell(self, call_id: &str, arguments: &Value) {
        let completion = Completion {
            content: vec![AssistantPart::ToolCall {
                call_id: call_id.into(),
                name: "shell".into(),
                arguments: arguments.to_string(),
            }],
            stop_reason: StopReason::ToolCalls,
            usage: None,
            opaque: Vec::new(),
            model: "m".into(),
        };
        self.0.send(ModelEvent::Done(completion)).unwrap();
    }

    pub(crate) fn done(self, text: &str) {
        let completion = Completion {
            content: vec![AssistantPart::Text { text: text.into() }],
            stop_reason: StopReason::Stop,
            usage: Some(Usage {
                input_tokens: 3,
                output_tokens: 2,
                ..Usage::default()
            }),
            opaque: Vec::new(),
            model: "m".into(),
        };
        self.0.send(ModelEvent::Done(completion)).unwrap();
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) agents: Agents,
    pub(crate) script: Arc<Script>,
    pub(crate) dir: tempfile::TempDir,
    document: Value,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}, |_| {}).await
    }

    pub(crate) async fn with(
        agents: impl FnOnce(&mut AgentsConfig),
        server: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let store = SessionStore::new(Arc::new(MemoryBackend::new()), StoreOptions::default());
        Self::over(store, agents, server).await
    }

    pub(crate) async fn over(
        store: SessionStore,
        change_agents: impl FnOnce(&mut AgentsConfig),
        change_server: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = Arc::new(Script::default());
        let offline = threadline_model::build(ProviderConfig::new("offline")).unwrap();
        let models = Models::new(offline, "demonstration").with(script.clone());
        let mut config = AgentsConfig::new(Some(store), models, dir.path().to_path_buf());
        change_agents(&mut config);
        let agents = Agents::new(config);
        let mut config = ServerConfig::new(agents.clone(), TOKEN);
        config.version = "1.2.3".into();
        config.demonstration = true;
        change_server(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, config, async {
            let _ = stopped.await;
        }));
        let mut server = Self {
            address,
            agents,
            script,
            dir,
            document: Value::Null,
            stop: Some(stop),
            task,
        };
        server.document = server.get("/api/openapi.json").await.json();
        server
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// Prepares the scripted model's next call.
    pub(crate) fn call(&self) -> Call {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.script.calls.lock().unwrap().push_back(receiver);
        Call(sender)
    }

    pub(crate) fn ask(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(self) -> Agents {
        soon("stopping", self.task).await.unwrap().unwrap();
        self.agents
    }

    /// Sends exactly these headers, besides what frames the body.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Connection {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || method == "POST" {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server may answer and close before it has read a body that it refuses.
        let _ = stream.write_all(body).await;
        soon("an answer", Connection::open(stream)).await
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Connection {
        let host = self.host();
        let bearer = format!("Bearer {TOKEN}");
        let mut headers = vec![("host", host.as_str()), ("authorization", bearer.as_str())];
        headers.extend_from_slice(more);
        self.raw(method, path, &headers, body).await
    }

    /// Sends a request with the token and holds the answer against the document.
    pub(crate) async fn request(&self, method: &str, path: &str, body: &str) -> Reply {
        let connection = self.send(method, path, &[], body.as_bytes()).await;
        let reply = connection.reply().await;
        if self.document.is_object() {
            schema::check(&self.document, method, path, &reply);
        }
        reply
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, &body.to_string()).await
    }

    /// Starts a turn and leaves the stream open.
    pub(crate) async fn stream(&self, input: &Value) -> Events {
        let body = input.to_string();
        let connection = self
            .send("POST", "/api/agent/stream", &[], body.as_bytes())
            .await;
        connection.events()
    }

    /// Starts a turn and waits for its end.
    pub(crate) async fn run(&self, input: &Value) -> Ran {
        let mut events = self.stream(input).await;
        let mut messages = Vec::new();
        while let Some(message) = events.next().await {
            messages.push(message);
        }
        Ran { messages }
    }

    /// Asks with an empty body for an event stream.
    pub(crate) async fn post_events(&self, path: &str) -> Events {
        self.send("POST", path, &[], b"").await.events()
    }

    pub(crate) async fn follow_changes(&self) -> Events {
        let connection = self.send("GET", "/api/agent/changes", &[], b"").await;
        connection.events()
    }

    pub(crate) async fn follow(
        &self,
        id: &str,
        query: &str,
        last_event_id: Option<&str>,
    ) -> Events {
        let path = format!("/api/agent/sessions/{id}/events?{query}");
        let headers: Vec<_> = last_event_id
            .map(|id| ("last-event-id", id))
            .into_iter()
            .collect();
        self.send("GET", &path, &headers, b"").await.events()
    }
}

/// A finished run as its stream told it.
pub(crate) struct Ran {
    pub(crate) messages: Vec<Message>,
}

impl Ran {
    pub(crate) fn session(&self) -> String {
        self.started()["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn run_id(&self) -> String {
        self.started()["runId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn started(&self) -> Value {
        assert_eq!(
            self.messages[0].event, "run_started",
            "{:?}",
            self.messages[0]
        );
        self.messages[0].json()
    }

    pub(crate) fn end(&self) -> &Message {
        self.messages.last().unwrap()
    }

    pub(crate) fn log(&self) -> Vec<&Message> {
        self.messages
            .iter()
            .filter(|message| message.id.is_some())
            .collect()
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e} in {} {}", self.status, self.text()))
    }

    /// Checks that this is a problem with a code and returns its field.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Option<String> {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        problem["field"].as_str().map(str::to_owned)
    }
}

/// An answer whose head was read.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    status: u16,
    headers: Vec<(String, String)>,
    chunked: bool,
    length: Option<usize>,
}

impl Connection {
    async fn open(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let status = line(&mut stream).await.unwrap();
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = line(&mut stream).await.unwrap();
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |wanted: &str| headers.iter().find(|(name, _)| name == wanted);
        let chunked = header("transfer-encoding").is_some();
        let length = header("content-length").map(|(_, value)| value.parse().unwrap());
        Self {
            stream,
            status,
            headers,
            chunked,
            length,
        }
    }

    /// Reads the next piece of the body.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        if self.chunked {
            let size = line(&mut self.stream).await?;
            let size = usize::from_str_radix(&size, 16).unwrap();
            let mut piece = vec![0; size];
            self.stream.read_exact(&mut piece).await.ok()?;
            line(&mut self.stream).await?;
            return (size > 0).then_some(piece);
        }
        let length = self.length.take().unwrap_or(0);
        let mut piece = vec![0; length];
        self.stream.read_exact(&mut piece).await.ok()?;
        (length > 0).then_some(piece)
    }

    pub(crate) async fn reply(mut self) -> Reply {
        let mut body = Vec::new();
        while let Some(piece) = soon("a body", self.piece()).await {
            body.extend(piece);
        }
        Reply {
            status: self.status,
            headers: self.headers,
            body,
        }
    }

    fn events(self) -> Events {
        Events {
            connection: self,
            text: String::new(),
        }
    }
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(b'\n') => break,
            Ok(byte) => line.push(byte),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8(line).unwrap().trim_end().to_owned())
}

/// A message of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: String,
}

impl Message {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// An open event stream; dropping it cuts the connection.
pub(crate) struct Events {
    connection: Connection,
    text: String,
}

impl Events {
    pub(crate) fn status(&self) -> u16 {
        self.connection.status
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = &self.connection.headers;
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) async fn reply(self) -> Reply {
        self.connection.reply().await
    }

    /// Reads the next block of lines, comments and `retry` included.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let rest = self.text.split_off(end + 2);
                let block = std::mem::replace(&mut self.text, rest);
                return Some(block.trim_end().to_owned());
            }
            let piece = soon("an event", self.connection.piece()).await?;
            self.text.push_str(&String::from_utf8(piece).unwrap());
        }
    }

    /// Reads the next message; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        loop {
            let block = self.block().await?;
            let (mut id, mut event, mut data) = (None, String::new(), Vec::new());
            for line in block.lines() {
                let (field, value) = line.split_once(": ").unwrap();
                match field {
                    "id" => id = Some(value.parse().unwrap()),
                    "event" => event = value.to_owned(),
                    "data" => data.push(value),
                    "" | "retry" => {}
                    other => panic!("unknown field {other}"),
                }
            }
            if !data.is_empty() {
                return Some(Message {
                    id,
                    event,
                    data: data.join("\n"),
                });
            }
        }
    }

    /// Reads up to the first message of a kind and returns it.
    pub(crate) async fn until(&mut self, event: &str) -> Message {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("no {event}"));
            if message.event == event {
                return message;
            }
        }
    }
}
