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
    Facts, Item, Transcript,
    payload::{EndReason, ModelRef, RunLimit, Usage, plain_text},
};
use tokio_util::sync::CancellationToken;

use crate::{
    driver::{Driver, Stop},
    limits::{REPEATED_PERIOD, REPEATED_STEPS},
};

/// What a run, and all runs of a session together, may use. `None` is no limit.
///
/// What subagents use counts for the runs and sessions that began them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// Steps of a run, whatever the caller asks for.
    pub steps: Option<u32>,
    /// Time of a run, waiting for people included.
    pub time: Option<Duration>,
    /// Tokens of a run, in and out.
    pub run_tokens: Option<u64>,
    /// Cost of a run, in the unit of the [`Price`]s. Models without a price cost nothing.
    pub run_cost: Option<f64>,
    /// Steps of a session.
    pub session_steps: Option<u64>,
    /// Time of all runs of a session together.
    pub session_time: Option<Duration>,
    /// Tokens of a session, in and out.
    pub session_tokens: Option<u64>,
    /// Cost of a session, as if all of it had been spent on the model of the run.
    pub session_cost: Option<f64>,
    /// How often the same calls with the same outcome may come one after the other.
    pub repeated_steps: Option<u32>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            repeated_steps: Some(REPEATED_STEPS),
            ..Self::NONE
        }
    }
}

impl RunLimits {
    /// Limits nothing.
    pub const NONE: Self = Self {
        steps: None,
        time: None,
        run_tokens: None,
        run_cost: None,
        session_steps: None,
        session_time: None,
        session_tokens: None,
        session_cost: None,
        repeated_steps: None,
    };

    /// Returns the smaller of both, limit by limit.
    #[must_use]
    pub fn narrow(&self, other: &Self) -> Self {
        Self {
            steps: least(self.steps, other.steps),
            time: least(self.time, other.time),
            run_tokens: least(self.run_tokens, other.run_tokens),
            run_cost: least(self.run_cost, other.run_cost),
            session_steps: least(self.session_steps, other.session_steps),
            session_time: least(self.session_time, other.session_time),
            session_tokens: least(self.session_tokens, other.session_tokens),
            session_cost: least(self.session_cost, other.session_cost),
            repeated_steps: least(self.repeated_steps, other.repeated_steps),
        }
    }
}

/// Returns the smaller of two limits; none is larger than any.
fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// What a run may use, and what it has used at some moment besides what the log says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) limits: RunLimits,
    price: Price,
    /// Tokens of the session's subagents before the run began.
    subagents_before: Usage,
    /// Time that the session's earlier runs took.
    active_before: Duration,
    /// Tokens of the run, its subagents not counted.
    pub(crate) own: Usage,
    /// Tokens of the step whose end is not logged yet.
    pub(crate) unlogged: Option<Usage>,
}

impl Budget {
    /// Begins with what the session had used before the run.
    pub(crate) fn new(limits: RunLimits, price: Price, before: &Facts) -> Self {
        Self {
            limits,
            price,
            subagents_before: before.subagents,
            active_before: Duration::from_millis(before.active_ms),
            own: Usage::default(),
            unlogged: None,
        }
    }

    /// Returns what the run's subagents have used.
    pub(crate) fn subagents(&self, facts: &Facts) -> Usage {
        facts.subagents.minus(&self.subagents_before)
    }

    /// Returns the time that the run has, and whether it is the session that has no more.
    fn time(&self) -> Option<(Duration, RunLimit)> {
        let left = |all: Duration| all.saturating_sub(self.active_before);
        match (self.limits.time, self.limits.session_time.map(left)) {
            (Some(run), Some(session)) if run <= session => Some((run, RunLimit::Time)),
            (_, Some(session)) => Some((session, RunLimit::SessionTime)),
            (run, None) => run.map(|run| (run, RunLimit::Time)),
        }
    }

    /// Returns what is used of what is limited, and the limits.
    fn ledger(&self, facts: &Facts, steps: u64) -> [(RunLimit, f64, Option<f64>); 5] {
        let mut run = self.own;
        run.add(&self.subagents(facts));
        let mut session = facts.usage;
        session.add(&facts.subagents);
        if let Some(usage) = &self.unlogged {
            session.add(usage);
        }
        let (limits, tokens) = (&self.limits, |usage: &Usage| usage.tokens() as f64);
        let whole = |most: Option<u64>| most.map(|most| most as f64);
        [
            (RunLimit::RunTokens, tokens(&run), whole(limits.run_tokens)),
            (
                RunLimit::SessionTokens,
                tokens(&session),
                whole(limits.session_tokens),
            ),
            (RunLimit::RunCost, self.price.of(&run), limits.run_cost),
            (
                RunLimit::SessionCost,
                self.price.of(&session),
                limits.session_cost,
            ),
            (
                RunLimit::SessionSteps,
                steps as f64,
                whole(limits.session_steps),
            ),
        ]
    }

    /// Returns what a subagent that begins now may use, besides its own limits.
    pub(crate) fn left(&self, facts: &Facts) -> RunLimits {
        let mut left = RunLimits::NONE;
        for (limit, used, most) in self.ledger(facts, 0) {
            let Some(most) = most else { continue };
            let rest = (most - used).max(0.0);
            match limit {
                RunLimit::RunTokens | RunLimit::SessionTokens => {
                    left.run_tokens = least(left.run_tokens, Some(rest as u64));
                }
                RunLimit::RunCost | RunLimit::SessionCost => {
                    left.run_cost = least(left.run_cost, Some(rest));
                }
                RunLimit::Time
                | RunLimit::SessionSteps
                | RunLimit::SessionTime
                | RunLimit::RepeatedCalls => {}
            }
        }
        left
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

/// Returns what a model costs.
pub(crate) fn price(prices: &Prices, model: &ModelRef) -> Option<Price> {
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
    time: Option<(Duration, RunLimit)>,
}

impl Halt {
    pub(crate) fn new(cancel: &CancellationToken, budget: &Budget) -> Self {
        let token = cancel.child_token();
        let late = Arc::new(AtomicBool::new(false));
        let time = budget.time();
        if let Some((time, _)) = time {
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
        Self { token, late, time }
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the time that is over, and whose it was.
    pub(crate) fn late(&self) -> Option<(Duration, RunLimit)> {
        self.time.filter(|_| self.late.load(Ordering::Acquire))
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
        let late = self.halt.late().filter(|_| !self.cancel().is_cancelled());
        Stop::End(match late {
            Some((time, limit)) => EndReason::Limit {
                limit,
                message: format!(
                    "the {} had {} s, and they are over",
                    whose(limit),
                    time.as_secs_f64()
                ),
            },
            None => EndReason::Cancelled,
        })
    }

    /// Returns what the run may use, with what it has used by now.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            own: self.usage,
            // The newest step's end is logged with what comes next.
            unlogged: self.open_step.as_ref().and_then(|step| step.usage),
            ..self.budget
        }
    }

    /// Ends the run when it, or its session, has used what it may.
    pub(crate) async fn check_limits(&mut self) -> Result<(), Stop> {
        if self.halt().is_cancelled() {
            return Err(self.halted());
        }
        let budget = self.budget();
        let ledger = self
            .core
            .writer
            .with_transcript(|transcript| budget.ledger(transcript.facts(), transcript.last_step()))
            .await;
        let over = |(limit, used, most): (RunLimit, f64, Option<f64>)| {
            most.filter(|most| used >= *most)
                .map(|most| (limit, used, most))
        };
        match ledger.into_iter().find_map(over) {
            None => Ok(()),
            Some((limit, used, most)) => Err(Stop::End(EndReason::Limit {
                limit,
                message: said(limit, used, most),
            })),
        }
    }

    /// Ends the run when the model makes the same calls again and again and learns nothing new.
    pub(crate) async fn check_circles(&mut self) -> Result<(), Stop> {
        let Some(times) = self.budget.limits.repeated_steps else {
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

fn whose(limit: RunLimit) -> &'static str {
    match limit {
        RunLimit::SessionSteps
        | RunLimit::SessionTime
        | RunLimit::SessionTokens
        | RunLimit::SessionCost => "session",
        RunLimit::Time | RunLimit::RunTokens | RunLimit::RunCost | RunLimit::RepeatedCalls => "run",
    }
}

fn said(limit: RunLimit, used: f64, most: f64) -> String {
    let what = match limit {
        RunLimit::RunTokens | RunLimit::SessionTokens => "tokens",
        RunLimit::RunCost | RunLimit::SessionCost => "in cost",
        RunLimit::SessionSteps | RunLimit::RepeatedCalls => "steps",
        RunLimit::Time | RunLimit::SessionTime => "s",
    };
    let who = whose(limit);
    format!("the {who} has used {used} {what} and may use {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &str) -> blake3::Hash {
        blake3::hash(text.as_bytes())
    }

    #[test]
    fn a_session_has_the_time_that_its_earlier_runs_have_left() {
        let seconds = Duration::from_secs;
        let of = |run: Option<u64>, session: Option<u64>, active_ms| {
            let limits = RunLimits {
                time: run.map(seconds),
                session_time: session.map(seconds),
                ..RunLimits::NONE
            };
            let before = Facts {
                active_ms,
                ..Facts::default()
            };
            Budget::new(limits, Price::default(), &before).time()
        };
        assert_eq!(of(None, None, 5_000), None);
        assert_eq!(
            of(Some(3), Some(10), 5_000),
            Some((seconds(3), RunLimit::Time))
        );
        assert_eq!(
            of(Some(9), Some(10), 5_000),
            Some((seconds(5), RunLimit::SessionTime))
        );
        assert_eq!(
            of(None, Some(10), 60_000),
            Some((seconds(0), RunLimit::SessionTime))
        );
    }

    #[test]
    fn a_subagent_may_use_what_run_and_session_have_left() {
        let tokens = |input_tokens| Usage {
            input_tokens,
            ..Usage::default()
        };
        let before = Facts {
            usage: tokens(50),
            subagents: tokens(10),
            ..Facts::default()
        };
        let limits = RunLimits {
            run_tokens: Some(100),
            session_tokens: Some(120),
            run_cost: Some(1.0),
            ..RunLimits::NONE
        };
        let price = Price {
            input: 1e5,
            ..Price::default()
        };
        let mut budget = Budget::new(limits, price, &before);
        budget.own = tokens(5);
        budget.unlogged = Some(tokens(5));
        let now = Facts {
            subagents: tokens(12),
            ..before
        };
        // The run used 5 itself and 2 by subagents, the session 50, 12 and 5.
        let left = budget.left(&now);
        assert_eq!(left.run_tokens, Some(53));
        assert!((left.run_cost.unwrap() - 0.3).abs() < 1e-9);
        assert_eq!((left.time, left.session_tokens), (None, None));
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
