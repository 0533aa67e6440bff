//! The coordinator.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use threadline_session::{
    ApplyError, Event, Header, Place, SessionId, Transcript, Turn, View, chain::Chain, closers,
    codec::Encoder,
};

use crate::{
    AppendError, AppendOptions, Backend, ClaimError, CreateError, Damage, DeleteError, Durability,
    Entry, Follow, LogEnd, MadeTitle, OpenError, Page, ReadError, ReadPos, SessionSummary,
    SessionWriter, Stat, StoredHeader, SummaryPatch, Torn, UpdateError, UserSummary, WriteError,
    Writer,
    error::header_error,
    limits::{MADE_TITLE_TRIES, MAX_TAGS, MAX_TITLE_CHARS, PAGE_BYTES},
    list::Lists,
    scan::{Fold, Scan},
    writer::{Checkpoints, Keys, Parts, Tail},
};

/// Where the store takes the time from.
pub trait Clock: Send + Sync + 'static {
    /// Returns unix milliseconds.
    fn now_ms(&self) -> u64;
}

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// How a store behaves.
#[derive(Clone)]
pub struct StoreOptions {
    /// What an acknowledged append promises.
    pub durability: Durability,
    /// Source of event times.
    pub clock: Arc<dyn Clock>,
    /// Event types of plug-ins (`vendor/name`) that may not be passed over by readers without
    /// them. Types that may are marked `ignorable` on each event and need no registration.
    pub registered: BTreeSet<String>,
    /// Largest encoded event line, in bytes.
    pub max_event_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Step,
            clock: Arc::new(SystemClock),
            registered: BTreeSet::new(),
            max_event_bytes: threadline_session::limits::MAX_EVENT_BYTES,
        }
    }
}

/// A session opened for going on: its writer, whose log is balanced.
#[derive(Debug)]
pub struct Loaded {
    /// The one door for appends.
    pub writer: SessionWriter,
    /// Events that recovery appended to close an interrupted turn.
    pub closed: usize,
}

/// A session as it can be seen without writing anything.
#[derive(Debug)]
pub struct Inspected {
    /// The header.
    pub header: Header,
    /// The read model. Of an interrupted turn that nobody is writing it shows the closers that the
    /// next opening will append.
    pub view: View,
    /// Closers that are shown and not stored.
    pub unstored: usize,
    /// Storage facts.
    pub stat: Stat,
    /// Damage in the log; the view ends before the first.
    pub damage: Vec<Damage>,
    /// Torn bytes at the end.
    pub torn: Option<Torn>,
    /// Why the log cannot be continued by this version.
    pub unsupported: Option<String>,
}

/// A page of raw lines.
#[derive(Debug)]
pub struct RawPage {
    /// What was found, in order.
    pub entries: Vec<Entry>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<ReadPos>,
}

struct Inside {
    backend: Arc<dyn Backend>,
    options: StoreOptions,
    registered: Arc<BTreeSet<String>>,
    tails: Mutex<HashMap<SessionId, Weak<Tail>>>,
    lists: Arc<Lists>,
}

/// Keeps sessions: all semantics, once, over any [`Backend`]. Cheap to clone.
#[derive(Clone)]
pub struct SessionStore {
    inside: Arc<Inside>,
}

/// A store that others keep, as long as they do.
pub(crate) struct WeakStore(Weak<Inside>);

impl WeakStore {
    pub(crate) fn upgrade(&self) -> Option<SessionStore> {
        self.0.upgrade().map(|inside| SessionStore { inside })
    }
}

impl std::fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionStore")
            .field(&self.address())
            .finish()
    }
}

impl SessionStore {
    /// Makes a store over a backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, options: StoreOptions) -> Self {
        let registered = Arc::new(options.registered.clone());
        let lists = Arc::new(Lists::new(&backend));
        Self {
            inside: Arc::new(Inside {
                backend,
                options,
                registered,
                tails: Mutex::new(HashMap::new()),
                lists,
            }),
        }
    }

    /// Returns the store's address, as `jsonl:/path`.
    #[must_use]
    pub fn address(&self) -> String {
        self.inside.backend.address()
    }

    /// Returns the paths that tools must not touch.
    #[must_use]
    pub fn private_paths(&self) -> Vec<std::path::PathBuf> {
        self.inside.backend.private_paths()
    }

    /// Returns what an acknowledged append promises.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.inside.options.durability
    }

    /// Returns the store's clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inside.options.clock
    }

    pub(crate) fn lists(&self) -> &Arc<Lists> {
        &self.inside.lists
    }

    /// Returns a way to the store that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.inside))
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.inside.backend
    }

    pub(crate) fn registered(&self) -> &Arc<BTreeSet<String>> {
        &self.inside.registered
    }

    /// Makes a writer for a new session. Nothing is stored before its first append.
    ///
    /// # Errors
    /// [`CreateError::AlreadyExists`] when the id is taken.
    pub async fn create(&self, header: Header) -> Result<SessionWriter, CreateError> {
        if self.inside.backend.stat(&header.id).await?.is_some() {
            return Err(CreateError::AlreadyExists { id: header.id });
        }
        self.begin(header)
    }

    /// Makes a writer for a new session whose id is known to be new, without asking the storage.
    /// If it is taken after all, the first append says so.
    ///
    /// # Errors
    /// [`CreateError::Header`].
    pub fn begin(&self, header: Header) -> Result<SessionWriter, CreateError> {
        header.encode()?;
        let transcript = self.transcript();
        let parts = self.parts(
            header,
            Encoder::new(Chain::new()),
            transcript,
            Keys::default(),
        );
        let writer = SessionWriter::pending(parts);
        self.note_tail(&writer);
        Ok(writer)
    }

    /// Opens a session for going on: claims it, moves a torn tail aside and appends closers for an
    /// interrupted turn. The log is balanced on return.
    ///
    /// # Errors
    /// [`OpenError`]: not found, locked, damaged, unsupported, full.
    pub async fn load(&self, id: &SessionId) -> Result<Loaded, OpenError> {
        match self.inside.backend.claim(id).await {
            Ok(claim) => self.go_on_with(id, claim).await,
            Err(error) => Err(self.not_claimed(id, error)),
        }
    }

    /// Opens a session as [`load`](Self::load) does, also when another writer has it: that one is
    /// fenced, and what it appends from here on is neither stored nor acknowledged.
    ///
    /// # Errors
    /// [`OpenError`]; it is locked only while another take-over is under way.
    pub async fn take_over(&self, id: &SessionId) -> Result<Loaded, OpenError> {
        match self.inside.backend.take_over(id).await {
            Ok(claim) => self.go_on_with(id, claim).await,
            Err(error) => Err(self.not_claimed(id, error)),
        }
    }

    pub(crate) async fn go_on_with(
        &self,
        id: &SessionId,
        mut claim: Box<dyn Writer>,
    ) -> Result<Loaded, OpenError> {
        let scan = self.restore(id, None, true).await?;
        if let Some(damage) = scan.damage.into_iter().next() {
            let id = id.clone();
            return Err(ReadError::Corrupt { id, damage }.into());
        }
        if let Some(reason) = scan.unsupported {
            let id = id.clone();
            return Err(ReadError::Unsupported { id, reason }.into());
        }
        let end = LogEnd {
            next: scan.next,
            torn: scan.torn,
        };
        let begun = claim
            .begin(end)
            .await
            .map_err(|error| not_begun(id, error))?;
        let mut encoder = Encoder::new(scan.chain);
        if let Some(line) = &begun.header_line {
            encoder.header(line);
        }
        let events = closers(&scan.state).map_err(|e| OpenError::Recovery {
            id: id.clone(),
            source: AppendError::Event(e),
        })?;
        let closed = events.len();
        let last_seq = scan.state.next_seq().checked_sub(1);
        let mut parts = self.parts(scan.header.header, encoder, scan.state, scan.keys);
        parts.durable_seq = self.stat(id).await?.acknowledged.min(last_seq);
        parts.recovered = begun.recovered;
        parts.checkpoints = Checkpoints {
            chain_from: scan.chain_from,
            since: scan.read_bytes,
            size: 0,
        };
        let writer = SessionWriter::open(claim, parts);
        if !events.is_empty() {
            let expected = writer.next_seq().await;
            let appended = writer
                .append(expected, events, AppendOptions::barrier())
                .await;
            if let Err(source) = appended {
                return Err(match source {
                    AppendError::StorageFull { what } => OpenError::StorageFull {
                        id: id.clone(),
                        what,
                    },
                    source => OpenError::Recovery {
                        id: id.clone(),
                        source,
                    },
                });
            }
        }
        writer.note_checkpoint().await;
        self.note_tail(&writer);
        Ok(Loaded { writer, closed })
    }

    /// Shows a session, damaged or not, without writing anything.
    ///
    /// # Errors
    /// [`ReadError`]: not found, or a header that cannot be read.
    pub async fn inspect(&self, id: &SessionId) -> Result<Inspected, ReadError> {
        let stat = self.stat(id).await?;
        let scan = self.scan(id, View::over(self.transcript())).await?;
        Ok(inspected(stat, scan))
    }

    /// Shows a session as [`inspect`](Self::inspect) does, turn by turn and in memory that does not
    /// grow with the log: `show` is given each turn once the next one has begun. The view has the
    /// newest turn alone.
    ///
    /// # Errors
    /// [`ReadError`]: not found, or a header that cannot be read.
    pub async fn inspect_turns(
        &self,
        id: &SessionId,
        show: impl FnMut(Turn) + Send,
    ) -> Result<Inspected, ReadError> {
        let stat = self.stat(id).await?;
        let view = View::over(self.transcript());
        let scan = self.scan(id, OneByOne { view, show }).await?;
        Ok(inspected(stat, scan.map(|shown| shown.view)))
    }

    /// Reads raw lines from a position.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(
        &self,
        id: &SessionId,
        from: ReadPos,
        limit: usize,
    ) -> Result<RawPage, ReadError> {
        self.stat(id).await?;
        let page = self.inside.backend.page(id, from, PAGE_BYTES).await?;
        let Page {
            mut entries,
            next,
            end,
            ..
        } = page;
        entries.retain(|entry| !matches!(entry, Entry::Header(_)));
        if let Some(first_out) = entries.get(limit) {
            // Where the first entry left out begins. After damage that is not the next number.
            let next = match first_out {
                Entry::Line(line, place) => ReadPos {
                    seq: line.event.seq,
                    hint: Some(place.at).filter(|at| *at > 0),
                },
                Entry::Damage(damage) => ReadPos::at(damage.seq),
                Entry::Header(_) => next,
            };
            entries.truncate(limit);
            return Ok(RawPage {
                entries,
                next: Some(next),
            });
        }
        Ok(RawPage {
            entries,
            next: (!end).then_some(next),
        })
    }

    /// Returns a session's header.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn header(&self, id: &SessionId) -> Result<StoredHeader, ReadError> {
        let header = self
            .inside
            .backend
            .header(id)
            .await
            .map_err(|e| header_error(id, e))?;
        header.ok_or_else(|| self.not_found(id))
    }

    /// Returns whether the store holds a session.
    ///
    /// # Errors
    /// [`ReadError::Backend`].
    pub async fn has(&self, id: &SessionId) -> Result<bool, ReadError> {
        Ok(self.inside.backend.stat(id).await?.is_some())
    }

    /// Returns storage facts of a session.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn stat(&self, id: &SessionId) -> Result<Stat, ReadError> {
        let stat = self.inside.backend.stat(id).await?;
        stat.ok_or_else(|| self.not_found(id))
    }

    /// Returns all ids, in no order.
    ///
    /// # Errors
    /// [`ReadError::Backend`].
    pub async fn ids(&self) -> Result<Vec<SessionId>, ReadError> {
        Ok(self.inside.backend.ids().await?)
    }

    /// Deletes a session. Deleting is final.
    ///
    /// # Errors
    /// [`DeleteError`]: not found, or being written.
    pub async fn delete(&self, id: &SessionId) -> Result<(), DeleteError> {
        let mut deleted = self.inside.backend.delete(id).await;
        if matches!(deleted, Ok(()) | Err(ClaimError::NotFound)) {
            // One whose files are gone is known by its row alone.
            let known = self.inside.lists.forget(id).await;
            deleted = deleted.or_else(|error| if known { Ok(()) } else { Err(error) });
        }
        deleted.map_err(|error| match error {
            ClaimError::Locked { holder } => DeleteError::Locked {
                id: id.clone(),
                holder,
            },
            ClaimError::NotFound | ClaimError::AlreadyExists => DeleteError::NotFound {
                id: id.clone(),
                store: self.address(),
            },
            ClaimError::StorageFull { what } => {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                DeleteError::Backend(crate::BackendError::new(what, full))
            }
            ClaimError::Backend(error) => DeleteError::Backend(error),
        })
    }

    /// Changes what people set, if its revision is still the one the caller saw. Works while
    /// another process writes the session; the log is not touched.
    ///
    /// # Errors
    /// [`UpdateError`].
    pub async fn update(
        &self,
        id: &SessionId,
        patch: SummaryPatch,
        revision: u64,
    ) -> Result<SessionSummary, UpdateError> {
        check_patch(&patch)?;
        self.stat(id).await?;
        let conflict = |actual: &UserSummary| UpdateError::Conflict {
            id: id.clone(),
            expected: revision,
            actual: actual.revision,
        };
        let mut summary = self
            .inside
            .backend
            .summary(id)
            .await
            .map_err(ReadError::from)?;
        if summary.revision != revision {
            return Err(conflict(&summary));
        }
        if let Some(title) = patch.title {
            summary.title = title.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
        }
        summary.archived = patch.archived.unwrap_or(summary.archived);
        summary.pinned = patch.pinned.unwrap_or(summary.pinned);
        summary.tags = patch.tags.unwrap_or(summary.tags);
        summary.revision += 1;
        let put = self
            .inside
            .backend
            .put_summary(id, revision, &summary)
            .await;
        match put.map_err(ReadError::from)? {
            Ok(()) => Ok(self.summary(id).await?),
            Err(actual) => Err(conflict(&actual)),
        }
    }

    /// Keeps a title that a model made, unless there is one already, whoever gave it. It counts as
    /// no change of what people set: nobody's change based on the revision in force is refused for
    /// it, and none is lost. Returns whether it is kept.
    ///
    /// # Errors
    /// [`UpdateError`], but for a conflict.
    pub async fn keep_made_title(
        &self,
        id: &SessionId,
        made: &MadeTitle,
    ) -> Result<bool, UpdateError> {
        let title = Some(Some(made.text.clone()));
        check_patch(&SummaryPatch {
            title,
            ..SummaryPatch::default()
        })?;
        self.stat(id).await?;
        let backend = &self.inside.backend;
        for _ in 0..MADE_TITLE_TRIES {
            let mut summary = backend.summary(id).await.map_err(ReadError::from)?;
            let taken = summary.title.is_some() || summary.made_title.is_some();
            if taken || summary.damaged.is_some() {
                return Ok(false);
            }
            summary.made_title = Some(Box::new(made.clone()));
            let put = backend.put_summary(id, summary.revision, &summary).await;
            if put.map_err(ReadError::from)?.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Follows a session: every line after `after` once, then every new one as it is appended, in
    /// this process or another. `None` starts at the beginning.
    #[must_use]
    pub fn follow(&self, id: &SessionId, after: Option<u64>) -> Follow {
        Follow::new(
            self.clone(),
            id.clone(),
            after.map_or(0, |seq| seq.saturating_add(1)),
        )
    }

    /// Calls `f` for each valid line in order until it returns false or the log ends.
    ///
    /// # Errors
    /// [`ReadError`], also for damage before the end.
    pub async fn each_event(
        &self,
        id: &SessionId,
        mut f: impl FnMut(&threadline_session::codec::Line) -> bool,
    ) -> Result<(), ReadError> {
        self.stat(id).await?;
        let mut pos = ReadPos::default();
        loop {
            let page = self.inside.backend.page(id, pos, PAGE_BYTES).await?;
            for entry in &page.entries {
                match entry {
                    Entry::Line(line, _) if !f(line) => return Ok(()),
                    Entry::Line(..) | Entry::Header(_) => {}
                    Entry::Damage(damage) => {
                        let damage = damage.clone();
                        return Err(ReadError::Corrupt {
                            id: id.clone(),
                            damage,
                        });
                    }
                }
            }
            if page.end {
                return Ok(());
            }
            pos = page.next;
        }
    }

    /// Returns the state of an empty log, to which this store's registered types are known.
    #[must_use]
    pub fn transcript(&self) -> Transcript {
        Transcript::with_registered(self.inside.registered.clone())
    }

    /// Returns a watch on a session that this process writes.
    pub(crate) fn tail_of(&self, id: &SessionId) -> Option<Arc<Tail>> {
        let tails = self
            .inside
            .tails
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tails.get(id).and_then(Weak::upgrade)
    }

    fn note_tail(&self, writer: &SessionWriter) {
        let mut tails = self
            .inside
            .tails
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tails.retain(|_, tail| tail.strong_count() > 0);
        tails.insert(writer.id().clone(), Arc::downgrade(writer.tail()));
    }

    fn parts(&self, header: Header, encoder: Encoder, transcript: Transcript, keys: Keys) -> Parts {
        let options = &self.inside.options;
        Parts {
            header,
            encoder: encoder.with_max_event_bytes(options.max_event_bytes),
            transcript,
            keys,
            durable_seq: None,
            durability: options.durability,
            clock: options.clock.clone(),
            recovered: None,
            store: self.clone(),
            checkpoints: Checkpoints::default(),
        }
    }

    pub(crate) fn not_found(&self, id: &SessionId) -> ReadError {
        ReadError::NotFound {
            id: id.clone(),
            store: self.address(),
        }
    }

    fn not_claimed(&self, id: &SessionId, error: ClaimError) -> OpenError {
        match error {
            ClaimError::NotFound | ClaimError::AlreadyExists => self.not_found(id).into(),
            ClaimError::Locked { holder } => OpenError::Locked {
                id: id.clone(),
                holder,
            },
            ClaimError::StorageFull { what } => OpenError::StorageFull {
                id: id.clone(),
                what,
            },
            ClaimError::Backend(error) => ReadError::Backend(error).into(),
        }
    }
}

/// A read model that gives its turns away.
struct OneByOne<F> {
    view: View,
    show: F,
}

impl<F: FnMut(Turn) + Send> Fold for OneByOne<F> {
    fn fold(&mut self, event: &Event, place: Place) -> Result<(), ApplyError> {
        self.view.apply_at(event, place)?;
        if self.view.turns().len() > 1 {
            self.view.take_turns().into_iter().for_each(&mut self.show);
        }
        Ok(())
    }

    fn transcript(&self) -> &Transcript {
        self.view.transcript()
    }

    fn transcript_mut(&mut self) -> &mut Transcript {
        self.view.transcript_mut()
    }
}

fn inspected(stat: Stat, scan: Scan<View>) -> Inspected {
    let mut view = scan.state;
    let mut unstored = 0;
    if stat.writer.is_none() && scan.damage.is_empty() && scan.unsupported.is_none() {
        // The same events that opening would append: readers and writers see one history.
        for event in closers(view.transcript()).unwrap_or_default() {
            if view.apply(&event).is_ok() {
                unstored += 1;
            }
        }
    }
    Inspected {
        header: scan.header.header,
        view,
        unstored,
        stat,
        damage: scan.damage,
        torn: scan.torn,
        unsupported: scan.unsupported,
    }
}

fn not_begun(id: &SessionId, error: WriteError) -> OpenError {
    let id = id.clone();
    let source = match error {
        WriteError::StorageFull { what } => return OpenError::StorageFull { id, what },
        WriteError::Fenced { by } => AppendError::Fenced { by },
        WriteError::Poisoned { reason } => AppendError::Poisoned { reason },
        WriteError::UnknownOutcome { reason } => AppendError::UnknownOutcome { reason },
    };
    OpenError::Recovery { id, source }
}

fn check_patch(patch: &SummaryPatch) -> Result<(), UpdateError> {
    let invalid = |field, reason: String| Err(UpdateError::Invalid { field, reason });
    if let Some(Some(title)) = &patch.title {
        let chars = title.chars().count();
        if chars > MAX_TITLE_CHARS {
            return invalid(
                "title",
                format!("{chars} characters are over {MAX_TITLE_CHARS}"),
            );
        }
        if title.chars().any(char::is_control) {
            return invalid("title", "control characters are not allowed".into());
        }
    }
    if let Some(tags) = &patch.tags {
        if tags.len() > MAX_TAGS {
            return invalid("tags", format!("{} tags are over {MAX_TAGS}", tags.len()));
        }
        if tags
            .iter()
            .any(|t| t.is_empty() || t.chars().count() > MAX_TITLE_CHARS)
        {
            return invalid(
                "tags",
                format!("a tag has 1 to {MAX_TITLE_CHARS} characters"),
            );
        }
    }
    Ok(())
}
