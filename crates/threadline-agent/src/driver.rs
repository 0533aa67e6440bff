//! The loop of a run: model, tools, model, until the model is finished.
//!
//! What must be on disk before what is the reason for its shape: the prompt before the model is
//! called, a call and its start before the tool runs, results before the next request, and the
//! turn's end before anybody is told "done".

use std::sync::Arc;

use futures_util::StreamExt as _;
use threadline_model::{Completion, ModelError, ModelEvent, Provider};
use threadline_session::{
    OpenCall, Payload, Request, closing,
    payload::{
        AssistantChunk, AssistantMessage, ChunkPart, EndReason, ModelRef, ModelTrouble, Outcome,
        StepEnd, StepStart, StopReason, TurnContext, TurnEnd, Usage,
    },
};
use threadline_store::{AppendError, AppendOptions, Appended, BlobError, error_chain};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Run, RunOutcome,
    agents::Core,
    compact::{Compacted, Gauge, Why},
    error::{append_code, blob_code},
    limits::{CHUNK_BYTES, CHUNK_TIME},
    run::Failure,
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

pub(crate) struct Driver {
    task: Task,
    pub(crate) core: Arc<Core>,
    pub(crate) run: Run,
    pub(crate) context: TurnContext,
    pub(crate) turn: u64,
    pub(crate) gauge: Gauge,
    pub(crate) usage: Usage,
    provider: Arc<dyn Provider>,
    answer: String,
    /// Bytes of the newest request.
    sent: u64,
    /// The step whose end is logged together with what comes next.
    open_step: Option<StepEnd>,
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
    ) -> Self {
        Self {
            task,
            gauge: Gauge::new(core.shared.config.compaction),
            core,
            run,
            context,
            turn,
            provider,
            usage: Usage::default(),
            answer: String::new(),
            sent: 0,
            open_step: None,
            last: None,
        }
    }

    pub(crate) fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        self.run.cancel_token()
    }

    /// Drives the run to its end and tells the outcome, after the session is free again.
    pub(crate) async fn drive(mut self, tell: watch::Sender<Option<RunOutcome>>) {
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
        let next_seq = self.core.writer.next_seq().await;
        let outcome = RunOutcome {
            reason,
            answer: self.answer,
            usage: self.usage,
            last_seq: next_seq.saturating_sub(1),
            durable_seq: self.last.and_then(|last| last.durable_seq),
            failure,
        };
        let shared = self.core.shared.clone();
        shared.forget_run(self.run.run_id(), self.run.session_id());
        // Who hears of the end may resume the session at once, so it is let go before.
        drop(self.core);
        tell.send_replace(Some(outcome));
    }

    pub(crate) async fn record(
        &mut self,
        payloads: Vec<Payload>,
        barrier: bool,
    ) -> Result<Appended, AppendError> {
        let options = AppendOptions { key: None, barrier };
        let appended = self.core.writer.record(payloads, options).await?;
        self.last = Some(appended);
        Ok(appended)
    }

    async fn steps(&mut self) -> Result<EndReason, Stop> {
        if self.task == Task::Compact {
            return self.only_compact().await;
        }
        let most = self.context.max_steps.unwrap_or(u32::MAX);
        for _ in 0..most {
            if self.cancel().is_cancelled() {
                return Err(Stop::End(EndReason::Cancelled));
            }
            self.make_room().await?;
            let (step, completion) = self.model_step().await?;
            if let Some(usage) = completion.usage {
                self.gauge.learn(self.sent, usage);
            }
            let message = self.message(step, completion);
            if let Some(usage) = &message.usage {
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
        }
        Err(Stop::End(EndReason::MaxSteps))
    }

    /// Asks the model for the next message. A request that the provider finds too long is sent once
    /// more after a compaction, as a step of its own.
    async fn model_step(&mut self) -> Result<(u64, Completion), Stop> {
        let (step, request) = self.begin_step().await?;
        let error = match self.ask_model(step, request).await? {
            Ok(completion) => return Ok((step, completion)),
            Err(error) => error,
        };
        if !matches!(error, ModelError::ContextLength { .. }) {
            return Err(self.model_failed(&error).await);
        }
        self.log_trouble(&error).await?;
        self.open_step = Some(StepEnd {
            turn: self.turn,
            step,
            usage: None,
        });
        self.gauge
            .refused(usize::try_from(self.sent).unwrap_or(usize::MAX));
        self.end_step().await?;
        self.compact(Why::Refused).await?;
        let (step, request) = self.begin_step().await?;
        match self.ask_model(step, request).await? {
            Ok(completion) => Ok((step, completion)),
            Err(error) => Err(self.model_failed(&error).await),
        }
    }

    async fn end_step(&mut self) -> Result<(), AppendError> {
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

    /// Logs the start of a step with the fingerprint of what it sends. The barrier behind it puts
    /// the prompt, or the results of the step before, on disk before the model is called.
    async fn begin_step(&mut self) -> Result<(u64, Request), Stop> {
        // The end of the step before is no part of the model-visible history, so the request is
        // the same before and after it.
        let built = self
            .core
            .writer
            .with_transcript(|transcript| (transcript.last_step() + 1, Request::build(transcript)))
            .await;
        let (step, request) = (built.0, built.1.map_err(|e| internal(e.to_string()))?.0);
        let print = request.fingerprint().map_err(|e| internal(e.to_string()))?;
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

    /// Streams the answer. What is logged is what streams: pieces are gathered for a moment only.
    /// The inner error is the provider's.
    async fn ask_model(
        &mut self,
        step: u64,
        request: Request,
    ) -> Result<Result<Completion, ModelError>, Stop> {
        let mut stream = self.provider.stream(request);
        let cancel = self.cancel().clone();
        let mut gathered = Gathered::default();
        loop {
            let event = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    self.log_chunk(step, &mut gathered).await?;
                    return Err(Stop::End(EndReason::Cancelled));
                }
                () = gathered.due() => {
                    self.log_chunk(step, &mut gathered).await?;
                    continue;
                }
                event = stream.next() => event,
            };
            match event {
                Some(Ok(ModelEvent::Delta(part))) => {
                    gathered.push(part);
                    if gathered.bytes >= CHUNK_BYTES {
                        self.log_chunk(step, &mut gathered).await?;
                    }
                }
                Some(Ok(ModelEvent::Retry(trouble))) => {
                    self.record(vec![Payload::ModelRetry(trouble)], false)
                        .await?;
                }
                Some(Ok(ModelEvent::Done(completion))) => {
                    self.log_chunk(step, &mut gathered).await?;
                    return Ok(Ok(completion));
                }
                Some(Err(error)) => {
                    self.log_chunk(step, &mut gathered).await?;
                    return Ok(Err(error));
                }
                None => {
                    self.log_chunk(step, &mut gathered).await?;
                    return Ok(Err(ModelError::CutStream));
                }
            }
        }
    }

    async fn log_chunk(&mut self, step: u64, gathered: &mut Gathered) -> Result<(), AppendError> {
        if gathered.parts.is_empty() {
            return Ok(());
        }
        let parts = std::mem::take(gathered).parts;
        let chunk = AssistantChunk {
            turn: self.turn,
            step,
            parts,
        };
        self.record(vec![Payload::AssistantChunk(chunk)], false)
            .await
            .map(drop)
    }

    async fn log_trouble(&mut self, error: &ModelError) -> Result<(), AppendError> {
        let trouble = ModelTrouble {
            attempt: 1,
            status: error.status(),
            message: error.to_string(),
            delay_ms: None,
        };
        self.record(vec![Payload::ModelError(trouble)], false)
            .await
            .map(drop)
    }

    pub(crate) async fn model_failed(&mut self, error: &ModelError) -> Stop {
        let mut message = error.to_string();
        if let Some(hint) = error.hint() {
            message = format!("{message}; {hint}");
        }
        match self.log_trouble(error).await {
            Ok(()) => Stop::End(EndReason::Error {
                code: error.code().into(),
                message,
            }),
            Err(error) => Stop::Storage(error),
        }
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

/// Streamed pieces that wait for a moment to be logged together.
#[derive(Default)]
struct Gathered {
    parts: Vec<ChunkPart>,
    bytes: usize,
    since: Option<Instant>,
}

impl Gathered {
    fn push(&mut self, part: ChunkPart) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += part.delta.len();
        match self.parts.last_mut() {
            Some(last) if last.index == part.index && last.kind == part.kind => {
                last.delta.push_str(&part.delta);
            }
            _ => self.parts.push(part),
        }
    }

    async fn due(&self) {
        match self.since {
            Some(since) => tokio::time::sleep_until(since + CHUNK_TIME).await,
            None => std::future::pending().await,
        }
    }
}
