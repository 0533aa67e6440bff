//! At most one writer, over all backends and processes.

use threadline_store::{
    Backend as _, BlobId, ClaimError, LogEnd, ReadPos, WriteError, contract::script::whole_turn,
};

use crate::support::{Db, created, id, line, lines, load, store, stored};

#[tokio::test]
async fn two_backends_of_one_process_exclude_each_other() {
    let db = Db::new();
    let (one, two) = (db.open(), db.open());
    let writer = created(&one, "s", &["0"]).await;
    for backend in [&one, &two] {
        let Err(ClaimError::Locked { holder }) = backend.claim(&id("s")).await else {
            panic!("it is locked");
        };
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.host.is_empty() && holder.since > 0);
        let stat = backend.stat(&id("s")).await.unwrap().unwrap();
        assert_eq!(stat.writer, Some(holder));
    }
    drop(writer);
    let again = two.claim(&id("s")).await.unwrap();
    assert!(matches!(
        one.delete(&id("s")).await,
        Err(ClaimError::Locked { .. })
    ));
    drop(again);
    one.delete(&id("s")).await.unwrap();
    assert!(matches!(
        two.claim(&id("s")).await,
        Err(ClaimError::NotFound)
    ));
}

#[tokio::test]
async fn who_was_taken_over_stores_nothing_any_more() {
    let db = Db::new();
    let (one, two) = (db.open(), db.open());
    let mut old = created(&one, "s", &["0"]).await;
    let mut new = two.take_over(&id("s")).await.unwrap();
    let end = LogEnd {
        next: ReadPos::at(1),
        torn: None,
    };
    new.begin(end).await.unwrap();
    let told = old.append(line(1, "old"), 1, true).await.unwrap_err();
    let WriteError::Fenced { by } = &told else {
        panic!("{told}");
    };
    assert!(by.contains(&std::process::id().to_string()), "{by}");
    assert!(matches!(old.sync().await, Err(WriteError::Fenced { .. })));
    old.put_checkpoint(b"old").await.unwrap();
    assert_eq!(two.checkpoint(&id("s"), u64::MAX).await.unwrap(), None);
    new.append(line(1, "new"), 1, true).await.unwrap();
    // What the old one lets go of is not the new one's.
    drop(old);
    assert!(one.stat(&id("s")).await.unwrap().unwrap().writer.is_some());
    assert_eq!(
        lines(&*one, "s").await[1].raw,
        line(1, "new").strip_suffix(b"\n").unwrap()
    );
    drop(new);
    one.delete(&id("s")).await.unwrap();
}

#[tokio::test]
async fn whoever_writes_a_deleted_session_is_fenced() {
    let db = Db::new();
    let backend = db.open();
    let mut old = created(&backend, "s", &["0"]).await;
    drop(backend.take_over(&id("s")).await.unwrap());
    backend.delete(&id("s")).await.unwrap();
    drop(created(&backend, "s", &["another"]).await);
    let told = old.append(line(1, "old"), 1, false).await.unwrap_err();
    assert!(matches!(told, WriteError::Fenced { .. }), "{told}");
    assert_eq!(lines(&*backend, "s").await.len(), 1);
}

#[tokio::test]
async fn a_log_that_grew_since_it_was_read_is_not_continued() {
    let db = Db::new();
    let backend = db.open();
    drop(created(&backend, "s", &["0"]).await);
    let mut writer = backend.claim(&id("s")).await.unwrap();
    let end = LogEnd {
        next: ReadPos::at(0),
        torn: None,
    };
    let told = writer.begin(end).await.unwrap_err();
    assert!(matches!(told, WriteError::Poisoned { .. }), "{told}");
}

/// Gives the session's lease to somebody else.
fn hold_as(db: &Db, changes: &str) {
    let conn = db.raw();
    conn.execute(&format!("UPDATE holders SET {changes}"), [])
        .unwrap();
}

#[tokio::test]
async fn a_lease_ends_with_its_process_its_machine_or_its_time() {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    for (changes, is_free) in [
        // Another process with a pid that was used again.
        ("started = started + 1".to_owned(), true),
        // A pid that nobody has.
        ("pid = 4194304 + 7".to_owned(), true),
        // The machine was started anew.
        ("boot = 'another'".to_owned(), true),
        // A container of this machine, which cannot be looked at.
        (format!("space = 'another', beat = {now}"), false),
        ("space = 'another', beat = 1000".to_owned(), true),
        // Another machine.
        (
            format!("boot = 'another', host = 'far', beat = {now}"),
            false,
        ),
        (
            "boot = 'another', host = 'far', beat = 1000".to_owned(),
            true,
        ),
    ] {
        let db = Db::new();
        let one = db.open();
        let _writer = created(&one, "s", &["0"]).await;
        hold_as(&db, &changes);
        let two = db.open();
        let stat = two.stat(&id("s")).await.unwrap().unwrap();
        assert_eq!(stat.writer.is_none(), is_free, "{changes}");
        let claimed = two.claim(&id("s")).await;
        assert_eq!(claimed.is_ok(), is_free, "{changes}");
    }
}

#[tokio::test]
async fn writers_of_many_backends_take_their_turns() {
    let db = Db::new();
    let tasks: Vec<_> = (0..6)
        .map(|n| {
            let store = store(db.open());
            tokio::spawn(async move {
                let name = format!("s{n}");
                let writer = stored(&store, &name, whole_turn(0, 1, "one")).await;
                for turn in 2..=6 {
                    let next = writer.next_seq().await;
                    writer
                        .append(
                            next,
                            whole_turn(next, turn, "more"),
                            threadline_store::AppendOptions::barrier(),
                        )
                        .await
                        .unwrap();
                }
                name
            })
        })
        .collect();
    let store = db.store();
    for task in tasks {
        let name = task.await.unwrap();
        assert_eq!(load(&store, &name).await.unwrap().next_seq().await, 42);
        assert!(store.verify(&id(&name)).await.unwrap().ok);
    }
}

#[tokio::test]
async fn an_append_without_a_sync_is_acknowledged_by_the_next_sync() {
    let db = Db::new();
    let backend = db.open();
    let mut writer = created(&backend, "s", &["0"]).await;
    let acknowledged = || async { backend.stat(&id("s")).await.unwrap().unwrap().acknowledged };
    writer.append(line(1, "1"), 1, false).await.unwrap();
    assert_eq!(acknowledged().await, Some(0));
    writer.sync().await.unwrap();
    assert_eq!(acknowledged().await, Some(1));
    writer.append(line(2, "2"), 2, false).await.unwrap();
    backend.cut(&id("s"), 2).await.unwrap().unwrap();
    assert_eq!(
        acknowledged().await,
        Some(2),
        "what a fork relies on is durable"
    );
}

#[tokio::test]
async fn a_follower_is_woken_by_another_backend() {
    let db = Db::new();
    let (one, two) = (db.open(), db.open());
    let mut writer = created(&one, "s", &["0"]).await;
    let wait = tokio::spawn(async move { two.changed(&id("s")).await });
    tokio::task::yield_now().await;
    writer.append(line(1, "1"), 1, true).await.unwrap();
    wait.await.unwrap();
}

#[tokio::test]
async fn a_blob_put_again_is_not_deleted_by_who_saw_it_before() {
    let db = Db::new();
    let backend = db.open();
    let blob = BlobId::of(b"content");
    backend.put_blob(&blob, b"content").await.unwrap();
    let seen = backend.blobs().await.unwrap().remove(0);
    assert_eq!((seen.bytes, &seen.id), (7, &blob));
    backend.put_blob(&blob, b"content").await.unwrap();
    assert!(!backend.delete_blob(&seen).await.unwrap());
    assert_eq!(backend.get_blob(&blob).await.unwrap().unwrap(), b"content");
    // One whose bytes were lost is stored anew.
    db.raw()
        .execute("UPDATE blob_bytes SET bytes = x'00'", [])
        .unwrap();
    backend.put_blob(&blob, b"content").await.unwrap();
    assert_eq!(backend.get_blob(&blob).await.unwrap().unwrap(), b"content");
    let seen = backend.blobs().await.unwrap().remove(0);
    assert!(backend.delete_blob(&seen).await.unwrap());
    assert_eq!(backend.get_blob(&blob).await.unwrap(), None);
    assert_eq!(db.count("blob_bytes"), 0);
}
