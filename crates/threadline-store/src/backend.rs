//! The seam below the store: lines in, lines out.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use threadline_session::{Base, Header, HeaderError, Place, SessionId, codec::Line};

use crate::{BlobId, Catalogue, UserSummary};

/// Where reading starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadPos {
    /// First sequence number wanted.
    pub seq: u64,
    /// Where the backend left off, when `seq` follows a page it gave; opaque to everyone else.
    pub hint: Option<u64>,
}

impl ReadPos {
    /// Starts at a sequence number.
    #[must_use]
    pub fn at(seq: u64) -> Self {
        Self { seq, hint: None }
    }
}

/// Bytes in the middle of a log that are no valid record, with valid records after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{file} is damaged at byte {offset}, where event {seq} belongs: {reason}")]
pub struct Damage {
    /// File or table.
    pub file: String,
    /// Where the damage begins, in bytes.
    pub offset: u64,
    /// How many bytes it spans.
    pub bytes: u64,
    /// Sequence number that belongs there.
    pub seq: u64,
    /// What is wrong.
    pub reason: String,
}

/// Bytes at the end of a log that were never fully written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Torn {
    /// File.
    pub file: String,
    /// Where the torn bytes begin.
    pub offset: u64,
    /// How many bytes they are.
    pub bytes: u64,
    /// What they look like.
    pub reason: String,
}

/// One thing found while reading.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A header line, LF included: the one that opens the log, and in a fork those of the logs
    /// that it continues, each where its own events begin.
    Header(Vec<u8>),
    /// A valid line, and where it is kept.
    Line(Line, Place),
    /// Damage; reading went on behind it.
    Damage(Damage),
}

/// A page of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// What was found, in order.
    pub entries: Vec<Entry>,
    /// Where the next page starts. At the end of the log it is where the next event will stand.
    pub next: ReadPos,
    /// Whether this page reached the end of the log.
    pub end: bool,
    /// Torn bytes behind the end. A reader ignores them.
    pub torn: Option<Torn>,
}

/// Where a whole log ended, as told to a writer that is about to continue it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogEnd {
    /// Position behind the last valid line.
    pub next: ReadPos,
    /// Torn bytes behind it.
    pub torn: Option<Torn>,
}

/// Who holds a session for writing. A hint for people; the lock itself is the truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Since when, unix milliseconds.
    pub since: u64,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// Changes whenever a session's log may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp(pub u64, pub u64);

/// What is known of a session without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of its log.
    pub bytes: u64,
    /// Changes whenever the log may have.
    pub stamp: Stamp,
    /// Changes whenever what people have set may have.
    pub people: Stamp,
    /// Who is writing it now.
    pub writer: Option<Holder>,
    /// Highest event that a writer has acknowledged as durable, when the backend remembers it.
    pub acknowledged: Option<u64>,
    /// Counts the writers: whoever claimed the session in an earlier epoch is fenced. `None` when
    /// nobody has claimed it here.
    pub epoch: Option<u64>,
}

/// A header as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredHeader {
    /// The header.
    pub header: Header,
    /// Its line, LF included.
    pub line: Vec<u8>,
    /// Whether a checksum vouched for it.
    pub verified: bool,
}

/// A line that is shown without having been looked into.
#[derive(Debug, Clone, Copy)]
pub enum Shown<'a> {
    /// A header line, LF included.
    Header(&'a [u8]),
    /// What should be the line of an event, without LF, and where it is kept.
    Line(&'a [u8], Place),
}

/// Takes lines that are shown, and says whether it takes this one and wants more.
pub type Visit<'a> = dyn FnMut(Shown<'_>) -> bool + Send + 'a;

/// A new session as it is stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewLog {
    /// Its header line, LF included. When the header has a [`Base`], the log continues a prefix
    /// of the parent's.
    pub header_line: Vec<u8>,
    /// Lines of its first events; none for a fork that needs no closing.
    pub batch: Vec<u8>,
    /// Last event of the log; `None` when there is none.
    pub last_seq: Option<u64>,
    /// The session that the base is taken from.
    pub parent: Option<SessionId>,
}

/// State that the store keeps beside a log, so that opening need not read all of it. A cache:
/// when it is lost, stale or garbled, the log is read instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the log goes on behind the state.
    pub next: ReadPos,
    /// The state. The backend gives back exactly these bytes or nothing.
    pub state: Vec<u8>,
}

/// What a writer found and did when it began.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Begun {
    /// What had to be mended.
    pub recovered: Option<Recovered>,
    /// A header line that was put behind the end of the log, as a take-over does.
    pub header_line: Option<Vec<u8>>,
}

/// A blob as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobStat {
    /// The blob.
    pub id: BlobId,
    /// Its size.
    pub bytes: u64,
    /// When it was last put, unix milliseconds.
    pub put_at: u64,
}

/// Bytes that a session takes up in the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Its own part of the log.
    pub log: u64,
    /// The part of the log that it may share with other sessions.
    pub shared: u64,
    /// Checkpoints, which may be deleted.
    pub index: u64,
    /// Damaged bytes that were moved aside, and logs from before a repair.
    pub quarantine: u64,
    /// Everything else.
    pub other: u64,
}

/// What a claim or its start had to mend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    /// Torn bytes that were moved aside.
    pub torn: Torn,
    /// Where they are now.
    pub moved_to: String,
}

/// A failure of the storage underneath, with what was being done.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct BackendError {
    /// What was being done, and to what.
    pub what: String,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl BackendError {
    /// Makes an error from its cause.
    pub fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Whether there was no space. A backend says so by an [`io::Error`](std::io::Error) of such a
    /// kind among the causes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*self.source);
        while let Some(error) = cause {
            let kind = error.downcast_ref().map(std::io::Error::kind);
            if matches!(kind, Some(StorageFull | QuotaExceeded | FileTooLarge)) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Says why a header cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderReadError {
    /// The first line is damaged or of another version.
    #[error("{file}: {source}")]
    Header {
        /// File or table.
        file: String,
        /// What is wrong.
        #[source]
        source: HeaderError,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why a session cannot be claimed for writing.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// There is no such session.
    #[error("no such session")]
    NotFound,
    /// There is one already, and a new one was asked for.
    #[error("the session exists already")]
    AlreadyExists,
    /// Another writer has it.
    #[error("it is being written by {holder}")]
    Locked {
        /// Who.
        holder: Holder,
    },
    /// There is no space.
    #[error("the storage is full: {what}")]
    StorageFull {
        /// What could not be written.
        what: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why lines were not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// There is no space. Nothing of the batch remains, and the writer can go on later.
    #[error("the storage is full: {what}")]
    StorageFull {
        /// What could not be written.
        what: String,
    },
    /// Somebody else has written or taken over. The writer is dead.
    #[error("another writer has taken over: {by}")]
    Fenced {
        /// Who, as far as is known.
        by: String,
    },
    /// A write or sync failed. The writer is dead; a new one recovers.
    #[error("writing failed and the writer refuses to go on: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The connection was lost before the outcome was known. Ask again by idempotency key.
    #[error("it is not known whether the batch was stored: {reason}")]
    UnknownOutcome {
        /// What happened.
        reason: String,
    },
}

/// Stores and fetches the lines of sessions. It knows no rule about what they mean.
///
/// # Contract
/// - Lines are kept byte for byte. A batch is all there or not at all after any crash.
/// - [`page`](Self::page) gives valid lines in sequence order. Damage with valid records behind it
///   is an [`Entry::Damage`]; invalid bytes up to the end are [`Page::torn`], also when they are
///   complete lines of an incomplete batch.
/// - A session whose header has a [`Base`] continues a prefix of another one's log, which it shares
///   with it. It is read as one log: the prefix, the header line, its own lines. Whatever happens
///   to the other session afterwards changes nothing of it.
/// - Reading writes nothing.
/// - At most one [`Writer`] per session exists at a time, over all processes; of two that believe
///   they are it, the older one stores and acknowledges nothing any more.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the address, as `jsonl:/path`.
    fn address(&self) -> String;

    /// Returns the paths that tools must not touch.
    fn private_paths(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }

    /// Returns the catalogue that this backend keeps; without one the store keeps it in memory.
    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        None
    }

    /// Reads a session's own header; `None` when there is no such session.
    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError>;

    /// Reads a page of at least one line (unless at the end) and about `max_bytes`.
    ///
    /// Starting at [`Page::next`] or [`Checkpoint::next`] goes on exactly there. Starting at a bare
    /// number gives the header line that stands right before that event, if there is one.
    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError>;

    /// Shows complete lines one after the other, as they are stored and without looking into them,
    /// until `visit` wants no more, the log ends or something stands there that is no line.
    /// Returns where reading goes on; [`ReadPos::seq`] is of no meaning there. The default shows
    /// none.
    async fn skim(
        &self,
        _id: &SessionId,
        from: ReadPos,
        _visit: &mut Visit<'_>,
    ) -> Result<ReadPos, BackendError> {
        Ok(from)
    }

    /// Reads single lines by their numbers and places, in the order asked for: of each its bytes
    /// without LF, whose checksum and number were checked, or the damage where it should be.
    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError>;

    /// Returns the newest intact checkpoint whose `next.seq` is at most `limit`.
    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError>;

    /// Returns how many bytes of log are worth a checkpoint, besides eight times its own size.
    fn checkpoint_every(&self) -> u64 {
        crate::limits::CHECKPOINT_BYTES
    }

    /// Returns what is known without reading the log; `None` when there is no such session.
    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError>;

    /// Returns the bytes that a session takes up.
    async fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let stat = self.stat(id).await?;
        Ok(Usage {
            log: stat.map_or(0, |stat| stat.bytes),
            ..Usage::default()
        })
    }

    /// Does as [`stat`](Self::stat) for several sessions, in the order asked for.
    async fn stats(&self, ids: &[SessionId]) -> Vec<Result<Option<Stat>, BackendError>> {
        let mut stats = Vec::with_capacity(ids.len());
        for id in ids {
            stats.push(self.stat(id).await);
        }
        stats
    }

    /// Returns all ids, in no order. A session that cannot be read is listed all the same.
    async fn ids(&self) -> Result<Vec<SessionId>, BackendError>;

    /// Stores a new session: its header line and its first batch at once, durably, and claims it.
    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError>;

    /// Returns the base of a fork that ends with an event, which is durable on return; `None` when
    /// the log has no such event.
    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError>;

    /// Claims an existing session for writing. Nothing may be appended before
    /// [`Writer::begin`].
    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError>;

    /// Claims an existing session although somebody else has it, who is fenced off: what they
    /// append from here on is neither stored nor acknowledged.
    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError>;

    /// Waits until a session may have changed, or a while has passed. The default only waits.
    async fn changed(&self, _id: &SessionId) {
        tokio::time::sleep(crate::limits::POLL_INTERVAL).await;
    }

    /// Returns what people have set; the default when nothing was.
    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError>;

    /// Replaces what people have set if its revision is still `expected`; durable on return.
    /// Returns the summary in force when the revision differs.
    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError>;

    /// Deletes a session. Deleting one that does not exist is [`ClaimError::NotFound`]. Forks of it
    /// keep what they share; what only it held is gone.
    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError>;

    /// Stores a blob; durable on return. One that is there already counts as put again.
    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError>;

    /// Reads a blob; `None` when there is none. The bytes are not checked against the id.
    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError>;

    /// Returns all blobs, in no order.
    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError>;

    /// Deletes a blob if it was not put again after `put_at`. Returns whether it did.
    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError>;

    /// Adds the names of all blobs that anything kept of a session may mention, damaged and
    /// quarantined bytes included, as [`crate::blob::names_in`] finds them.
    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut std::collections::HashSet<BlobId>,
    ) -> Result<(), BackendError>;

    /// Begins to store a session that comes from another store. Nothing is visible before
    /// [`Import::finish`].
    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError>;

    /// Begins to replace the log of a session by a repaired one, under a claim of its own. Nothing
    /// changes before [`Import::finish`], and the old log is kept aside then.
    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        let what = format!("repairing session {id}");
        let why = format!("{} repairs its storage by its own means", self.address());
        Err(ClaimError::Backend(BackendError::new(what, why)))
    }
}

/// A session that is being brought in, line by line.
///
/// Dropping it before the end leaves nothing.
#[async_trait]
pub trait Import: Send {
    /// Takes a header line, LF included: the first one opens the log, each later one opens the
    /// next log of a fork's lineage, and the last one is the session's own.
    async fn header(&mut self, line: &[u8]) -> Result<(), BackendError>;

    /// Takes whole lines, LF included, that follow the last ones; `last_seq` is the last event's.
    async fn lines(&mut self, lines: &[u8], last_seq: u64) -> Result<(), BackendError>;

    /// Makes the session visible, durably.
    async fn finish(self: Box<Self>) -> Result<(), ClaimError>;
}

/// The one door for appends to a session.
///
/// Dropping it releases the claim.
#[async_trait]
pub trait Writer: Send {
    /// Continues behind `end`, which the caller found under this claim. Moves torn bytes aside,
    /// never erasing them, and syncs before it returns.
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError>;

    /// Appends the lines of one batch, ending with event `last_seq`. They have reached the
    /// operating system on return, and stable storage if `sync`. Returns the place of the first
    /// byte, as in [`Place::at`].
    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError>;

    /// Brings everything appended so far to stable storage.
    async fn sync(&mut self) -> Result<(), WriteError>;

    /// Keeps a checkpoint of everything appended so far. It is a cache, so nobody waits for it to
    /// be durable, and a failure is no failure of the writer.
    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError>;
}
