//! The servers of all sessions.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use threadline_agent::tools::{Ready, Tool, ToolSource};
use threadline_session::SessionId;

use crate::{
    ConfigError, ServerConfig,
    call::McpTool,
    connection::Connection,
    limits::{IDLE_TIME, SERVERS, SESSION_BYTES, TOLD_BYTES},
    problem::{Problem, cut},
    server::Server,
};

/// The connections of all sessions of this process. Cheap to clone.
///
/// Runs of one session share its connections, and so do its subagents. They are closed when no run
/// has used them for a while, at [`shutdown`](ToolSource::shutdown), and with the process, however
/// that ends.
#[derive(Clone)]
pub struct Servers {
    inner: Arc<Inner>,
}

struct Inner {
    /// What a session has that was assigned nothing.
    usual: Vec<ServerConfig>,
    idle_time: Duration,
    sessions: Mutex<HashMap<SessionId, Entry>>,
    /// Numbers the entries, so that a run lets go of what it has used and not of what came after.
    serial: AtomicU64,
}

struct Entry {
    serial: u64,
    session: Arc<Session>,
    /// Whether its servers are its own, which are kept when it is idle.
    assigned: bool,
    /// Runs that use them.
    uses: usize,
    /// Counts the times that they were begun to be used, so that an old timer does nothing.
    round: u64,
}

struct Session {
    servers: Vec<Arc<Server>>,
    lacks: Mutex<Vec<String>>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("usual", &self.inner.usual.len())
            .field("sessions", &self.inner.sessions().len())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn new(configs: &[ServerConfig]) -> Arc<Self> {
        let enabled = configs.iter().filter(|config| config.enabled);
        Arc::new(Self {
            servers: enabled
                .map(|config| Arc::new(Server::new(config.clone())))
                .collect(),
            lacks: Mutex::default(),
        })
    }

    async fn close(&self) {
        join_all(self.servers.iter().map(|server| server.close())).await;
    }
}

impl Servers {
    /// Makes the source of tools. All sessions have these servers that are not assigned others.
    ///
    /// # Errors
    /// [`ConfigError`] when there are too many, or two of one name.
    pub fn new(usual: Vec<ServerConfig>) -> Result<Self, ConfigError> {
        Self::with_idle_time(usual, IDLE_TIME)
    }

    /// Makes the source of tools with another time after which unused connections are closed.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_idle_time(
        usual: Vec<ServerConfig>,
        idle_time: Duration,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            inner: Arc::new(Inner {
                usual: checked(usual)?,
                idle_time,
                sessions: Mutex::default(),
                serial: AtomicU64::new(0),
            }),
        })
    }

    /// Gives a session servers of its own instead of the usual ones, from its next turn on.
    /// Connections that it has are closed.
    ///
    /// # Errors
    /// As [`new`](Self::new); the session keeps what it has then.
    pub async fn assign(
        &self,
        session: SessionId,
        configs: Vec<ServerConfig>,
    ) -> Result<(), ConfigError> {
        let fresh = Session::new(&checked(configs)?);
        let old = {
            let mut sessions = self.inner.sessions();
            match sessions.get_mut(&session) {
                Some(entry) => {
                    entry.assigned = true;
                    Some(std::mem::replace(&mut entry.session, fresh))
                }
                None => {
                    sessions.insert(session, self.inner.entry(fresh, true));
                    None
                }
            }
        };
        if let Some(old) = old {
            old.close().await;
        }
        Ok(())
    }

    /// Closes the connections of a session and forgets what it was assigned.
    pub async fn forget(&self, session: &SessionId) {
        let entry = self.inner.sessions().remove(session);
        if let Some(entry) = entry {
            entry.session.close().await;
        }
    }
}

/// # Errors
/// When there are too many, or two have one name.
fn checked(configs: Vec<ServerConfig>) -> Result<Vec<ServerConfig>, ConfigError> {
    let wrong = |config: &ServerConfig, problem: String| ConfigError {
        server: config.name.to_string(),
        key: "",
        problem,
    };
    let mut names = BTreeSet::new();
    for config in &configs {
        if !names.insert(&config.name) {
            return Err(wrong(config, "another server has this name".into()));
        }
        if names.len() > SERVERS {
            return Err(wrong(config, format!("{SERVERS} servers are the most")));
        }
    }
    let mut configs = configs;
    configs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(configs)
}

impl Inner {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Entry>> {
        lock(&self.sessions)
    }

    fn entry(&self, session: Arc<Session>, assigned: bool) -> Entry {
        Entry {
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            session,
            assigned,
            uses: 0,
            round: 0,
        }
    }

    fn begin(self: &Arc<Self>, id: &SessionId) -> (Arc<Session>, Hold) {
        let mut sessions = self.sessions();
        let entry = sessions
            .entry(id.clone())
            .or_insert_with(|| self.entry(Session::new(&self.usual), false));
        entry.uses += 1;
        entry.round += 1;
        let hold = Hold {
            inner: self.clone(),
            id: id.clone(),
            serial: entry.serial,
        };
        (entry.session.clone(), hold)
    }

    /// Takes out what is to be closed, if nobody has used it since.
    fn idle(&self, id: &SessionId, serial: u64, round: u64) -> Option<Arc<Session>> {
        let mut sessions = self.sessions();
        let entry = sessions.get(id)?;
        if entry.uses > 0 || (entry.serial, entry.round) != (serial, round) {
            return None;
        }
        if entry.assigned {
            return Some(entry.session.clone());
        }
        sessions.remove(id).map(|entry| entry.session)
    }
}

/// A run that uses the connections of a session.
struct Hold {
    inner: Arc<Inner>,
    id: SessionId,
    serial: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let round = {
            let mut sessions = self.inner.sessions();
            let entry = sessions.get_mut(&self.id);
            let Some(entry) = entry.filter(|entry| entry.serial == self.serial) else {
                return;
            };
            entry.uses = entry.uses.saturating_sub(1);
            if entry.uses > 0 {
                return;
            }
            entry.round
        };
        let (inner, id) = (Arc::downgrade(&self.inner), self.id.clone());
        let (idle_time, serial) = (self.inner.idle_time, self.serial);
        // Outside of a runtime nothing waits, and the connections end with the process.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(idle_time).await;
                let idle = inner
                    .upgrade()
                    .and_then(|inner| inner.idle(&id, serial, round));
                if let Some(session) = idle {
                    session.close().await;
                }
            });
        }
    }
}

#[async_trait]
impl ToolSource for Servers {
    fn serves(&self, session: &SessionId) -> bool {
        let sessions = self.inner.sessions();
        match sessions.get(session) {
            Some(entry) => entry.assigned || !entry.session.servers.is_empty(),
            None => self.inner.usual.iter().any(|config| config.enabled),
        }
    }

    async fn ready(&self, session: &SessionId, cwd: &Path) -> Ready {
        let (session, hold) = self.inner.begin(session);
        let all = session.servers.iter().map(|server| async move {
            let connection = server.ready(cwd).await;
            (server, connection)
        });
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        let mut told = Vec::new();
        let mut lacks = Vec::new();
        let mut room = SESSION_BYTES;
        for (server, connection) in join_all(all).await {
            match connection {
                Ok(connection) => {
                    let listing = connection.listing();
                    let Some(left) = room.checked_sub(listing.bytes()) else {
                        let problem = Problem::new(format!(
                            "the tools of all servers together have {SESSION_BYTES} bytes at most"
                        ));
                        tell_missing(server, &problem, &mut told, &mut lacks);
                        continue;
                    };
                    room = left;
                    tell_connected(server, &connection, &mut told, &mut lacks);
                    tools.extend(listing.tools.iter().map(|tool| {
                        let server = server.clone();
                        let tool = tool.clone();
                        Arc::new(McpTool { server, tool }) as Arc<dyn Tool>
                    }));
                }
                Err(problem) => tell_missing(server, &problem, &mut told, &mut lacks),
            }
        }
        *lock(&session.lacks) = lacks;
        Ready {
            tools,
            told: (!told.is_empty()).then(|| cut(&told.join("\n"), TOLD_BYTES)),
            hold: Some(Box::new(hold)),
        }
    }

    fn lacks(&self, session: &SessionId) -> Vec<String> {
        let session = self
            .inner
            .sessions()
            .get(session)
            .map(|entry| entry.session.clone());
        session
            .map(|session| lock(&session.lacks).clone())
            .unwrap_or_default()
    }

    async fn shutdown(&self) {
        let entries: Vec<Entry> = self
            .inner
            .sessions()
            .drain()
            .map(|(_, entry)| entry)
            .collect();
        join_all(entries.iter().map(|entry| entry.session.close())).await;
    }
}

fn tell_connected(
    server: &Server,
    connection: &Connection,
    told: &mut Vec<String>,
    lacks: &mut Vec<String>,
) {
    let name = &server.config.name;
    if let Some(instructions) = &connection.instructions {
        told.push(format!(
            "MCP server `{name}` says of its tools:\n{instructions}"
        ));
    }
    for sentence in &connection.listing().left_out {
        told.push(format!("MCP server `{name}`: {sentence}."));
        lacks.push(format!("MCP server `{name}`: {sentence}"));
    }
}

fn tell_missing(
    server: &Server,
    problem: &Problem,
    told: &mut Vec<String>,
    lacks: &mut Vec<String>,
) {
    let name = &server.config.name;
    let reason = &problem.reason;
    told.push(format!(
        "MCP server `{name}` is missing, so there are none of its tools: {reason}."
    ));
    lacks.push(format!("MCP server `{name}` is missing: {problem}"));
}
