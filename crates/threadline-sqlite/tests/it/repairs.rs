//! Repairs: what only this storage can lose, and where the old log is afterwards.

use threadline_store::{Backend as _, LOG_LOST, contract::script::whole_turn};

use crate::support::{Db, bytes, created, entries, id, line, lines, stored};

/// Returns what is kept aside of a session's log, as one file would hold it.
fn kept(db: &Db, generation: i64) -> Vec<u8> {
    let conn = db.raw();
    let sql = "SELECT CAST(line AS BLOB) FROM quarantine
               WHERE session = 's' AND generation = ?1 ORDER BY at";
    let mut query = conn.prepare(sql).unwrap();
    let rows = query.query_map([generation], |row| row.get::<_, Vec<u8>>(0));
    rows.unwrap()
        .flat_map(|line| [line.unwrap(), b"\n".to_vec()].concat())
        .collect()
}

#[tokio::test]
async fn events_lost_at_the_end_are_said_too() {
    for harm in [
        "UPDATE events SET body = x'ff00' WHERE seq >= 5",
        "DELETE FROM events WHERE seq >= 5",
    ] {
        let db = Db::new();
        let store = db.store();
        drop(stored(&store, "s", whole_turn(0, 1, "hello")).await);
        db.raw().execute(harm, []).unwrap();
        let asked = store.repair(&id("s"), true).await.unwrap();
        assert!(asked.repaired, "{harm}");
        let report = store.repair(&id("s"), false).await.unwrap();
        assert_eq!((report.kept, report.lost.len()), (5, 1));
        assert_eq!((report.lost[0].from_seq, report.lost[0].to_seq), (5, 6));
        let found = lines(&*db.open(), "s").await;
        assert_eq!(found.len(), 7);
        assert!(found[5..].iter().all(|line| line.event.kind == LOG_LOST));
        assert!(store.verify(&id("s")).await.unwrap().ok);
        assert!(!store.repair(&id("s"), false).await.unwrap().repaired);
        drop(crate::support::load(&store, "s").await.unwrap());
    }
}

#[tokio::test]
async fn a_garbled_header_is_made_anew() {
    let db = Db::new();
    let store = db.store();
    drop(stored(&store, "s", whole_turn(0, 1, "hello")).await);
    let harm = "UPDATE segments SET header = 'x' || header";
    assert_eq!(db.raw().execute(harm, []).unwrap(), 1);
    assert!(store.header(&id("s")).await.is_err());
    let report = store.repair(&id("s"), false).await.unwrap();
    assert!(report.header && report.repaired, "{report:?}");
    assert_eq!((report.kept, report.lost.len()), (7, 0));
    assert!(store.verify(&id("s")).await.unwrap().ok);
    assert_eq!(store.header(&id("s")).await.unwrap().header.id, id("s"));
}

#[tokio::test]
async fn the_old_log_can_be_read_byte_for_byte_until_its_session_is_deleted() {
    let db = Db::new();
    let backend = db.open();
    let store = crate::support::store(backend.clone());
    drop(created(&backend, "s", &["0", "1", "2", "3"]).await);
    let before = bytes(&*backend, "s").await;
    let harm = |seq: u64| {
        let sql = format!("UPDATE events SET body = 'x' || substr(body, 2) WHERE seq = {seq}");
        db.raw().execute(&sql, []).unwrap();
    };
    for (generation, seq) in [(1, 1), (2, 2)] {
        harm(seq);
        assert!(store.repair(&id("s"), false).await.unwrap().repaired);
        let aside = kept(&db, generation);
        assert!(aside.windows(4).any(|four| four == b"\nx\"s"));
        if generation == 1 {
            let at = before.len() - 3 * line(0, "0").len();
            assert_eq!((&aside[..at], aside.len()), (&before[..at], before.len()));
            assert_eq!(aside[at + 1..], before[at + 1..]);
        }
    }
    assert_eq!(db.count("kept_logs"), 2);
    store.delete(&id("s")).await.unwrap();
    for table in [
        "kept_logs",
        "kept_segments",
        "segments",
        "events",
        "imports",
        "holders",
    ] {
        let left = db.count(table);
        assert_eq!(left, i64::from(table == "holders"), "{table}");
    }
}

#[tokio::test]
async fn a_repair_that_died_is_cleared_away_and_frees_the_session() {
    let db = Db::new();
    {
        let backend = db.open();
        drop(created(&backend, "s", &["0", "1"]).await);
        let mut repair = backend.replace(&id("s")).await.unwrap();
        repair
            .header(&crate::support::new_log("s", vec![], None).header_line)
            .await
            .unwrap();
        repair.lines(&line(0, "new"), 0).await.unwrap();
        // As if its process had been killed: nothing is given back.
        db.raw()
            .execute("UPDATE holders SET started = 1", [])
            .unwrap();
        std::mem::forget(repair);
        assert_eq!(db.count("segments"), 2);
    }
    let backend = db.open();
    drop(backend.claim(&id("s")).await.unwrap());
    drop(backend);
    assert_eq!((db.count("segments"), db.count("imports")), (1, 0));
    assert_eq!(entries(&*db.open(), "s").await.len(), 3);
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_up_to_date() {
    let db = Db::new();
    drop(stored(&db.store(), "s", whole_turn(0, 1, "hello")).await);
    db.raw()
        .execute_batch(
            "DROP VIEW quarantine; DROP TABLE kept_segments; DROP TABLE kept_logs;
             PRAGMA user_version = 1; UPDATE events SET body = 'x' WHERE seq = 2",
        )
        .unwrap();
    let store = db.store();
    assert!(store.repair(&id("s"), false).await.unwrap().repaired);
    assert_eq!(db.count("kept_logs"), 1);
}
