//! The asynchronous shell around [`Files`].

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use threadline_session::SessionId;
use threadline_store::{
    Backend, BackendError, ClaimError, HeaderReadError, LogEnd, Page, ReadPos, Recovered, Stat,
    StoredHeader, UserSummary, WriteError, Writer,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
};

use crate::{RealVfs, files::Files, limits::PARALLEL_SYNCS, log::LogWriter, vfs::Vfs};

/// Syncs of all sessions of the process. One thread syncing many files in turn would be many
/// times slower than the file system's own merging of syncs that run at the same time.
static SYNCS: Semaphore = Semaphore::const_new(PARALLEL_SYNCS);

/// How the backend behaves.
#[derive(Debug, Clone, Default)]
pub struct JsonlOptions {
    /// Writes also on a network file system, where locks may not hold between machines.
    pub allow_network_fs: bool,
}

/// One directory of JSON lines per session, below one root folder.
#[derive(Debug, Clone)]
pub struct JsonlBackend {
    files: Files,
}

impl JsonlBackend {
    /// Uses a folder, which comes into being with the first session.
    ///
    /// # Errors
    /// [`BackendError`] when the path leads to something that is no folder.
    pub fn open(root: impl Into<PathBuf>, options: JsonlOptions) -> Result<Self, BackendError> {
        Self::with_vfs(Arc::new(RealVfs), root, options)
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
        })
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

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        blocking(&self.files, Files::ids).await?
    }

    async fn create(
        &self,
        id: &SessionId,
        header_line: &[u8],
        batch: &[u8],
        last_seq: u64,
    ) -> Result<Box<dyn Writer>, ClaimError> {
        let (id, header, batch) = (id.clone(), header_line.to_vec(), batch.to_vec());
        let writer = blocking(&self.files, move |files| {
            files.create(&id, &header, &batch, last_seq)
        })
        .await??;
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
    async fn begin(&mut self, end: LogEnd) -> Result<Option<Recovered>, WriteError> {
        self.with(true, move |writer| writer.begin(end)).await
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<(), WriteError> {
        self.with(sync, move |writer| writer.append(&batch, last_seq, sync))
            .await
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        self.with(true, LogWriter::sync).await
    }
}
