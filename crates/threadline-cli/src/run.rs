//! `threadline run`: one turn of a new or an existing session.

use std::{
    io::Read as _,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use threadline_agent::{
    self as agent, Agents, AgentsConfig, Allow, Approver, COMPACT_COMMAND, ResumeOptions, RunEvent,
    RunInput, Started, policy::CommandPrefix,
};
use threadline_mcp::Servers;
use threadline_session::{SessionId, payload::EndReason, types};
use threadline_store::SessionStore;
use tokio::sync::watch;

use crate::{
    args::{Compact, Run},
    ask::Asker,
    failure::{Exit, Failure, Outcome},
    program::program,
    providers,
    render::Renderer,
    repeat, sessions,
    settings::Settings,
    signals,
    store::{self, Purpose},
    text,
    ui::{Tone, Ui},
    verbs,
};

/// Most bytes of a task on standard input; an event that large is refused anyway.
const TASK_BYTES: u64 = 16 * 1024 * 1024;

/// How long the end of the program waits for a title that is being made, if one is.
const TITLE_WAIT: Duration = Duration::from_secs(5);

pub(crate) async fn run(ui: Ui, settings: &Settings, args: Run) -> Outcome<Exit> {
    let task = read_task(ui, args.task.as_deref())?;
    let cwd = working_directory(args.cwd.as_deref())?;
    let goes_on = args.session.is_some() || args.last || args.fork.is_some();
    if args.take_over && !goes_on {
        return Err(
            Failure::usage("a new session has no other writer to take over from")
                .hint("name the session: `threadline run --session ID --take-over \"TASK\"`"),
        );
    }
    let (store, mut session, chosen) = if goes_on {
        let store = store::open(settings, Purpose::Read).await?;
        let id = choose(ui, &store, &args, &cwd).await?;
        let recorded = store.summary(&id).await?.model;
        let chosen = providers::choose(ui, settings, recorded.as_ref()).await?;
        (store, Some(id), chosen)
    } else {
        // The provider first, so that a wrong one makes no store.
        let chosen = providers::choose(ui, settings, None).await?;
        let store = store::open(settings, Purpose::Write).await?;
        (store, None, chosen)
    };
    if let (Some(id), Some(point)) = (&session, &args.fork) {
        session = Some(verbs::branch(ui, &store, id, point.at).await?.id);
    }
    if let (Some(id), true) = (&session, args.take_over) {
        // The other writer is fenced from here on; the session is then opened as usual.
        drop(verbs::take_over(ui, &store, id).await?);
    }
    let mut config = AgentsConfig::new(Some(store), chosen.models, cwd.clone());
    config.approver = if ui.can_ask {
        Approver::Board
    } else {
        Approver::Nobody
    };
    apply_defaults(settings, &mut config)?;
    config.limits = args.limits.or(settings.file.limits).into();
    let agents = Agents::new(config);
    let images = images(&args.image)?;
    let input = RunInput {
        task,
        goal: args.goal,
        context: args.context,
        model: chosen.named,
        temperature: args.temperature,
        approval_policy: args.approval.map(Into::into),
        sandbox_mode: args.sandbox.map(Into::into),
        cwd: args.cwd.is_some().then_some(cwd),
        max_steps: args.limits.max_steps.map(NonZeroU32::get),
        limits: None,
        allow: granted(args.allow, "cli"),
        confined: false,
        images,
        idempotency_key: args.idempotency_key,
    };
    let cancel = signals::listen(ui)?;
    let run = match start(ui, &agents, session, input).await? {
        Started::New(run) => run,
        Started::Repeated { session_id, seq } => {
            return repeat::show(ui, agents.store(), &session_id, seq, args.json).await;
        }
    };
    let watched = run.clone();
    tokio::spawn(async move {
        cancel.cancelled().await;
        watched.cancel();
    });
    let exit = follow(ui, &agents, &run, args.json).await;
    if let Some(source) = &agents.config().source {
        source.shutdown().await;
    }
    ui.note(&go_on(ui, run.session_id()));
    agents.settle(TITLE_WAIT).await;
    Ok(exit)
}

/// Waits until what is asked changes; for ever when nobody can be asked.
async fn changed(board: &mut Option<watch::Receiver<u64>>) {
    let ended = match board {
        Some(board) => board.changed().await.is_err(),
        None => true,
    };
    if ended {
        std::future::pending::<()>().await;
    }
}

/// Prints what happens in a run until it has ended, and puts its questions to the person.
async fn follow(ui: Ui, agents: &Agents, run: &agent::Run, json: bool) -> Exit {
    let mut asker = ui
        .can_ask
        .then(|| Asker::new(ui, agents.approvals().clone()));
    let mut renderer = Renderer::new(ui, json);
    let mut events = run.stream();
    let mut exit = Exit::Failed;
    let mut board = asker.as_ref().map(Asker::watch);
    let mut told = false;
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = changed(&mut board) => {
                if let Some(asker) = &mut asker {
                    asker.look(run.run_id());
                }
                continue;
            }
        };
        let Some(event) = event else {
            break;
        };
        renderer.event(&event);
        if event.name() == types::STEP_START && !std::mem::replace(&mut told, true) {
            tell_lacks(ui, agents, run);
        }
        match event {
            RunEvent::ApprovalRequired(info) => {
                if let Some(asker) = &mut asker {
                    asker.ask(info);
                }
            }
            RunEvent::RunFinished { reason, .. } => {
                exit = finished(ui, run.session_id(), &reason);
            }
            RunEvent::Error(failure) => {
                let told = Failure {
                    hint: failure.hint,
                    ..Failure::new(&failure.code, failure.message)
                };
                exit = told.exit;
                ui.failure(&told);
            }
            RunEvent::RunStarted { .. } | RunEvent::Log(_) | RunEvent::ApprovalResolved { .. } => {}
        }
    }
    // The stream may have broken off before the run did; its end is logged in any case.
    run.wait().await;
    exit
}

/// Tells which tools the run does without, each time: the log says it only when it changes.
fn tell_lacks(ui: Ui, agents: &Agents, run: &agent::Run) {
    if let Some(source) = &agents.config().source {
        for sentence in source.lacks(run.session_id()) {
            ui.warning(&text::harmless(&sentence));
        }
    }
}

/// Runs the turn that makes the history of a session shorter.
pub(crate) async fn compact(ui: Ui, settings: &Settings, args: Compact) -> Outcome<Exit> {
    let args = Run {
        task: Some(COMPACT_COMMAND.into()),
        session: Some(args.id),
        take_over: args.take_over,
        json: args.json,
        ..Run::default()
    };
    run(ui, settings, args).await
}

fn images(paths: &[PathBuf]) -> Outcome<Vec<Vec<u8>>> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|error| Failure::usage(format!("the image {}: {error}", path.display())))
    };
    paths.iter().map(read).collect()
}

fn granted(prefixes: Vec<CommandPrefix>, by: &str) -> Vec<Allow> {
    prefixes
        .into_iter()
        .map(|prefix| Allow {
            prefix,
            by: by.into(),
        })
        .collect()
}

/// Sets what new sessions run under, what models take and cost, and what runs may use.
/// Sessions get the tools of the MCP servers that are configured.
pub(crate) fn apply_defaults(settings: &Settings, config: &mut AgentsConfig) -> Outcome<()> {
    let servers = settings.servers()?;
    if !servers.is_empty() {
        let servers =
            Servers::new(servers).map_err(|error| Failure::new("config", error.to_string()))?;
        config.source = Some(Arc::new(servers));
    }
    config.compaction = settings.compaction();
    config.prices = settings.prices();
    config.env = settings.file.tools.env.clone();
    config.titles.clone_from(&settings.file.titles.model);
    config.span_content = settings.file.telemetry.content;
    config.limits = settings.file.limits.into();
    if let Some(steps) = settings.file.limits.max_steps {
        config.defaults.max_steps = steps.get();
    }
    let approval = &settings.file.approval;
    if let Some(policy) = approval.policy {
        config.defaults.approval_policy = policy;
    }
    if let Some(seconds) = approval.timeout_seconds {
        config.approval_timeout = Duration::from_secs(seconds.get());
    }
    config.defaults.allow = granted(approval.allow.clone(), "config");
    if let Some(mode) = settings.file.sandbox {
        config.defaults.sandbox_mode = mode;
    }
    Ok(())
}

/// Starts the turn. What opening the session had to close is said before anything else.
async fn start(
    ui: Ui,
    agents: &Agents,
    session: Option<SessionId>,
    input: RunInput,
) -> Outcome<Started> {
    let Some(session_id) = session else {
        return Ok(agents.start(None, input).await?);
    };
    let agent = agents.resume(ResumeOptions::new(session_id)).await?;
    if agent.closed() > 0 {
        ui.warning(&format!(
            "the last turn was interrupted; {} appended to close it",
            if agent.closed() == 1 {
                "1 event was".to_owned()
            } else {
                format!("{} events were", agent.closed())
            }
        ));
    }
    // The agent is let go of here, so that the session is free as soon as its run has ended.
    Ok(agent.start(input).await?)
}

fn read_task(ui: Ui, given: Option<&str>) -> Outcome<String> {
    let task = match given {
        Some(task) if task != "-" => task.to_owned(),
        _ => {
            if ui.can_ask {
                ui.note("Type the task, then Ctrl-D:");
            }
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                .take(TASK_BYTES)
                .read_to_end(&mut bytes)
                .map_err(|error| {
                    Failure::usage(format!(
                        "the task cannot be read from standard input: {error}"
                    ))
                    .hint("give the task as an argument: `threadline run \"TASK\"`")
                })?;
            String::from_utf8(bytes).map_err(|_| {
                Failure::usage("the task on standard input is not UTF-8 text")
                    .hint("convert it first, e.g. with `iconv -t utf-8`")
            })?
        }
    };
    let task = task.trim_end_matches(['\n', '\r']).to_owned();
    if task.trim().is_empty() {
        return Err(Failure::new("empty_task", "the task is empty")
            .hint("say what to do: `threadline run \"TASK\"`, or pipe the task in"));
    }
    Ok(task)
}

pub(crate) fn working_directory(given: Option<&Path>) -> Outcome<PathBuf> {
    let Some(given) = given else {
        return std::env::current_dir().map_err(|error| {
            Failure::new(
                "missing_folder",
                format!("the working directory is gone: {error}"),
            )
            .hint("change to another one, or name it with `--cwd DIR`")
        });
    };
    let refuse = |reason: String| {
        Failure::new(
            "missing_folder",
            format!(
                "the working directory {} cannot be used: {reason}",
                given.display()
            ),
        )
        .hint("name another one with `--cwd DIR`")
    };
    let path = std::fs::canonicalize(given).map_err(|error| refuse(error.to_string()))?;
    if !path.is_dir() {
        return Err(refuse("it is no directory".into()));
    }
    Ok(path)
}

async fn choose(ui: Ui, store: &SessionStore, args: &Run, cwd: &Path) -> Outcome<SessionId> {
    let named = args.fork.as_ref().map(|point| &point.id);
    if let Some(text) = args.session.as_ref().or(named) {
        return sessions::find(store, text).await;
    }
    sessions::last(ui, store, cwd).await
}

/// Tells how the run ended, and returns the exit code for it.
pub(crate) fn finished(ui: Ui, id: &SessionId, reason: &EndReason) -> Exit {
    let (exit, message, hint) = match reason {
        EndReason::Completed => return Exit::Completed,
        EndReason::Cancelled => (Exit::Cancelled, "the run was cancelled".to_owned(), None),
        EndReason::Blocked => (
            Exit::ApprovalNeeded,
            "the run needs an approval, and nobody is there to be asked".to_owned(),
            Some(format!(
                "go on at a terminal with `threadline run --session {id}`, or allow it with \
                 `--allow WORDS` or `--approval never`"
            )),
        ),
        EndReason::Error { message, .. } => (Exit::Failed, message.clone(), None),
        EndReason::MaxSteps => (
            Exit::Failed,
            "the run reached its step limit".to_owned(),
            Some(format!(
                "go on with `threadline run --session {id} \"go on\"`"
            )),
        ),
        EndReason::MaxTokens => (
            Exit::Failed,
            "the model reached its output limit".to_owned(),
            Some(format!(
                "go on with `threadline run --session {id} \"go on\"`"
            )),
        ),
        EndReason::Limit { message, .. } => (
            Exit::Failed,
            format!("the run was ended: {message}"),
            Some(format!(
                "go on with `threadline run --session {id} \"go on\"`"
            )),
        ),
        EndReason::Interrupted => (
            Exit::Failed,
            "the run was interrupted before it ended".to_owned(),
            None,
        ),
    };
    let code = reason.name();
    ui.failure(&Failure {
        exit,
        hint,
        ..Failure::new(code, text::harmless(&message))
    });
    exit
}

/// Returns the line that says how to go on.
pub(crate) fn go_on(ui: Ui, id: &SessionId) -> String {
    let program = program();
    let line = format!("Session {id}\nGo on with: {program} run --session {id} \"TASK\"");
    ui.err(Tone::Faint, &line)
}
