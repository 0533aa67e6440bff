//! Does what the interface asks for, and tells what comes of it. All of it is in the agent and the
//! store; nothing is decided here.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use threadline_agent::{
    Agents, Answered, ApprovalInfo, QueueInput, RunInput, StartError, Started, new_run_id,
};
use threadline_session::{SessionId, View, types};
use threadline_store::{
    Followed, ListFilter, ReadError, SessionStore, SummaryPatch, UpdateError, Window, WindowAt,
    error_chain,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use crate::{
    app::{Effect, Facts, Msg, Opened, Question, Trouble},
    draw,
    limits::{CHOICE_ITEMS, PAGE_ITEMS, PAGE_ROWS, PREVIEW_ITEMS},
    talk::said,
    text,
    theme::Tone,
};

/// How often a change of what people set is tried when somebody else changes it too.
const ATTEMPTS: usize = 5;
/// Lines that are put into one message.
const LINES_AT_ONCE: usize = 256;
/// How often the writer of an open turn is looked for, if it is another process.
const WRITER_CHECK: Duration = Duration::from_secs(2);

impl From<StartError> for Trouble {
    fn from(error: StartError) -> Self {
        Self {
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}

/// Makes a trouble of an error with all its causes.
fn trouble(error: &dyn std::error::Error) -> Trouble {
    Trouble::new(error_chain(error))
}

/// A task that ends with what started it.
#[derive(Debug, Default)]
struct Tied(Option<JoinHandle<()>>);

impl Tied {
    fn replace(&mut self, task: Option<JoinHandle<()>>) {
        if let Some(old) = std::mem::replace(&mut self.0, task) {
            old.abort();
        }
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        self.replace(None);
    }
}

/// Questions of processes that are gone.
#[derive(Debug, Clone, Default)]
struct Offers {
    held: Arc<Mutex<Vec<ApprovalInfo>>>,
    changed: Arc<Notify>,
}

impl Offers {
    fn set(&self, offers: Vec<ApprovalInfo>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = offers;
        self.changed.notify_one();
    }

    fn remove(&self, approval_id: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|offer| offer.approval_id != approval_id);
        drop(held);
        self.changed.notify_one();
    }

    fn get(&self) -> Vec<ApprovalInfo> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
    }
}

/// Does what is asked for.
pub(crate) struct Engine {
    work: Work,
    list: Tied,
    preview: Tied,
    follow: Tied,
    questions: Tied,
}

/// Writes a session down as Markdown into a new file, and returns what to tell. It is the caller's,
/// because how sessions are exported is known above this crate.
pub type Exporter =
    Arc<dyn Fn(SessionId, PathBuf) -> BoxFuture<'static, Result<String, Trouble>> + Send + Sync>;

/// What tasks need.
#[derive(Clone)]
struct Work {
    agents: Agents,
    export: Exporter,
    tell: mpsc::Sender<Msg>,
    offers: Offers,
}

impl Engine {
    /// Begins to tell what waits for the person.
    pub(crate) fn new(agents: Agents, export: Exporter, tell: mpsc::Sender<Msg>) -> Self {
        let work = Work {
            agents,
            export,
            tell,
            offers: Offers::default(),
        };
        let questions = Tied(Some(tokio::spawn(work.clone().questions())));
        Self {
            work,
            list: Tied::default(),
            preview: Tied::default(),
            follow: Tied::default(),
            questions,
        }
    }

    /// Does one thing, in the background.
    pub(crate) fn perform(&mut self, effect: Effect) {
        let work = self.work.clone();
        match effect {
            Effect::List {
                generation,
                filter,
                cursor,
            } => {
                let task = tokio::spawn(work.list(generation, filter, cursor));
                self.list.replace(Some(task));
            }
            Effect::Preview { id } => {
                self.preview.replace(Some(tokio::spawn(work.preview(id))));
            }
            Effect::Open { id } => {
                work.offers.set(Vec::new());
                self.follow.replace(Some(tokio::spawn(work.follow(id))));
            }
            Effect::Close => {
                work.offers.set(Vec::new());
                self.follow.replace(None);
            }
            effect => drop(tokio::spawn(work.act(effect))),
        }
    }

    /// Ends what is told of the questions: nobody is there to be asked any more.
    pub(crate) fn hush(&mut self) {
        self.questions.replace(None);
        self.follow.replace(None);
    }

    /// Deletes at once what was to be deleted.
    pub(crate) async fn delete(&self, id: SessionId) {
        self.work.clone().delete(id).await;
    }
}

impl Work {
    fn store(&self) -> &SessionStore {
        self.agents.store()
    }

    async fn tell(&self, msg: Msg) {
        // Nobody listens once the interface is gone.
        let _ = self.tell.send(msg).await;
    }

    async fn report(&self, outcome: Result<String, Trouble>) {
        self.tell(match outcome {
            Ok(said) => Msg::Noted(said),
            Err(trouble) => Msg::Failed(trouble),
        })
        .await;
    }

    async fn questions(self) {
        let mut board = self.agents.approvals().watch();
        let mut told = Vec::new();
        loop {
            let waiting = self.agents.approvals().waiting(None).into_iter();
            let waiting = waiting.map(|info| (info, false));
            let offers = self.offers.get().into_iter().map(|info| (info, true));
            let question = |(info, offered)| Question { info, offered };
            let questions: Vec<Question> = waiting.chain(offers).map(question).collect();
            if questions != told {
                told.clone_from(&questions);
                self.tell(Msg::Questions(questions)).await;
            }
            tokio::select! {
                changed = board.changed() => if changed.is_err() { return },
                () = self.offers.changed.notified() => {}
            }
        }
    }

    async fn list(self, generation: u64, filter: ListFilter, cursor: Option<String>) {
        let page = self
            .store()
            .list(&filter, cursor.as_deref(), PAGE_ROWS)
            .await
            .map_err(|error| trouble(&error));
        let first = cursor.is_none();
        self.tell(Msg::Listed {
            generation,
            first,
            page,
        })
        .await;
    }

    async fn last_turns(&self, id: &SessionId, items: usize) -> Result<Window, Trouble> {
        let window = self.store().window(id, WindowAt::End, items).await;
        window.map_err(|error| unreadable(id, &error))
    }

    async fn preview(self, id: SessionId) {
        let window = self.last_turns(&id, PREVIEW_ITEMS).await;
        let turns = window.map(|window| window.turns);
        self.tell(Msg::Previewed(id, turns)).await;
    }

    async fn act(self, effect: Effect) {
        match effect {
            Effect::Choose { id } => {
                let window = self.last_turns(&id, CHOICE_ITEMS).await;
                let turns = window.map(|window| window.turns);
                self.tell(Msg::Choices(id, turns)).await;
            }
            Effect::Earlier { id, before } => self.earlier(id, before).await,
            Effect::Rename { id, title } => {
                let title = Some(title).filter(|title| !title.is_empty());
                let patch = SummaryPatch {
                    title: Some(title),
                    ..SummaryPatch::default()
                };
                self.change(id, patch).await;
            }
            Effect::Archive { id, archived } => {
                let patch = SummaryPatch {
                    archived: Some(archived),
                    ..SummaryPatch::default()
                };
                self.change(id, patch).await;
            }
            Effect::Delete { id } => self.delete(id).await,
            Effect::Fork { id, at } => self.fork(id, at).await,
            Effect::Start { id, input } => self.start(id, *input).await,
            Effect::Queue { id, input, run } => self.queue(id, input, *run).await,
            Effect::Withdraw { id, message_id } => {
                let withdrawn = self.agents.withdraw(&id, &message_id).await;
                let outcome = withdrawn
                    .map(|()| "The message is dropped.".to_owned())
                    .map_err(|error| trouble(&error));
                self.report(outcome).await;
            }
            Effect::Deliver { id, run } => {
                let delivered = self.agents.deliver(&id, *run).await;
                let outcome = delivered
                    .map(|_| "The first message that waited is sent.".to_owned())
                    .map_err(Trouble::from);
                self.report(outcome).await;
            }
            Effect::Answer {
                question,
                answered,
                run,
            } => self.answer(*question, answered, *run).await,
            Effect::Cancel { id } => self.cancel(id).await,
            Effect::Rewind { id, to } => {
                let moved = self.store().rewind(&id, to).await;
                let outcome = moved.map_err(|error| trouble(&error)).map(|moved| {
                    format!(
                        "The history is what it was after event {}. What tools did is not undone; \
                         /redo takes it back.",
                        moved.to_seq
                    )
                });
                self.report(outcome).await;
            }
            Effect::Redo { id } => {
                let moved = self.store().redo(&id).await;
                let outcome = moved
                    .map(|moved| {
                        format!("The history is what it was after event {}.", moved.to_seq)
                    })
                    .map_err(|error| trouble(&error));
                self.report(outcome).await;
            }
            Effect::Export { id, path } => {
                let path = path.map_or_else(
                    || PathBuf::from(format!("session-{}.md", text::head(id.as_str(), 13))),
                    PathBuf::from,
                );
                let outcome = (self.export)(id, path).await;
                self.report(outcome).await;
            }
            // Done elsewhere.
            Effect::List { .. }
            | Effect::Preview { .. }
            | Effect::Open { .. }
            | Effect::Close
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => {}
        }
    }

    async fn earlier(&self, id: SessionId, before: u64) {
        let window = self
            .store()
            .window(&id, WindowAt::Before(before), PAGE_ITEMS)
            .await;
        let earlier = window
            .map(|window| (window.turns, window.from))
            .map_err(|error| unreadable(&id, &error));
        self.tell(Msg::Earlier(id, earlier)).await;
    }

    async fn change(&self, id: SessionId, patch: SummaryPatch) {
        let mut attempt = 1;
        let outcome = loop {
            let revision = match self.store().summary(&id).await {
                Ok(row) => row.revision,
                Err(error) => break Err(trouble(&error)),
            };
            match self.store().update(&id, patch.clone(), revision).await {
                Ok(row) => break Ok(row),
                Err(UpdateError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => break Err(trouble(&error)),
            }
        };
        self.tell(match outcome {
            Ok(row) => Msg::Changed(Box::new(row)),
            Err(trouble) => Msg::Failed(trouble),
        })
        .await;
    }

    async fn delete(&self, id: SessionId) {
        let outcome = if self.agents.running(&id).is_some() {
            Err(Trouble::new("A session that runs is not deleted."))
        } else {
            let deleted = self.store().delete(&id).await;
            deleted.map_err(|error| trouble(&error))
        };
        self.tell(Msg::Deleted(id, outcome)).await;
    }

    async fn fork(&self, id: SessionId, at: Option<u64>) {
        let child = SessionId::from_first_run(&new_run_id());
        let msg = match self.store().fork(&id, at, child).await {
            Ok(forked) => {
                let said = format!("Forked after event {} of {}.", forked.at_seq, forked.parent);
                Msg::Forked(forked.id, said)
            }
            Err(error) => Msg::Failed(trouble(&error)),
        };
        self.tell(msg).await;
    }

    async fn start(&self, id: Option<SessionId>, input: RunInput) {
        let task = input.task.clone();
        let session = id.clone();
        match (self.agents.start(id, input.clone()).await, session) {
            (Ok(Started::New(run)), _) => {
                self.tell(Msg::Started(run.session_id().clone())).await;
                // An end that could not be logged is told by nothing else.
                if let Some(failure) = run.wait().await.failure {
                    let trouble = Trouble {
                        message: failure.message,
                        hint: failure.hint,
                    };
                    self.tell(Msg::Failed(trouble)).await;
                }
            }
            (Ok(Started::Repeated { session_id, .. }), _) => {
                self.tell(Msg::Started(session_id)).await;
            }
            // A run began in between: what waits in its inbox is its business.
            (Err(StartError::Busy { .. }), Some(id)) => {
                self.queue(id, QueueInput::new(task), input).await;
            }
            (Err(error), _) => self.tell(Msg::NotSent(task, error.into())).await,
        }
    }

    async fn queue(&self, id: SessionId, input: QueueInput, run: RunInput) {
        let words = input.text.clone();
        let msg = match self.agents.queue(&id, input, run).await {
            Ok(_) => Msg::Noted("Queued. It is kept, whatever happens.".into()),
            Err(error) => Msg::NotSent(words, trouble(&error)),
        };
        self.tell(msg).await;
    }

    async fn answer(&self, question: Question, answered: Answered, run: RunInput) {
        let Question { info, offered } = question;
        let (run_id, call_id) = (&info.run_id, &info.tool_call_id);
        let outcome = if offered {
            let answered = self
                .agents
                .answer_offer(run_id, call_id, answered, run)
                .await;
            self.offers.remove(&info.approval_id);
            answered.map(drop).map_err(|error| trouble(&error))
        } else {
            let answered = self.agents.approvals().answer(run_id, call_id, answered);
            answered.map_err(|error| trouble(&error))
        };
        if let Err(trouble) = outcome {
            self.tell(Msg::Failed(trouble)).await;
        }
    }

    async fn cancel(&self, id: SessionId) {
        if let Some(run) = self.agents.running(&id) {
            run.cancel();
            return;
        }
        let holder = self
            .store()
            .stat(&id)
            .await
            .ok()
            .and_then(|stat| stat.writer);
        self.tell(match holder {
            Some(holder) => Msg::Failed(Trouble {
                message: format!("the run is another process's: {holder}"),
                hint: Some("stop it there".into()),
            }),
            None => Msg::Noted("Nothing runs.".into()),
        })
        .await;
    }

    /// Reads a session's end and tells everything that is appended from then on.
    async fn follow(self, id: SessionId) {
        loop {
            let window = match self.last_turns(&id, PAGE_ITEMS).await {
                Ok(window) => window,
                Err(trouble) => return self.tell(Msg::Opened(id, Err(trouble))).await,
            };
            // How it stands is told by the state that is followed from.
            let view = match self.store().view_before(&id, window.end).await {
                Ok(view) => view.map(|(view, _)| view),
                Err(error) => {
                    let trouble = unreadable(&id, &error);
                    return self.tell(Msg::Opened(id, Err(trouble))).await;
                }
            };
            let unstored = is_unstored(&window);
            let stuck = window.damage.is_some() || window.unsupported.is_some();
            let opened = self.opened(&id, window, view.as_ref()).await;
            let open = opened.facts.open;
            self.tell(Msg::Opened(id.clone(), Ok(Box::new(opened))))
                .await;
            if unstored {
                self.offer(&id).await;
            }
            let Some(view) = view.filter(|_| !stuck) else {
                return;
            };
            match self.live(&id, view, open, unstored).await {
                Ok(()) => {}
                Err(trouble) => return self.tell(Msg::Failed(trouble)).await,
            }
        }
    }

    async fn opened(&self, id: &SessionId, window: Window, view: Option<&View>) -> Opened {
        let row = self.store().summary(id).await.ok();
        Opened {
            about: row.map_or(String::new(), |row| draw::about(&row)),
            notes: notes(id, &window),
            first_seq: window.from,
            facts: Facts {
                open: window.open,
                ..view.map(facts).unwrap_or_default()
            },
            said: window.turns.iter().flat_map(said).collect(),
            turns: window.turns,
        }
    }

    /// Tells what the tools of a session lack, as far as that was not told before.
    async fn tell_lacks(&self, id: &SessionId, told: &mut Vec<String>) {
        let Some(source) = &self.agents.config().source else {
            return;
        };
        let lacks = source.lacks(id);
        if lacks != *told {
            if !lacks.is_empty() {
                self.tell(Msg::Warned(lacks.join(" "))).await;
            }
            *told = lacks;
        }
    }

    /// Tells what a process asked that is gone.
    async fn offer(&self, id: &SessionId) {
        if let Ok(mut offers) = self.agents.offers().await {
            offers.retain(|offer| offer.session_id == *id);
            self.offers.set(offers);
        }
    }

    /// Tells what is appended, until the session must be read anew.
    async fn live(
        &self,
        id: &SessionId,
        mut view: View,
        open: bool,
        unstored: bool,
    ) -> Result<(), Trouble> {
        let read = |error: ReadError| unreadable(id, &error);
        let last = view.transcript().next_seq().checked_sub(1);
        let mut follow = self.store().follow(id, last);
        let mut told = Facts {
            open,
            ..facts(&view)
        };
        let mut lacks = Vec::new();
        drop(view.take_turns());
        loop {
            // Only a turn that another process has open can be left by its writer.
            let foreign = told.open && self.agents.running(id).is_none();
            let first = tokio::select! {
                biased;
                followed = follow.next() => followed.map_err(read)?,
                () = tokio::time::sleep(WRITER_CHECK), if foreign => {
                    let stat = self.store().stat(id).await.map_err(read)?;
                    if stat.writer.is_none() {
                        return Ok(());
                    }
                    continue;
                }
            };
            let mut patches = Vec::new();
            let mut next = Some(first);
            let mut lines = 0;
            while let Some(followed) = next.take() {
                if let Followed::Line(line) = followed {
                    // What was shown of an interrupted turn is stored now.
                    if unstored {
                        self.offers.set(Vec::new());
                        return Ok(());
                    }
                    if line.event.kind == types::STEP_START {
                        self.tell_lacks(id, &mut lacks).await;
                    }
                    let applied = self.store().apply(id, &mut view, &line.event).await;
                    let applied = applied.map_err(read)?;
                    patches.extend(applied.map_err(|error| trouble(&error))?);
                    drop(view.take_turns());
                    lines += 1;
                }
                if lines < LINES_AT_ONCE {
                    next = follow.next().now_or_never().transpose().map_err(read)?;
                }
            }
            if lines == 0 {
                // That all is caught up with changes nothing.
                continue;
            }
            let now = facts(&view);
            let changed = now != told;
            if changed {
                told.clone_from(&now);
            }
            if changed || !patches.is_empty() {
                let facts = changed.then(|| Box::new(now));
                self.tell(Msg::Patched(id.clone(), patches, facts)).await;
            }
        }
    }
}

fn facts(view: &View) -> Facts {
    let transcript = view.transcript();
    Facts {
        open: transcript.open_turn().is_some(),
        queue: transcript.inbox().to_vec(),
        context: transcript.context().cloned(),
    }
}

fn unreadable(id: &SessionId, error: &ReadError) -> Trouble {
    let hint = match error {
        ReadError::NotFound { .. } => "other sessions are in the picker: Ctrl-S".to_owned(),
        ReadError::Corrupt { .. } => {
            format!("see what mending would keep: `threadline repair {id} --dry-run`")
        }
        _ => format!("look closer with `threadline doctor {id}`"),
    };
    Trouble {
        message: error_chain(error),
        hint: Some(hint),
    }
}

/// Returns whether the end of the last turn is shown and not stored: the next opening appends it.
fn is_unstored(window: &Window) -> bool {
    let end = window.turns.last().and_then(|turn| turn.head.end_seq);
    window.at_end && end.is_some_and(|seq| seq >= window.end)
}

/// Returns what is wrong with a session, or worth knowing before it is gone on with.
fn notes(id: &SessionId, window: &Window) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    if let Some(damage) = &window.damage {
        notes.push((
            Tone::Bad,
            format!(
                "Damaged at event {}: {}. Shown is what stands before; it cannot be gone on with. \
                 `threadline repair {id} --dry-run` says what mending would keep.",
                damage.seq, damage.reason
            ),
        ));
    }
    if let Some(reason) = &window.unsupported {
        notes.push((
            Tone::Bad,
            format!("{reason}. Shown is what stands before; it cannot be gone on with."),
        ));
    }
    if is_unstored(window) {
        notes.push((
            Tone::Warning,
            "The last turn was interrupted. Your next message goes on from here.".into(),
        ));
    }
    let holder = window.stat.writer.as_ref();
    if let Some(holder) = holder.filter(|holder| holder.pid != std::process::id()) {
        notes.push((
            Tone::Warning,
            format!("Another process has it: {holder}. What it does is shown here as it happens."),
        ));
    }
    notes
}
