//! The seam, implemented.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use threadline_session::{Base, Place, SessionId};
use threadline_store::{
    Backend, BackendError, BlobId, BlobStat, Catalogue, Checkpoint, ClaimError, Damage,
    HeaderReadError, Import, NewLog, Page, ReadPos, Stat, StoredHeader, Usage, UserSummary, Writer,
};

use crate::{
    PostgresOptions, blobs,
    catalogue::PgCatalogue,
    db::Db,
    error::{Trouble, retrying},
    import::PgImport,
    migrate::migrate,
    notify::Bell,
    read, writer,
};

/// Keeps sessions in a schema of a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresBackend {
    inner: Arc<Inner>,
    catalogue: Arc<PgCatalogue>,
}

impl std::fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("address", &self.inner.db.shown)
            .finish_non_exhaustive()
    }
}

/// What the backend and its writers share.
pub(crate) struct Inner {
    pub(crate) db: Db,
    pub(crate) options: PostgresOptions,
    /// Sessions that are held here, by the holder that their head rows name.
    renewed: Mutex<HashMap<String, SessionId>>,
    bell: Option<Bell>,
}

impl Inner {
    /// Says what is being done, to what and where.
    pub(crate) fn what(&self, doing: &str, id: &SessionId) -> String {
        format!("{doing} session {id} in {}", self.db.place)
    }

    pub(crate) fn lease_ms(&self) -> f64 {
        self.options.lease.as_secs_f64() * 1000.0
    }

    pub(crate) fn renewed(&self) -> MutexGuard<'_, HashMap<String, SessionId>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells followers everywhere of a change.
    pub(crate) fn changed_now(&self, id: &SessionId) {
        if let Some(bell) = &self.bell {
            bell.ring(id);
        }
    }

    fn failed(&self, doing: &str, id: &SessionId, trouble: Trouble) -> BackendError {
        trouble.backend(self.what(doing, id))
    }

    fn missing(&self, id: &SessionId) -> BackendError {
        BackendError::new(self.what("reading", id), "there is no such session")
    }

    fn blob_failed(&self, id: &BlobId, trouble: Trouble) -> BackendError {
        trouble.backend(format!("blob {id} in {}", self.db.place))
    }
}

impl PostgresBackend {
    /// Connects to a database, `postgres://user:password@host/database`, and brings its schema up
    /// to date. Connections are encrypted when the server can; `sslmode=require` insists on it and
    /// checks the certificate, against the authorities in the file `sslrootcert` if given.
    ///
    /// Must be called within a tokio runtime, which the backend's background work lives in.
    ///
    /// # Errors
    /// [`BackendError`]: the address cannot be read, the server not be reached, or the schema is of
    /// a newer version. It names host and database, and never the password.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, BackendError> {
        let db = Db::new(url, &options)?;
        let migrated = migrate(&db, &options.schema).await;
        migrated.map_err(|trouble| trouble.backend(format!("connecting to {}", db.place)))?;
        let bell = options.notify.then(|| Bell::new(&db, &options.schema));
        let inner = Arc::new(Inner {
            db,
            options,
            renewed: Mutex::default(),
            bell,
        });
        tokio::spawn(writer::renew(Arc::downgrade(&inner)));
        let catalogue = Arc::new(PgCatalogue::new(Arc::clone(&inner)));
        Ok(Self { inner, catalogue })
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn address(&self) -> String {
        self.inner.db.shown.clone()
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        Some(self.catalogue.clone())
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        let read = retrying!(read::header(&self.inner.db, id));
        let read = read.map_err(|trouble| self.inner.failed("reading", id, trouble))?;
        read.transpose()
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let page = retrying!(read::page(&self.inner.db, id, from, max_bytes));
        let page = page.map_err(|trouble| self.inner.failed("reading", id, trouble))?;
        page.ok_or_else(|| self.inner.missing(id))
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        let lines = retrying!(read::lines(&self.inner.db, id, wanted));
        let lines = lines.map_err(|trouble| self.inner.failed("reading", id, trouble))?;
        lines.ok_or_else(|| self.inner.missing(id))
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        retrying!(read::checkpoint(&self.inner.db, id, limit))
            .map_err(|trouble| self.inner.failed("reading", id, trouble))
    }

    fn checkpoint_every(&self) -> u64 {
        self.inner.options.checkpoint_every
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        retrying!(read::stat(&self.inner.db, id))
            .map_err(|trouble| self.inner.failed("reading", id, trouble))
    }

    async fn usage(&self, id: &SessionId) -> Result<Usage, BackendError> {
        let usage = retrying!(read::usage(&self.inner.db, id));
        usage.map_err(|trouble| self.inner.failed("measuring", id, trouble))
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        let sql = "SELECT id FROM sessions";
        let rows: Result<_, Trouble> = retrying!(self.inner.db.query(sql, &[]));
        let what = || format!("listing sessions in {}", self.inner.db.place);
        let rows = rows.map_err(|trouble| trouble.backend(what()))?;
        let parsed = rows
            .iter()
            .filter_map(|row| SessionId::parse(row.try_get::<_, String>(0).ok()?).ok());
        Ok(parsed.collect())
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(self.inner.create(id, &new).await?))
    }

    async fn cut(&self, id: &SessionId, last_seq: u64) -> Result<Option<Base>, BackendError> {
        let cut = retrying!(read::cut(&self.inner.db, id, last_seq));
        let cut = cut.map_err(|trouble| self.inner.failed("cutting", id, trouble))?;
        cut.ok_or_else(|| self.inner.missing(id))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(self.inner.claim(id, false).await?))
    }

    async fn take_over(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(self.inner.claim(id, true).await?))
    }

    async fn changed(&self, id: &SessionId) {
        let poll = tokio::time::sleep(self.inner.options.poll);
        match &self.inner.bell {
            None => poll.await,
            Some(bell) => tokio::select! {
                () = poll => {}
                () = bell.wait(id) => {}
            },
        }
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        let summary = retrying!(self.inner.summary(id));
        let summary = summary.map_err(|trouble| self.inner.failed("reading", id, trouble))?;
        Ok(summary.unwrap_or_default())
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let put = self.inner.put_summary(id, expected, summary).await;
        let put = put.map_err(|trouble| self.inner.failed("changing", id, trouble))?;
        put.ok_or_else(|| self.inner.missing(id))
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        self.inner.delete(id).await
    }

    async fn put_blob(&self, id: &BlobId, bytes: &[u8]) -> Result<(), BackendError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(0);
        retrying!(blobs::put(&self.inner.db, id, bytes, now))
            .map_err(|trouble| self.inner.blob_failed(id, trouble))
    }

    async fn get_blob(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BackendError> {
        retrying!(blobs::get(&self.inner.db, id))
            .map_err(|trouble| self.inner.blob_failed(id, trouble))
    }

    async fn blobs(&self) -> Result<Vec<BlobStat>, BackendError> {
        let what = || format!("listing blobs in {}", self.inner.db.place);
        retrying!(blobs::all(&self.inner.db)).map_err(|trouble| trouble.backend(what()))
    }

    async fn delete_blob(&self, stat: &BlobStat) -> Result<bool, BackendError> {
        retrying!(blobs::delete(&self.inner.db, stat))
            .map_err(|trouble| self.inner.blob_failed(&stat.id, trouble))
    }

    async fn blob_names(
        &self,
        id: &SessionId,
        found: &mut HashSet<BlobId>,
    ) -> Result<(), BackendError> {
        let read = retrying!(read::blob_names(&self.inner.db, id, found));
        match read.map_err(|trouble| self.inner.failed("reading", id, trouble))? {
            true => Ok(()),
            false => Err(self.inner.missing(id)),
        }
    }

    async fn import(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Ok(Box::new(PgImport::begin(&self.inner, id).await?))
    }

    async fn replace(&self, id: &SessionId) -> Result<Box<dyn Import>, ClaimError> {
        Ok(Box::new(PgImport::replacing(&self.inner, id).await?))
    }
}
