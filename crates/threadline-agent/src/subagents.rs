//! Subagents: child sessions that work for a call of their parent.
//!
//! A child has a log of its own, whose header names the parent and the call. Its id follows from
//! the parent's id, the step and the call's id, so that it is known from the parent's log alone:
//! whoever resumes the parent after a crash is told which session the interrupted call began.
//!
//! A child may never do more than its parent: policy and sandbox are the parent's or narrower, a
//! resumed child's are also not wider than they were, and what a person approved for the parent's
//! session is not approved for the child's. Its questions are on the same board.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use threadline_session::{
    Header, Item, Origin, Parent, Payload, SessionId, Transcript,
    payload::{
        AssistantMessage, ContentPart, EndReason, Outcome, OutputStream, SandboxMode,
        SubagentUsage, ToolDefinition, Usage, UserMessage, UserSource,
    },
    types,
};
use threadline_store::{AppendOptions, ReadError, SessionStore, error_chain};

use crate::{
    Agent, Agents, ResumeOptions, Run, RunInput, RunOutcome, StartError, Started,
    agents::Core,
    limits::SUBAGENT_DEPTH,
    policy::{Bounds, narrow},
    tools::{
        ArgumentError, CallSession, Effect, Tool, ToolContext, ToolOutput,
        arguments::{self, Arguments, Field},
        parse_arguments,
        text::{printable, shorten},
    },
};

const NAME: &str = "agent";
const RESUME: &str = "resume";

const FIELDS: [Field; 3] = [
    Field::required(
        "task",
        "string",
        "What it shall do, with all that it must know: it sees nothing of this conversation.",
    ),
    Field::optional(
        "mode",
        "string",
        "`explore` lets it only read; `work`, the default, lets it do what you may do.",
    ),
    Field::optional(
        RESUME,
        "string",
        "The session of an earlier subagent of yours, to go on with it.",
    ),
];

/// Runs a subagent and returns its final answer.
///
/// At most [`SUBAGENTS`](crate::limits::SUBAGENTS) of a run work at the same time, and a session
/// with [`SUBAGENT_DEPTH`] subagents above it, itself included, starts none.
#[derive(Debug, Clone, Copy)]
pub struct Subagent;

#[async_trait]
impl Tool for Subagent {
    fn definition(&self) -> ToolDefinition {
        arguments::definition(
            NAME,
            "Gives a task to a subagent with a session of its own and returns its final answer. \
             Several in one message work at the same time, so give each its own files.",
            &FIELDS,
        )
    }

    /// The call itself changes nothing; every call of the child is judged on its own.
    fn effect(&self, _arguments: &Value) -> Effect {
        Effect::ReadOnly
    }

    async fn run(&self, arguments: &Value, ctx: &ToolContext) -> ToolOutput {
        let request = match Request::parse(arguments) {
            Ok(request) => request,
            Err(error) => return error.into(),
        };
        let Some((session, core)) = ctx
            .session
            .as_ref()
            .and_then(|session| Some((session, session.core()?)))
        else {
            return ToolOutput::error("subagents belong to a run, and there is none here");
        };
        // Boxed: it holds a whole start of a run.
        Box::pin(request.run(ctx, session, &core))
            .await
            .unwrap_or_else(|refused| refused)
    }
}

struct Request {
    task: String,
    explore: bool,
    resume: Option<SessionId>,
}

impl Request {
    fn parse(value: &Value) -> Result<Self, ArgumentError> {
        let arguments = Arguments::new(NAME, value, &FIELDS)?;
        let task = arguments.string("task")?;
        if task.trim().is_empty() {
            return Err(ArgumentError::Invalid {
                field: "task",
                problem: "is empty".into(),
            });
        }
        let explore = match arguments.optional_string("mode")? {
            None | Some("work") => false,
            Some("explore") => true,
            Some(other) => {
                return Err(ArgumentError::Invalid {
                    field: "mode",
                    problem: format!(
                        "must be `explore` or `work`, not `{}`",
                        shorten(&printable(other), 100)
                    ),
                });
            }
        };
        let resume = arguments.optional_string(RESUME)?.map(SessionId::parse);
        let resume = resume.transpose().map_err(|error| ArgumentError::Invalid {
            field: RESUME,
            problem: format!("is no session: {error}"),
        })?;
        Ok(Self {
            task: task.to_owned(),
            explore,
            resume,
        })
    }

    async fn run(
        &self,
        ctx: &ToolContext,
        session: &CallSession,
        core: &Arc<Core>,
    ) -> Result<ToolOutput, ToolOutput> {
        let store = &core.shared.store;
        let depth = depth(store, core.writer.header())
            .await
            .map_err(unreadable)?;
        if depth >= SUBAGENT_DEPTH {
            return Err(ToolOutput::denied(format!(
                "there are {depth} levels of subagents already, which is the most; do the task \
                 yourself"
            )));
        }
        let state = core.shared.run_states.of(session.run_id());
        let permit = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return Err(ToolOutput::cancelled()),
            permit = state.subagents.clone().acquire_owned() => permit,
        };
        let agent = match &self.resume {
            Some(id) => open(core, id).await?,
            None => create(core, session.call_id()).await?,
        };
        let mut input = self.input(session, ctx, &agent).await;
        let budget = session.budget();
        let left = core
            .writer
            .with_transcript(|transcript| budget.left(transcript.facts()))
            .await;
        // So that no child uses more than its parent has left.
        input.limits = Some(left);
        let id = agent.session_id().clone();
        let started = agent
            .start(input)
            .await
            .map_err(|error| failed(&id, &error))?;
        // The session is free again as soon as its run has ended.
        drop(agent);
        let Started::New(run) = started else {
            return Err(ToolOutput::error(format!("session {id} did not begin")));
        };
        let outcome = follow(ctx, &run).await;
        drop(permit);
        tell_usage(core, &id).await?;
        Ok(report(&id, outcome))
    }

    /// What the child runs under: what the parent does, or less.
    async fn input(&self, session: &CallSession, ctx: &ToolContext, agent: &Agent) -> RunInput {
        let parent = session.context();
        let mut bounds: Bounds = (parent.approval_policy, ctx.sandbox);
        let before = agent
            .writer()
            .with_transcript(|transcript| {
                let context = transcript.context()?;
                Some((context.approval_policy, context.sandbox_mode))
            })
            .await;
        if let Some(before) = before {
            bounds = narrow(before, bounds);
        }
        if self.explore {
            bounds = narrow((bounds.0, SandboxMode::ReadOnly), bounds);
        }
        // Only a fresh session takes its model from the parent; another one has its own.
        let fresh = before.is_none();
        RunInput {
            task: self.task.clone(),
            model: fresh.then(|| format!("{}/{}", parent.provider, parent.model)),
            temperature: parent.temperature.filter(|_| fresh),
            approval_policy: Some(bounds.0),
            sandbox_mode: Some(bounds.1),
            // The sandbox is about this folder, so a resumed child does not keep another one.
            cwd: Some(ctx.cwd.clone()),
            confined: parent.confined,
            ..RunInput::default()
        }
    }
}

/// Waits for the child's end, which is also waited for after a cancel.
async fn follow(ctx: &ToolContext, run: &Run) -> RunOutcome {
    if let Some(output) = &ctx.output {
        let note = format!("[subagent: session {}]\n", run.session_id());
        // Nobody has to listen.
        let _ = output.send((OutputStream::Stdout, note)).await;
    }
    tokio::select! {
        biased;
        () = ctx.cancel.cancelled() => {
            run.cancel();
            run.wait().await
        }
        outcome = run.wait() => outcome,
    }
}

/// Logs what a child has used since its parent last told. Told before the result, so that a death
/// in between loses nothing: the call's outcome is then unknown, and the next turn looks again.
async fn tell_usage(core: &Core, child: &SessionId) -> Result<(), ToolOutput> {
    let Some(used) = usage_of(core, child).await.map_err(unreadable)? else {
        return Ok(());
    };
    core.writer
        .record(vec![used], AppendOptions::default())
        .await
        .map(drop)
        .map_err(|error| {
            ToolOutput::error(format!(
                "what session {child} used could not be logged: {}",
                error_chain(&error)
            ))
        })
}

/// Returns what a child has used and this session's log does not tell of yet.
async fn usage_of(core: &Core, child: &SessionId) -> Result<Option<Payload>, ReadError> {
    let store = &core.shared.store;
    let summary = match store.summary(child).await {
        Ok(summary) => summary,
        // It never began, or a person deleted it.
        Err(ReadError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut usage = summary.usage;
    usage.add(&summary.subagent_usage);
    let mut told = Usage::default();
    store
        .each_event(core.writer.id(), |line| {
            // Other lines are not parsed.
            if line.event.kind == types::SUBAGENT_USAGE
                && let Ok(Payload::SubagentUsage(event)) = line.event.payload()
                && event.session_id == *child
            {
                told = event.usage;
            }
            true
        })
        .await?;
    let added = usage.minus(&told);
    Ok((!added.is_zero()).then(|| {
        Payload::SubagentUsage(SubagentUsage {
            session_id: child.clone(),
            usage,
            added,
        })
    }))
}

fn report(id: &SessionId, outcome: RunOutcome) -> ToolOutput {
    let (kind, how) = match &outcome.reason {
        EndReason::Completed => (Outcome::Ok, "is done".to_owned()),
        EndReason::Cancelled => (Outcome::Cancelled, "was cancelled".into()),
        EndReason::Blocked => (
            Outcome::Denied,
            "needed a person's approval, and nobody is there to be asked".into(),
        ),
        EndReason::Error { code, message } => {
            (Outcome::Error, format!("failed with `{code}`: {message}"))
        }
        other => (Outcome::Error, format!("ended early: {}", other.name())),
    };
    let mut text = outcome.answer;
    if text.is_empty() {
        text.push_str("[no answer]");
    }
    text.push_str(&format!(
        "\n[the subagent {how}; its session is {id}, and `{RESUME}` goes on with it]"
    ));
    ToolOutput::new(kind, text)
}

/// Makes the child session of a call. Nothing is stored before its first turn.
async fn create(core: &Arc<Core>, call_id: &str) -> Result<Agent, ToolOutput> {
    let parent = core.writer.id();
    let (step, next) = core
        .writer
        .with_transcript(|transcript| (transcript.last_step(), transcript.next_seq()))
        .await;
    let id = child_id(parent, step, call_id);
    let store = &core.shared.store;
    if core.shared.is_running(&id) || store.has(&id).await.map_err(unreadable)? {
        return Err(ToolOutput::error(format!(
            "a call with the id {} has begun a subagent in this step already; call again",
            shorten(&printable(call_id), 100)
        )));
    }
    let mut header = Header::new(
        id.clone(),
        store.clock().now_ms(),
        core.writer.header().cwd.clone(),
    );
    header.parent = Some(Parent {
        id: parent.clone(),
        seq: next.saturating_sub(1),
    });
    header.origin = Origin::Subagent {
        call_id: Some(call_id.to_owned()),
    };
    let writer = store
        .begin(header)
        .map_err(|error| failed(&id, &StartError::Create(error)))?;
    Ok(Agent::new(core.shared.clone(), writer, false, 0))
}

/// Opens a child for going on with it.
async fn open(core: &Arc<Core>, id: &SessionId) -> Result<Agent, ToolOutput> {
    let parent = core.writer.id();
    let foreign = || {
        ToolOutput::denied(format!(
            "session {} is no subagent of this session; `{RESUME}` takes only those",
            shorten(&printable(id.as_str()), 100)
        ))
    };
    let header = match core.shared.store.header(id).await {
        Ok(stored) => stored.header,
        // It may never have begun, or never have been: what others have is not told.
        Err(ReadError::NotFound { .. }) => return Err(foreign()),
        Err(error) => return Err(unreadable(error)),
    };
    let is_child = matches!(header.origin, Origin::Subagent { .. })
        && header.parent.is_some_and(|named| named.id == *parent);
    if !is_child {
        return Err(foreign());
    }
    let agents = Agents {
        shared: core.shared.clone(),
    };
    agents
        .resume(ResumeOptions::new(id.clone()))
        .await
        .map_err(|error| failed(id, &error))
}

fn failed(id: &SessionId, error: &StartError) -> ToolOutput {
    let mut text = format!("session {id} could not be run: {}", error_chain(error));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("; {hint}"));
    }
    ToolOutput::error(text)
}

fn unreadable(error: ReadError) -> ToolOutput {
    ToolOutput::error(format!(
        "the session cannot be read: {}",
        error_chain(&error)
    ))
}

/// Returns how many subagents a session stands below, itself included.
async fn depth(store: &SessionStore, header: &Header) -> Result<usize, ReadError> {
    let mut depth = 0;
    let mut header = header.clone();
    while depth < SUBAGENT_DEPTH && matches!(header.origin, Origin::Subagent { .. }) {
        depth += 1;
        let Some(parent) = header.parent else {
            break;
        };
        header = match store.header(&parent.id).await {
            Ok(stored) => stored.header,
            // A person deleted it. What is left is counted.
            Err(ReadError::NotFound { .. }) => break,
            Err(error) => return Err(error),
        };
    }
    Ok(depth)
}

/// Returns the session that a subagent works for, through all levels; of any other session, itself.
pub(crate) async fn root(store: &SessionStore, header: &Header) -> SessionId {
    let mut id = header.id.clone();
    let mut next = Some(header.clone());
    for _ in 0..SUBAGENT_DEPTH {
        let Some(header) = next.take_if(|h| matches!(h.origin, Origin::Subagent { .. })) else {
            break;
        };
        let Some(parent) = header.parent else {
            break;
        };
        // One that a person deleted still has its name.
        next = store
            .header(&parent.id)
            .await
            .ok()
            .map(|stored| stored.header);
        id = parent.id;
    }
    id
}

/// Returns the id of the session that a call begins. It takes its time from the parent's id, so
/// that both are kept in one place.
fn child_id(parent: &SessionId, step: u64, call_id: &str) -> SessionId {
    let name = format!("threadline:subagent:{parent}:{step}:{call_id}");
    let mut bytes = *uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()).as_bytes();
    if let Some(timed) = parent.as_uuid().filter(|id| id.get_version_num() == 7) {
        for (byte, time) in bytes.iter_mut().zip(timed.as_bytes().iter().take(6)) {
            *byte = *time;
        }
        bytes[6] = (bytes[6] & 0x0f) | 0x70;
    }
    SessionId::from_uuid(uuid::Uuid::from_bytes(bytes))
}

/// Returns what is to be said of the sessions that the interrupted calls of the last turn had
/// begun: what they have used, and a message that names them. Recovery itself cannot tell: it knows
/// calls, not what tools make of them.
pub(crate) async fn interrupted(core: &Core) -> Vec<Payload> {
    let parent = core.writer.id();
    let calls = core
        .writer
        .with_transcript(|transcript| cut_short(transcript, parent))
        .await;
    let mut told = Vec::new();
    let mut notes = Vec::new();
    for (call, child) in calls {
        match usage_of(core, &child).await {
            Ok(used) => told.extend(used),
            // A damaged child does not keep its parent from going on.
            Err(error) => tracing::warn!(%error, %child, "what a subagent used cannot be read"),
        }
        let call = shorten(&printable(&call), 100);
        notes.push(ContentPart::text(format!(
            "Subagent: the interrupted call {call} of `{NAME}` had the session {child}. Call \
             `{NAME}` with `{RESUME}` and that session to go on with it; if that is refused, it had \
             not begun yet."
        )));
    }
    if !notes.is_empty() {
        told.push(Payload::UserMessage(UserMessage {
            content: notes,
            source: UserSource::Context,
        }));
    }
    told
}

/// Returns the interrupted calls of the last turn that had begun sessions, and these.
fn cut_short(transcript: &Transcript, parent: &SessionId) -> Vec<(String, SessionId)> {
    let mut last: Vec<Item> = transcript.surface().map(|(_, item)| item).collect();
    let task = last.iter().rposition(
        |item| matches!(item, Item::User(message) if message.source != UserSource::Context),
    );
    last.drain(..task.map_or(0, |at| at + 1));
    let mut message: Option<&Arc<AssistantMessage>> = None;
    let mut found = Vec::new();
    for item in &last {
        match item {
            Item::Assistant(asking) => message = Some(asking),
            Item::ToolResult(result)
                if result.synthetic
                    && result.name == NAME
                    && result.outcome == Outcome::Unknown =>
            {
                let Some(message) = message else {
                    continue;
                };
                let child = resumed(message, &result.call_id)
                    .unwrap_or_else(|| child_id(parent, message.step, &result.call_id));
                found.push((result.call_id.clone(), child));
            }
            _ => {}
        }
    }
    found
}

/// The session that a call was to go on with.
fn resumed(message: &AssistantMessage, call_id: &str) -> Option<SessionId> {
    let call = message.calls().find(|call| call.call_id == call_id)?;
    let arguments = parse_arguments(call.arguments).ok()?;
    let id = arguments.get(RESUME)?.as_str()?;
    SessionId::parse(id).ok()
}
