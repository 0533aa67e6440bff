//! The loop of a run: model, tools, model, until the model is finished.
//!
//! What must be on disk before what is the reason for its shape: the prompt before the model is
//! called, a call and its start before the tool runs, results before the next request, and the
//! turn's end before anybody is told "done".

use std::{sync::Arc, time::Instant};

use futures_util::{FutureExt as _, future::BoxFuture};
use threadline_model::{Completion, Provider};
use threadline_session::{
    Fingerprint, OpenCall, Payload, Request, closing,
    payload::{
        AssistantMessage, EndReason, ModelRef, Outcome, StepEnd, StepStart, StopReason,
        TurnContext, TurnEnd, Usage,
    },
};
use threadline_store::{AppendError, AppendOptions, Appended, BlobError, error_chain};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::{
    Agent, Counters, Run, RunInput, RunOutcome,
    agents::Core,
    budget::{Budget, Circles, Halt},
    compact::{Compacted, Gauge, Why},
    error::{append_code, blob_code},
    lent::Borrowed,
    offers::Approved,
    run::Failure,
    sources::Sources,
    spans, titles,
    tools::Toolbox,
};

/// Why the loop stops before the model is finished.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The turn ends for this reason, and its end is logged.
    End(EndReason),
    /// The log cannot be written.
    Storage(AppendError),
    /// What an event was to name cannot be stored.
    Blob(BlobError),
}

impl From<BlobError> for Stop {
    fn from(error: BlobError) -> Self {
        Self::Blob(error)
    }
}

impl From<AppendError> for Stop {
    fn from(error: AppendError) -> Self {
        Self::Storage(error)
    }
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// The model works on what a person says.
    Work,
    /// The history is compacted.
    Compact,
}

/// A request, as it follows from the log up to an event.
pub(crate) struct Built {
    request: Request,
    print: Fingerprint,
    next_seq: u64,
}

impl Built {
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.print.bytes).unwrap_or(usize::MAX)
    }
}

pub(crate) struct Driver {
    task: Task,
    pub(crate) core: Arc<Core>,
    pub(crate) run: Run,
    pub(crate) context: TurnContext,
    pub(crate) turn: u64,
    pub(crate) gauge: Gauge,
    pub(crate) halt: Halt,
    /// As it was when the run began; [`budget`](Self::budget) says how it stands.
    pub(crate) budget: Budget,
    pub(crate) circles: Circles,
    /// The tools of this turn.
    pub(crate) toolbox: Toolbox,
    /// What a client lends them.
    pub(crate) borrowed: Borrowed,
    /// What has more of them.
    pub(crate) sources: Option<Sources>,
    /// A call that a person has approved already.
    pub(crate) approved: Option<Approved>,
    pub(crate) usage: Usage,
    provider: Arc<dyn Provider>,
    answer: String,
    /// Bytes of the newest request.
    pub(crate) sent: u64,
    /// The next request, if it was built already.
    pub(crate) built: Option<Built>,
    /// The step whose end is logged together with what comes next.
    pub(crate) open_step: Option<StepEnd>,
    last: Option<Appended>,
}

impl Driver {
    pub(crate) fn new(
        core: Arc<Core>,
        run: Run,
        provider: Arc<dyn Provider>,
        context: TurnContext,
        turn: u64,
        task: Task,
        budget: Budget,
    ) -> Self {
        Self {
            approved: None,
            toolbox: core.shared.config.toolbox.clone(),
            borrowed: Borrowed::default(),
            sources: None,
            task,
            gauge: Gauge::new(
                core.shared
                    .config
                    .compaction
                    .tokens_of(&context.provider, &context.model),
            ),
            halt: Halt::new(run.cancel_token(), &budget),
            budget,
            circles: Circles::default(),
            core,
            run,
            context,
            turn,
            provider,
            usage: Usage::default(),
            answer: String::new(),
            sent: 0,
            built: None,
            open_step: None,
            last: None,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.core.shared.config.counters
    }

    pub(crate) fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// Ends all waiting when a person cancels or the time is up.
    pub(crate) fn halt(&self) -> &CancellationToken {
        self.halt.token()
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        self.run.cancel_token()
    }

    /// Drives the run to its end within a span and tells the outcome, after the session is free
    /// again and the span has ended.
    pub(crate) async fn run(self, span: Span, tell: watch::Sender<Option<RunOutcome>>) {
        let outcome = self.drive().instrument(span).await;
        tell.send_replace(Some(outcome));
    }

    /// Drives the run to its end. On return the session is free again.
    pub(crate) async fn drive(mut self) -> RunOutcome {
        let reason = match self.steps().await {
            Ok(reason) => Ok(reason),
            Err(Stop::End(reason)) => match self.close(&reason).await {
                Ok(()) => Ok(reason),
                Err(error) => Err(storage_failure(&error)),
            },
            Err(Stop::Storage(error)) => Err(storage_failure(&error)),
            Err(Stop::Blob(error)) => Err(blob_failure(&error)),
        };
        let (reason, failure) = match reason {
            Ok(reason) => (reason, None),
            Err(failure) => {
                let reason = EndReason::Error {
                    code: failure.code.clone(),
                    message: failure.message.clone(),
                };
                (reason, Some(failure))
            }
        };
        let kind = failure
            .as_ref()
            .map_or_else(|| reason.name(), |_| "not_logged");
        self.counters().run_ended(kind);
        let span = Span::current();
        span.record("threadline.end.reason", reason.name());
        spans::usage(&span, &self.usage);
        let budget = self.budget;
        let (next_seq, subagent_usage) = self
            .core
            .writer
            .with_transcript(|transcript| {
                (transcript.next_seq(), budget.subagents(transcript.facts()))
            })
            .await;
        let outcome = RunOutcome {
            reason,
            answer: self.answer,
            usage: self.usage,
            subagent_usage,
            last_seq: next_seq.saturating_sub(1),
            durable_seq: self.last.and_then(|last| last.durable_seq),
            failure,
        };
        let shared = self.core.shared.clone();
        shared.forget_run(self.run.run_id(), self.run.session_id());
        if let Some(sources) = self.sources.take() {
            sources.release();
        }
        if outcome.reason == EndReason::Completed && outcome.failure.is_none() {
            if self.task == Task::Work {
                let model = ModelRef {
                    provider: self.context.provider.clone(),
                    name: self.context.model.clone(),
                };
                titles::begin(&self.core, &model).await;
            }
            next_run(self.core.clone(), self.context.confined).await;
        }
        // Who hears of the end may resume the session at once, so it is let go before.
        drop(self.core);
        outcome
    }

    pub(crate) async fn record(
        &mut self,
        payloads: Vec<Payload>,
        barrier: bool,
    ) -> Result<Appended, AppendError> {
        let options = AppendOptions { key: None, barrier };
        let begun = Instant::now();
        let appended = self.core.writer.record(payloads, options).await?;
        if barrier {
            self.counters().synced(begun.elapsed());
        }
        self.last = Some(appended);
        Ok(appended)
    }

    async fn steps(&mut self) -> Result<EndReason, Stop> {
        if self.task == Task::Compact {
            return self.only_compact().await;
        }
        self.make_ready().await?;
        let most = self.context.max_steps.unwrap_or(u32::MAX);
        for _ in 0..most {
            self.check_limits().await?;
            self.take_steering().await?;
            self.make_room().await?;
            let (step, completion) = self.model_step().await?;
            if let Some(usage) = completion.usage {
                self.gauge.learn(self.sent, usage);
            }
            let message = self.message(step, completion);
            if let Some(usage) = &message.usage {
                self.counters().tokens(usage);
                self.usage.add(usage);
            }
            self.open_step = Some(StepEnd {
                turn: self.turn,
                step,
                usage: message.usage,
            });
            let text = message.text();
            if !text.is_empty() {
                self.answer = text;
            }
            if message.calls().next().is_none() {
                return self.finish(message).await.map_err(Stop::from);
            }
            self.run_calls(message).await?;
            self.check_circles().await?;
        }
        Err(Stop::End(EndReason::MaxSteps))
    }

    pub(crate) async fn end_step(&mut self) -> Result<(), AppendError> {
        match self.open_step.take() {
            Some(end) => self
                .record(vec![Payload::StepEnd(end)], false)
                .await
                .map(drop),
            None => Ok(()),
        }
    }

    /// A turn that a person asked for to make the history shorter.
    async fn only_compact(&mut self) -> Result<EndReason, Stop> {
        self.answer = match self.compact(Why::Asked).await? {
            Compacted::Done { before, after } => format!(
                "The older part of the conversation was replaced by a summary: about {before} \
                 tokens before, {after} after."
            ),
            Compacted::Nothing => {
                "Nothing was replaced: a summary would not make the conversation shorter.".into()
            }
        };
        let reason = EndReason::Completed;
        let end = TurnEnd {
            turn: self.turn,
            reason: reason.clone(),
        };
        self.record(vec![Payload::TurnEnd(end)], true).await?;
        Ok(reason)
    }

    /// Builds the next request.
    pub(crate) async fn build(&self) -> Result<Built, Stop> {
        let built = self
            .core
            .writer
            .with_transcript(|transcript| (transcript.next_seq(), Request::build(transcript)))
            .await;
        let (next_seq, request) = (built.0, built.1.map_err(|e| internal(e.to_string()))?.0);
        let print = request.fingerprint().map_err(|e| internal(e.to_string()))?;
        Ok(Built {
            request,
            print,
            next_seq,
        })
    }

    /// Logs the start of a step with the fingerprint of what it sends. The barrier behind it puts
    /// the prompt, or the results of the step before, on disk before the model is called.
    pub(crate) async fn begin_step(&mut self) -> Result<(u64, Request), Stop> {
        // The end of the step before is no part of the model-visible history, so the request is
        // the same before and after it.
        let (next, step) = self
            .core
            .writer
            .with_transcript(|transcript| (transcript.next_seq(), transcript.last_step() + 1))
            .await;
        let Built { request, print, .. } = match self.built.take() {
            Some(built) if built.next_seq == next => built,
            _ => self.build().await?,
        };
        self.sent = print.bytes;
        let mut payloads: Vec<Payload> = self
            .open_step
            .take()
            .map(Payload::StepEnd)
            .into_iter()
            .collect();
        payloads.push(Payload::StepStart(StepStart {
            turn: self.turn,
            step,
            request: print.into(),
        }));
        self.record(payloads, true).await?;
        Ok((step, request))
    }

    fn message(&self, step: u64, completion: Completion) -> AssistantMessage {
        AssistantMessage {
            turn: self.turn,
            step,
            content: completion.content,
            // The model that was asked for, not the version that a provider resolved it to: what
            // only its issuer may read is compared with what the next request asks for.
            model: ModelRef {
                provider: self.context.provider.clone(),
                name: self.context.model.clone(),
            },
            stop_reason: completion.stop_reason,
            usage: completion.usage,
            opaque: completion.opaque,
            interrupted: false,
        }
    }

    async fn finish(&mut self, message: AssistantMessage) -> Result<EndReason, AppendError> {
        let reason = match message.stop_reason {
            StopReason::Length => EndReason::MaxTokens,
            StopReason::ContentFilter => EndReason::Error {
                code: "content_filter".into(),
                message: "the provider withheld the rest of the answer".into(),
            },
            StopReason::Stop
            | StopReason::ToolCalls
            | StopReason::Interrupted
            | StopReason::Other => EndReason::Completed,
        };
        let mut payloads = vec![Payload::AssistantMessage(message)];
        payloads.extend(self.open_step.take().map(Payload::StepEnd));
        payloads.push(Payload::TurnEnd(TurnEnd {
            turn: self.turn,
            reason: reason.clone(),
        }));
        self.record(payloads, true).await?;
        Ok(reason)
    }

    /// Ends the turn early, answering every open call.
    async fn close(&mut self, reason: &EndReason) -> Result<(), AppendError> {
        let by = match reason {
            EndReason::Cancelled => "cancel",
            _ => "harness",
        };
        let mut payloads = self
            .core
            .writer
            .with_transcript(|transcript| {
                closing(transcript, reason, by, |call| unanswered(call, reason))
            })
            .await;
        // The loop knows the tokens of the step that it leaves open.
        if let Some(end) = self.open_step.take() {
            for payload in &mut payloads {
                if let Payload::StepEnd(open) = payload {
                    *open = end.clone();
                }
            }
        }
        if payloads.is_empty() {
            return Ok(());
        }
        self.record(payloads, true).await.map(drop)
    }
}

/// Starts a run on what was queued meanwhile. Boxed, because that run may do the same.
fn next_run(core: Arc<Core>, confined: bool) -> BoxFuture<'static, ()> {
    async move {
        if core.shared.is_stopping() {
            return;
        }
        let agent = Agent { core };
        let input = RunInput {
            confined,
            ..RunInput::default()
        };
        if let Err(error) = agent.start_queued(input).await {
            // It still waits, and the session says so.
            tracing::warn!(%error, "what is queued could not be worked on");
        }
    }
    .boxed()
}

pub(crate) fn internal(message: String) -> Stop {
    Stop::End(EndReason::Error {
        code: "internal".into(),
        message,
    })
}

fn unanswered(call: &OpenCall, reason: &EndReason) -> (Outcome, String) {
    match reason {
        EndReason::Blocked => (
            Outcome::Denied,
            "this call needs a person's approval, and nobody is there to be asked".into(),
        ),
        EndReason::Cancelled if call.started => (
            Outcome::Cancelled,
            "the run was cancelled while this call ran; check what it did before you repeat it"
                .into(),
        ),
        EndReason::Cancelled => (
            Outcome::Cancelled,
            "the run was cancelled before this call was started".into(),
        ),
        _ if call.started => (
            Outcome::Unknown,
            "the run stopped while this call ran, so its outcome is unknown; check before you \
             repeat it"
                .into(),
        ),
        _ => (
            Outcome::NotStarted,
            "the run stopped before this call was started".into(),
        ),
    }
}

const MAKE_SPACE: &str = "make space and send the message again; everything shown so far is kept";

fn blob_failure(error: &BlobError) -> Failure {
    let code = blob_code(error);
    let hint = if code == "storage_full" {
        MAKE_SPACE
    } else {
        "continue the session when the storage works again; the call's outcome is told as unknown"
    };
    Failure {
        code: code.into(),
        message: format!("an output could not be stored: {}", error_chain(error)),
        hint: Some(hint.into()),
    }
}

fn storage_failure(error: &AppendError) -> Failure {
    let hint = match error {
        AppendError::StorageFull { .. } => Some(MAKE_SPACE.into()),
        AppendError::Poisoned { .. } | AppendError::UnknownOutcome { .. } => {
            Some("continue the session; opening it again recovers what is on disk".into())
        }
        _ => None,
    };
    Failure {
        code: append_code(error).into(),
        message: error.to_string(),
        hint,
    }
}
