//! Following what another process writes: soon, and without looking all the time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use threadline_jsonl::{JsonlBackend, JsonlOptions, limits::WATCHED_POLL_INTERVAL};
use threadline_session::{
    Header, OsPath, Payload, RunId, SessionId,
    payload::{ContentPart, UserMessage, UserSource},
};
use threadline_store::{
    AppendOptions, Backend, BackendError, Follow, Followed, Page, ReadPos, SessionStore,
    SessionWriter, Stat, StoreOptions, contract::Wrapped,
};

fn open(root: &Path) -> JsonlBackend {
    JsonlBackend::open(root, JsonlOptions::default()).unwrap()
}

fn store(backend: impl Backend) -> SessionStore {
    SessionStore::new(Arc::new(backend), StoreOptions::default())
}

/// A backend that counts how often it is asked.
struct Counting {
    below: JsonlBackend,
    stats: Arc<AtomicU64>,
    pages: Arc<AtomicU64>,
}

#[async_trait]
impl Wrapped for Counting {
    fn inner(&self) -> &dyn Backend {
        &self.below
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        self.stats.fetch_add(1, Ordering::Relaxed);
        self.below.stat(id).await
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.below.page(id, from, max_bytes).await
    }
}

fn note() -> Vec<Payload> {
    vec![Payload::UserMessage(UserMessage {
        content: vec![ContentPart::text("x")],
        source: UserSource::User,
    })]
}

async fn session(store: &SessionStore) -> (SessionId, SessionWriter) {
    let id = SessionId::from_first_run(&RunId::from_uuid(uuid::Uuid::now_v7()));
    let header = Header::new(id.clone(), 1, OsPath::from(Path::new("/w").to_owned()));
    let writer = store.create(header).await.unwrap();
    writer
        .record(note(), AppendOptions::default())
        .await
        .unwrap();
    (id, writer)
}

async fn line(follow: &mut Follow) -> u64 {
    loop {
        if let Followed::Line(line) = follow.next().await.unwrap() {
            return line.event.seq;
        }
    }
}

#[tokio::test]
async fn what_another_process_appends_is_told_long_before_anybody_would_look() {
    let dir = tempfile::tempdir().unwrap();
    let (id, writer) = session(&store(open(dir.path()))).await;
    let mut follow = store(open(dir.path())).follow(&id, None);
    assert_eq!(line(&mut follow).await, 0);
    let begun = Instant::now();
    let appends = 40;
    for seq in 1..=appends {
        let wait = tokio::spawn(async move {
            let seq = line(&mut follow).await;
            (follow, seq)
        });
        // The follower waits by now, or will look after the append.
        tokio::task::yield_now().await;
        writer
            .record(note(), AppendOptions::default())
            .await
            .unwrap();
        let (back, got) = wait.await.unwrap();
        assert_eq!(got, seq);
        follow = back;
    }
    let took = begun.elapsed();
    println!("{appends} appends were followed in {took:?}");
    // A quarter of what looking now and then takes.
    assert!(took < WATCHED_POLL_INTERVAL * 10, "{took:?}");
}

/// The clock is the test's: it goes on whenever everybody waits.
#[tokio::test(start_paused = true)]
async fn an_idle_session_is_hardly_ever_looked_at_and_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let (id, writer) = session(&store(open(dir.path()))).await;
    let counting = Counting {
        below: open(dir.path()),
        stats: Arc::default(),
        pages: Arc::default(),
    };
    let (stats, pages) = (counting.stats.clone(), counting.pages.clone());
    let mut follow = store(counting).follow(&id, None);
    assert_eq!(line(&mut follow).await, 0);
    assert!(matches!(follow.next().await, Ok(Followed::CaughtUp { .. })));
    let before = [&stats, &pages].map(|count| count.load(Ordering::Relaxed));
    let idle = tokio::time::timeout(Duration::from_secs(60), line(&mut follow)).await;
    assert!(idle.is_err());
    let after = [&stats, &pages].map(|count| count.load(Ordering::Relaxed));
    println!("in a minute: {} looks", after[0] - before[0]);
    assert!(after[0] - before[0] <= 62, "{before:?} {after:?}");
    assert_eq!(after[1], before[1], "nothing is read");
    writer
        .record(note(), AppendOptions::default())
        .await
        .unwrap();
    assert_eq!(line(&mut follow).await, 1);
}
