//! Folding a log, page by page, in bounded memory but for what the fold keeps.

use std::sync::Arc;

use threadline_session::{
    ApplyError, Event, Patch, Place, SessionId, Skimmed, SurfaceAt, Transcript, View, chain::Chain,
    codec::Line, types,
};

use crate::{
    Damage, Entry, ReadError, ReadPos, SessionStore, Shown, StoredHeader, Torn,
    kept::Kept,
    limits::{LINES_AT_ONCE, PAGE_BYTES},
    writer::Keys,
};

/// State that events are folded into: the bare state for going on, the read model for showing.
pub(crate) trait Fold: Send {
    fn fold(&mut self, event: &Event, place: Place) -> Result<(), ApplyError>;
    fn transcript(&self) -> &Transcript;
    fn transcript_mut(&mut self) -> &mut Transcript;
}

impl Fold for Transcript {
    fn fold(&mut self, event: &Event, place: Place) -> Result<(), ApplyError> {
        self.apply_at(event, place).map(drop)
    }

    fn transcript(&self) -> &Transcript {
        self
    }

    fn transcript_mut(&mut self) -> &mut Transcript {
        self
    }
}

impl Fold for View {
    fn fold(&mut self, event: &Event, place: Place) -> Result<(), ApplyError> {
        self.apply_at(event, place).map(drop)
    }

    fn transcript(&self) -> &Transcript {
        self.transcript()
    }

    fn transcript_mut(&mut self) -> &mut Transcript {
        self.transcript_mut()
    }
}

/// What a log holds, up to its end or a point before.
pub(crate) struct Scan<F> {
    pub(crate) header: StoredHeader,
    pub(crate) chain: Chain,
    /// Where the lines begin that the chain's next value covers.
    pub(crate) chain_from: ReadPos,
    /// The fold of everything before the first damage or unsupported event.
    pub(crate) state: F,
    pub(crate) keys: Keys,
    pub(crate) next: ReadPos,
    pub(crate) torn: Option<Torn>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) unsupported: Option<String>,
    /// Bytes of log behind the checkpoint that the scan started from.
    pub(crate) read_bytes: u64,
    /// First event of the open step, if its streamed text is still to be read.
    step_from: Option<u64>,
}

/// A scan that looks at lines without parsing them.
struct Skim {
    scan: Scan<Transcript>,
    /// Where to stop.
    end: u64,
    /// Last event of the batch that the last line belongs to.
    batch_last: u64,
}

impl Skim {
    fn new(scan: Scan<Transcript>, end: u64) -> Self {
        Self {
            scan,
            end,
            batch_last: 0,
        }
    }

    fn inside_batch(&self) -> bool {
        self.scan.state.next_seq() <= self.batch_last
    }

    fn take(&mut self, shown: Shown<'_>) -> bool {
        let (raw, place) = match shown {
            Shown::Header(_) if self.scan.state.next_seq() >= self.end => return false,
            Shown::Header(line) => {
                self.scan.read_bytes += line.len() as u64;
                return true;
            }
            Shown::Line(raw, place) => (raw, place),
        };
        let Some(line) = Skimmed::of(raw).filter(|line| line.seq < self.end) else {
            return false;
        };
        let more = line.has_more();
        if more || !self.scan.state.skim(&line, place) {
            // A type that asks for it, or a part that a line seldom has.
            let Ok(line) = Line::decode(raw) else {
                return false;
            };
            if self.scan.state.apply_at(&line.event, place).is_err() {
                return false;
            }
            if let Some(count) = line.batch {
                self.batch_last = line.event.seq + count as u64 - 1;
            }
            if let Some(key) = &line.key {
                self.scan.keys.note(key, line.event.seq);
            }
        }
        if line.kind == types::STEP_START {
            self.scan.step_from = Some(line.seq);
        }
        self.scan.read_bytes += raw.len() as u64 + 1;
        if let Some(value) = line.chain_value() {
            self.scan.chain = Chain::after(value);
            self.scan.chain_from = ReadPos {
                seq: line.seq + 1,
                hint: Some(place.at + u64::from(place.len)),
            };
        }
        true
    }
}

impl<F: Fold> Scan<F> {
    pub(crate) fn new(header: StoredHeader, state: F) -> Self {
        Self {
            header,
            chain: Chain::new(),
            chain_from: ReadPos::default(),
            state,
            keys: Keys::default(),
            next: ReadPos::default(),
            torn: None,
            damage: Vec::new(),
            unsupported: None,
            read_bytes: 0,
            step_from: None,
        }
    }

    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> Scan<G> {
        Scan {
            header: self.header,
            chain: self.chain,
            chain_from: self.chain_from,
            state: f(self.state),
            keys: self.keys,
            next: self.next,
            torn: self.torn,
            damage: self.damage,
            unsupported: self.unsupported,
            read_bytes: self.read_bytes,
            step_from: self.step_from,
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        !self.damage.is_empty() || self.unsupported.is_some()
    }
}

impl SessionStore {
    /// Folds the whole log into a state that has seen no event yet.
    pub(crate) async fn scan<F: Fold>(
        &self,
        id: &SessionId,
        state: F,
    ) -> Result<Scan<F>, ReadError> {
        let header = self.header(id).await?;
        let mut scan = Scan::new(header, state);
        self.go_on(id, &mut scan, u64::MAX).await?;
        if scan.damage.is_empty() && scan.unsupported.is_none() {
            let missing = scan.state.transcript().missing();
            let damage = self.fill(id, scan.state.transcript_mut(), &missing).await?;
            scan.damage.extend(damage);
        }
        Ok(scan)
    }

    /// Restores the state that the log has right after event `last`, or at its end, from the
    /// newest checkpoint before and the lines since. With `items` the content of the surface is
    /// read too.
    pub(crate) async fn restore(
        &self,
        id: &SessionId,
        last: Option<u64>,
        items: bool,
    ) -> Result<Scan<Transcript>, ReadError> {
        let header = self.header(id).await?;
        let end = last.map_or(u64::MAX, |last| last.saturating_add(1));
        // A checkpoint of just this point may have taken a header line behind it.
        let limit = last.unwrap_or(u64::MAX);
        let mut scan = match self.thawed(id, limit, &header).await? {
            Some(scan) => scan,
            None => match self.skimmed(id, end, &header).await? {
                Some(scan) => scan,
                None => Scan::new(header, self.transcript().bare()),
            },
        };
        self.go_on(id, &mut scan, end).await?;
        if items && !scan.is_stuck() {
            scan.state = std::mem::take(&mut scan.state).with_items();
            let missing = scan.state.missing();
            let damage = self.fill(id, &mut scan.state, &missing).await?;
            scan.damage.extend(damage);
        }
        Ok(scan)
    }

    /// Returns the surface right after an event.
    pub(crate) async fn surface_at(
        &self,
        id: &SessionId,
        seq: u64,
    ) -> Result<SurfaceAt, ReadError> {
        let scan = self.restore(id, Some(seq), false).await?;
        if let Some(damage) = scan.damage.into_iter().next() {
            let id = id.clone();
            return Err(ReadError::Corrupt { id, damage });
        }
        if let Some(reason) = scan.unsupported {
            let id = id.clone();
            return Err(ReadError::Unsupported { id, reason });
        }
        Ok(scan.state.into_surface_at())
    }

    /// Applies the next event to a read model. A head that moves to a point that is not kept in
    /// memory any more is read from the log.
    ///
    /// # Errors
    /// [`ReadError`]. The inner error says that this version may not pass over the event; the view
    /// is then unchanged.
    pub async fn apply(
        &self,
        id: &SessionId,
        view: &mut View,
        event: &Event,
    ) -> Result<Result<Vec<Patch>, ApplyError>, ReadError> {
        let mut applied = view.apply(event);
        if let Err(ApplyError::Past { target, .. }) = applied {
            let past = self.surface_at(id, target).await?;
            view.transcript_mut().supply_past(past);
            applied = view.apply(event);
        }
        if applied.is_ok() && event.kind == types::HISTORY_HEAD {
            // For the closers of a turn that may be cut off there.
            let missing = view.transcript().missing_calls();
            let damage = self.fill(id, view.transcript_mut(), &missing).await?;
            if let Some(damage) = damage {
                return Err(self.corrupt(id, damage));
            }
        }
        Ok(applied)
    }

    /// Restores the state that the log has right before event `end`, for showing: without the
    /// content of the surface, and without the chain, so that nothing before the checkpoint is read.
    pub(crate) async fn state_before(
        &self,
        id: &SessionId,
        end: u64,
    ) -> Result<Scan<Transcript>, ReadError> {
        let header = self.header(id).await?;
        let mut scan = match self.kept(id, end.saturating_sub(1), &header).await? {
            Some(scan) => scan,
            None => match self.skimmed(id, end, &header).await? {
                Some(scan) => scan,
                None => Scan::new(header, self.transcript().bare()),
            },
        };
        self.go_on(id, &mut scan, end).await?;
        Ok(scan)
    }

    /// Starts from a checkpoint, if there is one that fits this program and the log.
    async fn thawed(
        &self,
        id: &SessionId,
        limit: u64,
        header: &StoredHeader,
    ) -> Result<Option<Scan<Transcript>>, ReadError> {
        let Some(mut scan) = self.kept(id, limit, header).await? else {
            return Ok(None);
        };
        Ok(self.chain_up(id, &mut scan).await?.then_some(scan))
    }

    /// Takes the state out of the newest checkpoint up to `limit` that fits this program. The lines
    /// that its chain covers are not read yet.
    async fn kept(
        &self,
        id: &SessionId,
        limit: u64,
        header: &StoredHeader,
    ) -> Result<Option<Scan<Transcript>>, ReadError> {
        let Some(checkpoint) = self.backend().checkpoint(id, limit).await? else {
            return Ok(None);
        };
        let registered = Arc::clone(self.registered());
        let kept = match Kept::decode(&checkpoint.state, registered) {
            Ok(kept) if kept.state.next_seq() == checkpoint.next.seq => kept,
            Ok(_) => return Ok(None),
            Err(error) => {
                tracing::debug!(%id, %error, "the log is read instead of a checkpoint");
                return Ok(None);
            }
        };
        Ok(Some(Scan {
            chain: kept.chain.map_or_else(Chain::new, Chain::after),
            chain_from: kept.chain_from,
            state: kept.state.bare(),
            keys: kept.keys,
            next: checkpoint.next,
            ..Scan::new(header.clone(), Transcript::default())
        }))
    }

    /// Takes the lines between the last turn end and where a scan goes on, for the chain and the
    /// streamed text of the open step. Returns false if there is damage between.
    async fn chain_up(
        &self,
        id: &SessionId,
        scan: &mut Scan<Transcript>,
    ) -> Result<bool, ReadError> {
        let end = scan.next;
        let mut pos = scan.chain_from;
        // Where the next entry begins.
        let mut at = pos.hint.unwrap_or(0);
        while pos != end && pos.seq <= end.seq {
            let page = self.backend().page(id, pos, PAGE_BYTES).await?;
            for entry in &page.entries {
                match entry {
                    Entry::Header(line) if end.hint.is_none_or(|end| at < end) => {
                        at += line.len() as u64;
                        scan.chain.line(line);
                    }
                    // It is read again from where the scan goes on.
                    Entry::Header(_) => break,
                    Entry::Line(line, place) if line.event.seq < end.seq => {
                        at = place.at + u64::from(place.len);
                        scan.chain.follow(line);
                        if scan.step_from.is_some_and(|from| line.event.seq >= from) {
                            scan.state.stream(&line.event);
                        }
                    }
                    Entry::Line(..) => break,
                    // The chain cannot be continued over it; the whole log is looked at.
                    Entry::Damage(_) => return Ok(false),
                }
            }
            if page.end || page.next.seq >= end.seq {
                break;
            }
            pos = page.next;
        }
        Ok(true)
    }

    /// Starts from what the durable part of a long log tells without being parsed, when there is
    /// no checkpoint. What was acknowledged as durable was whole then; whether it still is,
    /// [`verify`](Self::verify) tells, and opening checks what the model will see of it.
    async fn skimmed(
        &self,
        id: &SessionId,
        limit: u64,
        header: &StoredHeader,
    ) -> Result<Option<Scan<Transcript>>, ReadError> {
        let stat = self.stat(id).await?;
        let Some(durable) = stat.acknowledged else {
            return Ok(None);
        };
        if stat.bytes < self.backend().checkpoint_every() {
            return Ok(None);
        }
        let state = self.transcript().bare();
        let mut skim = Skim::new(Scan::new(header.clone(), state), limit.min(durable + 1));
        let hint = self
            .backend()
            .skim(id, ReadPos::default(), &mut |shown| skim.take(shown))
            .await?
            .hint;
        // Nothing was shown, or it stopped inside a batch, or before something odd: in the last
        // case what follows may be damage, and the state before it is as good as any.
        if skim.inside_batch() || skim.scan.state.next_seq() == 0 {
            return Ok(None);
        }
        let mut scan = skim.scan;
        scan.next = ReadPos {
            seq: scan.state.next_seq(),
            hint,
        };
        if scan.state.open_step().is_none() {
            scan.step_from = None;
        }
        Ok(self.chain_up(id, &mut scan).await?.then_some(scan))
    }

    /// Folds lines up to before event `end`.
    pub(crate) async fn go_on<F: Fold>(
        &self,
        id: &SessionId,
        scan: &mut Scan<F>,
        end: u64,
    ) -> Result<(), ReadError> {
        while scan.next.seq < end {
            let page = self.backend().page(id, scan.next, PAGE_BYTES).await?;
            for entry in &page.entries {
                let seq = match entry {
                    Entry::Line(line, _) => Some(line.event.seq),
                    Entry::Header(_) | Entry::Damage(_) => None,
                };
                if seq.is_some_and(|seq| seq >= end) {
                    return Ok(());
                }
                self.take(id, scan, entry).await?;
                // A header line behind it is another log's.
                if seq.is_some_and(|seq| seq.saturating_add(1) == end) {
                    return Ok(());
                }
            }
            scan.next = page.next;
            if page.end {
                scan.torn = page.torn;
                break;
            }
        }
        Ok(())
    }

    async fn take<F: Fold>(
        &self,
        id: &SessionId,
        scan: &mut Scan<F>,
        entry: &Entry,
    ) -> Result<(), ReadError> {
        let (line, place) = match entry {
            Entry::Header(line) => {
                scan.chain.line(line);
                return Ok(());
            }
            Entry::Damage(damage) => {
                scan.damage.push(damage.clone());
                return Ok(());
            }
            Entry::Line(line, place) => (line, *place),
        };
        scan.read_bytes += line.raw.len() as u64 + 1;
        scan.chain.follow(line);
        if line.chain.is_some() {
            scan.chain_from = ReadPos {
                seq: line.event.seq.saturating_add(1),
                hint: Some(place.at + u64::from(place.len)),
            };
        }
        if let Some(key) = &line.key {
            scan.keys.note(key, line.event.seq);
        }
        if scan.is_stuck() {
            return Ok(());
        }
        let folded = self.fold_one(id, &mut scan.state, &line.event, place);
        match folded.await? {
            Ok(()) => {}
            Err(error @ ApplyError::OutOfOrder { .. }) => scan.damage.push(Damage {
                file: scan.header.header.id.to_string(),
                offset: place.at,
                bytes: line.raw.len() as u64,
                seq: line.event.seq,
                reason: error.to_string(),
            }),
            Err(error) => scan.unsupported = Some(error.to_string()),
        }
        Ok(())
    }

    /// Folds the next event. A head that moves to a point that is not kept in memory any more is
    /// read from the log.
    pub(crate) async fn fold_one<F: Fold>(
        &self,
        id: &SessionId,
        state: &mut F,
        event: &Event,
        place: Place,
    ) -> Result<Result<(), ApplyError>, ReadError> {
        let folded = state.fold(event, place);
        let Err(ApplyError::Past { target, .. }) = folded else {
            return Ok(folded);
        };
        let past = Box::pin(self.surface_at(id, target)).await?;
        state.transcript_mut().supply_past(past);
        Ok(state.fold(event, place))
    }

    /// Reads the content of items that a state lacks. Returns the damage met instead.
    pub(crate) async fn fill(
        &self,
        id: &SessionId,
        state: &mut Transcript,
        missing: &[(u64, Place)],
    ) -> Result<Option<Damage>, ReadError> {
        for some in missing.chunks(LINES_AT_ONCE) {
            let lines = self.backend().lines(id, some).await?;
            for ((seq, _), line) in some.iter().zip(lines) {
                match line {
                    Ok(line) => state.supply(*seq, line),
                    Err(damage) => return Ok(Some(damage)),
                }
            }
        }
        Ok(None)
    }
}
