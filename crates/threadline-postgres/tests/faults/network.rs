//! Connections that are cut while something is under way.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use threadline_postgres::{PostgresBackend, PostgresOptions};
use threadline_store::{Backend, WriteError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use crate::{
    kit::{CLUSTER, World, append, created, holds, id},
    support::{until, url},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    /// The next answer is not passed on, and its connection is cut.
    Swallow,
    /// As before, and from then on nobody gets through.
    SwallowAll,
    Closed,
}

/// Stands between a backend and the server.
struct Proxy {
    folder: TempDir,
    mode: Arc<Mutex<Mode>>,
    closed: watch::Sender<bool>,
}

impl Proxy {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let (closed, _) = watch::channel(false);
        let proxy = Self {
            folder,
            mode: mode.clone(),
            closed: closed.clone(),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, mode.clone(), closed.clone()));
            }
        });
        proxy
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
        self.closed.send_replace(mode == Mode::Closed);
    }

    async fn backend(&self, options: &PostgresOptions) -> PostgresBackend {
        PostgresBackend::connect(&url(self.folder.path()), options.clone())
            .await
            .unwrap()
    }
}

async fn pass(client: UnixStream, mode: Arc<Mutex<Mode>>, closed: watch::Sender<bool>) {
    let mut cut = closed.subscribe();
    let server = UnixStream::connect(CLUSTER.folder().join(".s.PGSQL.5432"))
        .await
        .unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let ask = tokio::io::copy(&mut from_client, &mut to_server);
    let answer = async {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count) = from_server.read(&mut bytes).await {
            let now = next_mode(&mode);
            if now == Mode::SwallowAll {
                closed.send_replace(true);
            }
            if now != Mode::Pass {
                return;
            }
            if count == 0 || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = ask => {}
        () = answer => {}
        _ = cut.wait_for(|closed| *closed) => {}
    }
}

/// Returns how an answer is treated, and notes how the next one will be.
fn next_mode(mode: &Mutex<Mode>) -> Mode {
    let mut mode = mode.lock().unwrap();
    let now = *mode;
    *mode = match now {
        Mode::Pass | Mode::Swallow => Mode::Pass,
        Mode::SwallowAll | Mode::Closed => Mode::Closed,
    };
    now
}

fn quiet() -> PostgresOptions {
    PostgresOptions {
        notify: false,
        // So that no renewal comes in between.
        lease: Duration::from_secs(600),
        ..CLUSTER.options()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_was_lost_is_found_and_not_stored_twice() {
    let world = World::with(quiet()).await;
    let proxy = Proxy::start();
    let backend = proxy.backend(&world.options).await;
    let mut writer = created(&backend, "s", 1).await;
    append(&mut writer, 1, 2).await.unwrap();
    proxy.set(Mode::Swallow);
    append(&mut writer, 3, 2).await.unwrap();
    assert_eq!(*proxy.mode.lock().unwrap(), Mode::Pass);
    let epoch = "SELECT epoch FROM sessions";
    assert_eq!(
        world.number(epoch).await,
        1,
        "it was looked for, not stored again"
    );
    append(&mut writer, 5, 2).await.unwrap();
    holds(&world.backend, &id("s"), 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_be_looked_for_has_an_unknown_outcome() {
    let world = World::with(PostgresOptions {
        outcome_wait: Duration::from_millis(200),
        ..quiet()
    })
    .await;
    let proxy = Proxy::start();
    let backend = proxy.backend(&world.options).await;
    let mut writer = created(&backend, "s", 1).await;
    append(&mut writer, 1, 2).await.unwrap();
    proxy.set(Mode::SwallowAll);
    for _ in 0..2 {
        let outcome = append(&mut writer, 3, 2).await;
        assert!(
            matches!(outcome, Err(WriteError::UnknownOutcome { .. })),
            "{outcome:?}"
        );
    }
    proxy.set(Mode::Pass);
    drop(writer);
    // It was stored, as whoever asks again finds.
    holds(&backend, &id("s"), 5).await;
    drop(backend.claim(&id("s")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_connection_is_ended_is_done_once_on_another() {
    let world = World::with(quiet()).await;
    let mut writer = created(&world.backend, "s", 1).await;
    append(&mut writer, 1, 2).await.unwrap();
    for first in [3, 5, 7] {
        // The append waits for the row while its connection is ended.
        let lock = "BEGIN; SELECT 1 FROM sessions FOR UPDATE";
        world.sql.batch_execute(lock).await.unwrap();
        let appending = tokio::spawn(async move {
            let outcome = append(&mut writer, first, 2).await;
            (writer, outcome)
        });
        let beside = CLUSTER.sql(&world.options.schema).await;
        let end = format!(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND query LIKE 'WITH head AS%' AND pid IN (\
                 SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}')) ended",
            world.options.schema
        );
        until("the append waits", async || {
            let row = beside.query_one(&end, &[]).await.unwrap();
            (row.get::<_, i64>(0) > 0).then_some(())
        })
        .await;
        world.sql.batch_execute("COMMIT").await.unwrap();
        let (back, outcome) = appending.await.unwrap();
        outcome.unwrap();
        writer = back;
    }
    holds(&world.backend, &id("s"), 9).await;
    assert!(world.number("SELECT epoch FROM sessions").await > 1);
}

/// Waits for a change of a session, and returns how long that took.
async fn woken(backend: PostgresBackend) -> Duration {
    let start = Instant::now();
    backend.changed(&id("s")).await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_elsewhere_is_woken_and_without_that_looks_by_itself() {
    const NEVER: Duration = Duration::from_secs(3600);
    let world = World::with(PostgresOptions {
        poll: NEVER,
        ..CLUSTER.options()
    })
    .await;
    let mut writer = created(&world.backend, "s", 1).await;
    let other = world.again().await;
    let mut next = 1;
    for cut in [false, true] {
        if cut {
            // Whoever listens is cut off. That is no error: what is missed is found by looking.
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE query LIKE 'LISTEN %'";
            world.sql.query(end, &[]).await.unwrap();
        }
        let waiting = tokio::spawn(woken(other.clone()));
        until("the follower is woken", async || {
            append(&mut writer, next, 1).await.unwrap();
            next += 1;
            waiting.is_finished().then_some(())
        })
        .await;
        assert!(waiting.await.unwrap() < NEVER);
    }

    let silent = World::with(PostgresOptions {
        notify: false,
        poll: Duration::from_millis(5),
        ..world.options.clone()
    })
    .await;
    assert!(woken(silent.backend.clone()).await >= Duration::from_millis(5));
    let told = silent.store().follow(&id("s"), None).next().await;
    told.unwrap();
}
