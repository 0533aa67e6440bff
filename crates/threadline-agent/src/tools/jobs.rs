//! `job_start`, `job_status`, `job_kill`: commands that run beside the model's other work.
//!
//! A job is a call of the shell that nobody waits for: the same sandbox, the same group of
//! processes, the same bounds of its output. It ends with its run at the latest, because nothing of
//! a run may go on unseen, and with the process of the agent in any case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_session::payload::{Outcome, OutputStream, ToolDefinition, ToolResult, plain_text};
use threadline_store::error_chain;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::arguments::{self, Arguments, Field};
use super::state::RunState;
use super::{ArgumentError, CallSession, Effect, Tool, ToolContext, ToolOutput, shell, text};
use crate::limits::{
    JOB_COMMAND_BYTES, JOB_FRESH_BYTES, JOB_TIMEOUT_DEFAULT, JOB_TIMEOUT_MAX, JOB_WAIT_MAX, JOBS,
};

const START: &str = "job_start";

const START_FIELDS: [Field; 2] = [
    Field::required("command", "string", "The command, run by bash (or sh) -c."),
    Field::optional(
        "timeout_ms",
        "integer",
        "Most milliseconds it may take; default 3600000, most 86400000.",
    ),
];

const ID: Field = Field::required("id", "string", "The job, as job_start named it.");

const STATUS_FIELDS: [Field; 2] = [
    ID,
    Field::optional(
        "wait_ms",
        "integer",
        "Milliseconds to wait for its end, at most 120000; default not to wait.",
    ),
];

const KILL_FIELDS: [Field; 1] = [ID];

/// Starts a command and does not wait for it.
#[derive(Debug, Clone, Copy)]
pub struct JobStart;

/// Looks at a background job.
#[derive(Debug, Clone, Copy)]
pub struct JobStatus;

/// Ends a background job.
#[derive(Debug, Clone, Copy)]
pub struct JobKill;

#[async_trait]
impl Tool for JobStart {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            START,
            "Starts a command in the background, for what runs beside your other work, such as a \
             server, and returns the name of the job. At most 8 jobs at a time; every job is \
             ended when your turn ends.",
            &START_FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::Executes
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let request = match parse_start(arguments) {
            Ok(request) => request,
            Err(error) => return error.into(),
        };
        match open(ctx) {
            Ok((session, state)) => start(ctx, session, &state, request).await,
            Err(output) => output,
        }
    }
}

#[async_trait]
impl Tool for JobStatus {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "job_status",
            "Shows what a background job has printed since the last look, or all of it and its \
             exit code when it has ended.",
            &STATUS_FIELDS,
        )
    }

    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let (id, wait) = match parse_status(arguments) {
            Ok(parsed) => parsed,
            Err(error) => return error.into(),
        };
        let job = match find(ctx, &id).await {
            Ok(job) => job,
            Err(output) => return output,
        };
        if let Some(wait) = wait {
            tokio::select! {
                biased;
                () = ctx.cancel.cancelled() => return ToolOutput::cancelled(),
                () = job.ended() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        job.look()
    }
}

#[async_trait]
impl Tool for JobKill {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            "job_kill",
            "Ends a background job with all its processes and shows what it had printed.",
            &KILL_FIELDS,
        )
    }

    /// Ending its own job is nothing that the model has to ask a person for.
    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let id = match parse_kill(arguments) {
            Ok(id) => id,
            Err(error) => return error.into(),
        };
        let job = match find(ctx, &id).await {
            Ok(job) => job,
            Err(output) => return output,
        };
        job.cancel.cancel();
        // It ends soon: its processes are killed, and its output is waited for only for a moment.
        job.ended().await;
        let shown = job.look();
        if shown.outcome == Outcome::Cancelled {
            // That is what was wanted.
            return ToolOutput {
                outcome: Outcome::Ok,
                ..shown
            };
        }
        shown
    }
}

fn parse_start(value: &Value) -> Result<shell::Request, ArgumentError> {
    let arguments = Arguments::new(START, value, &START_FIELDS)?;
    let command = arguments.string("command")?;
    let timeout = arguments.count("timeout_ms", millis(JOB_TIMEOUT_MAX))?;
    let mut request = shell::Request::parse(&json!({ "command": command }))?;
    request.timeout = timeout.map_or(JOB_TIMEOUT_DEFAULT, Duration::from_millis);
    Ok(request)
}

fn parse_status(value: &Value) -> Result<(String, Option<Duration>), ArgumentError> {
    let arguments = Arguments::new("job_status", value, &STATUS_FIELDS)?;
    let wait = arguments.count("wait_ms", millis(JOB_WAIT_MAX))?;
    Ok((
        arguments.string("id")?.to_owned(),
        wait.map(Duration::from_millis),
    ))
}

fn parse_kill(value: &Value) -> Result<String, ArgumentError> {
    let arguments = Arguments::new("job_kill", value, &KILL_FIELDS)?;
    Ok(arguments.string("id")?.to_owned())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn open(ctx: &ToolContext) -> Result<(&CallSession, Arc<RunState>), ToolOutput> {
    let session = ctx.session.as_ref();
    let found = session.and_then(|session| Some((session, session.core()?)));
    let (session, core) =
        found.ok_or_else(|| ToolOutput::error("jobs belong to a run, and there is none here"))?;
    Ok((session, core.shared.run_states.of(session.run_id())))
}

async fn start(
    ctx: &ToolContext,
    session: &CallSession,
    state: &RunState,
    request: shell::Request,
) -> ToolOutput {
    let Some(core) = session.core() else {
        return ToolOutput::cancelled();
    };
    let turn = core.writer.with_transcript(|t| t.last_turn()).await;
    drop(core);
    let (tell, done) = watch::channel(false);
    let job = Job {
        id: String::new(),
        cancel: ctx.cancel.child_token(),
        fresh: Mutex::default(),
        end: Mutex::new(End::Running),
        done,
    };
    let job = match state.jobs.add(turn, job) {
        Ok(job) => job,
        Err(output) => return output,
    };
    let (sender, receiver) = mpsc::channel(64);
    let mut inner = ctx.clone();
    inner.cancel = job.cancel.clone();
    inner.output = Some(sender);
    // The job must not keep anything of the session.
    inner.session = None;
    // A terminal is shown with the call that it belongs to, and that call ends here.
    inner.terminals = None;
    let (id, started) = (
        job.id.clone(),
        text::shorten(&text::printable(&request.command), JOB_COMMAND_BYTES),
    );
    tokio::spawn(async move {
        let run = async {
            let output = request.run(&inner).await.unwrap_or_else(|refused| refused);
            // The last sender goes, and so the collecting ends.
            drop(inner);
            output
        };
        let (output, ()) = tokio::join!(run, collect(receiver, &job));
        *lock(&job.end) = End::Ended(output);
        tell.send_replace(true);
    });
    ToolOutput::ok(format!(
        "job `{id}` runs `{started}`; look at it with job_status. It is ended when this turn ends."
    ))
}

async fn collect(mut pieces: mpsc::Receiver<(OutputStream, String)>, job: &Job) {
    while let Some((_, piece)) = pieces.recv().await {
        lock(&job.fresh).push(&piece);
    }
}

/// Returns a job of this run, or what is known of one that is not.
async fn find(ctx: &ToolContext, id: &str) -> Result<Arc<Job>, ToolOutput> {
    let (session, state) = open(ctx)?;
    if let Some(job) = state.jobs.get(id) {
        return Ok(job);
    }
    let begin = format!("job `{id}` runs ");
    let started = |result: &ToolResult| {
        (result.name == START && plain_text(&result.content).starts_with(&begin)).then_some(())
    };
    let known = session.pick_results(started).await.map_err(|error| {
        ToolOutput::error(format!(
            "the session's log cannot be read: {}",
            error_chain(&error)
        ))
    })?;
    let shown = text::shorten(&text::printable(id), 100);
    if known.is_empty() {
        let jobs = state.jobs.names();
        let known = if jobs.is_empty() {
            "this turn has started none".to_owned()
        } else {
            format!("the jobs of this turn are: {}", jobs.join(", "))
        };
        return Err(ToolOutput::error(format!(
            "there is no job `{shown}`; {known}"
        )));
    }
    Err(ToolOutput::new(
        Outcome::Unknown,
        format!(
            "job `{shown}` was started in an earlier turn and was ended with that turn, or with \
             the process that ran it, at the latest. How far it came is unknown: check what it \
             did before you start it again."
        ),
    ))
}

/// The jobs of one run.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<Held>);

#[derive(Default)]
struct Held {
    started: u64,
    over: bool,
    jobs: BTreeMap<String, Arc<Job>>,
}

struct Job {
    id: String,
    cancel: CancellationToken,
    fresh: Mutex<Fresh>,
    end: Mutex<End>,
    done: watch::Receiver<bool>,
}

enum End {
    Running,
    Ended(ToolOutput),
    /// The model has seen it, so the text is not held any longer.
    Told(Outcome),
}

/// Output that the model has not seen, of a long one its end.
#[derive(Default)]
struct Fresh {
    text: String,
    dropped: usize,
}

impl Fresh {
    fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > JOB_FRESH_BYTES {
            let end = text::tail(&self.text, JOB_FRESH_BYTES / 2).to_owned();
            self.dropped += self.text.len() - end.len();
            self.text = end;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    fn add(&self, turn: u64, mut job: Job) -> Result<Arc<Job>, ToolOutput> {
        let mut held = lock(&self.0);
        let open = |job: &&Arc<Job>| !matches!(*lock(&job.end), End::Told(_));
        let busy: Vec<&str> = held
            .jobs
            .values()
            .filter(open)
            .map(|job| job.id.as_str())
            .collect();
        if busy.len() >= JOBS {
            return Err(ToolOutput::error(format!(
                "there are {JOBS} jobs already that run or whose end you have not looked at: {}; \
                 end one with job_kill, or look at one that has ended with job_status",
                busy.join(", ")
            )));
        }
        if held.over {
            return Err(ToolOutput::cancelled());
        }
        held.started += 1;
        job.id = format!("job-{turn}.{}", held.started);
        let job = Arc::new(job);
        held.jobs.insert(job.id.clone(), Arc::clone(&job));
        Ok(job)
    }

    fn get(&self, id: &str) -> Option<Arc<Job>> {
        lock(&self.0).jobs.get(id).cloned()
    }

    fn names(&self) -> Vec<String> {
        lock(&self.0).jobs.keys().cloned().collect()
    }

    /// Ends all jobs; none is taken any more.
    pub(crate) fn end(&self) {
        let mut held = lock(&self.0);
        held.over = true;
        for job in held.jobs.values() {
            job.cancel.cancel();
        }
    }
}

impl Job {
    /// Waits for the end.
    async fn ended(&self) {
        // An error means that the job's task broke; it has ended then as well.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }

    fn look(&self) -> ToolOutput {
        let id = &self.id;
        let mut end = lock(&self.end);
        match std::mem::replace(&mut *end, End::Running) {
            End::Ended(output) => {
                *end = End::Told(output.outcome);
                let text = format!("job `{id}` has ended:\n{}", output.text());
                ToolOutput::new(output.outcome, text)
            }
            End::Told(outcome) => {
                *end = End::Told(outcome);
                ToolOutput::new(
                    outcome,
                    format!("job `{id}` has ended; an earlier call showed its output"),
                )
            }
            End::Running if self.done.has_changed().is_err() => ToolOutput::new(
                Outcome::Unknown,
                format!("job `{id}` broke; how far it came is unknown; this is a defect"),
            ),
            End::Running => {
                let Fresh { text, dropped } = std::mem::take(&mut *lock(&self.fresh));
                let mut shown = format!("job `{id}` is running");
                if dropped > 0 {
                    shown.push_str(&format!(
                        "; {dropped} bytes of what it printed are shown only at its end"
                    ));
                }
                shown.push_str(if text.is_empty() {
                    "; it has printed nothing new"
                } else {
                    "\n"
                });
                shown.push_str(&text);
                ToolOutput::ok(shown)
            }
        }
    }
}
