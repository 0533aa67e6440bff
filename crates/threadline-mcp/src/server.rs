//! One server of a session: connected to when it is needed, and again when it died.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{sync::Mutex, time::Instant};

use crate::{ServerConfig, connection::Connection, limits::REST_TIME, problem::Problem};

/// A server and how it stands.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The folder that the session worked in when it was connected to last.
    cwd: PathBuf,
    connection: Option<Arc<Connection>>,
    failed: Option<(Problem, Instant)>,
}

impl Server {
    pub(crate) fn new(config: ServerConfig) -> Self {
        Self {
            config,
            state: Mutex::default(),
        }
    }

    /// Returns the connection with its newest tools, for a turn that begins.
    pub(crate) async fn ready(&self, cwd: &Path) -> Result<Arc<Connection>, Problem> {
        let mut state = self.state.lock().await;
        let connection = self.connected(&mut state, cwd).await?;
        if connection.take_changed() {
            let listing = connection.list(&self.config);
            let listed = tokio::time::timeout(self.config.start_timeout, listing).await;
            let late = || Err(Problem::new("it does not list its tools in time"));
            listed
                .unwrap_or_else(|_| late())
                .inspect_err(|_| connection.set_changed())?;
        }
        Ok(connection)
    }

    /// Returns the connection for a call; when it broke, another one is made, once.
    pub(crate) async fn connection(&self, cwd: &Path) -> Result<Arc<Connection>, Problem> {
        let mut state = self.state.lock().await;
        self.connected(&mut state, cwd).await
    }

    async fn connected(&self, state: &mut State, cwd: &Path) -> Result<Arc<Connection>, Problem> {
        let moved = state.cwd != cwd;
        if let Some(connection) = &state.connection {
            if !moved && !connection.is_dead() {
                return Ok(connection.clone());
            }
            let old = state.connection.take();
            // What is left of it ends beside, so that nobody waits for it.
            tokio::spawn(async move {
                if let Some(old) = old {
                    old.close().await;
                }
            });
        }
        if let Some((problem, since)) = &state.failed
            && problem.late
            && !moved
            && since.elapsed() < REST_TIME
        {
            return Err(problem.clone());
        }
        cwd.clone_into(&mut state.cwd);
        match Connection::open(&self.config, cwd).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(connection.clone());
                state.failed = None;
                Ok(connection)
            }
            Err(problem) => {
                tracing::debug!(server = %self.config.name, %problem, "a server is missing");
                state.failed = Some((problem.clone(), Instant::now()));
                Err(problem)
            }
        }
    }

    /// Ends the connection.
    pub(crate) async fn close(&self) {
        let connection = self.state.lock().await.connection.take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }
}
