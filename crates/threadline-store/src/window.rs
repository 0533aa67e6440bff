//! Showing a part of a log: the read model of some turns, in time and memory that depend on the
//! part and not on the log.
//!
//! A window begins and ends where a turn or a step begins, or at the end of the log: there no call
//! is open and nothing streams, so that the items of a window are those that a fold of the whole
//! log shows. The state at its beginning comes from a checkpoint.

use threadline_session::{
    Event, Payload, Request, RequestError, SessionId, Status, Transcript, Turn, TurnHead, View,
    closers, codec::Line, types,
};

use crate::{
    Damage, Entry, ReadError, ReadPos, RebuiltRequest, SessionStore, Stat,
    limits::{FOLLOWED_ITEMS, WINDOW_BYTES, WINDOW_PAGE_BYTES, WINDOW_STRIDE},
    scan::Scan,
};

/// Which part of a log is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowAt {
    /// The newest part.
    End,
    /// What ends before an event.
    Before(u64),
    /// What begins at an event, or at the step that the event is in.
    From(u64),
    /// What an event is in, with something before and behind it.
    Around(u64),
    /// What begins with a turn.
    Turn(u64),
}

/// A part of a log as it is shown.
#[derive(Debug)]
pub struct Window {
    /// The turns, oldest first. The first one lacks the items before [`from`](Self::from) when it
    /// began earlier; the head of the last one is as it was at [`to`](Self::to).
    pub turns: Vec<Turn>,
    /// First event.
    pub from: u64,
    /// Behind the last event.
    pub to: u64,
    /// Whether it reaches the end of the log, as far as that can be read.
    pub at_end: bool,
    /// Whether the last turn goes on behind the window.
    pub cut: bool,
    /// Behind the last event of the log that can be read.
    pub end: u64,
    /// How the session stands at the end of its log.
    pub status: Status,
    /// Whether a turn is open there.
    pub open: bool,
    /// Storage facts.
    pub stat: Stat,
    /// Damage that was met; what is behind it is not shown.
    pub damage: Option<Damage>,
    /// Why the log cannot be continued by this version.
    pub unsupported: Option<String>,
}

/// When a search for the beginning or the end of a window is over.
#[derive(Clone, Copy)]
struct Enough {
    /// Items, when a turn begins there.
    at_turn: usize,
    /// Items, when a step begins there.
    at_step: usize,
}

impl Enough {
    fn items(wanted: usize) -> Self {
        Self {
            at_turn: wanted.div_ceil(2),
            at_step: wanted,
        }
    }

    const NEAREST: Self = Self {
        at_turn: 0,
        at_step: 0,
    };

    fn is_met(self, begins_turn: bool, items: usize, bytes: u64) -> bool {
        let wanted = if begins_turn {
            self.at_turn
        } else {
            self.at_step
        };
        items >= wanted || bytes >= WINDOW_BYTES
    }
}

/// Where a window may begin, and whether a turn does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    seq: u64,
    begins_turn: bool,
    /// Number of the turn that it is in; 0 before the first.
    turn: u64,
}

/// What a line is to a search for bounds.
struct Mark {
    seq: u64,
    bytes: u64,
    /// Whether it makes an item.
    item: bool,
    begins: Option<Begins>,
}

/// What begins with a line.
#[derive(Debug, Clone, Copy)]
struct Begins {
    /// Whether it is a turn, not a step.
    turn: bool,
    /// Number of the turn.
    number: u64,
}

impl Mark {
    fn of(line: &Line) -> Self {
        let begins = match line.event.kind.as_str() {
            types::TURN_START | types::STEP_START => match line.event.payload() {
                Ok(Payload::TurnStart(start)) => Some(Begins {
                    turn: true,
                    number: start.turn,
                }),
                Ok(Payload::StepStart(start)) => Some(Begins {
                    turn: false,
                    number: start.turn,
                }),
                _ => None,
            },
            _ => None,
        };
        let item = matches!(
            line.event.kind.as_str(),
            types::SYSTEM_PROMPT
                | types::USER_MESSAGE
                | types::ASSISTANT_MESSAGE
                | types::TOOL_RESULT
                | types::COMPACTION_SUMMARY
                | types::HISTORY_HEAD
                | types::ITEM_REJECTED
                | types::MODEL_RETRY
                | types::MODEL_ERROR
        );
        Self {
            seq: line.event.seq,
            bytes: line.raw.len() as u64,
            item,
            begins,
        }
    }
}

/// Where the part of a log ends that can be shown, and why.
struct Tail {
    end: u64,
    status: Status,
    open: bool,
    damage: Option<Damage>,
    unsupported: Option<String>,
}

impl Tail {
    fn of(scan: Scan<Transcript>) -> Self {
        Self {
            end: scan.state.next_seq(),
            status: scan.state.status(),
            open: scan.state.open_turn().is_some(),
            damage: scan.damage.into_iter().next(),
            unsupported: scan.unsupported,
        }
    }
}

/// A search met damage.
struct Met(Damage);

type Found<T> = Result<Result<T, Met>, ReadError>;

impl SessionStore {
    /// Shows a part of a session, about `items` of its items, without writing anything. A part
    /// never ends within a step.
    ///
    /// # Errors
    /// [`ReadError`]: not found, or a header that cannot be read.
    pub async fn window(
        &self,
        id: &SessionId,
        at: WindowAt,
        items: usize,
    ) -> Result<Window, ReadError> {
        let stat = self.stat(id).await?;
        let mut tail = Tail::of(self.state_before(id, u64::MAX).await?);
        loop {
            // What a search or a fold stumbles upon is where the log ends, as far as it can be
            // read. Each round ends it earlier.
            match self.window_up_to(id, at, items, &stat, &tail).await? {
                Ok(window) => return Ok(window),
                Err(stop) => {
                    let end = stop.at.min(tail.end.saturating_sub(1));
                    let before = Tail::of(self.state_before(id, end).await?);
                    tail = Tail {
                        damage: stop.damage.or(tail.damage),
                        unsupported: stop.unsupported.or(tail.unsupported),
                        ..before
                    };
                }
            }
        }
    }

    async fn window_up_to(
        &self,
        id: &SessionId,
        at: WindowAt,
        items: usize,
        stat: &Stat,
        tail: &Tail,
    ) -> Result<Result<Window, Stop>, ReadError> {
        let bounds = match self.bounds(id, at, items, tail.end).await? {
            Ok(bounds) => bounds,
            Err(Met(damage)) => return Ok(Err(Stop::at_damage(damage))),
        };
        let (first, to) = bounds;
        let mut view = match self.view_from(id, first).await? {
            Ok(view) => view,
            Err(stop) => return Ok(Err(stop)),
        };
        if let Err(stop) = self.fold_up_to(id, &mut view, to).await? {
            return Ok(Err(stop));
        }
        let at_end = to >= tail.end;
        let cut = view.transcript().open_turn().is_some() && !at_end;
        let mut status = tail.status;
        let mut open = tail.open;
        let whole = tail.damage.is_none() && tail.unsupported.is_none();
        if at_end && stat.writer.is_none() && whole {
            self.close(id, &mut view).await?;
            status = view.transcript().status();
            open = view.transcript().open_turn().is_some();
        }
        Ok(Ok(Window {
            turns: view.into_turns(),
            from: first.seq,
            to,
            at_end,
            cut,
            end: tail.end,
            status,
            open,
            stat: stat.clone(),
            damage: tail.damage.clone(),
            unsupported: tail.unsupported.clone(),
        }))
    }

    /// Applies what the next opening will append, so that readers and writers see one history.
    async fn close(&self, id: &SessionId, view: &mut View) -> Result<(), ReadError> {
        let missing = view.transcript().missing_calls();
        if let Some(damage) = self.fill(id, view.transcript_mut(), &missing).await? {
            return Err(self.corrupt(id, damage));
        }
        for event in closers(view.transcript()).unwrap_or_default() {
            let _applied = view.apply(&event);
        }
        Ok(())
    }

    /// Makes a read model for following a log: as a fold of everything before event `seq` leaves
    /// it, with the newest turns alone, and of a long turn without its older steps. It comes with
    /// the first event that it shows. `None` when damage, or an event that this version may not
    /// pass over, is in the way.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn view_before(
        &self,
        id: &SessionId,
        seq: u64,
    ) -> Result<Option<(View, u64)>, ReadError> {
        let enough = Enough {
            at_turn: 0,
            at_step: FOLLOWED_ITEMS,
        };
        let Ok(first) = self.back(id, seq, enough).await? else {
            return Ok(None);
        };
        let Ok(mut view) = self.view_from(id, first).await? else {
            return Ok(None);
        };
        let folded = self.fold_up_to(id, &mut view, seq).await?;
        Ok(folded.is_ok().then_some((view, first.seq)))
    }

    /// Calls `f` for each valid line before event `before`, newest first, until it returns false or
    /// the log begins.
    ///
    /// # Errors
    /// [`ReadError`], also for damage on the way.
    pub async fn each_event_back(
        &self,
        id: &SessionId,
        before: u64,
        mut f: impl FnMut(&Line) -> bool + Send,
    ) -> Result<(), ReadError> {
        let (mut high, mut stride) = (before, WINDOW_STRIDE);
        while high > 0 {
            let low = high.saturating_sub(stride);
            let mut lines = Vec::new();
            let met = self.lines_between(id, low, high, |line| lines.push(line.clone()));
            if let Err(Met(damage)) = met.await? {
                return Err(self.corrupt(id, damage));
            }
            if !lines.iter().rev().all(&mut f) {
                return Ok(());
            }
            high = low;
            stride = (stride * 2).min(WINDOW_STRIDE * 32);
        }
        Ok(())
    }

    /// Rebuilds the request of the step that begins with event `seq`, from the state that the log
    /// has there as opening a session restores it. `None` when another event stands there.
    ///
    /// # Errors
    /// [`ReadError`]; the inner result says when no request can be built.
    pub async fn request_at(
        &self,
        id: &SessionId,
        step: u64,
        seq: u64,
    ) -> Result<Option<Result<RebuiltRequest, RequestError>>, ReadError> {
        self.stat(id).await?;
        let start = match self.event_at(id, seq).await?.map(|event| event.payload()) {
            Some(Ok(Payload::StepStart(start))) if start.step == step => start,
            _ => return Ok(None),
        };
        let scan = self.state_before(id, seq).await?;
        if let Some(damage) = scan.damage.into_iter().next() {
            return Err(self.corrupt(id, damage));
        }
        if let Some(reason) = scan.unsupported {
            let id = id.clone();
            return Err(ReadError::Unsupported { id, reason });
        }
        let mut state = scan.state.with_items();
        let missing = state.missing();
        if let Some(damage) = self.fill(id, &mut state, &missing).await? {
            return Err(self.corrupt(id, damage));
        }
        Ok(Some(Request::build(&state).map(|(request, _)| {
            RebuiltRequest {
                request,
                seq,
                start,
            }
        })))
    }

    async fn bounds(
        &self,
        id: &SessionId,
        at: WindowAt,
        items: usize,
        end: u64,
    ) -> Found<(Bound, u64)> {
        let enough = Enough::items(items);
        let half = Enough::items(items / 2);
        let last = end.saturating_sub(1);
        let (first, behind) = match at {
            WindowAt::End => (self.back(id, end, enough).await?, None),
            WindowAt::Before(seq) => (
                self.back(id, seq.min(end), enough).await?,
                Some(seq.min(end)),
            ),
            WindowAt::From(seq) => (self.nearest(id, seq.min(last)).await?, None),
            WindowAt::Around(seq) => (self.back(id, seq.min(last) + 1, half).await?, None),
            WindowAt::Turn(turn) => {
                let seq = match self.start_of_turn(id, turn, end).await? {
                    Ok(seq) => seq,
                    Err(met) => return Ok(Err(met)),
                };
                (self.nearest(id, seq.min(last)).await?, None)
            }
        };
        let first = match first {
            Ok(first) => first,
            Err(met) => return Ok(Err(met)),
        };
        let to = match (at, behind) {
            (_, Some(to)) => Ok(to),
            (WindowAt::End, None) => Ok(end),
            (WindowAt::Around(seq), None) => self.forth(id, seq.min(last) + 1, end, half).await?,
            (_, None) => self.forth(id, first.seq + 1, end, enough).await?,
        };
        Ok(to.map(|to| (first, to)))
    }

    /// Finds the last bound at or before an event.
    async fn nearest(&self, id: &SessionId, seq: u64) -> Found<Bound> {
        self.back(id, seq.saturating_add(1), Enough::NEAREST).await
    }

    /// Goes back from before event `to` until there is enough.
    async fn back(&self, id: &SessionId, to: u64, enough: Enough) -> Found<Bound> {
        let (mut high, mut stride) = (to, WINDOW_STRIDE);
        let (mut items, mut bytes) = (0, 0);
        while high > 0 {
            let low = high.saturating_sub(stride);
            let marks = match self.marks(id, low, high).await? {
                Ok(marks) => marks,
                Err(met) => return Ok(Err(met)),
            };
            for mark in marks.iter().rev() {
                items += usize::from(mark.item);
                bytes += mark.bytes;
                if let Some(begins) = mark.begins
                    && enough.is_met(begins.turn, items, bytes)
                {
                    return Ok(Ok(Bound {
                        seq: mark.seq,
                        begins_turn: begins.turn,
                        turn: begins.number,
                    }));
                }
            }
            high = low;
            stride = stride.saturating_mul(2);
        }
        Ok(Ok(Bound {
            seq: 0,
            begins_turn: true,
            turn: 0,
        }))
    }

    /// Goes on from event `from` to the first bound where there is enough, or to `end`.
    async fn forth(&self, id: &SessionId, from: u64, end: u64, enough: Enough) -> Found<u64> {
        let (mut low, mut items, mut bytes) = (from, 0, 0);
        while low < end {
            let high = low.saturating_add(WINDOW_STRIDE * 4).min(end);
            let marks = match self.marks(id, low, high).await? {
                Ok(marks) => marks,
                Err(met) => return Ok(Err(met)),
            };
            for mark in &marks {
                if let Some(begins) = mark.begins
                    && enough.is_met(begins.turn, items, bytes)
                {
                    return Ok(Ok(mark.seq));
                }
                items += usize::from(mark.item);
                bytes += mark.bytes;
            }
            low = high;
        }
        Ok(Ok(end))
    }

    /// Reads what lines from `low` up to before `high` are to a search.
    async fn marks(&self, id: &SessionId, low: u64, high: u64) -> Found<Vec<Mark>> {
        let mut marks = Vec::new();
        let read = self.lines_between(id, low, high, |line| marks.push(Mark::of(line)));
        Ok(read.await?.map(|()| marks))
    }

    /// Gives the lines from `low` up to before `high`, in order.
    async fn lines_between(
        &self,
        id: &SessionId,
        low: u64,
        high: u64,
        mut give: impl FnMut(&Line) + Send,
    ) -> Found<()> {
        let mut pos = ReadPos::at(low);
        loop {
            let page = self.backend().page(id, pos, WINDOW_PAGE_BYTES).await?;
            for entry in &page.entries {
                match entry {
                    Entry::Header(_) => {}
                    Entry::Line(line, _) if line.event.seq >= high => return Ok(Ok(())),
                    Entry::Line(line, _) => give(line),
                    Entry::Damage(damage) if damage.seq >= high => return Ok(Ok(())),
                    Entry::Damage(damage) => return Ok(Err(Met(damage.clone()))),
                }
            }
            if page.end || page.next.seq >= high {
                return Ok(Ok(()));
            }
            pos = page.next;
        }
    }

    /// Finds where a turn begins, or the first one after it, by halving the log.
    async fn start_of_turn(&self, id: &SessionId, turn: u64, end: u64) -> Found<u64> {
        let (mut low, mut high) = (0, end);
        while low < high {
            let middle = low + (high - low) / 2;
            let bound = match self.nearest(id, middle).await? {
                Ok(bound) => bound,
                Err(met) => return Ok(Err(met)),
            };
            if bound.turn >= turn {
                high = bound.seq;
            } else {
                low = middle + 1;
            }
        }
        Ok(Ok(low))
    }

    /// Makes the read model that begins at a bound.
    async fn view_from(
        &self,
        id: &SessionId,
        first: Bound,
    ) -> Result<Result<View, Stop>, ReadError> {
        if first.seq == 0 {
            return Ok(Ok(View::over(self.transcript())));
        }
        let scan = self.state_before(id, first.seq).await?;
        if scan.is_stuck() || scan.state.next_seq() != first.seq {
            return Ok(Err(Stop::of(scan)));
        }
        let state = scan.state.with_items();
        let open = match state.open_turn().filter(|_| !first.begins_turn) {
            Some(_) => self.open_head(id, &state).await?,
            None => None,
        };
        Ok(Ok(View::resumed(state, open)))
    }

    /// Returns the head of the turn that is open in a state.
    async fn open_head(
        &self,
        id: &SessionId,
        state: &Transcript,
    ) -> Result<Option<TurnHead>, ReadError> {
        let Some(open) = state.open_turn() else {
            return Ok(None);
        };
        let Some(start) = self.event_at(id, open.start_seq).await? else {
            return Ok(None);
        };
        let Ok(Payload::TurnStart(begun)) = start.payload() else {
            return Ok(None);
        };
        let before = self.state_before(id, open.start_seq).await?;
        Ok(Some(TurnHead {
            turn: begun.turn,
            run_id: begun.run_id,
            start_seq: open.start_seq,
            end_seq: None,
            started_at: start.time,
            ended_at: None,
            context: Some(begun.context),
            reason: None,
            usage: state.facts().usage.minus(&before.state.facts().usage),
            subagent_usage: state
                .facts()
                .subagents
                .minus(&before.state.facts().subagents),
        }))
    }

    async fn event_at(&self, id: &SessionId, seq: u64) -> Result<Option<Event>, ReadError> {
        let page = self.backend().page(id, ReadPos::at(seq), 1).await?;
        Ok(page.entries.into_iter().find_map(|entry| match entry {
            Entry::Line(line, _) if line.event.seq == seq => Some(line.event),
            _ => None,
        }))
    }

    async fn fold_up_to(
        &self,
        id: &SessionId,
        view: &mut View,
        to: u64,
    ) -> Result<Result<(), Stop>, ReadError> {
        let header = self.header(id).await?;
        let from = view.transcript().next_seq();
        let mut scan = Scan::new(header, std::mem::take(view));
        scan.next = ReadPos::at(from);
        self.go_on(id, &mut scan, to).await?;
        if scan.is_stuck() {
            return Ok(Err(Stop::of(scan.map(|view| view.transcript().clone()))));
        }
        *view = scan.state;
        Ok(Ok(()))
    }
}

/// Where and why a log cannot be read on.
struct Stop {
    at: u64,
    damage: Option<Damage>,
    unsupported: Option<String>,
}

impl Stop {
    fn at_damage(damage: Damage) -> Self {
        Self {
            at: damage.seq,
            damage: Some(damage),
            unsupported: None,
        }
    }

    fn of(scan: Scan<Transcript>) -> Self {
        Self {
            at: scan.state.next_seq(),
            damage: scan.damage.into_iter().next(),
            unsupported: scan.unsupported,
        }
    }
}
