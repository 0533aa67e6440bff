//! `threadline acp`: the agent behind an editor, on standard input and output.
//!
//! Standard output carries the protocol and nothing else.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use threadline_acp::Pool;
use threadline_agent::{Agents, AgentsConfig, Approver};
use threadline_mcp::{ConfigError, Servers};

use crate::{
    args::Acp,
    failure::{Exit, Failure, Outcome},
    providers, run,
    settings::Settings,
    signals,
    store::{self, Purpose},
    text,
    ui::Ui,
};

/// Serves the editor until it ends its output, or a signal comes. Either is a good end: every run
/// is ended, and its end is in the log.
pub(crate) async fn acp(ui: Ui, settings: &Settings, args: Acp) -> Outcome<Exit> {
    let chosen = providers::choose(ui, settings, None).await?;
    let store = store::open(settings, Purpose::Write).await?;
    let cwd = run::working_directory(None)?;
    let mut config = AgentsConfig::new(Some(store), chosen.models, cwd);
    config.approver = Approver::Board;
    run::apply_defaults(settings, &mut config)?;
    // Also without a configured server: the editor may pass its own.
    let usual = settings.servers()?;
    let wrong = |error: ConfigError| Failure::new("config", error.to_string());
    let servers = Servers::new(usual.clone()).map_err(wrong)?;
    config.source = Some(Arc::new(servers.clone()));
    let pool = Pool { servers, usual };
    if let Some(policy) = args.approval {
        config.defaults.approval_policy = policy.into();
    }
    if let Some(mode) = args.sandbox {
        config.defaults.sandbox_mode = mode.into();
    }
    let shutdown = signals::listen(ui)?;
    let input = stream(io::stdin().as_fd())?;
    let output = stream(io::stdout().as_fd())?;
    threadline_acp::serve(Agents::new(config), Some(pool), input, output, shutdown)
        .await
        .map_err(|error| Failure::new("internal", text::chain(&error)))?;
    Ok(Exit::Completed)
}

/// A standard stream as a file of its own, past the buffers of the standard library.
fn stream(fd: BorrowedFd<'_>) -> Outcome<tokio::fs::File> {
    let owned = fd.try_clone_to_owned().map_err(|error| {
        let message = format!("a standard stream cannot be used: {error}");
        Failure::new("internal", message).hint("let an editor start `threadline acp`")
    })?;
    Ok(tokio::fs::File::from_std(File::from(owned)))
}
