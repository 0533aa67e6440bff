//! Putting the parts together, and taking them down in order.

use std::{
    any::Any,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::Arc,
};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    response::{IntoResponse, Response},
    serve::ListenerExt as _,
};
use threadline_agent::{Agents, policy::Bounds};
use threadline_session::payload::{ApprovalPolicy, SandboxMode};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::{
    auth::{self, Hosts},
    error::{Code, Problem},
    limits::{BODY_BYTES, SHUTDOWN_GRACE},
    metrics::{self, Metrics},
    page, routes,
    state::{Shared, State},
};

/// What a server is made from.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The agents, with their store, models and defaults.
    pub agents: Agents,
    /// The token that every request but `/healthz` must carry. An empty one opens nothing.
    pub token: String,
    /// The most freedom that a client may ask for.
    pub ceiling: Bounds,
    /// Names besides this machine's own that the server answers to, as `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// The version that clients are told.
    pub version: String,
    /// Whether the model is the offline demonstration.
    pub demonstration: bool,
}

impl ServerConfig {
    /// Makes a configuration without a ceiling and without further names.
    #[must_use]
    pub fn new(agents: Agents, token: impl Into<String>) -> Self {
        Self {
            agents,
            token: token.into(),
            ceiling: (ApprovalPolicy::Never, SandboxMode::DangerFullAccess),
            allowed_hosts: Vec::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            demonstration: false,
        }
    }
}

/// Makes the router of a server that listens on this machine only.
pub fn router(config: ServerConfig) -> Router {
    build(&shared(config, Ipv4Addr::LOCALHOST.into()))
}

fn shared(config: ServerConfig, listen: IpAddr) -> Shared {
    Arc::new(State {
        agents: config.agents,
        token: config.token,
        ceiling: config.ceiling,
        hosts: Hosts {
            allowed: config.allowed_hosts,
            listen,
        },
        version: config.version,
        demonstration: config.demonstration,
        metrics: Metrics::default(),
        checking: tokio::sync::Mutex::default(),
        changes: watch::Sender::default(),
        stopping: CancellationToken::new(),
        closing: CancellationToken::new(),
    })
}

fn build(shared: &Shared) -> Router {
    let mut router = Router::new();
    for route in routes::table() {
        router = router.route(route.path, route.handler);
    }
    // The last layer is the outermost: everything is counted, also what is refused or breaks.
    router
        .fallback(page::fallback)
        .method_not_allowed_fallback(page::wrong_method_fallback)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn_with_state(shared.clone(), auth::guard))
        .layer(CatchPanicLayer::custom(broken))
        .layer(middleware::from_fn(auth::harden))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            metrics::count,
        ))
        .with_state(shared.clone())
}

fn broken(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    tracing::error!(
        panic = text.as_deref().unwrap_or("unknown"),
        "a handler panicked"
    );
    Problem::new(
        Code::Internal,
        "the server made a mistake; its log says more",
    )
    .into_response()
}

/// Serves until `shutdown` completes, then stops in order: nothing new is accepted, runs are
/// cancelled and their ends logged, event streams end, and connections get a moment to finish.
///
/// # Errors
/// When the token cannot be used, or the listener fails.
pub async fn serve(
    listener: TcpListener,
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    auth::check_token(&config.token)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let listen = listener.local_addr()?.ip();
    let shared = shared(config, listen);
    let stopping = shared.stopping.clone();
    // Small messages of event streams must not wait for more to fill a packet.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let serving = axum::serve(listener, build(&shared))
        .with_graceful_shutdown(stopping.clone().cancelled_owned());
    let mut serving = pin!(async { serving.await });
    let mut ending = pin!(async {
        shutdown.await;
        stopping.cancel();
        shared.agents.shutdown().await;
        // A run may have been on its way when the others were cancelled.
        shared.agents.shutdown().await;
        shared.closing.cancel();
    });
    tokio::select! {
        served = &mut serving => {
            // Without connections the server is done at once, and the runs are not.
            if stopping.is_cancelled() {
                ending.await;
            }
            return served;
        }
        () = &mut ending => {}
    }
    // Whoever does not read its answer for so long does not read it at all.
    tokio::time::timeout(SHUTDOWN_GRACE, serving)
        .await
        .unwrap_or(Ok(()))
}
