//! How a run begins: what it runs under, and the prompt on disk before anything else happens.

use std::path::PathBuf;

use serde::Serialize;
use threadline_model::Images;
use threadline_session::{
    OsPath, Payload, RunId, SessionId, Transcript, closers,
    payload::{
        ApprovalPolicy, ContentPart, ModelRef, SandboxMode, SystemPrompt, SystemReason,
        ToolDefinition, TurnContext, TurnStart, UserMessage, UserSource,
    },
};
use threadline_store::AppendOptions;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Agent, Agents, Allow, CreateOptions, ResumeOptions, Run, RunLimits, StartError,
    agents::{Core, new_run_id},
    budget::{Budget, price},
    context,
    driver::{Driver, Task},
    inbox,
    lent::Borrowed,
    limits::MAX_IMAGES,
    offers::Approved,
    prompt,
    run::RunParts,
    sources::Sources,
    spans, subagents,
};

/// As the whole task, makes the history shorter instead of asking the model for anything else.
pub const COMPACT_COMMAND: &str = "/compact";

/// What a run is asked to do. What is `None` comes from the session, or else from the defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunInput {
    /// The task.
    pub task: String,
    /// Images that belong to it, as the bytes of PNG, JPEG, GIF or WebP files.
    pub images: Vec<Vec<u8>>,
    /// What it is good for.
    pub goal: Option<String>,
    /// What the model should know besides.
    pub context: Option<String>,
    /// `provider/name`, or the name of a model of the session's provider.
    pub model: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Approval policy. Naming one here is what makes widening explicit; it is logged.
    pub approval_policy: Option<ApprovalPolicy>,
    /// Sandbox mode. Naming one here is what makes widening explicit; it is logged.
    pub sandbox_mode: Option<SandboxMode>,
    /// Working directory.
    pub cwd: Option<PathBuf>,
    /// Commands that are not asked for from here on. Naming them is what makes widening explicit;
    /// each is logged as a grant.
    pub allow: Vec<Allow>,
    /// Whether no call may leave the sandbox, whatever a person would say: the bound of a server.
    pub confined: bool,
    /// Most steps.
    pub max_steps: Option<u32>,
    /// What the run may use, besides what the harness is configured to allow: the smaller holds.
    pub limits: Option<RunLimits>,
    /// A repeat of the same key starts nothing and gives the first run again.
    pub idempotency_key: Option<String>,
}

/// What a run runs under, as it is shown to people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPolicy {
    /// Approval policy.
    pub approval_policy: ApprovalPolicy,
    /// Sandbox mode.
    pub sandbox_mode: SandboxMode,
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Working directory.
    pub cwd: String,
}

impl From<&TurnContext> for RunPolicy {
    fn from(context: &TurnContext) -> Self {
        Self {
            approval_policy: context.approval_policy,
            sandbox_mode: context.sandbox_mode,
            provider: context.provider.clone(),
            model: context.model.clone(),
            cwd: context.cwd.display(),
        }
    }
}

/// A run that was started now, or had been before under the same idempotency key.
#[derive(Debug)]
pub enum Started {
    /// Now.
    New(Run),
    /// Before. Its session and the last event of its prompt.
    Repeated {
        /// The session.
        session_id: SessionId,
        /// Last event of the prompt's batch.
        seq: u64,
    },
}

impl Agents {
    /// Creates or resumes a session and starts a run in it.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is created when an existing session was asked for.
    pub async fn start(
        &self,
        session: Option<SessionId>,
        input: RunInput,
    ) -> Result<Started, StartError> {
        if input.task.trim().is_empty() {
            return Err(StartError::EmptyTask);
        }
        let agent = match session {
            Some(session_id) => self.resume(ResumeOptions::new(session_id)).await?,
            None => {
                let session_id = input.idempotency_key.as_deref().map(keyed_session);
                if let Some(id) = &session_id
                    && self
                        .store()
                        .has(id)
                        .await
                        .map_err(threadline_store::OpenError::from)?
                {
                    return Ok(Started::Repeated {
                        session_id: id.clone(),
                        seq: 0,
                    });
                }
                self.create(CreateOptions {
                    cwd: input.cwd.clone(),
                    session_id,
                })?
            }
        };
        agent.start(input).await
    }
}

/// A new session that is asked for twice under one key gets one id, so that the second finds the
/// first, also in another process. A key that is a UUID of version 7 lends the id its time, so that
/// the session is kept by its day like any other.
fn keyed_session(key: &str) -> SessionId {
    let name = format!("threadline:{key}");
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    let timed = uuid::Uuid::try_parse(key)
        .ok()
        .filter(|key| key.get_version_num() == 7);
    let id = timed.map_or(hash, |timed| {
        let mut bytes = *hash.as_bytes();
        bytes[..6].copy_from_slice(&timed.as_bytes()[..6]);
        bytes[6] = (bytes[6] & 0x0f) | 0x70;
        uuid::Uuid::from_bytes(bytes)
    });
    SessionId::from_uuid(id)
}

impl Agent {
    /// Starts a turn. On return its prompt is stored; the run goes on in a task of its own and
    /// holds the session open until it ends.
    ///
    /// Dropping the future between the two leaves a stored prompt that nobody runs; the session's
    /// next opening closes it as interrupted. Spawn the call where that can happen.
    ///
    /// # Errors
    /// [`StartError`]; nothing was sent to a model then.
    pub async fn start(&self, input: RunInput) -> Result<Started, StartError> {
        if input.task.trim().is_empty() {
            return Err(StartError::EmptyTask);
        }
        let _lock = self.core.inbox.lock().await;
        self.begin(input, None).await
    }

    /// Starts a turn on a call that a person has approved after its process died.
    pub(crate) async fn start_approved(
        &self,
        approved: Approved,
        input: RunInput,
    ) -> Result<Started, StartError> {
        let _lock = self.core.inbox.lock().await;
        let input = RunInput {
            task: String::new(),
            ..input
        };
        self.begin(input, Some(approved)).await
    }

    /// Starts a turn on the first message that waits in the inbox, under what `input` names besides
    /// a task; `None` when there is none.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_queued(&self, input: RunInput) -> Result<Option<Started>, StartError> {
        let _lock = self.core.inbox.lock().await;
        if self.core.waiting().await.is_empty() {
            return Ok(None);
        }
        let input = RunInput {
            task: String::new(),
            ..input
        };
        self.begin(input, None).await.map(Some)
    }

    /// Starts a turn; without a task it is about the first message in the inbox. The inbox must be
    /// locked.
    async fn begin(
        &self,
        input: RunInput,
        approved: Option<Approved>,
    ) -> Result<Started, StartError> {
        let core = &self.core;
        if core.shared.is_running(self.session_id()) {
            return Err(StartError::Busy {
                id: self.session_id().clone(),
            });
        }
        let images = core.keep_images(&input.images).await?;
        core.close_leftover().await?;
        let children = subagents::interrupted(core).await;
        let sources = Sources::of(core).await;
        let borrowed = Borrowed::of(core).await;
        let (context, payloads) = core
            .writer
            .with_transcript(|transcript| {
                core.open_turn(
                    transcript,
                    &input,
                    images,
                    approved.as_ref(),
                    children,
                    sources.is_some(),
                )
            })
            .await?;
        let provider = core
            .shared
            .config
            .models
            .provider(&context.provider)?
            .clone();
        let Some(Payload::TurnStart(start)) = payloads.first() else {
            return Err(StartError::Internal(
                "a turn does not begin with its start".into(),
            ));
        };
        let (turn, run_id) = (start.turn, start.run_id.clone());
        let count = payloads.len() as u64;
        let options = AppendOptions {
            key: input.idempotency_key.clone(),
            barrier: false,
        };
        let appended = core.writer.record(payloads, options).await?;
        if appended.repeated {
            let session_id = self.session_id().clone();
            return Ok(Started::Repeated {
                session_id,
                seq: appended.last_seq,
            });
        }
        let (outcome, watch) = watch::channel(None);
        let run = Run::new(RunParts {
            run_id,
            session_id: self.session_id().clone(),
            // A session that this agent created is resumed from its second turn on.
            resumed: core.resumed || turn > 1,
            recovered: core.writer.recovered().cloned(),
            policy: RunPolicy::from(&context),
            start_seq: appended.last_seq + 1 - count,
            cancel: CancellationToken::new(),
            outcome: watch,
            store: core.shared.store.clone(),
        });
        core.shared.note_run(&run, core);
        let task = if is_compact(&input.task) {
            Task::Compact
        } else {
            Task::Work
        };
        let budget = core.budget(&input, &context).await;
        let mut driver = Driver::new(
            core.clone(),
            run.clone(),
            provider,
            context,
            turn,
            task,
            budget,
        );
        driver.approved = approved;
        driver.sources = sources;
        driver.borrowed = borrowed;
        let span = spans::run(&run, &driver.context);
        tokio::spawn(driver.run(span, outcome));
        Ok(Started::New(run))
    }
}

impl Core {
    /// Stores images that come with a task or a message. What no provider could be shown is refused
    /// here, before it is in the log.
    pub(crate) async fn keep_images(
        &self,
        images: &[Vec<u8>],
    ) -> Result<Vec<ContentPart>, StartError> {
        if images.len() > MAX_IMAGES {
            return Err(StartError::ManyImages {
                images: images.len(),
            });
        }
        let mut parts = Vec::with_capacity(images.len());
        for (at, bytes) in images.iter().enumerate() {
            let media_type = Images::check(bytes).map_err(|error| StartError::Image {
                number: at + 1,
                error,
            })?;
            let blob = self.shared.store.put_blob(bytes).await?;
            parts.push(ContentPart::Image {
                media_type: media_type.into(),
                blob: blob.as_str().into(),
            });
        }
        Ok(parts)
    }

    /// Returns what a run may use that begins now.
    async fn budget(&self, input: &RunInput, context: &TurnContext) -> Budget {
        let config = &self.shared.config;
        let asked = input.limits.unwrap_or(RunLimits::NONE);
        let model = ModelRef {
            provider: context.provider.clone(),
            name: context.model.clone(),
        };
        let price = price(&config.prices, &model).unwrap_or_default();
        let before = self
            .writer
            .with_transcript(|transcript| transcript.facts().clone())
            .await;
        Budget::new(config.limits.narrow(&asked), price, &before)
    }

    /// A run that stopped because the storage was full left its turn open.
    async fn close_leftover(&self) -> Result<(), StartError> {
        let (first, events) = self
            .writer
            .with_transcript(|t| (t.next_seq(), closers(t)))
            .await;
        let events = events.map_err(|e| StartError::Internal(e.to_string()))?;
        if !events.is_empty() {
            self.writer
                .append(first, events, AppendOptions::barrier())
                .await?;
        }
        Ok(())
    }

    fn open_turn(
        &self,
        transcript: &Transcript,
        input: &RunInput,
        images: Vec<ContentPart>,
        approved: Option<&Approved>,
        children: Vec<Payload>,
        has_sources: bool,
    ) -> Result<(TurnContext, Vec<Payload>), StartError> {
        let context = self.context(transcript.context(), input)?;
        let cwd = context.cwd.as_path();
        if !cwd.is_dir() {
            return Err(StartError::MissingFolder {
                path: context.cwd.display(),
            });
        }
        let granted = self.granted(transcript, &input.allow)?;
        let turn = transcript.last_turn() + 1;
        let run_id = if turn == 1 {
            RunId::parse(self.writer.id().as_str())
                .map_err(|e| StartError::Internal(e.to_string()))?
        } else {
            new_run_id()
        };
        let mut payloads = vec![Payload::TurnStart(TurnStart {
            turn,
            run_id,
            context: context.clone(),
        })];
        payloads.extend(granted);
        let compacts = is_compact(&input.task);
        // What sources have is known only when they are ready, so the run logs it then. Making the
        // history shorter takes no tools, but a first request needs a prompt.
        if !has_sources || (compacts && transcript.system().is_none()) {
            let tools = self.shared.config.toolbox.definitions();
            payloads.extend(system_prompt(transcript, tools));
        }
        if compacts {
            return Ok((context, payloads));
        }
        let now = self.shared.store.clock().now_ms();
        payloads.extend(context::news(transcript, cwd, now).map(Payload::UserMessage));
        payloads.extend(children);
        payloads.extend(approved.map(Approved::message));
        let mut waiting = transcript.inbox().to_vec();
        if approved.is_some() {
            waiting.clear();
        } else if input.task.is_empty() {
            waiting.truncate(1);
        }
        payloads.extend(inbox::taken(waiting, UserSource::Queued));
        if !input.task.is_empty() {
            let mut content = vec![ContentPart::text(task_text(input))];
            content.extend(images);
            payloads.push(Payload::UserMessage(UserMessage {
                content,
                source: UserSource::User,
            }));
        }
        Ok((context, payloads))
    }

    /// What the session ran under stays in force unless the caller names something else; a
    /// default never replaces it (field report C89).
    fn context(
        &self,
        before: Option<&TurnContext>,
        input: &RunInput,
    ) -> Result<TurnContext, StartError> {
        let models = &self.shared.config.models;
        let defaults = &self.shared.config.defaults;
        let fallback = models.default_model();
        let provider = before.map_or(&fallback.provider, |b| &b.provider);
        let (provider, model) = match &input.model {
            Some(choice) => {
                let chosen = models.choose(choice, provider);
                (chosen.provider, chosen.name)
            }
            None => (
                provider.clone(),
                before.map_or(&fallback.name, |b| &b.model).clone(),
            ),
        };
        models.provider(&provider)?;
        let cwd = input.cwd.clone().map(OsPath::from);
        Ok(TurnContext {
            provider,
            model,
            approval_policy: input
                .approval_policy
                .or_else(|| before.map(|b| b.approval_policy))
                .unwrap_or(defaults.approval_policy),
            sandbox_mode: input
                .sandbox_mode
                .or_else(|| before.map(|b| b.sandbox_mode))
                .unwrap_or(defaults.sandbox_mode),
            cwd: cwd
                .or_else(|| before.map(|b| b.cwd.clone()))
                .unwrap_or_else(|| self.writer.header().cwd.clone()),
            temperature: input
                .temperature
                .or_else(|| before.and_then(|b| b.temperature)),
            confined: input.confined,
            max_steps: Some(
                input
                    .max_steps
                    .unwrap_or(defaults.max_steps)
                    .min(self.shared.config.limits.steps.unwrap_or(u32::MAX)),
            ),
        })
    }
}

/// Returns the system prompt with these tools, unless that is in force already.
pub(crate) fn system_prompt(
    transcript: &Transcript,
    tools: Vec<ToolDefinition>,
) -> Option<Payload> {
    let text = prompt::SYSTEM_PROMPT;
    let reason = match transcript.system() {
        None => SystemReason::Initial,
        Some(before) if before.text == text && before.tools == tools => return None,
        Some(_) => SystemReason::Changed,
    };
    Some(Payload::SystemPrompt(SystemPrompt {
        text: text.into(),
        tools,
        reason,
    }))
}

/// Whether a task is the command to make the history shorter.
fn is_compact(task: &str) -> bool {
    task.trim() == COMPACT_COMMAND
}

fn task_text(input: &RunInput) -> String {
    let mut text = input.task.clone();
    for (name, more) in [("Goal", &input.goal), ("Context", &input.context)] {
        if let Some(more) = more
            .as_deref()
            .map(str::trim)
            .filter(|more| !more.is_empty())
        {
            text.push_str(&format!("\n\n{name}: {more}"));
        }
    }
    text
}
