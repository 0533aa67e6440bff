//! Following a session: a snapshot, then everything after it, exactly once.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use threadline_session::{SessionId, codec::Line};

use crate::{
    Entry, ReadError, ReadPos, SessionStore, Stamp,
    limits::{PAGE_BYTES, POLL_INTERVAL},
};

/// What a follower gets next.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// The next line.
    Line(Box<Line>),
    /// Everything stored so far has been given; what comes next is live.
    CaughtUp {
        /// Last event given; `None` when the log is empty.
        seq: Option<u64>,
    },
}

/// Gives every line after a point once, in order. The storage is the truth. When to look again is
/// said by the writer, if it is in this process, and otherwise by [`Backend::changed`], which
/// knows or just waits a while.
///
/// [`Backend::changed`]: crate::Backend::changed
#[derive(Debug)]
pub struct Follow {
    store: SessionStore,
    id: SessionId,
    pos: ReadPos,
    ready: VecDeque<Line>,
    seen: Option<Stamp>,
    caught_up: bool,
}

impl Follow {
    pub(crate) fn new(store: SessionStore, id: SessionId, from: u64) -> Self {
        let pos = ReadPos::at(from);
        Self {
            store,
            id,
            pos,
            ready: VecDeque::new(),
            seen: None,
            caught_up: false,
        }
    }

    /// Waits for the next line, or for the moment when all stored ones have been given.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ReadError`]; the session may have been deleted or damaged meanwhile.
    pub async fn next(&mut self) -> Result<Followed, ReadError> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Followed::Line(Box::new(line)));
            }
            // Subscribed before looking: an append in between is not missed.
            // The sender itself is not held, so that it goes when its writer does.
            let mut watch = self.store.tail_of(&self.id).map(|tail| tail.subscribe());
            // Another process's writer is waited for in the same way: the wait begins here, so that
            // whatever comes after the look below ends it.
            let (backend, id) = (self.store.backend().clone(), self.id.clone());
            let mut elsewhere = None;
            if self.caught_up && watch.is_none() {
                let mut changed = backend.changed(&id);
                let begun = poll_fn(|cx| Poll::Ready(changed.as_mut().poll(cx))).await;
                elsewhere = begun.is_pending().then_some(changed);
            }
            // A stamp is taken before reading for the same reason.
            let stat = self.store.stat(&self.id).await;
            let stamp = match stat {
                Ok(stat) => Some(stat.stamp),
                // A session that this process has created and not yet stored.
                Err(ReadError::NotFound { .. }) if watch.is_some() => None,
                Err(error) => return Err(error),
            };
            if let Some(stamp) = stamp.filter(|stamp| self.seen != Some(*stamp)) {
                if self.fill().await? {
                    self.seen = Some(stamp);
                }
                if !self.ready.is_empty() {
                    continue;
                }
            }
            if !self.caught_up {
                self.caught_up = true;
                return Ok(Followed::CaughtUp {
                    seq: self.pos.seq.checked_sub(1),
                });
            }
            match &mut watch {
                Some(watch) if *watch.borrow() <= self.pos.seq => {
                    // Also looks now and then: the writer may be replaced by another process.
                    let _ = tokio::time::timeout(POLL_INTERVAL * 5, watch.changed()).await;
                }
                Some(_) => self.seen = None,
                None => {
                    if let Some(changed) = elsewhere {
                        changed.await;
                    }
                }
            }
        }
    }

    /// Reads one page. Returns whether it reached the end of the log.
    async fn fill(&mut self) -> Result<bool, ReadError> {
        let page = self
            .store
            .backend()
            .page(&self.id, self.pos, PAGE_BYTES)
            .await?;
        for entry in page.entries {
            match entry {
                Entry::Header(_) => {}
                Entry::Line(line, _) => {
                    if line.event.seq >= self.pos.seq {
                        self.ready.push_back(line);
                    }
                }
                Entry::Damage(damage) if self.ready.is_empty() => {
                    return Err(ReadError::Corrupt {
                        id: self.id.clone(),
                        damage,
                    });
                }
                Entry::Damage(_) => {
                    // What is good before the damage is given first; the next look meets it.
                    let after = self
                        .ready
                        .back()
                        .map_or(self.pos.seq, |line| line.event.seq + 1);
                    self.pos = ReadPos::at(after);
                    return Ok(false);
                }
            }
        }
        self.pos = page.next;
        Ok(page.end)
    }
}
