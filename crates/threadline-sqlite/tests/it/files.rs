//! The file: made once, recognised, refused.

use std::{os::unix::fs::PermissionsExt as _, sync::Barrier};

use threadline_sqlite::{SqliteBackend, SqliteError, SqliteOptions};
use threadline_store::{Backend as _, contract::script::whole_turn};

use crate::support::{Db, cause, load, store, stored};

fn refused(db: &Db) -> SqliteErrorText {
    let error = SqliteBackend::open(db.path(), SqliteOptions::default()).unwrap_err();
    let text = threadline_store::error_chain(&error);
    assert!(text.contains(&db.path().display().to_string()), "{text}");
    let kind = match cause(&error) {
        SqliteError::NotADatabase { .. } => "not a database",
        SqliteError::Foreign { .. } => "foreign",
        SqliteError::Newer { .. } => "newer",
        SqliteError::Missing { .. } => "missing",
        other => panic!("{other}"),
    };
    SqliteErrorText { kind, text }
}

struct SqliteErrorText {
    kind: &'static str,
    text: String,
}

#[test]
fn of_many_who_open_a_fresh_file_at_once_one_makes_the_tables() {
    for _ in 0..5 {
        let db = Db::new();
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        SqliteBackend::open(db.path(), SqliteOptions::default()).map(drop)
                    })
                })
                .collect();
            for opened in all {
                opened.join().unwrap().unwrap();
            }
        });
        let version: i64 = db
            .raw()
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap();
        assert_eq!(version, 2);
        let vacuum: i64 = db
            .raw()
            .query_row("PRAGMA auto_vacuum", [], |row| row.get(0))
            .unwrap();
        assert_eq!(vacuum, 2, "pages can be given back");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    for garbage in [
        b"hello".to_vec(),
        vec![0x5a; 100_000],
        b"{\"format\":\"threadline\"}\n".repeat(1000),
    ] {
        let db = Db::new();
        std::fs::write(db.path(), &garbage).unwrap();
        assert_eq!(refused(&db).kind, "not a database");
        assert_eq!(std::fs::read(db.path()).unwrap(), garbage);
    }
}

#[test]
fn the_database_of_another_program_is_refused_and_left_alone() {
    let db = Db::new();
    db.raw()
        .execute("CREATE TABLE notes (text TEXT)", [])
        .unwrap();
    let before = std::fs::read(db.path()).unwrap();
    assert_eq!(refused(&db).kind, "foreign");
    assert_eq!(std::fs::read(db.path()).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_with_the_way_out() {
    let db = Db::new();
    drop(db.open());
    db.raw().pragma_update(None, "user_version", 99).unwrap();
    let told = refused(&db);
    assert_eq!(told.kind, "newer");
    assert!(told.text.contains("upgrade threadline"), "{}", told.text);
}

#[test]
fn a_missing_file_is_made_only_if_that_was_asked_for() {
    let db = Db::new();
    let options = SqliteOptions {
        create: false,
        ..SqliteOptions::default()
    };
    let error = SqliteBackend::open(db.path(), options.clone()).unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Missing { .. }));
    assert!(!db.path().exists());
    drop(db.open());
    SqliteBackend::open(db.path(), options).unwrap();
}

#[test]
fn paths_that_mean_something_to_sqlite_are_paths() {
    let db = Db::new();
    for name in ["file:x?mode=memory", ":memory:", "a b%20#c.sqlite"] {
        let path = db.dir.path().join(name);
        drop(SqliteBackend::open(&path, SqliteOptions::default()).unwrap());
        assert!(path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn nobody_else_can_read_the_files() {
    let db = Db::new();
    let backend = db.open();
    let store = store(backend.clone());
    let _writer = stored(&store, "mine", whole_turn(0, 1, "hello")).await;
    let mut there = 0;
    for path in backend.private_paths() {
        if let Ok(meta) = std::fs::metadata(&path) {
            assert_eq!(meta.permissions().mode() & 0o077, 0, "{}", path.display());
            there += 1;
        }
    }
    assert!(there >= 3, "the database, its log and its shared memory");
    assert_eq!(backend.address(), format!("sqlite:{}", db.path().display()));
}

#[tokio::test]
async fn looking_at_a_store_writes_nothing() {
    let db = Db::new();
    drop(stored(&db.store(), "mine", whole_turn(0, 1, "hello")).await);
    let before = std::fs::read(db.path()).unwrap();
    let store = db.store();
    for _ in 0..2 {
        drop(
            Box::pin(store.inspect(&crate::support::id("mine")))
                .await
                .unwrap(),
        );
        store.verify(&crate::support::id("mine")).await.unwrap();
    }
    drop(store);
    assert_eq!(std::fs::read(db.path()).unwrap(), before);
}

#[tokio::test]
async fn a_store_works_without_a_second_thread_of_the_runtime() {
    let db = Db::new();
    let store = db.store();
    drop(stored(&store, "mine", whole_turn(0, 1, "hello")).await);
    assert_eq!(load(&store, "mine").await.unwrap().next_seq().await, 7);
}
