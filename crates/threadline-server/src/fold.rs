//! The read model of a session that is being followed, and what is told besides its log events.

use threadline_agent::{ApprovalInfo, RunEvent, RunPolicy};
use threadline_session::{
    Patch, Payload, SessionId, Turn, View, closers, codec::Line, payload::EndReason,
};
use threadline_store::{
    Durability, Entry, Follow, Followed, ReadError, ReadPos, SessionStore, WindowAt,
};
use tokio::time::Instant;

use crate::limits::{ABANDONED_CHECK, TURN_ITEMS};

/// The read model of the newest turn, moved on event by event.
pub(crate) struct Fold {
    store: SessionStore,
    id: SessionId,
    view: View,
    /// First event that the model shows. A long turn may have begun before it.
    from: u64,
    /// Set by an event that this version may not pass over. The log goes on, the model does not.
    stuck: bool,
}

/// What an event of the log brings with it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Changes of the read model, shown before the event.
    pub(crate) patches: Vec<Patch>,
    /// A control event shown before the event.
    pub(crate) before: Option<RunEvent>,
    /// A control event shown after the event.
    pub(crate) after: Option<RunEvent>,
}

impl Fold {
    pub(crate) fn new(store: SessionStore, id: SessionId) -> Self {
        Self {
            view: View::over(store.transcript()),
            from: 0,
            store,
            id,
            stuck: false,
        }
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.view.transcript().next_seq()
    }

    pub(crate) fn turn(&self) -> Option<&Turn> {
        self.view.turns().last()
    }

    /// Returns whether the log holds something that this version may not pass over.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Returns whether a turn is open, as far as the log tells.
    pub(crate) fn is_open(&self) -> bool {
        !self.stuck && self.view.transcript().open_turn().is_some()
    }

    /// Folds everything before an event that was not folded yet. Dropping the future loses
    /// nothing: what is folded is folded.
    pub(crate) async fn advance_to(&mut self, seq: u64) -> Result<(), ReadError> {
        if self.next_seq() == 0
            && seq > 0
            && let Some((view, from)) = self.store.view_before(&self.id, seq).await?
        {
            (self.view, self.from) = (view, from);
        }
        let mut from = ReadPos::at(self.next_seq());
        while !self.stuck && self.next_seq() < seq {
            let page = self.store.read(&self.id, from, usize::MAX).await?;
            let before = self.next_seq();
            for entry in page.entries {
                match entry {
                    Entry::Line(line, _) if line.event.seq >= seq => break,
                    Entry::Header(_) => {}
                    Entry::Line(line, _) => drop(self.apply(&line).await?),
                    Entry::Damage(damage) => {
                        return Err(ReadError::Corrupt {
                            id: self.id.clone(),
                            damage,
                        });
                    }
                }
            }
            // A log that does not go on here has nothing more to fold.
            self.stuck |= self.next_seq() == before;
            from = page.next.unwrap_or_default();
        }
        Ok(())
    }

    async fn apply(&mut self, line: &Line) -> Result<Option<Vec<Patch>>, ReadError> {
        let applied = self
            .store
            .apply(&self.id, &mut self.view, &line.event)
            .await?;
        self.stuck |= applied.is_err();
        // Nothing that comes changes an older turn.
        drop(self.view.take_turns());
        Ok(applied.ok())
    }

    /// Folds the next event, which must come right after what is folded.
    pub(crate) async fn take(&mut self, line: &Line) -> Result<Told, ReadError> {
        if self.stuck {
            return Ok(Told::default());
        }
        let payload = line.event.payload().ok();
        let resolved = payload.as_ref().and_then(|payload| self.resolved(payload));
        let Some(patches) = self.apply(line).await? else {
            return Ok(Told::default());
        };
        let mut told = Told {
            patches,
            ..Told::default()
        };
        match payload {
            Some(Payload::TurnStart(_)) => told.before = self.started(),
            Some(Payload::TurnEnd(end)) => {
                let durable = self.store.durability() != Durability::Os;
                let durable_seq = durable.then_some(line.event.seq);
                told.after = self.finished(end.reason, durable_seq).await?;
            }
            Some(Payload::ApprovalAsked(asked)) => {
                told.after = self.turn().map(|turn| {
                    let run_id = turn.head.run_id.clone();
                    let (id, time) = (self.id.clone(), line.event.time);
                    RunEvent::ApprovalRequired(ApprovalInfo::of(run_id, id, asked, time))
                });
            }
            Some(Payload::ApprovalDecided(_)) => told.after = resolved,
            _ => {}
        }
        Ok(told)
    }

    /// Looked up before the event is folded, because it takes the question away.
    fn resolved(&self, payload: &Payload) -> Option<RunEvent> {
        let Payload::ApprovalDecided(decided) = payload else {
            return None;
        };
        let pending = self.view.transcript().pending_approvals();
        let asked = &pending
            .iter()
            .find(|p| p.asked.approval_id == decided.approval_id)?
            .asked;
        Some(RunEvent::ApprovalResolved {
            approval_id: decided.approval_id.clone(),
            run_id: self.turn()?.head.run_id.clone(),
            tool_call_id: asked.call_id.clone(),
            decision: decided.decision,
            by: decided.by.clone(),
        })
    }

    /// Returns how the newest turn began.
    pub(crate) fn started(&self) -> Option<RunEvent> {
        let head = &self.turn()?.head;
        Some(RunEvent::RunStarted {
            run_id: head.run_id.clone(),
            session_id: self.id.clone(),
            resumed: head.start_seq > 0,
            policy: RunPolicy::from(head.context.as_ref()?),
            recovered: None,
        })
    }

    /// Returns how the newest turn ended.
    pub(crate) async fn finished(
        &self,
        reason: EndReason,
        durable_seq: Option<u64>,
    ) -> Result<Option<RunEvent>, ReadError> {
        let Some(turn) = self.turn() else {
            return Ok(None);
        };
        Ok(Some(RunEvent::RunFinished {
            run_id: turn.head.run_id.clone(),
            session_id: self.id.clone(),
            reason,
            answer: self.answer(turn).await?,
            usage: turn.head.usage,
            subagent_usage: turn.head.subagent_usage,
            durable_seq,
        }))
    }

    /// Returns a turn's answer, which may stand in a step that the model does not show any more.
    async fn answer(&self, turn: &Turn) -> Result<String, ReadError> {
        let mut answer = turn.answer();
        let start = turn.head.start_seq;
        let mut from = self.from;
        while answer.is_empty() && from > start {
            let at = WindowAt::Before(from);
            let window = self.store.window(&self.id, at, TURN_ITEMS).await?;
            let older = window.turns.last();
            answer = older
                .filter(|older| older.head.start_seq == start)
                .map_or_else(String::new, Turn::answer);
            if window.from >= from {
                break;
            }
            from = window.from;
        }
        Ok(answer)
    }

    /// Returns what changes when the open turn is shown as interrupted: exactly what the closers
    /// will change that the next opening appends.
    pub(crate) fn interrupted(&self) -> Vec<Patch> {
        let mut view = self.view.clone();
        let events = closers(view.transcript()).unwrap_or_default();
        events
            .iter()
            .filter_map(|event| view.apply(event).ok())
            .flatten()
            .collect()
    }
}

/// What a watcher sees next.
pub(crate) enum Seen {
    /// The next line.
    Line(Box<Line>),
    /// Everything stored so far was given.
    CaughtUp,
    /// The open turn has no writer any more, and nothing was appended since.
    Abandoned,
}

/// Follows a log and notices when the process that wrote an open turn is gone.
pub(crate) struct Watcher {
    store: SessionStore,
    id: SessionId,
    follow: Follow,
    /// When to look for the writer next; not before everything stored was given.
    look_at: Option<Instant>,
    /// Where the log ended when its turn was last reported as abandoned.
    told: Option<u64>,
}

impl Watcher {
    pub(crate) fn new(store: SessionStore, id: SessionId, after: Option<u64>) -> Self {
        let follow = store.follow(&id, after);
        Self {
            store,
            id,
            follow,
            look_at: None,
            told: None,
        }
    }

    /// Waits for what comes next. `open` is where the log ends, as far as the caller has it, when
    /// a turn is open there.
    pub(crate) async fn next(&mut self, open: Option<u64>) -> Result<Seen, ReadError> {
        loop {
            let end = open.filter(|end| self.told != Some(*end));
            let (Some(end), Some(look_at)) = (end, self.look_at) else {
                return self.followed().await;
            };
            tokio::select! {
                biased;
                seen = self.followed() => return seen,
                () = tokio::time::sleep_until(look_at) => {}
            }
            self.look_at = Some(Instant::now() + ABANDONED_CHECK);
            if self.is_abandoned(end).await? {
                self.told = Some(end);
                return Ok(Seen::Abandoned);
            }
        }
    }

    async fn followed(&mut self) -> Result<Seen, ReadError> {
        match self.follow.next().await? {
            Followed::Line(line) => Ok(Seen::Line(line)),
            Followed::CaughtUp { .. } => {
                self.look_at = Some(Instant::now());
                Ok(Seen::CaughtUp)
            }
        }
    }

    /// Looks for the writer first: what a writer has appended by the time it is gone is then seen
    /// by the reading behind it.
    async fn is_abandoned(&self, end: u64) -> Result<bool, ReadError> {
        if self.store.stat(&self.id).await?.writer.is_some() {
            return Ok(false);
        }
        let page = self.store.read(&self.id, ReadPos::at(end), 1).await?;
        Ok(page.entries.is_empty())
    }
}
