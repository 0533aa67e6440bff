//! What the tests share.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_session::{Event, Header, OsPath, SessionId, codec::Line};
use threadline_sqlite::{SqliteBackend, SqliteError, SqliteOptions};
use threadline_store::{
    AppendOptions, Backend, BackendError, Entry, NewLog, OpenError, ReadPos, SessionStore,
    SessionWriter, StoreOptions, Writer,
};

/// A database in a folder of its own.
pub(crate) struct Db {
    pub(crate) dir: tempfile::TempDir,
}

impl Db {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("sessions.sqlite")
    }

    pub(crate) fn open(&self) -> Arc<SqliteBackend> {
        open(&self.path())
    }

    pub(crate) fn store(&self) -> SessionStore {
        store(self.open())
    }

    /// A connection beside the product, for looking and for breaking things.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        let conn = rusqlite::Connection::open(self.path()).unwrap();
        conn.busy_timeout(std::time::Duration::from_secs(20))
            .unwrap();
        conn
    }

    pub(crate) fn count(&self, what: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {what}");
        self.raw().query_row(&sql, [], |row| row.get(0)).unwrap()
    }
}

pub(crate) fn open(path: &Path) -> Arc<SqliteBackend> {
    Arc::new(SqliteBackend::open(path, SqliteOptions::default()).unwrap())
}

pub(crate) fn store(backend: Arc<SqliteBackend>) -> SessionStore {
    SessionStore::new(backend, StoreOptions::default())
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn header(id: &SessionId) -> Header {
    Header::new(id.clone(), 1_700_000_000_000, OsPath::from("/work"))
}

/// Creates a session and stores these events.
pub(crate) async fn stored(store: &SessionStore, of: &str, events: Vec<Event>) -> SessionWriter {
    let writer = store.create(header(&id(of))).await.unwrap();
    writer
        .append(0, events, AppendOptions::barrier())
        .await
        .unwrap();
    writer
}

pub(crate) async fn load(store: &SessionStore, of: &str) -> Result<SessionWriter, OpenError> {
    let loaded = Box::pin(store.load(&id(of))).await;
    loaded.map(|loaded| loaded.writer)
}

/// Everything that can be read of a session, damage included.
pub(crate) async fn entries(backend: &dyn Backend, of: &str) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut pos = ReadPos::default();
    loop {
        let page = backend.page(&id(of), pos, 100).await.unwrap();
        all.extend(page.entries);
        if page.end {
            return all;
        }
        assert!(page.next != pos, "the pages go round in circles");
        pos = page.next;
    }
}

pub(crate) async fn lines(backend: &dyn Backend, of: &str) -> Vec<Line> {
    let lines = entries(backend, of).await.into_iter();
    lines
        .filter_map(|entry| match entry {
            Entry::Line(line, _) => Some(line),
            Entry::Header(_) => None,
            Entry::Damage(damage) => panic!("{damage}"),
        })
        .collect()
}

/// The whole log as one file would hold it.
pub(crate) async fn bytes(backend: &dyn Backend, of: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries(backend, of).await {
        match entry {
            Entry::Header(line) => bytes.extend(line),
            Entry::Line(line, place) => {
                assert_eq!(place.at, bytes.len() as u64);
                bytes.extend(line.raw);
                bytes.push(b'\n');
                assert_eq!(place.at + u64::from(place.len), bytes.len() as u64);
            }
            Entry::Damage(damage) => panic!("{damage}"),
        }
    }
    bytes
}

/// A line that says what it is, with the number that it should have.
pub(crate) fn line(seq: u64, text: &str) -> Vec<u8> {
    format!("{{\"seq\":{seq},\"time\":1,\"type\":\"test/line\",\"data\":{{\"t\":\"{text}\"}},\"ignorable\":true}}\n")
        .into_bytes()
}

pub(crate) fn new_log(of: &str, batch: Vec<u8>, last_seq: Option<u64>) -> NewLog {
    NewLog {
        header_line: header(&id(of)).encode().unwrap(),
        batch,
        last_seq,
        parent: None,
    }
}

/// Creates a session below the store.
pub(crate) async fn created(backend: &SqliteBackend, of: &str, texts: &[&str]) -> Box<dyn Writer> {
    let batch = texts
        .iter()
        .zip(0..)
        .flat_map(|(text, seq)| line(seq, text));
    let new = new_log(of, batch.collect(), (texts.len() as u64).checked_sub(1));
    backend.create(&id(of), new).await.unwrap()
}

/// What is wrong with the database, as this crate says it.
pub(crate) fn cause(error: &BackendError) -> &SqliteError {
    error
        .source
        .downcast_ref()
        .unwrap_or_else(|| panic!("{error}"))
}
