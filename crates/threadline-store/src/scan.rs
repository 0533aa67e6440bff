//! Folding a whole log, page by page, in bounded memory but for what the fold keeps.

use threadline_session::{ApplyError, Event, SessionId, Transcript, View, chain::Chain};

use crate::{
    Damage, Entry, ReadError, ReadPos, SessionStore, StoredHeader, Torn, limits::PAGE_BYTES,
    writer::Keys,
};

/// State that events are folded into: the bare state for going on, the read model for showing.
pub(crate) trait Fold {
    fn fold(&mut self, event: &Event) -> Result<(), ApplyError>;
}

impl Fold for Transcript {
    fn fold(&mut self, event: &Event) -> Result<(), ApplyError> {
        self.apply(event).map(drop)
    }
}

impl Fold for View {
    fn fold(&mut self, event: &Event) -> Result<(), ApplyError> {
        self.apply(event).map(drop)
    }
}

/// What a whole log holds.
pub(crate) struct Scan<F> {
    pub(crate) header: StoredHeader,
    pub(crate) chain: Chain,
    /// The fold of everything before the first damage or unsupported event.
    pub(crate) state: F,
    pub(crate) keys: Keys,
    pub(crate) next: ReadPos,
    pub(crate) torn: Option<Torn>,
    pub(crate) damage: Vec<Damage>,
    pub(crate) unsupported: Option<String>,
}

impl SessionStore {
    /// Folds the whole log into a state that has seen no event yet.
    pub(crate) async fn scan<F: Fold>(
        &self,
        id: &SessionId,
        state: F,
    ) -> Result<Scan<F>, ReadError> {
        let header = self.header(id).await?;
        let mut chain = Chain::new();
        chain.line(&header.line);
        let mut scan = Scan {
            header,
            chain,
            state,
            keys: Keys::default(),
            next: ReadPos::default(),
            torn: None,
            damage: Vec::new(),
            unsupported: None,
        };
        loop {
            let page = self.backend().page(id, scan.next, PAGE_BYTES).await?;
            for entry in &page.entries {
                scan.take(entry);
            }
            scan.next = page.next;
            if page.end {
                scan.torn = page.torn;
                return Ok(scan);
            }
        }
    }
}

impl<F: Fold> Scan<F> {
    fn take(&mut self, entry: &Entry) {
        let line = match entry {
            Entry::Damage(damage) => {
                self.damage.push(damage.clone());
                return;
            }
            Entry::Line(line) => line,
        };
        self.chain.follow(line);
        if let Some(key) = &line.key {
            self.keys.note(key, line.event.seq);
        }
        if !self.damage.is_empty() || self.unsupported.is_some() {
            return;
        }
        match self.state.fold(&line.event) {
            Ok(()) => {}
            Err(error @ (ApplyError::UnknownType { .. } | ApplyError::Payload(_))) => {
                self.unsupported = Some(error.to_string());
            }
            Err(error @ ApplyError::OutOfOrder { .. }) => self.damage.push(Damage {
                file: self.header.header.id.to_string(),
                offset: 0,
                bytes: line.raw.len() as u64,
                seq: line.event.seq,
                reason: error.to_string(),
            }),
        }
    }
}
