use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use threadline_agent::{
    Agents, AgentsConfig, Models, Run, RunInput, RunOutcome, Started,
    tools::{Ready, Tool, ToolContext, ToolOutput, ToolSource as _},
};
use threadline_mcp::{ServerConfig, ServerName, Servers, Transport};
use threadline_model::{Completion, ModelEvent, ModelStream, Provider};
use threadline_session::{
    Payload, Request, SessionId,
    payload::{ApprovalPolicy, AssistantPart, SandboxMode, StopReason, UserSource, plain_text},
};
use threadline_store::{MemoryBackend, SessionStore, StoreOptions};

/// Longest time that something which happens beside the test is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

/// A folder with a session's servers in it.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn cwd(&self) -> &Path {
        self.dir.path()
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// A server that is the script, in one of its modes.
    pub fn server(&self, name: &str, mode: &str) -> ServerConfig {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.sh");
        let log = self.log(name).to_str().unwrap().to_owned();
        let transport = Transport::Stdio {
            command: "sh".into(),
            args: vec![script.into(), mode.into()],
            env: BTreeMap::from([("LOG".into(), log)]),
            cwd: None,
        };
        ServerConfig::new(ServerName::parse(name).unwrap(), transport)
    }

    /// The numbers of the processes that a server had, in order.
    pub fn pids(&self, name: &str) -> Vec<u32> {
        let log = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        log.lines()
            .filter_map(|line| line.strip_prefix("pid ")?.parse().ok())
            .collect()
    }

    /// Waits until a server has read something.
    pub async fn has_read(&self, name: &str, what: &str) {
        eventually(|| {
            let log = std::fs::read(self.log(name)).unwrap_or_default();
            String::from_utf8_lossy(&log).contains(what)
        })
        .await;
    }
}

/// Waits until something is so that another process brings about.
pub async fn eventually(is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it never came about");
}

pub fn is_alive(pid: u32) -> bool {
    // A process that is dead and not yet waited for has no command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

pub fn names(ready: &Ready) -> Vec<String> {
    ready
        .tools
        .iter()
        .map(|tool| tool.definition().name)
        .collect()
}

pub fn find(ready: &Ready, name: &str) -> Arc<dyn Tool> {
    let found = ready
        .tools
        .iter()
        .find(|tool| tool.definition().name.ends_with(name));
    found
        .unwrap_or_else(|| panic!("no {name} in {:?}", names(ready)))
        .clone()
}

/// One session with one server.
pub struct Alone {
    pub place: Place,
    pub servers: Servers,
    pub ready: Ready,
}

impl Alone {
    pub async fn new(mode: &str) -> Self {
        let place = Place::new();
        let config = place.server("s", mode);
        Self::with(place, config).await
    }

    pub async fn with(place: Place, config: ServerConfig) -> Self {
        let servers = Servers::new(vec![config]).unwrap();
        let ready = servers.ready(&id("one"), place.cwd()).await;
        Self {
            place,
            servers,
            ready,
        }
    }

    pub fn context(&self) -> ToolContext {
        ToolContext::new(self.place.cwd(), SandboxMode::WorkspaceWrite)
    }

    pub async fn call(&self, name: &str, arguments: Value) -> ToolOutput {
        find(&self.ready, name)
            .run(&arguments, &self.context())
            .await
    }
}

/// A model that says what it is told to say.
#[derive(Clone, Default)]
pub struct Script {
    calls: Arc<Mutex<VecDeque<(String, Value)>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Script {
    pub fn will_call(&self, name: &str, arguments: Value) {
        self.calls
            .lock()
            .unwrap()
            .push_back((name.into(), arguments));
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Provider for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn body(&self, request: &Request) -> Value {
        json!({ "items": request.items.len() })
    }

    fn stream(&self, request: Request) -> ModelStream {
        let step = {
            let mut requests = self.requests.lock().unwrap();
            requests.push(request);
            requests.len()
        };
        let (part, stop_reason) = match self.calls.lock().unwrap().pop_front() {
            Some((name, arguments)) => (
                AssistantPart::ToolCall {
                    call_id: format!("c{step}"),
                    name,
                    arguments: arguments.to_string(),
                },
                StopReason::ToolCalls,
            ),
            None => (
                AssistantPart::Text {
                    text: "done".into(),
                },
                StopReason::Stop,
            ),
        };
        let done = ModelEvent::Done(Completion {
            content: vec![part],
            stop_reason,
            usage: None,
            opaque: Vec::new(),
            model: "m".into(),
        });
        stream::iter([Ok(done)]).boxed()
    }
}

/// Sessions that outlive the agents that work on them.
pub struct World {
    pub place: Place,
    pub backend: MemoryBackend,
    pub script: Script,
}

impl World {
    pub fn new() -> Self {
        Self {
            place: Place::new(),
            backend: MemoryBackend::new(),
            script: Script::default(),
        }
    }

    pub fn store(&self) -> SessionStore {
        SessionStore::new(Arc::new(self.backend.clone()), StoreOptions::default())
    }

    /// What a fresh process would have.
    pub fn agents(&self, configs: Vec<ServerConfig>) -> Agents {
        let models = Models::new(Arc::new(self.script.clone()), "m");
        let cwd = self.place.cwd().to_owned();
        let mut config = AgentsConfig::new(Some(self.store()), models, cwd);
        config.source = Some(Arc::new(Servers::new(configs).unwrap()));
        config.defaults.approval_policy = ApprovalPolicy::Never;
        Agents::new(config)
    }

    pub async fn payloads(&self, id: &SessionId) -> Vec<Payload> {
        let mut payloads = Vec::new();
        self.store()
            .each_event(id, |line| {
                payloads.push(line.event.payload().unwrap());
                true
            })
            .await
            .unwrap();
        payloads
    }

    /// The results of all calls, in order.
    pub async fn results(&self, id: &SessionId) -> Vec<threadline_session::payload::ToolResult> {
        let payloads = self.payloads(id).await;
        let result = |payload| match payload {
            Payload::ToolResult(result) => Some(result),
            _ => None,
        };
        payloads.into_iter().filter_map(result).collect()
    }

    /// What the model was told of servers, in order.
    pub async fn told(&self, id: &SessionId) -> Vec<String> {
        let payloads = self.payloads(id).await;
        let text = |payload| match payload {
            Payload::UserMessage(message) if message.source == UserSource::Context => {
                Some(plain_text(&message.content)).filter(|text| text.starts_with("Servers:"))
            }
            _ => None,
        };
        payloads.into_iter().filter_map(text).collect()
    }
}

pub async fn turn(agents: &Agents, session: Option<&SessionId>) -> (Run, RunOutcome) {
    let input = RunInput {
        task: "go".into(),
        ..RunInput::default()
    };
    let Started::New(run) = agents.start(session.cloned(), input).await.unwrap() else {
        panic!("the run was repeated");
    };
    let outcome = run.wait().await;
    (run, outcome)
}
