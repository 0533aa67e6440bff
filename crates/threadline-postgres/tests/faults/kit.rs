//! What the cases share.

use std::sync::{Arc, LazyLock};

use threadline_postgres::{PostgresBackend, PostgresOptions};
use threadline_session::{
    Event, Header, OsPath, SessionId,
    chain::Chain,
    codec::{Encoder, Line},
};
use threadline_store::{
    Backend, Entry, LogEnd, NewLog, ReadPos, SessionStore, StoreOptions, WriteError, Writer,
};

use crate::support::Cluster;

/// Stopped when the process ends.
pub(crate) static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// A schema of its own, with a backend and a connection beside it.
pub(crate) struct World {
    pub(crate) options: PostgresOptions,
    pub(crate) backend: PostgresBackend,
    pub(crate) sql: tokio_postgres::Client,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(CLUSTER.options()).await
    }

    pub(crate) async fn with(options: PostgresOptions) -> Self {
        let backend = CLUSTER.backend(&options).await;
        let sql = CLUSTER.sql(&options.schema).await;
        Self {
            options,
            backend,
            sql,
        }
    }

    /// Opens the same schema once more, as another process would.
    pub(crate) async fn again(&self) -> PostgresBackend {
        CLUSTER.backend(&self.options).await
    }

    pub(crate) fn store(&self) -> SessionStore {
        SessionStore::new(Arc::new(self.backend.clone()), StoreOptions::default())
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn header(id: &SessionId) -> Header {
    Header::new(id.clone(), 1, OsPath::from("/w"))
}

/// Lines of some events that nobody knows, numbered from `first`.
pub(crate) fn batch(first: u64, count: u64) -> Vec<u8> {
    let events: Vec<Event> = (first..first + count)
        .map(|seq| {
            let data = format!("{{\"n\":{seq},\"text\":\"\\u0000 \u{e9}\"}}");
            Event::from_json(seq, 1, "vendor/note", &data, true).unwrap()
        })
        .collect();
    let mut encoder = Encoder::new(Chain::new());
    encoder.batch(first, &events, None).unwrap().bytes
}

pub(crate) fn new_log(id: &SessionId, count: u64) -> NewLog {
    NewLog {
        header_line: header(id).encode().unwrap(),
        batch: batch(0, count),
        last_seq: count.checked_sub(1),
        parent: None,
    }
}

/// Creates a session with some events.
pub(crate) async fn created(backend: &PostgresBackend, name: &str, count: u64) -> Box<dyn Writer> {
    let id = id(name);
    backend.create(&id, new_log(&id, count)).await.unwrap()
}

/// Appends to a writer.
pub(crate) async fn append(
    writer: &mut Box<dyn Writer>,
    first: u64,
    count: u64,
) -> Result<u64, WriteError> {
    writer
        .append(batch(first, count), first + count - 1, true)
        .await
}

/// Begins where the log ends.
pub(crate) async fn begin(
    backend: &PostgresBackend,
    id: &SessionId,
    writer: &mut Box<dyn Writer>,
) -> u64 {
    let next = lines(backend, id).await.len() as u64;
    let end = LogEnd {
        next: ReadPos::at(next),
        torn: None,
    };
    writer.begin(end).await.unwrap();
    next
}

/// Reads everything.
pub(crate) async fn entries(backend: &dyn Backend, id: &SessionId) -> Vec<Entry> {
    let (mut entries, mut pos) = (Vec::new(), ReadPos::default());
    loop {
        let page = backend.page(id, pos, 1 << 16).await.unwrap();
        entries.extend(page.entries);
        if page.end {
            return entries;
        }
        assert_ne!(pos, page.next);
        pos = page.next;
    }
}

/// Reads all lines, which must be numbered without a gap.
pub(crate) async fn lines(backend: &dyn Backend, id: &SessionId) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in entries(backend, id).await {
        match entry {
            Entry::Header(_) => {}
            Entry::Line(line, _) => {
                assert_eq!(line.event.seq, lines.len() as u64);
                lines.push(line);
            }
            Entry::Damage(damage) => panic!("{damage}"),
        }
    }
    lines
}

/// Checks that a log is exactly the batches of [`batch`] up to an event.
pub(crate) async fn holds(backend: &dyn Backend, id: &SessionId, count: u64) {
    let found = lines(backend, id).await;
    assert_eq!(found.len() as u64, count);
    for line in found {
        assert!(line.verified);
        let data = line.event.data.get();
        assert!(data.contains(&format!("\"n\":{},", line.event.seq)));
    }
}
