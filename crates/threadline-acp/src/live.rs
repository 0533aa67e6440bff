//! Prompts: begun or queued, and followed until each is answered.
//!
//! One task follows a session's log as long as a prompt waits in it. Everything it sends comes from
//! the log, so nothing is told that is not stored, and the answer of a prompt comes behind all
//! updates of its turn, because it follows from the turn's end.

mod questions;

use std::{collections::HashMap, sync::Arc};

use agent_client_protocol_schema::v1::{
    ContentChunk, Error, PromptResponse, SessionUpdate, StopReason, TerminalId,
};
use threadline_agent::{
    Agent, CreateOptions, QueueError, QueueInput, ResumeOptions, Run, RunOutcome, StartError,
    Started,
};
use threadline_session::{
    Patch, Payload, RunId, Transcript, TurnItem, View, codec::Line, payload::EndReason,
};
use threadline_store::{Follow, Followed, OpenError, ReadError, ReadPos, error_chain};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval, timeout_at},
};

use tokio_util::sync::CancellationToken;

use crate::{
    ask::Asking,
    connection::{Connection, failed, not_found},
    images::Images,
    limits::{BUSY_WAIT, LIVE_OUTPUT_EVERY},
    methods,
    prompt::Prompt,
    rpc::{invalid_params, invalid_request},
    sessions::{By, Open, Ticket},
    transport::Gone,
    updates::{People, Updates},
};

/// Turns whose ends are remembered for prompts that have just been queued.
const REMEMBERED_ENDS: usize = 64;

/// Says something that is no word of the model's.
pub(crate) fn note(text: String) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(ContentChunk::new(text.into()))
}

/// Begins a prompt, or queues it behind the turn that is under way. It is answered here only when
/// that fails.
pub(crate) async fn prompt(c: Arc<Connection>, open: Arc<Open>, ticket: Arc<Ticket>, said: Prompt) {
    let begun = {
        let _beginning = open.beginning.lock().await;
        // Whoever prompts goes on without the answer to an old question.
        open.take_offer_back();
        if ticket.cancel.is_cancelled() {
            Err(invalid_request("cancelled"))
        } else if open.state().closed {
            Err(not_found(open.id.as_str()))
        } else if c.closing.is_cancelled() {
            Err(invalid_request("the agent is ending"))
        } else if open.join(&ticket) {
            queue(&c, &open, &ticket, said).await
        } else {
            begin(&c, &open, &ticket, said).await
        }
    };
    if let Err(error) = begun
        && open.take(&ticket)
    {
        let answer = if ticket.cancel.is_cancelled() {
            Ok(PromptResponse::new(StopReason::Cancelled))
        } else {
            Err(error)
        };
        c.respond(&ticket.request, answer).await;
    }
}

/// A message that waits is in the log before this returns.
async fn queue(
    c: &Connection,
    open: &Open,
    ticket: &Arc<Ticket>,
    said: Prompt,
) -> Result<(), Error> {
    let (input, sent) = open.run_input();
    let mut patience = Patience::new(c);
    let queued = loop {
        let message = QueueInput {
            images: Some(said.images.clone()),
            ..QueueInput::new(said.text.clone())
        };
        let queued = c.agents.queue(&open.id, message, input.clone()).await;
        let busy = queued.as_ref().is_err_and(is_queue_busy);
        if !patience.helps(busy).await {
            break queued;
        }
    };
    let (message, run) = queued.map_err(|error| match error {
        QueueError::Start(error) => start_failed(open, &error),
        error => failed(error.code(), &error.to_string(), None),
    })?;
    if run.is_some() {
        open.state().settings.logged(&sent);
    }
    open.wait_for(ticket, By::Message(message.message_id));
    Ok(())
}

async fn begin(
    c: &Arc<Connection>,
    open: &Arc<Open>,
    ticket: &Arc<Ticket>,
    said: Prompt,
) -> Result<(), Error> {
    let agent = agent(c, open).await.map_err(|e| start_failed(open, &e))?;
    let (mut input, sent) = open.run_input();
    input.task = said.text;
    input.images = said.images;
    // What is shown of the turn begins where the log ends now.
    let transcript = agent.writer().with_transcript(Clone::clone).await;
    let started = agent.start(input).await;
    let run = match started.map_err(|error| start_failed(open, &error))? {
        Started::New(run) => run,
        Started::Repeated { .. } => {
            return Err(failed(
                "internal",
                "a fresh prompt was taken for a repeat",
                None,
            ));
        }
    };
    drop(agent);
    open.wait_for(ticket, By::Run(run.run_id().clone()));
    open.state().settings.logged(&sent);
    if ticket.cancel.is_cancelled() {
        run.cancel();
    }
    follow(c, open, transcript, run);
    Ok(())
}

/// Begins to tell a run to the client, from the end of a transcript on.
pub(crate) fn follow(c: &Arc<Connection>, open: &Arc<Open>, transcript: Transcript, run: Run) {
    let after = transcript.next_seq().checked_sub(1);
    let title = {
        let mut state = open.state();
        state.stored = true;
        state.followed = true;
        state.title.take()
    };
    if c.closing.is_cancelled() {
        run.cancel();
    }
    let live = Live {
        view: View::over(transcript),
        updates: Updates::new(open.state().cwd.clone()),
        follow: c.agents.store().follow(&open.id, after),
        board: c.agents.approvals().watch(),
        tick: ticks(),
        c: c.clone(),
        open: open.clone(),
        run: Some(run),
        turn: Turn::default(),
        ended: Vec::new(),
        asking: HashMap::new(),
        dirty: Vec::new(),
    };
    c.tasks
        .spawn(async move { Box::pin(live.follow(title)).await });
}

async fn agent(c: &Connection, open: &Open) -> Result<Agent, StartError> {
    let (stored, cwd) = {
        let state = open.state();
        (state.stored, state.cwd.clone())
    };
    if !stored {
        return c.agents.create(CreateOptions {
            cwd: Some(cwd),
            session_id: Some(open.id.clone()),
        });
    }
    let mut patience = Patience::new(c);
    loop {
        let resumed = c.agents.resume(ResumeOptions::new(open.id.clone())).await;
        let busy = resumed.as_ref().is_err_and(is_busy);
        if !patience.helps(busy).await {
            return resumed;
        }
    }
}

/// The end of a run is in the log a moment before the run lets go of its session. What meets it in
/// that moment is tried again.
struct Patience {
    released: watch::Receiver<u64>,
    until: Instant,
}

impl Patience {
    /// Begins before the first try, so that no release between is missed.
    fn new(c: &Connection) -> Self {
        Self {
            released: c.agents.watch_released(),
            until: Instant::now() + BUSY_WAIT,
        }
    }

    /// Returns whether to try again, after some session was let go of.
    async fn helps(&mut self, busy: bool) -> bool {
        let again = busy && Instant::now() < self.until;
        if again {
            // At the end of the time it is tried once more.
            let _ = timeout_at(self.until, self.released.changed()).await;
        }
        again
    }
}

fn is_busy(error: &StartError) -> bool {
    matches!(error, StartError::Busy { .. })
}

fn is_queue_busy(error: &QueueError) -> bool {
    matches!(error, QueueError::Start(error) if is_busy(error))
}

fn ticks() -> Interval {
    let mut ticks = interval(LIVE_OUTPUT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn start_failed(open: &Open, error: &StartError) -> Error {
    match error {
        StartError::Open(OpenError::Read(ReadError::NotFound { .. })) => {
            not_found(open.id.as_str())
        }
        StartError::EmptyTask | StartError::Image { .. } | StartError::ManyImages { .. } => {
            invalid_params(&error.to_string())
        }
        error => failed(error.code(), &error_chain(error), error.hint()),
    }
}

/// The turn that the log is in.
#[derive(Default)]
struct Turn {
    run_id: Option<RunId>,
    /// Messages that it has taken out of the inbox.
    messages: Vec<String>,
    /// Whether the next message of a person was not sent over this connection.
    foreign: bool,
}

struct Live {
    c: Arc<Connection>,
    open: Arc<Open>,
    view: View,
    updates: Updates,
    follow: Follow,
    board: watch::Receiver<u64>,
    tick: Interval,
    /// The run that is under way, as far as it is known.
    run: Option<Run>,
    turn: Turn,
    /// Turns that have ended, for prompts that were queued meanwhile.
    ended: Vec<(Vec<String>, EndReason)>,
    /// Questions by their ids.
    asking: HashMap<String, Asking>,
    /// Calls whose output is shown at the next tick.
    dirty: Vec<String>,
}

/// Why the following ends.
enum Over {
    Gone,
    Broken(ReadError),
    Unsupported(String),
}

impl From<Gone> for Over {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl Live {
    async fn follow(mut self, title: Option<String>) {
        let ended = self.steps(title).await;
        for asking in self.asking.values() {
            asking.over.cancel();
        }
        let error = match ended {
            Ok(()) => return,
            // Nobody is there to be answered. The run ends with the connection.
            Err(Over::Gone) => None,
            Err(Over::Broken(error)) => Some(methods::read_failed(self.open.id.as_str(), error)),
            Err(Over::Unsupported(reason)) => Some(failed("unsupported", &reason, None)),
        };
        {
            let mut state = self.open.state();
            state.followed = false;
            state.offered_run = None;
        }
        for ticket in self.open.waiting_for(|by| *by != By::Beginning) {
            if self.open.take(&ticket)
                && let Some(error) = &error
            {
                self.c
                    .respond(&ticket.request, Err::<(), _>(error.clone()))
                    .await;
            }
        }
    }

    async fn steps(&mut self, title: Option<String>) -> Result<(), Over> {
        self.tell_title(title).await?;
        loop {
            self.cancel().await?;
            if self.open.leave() {
                return Ok(());
            }
            let run = self.run.clone();
            let open = self.open.clone();
            tokio::select! {
                biased;
                () = open.poke.notified() => {
                    self.answer_late().await;
                    self.show_terminals().await?;
                }
                changed = self.board.changed() => if changed.is_ok() {
                    self.look_at_board().await;
                },
                followed = self.follow.next() => match followed.map_err(Over::Broken)? {
                    Followed::Line(line) => self.line(&line).await?,
                    Followed::CaughtUp { .. } => {}
                },
                outcome = failure(run) => self.failed(outcome).await,
                _ = self.tick.tick(), if !self.dirty.is_empty() || self.run_is_unknown() => {
                    self.show_output().await?;
                    self.look_for_run().await?;
                }
            }
        }
    }

    /// Tells the client what the session is called, once there is something to call it by.
    async fn tell_title(&mut self, title: Option<String>) -> Result<(), Over> {
        let told = std::mem::replace(&mut self.open.state().told_title, true);
        let id = &self.open.id;
        let row = match title {
            Some(title) => methods::store_title(&self.c, id.as_str(), title).await.ok(),
            None if told => return Ok(()),
            None => self.c.agents.store().summary(id).await.ok(),
        };
        if let Some(row) = row {
            self.c.update(id, methods::info(&row)).await?;
        }
        Ok(())
    }

    async fn line(&mut self, line: &Line) -> Result<(), Over> {
        let payload = line.event.payload().ok();
        let store = self.c.agents.store().clone();
        let applied = store
            .apply(&self.open.id, &mut self.view, &line.event)
            .await;
        let patches = match applied.map_err(Over::Broken)? {
            Ok(patches) => patches,
            Err(error) => return Err(Over::Unsupported(error.to_string())),
        };
        if self.view.turns().len() > 1 {
            self.view.take_turns();
        }
        match &payload {
            Some(Payload::TurnStart(start)) => {
                self.turn = Turn {
                    run_id: Some(start.run_id.clone()),
                    ..Turn::default()
                };
                self.dirty.clear();
                if let Some(turn) = self.view.turns().last() {
                    self.updates.turn(&turn.head);
                }
            }
            Some(Payload::InboxTaken(taken)) => {
                let id = &taken.message_id;
                let ours = self.open.waiting_for(|by| *by == By::Message(id.clone()));
                // One that is being queued at this moment is one of ours too.
                let queueing = self.open.waiting_for(|by| *by == By::Queueing);
                self.turn.foreign = ours.is_empty() && queueing.is_empty();
                self.turn.messages.push(id.clone());
            }
            _ => {}
        }
        for patch in patches {
            self.patch(patch).await?;
        }
        if matches!(payload, Some(Payload::StepStart(_))) {
            self.tell_lacks().await?;
        }
        match payload {
            Some(Payload::ApprovalAsked(asked)) => self.asked(asked, line.event.time),
            Some(Payload::ApprovalDecided(decided)) => self.decided(&decided),
            Some(Payload::TurnEnd(end)) => self.turn_ended(end.reason).await?,
            _ => {}
        }
        Ok(())
    }

    /// Tells once what tools the session does without, such as those of a server that is missing.
    async fn tell_lacks(&mut self) -> Result<(), Over> {
        let Some(source) = &self.c.agents.config().source else {
            return Ok(());
        };
        let lacks = source.lacks(&self.open.id);
        let before = std::mem::replace(&mut self.open.state().lacks, lacks.clone());
        for sentence in lacks {
            if !before.contains(&sentence) {
                self.c
                    .update(&self.open.id, note(format!("[{sentence}]")))
                    .await?;
            }
        }
        Ok(())
    }

    async fn patch(&mut self, patch: Patch) -> Result<(), Over> {
        match patch {
            Patch::Item { item, .. } => self.show(&item).await,
            Patch::Append {
                id, kind: "output", ..
            } => {
                if !self.dirty.contains(&id) {
                    self.dirty.push(id);
                }
                Ok(())
            }
            Patch::Append { id, .. } => match self.find(&id) {
                Some(item) => self.show(&item).await,
                None => Ok(()),
            },
            Patch::Turn { .. } | Patch::Status { .. } => Ok(()),
        }
    }

    fn find(&self, id: &str) -> Option<TurnItem> {
        let items = &self.view.turns().last()?.items;
        items.iter().rev().find(|item| item.id() == id).cloned()
    }

    async fn show(&mut self, item: &TurnItem) -> Result<(), Over> {
        let mut people = People::Known;
        if matches!(item, TurnItem::User { .. }) && std::mem::take(&mut self.turn.foreign) {
            people = People::Told;
        }
        if let TurnItem::Tool(call) = item
            && call.outcome.is_some()
        {
            self.dirty.retain(|id| *id != call.id);
        }
        let images = Images::of(self.c.agents.store(), item).await;
        let terminal = self.terminal_of(item);
        let id = terminal.as_ref().map(|(id, _)| id);
        for update in self.updates.item(item, &images, people, id) {
            self.c.update(&self.open.id, update).await?;
        }
        if let Some((_, shown)) = terminal {
            shown.cancel();
        }
        Ok(())
    }

    /// Returns the terminal that the command of a call runs in at this moment.
    fn terminal_of(&self, item: &TurnItem) -> Option<(TerminalId, CancellationToken)> {
        let TurnItem::Tool(call) = item else {
            return None;
        };
        if call.start_seq.is_none() || call.outcome.is_some() {
            return None;
        }
        let run_id = self.turn.run_id.as_ref()?;
        let state = self.open.state();
        let mut shown = state.terminals.iter();
        let found = shown.find(|t| t.run_id == *run_id && t.call_id == call.call_id)?;
        Some((found.id.clone(), found.done.clone()))
    }

    /// Shows terminals that are new. One whose call is not in the view yet is shown with it.
    async fn show_terminals(&mut self) -> Result<(), Over> {
        let calls: Vec<String> = {
            let state = self.open.state();
            let new = state.terminals.iter().filter(|t| !t.done.is_cancelled());
            new.map(|shown| shown.call_id.clone()).collect()
        };
        for call_id in calls {
            let items = self.view.turns().last().map(|turn| &turn.items);
            let item = items.into_iter().flatten().rev().find(|item| {
                matches!(item, TurnItem::Tool(call) if call.call_id == call_id)
                    && self.terminal_of(item).is_some()
            });
            if let Some(item) = item.cloned() {
                self.show(&item).await?;
            }
        }
        Ok(())
    }

    async fn show_output(&mut self) -> Result<(), Over> {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(item) = self.find(&id) {
                self.show(&item).await?;
            }
        }
        Ok(())
    }

    /// Returns the prompts that the turn under way will answer.
    fn current(&self) -> Vec<Arc<Ticket>> {
        self.open.waiting_for(|by| match by {
            By::Run(run_id) => self.turn.run_id.as_ref() == Some(run_id),
            By::Message(id) => self.turn.messages.contains(id),
            By::Beginning | By::Queueing => false,
        })
    }

    async fn turn_ended(&mut self, reason: EndReason) -> Result<(), Over> {
        self.show_output().await?;
        if let Some(turn) = self.view.turns().last() {
            let head = turn.head.clone();
            for update in self.updates.end(&head) {
                self.c.update(&self.open.id, update).await?;
            }
        }
        for (_, asking) in self.asking.drain() {
            asking.over.cancel();
        }
        // Who is answered may prompt at once, so the session is free by then.
        if let Some(run) = self.known_run() {
            run.wait().await;
        }
        self.run = None;
        self.offered_run_is_over();
        for ticket in self.current() {
            self.answer(&ticket, &reason).await;
        }
        let messages = std::mem::take(&mut self.turn.messages);
        self.turn.run_id = None;
        self.ended.push((messages, reason));
        if self.ended.len() > REMEMBERED_ENDS {
            self.ended.remove(0);
        }
        self.deliver().await;
        Ok(())
    }

    /// Returns the run of the turn under way.
    fn known_run(&mut self) -> Option<Run> {
        let wanted = self.turn.run_id.as_ref()?;
        let fits = |run: &Run| run.run_id() == wanted;
        if !self.run.as_ref().is_some_and(fits) {
            self.run = self.c.agents.running(&self.open.id).filter(fits);
        }
        self.run.clone()
    }

    fn run_is_unknown(&self) -> bool {
        self.turn.run_id.is_some() && self.run.is_none()
    }

    /// A run that the queue has begun is not known from its start. One that is gone before it was
    /// met, with its turn open at the end of the log, could not log its end.
    async fn look_for_run(&mut self) -> Result<(), Over> {
        if !self.run_is_unknown() || self.known_run().is_some() {
            return Ok(());
        }
        let store = self.c.agents.store();
        let stat = store.stat(&self.open.id).await.map_err(Over::Broken)?;
        let end = ReadPos::at(self.view.transcript().next_seq());
        // The writer is looked for first: what it has appended by then is seen here.
        let more = store.read(&self.open.id, end, 1).await;
        let at_end = more.map_err(Over::Broken)?.entries.is_empty();
        if stat.writer.is_none() && at_end {
            let message = "the run stopped, and its end could not be stored";
            let error = failed("internal", message, Some("send the prompt again".into()));
            self.fail_current(&error).await;
            self.turn = Turn::default();
            self.deliver().await;
        }
        Ok(())
    }

    /// A message that waits after a turn which did not complete is delivered by whoever wants it
    /// to be; its prompt is here.
    async fn deliver(&mut self) {
        let waits = !self
            .open
            .waiting_for(|by| matches!(by, By::Message(_)))
            .is_empty();
        if !waits || self.c.closing.is_cancelled() {
            return;
        }
        let (input, sent) = self.open.run_input();
        let mut patience = Patience::new(&self.c);
        let delivered = loop {
            let delivered = self.c.agents.deliver(&self.open.id, input.clone()).await;
            let busy = delivered.as_ref().is_err_and(is_busy);
            if !patience.helps(busy).await {
                break delivered;
            }
        };
        match delivered {
            Ok(Some(run)) => {
                self.open.state().settings.logged(&sent);
                self.run = Some(run);
            }
            Ok(None) => {}
            Err(error) => {
                let error = start_failed(&self.open, &error);
                for ticket in self.open.waiting_for(|by| matches!(by, By::Message(_))) {
                    if self.open.take(&ticket) {
                        self.c
                            .respond(&ticket.request, Err::<(), _>(error.clone()))
                            .await;
                    }
                }
            }
        }
    }

    /// Answers prompts whose turn had ended before they knew which one it would be.
    async fn answer_late(&mut self) {
        for (ticket, by) in self.open.waiting() {
            let By::Message(id) = by else {
                continue;
            };
            let ended = self
                .ended
                .iter()
                .find(|(messages, _)| messages.contains(&id));
            if let Some((_, reason)) = ended {
                let reason = reason.clone();
                self.answer(&ticket, &reason).await;
            }
        }
    }

    /// Ends what the client has cancelled: the turn under way, and messages that still wait.
    async fn cancel(&mut self) -> Result<(), Over> {
        if self
            .current()
            .iter()
            .any(|ticket| ticket.cancel.is_cancelled())
            && let Some(run) = self.known_run()
        {
            run.cancel();
        }
        for (ticket, by) in self.open.waiting() {
            let By::Message(id) = by else {
                continue;
            };
            if !ticket.cancel.is_cancelled() || self.turn.messages.contains(&id) {
                continue;
            }
            let mut patience = Patience::new(&self.c);
            let withdrawn = loop {
                let withdrawn = self.c.agents.withdraw(&self.open.id, &id).await;
                let busy = withdrawn.as_ref().is_err_and(is_queue_busy);
                if !patience.helps(busy).await {
                    break withdrawn;
                }
            };
            match withdrawn {
                // Its turn has begun, and is cancelled when that is seen.
                Err(QueueError::NotWaiting { .. }) => {}
                Ok(()) => self.answer(&ticket, &EndReason::Cancelled).await,
                Err(error) => {
                    tracing::warn!(%error, "a cancelled message may still be delivered");
                    self.answer(&ticket, &EndReason::Cancelled).await;
                }
            }
        }
        Ok(())
    }

    /// A run whose end cannot be logged has no end to be followed to.
    async fn failed(&mut self, outcome: RunOutcome) {
        let Some(failure) = outcome.failure else {
            return;
        };
        let error = failed(&failure.code, &failure.message, failure.hint);
        // The turn may not have been seen to begin.
        self.turn.run_id = self.run.take().map(|run| run.run_id().clone());
        self.fail_current(&error).await;
        self.turn = Turn::default();
        self.deliver().await;
    }

    fn offered_run_is_over(&self) {
        let mut state = self.open.state();
        if state.offered_run == self.turn.run_id {
            state.offered_run = None;
        }
    }

    async fn fail_current(&self, error: &Error) {
        self.offered_run_is_over();
        for ticket in self.current() {
            if self.open.take(&ticket) {
                let answer = if ticket.cancel.is_cancelled() {
                    Ok(PromptResponse::new(StopReason::Cancelled))
                } else {
                    Err(error.clone())
                };
                self.c.respond(&ticket.request, answer).await;
            }
        }
    }

    async fn answer(&self, ticket: &Arc<Ticket>, reason: &EndReason) {
        if !self.open.take(ticket) {
            return;
        }
        let answer = if ticket.cancel.is_cancelled() {
            Ok(StopReason::Cancelled)
        } else {
            stop_reason(reason)
        };
        self.c
            .respond(&ticket.request, answer.map(PromptResponse::new))
            .await;
    }
}

/// Waits for the end of a run that fails; for ever when it does not.
async fn failure(run: Option<Run>) -> RunOutcome {
    if let Some(run) = run {
        let outcome = run.wait().await;
        if outcome.failure.is_some() {
            return outcome;
        }
    }
    std::future::pending().await
}

fn stop_reason(reason: &EndReason) -> Result<StopReason, Error> {
    match reason {
        EndReason::Completed => Ok(StopReason::EndTurn),
        EndReason::Cancelled => Ok(StopReason::Cancelled),
        EndReason::MaxTokens => Ok(StopReason::MaxTokens),
        EndReason::MaxSteps | EndReason::Limit { .. } => Ok(StopReason::MaxTurnRequests),
        EndReason::Error { code, .. } if code == "content_filter" => Ok(StopReason::Refusal),
        EndReason::Error { code, message } => Err(failed(code, message, None)),
        EndReason::Blocked => Err(failed("blocked", "nobody could be asked", None)),
        EndReason::Interrupted => Err(failed(
            "interrupted",
            "the turn was interrupted by another writer of its session",
            Some("load the session again to see what has happened".into()),
        )),
    }
}
