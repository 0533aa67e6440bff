//! One writer at a time, many tasks behind it.

use std::{collections::BTreeSet, sync::Arc, task::Poll};

use futures_util::future::join_all;

use super::{
    Fixture, events, header_of, load, new_id, plain, poll_once, refused,
    script::{turn_end, turn_start, user, vendor, whole_turn},
    sound, stored,
};
use crate::{AppendError, AppendOptions, OpenError};

/// A second writer is refused and told who holds the session, until the first lets go.
pub async fn a_second_writer_is_refused_by_name_until_the_first_is_gone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "mine")).await;
    for store in [&store, &fixture.reopened()] {
        let holder = refused!(
            store.load(&id).await,
            OpenError::Locked { holder, .. } => holder
        );
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.host.is_empty());
        assert!(store.stat(&id).await.unwrap().writer.is_some());
    }
    writer
        .append(7, whole_turn(7, 2, "still mine"), plain())
        .await
        .unwrap();
    drop(writer);
    let other = fixture.reopened();
    assert!(other.stat(&id).await.unwrap().writer.is_none());
    let taken = load(&other, &id).await.writer;
    refused!(store.load(&id).await, OpenError::Locked { .. });
    taken
        .append(14, whole_turn(14, 3, "mine now"), plain())
        .await
        .unwrap();
    drop(taken);
    drop(load(&store, &id).await);
    sound(&store, &id).await;
}

/// Reading needs no claim.
pub async fn a_session_being_written_can_be_read(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let reader = fixture.reopened();
    for turn in 2..=4 {
        let next = writer.next_seq().await;
        writer
            .append(next, whole_turn(next, turn, "more"), plain())
            .await
            .unwrap();
        assert_eq!(events(&reader, &id).await.len() as u64, turn * 7);
        sound(&reader, &id).await;
    }
}

/// After a conflict the writer is as it was.
pub async fn a_conflict_leaves_the_writer_usable(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    for _ in 0..3 {
        let late = writer.append(3, whole_turn(3, 2, "late"), plain()).await;
        let actual = refused!(late, AppendError::Conflict { actual, .. } => actual);
        assert_eq!(actual, writer.next_seq().await);
        writer
            .append(actual, whole_turn(actual, 2, "on time"), plain())
            .await
            .unwrap();
    }
    sound(&fixture.reopened(), &id).await;
}

/// Of tasks that expect the same number, one is served and the others are told.
pub async fn of_appends_that_expect_the_same_number_one_is_stored(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = Arc::new(stored(&store, &id, whole_turn(0, 1, "one")).await);
    let tasks = (0..8).map(|n| {
        let writer = writer.clone();
        let event = vendor(7, &format!("{{\"n\":{n}}}"), true);
        tokio::spawn(async move { writer.append(7, vec![event], plain()).await })
    });
    let (mut stored, mut refused) = (0, 0);
    for result in join_all(tasks).await {
        match result.unwrap() {
            Ok(_) => stored += 1,
            Err(AppendError::Conflict {
                expected: 7,
                actual: 8,
            }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((stored, refused), (1, 7));
    assert_eq!(events(&store, &id).await.len(), 8);
}

/// Sixteen tasks record at once; nothing is lost, doubled or torn apart.
pub async fn records_of_many_tasks_make_one_gapless_log(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = Arc::new(store.create(header_of(&id)).await.unwrap());
    let tasks = (0..16).map(|task| {
        let writer = writer.clone();
        tokio::spawn(async move {
            for round in 0..8 {
                let said = format!("{task}.{round}");
                // Two events of one batch must stay neighbours.
                let batch = vec![user(&said), user(&format!("{said} again"))];
                let options = AppendOptions {
                    key: Some(said),
                    barrier: round % 4 == 0,
                };
                let last = writer.record(batch, options).await.unwrap().last_seq;
                assert!(last % 2 == 1);
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    drop(writer);
    let again = fixture.reopened();
    sound(&again, &id).await;
    let stored = events(&again, &id).await;
    assert_eq!(stored.len(), 16 * 8 * 2);
    let mut said = BTreeSet::new();
    for pair in stored.chunks(2) {
        let text = |at: usize| pair[at].data.get().to_owned();
        assert_eq!(text(1), text(0).replace("\"}]", " again\"}]"));
        assert!(said.insert(text(0)), "{} is there twice", text(0));
    }
}

/// Dropping the future of an append may store it or not, but never leaves the writer believing
/// something else than the storage.
pub async fn a_dropped_append_does_not_part_writer_and_storage(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    for turn in 1..=12 {
        let mut append = Box::pin(writer.record(
            vec![turn_start(turn), turn_end(turn)],
            AppendOptions::barrier(),
        ));
        // Dropped after a few looks at it, at another moment each time.
        for _ in 0..turn % 4 {
            let ready = poll_once(&mut append).await;
            if matches!(ready, Poll::Ready(_)) {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(append);
        let next = writer.next_seq().await;
        if next > 0 {
            assert_eq!(events(&store, &id).await.len() as u64, next);
        }
    }
    let next = writer.next_seq().await;
    writer
        .append(next, whole_turn(next, 20, "last"), plain())
        .await
        .unwrap();
    drop(writer);
    let again = fixture.reopened();
    sound(&again, &id).await;
    assert_eq!(load(&again, &id).await.writer.next_seq().await, next + 7);
}

/// A writer dropped in the middle of an append releases the session once that is done.
pub async fn a_session_is_free_after_its_writer_and_its_append_are_dropped(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    {
        let mut append = Box::pin(writer.record(vec![turn_start(2)], AppendOptions::barrier()));
        let _ = poll_once(&mut append).await;
    }
    drop(writer);
    let loaded = loop {
        match store.load(&id).await {
            Ok(loaded) => break loaded,
            Err(OpenError::Locked { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let next = loaded.writer.next_seq().await;
    assert!(next == 7 || next == 9, "{next}");
    sound(&store, &id).await;
}

/// Many sessions are written at once without hindering each other.
pub async fn many_sessions_are_written_at_once(fixture: Fixture) {
    let store = fixture.store();
    let tasks = (0..12).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let id = new_id();
            let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
            for turn in 2..=5 {
                let next = writer.next_seq().await;
                let events = whole_turn(next, turn, "more");
                writer
                    .append(next, events, AppendOptions::barrier())
                    .await
                    .unwrap();
            }
            id
        })
    });
    let ids: Vec<_> = join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let again = fixture.reopened();
    assert_eq!(again.ids().await.unwrap().len(), ids.len());
    for id in ids {
        assert_eq!(events(&again, &id).await.len(), 35);
        sound(&again, &id).await;
    }
}
