//! The `threadline` program.
//!
//! Data goes to standard output, everything else to standard error; programs read `--json` and the
//! exit code. Only `run`, `resume`, `serve`, `acp`, `fork` and `store copy` ever create anything.
//!
//! - [`args`] is the command line, [`settings`] what it, the environment and `config.toml` say;
//!   [`store`] opens the store that [`address`] names.
//! - [`resume`] is the terminal interface. [`run`] is one turn; [`render`] prints it and [`ask`]
//!   puts approvals to a person. [`acp`] serves an editor.
//! - [`verbs`] are the others. [`failure`] has the exit codes, [`program`] the call that people
//!   are told to type.
//! - [`telemetry`] sends spans of runs to a collector.
//! - [`launcher`] is what the sandbox starts: this program, which becomes a command of a tool.

mod acp;
mod address;
mod args;
mod ask;
mod failure;
mod launcher;
mod logs;
mod man;
mod mounts;
mod program;
mod providers;
mod render;
mod repeat;
mod resume;
mod run;
mod serve;
mod sessions;
mod settings;
mod signals;
mod store;
mod telemetry;
mod text;
mod ui;
mod verbs;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};
use threadline_store::SessionStore;
use tracing_subscriber::{
    EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::{
    args::{Cli, Common, ConfigVerb, McpVerb, Resume, StoreVerb, Verb},
    failure::{Exit, Failure, Outcome},
    logs::Logs,
    settings::Settings,
    store::Purpose,
    telemetry::Telemetry,
    ui::Ui,
};

fn main() -> ExitCode {
    if let Some(failed) = launcher::launch() {
        return failed;
    }
    let cli = Cli::parse();
    let ui = Ui::new();
    let Some(verb) = cli.verb.or_else(at_a_terminal) else {
        // Standard error: it was not asked for, and nobody reads it as data.
        ui.note(&Cli::command().render_help().to_string());
        return Exit::Usage.into();
    };
    let json = verb.json();
    match dispatch(ui, cli.common, verb) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.silent {
                if json {
                    // The exit code tells the same when nobody reads this.
                    let _ = ui.line(&failure.json());
                }
                ui.failure(&failure);
            }
            failure.exit.into()
        }
    }
}

/// What is done without a verb, if a person sits there.
fn at_a_terminal() -> Option<Verb> {
    resume::has_screen().then(|| Verb::Resume(Resume::default()))
}

fn dispatch(ui: Ui, common: Common, verb: Verb) -> Outcome<Exit> {
    if let Verb::Completions { shell } = verb {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "threadline", &mut script);
        ui.print(&String::from_utf8_lossy(&script))?;
        return Ok(Exit::Completed);
    }
    if let Verb::Man { out } = verb {
        return man::man(ui, out.as_deref());
    }
    let filter = log_filter()?;
    let named = common.store.is_some();
    let settings = Settings::read(common)?;
    program::remember(named, &settings.address);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("internal", format!("the runtime cannot start: {error}")))?;
    let runs = matches!(
        verb,
        Verb::Serve(_) | Verb::Run(_) | Verb::Resume(_) | Verb::Acp(_) | Verb::Compact(_)
    );
    let telemetry = settings
        .otlp()
        .filter(|_| runs)
        .map(|address| Telemetry::start(address, runtime.handle()))
        .transpose()?;
    let logs = start_logging(ui, filter, telemetry.as_ref())?;
    let outcome = runtime.block_on(async {
        let outcome = perform(ui, &settings, &logs, verb).await;
        if let Some(telemetry) = telemetry {
            telemetry.end().await;
        }
        outcome
    });
    // A thread that still waits for the terminal must not keep the program.
    runtime.shutdown_background();
    outcome
}

async fn perform(ui: Ui, settings: &Settings, logs: &Logs, verb: Verb) -> Outcome<Exit> {
    signals::ignore_file_size_signal();
    match verb {
        // Answered before anything is set up.
        Verb::Completions { .. } | Verb::Man { .. } => Ok(Exit::Completed),
        Verb::Config(ConfigVerb::Show(args)) => verbs::config::show(ui, settings, &args),
        Verb::Resume(args) => Box::pin(resume::resume(ui, settings, args, logs)).await,
        Verb::Serve(args) => Box::pin(serve::serve(ui, settings, args)).await,
        Verb::Run(args) => Box::pin(run::run(ui, settings, *args)).await,
        Verb::Acp(args) => Box::pin(acp::acp(ui, settings, args)).await,
        Verb::Compact(args) => Box::pin(run::compact(ui, settings, args)).await,
        Verb::Store(StoreVerb::Copy(args)) => Box::pin(verbs::copy(ui, args)).await,
        Verb::Mcp(McpVerb::List(args)) => Box::pin(verbs::mcp_list(ui, settings, args)).await,
        verb => {
            let store = store::open(settings, Purpose::Read).await?;
            Box::pin(on_store(ui, settings, &store, verb)).await
        }
    }
}

async fn on_store(ui: Ui, settings: &Settings, store: &SessionStore, verb: Verb) -> Outcome<Exit> {
    match verb {
        Verb::Completions { .. }
        | Verb::Man { .. }
        | Verb::Config(_)
        | Verb::Resume(_)
        | Verb::Serve(_)
        | Verb::Run(_)
        | Verb::Acp(_)
        | Verb::Compact(_)
        | Verb::Mcp(_)
        | Verb::Store(_) => Ok(Exit::Completed),
        Verb::Ls(args) => verbs::ls(ui, store, args).await,
        Verb::Show(args) => verbs::show(ui, store, args).await,
        Verb::Export(args) => verbs::export(ui, store, args).await,
        Verb::Verify(args) => verbs::verify(ui, store, args).await,
        Verb::Replay(args) => verbs::replay(ui, store, args).await,
        Verb::Fork(args) => verbs::fork(ui, store, args).await,
        Verb::Rewind(args) => verbs::rewind(ui, store, args).await,
        Verb::Redo(args) => verbs::redo(ui, store, args).await,
        Verb::Repair(args) => verbs::repair(ui, settings, store, args).await,
        Verb::Du(args) => verbs::du(ui, store, args).await,
        Verb::Gc(args) => verbs::gc(ui, store, args).await,
        Verb::Grants(args) => verbs::grants(ui, store, args).await,
        Verb::Rename { id, title } => verbs::rename(ui, store, &id, &title).await,
        Verb::Archive { id } => verbs::archive(ui, store, &id, true).await,
        Verb::Unarchive { id } => verbs::archive(ui, store, &id, false).await,
        Verb::Rm { id, yes } => verbs::remove(ui, store, &id, yes).await,
        Verb::Doctor { id, json } => verbs::doctor(ui, settings, store, id.as_deref(), json).await,
    }
}

fn log_filter() -> Outcome<EnvFilter> {
    let wanted = std::env::var("THREADLINE_LOG").unwrap_or_default();
    let wanted = if wanted.trim().is_empty() {
        "warn"
    } else {
        wanted.as_str()
    };
    EnvFilter::try_new(wanted).map_err(|error| {
        Failure::usage(format!(
            "THREADLINE_LOG: `{wanted}` says nothing about logging: {error}"
        ))
        .hint("set it to a level: `THREADLINE_LOG=debug`")
    })
}

fn start_logging(ui: Ui, filter: EnvFilter, telemetry: Option<&Telemetry>) -> Outcome<Logs> {
    let logs = Logs::default();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(logs.clone())
        .with_ansi(ui.err_colour() && std::io::stderr().is_terminal())
        .with_filter(filter);
    let started = tracing_subscriber::registry()
        .with(lines)
        .with(telemetry.map(Telemetry::layer))
        .try_init();
    started.map_err(|error| Failure::new("internal", format!("logging cannot start: {error}")))?;
    Ok(logs)
}
