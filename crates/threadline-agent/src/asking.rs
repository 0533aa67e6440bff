//! Asking the model for the next message, whatever the provider thinks of the request.

use futures_util::StreamExt as _;
use threadline_model::{Completion, Images, ModelError, ModelEvent, RejectedKind, Rejection};
use threadline_session::{
    HistoryItem, Payload, Request,
    payload::{
        AssistantChunk, ChunkPart, ContentPart, EndReason, ItemRejected, ModelRef, ModelTrouble,
        RejectedPart, StepEnd,
    },
};
use threadline_store::{AppendError, BlobId};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    compact::Why,
    driver::{Driver, Stop},
    limits::{CHUNK_BYTES, CHUNK_TIME, MAX_REJECTIONS},
    spans,
};

impl Driver {
    /// Asks the model for the next message. A request that the provider finds too long is sent once
    /// more after a compaction, and one that holds something it refuses without that; each as a
    /// step of its own, so that the log proves what was sent.
    pub(crate) async fn model_step(&mut self) -> Result<(u64, Completion), Stop> {
        let (mut compacted, mut rejections) = (false, 0);
        loop {
            let (step, request) = self.begin_step().await?;
            let span = spans::chat(&self.context, step);
            let content = self.core.shared.config.span_content;
            if content {
                spans::asked(&span, &request);
            }
            let asked = self.ask_model(step, &request);
            let asked = asked.instrument(span.clone()).await?;
            match &asked {
                Ok(completion) => {
                    self.counters().model_call("ok");
                    if content {
                        spans::answered(&span, completion);
                    }
                    span.record("gen_ai.response.model", completion.model.as_str());
                    let field = "gen_ai.response.finish_reasons";
                    spans::word(&span, field, &completion.stop_reason);
                    if let Some(usage) = &completion.usage {
                        spans::usage(&span, usage);
                    }
                }
                Err(error) => {
                    self.counters().model_call(error.code());
                    span.record("error.type", error.code());
                }
            }
            let error = match asked {
                Ok(completion) => return Ok((step, completion)),
                Err(error) => error,
            };
            let rejected = error
                .rejection()
                .and_then(|rejection| self.refused(rejection, &request))
                .filter(|_| rejections < MAX_REJECTIONS);
            let too_long = matches!(error, ModelError::ContextLength { .. }) && !compacted;
            if rejected.is_none() && !too_long {
                return Err(self.model_failed(&error).await);
            }
            self.log_trouble(&error).await?;
            self.open_step = Some(StepEnd {
                turn: self.turn,
                step,
                usage: None,
            });
            self.end_step().await?;
            if let Some(rejected) = rejected {
                rejections += 1;
                self.record(vec![Payload::ItemRejected(rejected)], false)
                    .await?;
            } else {
                compacted = true;
                let sent = usize::try_from(self.sent).unwrap_or(usize::MAX);
                self.gauge.refused(sent);
                self.compact(Why::Refused).await?;
            }
        }
    }

    /// Returns what is not to be sent to this model again; `None` when nothing of the kind was in
    /// the request, so that sending it again would be of no use.
    fn refused(&self, rejection: &Rejection, request: &Request) -> Option<ItemRejected> {
        let (part, blobs) = match rejection.kind {
            RejectedKind::ImageUnsupported | RejectedKind::ImageTooLarge => {
                let blobs = refused_images(rejection, request);
                (!blobs.is_empty()).then_some((RejectedPart::Images, blobs))?
            }
            _ => {
                let any = request.items.iter().any(|item| {
                    matches!(item, HistoryItem::Assistant { opaque, .. } if !opaque.is_empty())
                });
                any.then_some((RejectedPart::Opaque, Vec::new()))?
            }
        };
        Some(ItemRejected {
            model: ModelRef {
                provider: self.context.provider.clone(),
                name: self.context.model.clone(),
            },
            part,
            blobs,
            message: rejection.to_string(),
        })
    }

    /// Looks up the images that a request names. One that is lost is told of in words instead.
    async fn images(&self, request: &Request) -> Images {
        let mut images = Images::default();
        for blob in Images::wanted(request) {
            let Ok(id) = BlobId::parse(blob) else {
                continue;
            };
            match self.core.shared.store.get_blob(&id).await {
                Ok(bytes) => images.insert(blob, bytes),
                Err(error) => tracing::warn!(%error, blob, "an image cannot be shown to the model"),
            }
        }
        images
    }

    /// Streams the answer. What is logged is what streams: pieces are gathered for a moment only.
    /// The inner error is the provider's.
    async fn ask_model(
        &mut self,
        step: u64,
        request: &Request,
    ) -> Result<Result<Completion, ModelError>, Stop> {
        let images = self.images(request).await;
        let mut stream = self.provider().stream_with(request.clone(), &images);
        let halt = self.halt().clone();
        let mut gathered = Gathered::default();
        loop {
            let event = tokio::select! {
                biased;
                () = halt.cancelled() => {
                    self.log_chunk(step, &mut gathered).await?;
                    return Err(self.halted());
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
                    self.counters().model_retry();
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
}

/// Returns the images that a rejection is about: the one that it names, or all.
fn refused_images(rejection: &Rejection, request: &Request) -> Vec<String> {
    let mut blobs = Vec::new();
    for (at, item) in request.items.iter().enumerate() {
        if rejection.item.is_some_and(|refused| refused != at) {
            continue;
        }
        let (HistoryItem::User { content } | HistoryItem::Tool { content, .. }) = item else {
            continue;
        };
        for (at, part) in content.iter().enumerate() {
            if let ContentPart::Image { blob, .. } = part
                && rejection.part.is_none_or(|refused| refused == at)
                && !blobs.contains(blob)
            {
                blobs.push(blob.clone());
            }
        }
    }
    blobs
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
