//! Copying sessions from one store to another, byte for byte.

use std::collections::HashSet;

use threadline_session::{SessionId, chain::Chain, codec::Line};

use crate::{
    BackendError, BlobError, BlobId, ClaimError, Damage, Entry, LogEnd, Page, ReadError, ReadPos,
    SessionStore, WriteError, blob::names_in, limits::PAGE_BYTES,
};

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The session was not there.
    New {
        /// Events copied.
        events: u64,
    },
    /// A part of it was there, and the rest was added.
    CaughtUp {
        /// Events added.
        events: u64,
    },
    /// It was there already.
    Same,
}

/// Says why a session was not copied. Nothing of it is visible in the other store.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The session cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A turn's chain value does not match its lines, so that they are not to be trusted.
    #[error("session {id}: the chain is broken at event {seq}; verify it where it is")]
    Chain {
        /// The session.
        id: SessionId,
        /// The turn end.
        seq: u64,
    },
    /// The other store holds another session of that name.
    #[error("session {id} is in the other store too, and differs from event {seq} on")]
    Differs {
        /// The session.
        id: SessionId,
        /// First event that differs.
        seq: u64,
    },
    /// The other store cannot take the session now.
    #[error("session {id} cannot be stored: {reason}")]
    Refused {
        /// The session.
        id: SessionId,
        /// What is wrong.
        reason: String,
    },
    /// A blob that the session names could not be copied.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// One of the storages failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

struct Copy<'a> {
    from: &'a SessionStore,
    to: &'a SessionStore,
    id: &'a SessionId,
    chain: Chain,
    blobs: HashSet<BlobId>,
}

impl SessionStore {
    /// Copies a session, with what people set and the blobs it names, into another store. Lines
    /// are kept byte for byte, and the chain over them is checked on the way. What is there already
    /// stays, and a session that has grown since is caught up with.
    ///
    /// # Errors
    /// [`CopyError`].
    pub async fn copy_to(&self, to: &Self, id: &SessionId) -> Result<Copied, CopyError> {
        self.header(id).await?;
        let mut copy = Copy {
            from: self,
            to,
            id,
            chain: Chain::new(),
            blobs: HashSet::new(),
        };
        let copied = if to.has(id).await? {
            copy.catch_up().await?
        } else {
            copy.whole().await?
        };
        let (theirs, ours) = (
            self.backend().summary(id).await?,
            to.backend().summary(id).await?,
        );
        let titled = theirs.made_title.is_some() && ours.made_title.is_none();
        if theirs.revision > ours.revision || (titled && theirs.revision == ours.revision) {
            // A change in the other store meanwhile wins; the next copy sees it.
            let _ = to.backend().put_summary(id, ours.revision, &theirs).await?;
        }
        Ok(copied)
    }
}

impl Copy<'_> {
    fn damaged(&self, damage: &Damage) -> CopyError {
        CopyError::Read(ReadError::Corrupt {
            id: self.id.clone(),
            damage: damage.clone(),
        })
    }

    fn refused(&self, reason: impl ToString) -> CopyError {
        CopyError::Refused {
            id: self.id.clone(),
            reason: reason.to_string(),
        }
    }

    async fn page(&self, from: ReadPos) -> Result<Page, CopyError> {
        Ok(self.from.backend().page(self.id, from, PAGE_BYTES).await?)
    }

    /// Takes a line for the chain and the names of blobs.
    fn look(&mut self, line: &Line) -> Result<(), CopyError> {
        names_in(&line.raw, &mut self.blobs);
        if self.chain.check(line) {
            return Ok(());
        }
        Err(CopyError::Chain {
            id: self.id.clone(),
            seq: line.event.seq,
        })
    }

    /// Copies the blobs that lines named, before the lines are stored. Hashes of other things are
    /// among the names; what is not there is none.
    async fn copy_blobs(&mut self) -> Result<(), CopyError> {
        for id in std::mem::take(&mut self.blobs) {
            match self.from.get_blob(&id).await {
                Ok(bytes) => self.to.backend().put_blob(&id, &bytes).await?,
                Err(BlobError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn whole(&mut self) -> Result<Copied, CopyError> {
        let import = self.to.backend().import(self.id).await;
        let mut import = import.map_err(|error| self.not_taken(error))?;
        let (mut pos, mut events) = (ReadPos::default(), 0);
        loop {
            let page = self.page(pos).await?;
            let mut lines = Vec::new();
            let mut last = 0;
            for entry in &page.entries {
                match entry {
                    Entry::Damage(damage) => return Err(self.damaged(damage)),
                    Entry::Header(header) => {
                        if !lines.is_empty() {
                            self.copy_blobs().await?;
                            import.lines(&std::mem::take(&mut lines), last).await?;
                        }
                        self.chain.line(header);
                        import.header(header).await?;
                    }
                    Entry::Line(line, _) => {
                        self.look(line)?;
                        lines.extend_from_slice(&line.raw);
                        lines.push(b'\n');
                        last = line.event.seq;
                        events += 1;
                    }
                }
            }
            if !lines.is_empty() {
                self.copy_blobs().await?;
                import.lines(&lines, last).await?;
            }
            if page.end {
                break;
            }
            pos = page.next;
        }
        let finished = import.finish().await;
        finished.map_err(|error| self.not_taken(error))?;
        Ok(Copied::New { events })
    }

    fn not_taken(&self, error: ClaimError) -> CopyError {
        match error {
            ClaimError::Backend(error) => error.into(),
            error => self.refused(error),
        }
    }

    /// Compares what both have, then appends what the other store lacks.
    async fn catch_up(&mut self) -> Result<Copied, CopyError> {
        let there = self.to.restore(self.id, None, false).await?;
        if let Some(damage) = there.damage.first() {
            return Err(self.refused(damage));
        }
        let have = there.state.next_seq();
        let mut theirs = Records::new(self.to, self.id);
        let mut pos = ReadPos::default();
        let mut rest: Option<(Box<dyn crate::Writer>, u64)> = None;
        loop {
            let page = self.page(pos).await?;
            let mut batch = Vec::new();
            let mut last = 0;
            for entry in &page.entries {
                let (bytes, seq) = match entry {
                    Entry::Damage(damage) => return Err(self.damaged(damage)),
                    Entry::Header(header) => {
                        self.chain.line(header);
                        (header.as_slice(), None)
                    }
                    Entry::Line(line, _) => {
                        self.look(line)?;
                        (line.raw.as_slice(), Some(line.event.seq))
                    }
                };
                match seq {
                    Some(seq) if seq >= have => {
                        batch.extend_from_slice(bytes);
                        batch.push(b'\n');
                        last = seq;
                    }
                    _ if theirs.next().await?.as_deref() == Some(bytes) => {}
                    _ => {
                        return Err(CopyError::Differs {
                            id: self.id.clone(),
                            seq: seq.unwrap_or(have),
                        });
                    }
                }
            }
            if !batch.is_empty() {
                self.copy_blobs().await?;
                let (writer, added) = match &mut rest {
                    Some(rest) => rest,
                    None => rest.insert((self.writer(&there.next, &there.torn).await?, 0)),
                };
                let appended = writer.append(batch, last, true).await;
                appended.map_err(|error| self.not_written(error))?;
                *added = last + 1 - have;
            }
            if page.end {
                break;
            }
            pos = page.next;
        }
        if let Some(seq) = theirs.seq().await? {
            // The other store has gone on from here: nothing to add, and nothing lost.
            return if rest.is_none() {
                Ok(Copied::Same)
            } else {
                Err(CopyError::Differs {
                    id: self.id.clone(),
                    seq,
                })
            };
        }
        Ok(rest.map_or(Copied::Same, |(_, events)| Copied::CaughtUp { events }))
    }

    fn not_written(&self, error: WriteError) -> CopyError {
        self.refused(error)
    }

    async fn writer(
        &self,
        next: &ReadPos,
        torn: &Option<crate::Torn>,
    ) -> Result<Box<dyn crate::Writer>, CopyError> {
        let claimed = self.to.backend().claim(self.id).await;
        let mut writer = claimed.map_err(|error| self.not_taken(error))?;
        let end = LogEnd {
            next: *next,
            torn: torn.clone(),
        };
        let begun = writer.begin(end).await;
        begun.map_err(|error| self.not_written(error))?;
        Ok(writer)
    }
}

/// The records of a log one after the other.
struct Records<'a> {
    store: &'a SessionStore,
    id: &'a SessionId,
    entries: std::vec::IntoIter<Entry>,
    next: Option<ReadPos>,
}

impl<'a> Records<'a> {
    fn new(store: &'a SessionStore, id: &'a SessionId) -> Self {
        Self {
            store,
            id,
            entries: Vec::new().into_iter(),
            next: Some(ReadPos::default()),
        }
    }

    async fn entry(&mut self) -> Result<Option<Entry>, CopyError> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(pos) = self.next else {
                return Ok(None);
            };
            let page = self.store.backend().page(self.id, pos, PAGE_BYTES).await?;
            self.entries = page.entries.into_iter();
            self.next = (!page.end).then_some(page.next);
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, CopyError> {
        Ok(self.entry().await?.map(|entry| match entry {
            Entry::Header(line) => line,
            Entry::Line(line, _) => line.raw,
            Entry::Damage(_) => Vec::new(),
        }))
    }

    /// Returns the number of the next event.
    async fn seq(&mut self) -> Result<Option<u64>, CopyError> {
        Ok(self.entry().await?.map(|entry| match entry {
            Entry::Line(line, _) => line.event.seq,
            Entry::Damage(damage) => damage.seq,
            Entry::Header(_) => 0,
        }))
    }
}
