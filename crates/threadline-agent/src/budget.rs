//! Limits of runs and sessions besides the number of steps.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use threadline_session::{
    Item, Transcript,
    payload::{EndReason, ModelRef, RunLimit, Usage, plain_text},
};
use tokio_util::sync::CancellationToken;

use crate::{
    driver::{Driver, Stop},
    limits::{REPEATED_PERIOD, REPEATED_STEPS},
};

/// What a run, and all runs of a session together, may use. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// Time of a run, waiting for people included.
    pub time: Option<Duration>,
    /// Tokens of a run, in and out.
    pub run_tokens: Option<u64>,
    /// Tokens of a session, in and out.
    pub session_tokens: Option<u64>,
    /// Cost of a run, in the unit of the [`Price`]s. Models without a price cost nothing.
    pub run_cost: Option<f64>,
    /// Cost of a session, as if all of it had been spent on the model of the run.
    pub session_cost: Option<f64>,
    /// How often the same calls with the same outcome may come one after the other.
    pub repeated_steps: Option<u32>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            time: None,
            run_tokens: None,
            session_tokens: None,
            run_cost: None,
            session_cost: None,
            repeated_steps: Some(REPEATED_STEPS),
        }
    }
}

/// What a million tokens of a model cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Of the request.
    pub input: f64,
    /// Of that part of the request which the provider had cached.
    pub cached_input: f64,
    /// Of the answer.
    pub output: f64,
}

impl Price {
    /// Returns what some tokens cost.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> f64 {
        let cached = usage
            .cached_input_tokens
            .unwrap_or(0)
            .min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        (fresh as f64 * self.input
            + cached as f64 * self.cached_input
            + usage.output_tokens as f64 * self.output)
            / 1e6
    }
}

/// Prices by `provider/model`, else by `provider`.
pub type Prices = BTreeMap<String, Price>;

fn price(prices: &Prices, model: &ModelRef) -> Option<Price> {
    let exact = format!("{}/{}", model.provider, model.name);
    prices
        .get(&exact)
        .or_else(|| prices.get(&model.provider))
        .copied()
}

/// Ends a run when its time is up: a token that all waiting looks at, beside the one by which a
/// person cancels.
#[derive(Debug)]
pub(crate) struct Halt {
    token: CancellationToken,
    late: Arc<AtomicBool>,
}

impl Halt {
    pub(crate) fn new(cancel: &CancellationToken, time: Option<Duration>) -> Self {
        let token = cancel.child_token();
        let late = Arc::new(AtomicBool::new(false));
        if let Some(time) = time {
            let (token, late) = (token.clone(), late.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = tokio::time::sleep(time) => {
                        late.store(true, Ordering::Release);
                        token.cancel();
                    }
                }
            });
        }
        Self { token, late }
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Acquire)
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        // Ends the timer.
        self.token.cancel();
    }
}

/// Notices a model that goes round in circles.
#[derive(Debug, Default)]
pub(crate) struct Circles {
    steps: VecDeque<blake3::Hash>,
}

impl Circles {
    /// Notes the calls and results of a step. Returns whether the last steps are the same one, or
    /// the same few, `times` times.
    pub(crate) fn note(&mut self, step: blake3::Hash, times: u32) -> bool {
        let times = usize::try_from(times.max(2)).unwrap_or(usize::MAX);
        self.steps.push_back(step);
        while self.steps.len() > times.saturating_mul(REPEATED_PERIOD) {
            self.steps.pop_front();
        }
        (1..=REPEATED_PERIOD).any(|period| {
            let span = times.saturating_mul(period);
            let Some(from) = self.steps.len().checked_sub(span) else {
                return false;
            };
            let last = self.steps.iter().skip(from);
            last.clone().zip(last.skip(period)).all(|(a, b)| a == b)
        })
    }
}

/// Returns what the newest message called and what came of it, without what changes from one time
/// to the next: times, sizes, process numbers, addresses.
pub(crate) fn newest_step(transcript: &Transcript) -> blake3::Hash {
    let mut newest: Vec<String> = Vec::new();
    for (_, item) in transcript.surface() {
        match item {
            Item::Assistant(message) => {
                newest.clear();
                newest.extend(
                    message
                        .calls()
                        .map(|call| format!("{} {}", call.name, call.arguments)),
                );
            }
            Item::ToolResult(result) => newest.push(steady(&plain_text(&result.content))),
            Item::System(_) | Item::User(_) | Item::Summary(_) => {}
        }
    }
    let mut hasher = blake3::Hasher::new();
    for text in &newest {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize()
}

/// Returns a text with a mark for each word that has a digit.
fn steady(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        if word.contains(|c: char| c.is_ascii_digit()) {
            out.push('#');
        } else {
            out.push_str(word);
        }
    }
    out
}

impl Driver {
    /// Returns why the run does not go on after it was halted.
    pub(crate) fn halted(&self) -> Stop {
        let reason = if self.halt.is_late() && !self.cancel().is_cancelled() {
            let time = self.core.shared.config.limits.time.unwrap_or_default();
            EndReason::Limit {
                limit: RunLimit::Time,
                message: format!("the run had {} s, and they are over", time.as_secs_f64()),
            }
        } else {
            EndReason::Cancelled
        };
        Stop::End(reason)
    }

    /// Ends the run when it, or its session, has used what it may.
    pub(crate) async fn check_limits(&mut self) -> Result<(), Stop> {
        if self.halt().is_cancelled() {
            return Err(self.halted());
        }
        let config = &self.core.shared.config;
        let limits = config.limits;
        let mut session = self
            .core
            .writer
            .with_transcript(|transcript| transcript.facts().usage)
            .await;
        // The newest step's end is logged with what comes next.
        if let Some(usage) = self.open_step.as_ref().and_then(|step| step.usage) {
            session.add(&usage);
        }
        let tokens = |usage: &Usage| usage.input_tokens.saturating_add(usage.output_tokens);
        let model = ModelRef {
            provider: self.context.provider.clone(),
            name: self.context.model.clone(),
        };
        let price = price(&config.prices, &model).unwrap_or_default();
        let over = |used: f64, most: Option<f64>| most.is_some_and(|most| used >= most);
        let found = [
            (
                RunLimit::RunTokens,
                tokens(&self.usage) as f64,
                limits.run_tokens.map(|most| most as f64),
            ),
            (
                RunLimit::SessionTokens,
                tokens(&session) as f64,
                limits.session_tokens.map(|most| most as f64),
            ),
            (RunLimit::RunCost, price.of(&self.usage), limits.run_cost),
            (
                RunLimit::SessionCost,
                price.of(&session),
                limits.session_cost,
            ),
        ]
        .into_iter()
        .find(|(_, used, most)| over(*used, *most));
        match found {
            None => Ok(()),
            Some((limit, used, most)) => Err(Stop::End(EndReason::Limit {
                limit,
                message: said(limit, used, most.unwrap_or_default()),
            })),
        }
    }

    /// Ends the run when the model makes the same calls again and again and learns nothing new.
    pub(crate) async fn check_circles(&mut self) -> Result<(), Stop> {
        let Some(times) = self.core.shared.config.limits.repeated_steps else {
            return Ok(());
        };
        let step = self.core.writer.with_transcript(newest_step).await;
        if !self.circles.note(step, times) {
            return Ok(());
        }
        Err(Stop::End(EndReason::Limit {
            limit: RunLimit::RepeatedCalls,
            message: format!(
                "the model made the same calls {times} times in a row with the same outcome"
            ),
        }))
    }
}

fn said(limit: RunLimit, used: f64, most: f64) -> String {
    let (who, what) = match limit {
        RunLimit::SessionTokens => ("session", "tokens"),
        RunLimit::RunCost => ("run", "in cost"),
        RunLimit::SessionCost => ("session", "in cost"),
        RunLimit::RunTokens | RunLimit::Time | RunLimit::RepeatedCalls => ("run", "tokens"),
    };
    format!("the {who} has used {used} {what} and may use {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> blake3::Hash {
        blake3::hash(text.as_bytes())
    }

    #[test]
    fn circles_of_one_two_and_three_steps_are_noticed_and_progress_is_not() {
        for circle in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
            let mut circles = Circles::default();
            let mut noticed = None;
            for (at, step) in circle.iter().cycle().take(40).enumerate() {
                if circles.note(hash(step), 4) {
                    noticed = Some(at + 1);
                    break;
                }
            }
            assert_eq!(noticed, Some(4 * circle.len()));
        }
        let mut circles = Circles::default();
        assert!(!(0..100).any(|at| circles.note(hash(&at.to_string()), 4)));
    }

    #[test]
    fn what_changes_from_time_to_time_is_no_progress() {
        let first = "12:01:33 error at 0x7fffa2: 3 tests failed (pid 42)";
        let second = "12:02:47 error at 0x7ff1b0: 4 tests failed (pid 977)";
        assert_eq!(steady(first), steady(second));
        assert_ne!(steady(first), steady("12:01:33 all passed"));
    }

    #[test]
    fn cached_tokens_cost_what_they_cost() {
        let price = Price {
            input: 2.0,
            cached_input: 0.5,
            output: 10.0,
        };
        let usage = Usage {
            input_tokens: 1_000_000,
            cached_input_tokens: Some(400_000),
            output_tokens: 100_000,
            reasoning_tokens: None,
        };
        assert!((price.of(&usage) - 2.4).abs() < 1e-9);
    }
}
