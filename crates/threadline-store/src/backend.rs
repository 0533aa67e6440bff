//! The seam below the store: lines in, lines out.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use threadline_session::{Header, HeaderError, SessionId, codec::Line};

use crate::UserSummary;

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
    /// A valid line.
    Line(Line),
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
    /// Who is writing it now.
    pub writer: Option<Holder>,
    /// Highest event that a writer has acknowledged as durable, when the backend remembers it.
    pub acknowledged: Option<u64>,
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
/// - Reading writes nothing.
/// - At most one [`Writer`] per session exists at a time, over all processes.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the address, as `jsonl:/path`.
    fn address(&self) -> String;

    /// Returns the paths that tools must not touch.
    fn private_paths(&self) -> Vec<std::path::PathBuf> {
        Vec::new()
    }

    /// Reads a session's header; `None` when there is no such session.
    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError>;

    /// Reads a page of at least one entry (unless at the end) and about `max_bytes`.
    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError>;

    /// Returns what is known without reading the log; `None` when there is no such session.
    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError>;

    /// Returns all ids, in no order. A session that cannot be read is listed all the same.
    async fn ids(&self) -> Result<Vec<SessionId>, BackendError>;

    /// Stores a new session: its header line and its first batch at once, durably, and claims it.
    async fn create(
        &self,
        id: &SessionId,
        header_line: &[u8],
        batch: &[u8],
        last_seq: u64,
    ) -> Result<Box<dyn Writer>, ClaimError>;

    /// Claims an existing session for writing. Nothing may be appended before
    /// [`Writer::begin`].
    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError>;

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

    /// Deletes a session. Deleting one that does not exist is [`ClaimError::NotFound`].
    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError>;
}

/// The one door for appends to a session.
///
/// Dropping it releases the claim.
#[async_trait]
pub trait Writer: Send {
    /// Continues behind `end`, which the caller found by reading the whole log under this claim.
    /// Moves torn bytes aside, never erasing them, and syncs before it returns.
    async fn begin(&mut self, end: LogEnd) -> Result<Option<Recovered>, WriteError>;

    /// Appends the lines of one batch, ending with event `last_seq`. They have reached the
    /// operating system on return, and stable storage if `sync`.
    async fn append(&mut self, batch: Vec<u8>, last_seq: u64, sync: bool)
    -> Result<(), WriteError>;

    /// Brings everything appended so far to stable storage.
    async fn sync(&mut self) -> Result<(), WriteError>;
}
