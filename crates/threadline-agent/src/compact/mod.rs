//! Compaction: an older part of the history is replaced by a summary when a request would not fit.
//!
//! One `compaction/summary` event says what it replaces and what it keeps, so that replaying never
//! depends on how the choice was made; a crash before it leaves the history as it was. The
//! originals stay in the log.

mod plan;
mod render;

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use threadline_model::{ModelError, ModelEvent};
use threadline_session::{
    HistoryItem, Payload, Request,
    payload::{AssistantPart, CompactionSummary, ContentPart, EndReason, ModelTrouble, Usage},
};

use crate::{
    driver::{Driver, Stop},
    limits::{
        COMPACT_AT, COMPACT_TAILS, CONTEXT_TOKENS, SUMMARY_PIECE, SUMMARY_SHARE, SUMMARY_TRIES,
        TOKENS_PER_BYTE,
    },
};

use plan::{Plan, Unit};

/// Names the way in which summaries are made, for the log.
const ALGORITHM: &str = "threadline/1";

/// When and how far the history is compacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionOptions {
    /// Tokens that models take at once, request and answer together.
    pub context_tokens: u64,
    /// The same of single models, by `provider/model`.
    pub models: BTreeMap<String, u64>,
}

impl CompactionOptions {
    /// Returns the tokens that a model takes at once.
    #[must_use]
    pub fn tokens_of(&self, provider: &str, model: &str) -> u64 {
        let name = format!("{provider}/{model}");
        self.models
            .get(&name)
            .copied()
            .unwrap_or(self.context_tokens)
    }
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            context_tokens: CONTEXT_TOKENS,
            models: BTreeMap::new(),
        }
    }
}

/// What requests cost, learned from what the provider counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauge {
    limit: u64,
    per_byte: f64,
}

impl Gauge {
    /// Starts with what a model takes at once, in tokens.
    pub(crate) fn new(tokens: u64) -> Self {
        Self {
            limit: tokens.max(1),
            per_byte: TOKENS_PER_BYTE,
        }
    }

    /// Notes what a request of so many bytes came to.
    pub(crate) fn learn(&mut self, bytes: u64, usage: Usage) {
        // Small requests are mostly fixed cost, and some servers count nothing.
        if bytes > 2_048 && usage.input_tokens > 0 {
            let found = usage.input_tokens as f64 / bytes as f64;
            self.per_byte = found.clamp(TOKENS_PER_BYTE / 8.0, TOKENS_PER_BYTE * 8.0);
        }
    }

    pub(crate) fn tokens(&self, bytes: usize) -> u64 {
        // Far below 2^52.
        (bytes as f64 * self.per_byte).ceil() as u64
    }

    /// Returns the bytes that a share of the limit has room for.
    fn bytes(&self, share: f64) -> usize {
        (self.limit as f64 * share / self.per_byte) as usize
    }

    fn is_over(&self, bytes: usize) -> bool {
        self.tokens(bytes) as f64 > self.limit as f64 * COMPACT_AT
    }

    /// Takes the provider's word that a request of so many bytes is too long.
    pub(crate) fn refused(&mut self, bytes: usize) {
        let least = self.limit as f64 / bytes.max(1) as f64;
        self.per_byte = self.per_byte.max(least);
    }
}

/// Why a compaction is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The next request would not fit, as far as can be told.
    Full,
    /// The provider refused a request as too long.
    Refused,
    /// A person wants it.
    Asked,
}

/// What a compaction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compacted {
    /// Sizes of the history before and after, in tokens, roughly.
    Done { before: u64, after: u64 },
    /// There is nothing that a summary could replace.
    Nothing,
}

impl Driver {
    /// Compacts the history if the next request would not fit.
    pub(crate) async fn make_room(&mut self) -> Result<(), Stop> {
        let built = self.build().await?;
        if !self.gauge.is_over(built.bytes()) {
            // The step that begins now sends it.
            self.built = Some(built);
            return Ok(());
        }
        // When nothing can be replaced the provider judges: it may count differently.
        self.compact(Why::Full).await.map(drop)
    }

    /// Replaces the older part of the history by a summary, with each of [`COMPACT_TAILS`] until the
    /// request fits. The tokens of all summaries are the run's, also of those that were of no use.
    pub(crate) async fn compact(&mut self, why: Why) -> Result<Compacted, Stop> {
        let bytes = self.build().await?.bytes();
        let (units, fixed) = self
            .core
            .writer
            .with_transcript(|transcript| {
                let units = plan::units(transcript);
                let items: usize = units.iter().map(|unit| unit.bytes).sum();
                (units, bytes.saturating_sub(items))
            })
            .await;
        let before = self.gauge.tokens(bytes);
        let mut usage = Usage::default();
        let mut tried = false;
        for (tail, newest) in COMPACT_TAILS {
            let Some(plan) = Plan::new(&units, self.gauge.bytes(tail), newest) else {
                continue;
            };
            let most = self.gauge.bytes(SUMMARY_SHARE).min(
                // It has to shrink.
                (bytes - fixed.min(bytes)).saturating_sub(plan.stays) / 2,
            );
            if most < render::HEAD.len() || self.gauge.is_over(fixed + plan.stays + most) {
                continue;
            }
            tried = true;
            let text = match self.summarise(&plan.gone, most, &mut usage).await {
                Ok(text) => text,
                Err(stop) => {
                    self.usage.add(&usage);
                    return Err(stop);
                }
            };
            let summary = format!("{}{}", render::HEAD, render::limited(text, most));
            let after = fixed + plan.stays + summary.len();
            if after >= bytes || (why != Why::Asked && self.gauge.is_over(after)) {
                continue;
            }
            let after = self.gauge.tokens(after);
            self.log_summary(plan, summary, before, after, usage)
                .await?;
            return Ok(Compacted::Done { before, after });
        }
        if tried {
            self.usage.add(&usage);
        }
        match why {
            Why::Asked => Ok(Compacted::Nothing),
            Why::Full if !tried => Ok(Compacted::Nothing),
            Why::Full | Why::Refused => Err(Stop::End(stuck(before, self.gauge.limit))),
        }
    }

    async fn log_summary(
        &mut self,
        plan: Plan,
        summary: String,
        before: u64,
        after: u64,
        usage: Usage,
    ) -> Result<(), Stop> {
        self.usage.add(&usage);
        let event = CompactionSummary {
            summary: vec![ContentPart::text(summary)],
            replaces: plan.replaces,
            kept: plan.kept,
            tokens_before: before,
            tokens_after: Some(after),
            usage: (usage != Usage::default()).then_some(usage),
            algorithm: ALGORITHM.into(),
        };
        self.record(vec![Payload::CompactionSummary(event)], true)
            .await?;
        Ok(())
    }

    /// Asks the model for the summary of some units, in pieces when they are too long for one
    /// request.
    async fn summarise(
        &mut self,
        gone: &[Unit],
        most: usize,
        usage: &mut Usage,
    ) -> Result<String, Stop> {
        let mut room = self.gauge.bytes(SUMMARY_PIECE);
        let words = (most / 8).clamp(50, 1_500);
        for _ in 0..SUMMARY_TRIES {
            let mut so_far = String::new();
            let mut refused = false;
            for piece in render::pieces(gone, room) {
                let question = render::question(&so_far, &piece, words);
                match self.ask_for_text(question, usage).await? {
                    Some(text) => so_far = render::limited(text, most),
                    None => {
                        refused = true;
                        break;
                    }
                }
            }
            if !refused && !so_far.trim().is_empty() {
                return Ok(so_far);
            }
            room /= 2;
        }
        Err(Stop::End(EndReason::Error {
            code: "compaction_failed".into(),
            message: "the history is too long for the model, and the model gave no summary of its \
                      older part; nothing was changed: send the message again, use another model, \
                      or fork the session at an earlier point"
                .into(),
        }))
    }

    /// Asks the model one question of its own, outside the history. `None` when it is too long.
    async fn ask_for_text(
        &mut self,
        question: String,
        usage: &mut Usage,
    ) -> Result<Option<String>, Stop> {
        let request = Request {
            provider: self.context.provider.clone(),
            model: self.context.model.clone(),
            system: render::SYSTEM.into(),
            tools: Vec::new(),
            items: vec![HistoryItem::User {
                content: vec![ContentPart::text(question)],
            }],
            temperature: None,
        };
        let mut stream = self.provider().stream(request);
        let halt = self.halt().clone();
        loop {
            let event = tokio::select! {
                biased;
                () = halt.cancelled() => return Err(self.halted()),
                event = stream.next() => event,
            };
            match event {
                // It is shown when it is in force.
                Some(Ok(ModelEvent::Delta(_))) => {}
                Some(Ok(ModelEvent::Retry(trouble))) => {
                    self.record(vec![Payload::ModelRetry(trouble)], false)
                        .await?;
                }
                Some(Ok(ModelEvent::Done(completion))) => {
                    if let Some(spent) = &completion.usage {
                        self.counters().tokens(spent);
                        usage.add(spent);
                    }
                    let text = completion.content.iter().filter_map(|part| match part {
                        AssistantPart::Text { text } => Some(text.as_str()),
                        _ => None,
                    });
                    return Ok(Some(text.collect()));
                }
                Some(Err(ModelError::ContextLength { message })) => {
                    let trouble = ModelTrouble {
                        attempt: 1,
                        status: None,
                        message,
                        delay_ms: None,
                    };
                    self.record(vec![Payload::ModelRetry(trouble)], false)
                        .await?;
                    return Ok(None);
                }
                Some(Err(error)) => return Err(self.model_failed(&error).await),
                None => return Err(self.model_failed(&ModelError::CutStream).await),
            }
        }
    }
}

/// The state that only a person can get the session out of.
fn stuck(tokens: u64, limit: u64) -> EndReason {
    EndReason::Error {
        code: "context_full".into(),
        message: format!(
            "the history takes about {tokens} tokens and the model {limit}, and no summary made it \
             fit: use a model that takes more, send a shorter message, or fork the session at an \
             earlier point; nothing was changed"
        ),
    }
}
