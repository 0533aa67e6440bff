//! `threadline serve`: the web page and the HTTP API, until a signal ends it in good order.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    process::Stdio,
};

use threadline_agent::{Agents, AgentsConfig};
use threadline_server::{ServerConfig, check_listen, check_token, page_is_built};
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::{
    address::Address,
    args::Serve,
    failure::{Exit, Failure, Outcome},
    providers, run,
    settings::Settings,
    signals,
    store::{self, Purpose},
    text,
    ui::{Tone, Ui},
};

/// A kept token shorter than this was not made here.
const MIN_TOKEN: usize = 32;

pub(crate) async fn serve(ui: Ui, settings: &Settings, args: Serve) -> Outcome<Exit> {
    let address = resolve(&args.listen).await?;
    let refused = |error: threadline_server::ListenError| {
        Failure::usage(error.to_string())
            .hint("name a token: `threadline serve --listen ADDRESS --token TOKEN`")
    };
    check_listen(address, args.token.is_some()).map_err(refused)?;
    if let Some(token) = &args.token {
        check_token(token).map_err(refused)?;
    }
    let store = store::open(settings, Purpose::Write).await?;
    let chosen = providers::choose(ui, settings, None).await?;
    let demonstration = chosen.is_demonstration();
    let cwd = run::working_directory(None)?;
    let mut config = AgentsConfig::new(Some(store), chosen.models, cwd);
    run::apply_defaults(settings, &mut config)?;
    let cancel = signals::listen(ui)?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| not_bound(address, &error))?;
    let bound = listener
        .local_addr()
        .map_err(|error| not_bound(address, &error))?;
    let token = match (args.token, &settings.beside) {
        (Some(token), _) => token,
        (None, Some(dir)) => kept_token(ui, dir),
        (None, None) => random_token(),
    };
    let mut server = ServerConfig::new(Agents::new(config), token.clone());
    server.allowed_hosts = args.allow_host;
    server.demonstration = demonstration;
    let url = format!("http://{}/?token={token}", reachable(bound));
    ui.line(&format!("Threadline is at {}", ui.out(Tone::Strong, &url)))?;
    let kept = match &settings.address {
        Address::Jsonl(root) => root.display().to_string(),
        address => address.to_string(),
    };
    ui.line(&format!("Sessions are kept in {kept}"))?;
    if !page_is_built() {
        ui.warning("this build holds no web page; the HTTP API works without it");
    }
    if args.open {
        open(ui, &url);
    }
    let shutdown = async move { cancel.cancelled().await };
    threadline_server::serve(listener, server, shutdown)
        .await
        .map_err(|error| {
            Failure::new(
                "internal",
                format!("the server stopped: {}", text::chain(&error)),
            )
        })?;
    ui.note("Stopped; every run's end is logged.");
    Ok(Exit::Completed)
}

/// The token of the last start, kept beside the sessions and readable by its owner only: a page
/// that was open when the server died goes on when it is started again.
fn kept_token(ui: Ui, root: &Path) -> String {
    let path = root.join("serve-token");
    let held = std::fs::metadata(&path)
        .ok()
        .filter(|meta| meta.permissions().mode().trailing_zeros() >= 6)
        .and_then(|_| std::fs::read_to_string(&path).ok())
        .map(|token| token.trim().to_owned())
        .filter(|token| token.len() >= MIN_TOKEN && check_token(token).is_ok());
    if let Some(token) = held {
        return token;
    }
    let token = random_token();
    if let Err(error) = keep_token(root, &path, &token) {
        ui.warning(&format!(
            "the token cannot be kept in {}, so the next start makes another: {error}",
            path.display()
        ));
    }
    token
}

fn keep_token(root: &Path, path: &Path, token: &str) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{token}")
}

/// Two random UUIDs: 244 bits from the operating system.
fn random_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

async fn resolve(listen: &str) -> Outcome<SocketAddr> {
    let refuse = |reason: String| {
        Failure::usage(format!("--listen {listen}: {reason}"))
            .hint("name an address and a port: `--listen 127.0.0.1:4870`")
    };
    let mut found = tokio::net::lookup_host(listen)
        .await
        .map_err(|error| refuse(error.to_string()))?;
    found.next().ok_or_else(|| refuse("no such address".into()))
}

fn not_bound(address: SocketAddr, error: &io::Error) -> Failure {
    let failure = Failure::new("listen", format!("cannot listen on {address}: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.hint(
            "end the other program, or take a free port: `threadline serve --listen 127.0.0.1:0`",
        ),
        _ => failure.hint("name another address: `threadline serve --listen 127.0.0.1:4870`"),
    }
}

/// An address that stands for all of this machine's is no address to open.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => ([127, 0, 0, 1], v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            (std::net::Ipv6Addr::LOCALHOST, v6.port()).into()
        }
        bound => bound,
    }
}

fn open(ui: Ui, url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = std::process::Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // It is reaped apart, so that it leaves no dead process behind.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => ui.warning(&format!(
            "the browser cannot be opened with `{program}`: {error}"
        )),
    }
}
