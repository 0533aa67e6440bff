//! Starting turns: `POST /api/agent/stream` and `POST /api/agent`.

use axum::{Extension, Json, extract::State, response::Response};
use futures_util::{Stream, stream};
use serde::Serialize;
use threadline_agent::{
    Agents, Approver, Failure, Run, RunEvent, RunInput, RunOutcome, StartError, Started,
    policy::{narrow, widens},
};
use threadline_session::{
    RunId, SessionId,
    codec::Line,
    payload::{ApprovalPolicy, EndReason, SandboxMode, Usage},
};
use threadline_store::ReadError;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Caller,
    error::{Code, Problem},
    fold::{Fold, Seen, Watcher},
    grants,
    input::{AgentInput, ImageBody, limits},
    sse::{self, Frames},
    state::{Shared, State as Inside},
};

/// `POST /api/agent/stream`
pub(crate) async fn stream(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    body: ImageBody,
) -> Result<Response, Problem> {
    let mut input = AgentInput::parse(&body.0)?;
    check_ceiling(&shared, &input.run)?;
    for allow in &mut input.run.allow {
        caller.name().clone_into(&mut allow.by);
    }
    // A client that goes away in the middle must not leave a turn behind that nobody drives.
    let task = tokio::spawn(start(shared.clone(), input));
    let started = task.await.unwrap_or_else(|error| {
        Err(Problem::new(
            Code::Internal,
            format!("starting the run broke: {error}"),
        ))
    });
    Ok(match started {
        Ok(Started::New(run)) => sse::respond(&shared, run_frames(run)),
        Ok(Started::Repeated { session_id, seq }) => {
            let replay = Replay::new(&shared, session_id, seq);
            sse::respond(&shared, replay.into_stream())
        }
        Err(problem) => sse::refuse(&shared, problem.into_failure()),
    })
}

async fn start(shared: Shared, input: AgentInput) -> Result<Started, Problem> {
    shared.open()?;
    let AgentInput { session, mut run } = input;
    bound(&shared, session.as_ref(), &mut run).await?;
    let started = match shared.agents.start(session.clone(), run.clone()).await {
        Ok(started) => started,
        Err(error) => repeated(&shared.agents, session, run, error).await?,
    };
    if let Started::New(run) = &started {
        shared.metrics.run_started();
        // Shutdown may have begun meanwhile, and have missed this run.
        if shared.stopping.is_cancelled() {
            run.cancel();
        }
    }
    Ok(started)
}

/// A repeat may find the first run still going on. It is that run it asks for, so it is no
/// conflict.
async fn repeated(
    agents: &Agents,
    session: Option<SessionId>,
    input: RunInput,
    error: StartError,
) -> Result<Started, StartError> {
    let Some(key) = &input.idempotency_key else {
        return Err(error);
    };
    let code = error.code();
    if !matches!(code, "session_busy" | "locked" | "already_exists") {
        return Err(error);
    }
    let Some(session_id) = session else {
        // Two first messages at once: the other one made the session.
        return agents.start(None, input).await;
    };
    let mut found = None;
    let read = agents.store().each_event(&session_id, |line| {
        if line.key.as_ref() == Some(key) {
            found = Some(line.event.seq);
        }
        found.is_none()
    });
    match (read.await, found) {
        (Ok(()), Some(seq)) => Ok(Started::Repeated { session_id, seq }),
        _ => Err(error),
    }
}

/// Refuses what asks for more than the server allows.
fn check_ceiling(shared: &Inside, input: &RunInput) -> Result<(), Problem> {
    if let Some(limits) = &input.limits {
        limits::check(limits, &shared.agents.config().limits)?;
    }
    if !input.allow.is_empty() {
        grants::check_ceiling(shared, "allowCommands")?;
    }
    let ceiling = shared.ceiling;
    let policy = input.approval_policy.filter(|p| {
        widens(
            (ceiling.0, SandboxMode::ReadOnly),
            (*p, SandboxMode::ReadOnly),
        )
    });
    let sandbox = input.sandbox_mode.filter(|mode| {
        widens(
            (ApprovalPolicy::Never, ceiling.1),
            (ApprovalPolicy::Never, *mode),
        )
    });
    let field = match (policy, sandbox) {
        (Some(_), _) => "approvalPolicy",
        (None, Some(_)) => "sandboxMode",
        (None, None) => return Ok(()),
    };
    Err(Problem::new(
        Code::PolicyCeiling,
        format!("`{field}` asks for more than this server allows"),
    )
    .at(field)
    .hint(
        "ask for less, or start the server with a higher ceiling; it is shown at /api/agent/config",
    ))
}

/// Cuts what the session or the defaults bring along down to the ceiling.
pub(crate) async fn bound(
    shared: &Inside,
    session: Option<&SessionId>,
    input: &mut RunInput,
) -> Result<(), Problem> {
    input.confined = shared.ceiling.1 != SandboxMode::DangerFullAccess;
    if shared.ceiling == (ApprovalPolicy::Never, SandboxMode::DangerFullAccess)
        || (input.approval_policy.is_some() && input.sandbox_mode.is_some())
    {
        return Ok(());
    }
    let defaults = &shared.agents.config().defaults;
    let mut before = (defaults.approval_policy, defaults.sandbox_mode);
    if let Some(id) = session {
        let inspected = shared.agents.store().inspect(id).await?;
        if let Some(context) = inspected.view.transcript().context() {
            before = (context.approval_policy, context.sandbox_mode);
        }
    }
    let within = narrow(before, shared.ceiling);
    if within.0 != before.0 {
        input.approval_policy.get_or_insert(within.0);
    }
    if within.1 != before.1 {
        input.sandbox_mode.get_or_insert(within.1);
    }
    Ok(())
}

/// Gives a run's own stream.
fn run_frames(run: Run) -> impl Stream<Item = Frames> + Send + 'static {
    stream::unfold(run.stream(), async |mut events| {
        let event = events.next().await?;
        let mut frames = Frames::default();
        frames.run_event(&event);
        Some((frames, events))
    })
}

/// A run that was started before, shown again from its log.
struct Replay {
    watcher: Watcher,
    fold: Fold,
    /// An event of the run's turn; the turn is the one that is open there.
    target: u64,
    /// The newest turn's events, until it is known to be the one.
    held: Vec<Line>,
    found: bool,
    ended: bool,
    /// Another process may write the run, so that shutdown here does not end it.
    closing: CancellationToken,
}

impl Replay {
    fn new(shared: &Inside, id: SessionId, target: u64) -> Self {
        let store = shared.agents.store().clone();
        Self {
            closing: shared.closing.clone(),
            watcher: Watcher::new(store.clone(), id.clone(), None),
            fold: Fold::new(store, id),
            target,
            held: Vec::new(),
            found: false,
            ended: false,
        }
    }

    fn into_stream(self) -> impl Stream<Item = Frames> + Send + 'static {
        stream::unfold(self, async |mut replay| {
            let frames = replay.next().await?;
            Some((frames, replay))
        })
    }

    async fn next(&mut self) -> Option<Frames> {
        while !self.ended {
            let mut frames = Frames::default();
            if let Err(error) = self.advance(&mut frames).await {
                self.fail(Problem::from(error), &mut frames);
            }
            if !frames.is_empty() {
                return Some(frames);
            }
        }
        None
    }

    async fn advance(&mut self, frames: &mut Frames) -> Result<(), ReadError> {
        let open = (self.found && self.fold.is_open()).then(|| self.fold.next_seq());
        let seen = tokio::select! {
            biased;
            seen = self.watcher.next(open) => seen?,
            () = self.closing.cancelled() => {
                let detail = "the server went down before the run's end was seen";
                self.fail(Problem::new(Code::ShuttingDown, detail), frames);
                return Ok(());
            }
        };
        match seen {
            Seen::Line(line) => self.line(*line, frames).await?,
            Seen::CaughtUp if self.found => {}
            Seen::CaughtUp => {
                let detail = "the log ends before the run that it names";
                self.fail(Problem::new(Code::Internal, detail), frames);
            }
            Seen::Abandoned => {
                let end = self.fold.finished(EndReason::Interrupted, None).await?;
                self.finish(end, frames);
            }
        }
        Ok(())
    }

    async fn line(&mut self, line: Line, frames: &mut Frames) -> Result<(), ReadError> {
        let told = self.fold.take(&line).await?;
        if self.fold.is_stuck() {
            let detail = "the session holds an event that this version may not pass over";
            self.fail(Problem::new(Code::Unsupported, detail), frames);
            return Ok(());
        }
        let (seq, begins) = (line.event.seq, told.before.is_some());
        if !self.found {
            if begins {
                self.held.clear();
            }
            self.held.push(line);
            if seq < self.target {
                return Ok(());
            }
            self.found = true;
            match self.fold.started() {
                Some(started) => frames.run_event(&started),
                None => {
                    let detail = "the run's turn cannot be read";
                    self.fail(Problem::new(Code::Unsupported, detail), frames);
                    return Ok(());
                }
            }
            for held in std::mem::take(&mut self.held) {
                frames.line(&held);
            }
        } else {
            frames.line(&line);
        }
        match told.after {
            Some(end @ RunEvent::RunFinished { .. }) => self.finish(Some(end), frames),
            Some(event) => frames.run_event(&event),
            None => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Option<RunEvent>, frames: &mut Frames) {
        match end {
            Some(end) => frames.run_event(&end),
            None => frames.error(Problem::new(Code::Internal, "the run is gone").into_failure()),
        }
        self.ended = true;
    }

    fn fail(&mut self, problem: Problem, frames: &mut Frames) {
        frames.error(problem.into_failure());
        self.ended = true;
    }
}

/// The result of a stateless run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunResult {
    run_id: RunId,
    answer: String,
    reason: EndReason,
    usage: Usage,
    #[serde(skip_serializing_if = "Usage::is_zero")]
    subagent_usage: Usage,
}

/// `POST /api/agent`
///
/// Stateless: whatever session is named, the prompt is fresh and nothing is kept. Nobody can see
/// the run but the caller, so it ends when the caller goes.
pub(crate) async fn once(
    State(shared): State<Shared>,
    body: ImageBody,
) -> Result<Json<RunResult>, Problem> {
    let AgentInput {
        session: _,
        mut run,
    } = AgentInput::parse(&body.0)?;
    check_ceiling(&shared, &run)?;
    shared.open()?;
    bound(&shared, None, &mut run).await?;
    run.idempotency_key = None;
    let agents = stateless(&shared.agents);
    let Started::New(run) = agents.start(None, run).await? else {
        return Err(Problem::new(
            Code::Internal,
            "a fresh run was taken for a repeat",
        ));
    };
    shared.metrics.run_started();
    let _gone = CancelOnDrop(&run);
    let outcome = ended(&run, &shared.stopping).await;
    if let Some(Failure { code, message, .. }) = outcome.failure {
        return Err(Problem::new(Code::Internal, format!("{message} ({code})")));
    }
    Ok(Json(RunResult {
        run_id: run.run_id().clone(),
        answer: outcome.answer,
        reason: outcome.reason,
        usage: outcome.usage,
        subagent_usage: outcome.subagent_usage,
    }))
}

/// Waits for the end, which shutdown brings about.
async fn ended(run: &Run, stopping: &CancellationToken) -> RunOutcome {
    tokio::select! {
        outcome = run.wait() => outcome,
        () = stopping.cancelled() => {
            run.cancel();
            run.wait().await
        }
    }
}

struct CancelOnDrop<'a>(&'a Run);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Makes a factory that keeps nothing and asks nobody, with the same models and tools.
fn stateless(agents: &Agents) -> Agents {
    let mut config = agents.config().clone();
    // Its tools must not touch the real store either.
    config.denied.extend(agents.store().private_paths());
    config.store = None;
    config.approver = Approver::Nobody;
    config.titles = None;
    Agents::new(config)
}
