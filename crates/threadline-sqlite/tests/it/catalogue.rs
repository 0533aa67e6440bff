//! The rows of lists follow the sessions.

use threadline_store::{
    Backend as _, ListFilter, SummaryPatch,
    contract::script::{turn_start, whole_turn},
};

use crate::support::{Db, id, load, store, stored};

async fn suspects(db: &Db) -> Vec<String> {
    let catalogue = db.open().catalogue().unwrap();
    let ids = catalogue.suspects().await.unwrap();
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

#[tokio::test]
async fn what_changes_is_suspected_until_its_row_is_put() {
    let db = Db::new();
    let store = db.store();
    let filter = ListFilter::default();
    drop(stored(&store, "a", whole_turn(0, 1, "a")).await);
    drop(stored(&store, "b", whole_turn(0, 1, "b")).await);
    assert_eq!(suspects(&db).await.len(), 2);
    assert_eq!(
        store.list(&filter, None, 10).await.unwrap().sessions.len(),
        2
    );
    assert!(suspects(&db).await.is_empty());
    // In another process the rows are known.
    let again = db.store();
    assert_eq!(
        again.list(&filter, None, 10).await.unwrap().sessions.len(),
        2
    );

    let writer = load(&again, "a").await.unwrap();
    assert_eq!(suspects(&db).await, ["a"], "it is being written");
    writer
        .record(vec![turn_start(2)], Default::default())
        .await
        .unwrap();
    store.list(&filter, None, 10).await.unwrap();
    assert_eq!(suspects(&db).await, ["a"]);
    drop(writer);
    store.list(&filter, None, 10).await.unwrap();
    assert!(suspects(&db).await.is_empty());

    let patch = SummaryPatch {
        title: Some(Some("named".into())),
        ..SummaryPatch::default()
    };
    let row = store.update(&id("b"), patch, 0).await.unwrap();
    assert_eq!(row.title.as_deref(), Some("named"));
    let rows = db.store().list(&filter, None, 10).await.unwrap().sessions;
    assert!(rows.iter().any(|row| row.title.as_deref() == Some("named")));

    store.delete(&id("a")).await.unwrap();
    assert_eq!(db.count("catalogue_rows"), 1);
    assert_eq!(
        db.store()
            .list(&filter, None, 10)
            .await
            .unwrap()
            .sessions
            .len(),
        1
    );
}

#[tokio::test]
async fn rows_of_a_dead_writer_are_settled() {
    let db = Db::new();
    let dead = store(db.open());
    let _writer = stored(&dead, "s", whole_turn(0, 1, "s")).await;
    db.raw()
        .execute("UPDATE holders SET started = started + 1", [])
        .unwrap();
    let store = db.store();
    for _ in 0..2 {
        store.list(&ListFilter::default(), None, 10).await.unwrap();
    }
    assert!(suspects(&db).await.is_empty());
}

#[tokio::test]
async fn garbled_rows_are_made_anew() {
    let db = Db::new();
    let store = db.store();
    drop(stored(&store, "s", whole_turn(0, 1, "s")).await);
    store.list(&ListFilter::default(), None, 10).await.unwrap();
    db.raw()
        .execute(
            "UPDATE catalogue_rows SET summary = replace(summary, 's', 'z')",
            [],
        )
        .unwrap();
    let mut rows = Vec::new();
    for _ in 0..2 {
        rows = db
            .store()
            .list(&ListFilter::default(), None, 10)
            .await
            .unwrap()
            .sessions;
    }
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].id, id("s"));
}

#[tokio::test]
async fn tables_of_another_shape_are_made_anew() {
    let db = Db::new();
    let store = db.store();
    drop(stored(&store, "s", whole_turn(0, 1, "s")).await);
    store.list(&ListFilter::default(), None, 10).await.unwrap();
    drop(store);
    db.raw()
        .execute_batch("DROP INDEX catalogue_by_cwd; ALTER TABLE catalogue_rows ADD COLUMN more")
        .unwrap();
    let rows = db
        .store()
        .list(&ListFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(rows.sessions.len(), 1);
    assert_eq!(db.count("sqlite_schema WHERE name = 'catalogue_by_cwd'"), 1);
}
