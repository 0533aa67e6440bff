//! A connection to one server, whatever the way.

use std::{
    collections::{HashMap, VecDeque},
    error::Error as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ClientRequest, ErrorCode, ErrorData, Implementation,
        ListToolsRequest, NumberOrString, PaginatedRequestParams, ProgressNotificationParam,
        ProgressToken, ProtocolVersion, RootsCapabilities,
    },
    service::{
        ClientInitializeError, MaybeSendFuture, NotificationContext, Peer, RequestContext,
        RoleClient, RunningService, ServiceError, serve_client,
    },
    transport::async_rw::AsyncRwTransport,
};
use serde_json::Value;
use threadline_agent::tools::Companion;
use tokio::sync::mpsc;

use crate::{
    ServerConfig, Transport,
    http::{self, Way},
    limits::{
        END_TIME, INSTRUCTIONS_BYTES, MESSAGE_BYTES, PAGES, PROGRESS_BYTES, PROGRESS_NOTES, TOOLS,
    },
    listing::{self, Listing},
    problem::{Problem, block, line, short},
    stdio::{self, Words},
};

/// A connection whose server is ready.
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    service: tokio::sync::Mutex<Option<RunningService<RoleClient, Handler>>>,
    /// The process at the other end, if there is one.
    companion: tokio::sync::Mutex<Option<Companion>>,
    words: Words,
    pub(crate) routes: Routes,
    changed: Arc<AtomicBool>,
    listing: Mutex<Arc<Listing>>,
    /// What the server says of itself for the model.
    pub(crate) instructions: Option<String>,
}

impl Connection {
    /// Connects to a server and asks for its tools, within the time that it has for both.
    pub(crate) async fn open(config: &ServerConfig, cwd: &Path) -> Result<Self, Problem> {
        let opening = Box::pin(Self::open_now(config, cwd));
        match tokio::time::timeout(config.start_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Problem {
                late: true,
                ..Problem::new(format!(
                    "it was not ready within {} s",
                    config.start_timeout.as_secs_f64()
                ))
            }),
        }
    }

    async fn open_now(config: &ServerConfig, cwd: &Path) -> Result<Self, Problem> {
        let routes = Routes::default();
        let changed = Arc::new(AtomicBool::new(false));
        let handler = Handler {
            server: config.name.to_string(),
            root: reqwest::Url::from_file_path(cwd).ok().map(String::from),
            routes: routes.clone(),
            changed: changed.clone(),
        };
        let (service, companion, words) = match &config.transport {
            Transport::Http { url, headers } => {
                let transport = http::transport(url, headers)?;
                let served = serve_client(handler, transport).await;
                (
                    served.map_err(|error| refused(&error))?,
                    None,
                    Words::default(),
                )
            }
            stdio @ Transport::Stdio { .. } => {
                let started = stdio::start(&config.name, stdio, cwd).await?;
                let (words, listener) = (started.words, started.listener);
                let transport = AsyncRwTransport::new_client(started.stdout, started.stdin)
                    .with_max_line_length(MESSAGE_BYTES + 1);
                let mut companion = started.companion;
                match serve_client(handler, transport).await {
                    Ok(service) => (service, Some(companion), words),
                    Err(error) => {
                        let reason = died(stdio, &error, &mut companion, &words).await;
                        // All that it said, if its process is gone.
                        let _ = tokio::time::timeout(END_TIME, listener).await;
                        return Err(Problem {
                            detail: words.last_line(),
                            ..Problem::new(reason)
                        });
                    }
                }
            }
        };
        let instructions = service
            .peer_info()
            .and_then(|info| info.instructions.clone())
            .map(|text| block(&text, INSTRUCTIONS_BYTES))
            .filter(|text| !text.is_empty());
        let connection = Self {
            peer: service.peer().clone(),
            service: tokio::sync::Mutex::new(Some(service)),
            companion: tokio::sync::Mutex::new(companion),
            words,
            routes,
            changed,
            listing: Mutex::default(),
            instructions,
        };
        connection.list(config).await?;
        Ok(connection)
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns whether the other end is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Returns why this side ended the connection, if it did.
    pub(crate) fn ended(&self) -> Option<&'static str> {
        self.words.ended()
    }

    /// Returns the tools as they were listed last.
    pub(crate) fn listing(&self) -> Arc<Listing> {
        lock(&self.listing).clone()
    }

    /// Returns, once, whether the server says that its tools have changed.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// Has the tools asked for again.
    pub(crate) fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    /// Asks for the tools.
    pub(crate) async fn list(&self, config: &ServerConfig) -> Result<(), Problem> {
        let mut items: Vec<Value> = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
            let answered = match self.peer.send_request(request).await {
                Ok(answered) => answered,
                // It has none.
                Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                    break;
                }
                Err(error) => return Err(self.not_listed(&error)),
            };
            // As plain JSON, so that one tool that is not as it should be hides no other.
            let mut answered = serde_json::to_value(answered).unwrap_or_default();
            let Some(Value::Array(page)) = answered.get_mut("tools").map(Value::take) else {
                return Err(Problem::new("its list of tools cannot be read"));
            };
            items.extend(page);
            cursor = answered
                .get("nextCursor")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if cursor.is_none() || items.len() > 2 * TOOLS {
                break;
            }
        }
        *lock(&self.listing) = Arc::new(listing::read(config, items));
        Ok(())
    }

    fn not_listed(&self, error: &ServiceError) -> Problem {
        let reason = match (self.ended(), error) {
            (Some(ended), _) => ended.to_owned(),
            (None, ServiceError::McpError(error)) => {
                format!("it does not list its tools: {}", said(error))
            }
            (None, _) => "the connection broke while it listed its tools".into(),
        };
        Problem {
            detail: self.words.last_line(),
            ..Problem::new(reason)
        }
    }

    /// Ends the connection and waits until the process is gone. It gets a moment to end by itself.
    pub(crate) async fn close(&self) {
        if let Some(mut service) = self.service.lock().await.take() {
            let closed = service.close_with_timeout(END_TIME).await;
            tracing::debug!(?closed, "a server's connection is closed");
        }
        if let Some(mut companion) = self.companion.lock().await.take() {
            let ended = tokio::time::timeout(END_TIME, companion.exited()).await;
            if ended.is_err() {
                companion.kill();
                companion.exited().await;
            }
        }
    }
}

/// What is told of an error that a server answers with.
pub(crate) fn said(error: &ErrorData) -> String {
    format!("error {}: {}", error.code.0, short(&error.message))
}

/// Why a server over HTTP cannot be used.
fn refused(error: &ClientInitializeError) -> Problem {
    if let ClientInitializeError::JsonRpcError(error) = error {
        return Problem::new(format!("it answered with {}", said(error)));
    }
    let way = match error {
        ClientInitializeError::TransportError { error, .. } => http::way(error.error.as_ref()),
        other => other.source().map_or(Way::Unknown, http::way),
    };
    tracing::debug!(?error, "a server cannot be connected to");
    Problem::new(match way {
        Way::NotSent => "it cannot be reached".to_owned(),
        Way::Refused(how) => format!("it refuses the connection: {how}"),
        Way::Broken => "the connection to it broke".to_owned(),
        Way::Unknown => "its answer is not that of an MCP server".to_owned(),
    })
}

/// Why a server's program cannot be used.
async fn died(
    transport: &Transport,
    error: &ClientInitializeError,
    companion: &mut Companion,
    words: &Words,
) -> String {
    match (words.ended(), error) {
        (Some(ended), _) => ended.to_owned(),
        (None, ClientInitializeError::JsonRpcError(error)) => {
            format!("it answered with {}", said(error))
        }
        (None, error) => match tokio::time::timeout(END_TIME, companion.exited()).await {
            Ok(status) => stdio::ending(transport, status),
            Err(_) => {
                tracing::debug!(%error, "a server cannot be connected to");
                "its answer is not that of an MCP server".to_owned()
            }
        },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leads notes about progress to the calls that they are about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Routes(Arc<Mutex<Ways>>);

#[derive(Debug, Default)]
struct Ways {
    open: HashMap<NumberOrString, mpsc::Sender<String>>,
    /// Notes that came before their call was known: its number is told only once it is sent.
    early: VecDeque<(NumberOrString, String)>,
}

/// The notes of one call; none come after it is dropped.
pub(crate) struct Notes {
    routes: Routes,
    token: NumberOrString,
    notes: mpsc::Receiver<String>,
}

impl Notes {
    /// Waits for the next note. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.notes.recv().await
    }

    /// Returns a note that is there already.
    pub(crate) fn at_hand(&mut self) -> Option<String> {
        self.notes.try_recv().ok()
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        lock(&self.routes.0).open.remove(&self.token);
    }
}

impl Routes {
    pub(crate) fn of(&self, token: &ProgressToken) -> Notes {
        let (sender, notes) = mpsc::channel(PROGRESS_NOTES);
        let token = token.0.clone();
        let mut ways = lock(&self.0);
        ways.early.retain(|(early, note)| {
            let mine = *early == token;
            if mine {
                // A server that says more than there is room for is not waited for.
                let _ = sender.try_send(note.clone());
            }
            !mine
        });
        ways.open.insert(token.clone(), sender);
        drop(ways);
        Notes {
            routes: self.clone(),
            token,
            notes,
        }
    }

    fn lead(&self, token: NumberOrString, note: String) {
        let mut ways = lock(&self.0);
        match ways.open.get(&token) {
            Some(sender) => {
                let _ = sender.try_send(note);
            }
            None => {
                if ways.early.len() >= PROGRESS_NOTES {
                    ways.early.pop_front();
                }
                ways.early.push_back((token, note));
            }
        }
    }
}

/// What a server may ask of this side: where it works, and nothing else.
pub(crate) struct Handler {
    server: String,
    root: Option<String>,
    routes: Routes,
    changed: Arc<AtomicBool>,
}

#[expect(
    deprecated,
    reason = "servers of the versions that are in use ask for roots"
)]
impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        let this = Implementation::new("threadline", env!("CARGO_PKG_VERSION"));
        // The newest version that begins with `initialize`, as all servers do.
        ClientConfig::new(capabilities, this).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<rmcp::model::ListRootsResult, ErrorData>> + MaybeSendFuture + '_
    {
        let roots = self.root.iter().map(rmcp::model::Root::new).collect();
        std::future::ready(Ok(rmcp::model::ListRootsResult::new(roots)))
    }

    fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        let of = params
            .total
            .map_or(String::new(), |total| format!("/{total}"));
        let mut note = format!("[{}{of}]", params.progress);
        if let Some(message) = params.message {
            note.push(' ');
            note.push_str(&crate::problem::cut(&line(&message), PROGRESS_BYTES));
        }
        note.push('\n');
        self.routes.lead(params.progress_token.0, note);
        std::future::ready(())
    }

    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        self.changed.store(true, Ordering::Release);
        std::future::ready(())
    }

    fn on_logging_message(
        &self,
        params: rmcp::model::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        tracing::debug!(server = self.server, "{}", short(&params.data.to_string()));
        std::future::ready(())
    }
}
