//! Blobs: kept by the hash of their bytes for as long as something names them.

use std::{sync::Arc, time::Duration};

use threadline_session::{Event, SessionId};

use super::{
    Fixture, events, load, new_id, plain, record, refused,
    script::{
        calls, events_from, picture, step_start, tool_result_in, tool_start, turn_start, user,
        vendor, whole_turn,
    },
    sound, still, stored,
};
use crate::{
    BlobError, BlobId, Clock, GcReport, SessionStore, SystemClock,
    limits::{BLOB_GRACE, MAX_BLOB_BYTES},
};

/// A store whose clock is further on than any blob put now may stay without a name.
fn later(fixture: &Fixture) -> SessionStore {
    let grace = u64::try_from((BLOB_GRACE + Duration::from_secs(60)).as_millis()).unwrap();
    fixture.reopened_with(still(SystemClock.now_ms() + grace))
}

/// A store whose clock is about right.
fn now(fixture: &Fixture) -> SessionStore {
    fixture.reopened_with(still(SystemClock.now_ms()))
}

async fn put(store: &SessionStore, text: &str) -> BlobId {
    store.put_blob(text.as_bytes()).await.unwrap()
}

fn sorted(mut ids: Vec<BlobId>) -> Vec<BlobId> {
    ids.sort();
    ids
}

async fn there(fixture: &Fixture) -> Vec<BlobId> {
    let blobs = (fixture.reopen)().blobs().await.unwrap();
    sorted(blobs.into_iter().map(|blob| blob.id).collect())
}

/// A turn in the middle of which a tool answers with a blob.
fn turn_naming(blob: &BlobId) -> Vec<Event> {
    events_from(
        0,
        &[
            turn_start(1),
            user("do it"),
            step_start(1, 1),
            calls(1, 1, &["a"]),
            tool_start("a"),
            tool_result_in("a", blob.as_str()),
        ],
    )
}

/// Blobs of any size and bytes come back as they were, are kept once, and are named by their bytes.
pub async fn a_blob_comes_back_byte_for_byte(fixture: Fixture) {
    let store = fixture.store();
    let blobs = [
        Vec::new(),
        vec![0],
        b"\n\r\n\0{}".to_vec(),
        (0..=255).collect(),
        vec![0xab; 3 << 20],
    ];
    let mut ids = Vec::new();
    for bytes in &blobs {
        let id = store.put_blob(bytes).await.unwrap();
        assert_eq!(id, BlobId::of(bytes));
        assert_eq!(store.put_blob(bytes).await.unwrap(), id);
        ids.push(id);
    }
    for store in [&store, &fixture.reopened()] {
        for (id, bytes) in ids.iter().zip(&blobs) {
            assert_eq!(&store.get_blob(id).await.unwrap(), bytes);
        }
    }
    let mut stats = (fixture.reopen)().blobs().await.unwrap();
    assert_eq!(stats.len(), blobs.len());
    stats.sort_by_key(|stat| stat.bytes);
    let sizes: Vec<u64> = stats.iter().map(|stat| stat.bytes).collect();
    assert_eq!(sizes, [0, 1, 6, 256, 3 << 20]);
    // Blobs are no sessions.
    assert!(store.ids().await.unwrap().is_empty());
}

/// A blob that is not there is told as such, with its name.
pub async fn a_blob_that_is_not_there_is_told(fixture: Fixture) {
    let store = fixture.store();
    let missing = BlobId::of(b"missing");
    for _ in 0..2 {
        let error = store.get_blob(&missing).await.unwrap_err();
        assert!(error.to_string().contains(missing.as_str()), "{error}");
        refused!(
            Err::<(), _>(error),
            BlobError::NotFound { id, .. } => assert_eq!(id, missing)
        );
        put(&store, "another").await;
    }
}

/// Bytes that are not those of the name are never given out; putting the right ones mends it.
pub async fn a_damaged_blob_is_told(fixture: Fixture) {
    let store = fixture.store();
    let id = BlobId::of(b"the right bytes");
    for wrong in [&b"the wrong bytes"[..], b"", b"the right bytes and more"] {
        fixture.backend.put_blob(&id, wrong).await.unwrap();
        for store in [&store, &fixture.reopened()] {
            refused!(
                store.get_blob(&id).await,
                BlobError::Damaged { id: told } => assert_eq!(told, id)
            );
        }
        put(&store, "the right bytes").await;
        let read = fixture.reopened().get_blob(&id).await;
        assert_eq!(read.unwrap(), b"the right bytes", "after {wrong:?}");
    }
}

/// A blob over the limit is refused before anything of it is stored.
pub async fn a_blob_over_the_limit_is_refused(fixture: Fixture) {
    let store = fixture.store();
    let bytes = refused!(
        store.put_blob(&vec![0; MAX_BLOB_BYTES + 1]).await,
        BlobError::TooLarge { bytes } => bytes
    );
    assert_eq!(bytes, MAX_BLOB_BYTES + 1);
    assert!(there(&fixture).await.is_empty());
}

/// What no log names is said when asked, and removed when told to: that, and nothing else.
pub async fn blobs_that_nothing_names_are_removed(fixture: Fixture) {
    let store = fixture.store();
    let empty = later(&fixture).gc(false).await.unwrap();
    assert_eq!(empty, GcReport::default());
    let (named, one, two) = (
        put(&store, "named").await,
        put(&store, "one").await,
        put(&store, "twofold").await,
    );
    let id = new_id();
    let writer = stored(&store, &id, turn_naming(&named)).await;
    let all = there(&fixture).await;
    assert_eq!(all.len(), 3);
    let mut wanted = GcReport {
        dry_run: true,
        sessions: 1,
        kept: 1,
        young: 0,
        removed: sorted(vec![one.clone(), two.clone()]),
        removed_bytes: 10,
    };
    for dry_run in [true, true, false] {
        let mut report = later(&fixture).gc(dry_run).await.unwrap();
        report.removed = sorted(report.removed);
        wanted.dry_run = dry_run;
        assert_eq!(report, wanted);
        let left = if dry_run {
            all.clone()
        } else {
            vec![named.clone()]
        };
        assert_eq!(there(&fixture).await, left);
    }
    for gone in [&one, &two] {
        refused!(
            fixture.reopened().get_blob(gone).await,
            BlobError::NotFound { .. }
        );
    }
    assert_eq!(store.get_blob(&named).await.unwrap(), b"named");
    let nothing = later(&fixture).gc(false).await.unwrap();
    assert_eq!((nothing.kept, nothing.removed.len()), (1, 0));
    drop(writer);
    sound(&store, &id).await;
}

/// Whatever in a log names a blob keeps it: a tool's result, a picture, an event of a plug-in.
pub async fn blobs_that_a_log_names_are_kept(fixture: Fixture) {
    let store = fixture.store();
    let (full, image, plugin) = (
        put(&store, "full output").await,
        put(&store, "a picture").await,
        put(&store, "of a plug-in").await,
    );
    let unnamed = put(&store, "nobody's").await;
    let id = new_id();
    let writer = stored(&store, &id, turn_naming(&full)).await;
    record(&writer, vec![picture(image.as_str())]).await;
    let deep = format!("{{\"a\":[{{\"b\":\"see {plugin}!\"}}]}}");
    writer
        .append(7, vec![vendor(7, &deep, true)], plain())
        .await
        .unwrap();
    // Also while it is written, and also what is not on the surface any more.
    for round in 0..3 {
        let report = later(&fixture).gc(false).await.unwrap();
        assert_eq!(report.kept, 3);
        let removed = if round == 0 {
            vec![unnamed.clone()]
        } else {
            Vec::new()
        };
        assert_eq!(report.removed, removed);
        if round == 0 {
            record(&writer, vec![super::script::turn_end(1)]).await;
            writer.rewind(0).await.unwrap();
        }
    }
    drop(writer);
    let wanted = sorted(vec![full.clone(), image.clone(), plugin.clone()]);
    assert_eq!(there(&fixture).await, wanted);
    store.delete(&id).await.unwrap();
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!(sorted(report.removed), wanted);
    assert!(there(&fixture).await.is_empty());
}

/// What a fork shares with its parent keeps its blobs after the parent is gone; what only the parent
/// had does not.
pub async fn blobs_of_a_fork_outlive_its_parent(fixture: Fixture) {
    let store = fixture.store();
    let (shared, only) = (put(&store, "shared").await, put(&store, "only").await);
    let (parent, child) = (new_id(), new_id());
    let writer = stored(&store, &parent, turn_naming(&shared)).await;
    record(&writer, vec![picture(only.as_str())]).await;
    store.fork(&parent, Some(5), child.clone()).await.unwrap();
    let grandchild = fork_on(&fixture, &child).await;
    drop(writer);
    store.delete(&parent).await.unwrap();
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!((report.kept, report.removed), (1, vec![only]));
    store.delete(&child).await.unwrap();
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!((report.kept, report.removed.len()), (1, 0));
    assert_eq!(store.get_blob(&shared).await.unwrap(), b"shared");
    store.delete(&grandchild).await.unwrap();
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!((report.kept, report.removed), (0, vec![shared]));
}

/// Continues a session and forks it at its end.
async fn fork_on(fixture: &Fixture, id: &SessionId) -> SessionId {
    let store = fixture.reopened();
    let writer = load(&store, id).await.writer;
    let next = writer.next_seq().await;
    let more = whole_turn(next, 2, "more");
    writer.append(next, more, plain()).await.unwrap();
    let child = new_id();
    store.fork(id, None, child.clone()).await.unwrap();
    child
}

/// A session that was taken over names what it named before.
pub async fn blobs_outlive_a_take_over(fixture: Fixture) {
    let store = fixture.store();
    let (before, behind) = (put(&store, "before").await, put(&store, "behind").await);
    let id = new_id();
    let old = stored(&store, &id, turn_naming(&before)).await;
    let new = fixture.reopened().take_over(&id).await.unwrap().writer;
    record(&new, vec![picture(behind.as_str())]).await;
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!((report.kept, report.removed.len()), (2, 0));
    drop((old, new));
    sound(&store, &id).await;
}

/// A blob is put before an event names it, so one that was put just now stays.
pub async fn young_blobs_are_kept(fixture: Fixture) {
    let store = fixture.store();
    let young = put(&store, "young").await;
    let before = still(SystemClock.now_ms() - 3_600_000);
    for store in [now(&fixture), fixture.reopened_with(before)] {
        for dry_run in [true, false] {
            let report = store.gc(dry_run).await.unwrap();
            assert_eq!((report.young, report.kept), (1, 0));
            assert_eq!(report.removed, []);
        }
    }
    assert_eq!(there(&fixture).await, std::slice::from_ref(&young));
    let report = later(&fixture).gc(false).await.unwrap();
    assert_eq!((report.young, report.removed), (0, vec![young]));
}

/// Who looked at a blob before it was put again does not remove it.
pub async fn a_blob_put_again_is_not_removed_by_an_older_look(fixture: Fixture) {
    let store = fixture.store();
    let id = put(&store, "again").await;
    let backend = (fixture.reopen)();
    let old = backend.blobs().await.unwrap().remove(0);
    let new = loop {
        assert_eq!(put(&store, "again").await, id);
        let new = backend.blobs().await.unwrap().remove(0);
        if new.put_at != old.put_at {
            break new;
        }
        tokio::task::yield_now().await;
    };
    assert!(new.put_at > old.put_at);
    assert!(!backend.delete_blob(&old).await.unwrap());
    assert_eq!(store.get_blob(&id).await.unwrap(), b"again");
    assert!(backend.delete_blob(&new).await.unwrap());
    assert!(!backend.delete_blob(&new).await.unwrap());
    assert!(there(&fixture).await.is_empty());
}

/// Blobs put and removed at the same time: what is named is there afterwards.
pub async fn clearing_away_takes_nothing_that_is_being_named(fixture: Fixture) {
    let store = Arc::new(fixture.store());
    let clearing = later(&fixture);
    let task = tokio::spawn(async move {
        for _ in 0..20 {
            clearing.gc(false).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    // Named before it is put again, as the same output of a tool is.
    let blob = BlobId::of(b"output");
    record(&writer, vec![picture(blob.as_str())]).await;
    for _ in 0..20 {
        put(&store, "output").await;
        tokio::task::yield_now().await;
    }
    task.await.unwrap();
    assert_eq!(store.get_blob(&blob).await.unwrap(), b"output");
    assert_eq!(events(&store, &id).await.len(), 8);
}
