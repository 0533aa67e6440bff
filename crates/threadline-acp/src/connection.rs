//! One client: its lines are read here, and every request is worked on in a task of its own.
//!
//! The reading never waits for the client. What must be known before the next line is read, such as
//! that a prompt is there to be cancelled, is noted while the line is read.

use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol_schema::v1::{Error, SessionNotification, SessionUpdate};
use serde::Deserialize;
use serde_json::{Value, json};
use threadline_agent::Agents;
use threadline_session::SessionId;
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    lent::Offered,
    limits::{LAST_WORDS, REQUESTS_AT_ONCE},
    mcp::Pool,
    methods,
    rpc::{self, Id, Incoming, Params, Peer, invalid_request, unreadable},
    sessions::{Open, Sessions},
    transport::{Gone, Line, Lines, outbox},
};

/// Says why a client could not be served any more. Its sessions are in order all the same.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What the client sends cannot be read.
    #[error("the client cannot be read: {0}")]
    Read(#[source] std::io::Error),
}

/// What a connection is made of. One for each client.
pub(crate) struct Connection {
    pub(crate) agents: Agents,
    /// MCP servers, when the agents have them as a source of tools.
    pub(crate) pool: Option<Pool>,
    pub(crate) peer: Peer,
    pub(crate) sessions: Sessions,
    /// Who the client is, as approvals name it.
    pub(crate) client: Mutex<String>,
    /// What the client does for its agent.
    pub(crate) offered: Mutex<Offered>,
    /// Everything that is worked on.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when no run is begun any more.
    pub(crate) closing: CancellationToken,
    slots: Arc<Semaphore>,
}

/// Serves one client until it ends its input, reads no more, or `shutdown` is cancelled. On return
/// every run has ended, its end is in the log, and its tools and MCP servers are gone.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(
    agents: Agents,
    pool: Option<Pool>,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (outbox, outgoing) = outbox();
    let mut writes = tokio::spawn(outgoing.write_to(writer));
    let connection = Arc::new(Connection {
        agents,
        pool,
        peer: Peer::new(outbox),
        sessions: Sessions::default(),
        client: Mutex::new("acp".into()),
        offered: Mutex::default(),
        tasks: TaskTracker::new(),
        closing: CancellationToken::new(),
        slots: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)),
    });
    let mut lines = Lines::new(BufReader::new(reader));
    let read = tokio::select! {
        read = connection.read(&mut lines) => read,
        () = connection.peer.closed() => Ok(()),
        () = shutdown.cancelled() => Ok(()),
    };
    connection.finish().await;
    drop(connection);
    // Answers that are still to be read; a client that does not read is not waited for.
    match timeout(LAST_WORDS, &mut writes).await {
        Ok(Ok(Err(error))) => tracing::debug!(%error, "the client reads no more"),
        Ok(_) => {}
        Err(_) => writes.abort(),
    }
    read.map_err(ServeError::Read)
}

impl Connection {
    async fn read<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        lines: &mut Lines<BufReader<R>>,
    ) -> std::io::Result<()> {
        loop {
            let taken = match lines.next().await? {
                Line::End => return Ok(()),
                Line::TooLong => Err(unreadable("the line is too long")),
                Line::NotUtf8 => Err(unreadable("the line is no UTF-8")),
                Line::Text(line) => rpc::parse(&line),
            };
            let answered = match taken {
                Ok(incoming) => self.take(incoming).await,
                Err(refused) => {
                    let error = Err::<(), _>(*refused.error);
                    self.peer.respond(&refused.id, error).await
                }
            };
            if answered.is_err() {
                return Ok(());
            }
        }
    }

    async fn take(self: &Arc<Self>, incoming: Incoming) -> Result<(), Gone> {
        match incoming {
            Incoming::Response { id, answer } => self.peer.answered(&id, answer),
            Incoming::Notification { method, params } => self.notified(&method, &params),
            Incoming::Request { id, method, params } => {
                let Ok(slot) = self.slots.clone().try_acquire_owned() else {
                    let error = invalid_request(&format!(
                        "{REQUESTS_AT_ONCE} requests are being worked on already"
                    ));
                    return self.peer.respond(&id, Err::<(), _>(error)).await;
                };
                let connection = self.clone();
                match methods::begin(&connection, id.clone(), &method, &params) {
                    Ok(work) => {
                        self.tasks.spawn(async move {
                            work.await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        self.tasks.spawn(async move {
                            // Nobody is there to be told that nobody reads.
                            let _ = connection.peer.respond(&id, Err::<(), _>(error)).await;
                            drop(slot);
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn notified(&self, method: &str, params: &Params) {
        match method {
            "session/cancel" => {
                if let Ok(cancel) = params.read::<Cancel>()
                    && let Some(open) = self.sessions.get(&cancel.session_id)
                {
                    open.cancel(&self.agents, None);
                }
            }
            "$/cancel_request" => {
                if let Ok(cancel) = params.read::<CancelRequest>() {
                    for open in self.sessions.all() {
                        if open.has(&cancel.request_id) {
                            open.cancel(&self.agents, Some(&cancel.request_id));
                        }
                    }
                }
            }
            _ => tracing::debug!(method, "a notification of an unknown kind is passed over"),
        }
    }

    /// Ends all runs. Their ends are on stable storage then, and what is to be told of them is on
    /// its way.
    async fn finish(&self) {
        self.closing.cancel();
        for open in self.sessions.all() {
            open.cancel(&self.agents, None);
            self.take_back(&open);
            if let Some(asking) = open.state().offer.take() {
                asking.over.cancel();
            }
        }
        // Whatever the client does, runs and their tools are waited for.
        self.agents.shutdown().await;
        self.tasks.close();
        if timeout(LAST_WORDS, self.tasks.wait()).await.is_err() {
            tracing::debug!("the client does not read what is left to be told");
        }
        // A run that had just begun while the others were ended.
        self.agents.shutdown().await;
        if let Some(source) = &self.agents.config().source {
            source.shutdown().await;
        }
    }

    /// Sends an update of a session.
    ///
    /// # Errors
    /// [`Gone`].
    pub(crate) async fn update(&self, id: &SessionId, update: SessionUpdate) -> Result<(), Gone> {
        let notification = SessionNotification::new(id.as_str().to_owned(), update);
        self.peer.notify("session/update", notification).await
    }

    /// Answers a request.
    pub(crate) async fn respond(&self, id: &Id, answer: Result<impl serde::Serialize, Error>) {
        // A client that is gone needs no answer.
        let _ = self.peer.respond(id, answer).await;
    }

    /// Returns what the client has offered.
    pub(crate) fn offered(&self) -> Offered {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.clone()
    }

    /// Opens a session, and lends to it what the client offers.
    ///
    /// # Errors
    /// Says that too many are open.
    pub(crate) fn open(&self, open: Open) -> Result<Arc<Open>, Error> {
        let open = self.sessions.open(open)?;
        self.lend(&open);
        Ok(open)
    }

    /// Returns who answers approvals.
    pub(crate) fn client(&self) -> String {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancel {
    session_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelRequest {
    request_id: Value,
}

/// Returns the error of a session that is not there, or not open.
pub(crate) fn not_found(id: &str) -> Error {
    Error::new(
        -32002,
        "Session not found: list the sessions with `session/list`, and open one with \
         `session/load` or `session/resume`",
    )
    .data(json!({ "sessionId": id }))
}

/// Returns an error that a code of ours tells more about.
pub(crate) fn failed(code: &str, message: &str, hint: Option<String>) -> Error {
    let message = match &hint {
        Some(hint) => format!("{message}; {hint}"),
        None => message.to_owned(),
    };
    Error::new(-32603, message).data(json!({ "code": code, "hint": hint }))
}
