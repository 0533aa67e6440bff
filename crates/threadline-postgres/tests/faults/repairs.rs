//! Repairs: what only this storage can lose, and where the old log is afterwards.

use threadline_postgres::PostgresBackend;
use threadline_store::{Backend, LOG_LOST, RepairError};

use crate::{
    kit::{CLUSTER, World, batch, created, entries, header, holds, id, lines},
    storage::failing,
};

#[tokio::test(flavor = "multi_thread")]
async fn events_lost_at_the_end_are_said_too() {
    for harm in [
        "UPDATE events SET body = 'x' WHERE seq >= 5",
        "DELETE FROM events WHERE seq >= 5",
    ] {
        let world = World::new().await;
        drop(created(&world.backend, "s", 7).await);
        world.sql.execute(harm, &[]).await.unwrap();
        let store = world.store();
        assert!(store.repair(&id("s"), true).await.unwrap().repaired);
        let report = store.repair(&id("s"), false).await.unwrap();
        assert_eq!((report.kept, report.lost.len()), (5, 1));
        let found = lines(&world.backend, &id("s")).await;
        assert_eq!(found.len(), 7);
        assert!(found[5..].iter().all(|line| line.event.kind == LOG_LOST));
        assert!(store.verify(&id("s")).await.unwrap().ok);
        assert!(!store.repair(&id("s"), false).await.unwrap().repaired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_garbled_header_is_made_anew() {
    let world = World::new().await;
    drop(created(&world.backend, "s", 3).await);
    let harm = "UPDATE segments SET header_line = 'x' || header_line";
    world.sql.execute(harm, &[]).await.unwrap();
    let store = world.store();
    let report = store.repair(&id("s"), false).await.unwrap();
    assert!(report.header && report.repaired, "{report:?}");
    assert!(store.verify(&id("s")).await.unwrap().ok);
    holds(&world.backend, &id("s"), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_log_can_be_read_byte_for_byte_until_its_session_is_deleted() {
    let world = World::new().await;
    drop(created(&world.backend, "s", 4).await);
    let store = world.store();
    for (generation, seq) in [(1, 1), (2, 2)] {
        let harm = format!("UPDATE events SET body = 'x' || substr(body, 2) WHERE seq = {seq}");
        world.sql.execute(&harm, &[]).await.unwrap();
        let old = "SELECT coalesce(string_agg(line, '|' ORDER BY at), '') FROM (\
                 SELECT start_at AS at, header_line AS line FROM session_segments \
                 JOIN segments ON id = segment WHERE session = 's' \
                 UNION ALL SELECT e.at, e.body FROM session_segments g \
                 JOIN events e ON e.segment_id = g.segment WHERE g.session = 's') log";
        let old: String = world.sql.query_one(old, &[]).await.unwrap().get(0);
        assert!(store.repair(&id("s"), false).await.unwrap().repaired);
        let kept = "SELECT string_agg(line, '|' ORDER BY at) FROM quarantine \
                    WHERE session = 's' AND generation = $1";
        let kept: String = world
            .sql
            .query_one(kept, &[&generation])
            .await
            .unwrap()
            .get(0);
        assert!(kept == old && kept.contains("|x"), "{kept}");
    }
    store.delete(&id("s")).await.unwrap();
    for table in ["kept_logs", "kept_segments", "segments", "events"] {
        let left = format!("SELECT count(*) FROM {table}");
        assert_eq!(world.number(&left).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_the_first_version_is_brought_up_to_date() {
    let world = World::new().await;
    drop(created(&world.backend, "s", 3).await);
    let old = "DROP VIEW quarantine; DROP TABLE kept_segments; DROP TABLE kept_logs; \
               DELETE FROM migrations WHERE version > 1; \
               UPDATE events SET body = 'x' WHERE seq = 1";
    world.sql.batch_execute(old).await.unwrap();
    let backend = PostgresBackend::connect(&CLUSTER.url(), world.options.clone()).await;
    let again = World {
        backend: backend.unwrap(),
        ..world
    };
    let store = again.store();
    assert!(store.repair(&id("s"), false).await.unwrap().repaired);
    assert_eq!(again.number("SELECT count(*) FROM kept_logs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_on_a_full_disk_changes_nothing_and_is_told() {
    let world = World::new().await;
    drop(created(&world.backend, "s", 3).await);
    let harm = "UPDATE events SET body = 'x' WHERE seq = 1";
    world.sql.execute(harm, &[]).await.unwrap();
    let before = entries(&world.backend, &id("s")).await;
    failing(&world, "events", "53100", 1).await;
    let store = world.store();
    let refused = store.repair(&id("s"), false).await.unwrap_err();
    assert!(
        matches!(refused, RepairError::StorageFull { .. }),
        "{refused}"
    );
    assert_eq!(entries(&world.backend, &id("s")).await, before);
    assert!(store.repair(&id("s"), false).await.unwrap().repaired);
    // Bringing in a session is a write as well.
    world
        .sql
        .execute("SELECT setval('fails', 1, false)", &[])
        .await
        .unwrap();
    let mut import = world.backend.import(&id("t")).await.unwrap();
    import
        .header(&header(&id("t")).encode().unwrap())
        .await
        .unwrap();
    let refused = import.lines(&batch(0, 1), 0).await.unwrap_err();
    assert!(refused.is_full(), "{refused}");
}
