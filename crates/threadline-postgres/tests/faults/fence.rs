//! Two who believe that they are the writer.

use std::time::Duration;

use threadline_postgres::PostgresOptions;
use threadline_store::{Backend, ClaimError, WriteError};

use crate::{
    kit::{CLUSTER, World, append, begin, created, holds, id},
    support::until,
};

/// Rewrites the holder in the head row as one of another machine.
const ELSEWHERE: &str = "UPDATE sessions SET holder = replace(holder, \
    '\"machine\":\"', '\"machine\":\"another ')";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_taken_over_stores_and_acknowledges_nothing() {
    let world = World::new().await;
    let other = world.again().await;
    let session = id("s");
    let mut old = created(&world.backend, "s", 2).await;
    match other.claim(&session).await {
        Err(ClaimError::Locked { holder }) => assert_eq!(holder.pid, std::process::id()),
        _ => panic!("claimed twice"),
    }
    let mut new = other.take_over(&session).await.unwrap();
    begin(&other, &session, &mut new).await;
    for _ in 0..2 {
        match append(&mut old, 2, 2).await {
            Err(WriteError::Fenced { by }) => {
                assert!(
                    by.contains(&format!("process {}", std::process::id())),
                    "{by}"
                );
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert!(matches!(old.sync().await, Err(WriteError::Fenced { .. })));
    old.put_checkpoint(b"late").await.unwrap();
    assert_eq!(world.backend.checkpoint(&session, 99).await.unwrap(), None);
    // Letting go of what one does not hold takes nothing from who holds it.
    drop(old);
    append(&mut new, 2, 2).await.unwrap();
    holds(&world.backend, &session, 4).await;
    assert!(matches!(
        world.backend.claim(&session).await,
        Err(ClaimError::Locked { .. })
    ));
    // A deletion that came first ends a writer too.
    let gone = "DELETE FROM sessions";
    world.sql.execute(gone, &[]).await.unwrap();
    assert!(matches!(
        append(&mut new, 4, 1).await,
        Err(WriteError::Fenced { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_nothing_is_heard_from_its_holder() {
    let world = World::new().await;
    let session = id("s");
    let writer = created(&world.backend, "s", 2).await;
    // The writer is gone without a word, and was on another machine.
    world.sql.execute(ELSEWHERE, &[]).await.unwrap();
    std::mem::forget(writer);
    let locked = world.backend.claim(&session).await;
    assert!(matches!(locked, Err(ClaimError::Locked { .. })));
    let locked = world.backend.delete(&session).await;
    assert!(matches!(locked, Err(ClaimError::Locked { .. })));
    let over = "UPDATE sessions SET lease_until = now() - interval '1 second'";
    world.sql.execute(over, &[]).await.unwrap();
    let stat = world.backend.stat(&session).await.unwrap().unwrap();
    assert!(stat.writer.is_none());
    let mut writer = world.backend.claim(&session).await.unwrap();
    begin(&world.backend, &session, &mut writer).await;
    append(&mut writer, 2, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_process_of_this_machine_frees_its_session_at_once() {
    let world = World::new().await;
    let session = id("s");
    let writer = created(&world.backend, "s", 2).await;
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let dead = format!(
        "UPDATE sessions SET holder = replace(holder, '\"pid\":{}', '\"pid\":{}')",
        std::process::id(),
        child.id()
    );
    assert_eq!(world.sql.execute(&dead, &[]).await.unwrap(), 1);
    std::mem::forget(writer);
    let stat = world.backend.stat(&session).await.unwrap().unwrap();
    assert!(stat.writer.is_none());
    drop(world.backend.claim(&session).await.unwrap());
    world.backend.delete(&session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_while_their_writers_live_and_given_back_at_their_end() {
    let world = World::with(PostgresOptions {
        lease: Duration::from_millis(300),
        ..CLUSTER.options()
    })
    .await;
    let writer = created(&world.backend, "s", 2).await;
    // Three terms on the server's clock, without an append.
    let since = "SELECT count(*) FROM sessions WHERE lease_until > $1::timestamptz + interval '900 milliseconds'";
    let first = world.sql.query_one("SELECT lease_until FROM sessions", &[]);
    let first: std::time::SystemTime = first.await.unwrap().get(0);
    until("the lease was renewed", async || {
        let row = world.sql.query_one(since, &[&first]).await.unwrap();
        (row.get::<_, i64>(0) == 1).then_some(())
    })
    .await;
    drop(writer);
    let free = "SELECT count(*) FROM sessions WHERE lease_until IS NULL AND holder IS NULL";
    until("the lease is given back", async || {
        (world.number(free).await == 1).then_some(())
    })
    .await;
}
