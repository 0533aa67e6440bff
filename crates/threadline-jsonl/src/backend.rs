//! The asynchronous shell around [`Files`].

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use threadline_session::{Base, Place, SessionId};
use threadline_store::{
    Backend, BackendError, Begun, BlobId, BlobStat, Catalogue, Checkpoint, ClaimError, Damage,
    HeaderReadError, Import, LogEnd, NewLog, Page, ReadPos, Stat, StoredHeader, Usage, UserSummary,
    Visit, WriteError, Writer, limits::POLL_INTERVAL,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

use crate::{
    LogImport, RealVfs,
    catalogue::JsonlCatalogue,
    files::{Files, failed},
    layout::session_dir,
    limits::{PARALLEL_SYNCS, WATCHED_POLL_INTERVAL},
    log::LogWriter,
    vfs::Vfs,
    watch::Watches,
};

/// Syncs of all sessions of the process. One thread syncing many files in turn would be many
/// times slower than the file system's own merging of syncs that run at the same time.
static SYNCS: Semaphore = Semaphore::const_new(PARALLEL_SYNCS);

/// How the backend behaves.
#[derive(Debug, Clone, Default)]
pub struct JsonlOptions {
    /// Writes also on a network file system, where locks may not hold between machines.
    pub allow_network_fs: bool,
    /// Bytes of log that are worth a checkpoint; the store's own measure by default.
    pub checkpoint_every: Option<u64>,
}

/// One directory of JSON lines per session, below one root folder.
#[derive(Debug, Clone)]
pub struct JsonlBackend {
    files: Files,
    /// None on a file system that SQLite does not see.
    catalogue: Option<JsonlCatalogue>,
    checkpoint_every: Option<u64>,
    /// None on a file system that the system does not know, or not alone.
    watches: Option<Arc<Watches>>,
}

impl JsonlBackend {
    /// Uses a folder, which comes into being with the first session.
    ///
    /// # Errors
    /// [`BackendError`] when the path leads to something that is no folder.
    pub fn open(root: impl Into<PathBuf>, options: JsonlOptions) -> Result<Self, BackendError> {
        let mut backend = Self::with_vfs(Arc::new(RealVfs), root, options)?;
        backend.catalogue = Some(JsonlCatalogue::new(backend.files.clone()));
        backend.watches = backend.is_local().then(Arc::default);
        Ok(backend)
    }

    /// Uses another file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_vfs(
        vfs: Arc<dyn Vfs>,
        root: impl Into<PathBuf>,
        options: JsonlOptions,
    ) -> Result<Self, BackendError> {
        let root = root.into();
        let meta = vfs
            .metadata(&root)
            .map_err(|error| BackendError::new(format!("looking at {}", root.display()), error))?;
        // A link to a folder is fine; what is behind it shows when it is used.
        if meta.is_some_and(|meta| !meta.is_dir) && vfs.list(&root).is_err() {
            let what = format!("opening the store {}", root.display());
            return Err(BackendError::new(
                what,
                "there is a file where a folder is needed",
            ));
        }
        let allow_network = options.allow_network_fs;
        Ok(Self {
            files: Files {
                vfs,
                root,
                allow_network,
            },
            catalogue: None,
            checkpoint_every: options.checkpoint_every,
            watches: None,
        })
    }

    /// Returns whether this machine hears of all changes. Those that others make on a network file
    /// system it does not hear of.
    fn is_local(&self) -> bool {
        matches!(self.files.vfs.network_kind(&self.files.root), Ok(None))
    }

    /// Returns the root folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.files.root
    }

    /// Returns the synchronous core.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }
}

fn broke(error: &tokio::task::JoinError) -> BackendError {
    BackendError::new("working on a session's files", error.to_string())
}

/// Whether blocking work may be done in place, which saves handing it to another thread and back.
fn in_place() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

async fn blocking<R: Send + 'static>(
    files: &Files,
    work: impl FnOnce(&Files) -> R + Send + 'static,
) -> Result<R, BackendError> {
    if in_place() {
        return Ok(tokio::task::block_in_place(|| work(files)));
    }
    let files = files.clone();
    tokio::task::spawn_blocking(move || work(&files))
        .await
        .map_err(|error| broke(&error))
}

#[async_trait]
impl Backend for JsonlBackend {
    fn address(&self) -> String {
        format!("jsonl:{}", self.files.root.display())
    }

    fn private_paths(&self) -> Vec<PathBuf> {
        vec![self.files.root.clone()]
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        let catalogue = self.catalogue.clone()?;
        Some(Arc::new(catalogue))
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.header(&id)).await?
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.page(&id, from, max_bytes)).await?
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.stat(&id)).await?
    }

    async fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.usage(&id)).await?
    }

    async fn stats(&self, ids: &[SessionId]) -> Vec<Result<Option<Stat>, BackendError>> {
        let wanted = ids.to_vec();
        let look = move |files: &Files| wanted.iter().map(|id| files.stat(id)).collect();
        match blocking(&self.files, look).await {
            Ok(stats) => stats,
            Err(error) => vec![Err(error)],
        }
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        blocking(&self.files, Files::ids).await?
    }

    async fn skim(
        &self,
        id: &SessionId,
        from: ReadPos,
        visit: &mut Visit<'_>,
    ) -> Result<ReadPos, BackendError> {
        // The visitor borrows from its caller, so this cannot go to another thread.
        if in_place() {
            tokio::task::block_in_place(|| self.files.skim(id, from, visit))
        } else {
            self.files.skim(id, from, visit)
        }
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        let (id, wanted) = (id.clone(), wanted.to_vec());
        blocking(&self.files, move |files| files.lines(&id, &wanted)).await?
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.checkpoint(&id, limit)).await?
    }

    fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every
            .unwrap_or(threadline_store::limits::CHECKPOINT_BYTES)
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        let id = id.clone();
        let writer = blocking(&self.files, move |files| files.create(&id, &new)).await??;
        Ok(Box::new(Shell {
            writer: Some(writer),
        }))
    }

    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.cut(&id, last_seq)).await?
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        let id = id.clone();
        let writer = blocking(&self.files, move |files| files.take_over(&id)).await??;
        Ok(Box::new(Shell {
            writer: Some(writer),
        }))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        let id = id.clone();
        let writer = blocking(&self.files, move |files| files.claim(&id)).await??;
        Ok(Box::new(Shell {
            writer: Some(writer),
        }))
    }

    async fn changed(&self, id: &SessionId) {
        let folder = session_dir(&self.files.root, id);
        let watch = self.watches.as_ref().and_then(|w| w.watch(&folder));
        match watch {
            Some(mut watch) => {
                let _ = tokio::time::timeout(WATCHED_POLL_INTERVAL, watch.changed()).await;
            }
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.summary(&id)).await?
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let (id, summary) = (id.clone(), summary.clone());
        blocking(&self.files, move |files| {
            files.put_summary(&id, expected, &summary)
        })
        .await?
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.delete(&id)).await?
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        let (id, bytes) = (id.clone(), bytes.to_vec());
        blocking(&self.files, move |files| files.put_blob(&id, &bytes)).await?
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        let id = id.clone();
        blocking(&self.files, move |files| files.get_blob(&id)).await?
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        blocking(&self.files, Files::blobs).await?
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        let stat = stat.clone();
        blocking(&self.files, move |files| files.delete_blob(&stat)).await?
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        let id = id.clone();
        let names = blocking(&self.files, move |files| {
            let mut names = HashSet::new();
            files.blob_names(&id, &mut names).map(|()| names)
        })
        .await??;
        found.extend(names);
        Ok(())
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        let id = id.clone();
        let import = blocking(&self.files, move |files| files.import(&id)).await??;
        Ok(Box::new(Bringing {
            import: Some(import),
        }))
    }

    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        let id = id.clone();
        let import = blocking(&self.files, move |files| files.replace(&id)).await??;
        Ok(Box::new(Bringing {
            import: Some(import),
        }))
    }
}

/// The asynchronous shell around an import.
struct Bringing {
    /// Absent only while a blocking thread has it, or when that thread broke.
    import: Option<LogImport>,
}

impl Bringing {
    async fn with(
        &mut self,
        work: impl FnOnce(&mut LogImport) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), BackendError> {
        let lost = || BackendError::new("importing", "an earlier step broke");
        let mut import = self.import.take().ok_or_else(lost)?;
        let task = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut import);
            (import, outcome)
        });
        let (import, outcome) = task.await.map_err(|error| broke(&error))?;
        self.import = Some(import);
        outcome
    }
}

#[async_trait]
impl Import for Bringing {
    async fn header(&mut self, line: &[u8]) -> Result<(), BackendError> {
        let line = line.to_vec();
        self.with(move |import| import.header(&line)).await
    }

    async fn lines(&mut self, lines: &[u8], last_seq: u64) -> Result<(), BackendError> {
        let lines = lines.to_vec();
        self.with(move |import| import.lines(&lines, last_seq))
            .await
    }

    async fn finish(mut self: Box<Self>) -> Result<(), ClaimError> {
        let lost = || BackendError::new("importing", "an earlier step broke");
        let import = self.import.take().ok_or_else(lost)?;
        tokio::task::spawn_blocking(move || import.finish())
            .await
            .map_err(|error| broke(&error))?
    }
}

struct Shell {
    /// Absent only while a blocking thread has it, or when that thread broke.
    writer: Option<LogWriter>,
}

impl Shell {
    async fn with<R: Send + 'static>(
        &mut self,
        sync: bool,
        work: impl FnOnce(&mut LogWriter) -> Result<R, WriteError> + Send + 'static,
    ) -> Result<R, WriteError> {
        let lost = || WriteError::Poisoned {
            reason: "an earlier write broke".into(),
        };
        let _permit = if sync {
            SYNCS.acquire().await.ok()
        } else {
            None
        };
        if in_place() {
            let writer = self.writer.as_mut().ok_or_else(lost)?;
            return tokio::task::block_in_place(|| work(writer));
        }
        let mut writer = self.writer.take().ok_or_else(lost)?;
        let task = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut writer);
            (writer, outcome)
        });
        match task.await {
            Ok((writer, outcome)) => {
                self.writer = Some(writer);
                outcome
            }
            Err(error) => Err(WriteError::UnknownOutcome {
                reason: error.to_string(),
            }),
        }
    }
}

#[async_trait]
impl Writer for Shell {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        self.with(true, move |writer| writer.begin(end)).await
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        self.with(sync, move |writer| writer.append(&batch, last_seq, sync))
            .await
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        self.with(true, LogWriter::sync).await
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        let state = state.to_vec();
        let put = self.with(false, move |writer| Ok(writer.put_checkpoint(&state)));
        match put.await {
            Ok(put) => put.map_err(failed),
            Err(error) => Err(BackendError::new("keeping a checkpoint", error)),
        }
    }
}
