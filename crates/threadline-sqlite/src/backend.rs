//! The asynchronous shell.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use async_trait::async_trait;
use rusqlite::Connection;
use threadline_session::{Base, Place, SessionId};
use threadline_store::{
    Backend, BackendError, BlobId, BlobStat, Catalogue, Checkpoint, ClaimError, Damage,
    HeaderReadError, Import, NewLog, Page, ReadPos, Stat, StoredHeader, Usage, UserSummary, Writer,
};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    SqliteError, blobs,
    catalogue::SqliteCatalogue,
    checkpoints, delete,
    error::Fail,
    import::{self, SqliteImport},
    leases::Lease,
    limits::LOOK_INTERVAL,
    queue::{Hand, Queue},
    reader::{self, Readers},
    schema::Target,
    writer::{self, Claim, SqliteWriter},
};

/// How the backend behaves.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Makes the file, and the folders above it, unless it is there.
    pub create: bool,
    /// Largest size of the file in bytes. What does not fit is refused as on a full disk. The
    /// write-ahead log comes on top.
    pub max_bytes: Option<u64>,
    /// Uses the file also on a network file system, where SQLite's locks and shared memory may not
    /// hold between machines.
    pub allow_network_fs: bool,
    /// Bytes of log that are worth a checkpoint, when not as many as usual.
    pub checkpoint_every: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            create: true,
            max_bytes: None,
            allow_network_fs: false,
            checkpoint_every: None,
        }
    }
}

/// Everything that the backend, its writers and its imports use together.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) readers: Readers,
    held: Arc<AtomicUsize>,
}

impl Shared {
    pub(crate) fn path(&self) -> &Path {
        self.readers.path()
    }

    /// Makes a lease for a writer that is about to be.
    pub(crate) fn lease(&self) -> Lease {
        Lease::new(&self.held)
    }

    /// Reads on a thread that may block.
    pub(crate) async fn read<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection, &Path) -> Result<R, Fail> + Send + 'static,
    ) -> Result<R, Fail> {
        let shared = Arc::clone(self);
        blocking(move || shared.readers.read(|conn| work(conn, shared.path()))).await
    }
}

/// Does work that blocks, in place where that is allowed: it saves handing it to another thread.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Fail> + Send + 'static,
) -> Result<R, Fail> {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) => tokio::task::spawn_blocking(work)
            .await
            .unwrap_or(Err(Fail::Gone)),
        Err(_) => work(),
    }
}

/// Keeps all sessions in one SQLite file. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqliteBackend {
    shared: Arc<Shared>,
    checkpoint_every: Option<u64>,
}

impl SqliteBackend {
    /// Opens a database file, brings its schema up to date and removes what imports that broke off
    /// have left.
    ///
    /// # Errors
    /// [`BackendError`] whose source is a [`SqliteError`].
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, BackendError> {
        let path = path.as_ref();
        let what = || format!("opening the store {}", path.display());
        let opened = std::path::absolute(path)
            .map_err(|error| SqliteError::io(path, error))
            .and_then(|path| Self::open_at(path, &options));
        opened.map_err(|error| error.doing(what()))
    }

    fn open_at(path: PathBuf, options: &SqliteOptions) -> Result<Self, SqliteError> {
        let target = Target {
            path,
            max_bytes: options.max_bytes,
        };
        if !options.allow_network_fs {
            target.check_network()?;
        }
        target.prepare(options.create)?;
        let readers = Readers::new(target.clone());
        let left = readers.read(|conn| Ok(import::abandoned(conn)?));
        let path = target.path.clone();
        let held = Arc::new(AtomicUsize::new(0));
        let queue = Queue::start(target, Arc::clone(&held))?;
        if !left.map_err(|fail| fail.into_sqlite(&path))?.is_empty() {
            queue.post(|hand| {
                if let Err(fail) = import::clean(hand) {
                    tracing::warn!(?fail, "what a broken import has left could not be removed");
                }
            });
        }
        Ok(Self {
            shared: Arc::new(Shared {
                queue,
                readers,
                held,
            }),
            checkpoint_every: options.checkpoint_every,
        })
    }

    /// Returns the database file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.shared.path()
    }

    async fn read<R: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&Connection, &Path) -> Result<R, Fail> + Send + 'static,
    ) -> Result<R, BackendError> {
        let done = self.shared.read(work).await;
        done.map_err(|fail| fail.into_backend(self.path(), what))
    }

    async fn write<R: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&mut Hand) -> Result<R, Fail> + Send + 'static,
    ) -> Result<R, BackendError> {
        let done = self.shared.queue.run(work).await;
        done.map_err(|fail| fail.into_backend(self.path(), what))
    }

    /// Claims a session, in whichever way.
    async fn claimed(
        &self,
        id: &SessionId,
        what: &str,
        work: impl FnOnce(&mut Hand, &SessionId, i64) -> Result<Claim, Fail> + Send + 'static,
    ) -> Result<Box<dyn Writer>, ClaimError> {
        let lease = self.shared.lease();
        let (number, wanted) = (lease.number, id.clone());
        let shared = Arc::clone(&self.shared);
        // The writer is made where the claim is, so that it is given back even if nobody waits for
        // it any more.
        let done = self.shared.queue.run(move |hand| {
            let claim = work(hand, &wanted, number)?;
            Ok(SqliteWriter::new(shared, &wanted, claim, lease))
        });
        match done.await {
            Ok(writer) => Ok(Box::new(writer)),
            Err(fail) => Err(fail.into_claim(self.path(), format!("{what} session {id}"))),
        }
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn address(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn private_paths(&self) -> Vec<PathBuf> {
        let beside = |suffix: &str| {
            let mut name = self.path().as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        ["", "-wal", "-shm", "-journal"].map(beside).to_vec()
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        Some(Arc::new(SqliteCatalogue::new(Arc::clone(&self.shared))))
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        let wanted = id.clone();
        let line = self
            .read(format!("reading the header of {id}"), move |conn, _| {
                reader::header_line(conn, &wanted)
            })
            .await?;
        line.map(|line| reader::decode_header(reader::file_of(self.path(), id), line))
            .transpose()
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let wanted = id.clone();
        self.read(format!("reading {id}"), move |conn, path| {
            reader::page(conn, path, &wanted, from, max_bytes)
        })
        .await
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        let (of, wanted) = (id.clone(), wanted.to_vec());
        self.read(format!("reading {id}"), move |conn, path| {
            reader::lines(conn, path, &of, &wanted)
        })
        .await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        let wanted = id.clone();
        self.read(format!("reading a checkpoint of {id}"), move |conn, _| {
            checkpoints::newest(conn, &wanted, limit)
        })
        .await
    }

    fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every
            .unwrap_or(threadline_store::limits::CHECKPOINT_BYTES)
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        let wanted = id.clone();
        self.read(format!("looking at {id}"), move |conn, _| {
            reader::stat(conn, &wanted)
        })
        .await
    }

    async fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let wanted = id.clone();
        self.read(format!("measuring {id}"), move |conn, _| {
            reader::usage(conn, &wanted)
        })
        .await
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        self.read("listing all sessions".into(), |conn, _| reader::ids(conn))
            .await
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        self.claimed(id, "creating", move |hand, id, lease| {
            writer::create(hand, id, &new, lease)
        })
        .await
    }

    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        let wanted = id.clone();
        let found = self
            .read(format!("reading {id}"), move |conn, _| {
                reader::cut(conn, &wanted, last_seq)
            })
            .await?;
        let Some((base, durable)) = found else {
            return Ok(None);
        };
        if !durable {
            let wanted = id.clone();
            self.write(format!("syncing {id}"), move |hand| {
                writer::settle(hand, &wanted)
            })
            .await?;
        }
        Ok(Some(base))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        self.claimed(id, "claiming", |hand, id, lease| {
            writer::claim(hand, id, lease, false)
        })
        .await
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        self.claimed(id, "taking over", |hand, id, lease| {
            writer::claim(hand, id, lease, true)
        })
        .await
    }

    async fn changed(&self, _id: &SessionId) {
        let until = Instant::now() + threadline_store::limits::POLL_INTERVAL;
        let before = self.shared.readers.version();
        while Instant::now() < until {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.shared.readers.version() != before {
                break;
            }
        }
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        let wanted = id.clone();
        self.read(
            format!("reading what people have set for {id}"),
            move |conn, _| blobs::summary(conn, &wanted),
        )
        .await
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let (wanted, summary) = (id.clone(), summary.clone());
        self.write(format!("setting the title or tags of {id}"), move |hand| {
            blobs::put_summary(hand, &wanted, expected, &summary)
        })
        .await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let wanted = id.clone();
        let done = self
            .shared
            .queue
            .run(move |hand| delete::delete(hand, &wanted))
            .await;
        done.map_err(|fail| fail.into_claim(self.path(), format!("deleting session {id}")))
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        let (wanted, bytes) = (id.clone(), bytes.to_vec());
        self.write(format!("storing blob {id}"), move |hand| {
            blobs::put(hand, &wanted, &bytes)
        })
        .await
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        let wanted = id.clone();
        self.read(format!("reading blob {id}"), move |conn, _| {
            blobs::get(conn, &wanted)
        })
        .await
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        self.read("listing all blobs".into(), |conn, _| blobs::all(conn))
            .await
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        let wanted = stat.clone();
        self.write(format!("deleting blob {}", stat.id), move |hand| {
            blobs::delete(hand, &wanted)
        })
        .await
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        let wanted = id.clone();
        let names = self
            .read(format!("looking for blobs in {id}"), move |conn, _| {
                reader::blob_names(conn, &wanted)
            })
            .await?;
        found.extend(names);
        Ok(())
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Ok(Box::new(SqliteImport::begin(&self.shared, id).await?))
    }

    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Ok(Box::new(SqliteImport::replacing(&self.shared, id).await?))
    }
}
