//! `threadline resume`, and `threadline` alone: the terminal interface.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    sync::Arc,
};

use threadline_agent::{Agents, AgentsConfig, Approver};
use threadline_session::SessionId;
use threadline_store::SessionStore;
use threadline_tui::{self as tui, Begin, Left, Trouble, TuiError};

use crate::{
    args::Resume,
    failure::{Exit, Failure, Outcome},
    logs::Logs,
    program::program,
    providers, run, sessions,
    settings::Settings,
    store::{self, Purpose},
    ui::Ui,
    verbs,
};

/// Returns whether a person can be shown an interface and type into it.
pub(crate) fn has_screen() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb
}

pub(crate) async fn resume(
    ui: Ui,
    settings: &Settings,
    args: Resume,
    logs: &Logs,
) -> Outcome<Exit> {
    if !has_screen() {
        return Err(Failure::usage(
            "`threadline resume` needs a terminal that can be drawn on, for what it shows and for \
             what is typed",
        )
        .hint("in pipes and scripts, go on with `threadline run --session ID \"TASK\"`"));
    }
    let cwd = run::working_directory(None)?;
    let asked = args.id.is_some() || args.last;
    let purpose = if asked { Purpose::Read } else { Purpose::Write };
    let store = store::open(settings, purpose).await?;
    let session = match &args.id {
        Some(text) => Some(sessions::find(&store, text).await?),
        None if args.last => Some(sessions::last(ui, &store, &cwd).await?),
        None => None,
    };
    let recorded = match &session {
        Some(id) => store.summary(id).await?.model,
        None => None,
    };
    let chosen = providers::choose(ui, settings, recorded.as_ref()).await?;
    let notice = chosen.is_demonstration().then(|| {
        "New sessions talk to the offline demonstration, not to a model. `threadline --help` says \
         how to set one up."
            .to_owned()
    });
    let mut config = AgentsConfig::new(Some(store), chosen.models, cwd.clone());
    config.approver = Approver::Board;
    run::apply_defaults(settings, &mut config)?;
    if let Some(id) = &session {
        ui.note(&resume_line(id));
    }
    let kept = config.store.clone();
    let export: tui::Exporter = Arc::new(move |id, path| {
        let store = kept.clone();
        Box::pin(async move { export(store, id, path).await })
    });
    let options = tui::Options {
        agents: Agents::new(config),
        begin: session.map_or(Begin::Picker, Begin::Session),
        cwd: cwd.to_string_lossy().into_owned(),
        model: chosen.named,
        colour: ui.out_colour(),
        notice,
        export,
        program: program().to_owned(),
    };
    logs.hold();
    let left = Box::pin(tui::run(options)).await;
    // What was logged meanwhile would have been drawn over.
    let held = logs.release();
    let _ = std::io::stderr().write_all(&held);
    let Left { session, stopped } = left.map_err(failure)?;
    if let Some(id) = session {
        ui.note(&resume_line(&id));
    }
    Ok(if stopped {
        Exit::Cancelled
    } else {
        Exit::Completed
    })
}

async fn export(
    store: Option<SessionStore>,
    id: SessionId,
    path: PathBuf,
) -> Result<String, Trouble> {
    let Some(store) = store else {
        return Err(Trouble::new("there is no store"));
    };
    match verbs::export::markdown(&store, &id, &path).await {
        Ok(()) => Ok(format!("Written to {}.", path.display())),
        Err(failure) => Err(Trouble {
            message: failure.message,
            hint: failure.hint,
        }),
    }
}

/// Returns the lines that say which session it is, and how to come back to it.
fn resume_line(id: &SessionId) -> String {
    let program = program();
    format!("Session {id}\nGo on with: {program} resume {id}")
}

fn failure(error: TuiError) -> Failure {
    let failure = Failure::new("terminal", crate::text::chain(&error));
    match error {
        TuiError::Terminal { .. } => {
            failure.hint("go on without it: `threadline run --session ID \"TASK\"`")
        }
        TuiError::Broken => failure.hint("go on with `threadline resume --last`"),
    }
}
