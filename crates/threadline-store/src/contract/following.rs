//! Following: a snapshot, then everything after it, exactly once.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Fixture, header_of, load, new_id, plain, poll_once, refused,
    script::{user, vendor, whole_turn},
    stored,
};
use crate::{Follow, Followed, ReadError, ReadPos};

/// Takes lines until `last` and says where the follower had caught up.
async fn until(follow: &mut Follow, last: u64) -> (Vec<u64>, Vec<Option<u64>>) {
    let (mut seqs, mut caught_up) = (Vec::new(), Vec::new());
    while seqs.last().is_none_or(|seq| *seq < last) {
        match follow.next().await.unwrap() {
            Followed::Line(line) => seqs.push(line.event.seq),
            Followed::CaughtUp { seq } => caught_up.push(seq),
        }
    }
    (seqs, caught_up)
}

async fn caught_up(follow: &mut Follow) -> Option<u64> {
    loop {
        if let Followed::CaughtUp { seq } = follow.next().await.unwrap() {
            return seq;
        }
    }
}

fn after(from: Option<u64>, last: u64) -> Vec<u64> {
    (from.map_or(0, |seq| seq + 1)..=last).collect()
}

/// From every point, in this process and another, every event comes once: stored ones first, then
/// one sign of having caught up, then live ones.
pub async fn every_event_after_any_point_comes_once(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let elsewhere = fixture.reopened();
    let mut follows = Vec::new();
    for store in [&store, &elsewhere] {
        for from in std::iter::once(None).chain((0..7).map(Some)) {
            let mut follow = store.follow(&id, from);
            let mut seqs = Vec::new();
            while let Followed::Line(line) = follow.next().await.unwrap() {
                seqs.push(line.event.seq);
            }
            assert_eq!(seqs, after(from, 6), "from {from:?}");
            follows.push(follow);
        }
    }
    writer
        .append(7, whole_turn(7, 2, "two"), plain())
        .await
        .unwrap();
    for live in join_all(follows.iter_mut().map(|follow| until(follow, 13))).await {
        assert_eq!(live, ((7..14).collect(), Vec::new()));
    }
}

/// A follower that waits in another process hears of each append, once and before the next.
pub async fn each_append_reaches_a_waiting_follower_elsewhere(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let mut follow = fixture.reopened().follow(&id, Some(6));
    assert_eq!(caught_up(&mut follow).await, Some(6));
    for seq in 7..12 {
        let mut next = Box::pin(follow.next());
        assert!(poll_once(&mut next).await.is_pending());
        let note = vec![vendor(seq, "{}", true)];
        writer.append(seq, note, plain()).await.unwrap();
        let Followed::Line(line) = next.await.unwrap() else {
            panic!("it had caught up before");
        };
        assert_eq!(line.event.seq, seq);
    }
}

/// A follower that knows more than is stored waits for what comes after that.
pub async fn a_follower_ahead_of_the_log_waits_for_its_place(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let elsewhere = fixture.reopened();
    for store in [&store, &elsewhere] {
        let page = store.read(&id, ReadPos::at(10), 100).await.unwrap();
        assert!(page.entries.is_empty() && page.next.is_none());
    }
    let mut follows = [store.follow(&id, Some(9)), elsewhere.follow(&id, Some(9))];
    for follow in &mut follows {
        caught_up(follow).await;
    }
    for seq in 7..14 {
        let note = vec![vendor(seq, "{}", true)];
        writer.append(seq, note, plain()).await.unwrap();
    }
    for live in join_all(follows.iter_mut().map(|follow| until(follow, 13))).await {
        assert_eq!(live, ((10..14).collect(), Vec::new()));
    }
}

/// Appends that run at the same time as the snapshot are neither missed nor given twice.
pub async fn events_appended_while_following_come_once(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = Arc::new(stored(&store, &id, whole_turn(0, 1, "one")).await);
    let last = 6 + 4 * 25;
    let writers = (0..4).map(|_| {
        let writer = writer.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                writer.record(vec![user("x")], plain()).await.unwrap();
            }
        })
    });
    let elsewhere = fixture.reopened();
    let readers = [None, Some(3), Some(6), Some(50)]
        .into_iter()
        .flat_map(|from| {
            [store.follow(&id, from), elsewhere.follow(&id, from)].map(|mut follow| {
                tokio::spawn(async move { (from, until(&mut follow, last).await) })
            })
        });
    let (writers, readers) = tokio::join!(
        join_all(writers.collect::<Vec<_>>()),
        join_all(readers.collect::<Vec<_>>())
    );
    for writer in writers {
        writer.unwrap();
    }
    for reader in readers {
        let (from, (seqs, caught_up)) = reader.unwrap();
        assert_eq!(seqs, after(from, last), "from {from:?}");
        assert!(caught_up.len() <= 1, "{caught_up:?}");
    }
}

/// A session that is created and not yet stored can be followed already.
pub async fn a_session_is_followed_before_its_first_event(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    let mut follow = store.follow(&id, None);
    assert_eq!(caught_up(&mut follow).await, None);
    let reader = tokio::spawn(async move { until(&mut follow, 6).await });
    writer
        .append(0, whole_turn(0, 1, "first"), plain())
        .await
        .unwrap();
    assert_eq!(reader.await.unwrap(), ((0..7).collect(), Vec::new()));
}

/// A follower stays with a session whose writer is replaced.
pub async fn a_follower_outlives_the_writer(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let mut follow = store.follow(&id, Some(6));
    assert_eq!(caught_up(&mut follow).await, Some(6));
    drop(writer);
    for (store, turn) in [(&store, 2), (&fixture.reopened(), 3)] {
        let writer = load(store, &id).await.writer;
        let next = writer.next_seq().await;
        writer
            .append(next, whole_turn(next, turn, "more"), plain())
            .await
            .unwrap();
        let got = until(&mut follow, next + 6).await;
        assert_eq!(got, ((next..next + 7).collect(), Vec::new()));
    }
}

/// Dropping a waiting `next` loses nothing.
pub async fn a_dropped_wait_loses_no_event(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let mut follow = store.follow(&id, None);
    let mut seqs = Vec::new();
    for seq in 7..20 {
        {
            let mut next = Box::pin(follow.next());
            if let std::task::Poll::Ready(Ok(Followed::Line(line))) = poll_once(&mut next).await {
                seqs.push(line.event.seq);
            }
        }
        writer
            .append(seq, vec![vendor(seq, "{}", true)], plain())
            .await
            .unwrap();
    }
    seqs.extend(until(&mut follow, 19).await.0);
    assert_eq!(seqs, after(None, 19));
}

/// A follower of a session that is deleted is told.
pub async fn a_follower_of_a_deleted_session_is_told(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "one")).await);
    let mut follow = store.follow(&id, None);
    caught_up(&mut follow).await;
    store.delete(&id).await.unwrap();
    refused!(follow.next().await, ReadError::NotFound { .. });
}
