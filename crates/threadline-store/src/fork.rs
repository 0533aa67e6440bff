//! Branching and going back: forks, rewinds, redos.

use threadline_session::{
    Event, Header, Parent, Payload, SessionId,
    chain::Chain,
    closers,
    codec::Encoder,
    payload::{HeadReason, HistoryHead},
    types,
};

use crate::{
    AppendError, AppendOptions, BackendError, ClaimError, Entry, Holder, NewLog, OpenError,
    ReadError, ReadPos, SessionStore, SessionWriter,
};

/// A fork that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// The new session.
    pub id: SessionId,
    /// The session that it was forked from.
    pub parent: SessionId,
    /// Last event that both have.
    pub at_seq: u64,
    /// Events that close the turn in whose middle it was forked.
    pub closed: usize,
}

/// Says why there is no fork. Nothing of it remains, and the parent is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The session has no event to fork at.
    #[error("session {id} has no event yet, so there is nothing to fork")]
    Empty {
        /// The session.
        id: SessionId,
    },
    /// The session has no such event.
    #[error("session {id} has no event {seq}: fork at one of 0 to {last}")]
    NoEvent {
        /// The session.
        id: SessionId,
        /// The event that was asked for.
        seq: u64,
        /// Its last event.
        last: u64,
    },
    /// The new id is taken.
    #[error("session {id} exists already")]
    AlreadyExists {
        /// The id.
        id: SessionId,
    },
    /// Somebody is making a session with the new id.
    #[error("session {id} is being written by {holder}")]
    Locked {
        /// The id.
        id: SessionId,
        /// Who.
        holder: Holder,
    },
    /// There is no space.
    #[error("the storage is full: {what}")]
    StorageFull {
        /// What could not be written.
        what: String,
    },
    /// The parent cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The fork cannot be written down, which no input is known to cause.
    #[error("the fork cannot be encoded: {reason}")]
    Encode {
        /// What is wrong.
        reason: String,
    },
}

impl From<BackendError> for ForkError {
    fn from(error: BackendError) -> Self {
        Self::Read(error.into())
    }
}

/// Where the history of a session was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The history is what it was right after this event.
    pub to_seq: u64,
    /// The event that says so.
    pub seq: u64,
}

/// Says why the history was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The session has no such event.
    #[error("the session has no event {to}: its events are 0 to {last}")]
    NoEvent {
        /// Where it was to be moved.
        to: u64,
        /// Its last event.
        last: u64,
    },
    /// A turn is open.
    #[error("a turn is running; stop it before the history is moved")]
    TurnOpen,
    /// There is no rewind to undo, or something was built upon it.
    #[error("there is nothing to redo: the last change of the history is not a rewind")]
    NothingToRedo,
    /// The session cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The event could not be stored.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// The state of the parent where the fork leaves it.
struct Junction {
    chain: Chain,
    closing: Vec<Event>,
}

impl SessionStore {
    /// Makes a session that has the events of another one up to `at` (all of them by default) and
    /// goes its own way from there. It shares their storage; the parent is not touched and may be
    /// written meanwhile. A turn that the fork cuts in two is closed in it.
    ///
    /// # Errors
    /// [`ForkError`].
    pub async fn fork(
        &self,
        parent: &SessionId,
        at: Option<u64>,
        child: SessionId,
    ) -> Result<Forked, ForkError> {
        let stored = self.header(parent).await?;
        let at_seq = match at {
            Some(seq) => seq,
            None => self.last_seq(parent).await?,
        };
        let Some(base) = self.backend().cut(parent, at_seq).await? else {
            let last = self.last_seq(parent).await?;
            return Err(ForkError::NoEvent {
                id: parent.clone(),
                seq: at_seq,
                last,
            });
        };
        let junction = self.junction(parent, at_seq).await?;
        let encode = |reason: String| ForkError::Encode { reason };
        let mut header = Header::new(child.clone(), self.clock().now_ms(), stored.header.cwd);
        header.parent = Some(Parent {
            id: parent.clone(),
            seq: at_seq,
        });
        header.base = Some(base);
        let header_line = header.encode().map_err(|e| encode(e.to_string()))?;
        let mut encoder = Encoder::new(junction.chain);
        encoder.header(&header_line);
        let closed = junction.closing.len();
        let batch = match closed {
            0 => Vec::new(),
            _ => {
                let encoded = encoder.batch(at_seq + 1, &junction.closing, None);
                encoded.map_err(|e| encode(e.to_string()))?.bytes
            }
        };
        let new = NewLog {
            header_line,
            batch,
            last_seq: Some(at_seq + closed as u64),
            parent: Some(parent.clone()),
        };
        match self.backend().create(&child, new).await {
            Ok(_) => Ok(Forked {
                id: child,
                parent: parent.clone(),
                at_seq,
                closed,
            }),
            Err(ClaimError::AlreadyExists) => Err(ForkError::AlreadyExists { id: child }),
            Err(ClaimError::Locked { holder }) => Err(ForkError::Locked { id: child, holder }),
            Err(ClaimError::StorageFull { what }) => Err(ForkError::StorageFull { what }),
            Err(ClaimError::NotFound) => Err(self.not_found(parent).into()),
            Err(ClaimError::Backend(error)) => Err(error.into()),
        }
    }

    async fn last_seq(&self, id: &SessionId) -> Result<u64, ForkError> {
        let scan = self.restore(id, None, false).await?;
        let last = scan.state.next_seq().checked_sub(1);
        last.ok_or_else(|| ForkError::Empty { id: id.clone() })
    }

    async fn junction(&self, id: &SessionId, seq: u64) -> Result<Junction, ForkError> {
        // The end of a turn tells the chain's value and leaves nothing open, so that what a fork
        // costs does not depend on the size of the history.
        let page = self.backend().page(id, ReadPos::at(seq), 1).await?;
        let first = page.entries.iter().find_map(|entry| match entry {
            Entry::Line(line, _) => Some(line),
            Entry::Header(_) | Entry::Damage(_) => None,
        });
        if let Some(line) = first.filter(|line| line.event.seq == seq)
            && line.event.kind == types::TURN_END
            && let Some(value) = line.chain
        {
            return Ok(Junction {
                chain: Chain::after(value),
                closing: Vec::new(),
            });
        }
        let mut scan = self.restore(id, Some(seq), false).await?;
        let calls = scan.state.missing_calls();
        scan.damage
            .extend(self.fill(id, &mut scan.state, &calls).await?);
        if let Some(damage) = scan.damage.into_iter().next() {
            let id = id.clone();
            return Err(ReadError::Corrupt { id, damage }.into());
        }
        if let Some(reason) = scan.unsupported {
            let id = id.clone();
            return Err(ReadError::Unsupported { id, reason }.into());
        }
        let reached = scan.state.next_seq();
        if reached != seq.saturating_add(1) {
            return Err(ForkError::NoEvent {
                id: id.clone(),
                seq,
                last: reached.saturating_sub(1),
            });
        }
        let closing = closers(&scan.state).map_err(|error| ForkError::Encode {
            reason: error.to_string(),
        })?;
        Ok(Junction {
            chain: scan.chain,
            closing,
        })
    }

    /// Moves the history of a session back to right after an event. Nothing is removed from the
    /// log, and [`redo`](Self::redo) takes it back. What tools have done is not undone.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn rewind(&self, id: &SessionId, to: u64) -> Result<Moved, MoveError> {
        self.load(id).await?.writer.rewind(to).await
    }

    /// Takes the last rewind of a session back.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn redo(&self, id: &SessionId) -> Result<Moved, MoveError> {
        self.load(id).await?.writer.redo().await
    }
}

impl SessionWriter {
    /// Moves the history back to right after an event, durably.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn rewind(&self, to: u64) -> Result<Moved, MoveError> {
        let last = self.next_seq().await.saturating_sub(1);
        if to > last {
            return Err(MoveError::NoEvent { to, last });
        }
        self.move_head(to, HeadReason::Rewind).await
    }

    /// Takes the last rewind back, durably.
    ///
    /// # Errors
    /// [`MoveError`].
    pub async fn redo(&self) -> Result<Moved, MoveError> {
        let target = self.with_transcript(|t| t.redo_target()).await;
        let to = target.ok_or(MoveError::NothingToRedo)?;
        self.move_head(to, HeadReason::Redo).await
    }

    async fn move_head(&self, to: u64, reason: HeadReason) -> Result<Moved, MoveError> {
        if self.with_transcript(|t| t.open_turn().is_some()).await {
            return Err(MoveError::TurnOpen);
        }
        let head = Payload::HistoryHead(HistoryHead { seq: to, reason });
        let moved = self.record(vec![head], AppendOptions::barrier()).await?;
        // Calls that the move has opened again are answered as after a crash.
        let closing = self.with_transcript(closers).await;
        let closing = closing.map_err(AppendError::Event)?;
        if !closing.is_empty() {
            let expected = self.next_seq().await;
            self.append(expected, closing, AppendOptions::barrier())
                .await?;
        }
        Ok(Moved {
            to_seq: to,
            seq: moved.last_seq,
        })
    }
}
