//! What the client offers to do for tools: the texts of files as its editor holds them, and its
//! terminals.
//!
//! Requests are made by tools, in the tasks of their runs, never where lines are read. Each has a
//! time of its own and ends with its call. Nothing here outlives the connection.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use agent_client_protocol_schema::v1::{
    CLIENT_METHOD_NAMES, CancelRequestNotification, CreateTerminalRequest, CreateTerminalResponse,
    FileSystemCapabilities, KillTerminalRequest, ReadTextFileRequest, ReadTextFileResponse,
    ReleaseTerminalRequest, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
};
use serde::{Serialize, de::DeserializeOwned};
use threadline_agent::{
    Lent,
    tools::{
        CallSession, ClientCommand, ClientError, ClientFiles, ClientTerminal, ClientTerminals,
        TerminalExit, TerminalOutput,
    },
};
use threadline_session::RunId;
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    connection::Connection,
    limits::{
        FILE_READ_TIME, FILE_WRITE_TIME, TERMINAL_ANSWER_TIME, TERMINAL_SHOW_TIME,
        TERMINAL_START_TIME,
    },
    rpc::{Asked, Peer},
    sessions::Open,
};

/// What a client has said that it does for its agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) fs: FileSystemCapabilities,
    pub(crate) terminal: bool,
}

/// The client, as the tools of one session ask it.
#[derive(Clone)]
struct Client {
    peer: Peer,
    session: Arc<str>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

fn unclear(reason: impl Into<String>) -> ClientError {
    ClientError::Unclear {
        reason: reason.into(),
    }
}

fn silent(time: Duration) -> ClientError {
    unclear(format!("it has not answered within {} s", time.as_secs()))
}

fn gone() -> ClientError {
    unclear("the connection has ended")
}

impl Client {
    /// Sends a request and waits for its answer.
    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<T, ClientError> {
        let mut sent = None;
        let answered = async {
            let asked = self.peer.request(method, params).await;
            let asked = sent.insert(asked.map_err(|_| gone())?);
            read(asked).await
        };
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ClientError::Cancelled),
            answered = timeout(time, answered) => match answered {
                Ok(answered) => return answered,
                Err(_) => Err(silent(time)),
            },
        };
        if let Some(asked) = sent {
            self.cancel(&asked);
        }
        ended
    }

    /// Tells the client that an answer is not waited for any more.
    fn cancel(&self, asked: &Asked) {
        let notification = CancelRequestNotification::new(asked.id.cast_signed());
        let peer = self.peer.clone();
        self.tasks.spawn(async move {
            // A client that is gone need not be told.
            let _ = peer.notify("$/cancel_request", notification).await;
        });
    }

    /// Sends a request whose answer says nothing that anybody needs.
    async fn tell(&self, method: &str, params: impl Serialize) {
        let sent = self.peer.request(method, params);
        let _ = timeout(TERMINAL_ANSWER_TIME, sent).await;
    }
}

/// Waits for an answer. One that says nothing useful is taken for none: something may have been
/// done.
async fn read<T: DeserializeOwned>(asked: &mut Asked) -> Result<T, ClientError> {
    match asked.answer().await {
        None => Err(gone()),
        Some(Err(error)) => Err(ClientError::Refused {
            reason: error.message,
        }),
        Some(Ok(raw)) => {
            serde_json::from_str(raw.get()).map_err(|_| unclear("its answer cannot be read"))
        }
    }
}

/// The texts of files.
#[derive(Debug)]
struct Files {
    client: Client,
    fs: FileSystemCapabilities,
}

#[async_trait::async_trait]
impl ClientFiles for Files {
    fn reads(&self) -> bool {
        self.fs.read_text_file
    }

    fn writes(&self) -> bool {
        self.fs.write_text_file
    }

    async fn read(&self, path: &Path, cancel: &CancellationToken) -> Result<String, ClientError> {
        let request = ReadTextFileRequest::new(self.client.session.to_string(), path);
        let method = CLIENT_METHOD_NAMES.fs_read_text_file;
        let answer = self
            .client
            .call::<ReadTextFileResponse>(method, request, FILE_READ_TIME, cancel)
            .await;
        answer.map(|answer| answer.content)
    }

    async fn write(
        &self,
        path: &Path,
        text: &str,
        cancel: &CancellationToken,
    ) -> Result<(), ClientError> {
        let request = WriteTextFileRequest::new(self.client.session.to_string(), path, text);
        let method = CLIENT_METHOD_NAMES.fs_write_text_file;
        // Whatever it says besides an error, it has done it.
        self.client
            .call::<serde::de::IgnoredAny>(method, request, FILE_WRITE_TIME, cancel)
            .await
            .map(drop)
    }
}

/// A terminal that is to be shown with its call.
pub(crate) struct Shown {
    pub(crate) run_id: RunId,
    pub(crate) call_id: String,
    pub(crate) id: TerminalId,
    /// Cancelled once the client has it in the call's content.
    pub(crate) done: CancellationToken,
}

/// The terminals.
struct Terminals {
    client: Client,
    open: Weak<Open>,
}

impl fmt::Debug for Terminals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminals")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ClientTerminals for Terminals {
    async fn start(
        &self,
        call: &CallSession,
        command: ClientCommand,
        cancel: &CancellationToken,
    ) -> Result<Box<dyn ClientTerminal>, ClientError> {
        let client = &self.client;
        let request = CreateTerminalRequest::new(client.session.to_string(), command.program)
            .args(command.args)
            .cwd(command.cwd)
            .output_byte_limit(command.output_bytes);
        let method = CLIENT_METHOD_NAMES.terminal_create;
        let mut sent = None;
        let created = async {
            let asked = client.peer.request(method, request).await;
            let asked = sent.insert(asked.map_err(|_| gone())?);
            read::<CreateTerminalResponse>(asked).await
        };
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => ClientError::Cancelled,
            created = timeout(TERMINAL_START_TIME, created) => match created {
                Ok(Ok(created)) => return Ok(Box::new(self.begun(call, created.terminal_id))),
                Ok(Err(error)) => return Err(error),
                Err(_) => silent(TERMINAL_START_TIME),
            },
        };
        if let Some(asked) = sent {
            client.cancel(&asked);
            client.tasks.spawn(end_late(client.clone(), asked));
        }
        Err(ended)
    }
}

impl Terminals {
    fn begun(&self, call: &CallSession, id: TerminalId) -> Terminal {
        let done = CancellationToken::new();
        if let Some(open) = self.open.upgrade() {
            open.state().terminals.push(Shown {
                run_id: call.run_id().clone(),
                call_id: call.call_id().to_owned(),
                id: id.clone(),
                done: done.clone(),
            });
            open.poke.notify_one();
        }
        Terminal {
            client: self.client.clone(),
            open: self.open.clone(),
            id,
            shown: done,
        }
    }
}

/// A command that was started too late is ended.
async fn end_late(client: Client, mut asked: Asked) {
    let created = tokio::select! {
        biased;
        () = client.closing.cancelled() => return,
        created = read::<CreateTerminalResponse>(&mut asked) => created,
    };
    if let Ok(created) = created {
        let id = created.terminal_id;
        let kill = KillTerminalRequest::new(client.session.to_string(), id.clone());
        client.tell(CLIENT_METHOD_NAMES.terminal_kill, kill).await;
        let release = ReleaseTerminalRequest::new(client.session.to_string(), id);
        client
            .tell(CLIENT_METHOD_NAMES.terminal_release, release)
            .await;
    }
}

/// One terminal.
struct Terminal {
    client: Client,
    open: Weak<Open>,
    id: TerminalId,
    shown: CancellationToken,
}

impl Terminal {
    fn session(&self) -> String {
        self.client.session.to_string()
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<T, ClientError> {
        // Whoever ends does not wait; that a call is cancelled is no reason not to end its command.
        let closing = &self.client.closing;
        let called = self
            .client
            .call(method, params, TERMINAL_ANSWER_TIME, closing)
            .await;
        called.map_err(|error| match error {
            ClientError::Cancelled => gone(),
            error => error,
        })
    }
}

#[async_trait::async_trait]
impl ClientTerminal for Terminal {
    async fn output(&self) -> Result<TerminalOutput, ClientError> {
        let request = TerminalOutputRequest::new(self.session(), self.id.clone());
        let method = CLIENT_METHOD_NAMES.terminal_output;
        let answer: TerminalOutputResponse = self.call(method, request).await?;
        Ok(TerminalOutput {
            text: answer.output,
            truncated: answer.truncated,
        })
    }

    async fn exited(&self) -> Result<TerminalExit, ClientError> {
        let request = WaitForTerminalExitRequest::new(self.session(), self.id.clone());
        let method = CLIENT_METHOD_NAMES.terminal_wait_for_exit;
        let asked = self.client.peer.request(method, request).await;
        let mut asked = asked.map_err(|_| gone())?;
        let answer: WaitForTerminalExitResponse = read(&mut asked).await?;
        Ok(TerminalExit {
            code: answer.exit_status.exit_code,
            signal: answer.exit_status.signal,
        })
    }

    async fn kill(&self) -> Result<(), ClientError> {
        let request = KillTerminalRequest::new(self.session(), self.id.clone());
        let method = CLIENT_METHOD_NAMES.terminal_kill;
        if self.client.closing.is_cancelled() {
            self.client.tell(method, request).await;
            return Err(gone());
        }
        let answer: Result<serde::de::IgnoredAny, _> = self.call(method, request).await;
        answer.map(drop)
    }

    async fn release(&self) {
        // A terminal is in the content of its call before it is released, or it is never shown.
        tokio::select! {
            biased;
            () = self.client.closing.cancelled() => {}
            () = self.shown.cancelled() => {}
            () = sleep(TERMINAL_SHOW_TIME) => {}
        }
        if let Some(open) = self.open.upgrade() {
            open.state().terminals.retain(|shown| shown.id != self.id);
        }
        let request = ReleaseTerminalRequest::new(self.session(), self.id.clone());
        self.client
            .tell(CLIENT_METHOD_NAMES.terminal_release, request)
            .await;
    }
}

impl Connection {
    /// Lends to a session what the client offers.
    pub(crate) fn lend(&self, open: &Arc<Open>) {
        let offered = self.offered();
        let Offered { fs, terminal } = offered;
        let client = Client {
            peer: self.peer.clone(),
            session: open.id.as_str().into(),
            tasks: self.tasks.clone(),
            closing: self.closing.clone(),
        };
        let mut lent = Lent::default();
        if fs.read_text_file || fs.write_text_file {
            let client = client.clone();
            lent.files = Some(Arc::new(Files { client, fs }));
        }
        if terminal {
            let open = Arc::downgrade(open);
            lent.terminals = Some(Arc::new(Terminals { client, open }));
        }
        let lent = Arc::new(lent);
        self.agents.lend(open.id.clone(), lent.clone());
        open.state().lent = Some(lent);
    }

    /// Takes back what a session was lent.
    pub(crate) fn take_back(&self, open: &Open) {
        if let Some(lent) = open.state().lent.take() {
            self.agents.take_back(&open.id, &lent);
        }
    }
}
