//! The factory of agents: new sessions, resumed sessions, and what runs in this process.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use threadline_model::Provider;
use threadline_sandbox::Passed;
use threadline_session::{
    Header, OsPath, RunId, SessionId,
    payload::{ApprovalPolicy, ModelRef, SandboxMode},
};
use threadline_store::{
    MemoryBackend, OpenError, Recovered, SessionStore, SessionWriter, StoreOptions,
};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{
    Allow, ApprovalBoard, CompactionOptions, Counters, Prices, Run, RunLimits, StartError,
    TitleModel,
    lent::Loans,
    limits::{APPROVAL_TIMEOUT, MAX_STEPS},
    offers::Offered,
    tools::{ToolSource, Toolbox, state::RunStates},
};

/// The providers that are set up, and the model that new sessions use.
#[derive(Clone)]
pub struct Models {
    providers: BTreeMap<String, Arc<dyn Provider>>,
    default: ModelRef,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.providers.keys().collect();
        f.debug_struct("Models")
            .field("providers", &names)
            .field("default", &self.default)
            .finish()
    }
}

impl Models {
    /// Sets up one provider and makes one of its models the default.
    #[must_use]
    pub fn new(provider: Arc<dyn Provider>, model: impl Into<String>) -> Self {
        let default = ModelRef {
            provider: provider.name().into(),
            name: model.into(),
        };
        Self {
            providers: BTreeMap::new(),
            default,
        }
        .with(provider)
    }

    /// Sets up another provider.
    #[must_use]
    pub fn with(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.insert(provider.name().into(), provider);
        self
    }

    /// Returns the names of the providers that are set up.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// Returns the model that new sessions use.
    #[must_use]
    pub fn default_model(&self) -> &ModelRef {
        &self.default
    }

    /// Returns a provider by name.
    ///
    /// # Errors
    /// [`StartError::UnknownProvider`], which lists those that are set up.
    pub fn provider(&self, name: &str) -> Result<&Arc<dyn Provider>, StartError> {
        self.providers
            .get(name)
            .ok_or_else(|| StartError::UnknownProvider {
                provider: name.into(),
                known: self.providers.keys().cloned().collect(),
            })
    }

    /// Reads a choice: `provider/name` when the part before the slash is set up, else the name of
    /// a model of `provider`.
    #[must_use]
    pub fn choose(&self, choice: &str, provider: &str) -> ModelRef {
        match choice.split_once('/') {
            Some((head, name)) if self.providers.contains_key(head) => ModelRef {
                provider: head.into(),
                name: name.into(),
            },
            _ => ModelRef {
                provider: provider.into(),
                name: choice.into(),
            },
        }
    }
}

/// Who answers when a tool needs a person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approver {
    /// Whoever looks at the [`ApprovalBoard`].
    Board,
    /// Nobody: the turn ends as `blocked`.
    Nobody,
}

/// What new sessions run under.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// Approval policy.
    pub approval_policy: ApprovalPolicy,
    /// Sandbox mode.
    pub sandbox_mode: SandboxMode,
    /// Working directory.
    pub cwd: PathBuf,
    /// Most steps of a turn.
    pub max_steps: u32,
    /// Commands that are granted to a new session.
    pub allow: Vec<Allow>,
}

impl Defaults {
    /// Makes the defaults for a working directory: ask when needed, write in the workspace.
    #[must_use]
    pub fn new(cwd: PathBuf) -> Self {
        Self {
            approval_policy: ApprovalPolicy::OnRequest,
            sandbox_mode: SandboxMode::WorkspaceWrite,
            cwd,
            max_steps: MAX_STEPS,
            allow: Vec::new(),
        }
    }
}

/// Everything that agents are made from.
#[derive(Debug, Clone)]
pub struct AgentsConfig {
    /// Where sessions are kept; `None` keeps new ones in memory and resumes none.
    pub store: Option<SessionStore>,
    /// Providers and the default model.
    pub models: Models,
    /// Tools.
    pub toolbox: Toolbox,
    /// Has more tools for sessions, such as those of MCP servers.
    pub source: Option<Arc<dyn ToolSource>>,
    /// What new sessions run under.
    pub defaults: Defaults,
    /// Who approves.
    pub approver: Approver,
    /// How long a question waits before it counts as refused.
    pub approval_timeout: Duration,
    /// Folders that tools must not touch, besides the store's own.
    pub denied: Vec<PathBuf>,
    /// Variables of this process that commands see, besides the built-in list.
    pub env: Passed,
    /// When the history is compacted.
    pub compaction: CompactionOptions,
    /// What runs and sessions may use.
    pub limits: RunLimits,
    /// What models cost.
    pub prices: Prices,
    /// Who makes titles; nobody otherwise.
    pub titles: Option<TitleModel>,
    /// Counts what happens.
    pub counters: Arc<Counters>,
    /// Whether spans say what models and tools were told and said. Not unless somebody wants it:
    /// whoever gets the spans then reads the conversations.
    pub span_content: bool,
}

impl AgentsConfig {
    /// Makes a configuration with all built-in tools.
    #[must_use]
    pub fn new(store: Option<SessionStore>, models: Models, cwd: PathBuf) -> Self {
        Self {
            store,
            models,
            toolbox: Toolbox::standard(),
            source: None,
            defaults: Defaults::new(cwd),
            approver: Approver::Board,
            approval_timeout: APPROVAL_TIMEOUT,
            denied: Vec::new(),
            env: Passed::default(),
            compaction: CompactionOptions::default(),
            limits: RunLimits::default(),
            prices: Prices::new(),
            titles: None,
            counters: Arc::default(),
            span_content: false,
        }
    }
}

/// How a session is begun.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Its working directory; the default's otherwise.
    pub cwd: Option<PathBuf>,
    /// Its id; a fresh one otherwise.
    pub session_id: Option<SessionId>,
}

/// How a session is resumed.
#[derive(Debug, Clone)]
pub struct ResumeOptions {
    /// The session.
    pub session_id: SessionId,
    /// Whether to resume it also when another writer has it. That one is fenced: nothing that it
    /// appends from here on is stored or acknowledged, and its run stops with the code `fenced`.
    /// A run of this process is never taken over; cancel it instead.
    pub take_over: bool,
}

impl ResumeOptions {
    /// Resumes a session that nobody else is writing.
    #[must_use]
    pub fn new(session_id: SessionId) -> Self {
        Self {
            session_id,
            take_over: false,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) config: AgentsConfig,
    pub(crate) store: SessionStore,
    pub(crate) board: ApprovalBoard,
    /// What tools keep as long as a run lasts.
    pub(crate) run_states: RunStates,
    /// What clients lend.
    pub(crate) loans: Loans,
    /// Titles in the making.
    pub(crate) titles: TaskTracker,
    running: Mutex<HashMap<SessionId, (Run, Weak<Core>)>>,
    /// What interrupted sessions asked when they were looked at last.
    offers: Mutex<HashMap<SessionId, Offered>>,
    /// Counts the beginnings and ends of runs.
    changes: watch::Sender<u64>,
    /// Counts the sessions that this process has let go of.
    released: watch::Sender<u64>,
    /// Whether no run begins by itself any more.
    stopping: AtomicBool,
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<SessionId, (Run, Weak<Core>)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn offers(&self) -> MutexGuard<'_, HashMap<SessionId, Offered>> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn is_running(&self, id: &SessionId) -> bool {
        self.running().contains_key(id)
    }

    /// Returns what a session's run of this process writes through.
    pub(crate) fn running_core(&self, id: &SessionId) -> Option<Arc<Core>> {
        self.running().get(id).and_then(|(_, core)| core.upgrade())
    }

    /// Notes a run, unless the session has one already.
    pub(crate) fn note_run(&self, run: &Run, core: &Arc<Core>) {
        let entry = (run.clone(), Arc::downgrade(core));
        self.running().insert(run.session_id().clone(), entry);
        self.changes.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn forget_run(&self, run_id: &RunId, session_id: &SessionId) {
        let mut running = self.running();
        if running
            .get(session_id)
            .is_some_and(|(run, _)| run.run_id() == run_id)
        {
            running.remove(session_id);
        }
        drop(running);
        self.run_states.end(run_id);
        self.board.forget(run_id);
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// Makes agents and knows what runs in this process. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents")
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}

/// Makes a fresh id.
#[must_use]
pub fn new_run_id() -> RunId {
    RunId::from_uuid(Uuid::now_v7())
}

impl Agents {
    /// Makes the factory.
    #[must_use]
    pub fn new(config: AgentsConfig) -> Self {
        let store = config.store.clone().unwrap_or_else(|| {
            SessionStore::new(Arc::new(MemoryBackend::new()), StoreOptions::default())
        });
        let shared = Shared {
            config,
            store,
            board: ApprovalBoard::default(),
            run_states: RunStates::default(),
            loans: Loans::default(),
            titles: TaskTracker::new(),
            running: Mutex::new(HashMap::new()),
            offers: Mutex::default(),
            changes: watch::Sender::default(),
            released: watch::Sender::default(),
            stopping: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &AgentsConfig {
        &self.shared.config
    }

    /// Returns the store that sessions are kept in.
    #[must_use]
    pub fn store(&self) -> &SessionStore {
        &self.shared.store
    }

    /// Returns the questions that wait for a person.
    #[must_use]
    pub fn approvals(&self) -> &ApprovalBoard {
        &self.shared.board
    }

    /// Makes an agent with a new session. Nothing is stored before its first run.
    ///
    /// # Errors
    /// [`StartError::Create`].
    pub fn create(&self, options: CreateOptions) -> Result<Agent, StartError> {
        let id = options
            .session_id
            .unwrap_or_else(|| SessionId::from_first_run(&new_run_id()));
        let cwd = options
            .cwd
            .unwrap_or_else(|| self.shared.config.defaults.cwd.clone());
        let now = self.shared.store.clock().now_ms();
        let writer = self
            .shared
            .store
            .begin(Header::new(id, now, OsPath::from(cwd)))?;
        Ok(Agent::new(self.shared.clone(), writer, false, 0))
    }

    /// Opens an existing session and makes an agent that goes on with it.
    ///
    /// The model-visible history is rebuilt from the log in the store; an interrupted turn is
    /// closed first. An unknown id is an error, never a new session.
    ///
    /// # Errors
    /// [`StartError`]: no store, not found, busy here, locked elsewhere (unless it is taken over),
    /// damaged, unsupported.
    pub async fn resume(&self, options: ResumeOptions) -> Result<Agent, StartError> {
        if self.shared.config.store.is_none() {
            return Err(StartError::NoStore);
        }
        let id = options.session_id;
        if self.running(&id).is_some() {
            return Err(StartError::Busy { id });
        }
        let store = &self.shared.store;
        let loaded = if options.take_over {
            store.take_over(&id).await
        } else {
            store.load(&id).await
        };
        let loaded = loaded.map_err(|error| match error {
            OpenError::Locked { id, holder } if holder.pid == std::process::id() => {
                StartError::Busy { id }
            }
            error => StartError::Open(error),
        })?;
        Ok(Agent::new(
            self.shared.clone(),
            loaded.writer,
            true,
            loaded.closed,
        ))
    }

    /// Returns the run that a session has in this process.
    #[must_use]
    pub fn running(&self, id: &SessionId) -> Option<Run> {
        self.shared.running().get(id).map(|(run, _)| run.clone())
    }

    /// Returns all runs of this process.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let running = self.shared.running();
        running.values().map(|(run, _)| run.clone()).collect()
    }

    /// Returns a watch that changes whenever a run of this process begins or has ended.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns a watch that changes whenever a session that was open for writing here is let go of,
    /// so that it can be opened again.
    #[must_use]
    pub fn watch_released(&self) -> watch::Receiver<u64> {
        self.shared.released.subscribe()
    }

    /// Cancels all runs and waits until their ends are on stable storage. What is queued stays so.
    /// Then the [source](AgentsConfig::source) of tools lets go of what it holds.
    pub async fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let runs = self.runs();
        for run in &runs {
            run.cancel();
        }
        for run in runs {
            run.wait().await;
        }
        if let Some(source) = &self.shared.config.source {
            source.shutdown().await;
        }
    }
}

/// A session open for writing, with the loop that drives it.
///
/// Dropping it releases the session, once its run has ended.
#[derive(Clone)]
pub struct Agent {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: SessionWriter,
    pub(crate) resumed: bool,
    pub(crate) closed: usize,
    /// Held while a message is put into the inbox or taken out of it.
    pub(crate) inbox: tokio::sync::Mutex<()>,
    /// Held while a grant is given or revoked.
    pub(crate) grants: tokio::sync::Mutex<()>,
    /// The last field, so that the session is free when it goes.
    #[expect(dead_code, reason = "it matters when it is dropped")]
    pub(crate) release: Release,
}

/// Tells that a session was let go of.
pub(crate) struct Release(Arc<Shared>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.released.send_modify(|released| *released += 1);
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("session", self.core.writer.id())
            .finish_non_exhaustive()
    }
}

impl Agent {
    pub(crate) fn new(
        shared: Arc<Shared>,
        writer: SessionWriter,
        resumed: bool,
        closed: usize,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                release: Release(shared.clone()),
                shared,
                writer,
                resumed,
                closed,
                inbox: tokio::sync::Mutex::default(),
                grants: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Returns the session's id.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        self.core.writer.id()
    }

    /// Returns whether the session existed before.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.core.resumed
    }

    /// Returns how many events recovery appended to close an interrupted turn.
    #[must_use]
    pub fn closed(&self) -> usize {
        self.core.closed
    }

    /// Returns what opening had to move aside.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.core.writer.recovered()
    }

    /// Returns the one door for appends.
    #[must_use]
    pub fn writer(&self) -> &SessionWriter {
        &self.core.writer
    }
}
