//! The server is stopped at once, in the middle of turns, as a power cut stops it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use threadline_postgres::PostgresOptions;
use threadline_store::{Backend, WriteError};

use crate::{
    kit::{batch, begin, created, holds, id, lines},
    support::{Cluster, until},
};

const CRASHES: u64 = 20;
const TURN: u64 = 3;

/// Acknowledged events are all there after each crash, batches are whole, and writing goes on.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_events_outlive_crashes_in_the_middle_of_turns() {
    let mut cluster = Cluster::start();
    let options = PostgresOptions {
        outcome_wait: Duration::from_millis(50),
        ..cluster.options()
    };
    let backend = cluster.backend(&options).await;
    let session = id("s");
    drop(created(&backend, "s", TURN).await);
    let acknowledged = Arc::new(AtomicU64::new(TURN));
    let mut outcomes = Vec::new();
    for crash in 1..=CRASHES {
        let mut writer = backend.claim(&session).await.unwrap();
        let next = begin(&backend, &session, &mut writer).await;
        let noted = Arc::clone(&acknowledged);
        let writing = tokio::spawn(async move {
            let mut next = next;
            loop {
                let last = next + TURN - 1;
                let sync = (next / TURN).is_multiple_of(2);
                let stored = writer.append(batch(next, TURN), last, sync).await;
                if let Err(error) = stored {
                    let again = writer.append(batch(next, TURN), last, true).await;
                    assert!(again.is_err(), "a failed writer went on");
                    return error;
                }
                next += TURN;
                if sync {
                    noted.store(next, Ordering::SeqCst);
                }
            }
        });
        let enough = acknowledged.load(Ordering::SeqCst) + TURN * (crash % 5 + 1);
        until("enough is acknowledged", async || {
            (acknowledged.load(Ordering::SeqCst) >= enough).then_some(())
        })
        .await;
        cluster.crash();
        outcomes.push(writing.await.unwrap());
        cluster.run();
        let found = lines(&backend, &session).await.len() as u64;
        assert!(found >= acknowledged.load(Ordering::SeqCst));
        assert_eq!(found % TURN, 0, "a part of a batch is there");
        holds(&backend, &session, found).await;
        let stat = backend.stat(&session).await.unwrap().unwrap();
        let durable = stat.acknowledged.unwrap() + 1;
        assert!(durable >= acknowledged.load(Ordering::SeqCst) && durable <= found);
    }
    let typed = |error: &WriteError| {
        matches!(
            error,
            WriteError::UnknownOutcome { .. } | WriteError::Poisoned { .. }
        )
    };
    assert!(outcomes.iter().all(typed), "{outcomes:?}");
}

/// Events that the server has lost before they were synced end the writer, and are not
/// acknowledged by a later sync.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_unsynced_events_are_lost_does_not_go_on() {
    let mut cluster = Cluster::start();
    let options = cluster.options();
    let backend = cluster.backend(&options).await;
    let session = id("s");
    let mut lost = 0;
    for round in 0..8 {
        let mut writer = if round == 0 {
            created(&backend, "s", 1).await
        } else {
            backend.claim(&session).await.unwrap()
        };
        let next = begin(&backend, &session, &mut writer).await;
        writer.append(batch(next, 1), next, false).await.unwrap();
        cluster.crash();
        cluster.run();
        let found = lines(&backend, &session).await.len() as u64;
        match writer.sync().await {
            Ok(()) => assert_eq!(found, next + 1),
            Err(WriteError::Poisoned { .. }) => {
                assert_eq!(found, next);
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost > 0, "the server synced everything by itself");
}
