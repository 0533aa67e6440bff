//! Sessions that come from elsewhere are there as a whole, or not at all.

use threadline_store::{Backend as _, ClaimError, Import};

use crate::support::{Db, bytes, created, header, id, line};

async fn half(import: &mut Box<dyn Import>) {
    import
        .header(&header(&id("first")).encode().unwrap())
        .await
        .unwrap();
    import
        .lines(&[line(0, "0"), line(1, "1")].concat(), 1)
        .await
        .unwrap();
    // A log of the lineage without events of its own.
    import
        .header(&header(&id("second")).encode().unwrap())
        .await
        .unwrap();
    import
        .header(&header(&id("s")).encode().unwrap())
        .await
        .unwrap();
    import.lines(&line(2, "2"), 2).await.unwrap();
}

fn left(db: &Db) -> i64 {
    [
        "events",
        "segments",
        "imports",
        "sessions",
        "session_segments",
    ]
    .iter()
    .map(|table| db.count(table))
    .sum()
}

#[tokio::test]
async fn an_import_is_seen_once_it_is_finished() {
    let db = Db::new();
    let backend = db.open();
    let mut import = backend.import(&id("s")).await.unwrap();
    half(&mut import).await;
    import.lines(&line(3, "3"), 3).await.unwrap();
    assert!(backend.ids().await.unwrap().is_empty());
    assert_eq!(backend.stat(&id("s")).await.unwrap(), None);
    import.finish().await.unwrap();
    let whole = [
        header(&id("first")).encode().unwrap(),
        line(0, "0"),
        line(1, "1"),
        header(&id("second")).encode().unwrap(),
        header(&id("s")).encode().unwrap(),
        line(2, "2"),
        line(3, "3"),
    ]
    .concat();
    assert_eq!(bytes(&*db.open(), "s").await, whole);
    let stat = backend.stat(&id("s")).await.unwrap().unwrap();
    assert_eq!(
        (stat.bytes, stat.acknowledged),
        (whole.len() as u64, Some(3))
    );
    // It is a session like any other.
    drop(backend.claim(&id("s")).await.unwrap());
    backend.delete(&id("s")).await.unwrap();
    drop(backend);
    assert_eq!(left(&db), 0);
}

#[tokio::test]
async fn a_dropped_import_leaves_nothing() {
    let db = Db::new();
    let backend = db.open();
    let mut import = backend.import(&id("s")).await.unwrap();
    half(&mut import).await;
    drop(import);
    drop(backend);
    assert_eq!(left(&db), 0);
}

#[tokio::test]
async fn an_import_whose_process_died_is_removed_at_the_next_opening() {
    let db = Db::new();
    let backend = db.open();
    let mut import = backend.import(&id("s")).await.unwrap();
    half(&mut import).await;
    // Others that live are left alone.
    drop(db.open());
    assert_eq!(db.count("events"), 3);
    db.raw()
        .execute("UPDATE holders SET started = started + 1", [])
        .unwrap();
    drop(db.open());
    assert_eq!(left(&db), 0);
    // Whose process lives after all is told.
    assert!(import.lines(&line(3, "3"), 3).await.is_err());
    assert!(import.finish().await.is_err());
    drop(backend);
    assert_eq!(left(&db), 0);
}

#[tokio::test]
async fn an_import_does_not_replace_a_session() {
    let db = Db::new();
    let backend = db.open();
    let mut import = backend.import(&id("s")).await.unwrap();
    half(&mut import).await;
    drop(created(&backend, "s", &["mine"]).await);
    let before = bytes(&*backend, "s").await;
    assert!(matches!(
        import.finish().await,
        Err(ClaimError::AlreadyExists)
    ));
    assert!(matches!(
        backend.import(&id("s")).await.err(),
        Some(ClaimError::AlreadyExists)
    ));
    assert_eq!(bytes(&*backend, "s").await, before);
}
