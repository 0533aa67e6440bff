//! The replay proof: the loop runs again over a copy of the log, with the model's recorded answers
//! and the tools' recorded results, and must make every event again.
//!
//! Everything happens in memory: the store is read, no model is asked, no tool runs. The copy has
//! the log's own numbers, so that what names an event (a compaction, a rewind) names the same one.
//!
//! # What runs again
//! What a turn began with is taken over from the log. From there on the real loop runs: it builds
//! every request, judges every call, asks, groups and pairs, and writes its events into a store
//! that refuses the first one that is not the log's. The model, the tools and the people answer
//! what the log says they did; streamed pieces and live output, which depend on time, are put where
//! they stood.
//!
//! # What is taken over
//! What no loop can make again: summaries, cancellations, the ends that recovery wrote, moves of
//! the head, errors of which the log does not tell all, what came from outside. It is noted, the
//! requests behind it are rebuilt and compared all the same, and what recovery wrote is compared
//! with what it would write now.

mod actors;
mod backend;
mod diff;
mod plan;
mod script;

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use threadline_model::Provider;
use threadline_session::{
    Covers, Event, Facts, OsPath, Payload, Request, SessionId, Transcript, closers,
    payload::{ContentPart, EndReason, RequestMark, StepStart, TurnContext, TurnStart},
    types,
};
use threadline_store::{
    AppendError, AppendOptions, BlobId, Entry, LOG_LOST, ReadError, ReadPos, SessionStore,
    StoreOptions, error_chain,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use diff::Difference;

use crate::{
    Agents, AgentsConfig, Approver, CreateOptions, Models, Price, Run, RunOutcome, RunPolicy,
    agents::Core,
    budget::Budget,
    driver::{Driver, Task},
    policy::is_foreign,
    replay::{
        actors::{Recorded, Recording},
        backend::Judged,
        plan::{Part, Plan},
        script::{Script, essence},
    },
    run::RunParts,
    tools::Toolbox,
};

/// How long the loop waits for an answer that is in the log.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Events that are read at once.
const PAGE: usize = 1_000;

/// What a session is replayed with.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The tools as this program has them. None of them runs; they say what a call may do.
    pub toolbox: Toolbox,
    /// Event types of plug-ins, as [`StoreOptions::registered`].
    pub registered: BTreeSet<String>,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            toolbox: Toolbox::standard(),
            registered: BTreeSet::new(),
        }
    }
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// The session.
    pub id: SessionId,
    /// Whether everything was the log's.
    pub identical: bool,
    /// Turns and steps that were replayed.
    pub turns: u64,
    /// Steps whose requests were compared.
    pub steps: u64,
    /// Steps among them that the loop made again; the others' requests were rebuilt.
    pub driven_steps: u64,
    /// Steps that cannot be compared, because events before them are lost.
    pub bereft: u64,
    /// What was taken over from the log, and why.
    pub notes: Vec<ReplayNote>,
    /// The first difference.
    pub divergence: Option<Divergence>,
}

/// Something that was taken over from the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayNote {
    /// The turn.
    pub turn: u64,
    /// The first event that was taken over.
    pub seq: u64,
    /// Why.
    pub why: String,
}

/// Where the replay parts from the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The turn.
    pub turn: u64,
    /// The last step that had begun, or begins here; 0 before the first.
    pub step: u64,
    /// The event.
    pub seq: u64,
    /// Its type in the log.
    pub recorded: String,
    /// Its type in the replay, if it has one.
    pub replayed: Option<String>,
    /// What differs, in one sentence.
    pub what: String,
    /// The surroundings of the first byte that differs, of the requests or of the events' data.
    pub difference: Option<Difference>,
}

/// Says why a session cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An event cannot be understood or taken over.
    #[error("event {seq} of session {id} cannot be replayed: {reason}")]
    Event {
        /// The session.
        id: SessionId,
        /// The event.
        seq: u64,
        /// Why.
        reason: String,
    },
    /// A defect.
    #[error("session {id} cannot be replayed: {reason}; this is a defect")]
    Internal {
        /// The session.
        id: SessionId,
        /// What is wrong.
        reason: String,
    },
}

/// Replays a session: runs the loop again over a copy of its log, and compares.
///
/// # Errors
/// [`ReplayError`]. A difference is no error; it is in the report.
pub async fn replay(
    store: &SessionStore,
    id: &SessionId,
    options: ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    let header = store.header(id).await?.header;
    let mut stage = Stage::new(store.clone(), id.clone(), header.cwd, options)?;
    let mut turn: Vec<Event> = Vec::new();
    let mut next = Some(ReadPos::default());
    while let Some(from) = next {
        let page = store.read(id, from, PAGE).await?;
        for entry in page.entries {
            let event = match entry {
                Entry::Header(_) => continue,
                Entry::Line(line, _) => line.event,
                Entry::Damage(damage) => {
                    let id = id.clone();
                    return Err(ReadError::Corrupt { id, damage }.into());
                }
            };
            if plan::begins(&event) && !turn.is_empty() {
                stage.turn(std::mem::take(&mut turn)).await?;
            }
            let ends = plan::ends(&event);
            if turn.is_empty() && !plan::begins(&event) {
                stage.between(event).await?;
            } else {
                turn.push(event);
                if ends {
                    stage.turn(std::mem::take(&mut turn)).await?;
                }
            }
            if stage.report.divergence.is_some() {
                return Ok(stage.report);
            }
        }
        next = page.next;
    }
    if !turn.is_empty() {
        stage.turn(turn).await?;
    }
    Ok(stage.report)
}

/// The copy, and how far it has come.
struct Stage {
    id: SessionId,
    /// The store that the session is in; it is only read.
    store: SessionStore,
    options: ReplayOptions,
    script: Arc<Script>,
    copy: SessionStore,
    /// `None` only while it is being changed.
    core: Option<Arc<Core>>,
    cwd: OsPath,
    turn: u64,
    step: u64,
    lost: bool,
    /// Tools of MCP servers that only read in this turn.
    foreign_reads: BTreeSet<String>,
    report: ReplayReport,
}

impl Stage {
    fn new(
        store: SessionStore,
        id: SessionId,
        cwd: OsPath,
        options: ReplayOptions,
    ) -> Result<Self, ReplayError> {
        let script = Arc::new(Script::new());
        let stored = StoreOptions {
            registered: options.registered.clone(),
            max_event_bytes: usize::MAX,
            ..StoreOptions::default()
        };
        let copy = SessionStore::new(Arc::new(Judged::new(script.clone())), stored);
        let report = ReplayReport {
            id: id.clone(),
            identical: true,
            turns: 0,
            steps: 0,
            driven_steps: 0,
            bereft: 0,
            notes: Vec::new(),
            divergence: None,
        };
        let mut stage = Self {
            id,
            store,
            options,
            script,
            copy,
            core: None,
            cwd,
            turn: 0,
            step: 0,
            lost: false,
            foreign_reads: BTreeSet::new(),
            report,
        };
        stage.core = Some(stage.troupe(Toolbox::new(), Approver::Board)?);
        Ok(stage)
    }

    fn internal(&self, reason: impl Into<String>) -> ReplayError {
        ReplayError::Internal {
            id: self.id.clone(),
            reason: reason.into(),
        }
    }

    fn refused(&self, seq: u64, error: &AppendError) -> ReplayError {
        ReplayError::Event {
            id: self.id.clone(),
            seq,
            reason: error_chain(error),
        }
    }

    fn core(&self) -> Result<&Arc<Core>, ReplayError> {
        let core = self.core.as_ref();
        core.ok_or_else(|| self.internal("the copy is gone"))
    }

    /// Makes the surroundings that the loop runs in, with a writer that is not used if there is
    /// one already.
    fn troupe(&self, toolbox: Toolbox, approver: Approver) -> Result<Arc<Core>, ReplayError> {
        let model = Arc::new(Recording {
            name: "replay".into(),
            script: self.script.clone(),
        });
        let cwd = self.cwd.as_path().to_owned();
        let mut config =
            AgentsConfig::new(Some(self.copy.clone()), Models::new(model, "replay"), cwd);
        config.toolbox = toolbox;
        config.approver = approver;
        // A recorded answer is there at once; should the loop ever miss it, it goes on all the same.
        config.approval_timeout = ANSWER_TIME;
        // The loop never finds its history too long: compactions come from the log.
        config.compaction.context_tokens = u64::MAX;
        // What the limits were the log does not tell.
        config.limits.repeated_steps = None;
        let agent = Agents::new(config).create(CreateOptions {
            cwd: None,
            session_id: Some(self.id.clone()),
        });
        let agent = agent.map_err(|error| self.internal(error.to_string()))?;
        Ok(agent.core)
    }

    /// Puts the copy's writer into new surroundings.
    fn change(&mut self, toolbox: Toolbox, approver: Approver) -> Result<(), ReplayError> {
        let new = self.troupe(toolbox, approver)?;
        let old = self.core.take().and_then(Arc::into_inner);
        let old = old.ok_or_else(|| self.internal("a run still holds the copy"))?;
        let shared = new.shared.clone();
        let core = Arc::new(Core { shared, ..old });
        self.script.set_core(&core);
        self.core = Some(core);
        Ok(())
    }

    /// Takes over an event that stands between turns.
    async fn between(&mut self, event: Event) -> Result<(), ReplayError> {
        self.script.take_up(Vec::new(), HashSet::new());
        self.give(std::slice::from_ref(&event)).await
    }

    /// Replays a turn.
    async fn turn(&mut self, events: Vec<Event>) -> Result<(), ReplayError> {
        let first = events.first().map_or(0, |event| event.seq);
        let payloads = plan::parse(&events).map_err(|reason| ReplayError::Event {
            id: self.id.clone(),
            seq: first,
            reason,
        })?;
        let Some(start) = plan::start(&payloads).cloned() else {
            return Err(self.internal("a turn does not begin with its start"));
        };
        self.turn = start.turn;
        self.report.turns += 1;
        self.lost |= events.iter().any(|event| event.kind == LOG_LOST);
        let toolbox = &self.options.toolbox;
        let knows = |name: &str| toolbox.get(name).is_some() || is_foreign(name);
        let mut plan = Plan::new(&payloads, knows);
        let granted = self.core()?.writer.with_transcript(|transcript| {
            let grants = transcript.session_grants().iter();
            let calls = grants.filter_map(|grant| match &grant.covers {
                Covers::Call { name, .. } => Some(name.clone()),
                Covers::Commands { .. } => None,
            });
            calls.collect::<Vec<String>>()
        });
        self.foreign_reads = plan::foreign_reads(&payloads, &start.context, &granted.await);
        if self.lost {
            // What the loop would do depends on what is missing.
            plan.parts = vec![Part::Given(0..events.len())];
            plan.notes = vec![(0, "events before it, or of it, are lost".into())];
            plan.closers = None;
        }
        for (at, why) in plan.notes {
            self.report.notes.push(ReplayNote {
                turn: start.turn,
                seq: first + at as u64,
                why,
            });
        }
        let shortened = self.bring_blobs(&events, &payloads).await;
        self.script.take_up(events.clone(), shortened);
        let blocked = matches!(
            payloads.last(),
            Some(Payload::TurnEnd(end)) if end.reason == EndReason::Blocked
        ) && !plan::asks(&payloads);
        for part in plan.parts {
            match part {
                Part::Given(range) => {
                    if Some(range.start) == plan.closers {
                        self.check_closers(&events[range.clone()]).await?;
                    }
                    self.give(&events[range]).await?;
                }
                Part::Driven {
                    events: range,
                    rounds,
                } => {
                    let limit = first + range.end as u64;
                    let next = self.drive(&start, rounds, limit, blocked).await?;
                    let made = usize::try_from(next - first).unwrap_or(range.end);
                    self.count(&payloads[range.start..made]);
                    if self.report.divergence.is_none() {
                        self.give(&events[made..range.end]).await?;
                    }
                }
            }
            if self.report.divergence.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn count(&mut self, made: &[Payload]) {
        let steps = made.iter().filter(|p| matches!(p, Payload::StepStart(_)));
        let steps = steps.count() as u64;
        self.report.steps += steps;
        self.report.driven_steps += steps;
    }

    /// Copies the images that the turn names, and returns the results whose whole output is gone.
    async fn bring_blobs(&self, events: &[Event], payloads: &[Payload]) -> HashSet<u64> {
        let mut shortened = HashSet::new();
        for (event, payload) in events.iter().zip(payloads) {
            let content = match payload {
                Payload::UserMessage(message) => &message.content,
                Payload::ToolResult(result) => {
                    if let Some(full) = &result.full
                        && actors::whole(&self.store, &full.blob).await.is_none()
                    {
                        shortened.insert(event.seq);
                    }
                    &result.content
                }
                _ => continue,
            };
            for part in content {
                if let ContentPart::Image { blob, .. } = part
                    && let Ok(id) = BlobId::parse(blob)
                    && let Ok(bytes) = self.store.get_blob(&id).await
                {
                    // One that is missing is told of in words, here as there.
                    let _ = self.copy.put_blob(&bytes).await;
                }
            }
        }
        shortened
    }

    /// Appends events as they were recorded. The request of each step is compared before.
    async fn give(&mut self, events: &[Event]) -> Result<(), ReplayError> {
        self.script.release();
        let mut batch = Vec::new();
        for event in events {
            self.lost |= event.kind == LOG_LOST;
            let alone = event.kind == types::STEP_START || event.kind == types::HISTORY_HEAD;
            if alone {
                self.append(std::mem::take(&mut batch)).await?;
            }
            if let (types::STEP_START, Ok(Payload::StepStart(start))) =
                (event.kind.as_str(), event.payload())
            {
                self.compare_step(event.seq, &start).await?;
                if self.report.divergence.is_some() {
                    return Ok(());
                }
            }
            batch.push(event.clone());
            if alone {
                self.append(std::mem::take(&mut batch)).await?;
            }
        }
        self.append(batch).await
    }

    async fn append(&self, batch: Vec<Event>) -> Result<(), ReplayError> {
        let Some(first) = batch.first().map(|event| event.seq) else {
            return Ok(());
        };
        let options = AppendOptions::default();
        let appended = self.core()?.writer.append(first, batch, options).await;
        appended
            .map(drop)
            .map_err(|error| self.refused(first, &error))
    }

    /// Compares the request that the copy makes with the one that a step has sent.
    async fn compare_step(&mut self, seq: u64, start: &StepStart) -> Result<(), ReplayError> {
        self.step = start.step;
        let built = self.built().await?;
        let same = built.as_ref().is_ok_and(|built| {
            let print = built.fingerprint();
            print.is_ok_and(|print| print.hash == start.request.fingerprint)
        });
        if same {
            self.report.steps += 1;
        } else if self.lost {
            self.report.bereft += 1;
        } else {
            let parted = self.request_parted(seq, start).await?;
            self.part(parted);
        }
        Ok(())
    }

    async fn built(&self) -> Result<Result<Request, String>, ReplayError> {
        let build = |transcript: &Transcript| {
            Request::build(transcript)
                .map(|(request, _)| request)
                .map_err(|error| error.to_string())
        };
        Ok(self.core()?.writer.with_transcript(build).await)
    }

    /// Compares what recovery had appended with what it would append now.
    async fn check_closers(&mut self, recorded: &[Event]) -> Result<(), ReplayError> {
        let now = self.core()?.writer.with_transcript(closers).await;
        let now = now.map_err(|error| self.internal(error.to_string()))?;
        let pairs = recorded.iter().map(Some).zip(
            now.iter()
                .map(Some)
                .chain(std::iter::repeat(None))
                .take(recorded.len()),
        );
        for (recorded, replayed) in pairs {
            if let Some(recorded) = recorded
                && replayed.map(|event| essence(event, false)) != Some(essence(recorded, false))
            {
                self.part_at_event(recorded, replayed);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs the loop up to an event. Returns the first event before it that is still missing.
    async fn drive(
        &mut self,
        start: &TurnStart,
        rounds: u32,
        limit: u64,
        blocked: bool,
    ) -> Result<u64, ReplayError> {
        let approver = if blocked {
            Approver::Nobody
        } else {
            Approver::Board
        };
        let toolbox = self.toolbox().await?;
        self.change(toolbox, approver)?;
        let core = self.core()?.clone();
        let board = core.shared.board.clone();
        self.script.hold(limit, board, start.run_id.clone());
        let mut context = start.context.clone();
        context.max_steps = context.max_steps.map(|most| most.saturating_sub(rounds));
        let outcome = self.run(core, start, context).await;
        let next = self.script.release();
        if let Some(parted) = self.script.parted() {
            self.explain(parted).await?;
        } else if next < limit && !self.script.reached() {
            let (turn, step) = (self.turn, self.step);
            let ended = match outcome.failure {
                Some(failure) => failure.message,
                None => format!("the end `{}`", outcome.reason.name()),
            };
            self.part(Divergence {
                turn,
                step,
                seq: next,
                recorded: "an event".into(),
                replayed: None,
                what: format!("the log goes on, and the replay comes to {ended}"),
                difference: None,
            });
        }
        Ok(next)
    }

    async fn run(&self, core: Arc<Core>, start: &TurnStart, context: TurnContext) -> RunOutcome {
        let (_tell, outcome) = watch::channel(None);
        let run = Run::new(RunParts {
            run_id: start.run_id.clone(),
            session_id: self.id.clone(),
            resumed: true,
            recovered: None,
            policy: RunPolicy::from(&context),
            start_seq: 0,
            cancel: CancellationToken::new(),
            outcome,
            store: self.copy.clone(),
        });
        let model: Arc<dyn Provider> = Arc::new(Recording {
            name: context.provider.clone(),
            script: self.script.clone(),
        });
        let limits = core.shared.config.limits;
        let budget = Budget::new(limits, Price::default(), &Facts::default());
        let driver = Driver::new(core, run, model, context, start.turn, Task::Work, budget);
        Box::pin(driver.drive()).await
    }

    /// Makes the tools that the model was told of.
    async fn toolbox(&self) -> Result<Toolbox, ReplayError> {
        let core = self.core()?;
        let system = core.writer.with_transcript(Transcript::system).await;
        let mut toolbox = Toolbox::new();
        for definition in system.iter().flat_map(|system| system.tools.iter()) {
            let tool = Recorded {
                definition: definition.clone(),
                real: self.options.toolbox.get(&definition.name).cloned(),
                reads: self.foreign_reads.contains(&definition.name),
                script: self.script.clone(),
                store: self.store.clone(),
            };
            // Of two with one name the model cannot mean the second.
            let _ = toolbox.register(Arc::new(tool));
        }
        Ok(toolbox)
    }

    fn part(&mut self, divergence: Divergence) {
        self.report.identical = false;
        self.report.divergence.get_or_insert(divergence);
    }

    fn part_at_event(&mut self, recorded: &Event, replayed: Option<&Event>) {
        let (turn, step) = (self.turn, self.step);
        let what = match replayed {
            None => "the replay does not come to this event".into(),
            Some(event) if event.kind != recorded.kind => {
                format!(
                    "the log has `{}`, the replay `{}`",
                    recorded.kind, event.kind
                )
            }
            Some(_) => format!("the data of `{}` differs", recorded.kind),
        };
        let difference = replayed
            .filter(|event| event.kind == recorded.kind)
            .and_then(|event| {
                Difference::between(&essence(recorded, false).1, &essence(event, false).1)
            });
        self.part(Divergence {
            turn,
            step,
            seq: recorded.seq,
            recorded: recorded.kind.clone(),
            replayed: replayed.map(|event| event.kind.clone()),
            what,
            difference,
        });
    }

    /// Says how the loop parted from the log.
    async fn explain(&mut self, parted: script::Parted) -> Result<(), ReplayError> {
        let core = self.core()?;
        self.step = core.writer.with_transcript(Transcript::last_step).await;
        let step = |event: &Event| match event.payload() {
            Ok(Payload::StepStart(start)) => Some(start),
            _ => None,
        };
        let replayed = parted.replayed.as_ref().and_then(step);
        match (step(&parted.recorded), replayed) {
            (Some(recorded), Some(replayed)) if recorded.request != replayed.request => {
                self.step = recorded.step;
                let divergence = self.request_parted(parted.seq, &recorded).await?;
                self.part(divergence);
            }
            _ => self.part_at_event(&parted.recorded, parted.replayed.as_ref()),
        }
        Ok(())
    }

    /// Says how the request of a step differs.
    async fn request_parted(&self, seq: u64, start: &StepStart) -> Result<Divergence, ReplayError> {
        let replayed = self.built().await?;
        let recorded = self.store.request_of_step(&self.id, start.step).await?;
        let recorded = recorded.and_then(Result::ok).map(|rebuilt| rebuilt.request);
        let sent = &start.request;
        let (what, difference) = match (recorded, replayed) {
            (_, Err(reason)) => (format!("no request can be built: {reason}"), None),
            (None, Ok(_)) => ("the log does not rebuild the request".into(), None),
            (Some(recorded), Ok(replayed)) => requests_differ(sent, &recorded, &replayed),
        };
        Ok(Divergence {
            turn: start.turn,
            step: start.step,
            seq,
            recorded: types::STEP_START.into(),
            replayed: Some(types::STEP_START.into()),
            what,
            difference,
        })
    }
}

fn requests_differ(
    sent: &RequestMark,
    recorded: &Request,
    replayed: &Request,
) -> (String, Option<Difference>) {
    let text = |request: &Request| serde_json::to_string(request).unwrap_or_default();
    let (log, now) = (text(recorded), text(replayed));
    let difference = Difference::between(&log, &now);
    let what = if difference.is_some() {
        "the request differs".to_owned()
    } else {
        format!(
            "what was sent had {} items in {} bytes and the fingerprint {}; the log and the replay \
             both make {} items in {} bytes of it, so the log, or the way requests are built, is \
             not what it was",
            sent.items,
            sent.bytes,
            sent.fingerprint.get(..12).unwrap_or(&sent.fingerprint),
            replayed.items.len(),
            now.len(),
        )
    };
    (what, difference)
}

#[cfg(test)]
mod tests {
    use threadline_session::HistoryItem;

    use super::*;

    fn request(text: &str) -> Request {
        Request {
            provider: "p".into(),
            model: "m".into(),
            system: "You work.".into(),
            tools: Vec::new(),
            items: vec![HistoryItem::User {
                content: vec![ContentPart::text(text)],
            }],
            temperature: None,
        }
    }

    #[test]
    fn two_requests_are_shown_around_their_first_different_byte() {
        let (recorded, replayed) = (request("one two three"), request("one 2 three"));
        let sent = recorded.fingerprint().unwrap().into();
        let (what, difference) = requests_differ(&sent, &recorded, &replayed);
        assert_eq!(what, "the request differs");
        let difference = difference.unwrap();
        assert!(
            difference.recorded.contains("one two three"),
            "{difference:?}"
        );
        assert!(
            difference.replayed.contains("one 2 three"),
            "{difference:?}"
        );

        // When the log rebuilds what the replay makes, only sizes and names can be told.
        let (what, difference) = requests_differ(&sent, &replayed, &replayed);
        assert_eq!(difference, None);
        assert!(what.contains(&format!("in {} bytes", sent.bytes)), "{what}");
        assert!(what.contains(&sent.fingerprint[..12]), "{what}");
    }
}
