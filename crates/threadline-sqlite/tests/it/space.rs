//! A full disk: nothing of the batch remains, and the writer goes on when there is space.

use std::sync::Arc;

use threadline_sqlite::{SqliteBackend, SqliteOptions};
use threadline_store::{
    AppendError, AppendOptions, Backend, BackendError, BlobId, ClaimError, RepairError,
    contract::script::vendor,
};

use crate::support::{Db, header, id, new_log, store, stored};

fn small(db: &Db) -> Arc<SqliteBackend> {
    let options = SqliteOptions {
        max_bytes: Some(1 << 20),
        ..SqliteOptions::default()
    };
    Arc::new(SqliteBackend::open(db.path(), options).unwrap())
}

fn fill(seq: u64) -> threadline_session::Event {
    vendor(
        seq,
        &format!("{{\"fill\":\"{}\"}}", "x".repeat(50_000)),
        true,
    )
}

#[tokio::test]
async fn a_full_database_keeps_the_log_whole_and_goes_on_with_space() {
    let db = Db::new();
    let backend = small(&db);
    let store = store(backend.clone());
    drop(stored(&store, "ballast", (0..6).map(fill).collect()).await);
    let writer = stored(&store, "s", vec![fill(0)]).await;
    let mut next = 1;
    let told = loop {
        match writer
            .append(
                next,
                vec![fill(next), fill(next + 1)],
                AppendOptions::barrier(),
            )
            .await
        {
            Ok(appended) => next = appended.last_seq + 1,
            Err(error) => break error,
        }
        assert!(next < 100, "it is never full");
    };
    let AppendError::StorageFull { what } = &told else {
        panic!("{told}");
    };
    assert!(what.contains("sessions.sqlite"), "{what}");
    // A new session has no place either, and no trace of it is left.
    let created = backend
        .create(&id("more"), new_log("more", fill_line(), Some(0)))
        .await;
    assert!(matches!(
        created.err(),
        Some(ClaimError::StorageFull { .. })
    ));
    let report = store.verify(&id("s")).await.unwrap();
    assert!(report.ok && report.events == next, "{report:?}");

    store.delete(&id("ballast")).await.unwrap();
    let batch = vec![fill(next), fill(next + 1)];
    writer
        .append(next, batch, AppendOptions::barrier())
        .await
        .unwrap();
    assert!(store.verify(&id("s")).await.unwrap().ok);
    assert!(!store.has(&id("more")).await.unwrap());
    assert_eq!(
        header(&id("s")),
        store.header(&id("s")).await.unwrap().header
    );
}

#[tokio::test]
async fn a_full_database_is_told_as_such_whatever_is_written() {
    let db = Db::new();
    let backend = small(&db);
    let store = store(backend.clone());
    drop(stored(&store, "s", (0..12).map(fill).collect()).await);
    let bytes = vec![7; 1 << 20];
    let refused = backend.put_blob(&BlobId::of(&bytes), &bytes).await;
    let error = refused.unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(backend.blobs().await.unwrap().is_empty());
    let mut import = backend.import(&id("more")).await.unwrap();
    let line = new_log("more", Vec::new(), None).header_line;
    import.header(&line).await.unwrap();
    let long = crate::support::line(0, &"y".repeat(500_000));
    let error = import.lines(&long, 0).await.unwrap_err();
    assert!(error.is_full(), "{error}");
    drop(import);
    // The new log does not fit beside the old one.
    let harm = "UPDATE events SET body = 'x' WHERE seq = 3";
    db.raw().execute(harm, []).unwrap();
    let before = crate::support::entries(&*backend, "s").await;
    let error = store.repair(&id("s"), false).await.unwrap_err();
    assert!(matches!(error, RepairError::StorageFull { .. }), "{error}");
    assert_eq!(crate::support::entries(&*backend, "s").await, before);
    let missing = BackendError::new("reading", std::io::Error::from_raw_os_error(2));
    assert!(!missing.is_full());
}

fn fill_line() -> Vec<u8> {
    crate::support::line(0, &"y".repeat(400_000))
}
