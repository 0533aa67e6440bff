//! The writer handle of a session: numbering, encoding, durability and the live state.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex as StdMutex, PoisonError},
    task::Poll,
};

use threadline_session::{
    ApplyError, Event, EventError, Facts, Header, Payload, Place, SessionId, Transcript,
    codec::{EncodeError, Encoded, Encoder},
    types,
};
use tokio::{
    sync::{Mutex, watch},
    task::JoinError,
};

use crate::{
    AppendError, ClaimError, Durability, NewLog, ReadPos, Recovered, SessionStore, WriteError,
    Writer, error_chain, kept::Kept, limits::REMEMBERED_KEYS, store::Clock,
};

/// How an append is done.
#[derive(Debug, Clone, Default)]
pub struct AppendOptions {
    /// A repeat of the same key stores nothing and gives the first result again.
    pub key: Option<String>,
    /// Whether the caller waits for stable storage before it goes on.
    pub barrier: bool,
}

impl AppendOptions {
    /// Returns options for an append that must be on stable storage before the caller goes on.
    #[must_use]
    pub fn barrier() -> Self {
        Self {
            key: None,
            barrier: true,
        }
    }
}

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Last event of the batch.
    pub last_seq: u64,
    /// Last event known to be on stable storage.
    pub durable_seq: Option<u64>,
    /// Whether the batch had been stored before under the same key.
    pub repeated: bool,
}

enum State {
    /// Nothing is stored yet; the first append creates the session.
    Pending {
        header: Box<Header>,
    },
    Open(Box<dyn Writer>),
    Dead(AppendError),
}

/// Keys of batches already stored, newest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys(VecDeque<(String, u64)>);

impl Keys {
    pub(crate) fn note(&mut self, key: &str, last_seq: u64) {
        if self.0.len() >= REMEMBERED_KEYS {
            self.0.pop_front();
        }
        self.0.push_back((key.to_owned(), last_seq));
    }

    pub(crate) fn to_vec(&self) -> Vec<(String, u64)> {
        self.0.iter().cloned().collect()
    }

    pub(crate) fn from_vec(keys: Vec<(String, u64)>) -> Self {
        Self(keys.into())
    }

    pub(crate) fn find(&self, key: &str) -> Option<u64> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == key)
            .map(|(_, seq)| *seq)
    }
}

struct Inner {
    id: SessionId,
    store: SessionStore,
    state: State,
    encoder: Encoder,
    transcript: Transcript,
    durable_seq: Option<u64>,
    keys: Keys,
    durability: Durability,
    checkpoints: Checkpoints,
    /// Whether lists were told that the session changes.
    told: bool,
}

/// When the next checkpoint is due.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// Where the lines begin that the chain's next value covers.
    pub(crate) chain_from: ReadPos,
    /// Bytes of log since the last one.
    pub(crate) since: u64,
    /// Size of the last one.
    pub(crate) size: u64,
}

/// A checkpoint costs at most an eighth of the log that it spares reading.
const WORTH: u64 = 8;
/// In the middle of a turn, whose end makes a better one, a checkpoint is put off by this factor.
const MID_TURN: u64 = 4;

/// What a follower in this process watches.
pub(crate) type Tail = watch::Sender<u64>;

/// The one door for appends to a session. Dropping it releases the session for other writers.
pub struct SessionWriter {
    id: SessionId,
    header: Header,
    inner: Arc<Mutex<Inner>>,
    /// Copy of what readers ask for often, so that they never wait for a sync.
    facts: Arc<StdMutex<Facts>>,
    tail: Arc<Tail>,
    clock: Arc<dyn Clock>,
    recovered: Option<Recovered>,
}

impl std::fmt::Debug for SessionWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionWriter")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Parts {
    pub(crate) header: Header,
    pub(crate) encoder: Encoder,
    pub(crate) transcript: Transcript,
    pub(crate) keys: Keys,
    /// Last event known to be on stable storage: what was read may be in memory only.
    pub(crate) durable_seq: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) store: SessionStore,
    pub(crate) checkpoints: Checkpoints,
}

impl SessionWriter {
    pub(crate) fn pending(parts: Parts) -> Self {
        let header = Box::new(parts.header.clone());
        Self::new(State::Pending { header }, parts)
    }

    pub(crate) fn open(writer: Box<dyn Writer>, parts: Parts) -> Self {
        Self::new(State::Open(writer), parts)
    }

    fn new(state: State, parts: Parts) -> Self {
        let next_seq = parts.transcript.next_seq();
        let facts = Arc::new(StdMutex::new(parts.transcript.facts().clone()));
        let id = parts.header.id.clone();
        let inner = Inner {
            id: id.clone(),
            store: parts.store,
            state,
            encoder: parts.encoder,
            transcript: parts.transcript,
            durable_seq: parts.durable_seq,
            keys: parts.keys,
            durability: parts.durability,
            checkpoints: parts.checkpoints,
            told: false,
        };
        Self {
            id,
            header: parts.header,
            inner: Arc::new(Mutex::new(inner)),
            facts,
            tail: Arc::new(watch::channel(next_seq).0),
            clock: parts.clock,
            recovered: parts.recovered,
        }
    }

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the session's header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns what opening had to move aside.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Returns what lists show, as of the last append.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.facts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Runs `f` on the live state.
    pub async fn with_transcript<R>(&self, f: impl FnOnce(&Transcript) -> R) -> R {
        f(&self.inner.lock().await.transcript)
    }

    /// Returns the sequence number the next event will have.
    pub async fn next_seq(&self) -> u64 {
        self.inner.lock().await.transcript.next_seq()
    }

    /// Appends a batch whose first event must have `expected_seq`: all of it, or nothing.
    ///
    /// Every event has reached the operating system on return; with [`AppendOptions::barrier`] it
    /// has reached stable storage, as the store's [`Durability`] promises. The call finishes its
    /// work even when its future is dropped.
    ///
    /// # Errors
    /// [`AppendError`]. After `Conflict`, a malformed batch or a full storage the writer is as it
    /// was; after `Fenced` and `Poisoned` it refuses everything.
    pub async fn append(
        &self,
        expected_seq: u64,
        events: Vec<Event>,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        self.run(move |inner| {
            Ok((
                inner.check_expected(expected_seq, &options)?,
                events,
                options,
            ))
        })
        .await
    }

    /// Numbers and times some payloads and appends them as one batch.
    ///
    /// # Errors
    /// As [`append`](Self::append), except that there can be no conflict.
    pub async fn record(
        &self,
        payloads: Vec<Payload>,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        let time = self.clock.now_ms();
        self.run(move |inner| {
            if let Some(repeat) = inner.repeat(&options) {
                return Ok((Some(repeat), Vec::new(), options));
            }
            let first = inner.transcript.next_seq();
            let events = payloads
                .iter()
                .zip(first..)
                .map(|(payload, seq)| Event::new(seq, time, payload))
                .collect::<Result<Vec<_>, EventError>>()?;
            Ok((None, events, options))
        })
        .await
    }

    async fn run(
        &self,
        prepare: impl FnOnce(
            &Inner,
        )
            -> Result<(Option<Appended>, Vec<Event>, AppendOptions), AppendError>,
    ) -> Result<Appended, AppendError> {
        let mut inner = self.inner.clone().lock_owned().await;
        let (repeat, events, options) = prepare(&inner)?;
        if let Some(mut repeat) = repeat {
            // The first append may have been without the barrier that this one asks for.
            let due = options.barrier && inner.durability != Durability::Os;
            drop(inner);
            if due
                && repeat
                    .durable_seq
                    .is_none_or(|durable| durable < repeat.last_seq)
            {
                repeat.durable_seq = self.flush().await?;
            }
            return Ok(repeat);
        }
        let facts = self.facts.clone();
        let tail = self.tail.clone();
        uninterrupted(async move {
            let appended = inner.store(&events, &options).await?;
            *facts.lock().unwrap_or_else(PoisonError::into_inner) =
                inner.transcript.facts().clone();
            tail.send_replace(inner.transcript.next_seq());
            Ok(appended)
        })
        .await
    }

    /// Keeps a checkpoint now if opening has read so much that the next one should not.
    pub(crate) async fn note_checkpoint(&self) {
        let mut inner = self.inner.clone().lock_owned().await;
        inner.checkpoint(0).await;
    }

    /// Brings everything appended so far to stable storage.
    ///
    /// # Errors
    /// [`AppendError::Poisoned`] or [`AppendError::Fenced`].
    pub async fn flush(&self) -> Result<Option<u64>, AppendError> {
        let mut inner = self.inner.clone().lock_owned().await;
        uninterrupted(async move {
            if let State::Dead(error) = &inner.state {
                return Err(error.clone());
            }
            let last = inner.transcript.next_seq().checked_sub(1);
            if inner.durable_seq != last {
                let outcome = match &mut inner.state {
                    State::Open(writer) => writer.sync().await,
                    State::Pending { .. } => return Ok(None),
                    State::Dead(error) => return Err(error.clone()),
                };
                outcome.map_err(|error| inner.failed(error))?;
                inner.durable_seq = last;
            }
            Ok(inner.durable_seq)
        })
        .await
    }
}

/// Runs work to its end even when the caller's future is dropped: the bytes on disk and the state
/// in memory must not part. Work that is done at its first poll, as a backend's that syncs in
/// place, needs no task of its own.
async fn uninterrupted<T: Send + 'static>(
    work: impl Future<Output = Result<T, AppendError>> + Send + 'static,
) -> Result<T, AppendError> {
    let mut work = Box::pin(work);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return done;
    }
    let unknown = |error: JoinError| AppendError::UnknownOutcome {
        reason: error.to_string(),
    };
    tokio::spawn(work)
        .await
        .unwrap_or_else(|error| Err(unknown(error)))
}

impl Inner {
    fn repeat(&self, options: &AppendOptions) -> Option<Appended> {
        let last_seq = self.keys.find(options.key.as_deref()?)?;
        Some(Appended {
            last_seq,
            durable_seq: self.durable_seq,
            repeated: true,
        })
    }

    fn check_expected(
        &self,
        expected: u64,
        options: &AppendOptions,
    ) -> Result<Option<Appended>, AppendError> {
        if let Some(repeat) = self.repeat(options) {
            return Ok(Some(repeat));
        }
        let actual = self.transcript.next_seq();
        if expected == actual {
            Ok(None)
        } else {
            Err(AppendError::Conflict { expected, actual })
        }
    }

    async fn store(
        &mut self,
        events: &[Event],
        options: &AppendOptions,
    ) -> Result<Appended, AppendError> {
        if let State::Dead(error) = &self.state {
            return Err(error.clone());
        }
        let expected = self.transcript.next_seq();
        // What is accepted must always load again.
        let payloads = self.check(events).await?;
        let mut encoder = self.encoder.clone();
        let header_line = match &self.state {
            State::Pending { header } => {
                let line = header.encode().map_err(|e| AppendError::Poisoned {
                    reason: e.to_string(),
                })?;
                encoder.header(&line);
                Some(line)
            }
            State::Open(_) | State::Dead(_) => None,
        };
        let encoded = encoder.batch(expected, events, options.key.as_deref())?;
        let last_seq = expected + (events.len() as u64).saturating_sub(1);
        let sync = match self.durability {
            Durability::Step => options.barrier,
            Durability::Event => true,
            Durability::Os => false,
        };
        if !std::mem::replace(&mut self.told, true) && matches!(self.state, State::Open(_)) {
            self.store.touched(&self.id).await;
        }
        let header_bytes = header_line.as_ref().map_or(0, Vec::len) as u64;
        let Encoded { bytes, ends } = encoded;
        let (start, synced) = self.write(header_line, bytes, last_seq, sync).await?;
        self.encoder = encoder;
        let places = places(start, &ends);
        self.transcript.apply_checked(events, payloads, &places);
        if synced {
            self.durable_seq = Some(last_seq);
        }
        if let Some(key) = &options.key {
            self.keys.note(key, last_seq);
        }
        if events.iter().any(|event| event.kind == types::HISTORY_HEAD) {
            self.fill().await?;
        }
        self.count(header_bytes, events, &places);
        if events
            .iter()
            .any(|event| event.kind == types::COMPACTION_SUMMARY)
        {
            // The history is small again, and so is what a checkpoint of it costs.
            self.checkpoints.size = 0;
        }
        self.checkpoint(WORTH).await;
        Ok(Appended {
            last_seq,
            durable_seq: self.durable_seq,
            repeated: false,
        })
    }

    async fn check(&mut self, events: &[Event]) -> Result<Vec<Payload>, AppendError> {
        let mut checked = self.transcript.check(events);
        if let Err(ApplyError::Past { target, .. }) = checked {
            let past = self.store.surface_at(&self.id, target).await;
            self.transcript
                .supply_past(past.map_err(|error| AppendError::Past {
                    target,
                    reason: error_chain(&error),
                })?);
            checked = self.transcript.check(events);
        }
        checked.map_err(|error| match error {
            ApplyError::OutOfOrder { expected, found } => {
                AppendError::Invalid(EncodeError::Gap { expected, found })
            }
            error => AppendError::Unloadable(error),
        })
    }

    /// Reads the content of items that a head has brought back.
    async fn fill(&mut self) -> Result<(), AppendError> {
        let missing = self.transcript.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let filled = self.store.fill(&self.id, &mut self.transcript, &missing);
        let reason = match filled.await {
            Ok(None) => return Ok(()),
            Ok(Some(damage)) => damage.to_string(),
            Err(error) => error_chain(&error),
        };
        // The event is stored, and who opens the session next is told of the damage.
        let error = AppendError::Poisoned { reason };
        self.state = State::Dead(error.clone());
        Err(error)
    }

    fn count(&mut self, header_bytes: u64, events: &[Event], places: &[Place]) {
        self.checkpoints.since += header_bytes;
        for (event, place) in events.iter().zip(places) {
            self.checkpoints.since += u64::from(place.len);
            if event.kind == types::TURN_END {
                self.checkpoints.chain_from = ReadPos {
                    seq: event.seq + 1,
                    hint: Some(place.at + u64::from(place.len)),
                };
            }
        }
    }

    /// Keeps a checkpoint if so much was written that reading it would cost `worth` times as much.
    async fn checkpoint(&mut self, worth: u64) {
        let mut due = self
            .store
            .backend()
            .checkpoint_every()
            .max(worth * self.checkpoints.size);
        if self.transcript.open_turn().is_some() {
            due = due.saturating_mul(MID_TURN);
        }
        if self.checkpoints.since < due {
            return;
        }
        let State::Open(writer) = &mut self.state else {
            return;
        };
        let state = Kept::encode(
            self.encoder.chain().last(),
            self.checkpoints.chain_from,
            &self.keys,
            &self.transcript,
        );
        if let Err(error) = writer.put_checkpoint(&state).await {
            // Opening will read more of the log, and say the same.
            tracing::warn!(id = %self.id, %error, "a checkpoint could not be kept");
        }
        self.checkpoints.since = 0;
        self.checkpoints.size = state.len() as u64;
    }

    /// Hands the bytes down. Returns where they begin, and whether they are on stable storage.
    async fn write(
        &mut self,
        header_line: Option<Vec<u8>>,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<(u64, bool), AppendError> {
        let error = match (&mut self.state, header_line) {
            (State::Pending { .. }, Some(header_line)) => {
                let start = header_line.len() as u64;
                let new = NewLog {
                    header_line,
                    batch,
                    last_seq: Some(last_seq),
                    parent: None,
                };
                match self.store.backend().create(&self.id, new).await {
                    Ok(writer) => {
                        self.state = State::Open(writer);
                        return Ok((start, true));
                    }
                    Err(error) => return Err(self.not_created(error)),
                }
            }
            (State::Open(writer), _) => match writer.append(batch, last_seq, sync).await {
                Ok(start) => return Ok((start, sync)),
                Err(error) => error,
            },
            (State::Pending { .. }, None) => WriteError::Poisoned {
                reason: "the session has no header".into(),
            },
            (State::Dead(error), _) => return Err(error.clone()),
        };
        Err(self.failed(error))
    }

    fn not_created(&self, error: ClaimError) -> AppendError {
        match error {
            ClaimError::AlreadyExists => AppendError::AlreadyExists {
                id: self.id.clone(),
            },
            ClaimError::Locked { holder } => AppendError::Locked { holder },
            ClaimError::StorageFull { what } => AppendError::StorageFull { what },
            ClaimError::NotFound => AppendError::Poisoned {
                reason: "the store vanished while creating".into(),
            },
            ClaimError::Backend(error) => AppendError::Poisoned {
                reason: error_chain(&error),
            },
        }
    }

    fn failed(&mut self, error: WriteError) -> AppendError {
        let error = match error {
            WriteError::StorageFull { what } => return AppendError::StorageFull { what },
            WriteError::Fenced { by } => AppendError::Fenced { by },
            WriteError::Poisoned { reason } => AppendError::Poisoned { reason },
            WriteError::UnknownOutcome { reason } => AppendError::UnknownOutcome { reason },
        };
        // Dropping the backend's writer releases the claim, so that a new one can recover.
        self.state = State::Dead(error.clone());
        error
    }
}

fn places(start: u64, ends: &[usize]) -> Vec<Place> {
    let mut from = 0;
    ends.iter()
        .map(|end| {
            let place = Place {
                at: start + from as u64,
                len: u32::try_from(end - from).unwrap_or(u32::MAX),
            };
            from = *end;
            place
        })
        .collect()
}
