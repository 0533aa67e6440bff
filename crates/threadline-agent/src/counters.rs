//! What has happened in the runs of this process, counted.
//!
//! Every label is a word of this program's own, so that their number is bounded: names of tools,
//! models and sessions are none.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use threadline_session::payload::{Outcome, Usage};

use crate::limits::SYNC_BUCKETS_MS;

/// Counts by a word.
pub type Words = BTreeMap<&'static str, u64>;

/// What was counted so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Runs that have ended, by the kind of their reason; `not_logged` when it could not be logged.
    pub runs: Words,
    /// Model calls of steps, by `ok` or the code of what went wrong.
    pub model_calls: Words,
    /// Attempts of model calls that were followed by another.
    pub model_retries: u64,
    /// Tokens of all model calls, by `input`, `cached_input`, `output` and `reasoning`; `input` and
    /// `output` have the others in them.
    pub tokens: Words,
    /// Tool calls by outcome.
    pub tool_calls: Words,
    /// Appends that were on stable storage on return.
    pub syncs: Histogram,
}

/// How long something took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// How often it took at most each of [`SYNC_BUCKETS_MS`].
    pub buckets: [u64; SYNC_BUCKETS_MS.len()],
    /// How often it was.
    pub count: u64,
    /// Time of all together.
    pub sum: Duration,
}

impl Histogram {
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        for (count, most) in self.buckets.iter_mut().zip(SYNC_BUCKETS_MS) {
            *count += u64::from(took <= Duration::from_millis(most));
        }
    }
}

/// Counts what happens. All agents that are made from one configuration share one.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Counts>);

impl Counters {
    fn held(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.held().clone()
    }

    pub(crate) fn run_ended(&self, reason: &'static str) {
        *self.held().runs.entry(reason).or_default() += 1;
    }

    pub(crate) fn model_call(&self, code: &'static str) {
        *self.held().model_calls.entry(code).or_default() += 1;
    }

    pub(crate) fn model_retry(&self) {
        self.held().model_retries += 1;
    }

    pub(crate) fn tokens(&self, usage: &Usage) {
        let mut held = self.held();
        let mut add = |word, tokens: u64| {
            let sum: &mut u64 = held.tokens.entry(word).or_default();
            *sum = sum.saturating_add(tokens);
        };
        add("input", usage.input_tokens);
        add("output", usage.output_tokens);
        add("cached_input", usage.cached_input_tokens.unwrap_or(0));
        add("reasoning", usage.reasoning_tokens.unwrap_or(0));
    }

    pub(crate) fn tool_call(&self, outcome: Outcome) {
        let word = match outcome {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Denied => "denied",
            Outcome::Timeout => "timeout",
            Outcome::Cancelled => "cancelled",
            Outcome::NotStarted => "not_started",
            Outcome::Unknown => "unknown",
        };
        *self.held().tool_calls.entry(word).or_default() += 1;
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.held().syncs.note(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_every_bucket_that_it_fits_into() {
        let mut histogram = Histogram::default();
        histogram.note(Duration::from_millis(SYNC_BUCKETS_MS[1]));
        histogram.note(Duration::from_millis(SYNC_BUCKETS_MS[1] + 1));
        histogram.note(Duration::from_secs(3600));
        assert_eq!(histogram.buckets[..3], [0, 1, 2]);
        assert_eq!(histogram.count, 3);
        assert!(histogram.sum > Duration::from_secs(3600));
    }
}
