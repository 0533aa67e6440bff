//! Forks: sessions that share the beginning of another one.

use std::collections::HashSet;

use futures_util::future::join_all;
use threadline_session::{
    Event, Parent, Payload, SessionId,
    payload::{EndReason, Outcome},
    types,
};

use super::{
    Fixture, busy, bytes, closed, events, header_of, keyed, lines, load, new_id, plain, raw,
    record, refused, request_after, request_of,
    script::{cut_in_a_tool, cut_turn, events_from, turn_start, user, whole_turn},
    sound, stored,
};
use crate::{AppendOptions, DeleteError, ForkError, Forked, ListFilter, ReadError, SessionStore};

fn up_to(events: &[Event], last: u64) -> &[Event] {
    &events[..=usize::try_from(last).unwrap()]
}

async fn fork(store: &SessionStore, parent: &SessionId, at: u64) -> Forked {
    store.fork(parent, Some(at), new_id()).await.unwrap()
}

/// Checks that a session has these events and what closes them, and nothing else.
async fn holds(store: &SessionStore, id: &SessionId, wanted: &[Event]) {
    assert_eq!(events(store, id).await, closed(wanted), "{id}");
    sound(store, id).await;
}

/// Appends a whole turn where the log ends.
async fn goes_on(store: &SessionStore, id: &SessionId, turn: u64) {
    let writer = load(store, id).await.writer;
    let next = writer.next_seq().await;
    writer
        .append(next, whole_turn(next, turn, "my own way"), plain())
        .await
        .unwrap();
    drop(writer);
    sound(store, id).await;
}

/// Wherever a session is forked, with parallel calls, a compaction and rewinds behind it, the model
/// sees in the fork what it saw in the original at that point.
pub async fn a_fork_at_any_event_has_the_request_of_that_event(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    let (writer, _) = busy(&store, &parent).await;
    record(&writer, cut_turn(6, 6)).await;
    let all = events(&store, &parent).await;
    let before = raw(&store, &parent).await;
    for k in 0..all.len() as u64 {
        let forked = fork(&store, &parent, k).await;
        let wanted = closed(up_to(&all, k));
        assert_eq!(forked.at_seq, k);
        assert_eq!(forked.closed, wanted.len() - k as usize - 1, "at {k}");
        assert_eq!(events(&store, &forked.id).await, wanted, "at {k}");
        let loaded = load(&store, &forked.id).await;
        assert_eq!(loaded.closed, 0, "at {k}");
        assert_eq!(
            request_of(&loaded.writer).await,
            request_after(up_to(&all, k)),
            "at {k}"
        );
        drop(loaded);
        sound(&store, &forked.id).await;
    }
    assert_eq!(raw(&store, &parent).await, before);
}

/// The shared events are the same bytes; the header says where they come from, and so do lists.
pub async fn a_fork_shares_its_events_and_names_its_parent(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    drop(busy(&store, &parent).await);
    let theirs = lines(&store, &parent).await;
    let last = theirs.len() as u64 - 1;
    let stamp = store.stat(&parent).await.unwrap().stamp;
    for at in [None, Some(17), Some(0)] {
        let child = new_id();
        let forked = store.fork(&parent, at, child.clone()).await.unwrap();
        let at = at.unwrap_or(last);
        assert_eq!(
            (&forked.id, &forked.parent, forked.at_seq),
            (&child, &parent, at)
        );
        for store in [&store, &fixture.reopened()] {
            let ours = lines(store, &child).await;
            for (ours, theirs) in ours.iter().zip(&theirs).take(at as usize + 1) {
                assert_eq!(ours.raw, theirs.raw);
            }
            let header = store.header(&child).await.unwrap().header;
            let named = Some(Parent {
                id: parent.clone(),
                seq: at,
            });
            assert_eq!((&header.id, &header.parent), (&child, &named));
            assert_eq!(header.base.map(|base| base.last_seq), Some(at));
            assert_eq!(store.summary(&child).await.unwrap().parent, named);
            let filter = ListFilter {
                parent: Some(parent.clone()),
                ..ListFilter::default()
            };
            let listed = store.list(&filter, None, 10).await.unwrap().sessions;
            assert!(listed.iter().any(|row| row.id == child), "{listed:?}");
            // What a fork shows is durable, also what its parent had not synced.
            let stat = store.stat(&child).await.unwrap();
            assert!(stat.writer.is_none());
            assert!(stat.acknowledged.is_none_or(|seq| seq >= at));
        }
    }
    assert_eq!(store.stat(&parent).await.unwrap().stamp, stamp);
}

/// A turn that the fork cuts is closed in it, call by call; the parent is still in the middle.
pub async fn a_fork_in_a_turn_is_closed_and_its_parent_is_not(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    let writer = stored(&store, &parent, cut_in_a_tool()).await;
    let before = bytes(&store, &parent).await;
    let forked = store.fork(&parent, None, new_id()).await.unwrap();
    assert_eq!((forked.at_seq, forked.closed), (4, 4));
    let closing = events(&store, &forked.id).await.split_off(5);
    let mut outcomes = Vec::new();
    for event in &closing {
        match event.payload().unwrap() {
            Payload::ToolResult(result) => {
                assert!(result.synthetic && result.is_error);
                outcomes.push((result.call_id, result.outcome));
            }
            Payload::TurnEnd(end) => assert_eq!(end.reason, EndReason::Interrupted),
            other => assert_eq!(other.kind(), types::STEP_END),
        }
    }
    let wanted = [("a", Outcome::Unknown), ("b", Outcome::NotStarted)];
    assert_eq!(outcomes, wanted.map(|(id, outcome)| (id.into(), outcome)));
    assert_eq!(bytes(&store, &parent).await, before);
    // The parent is not interrupted: its run goes on.
    assert!(writer.with_transcript(|t| t.open_turn().is_some()).await);
    record(&writer, vec![super::script::tool_result("a", "A")]).await;
    sound(&store, &parent).await;
    sound(&store, &forked.id).await;
}

/// Forks of forks of forks, at points in each part of their log, have what came before and their
/// own, and each part's chain goes on over the ones before.
pub async fn forks_of_forks_are_whole_at_every_part(fixture: Fixture) {
    let store = fixture.store();
    let top = new_id();
    drop(stored(&store, &top, whole_turn(0, 1, "one")).await);
    goes_on(&store, &top, 2).await;
    let child = fork(&store, &top, 9).await.id;
    goes_on(&store, &child, 3).await;
    let grandchild = fork(
        &store,
        &child,
        events(&store, &child).await.len() as u64 - 3,
    )
    .await;
    let grandchild = grandchild.id;
    goes_on(&store, &grandchild, 4).await;
    let all = events(&store, &grandchild).await;
    let turns = store.verify(&grandchild).await.unwrap().chained_turns;
    assert_eq!(
        turns,
        all.iter().filter(|e| e.kind == types::TURN_END).count() as u64
    );
    let again = fixture.reopened();
    for k in 0..all.len() as u64 {
        let forked = fork(&again, &grandchild, k).await;
        holds(&again, &forked.id, up_to(&all, k)).await;
        let writer = load(&again, &forked.id).await.writer;
        assert_eq!(
            request_of(&writer).await,
            request_after(up_to(&all, k)),
            "at {k}"
        );
    }
    for id in [&top, &child, &grandchild] {
        sound(&again, id).await;
    }
}

/// A session can be forked while it is written, and what is written afterwards is not the fork's.
pub async fn a_fork_is_not_moved_by_what_its_parent_does_next(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    let writer = stored(&store, &parent, whole_turn(0, 1, "one")).await;
    // Not synced, so that the fork must see to it.
    writer
        .append(7, events_from(7, &[turn_start(2), user("two")]), plain())
        .await
        .unwrap();
    let elsewhere = fixture.reopened();
    let mut children = Vec::new();
    for store in [&store, &elsewhere] {
        let child = store.fork(&parent, None, new_id()).await.unwrap();
        assert_eq!(child.at_seq, 8);
        children.push((child.id.clone(), raw(store, &child.id).await));
    }
    for turn in 3..6 {
        let next = writer.next_seq().await;
        writer
            .append(next, whole_turn(next, turn, "more"), plain())
            .await
            .unwrap();
        for (child, before) in &children {
            assert_eq!(&raw(&elsewhere, child).await, before);
        }
    }
    let grown = raw(&store, &parent).await;
    for (child, _) in &children {
        goes_on(&elsewhere, child, 2).await;
    }
    assert_eq!(raw(&store, &parent).await, grown);
    sound(&store, &parent).await;
}

/// Forks that cannot be are refused, each in its own words, and leave nothing.
pub async fn a_fork_that_cannot_be_leaves_nothing(fixture: Fixture) {
    let store = fixture.store();
    let (parent, other, child) = (new_id(), new_id(), new_id());
    let writer = stored(&store, &parent, whole_turn(0, 1, "one")).await;
    let theirs = stored(&store, &other, whole_turn(0, 1, "other")).await;
    let pending = store.create(header_of(&new_id())).await.unwrap();
    let before = (bytes(&store, &parent).await, bytes(&store, &other).await);
    for unknown in [&new_id(), pending.id()] {
        for at in [None, Some(0)] {
            refused!(
                store.fork(unknown, at, child.clone()).await,
                ForkError::Read(ReadError::NotFound { .. })
            );
        }
    }
    for at in [7, 8, u64::MAX] {
        let told = refused!(
            store.fork(&parent, Some(at), child.clone()).await,
            ForkError::NoEvent { seq, last, .. } => (seq, last)
        );
        assert_eq!(told, (at, 6));
    }
    for taken in [&other, &parent] {
        refused!(
            store.fork(&parent, Some(3), taken.clone()).await,
            ForkError::AlreadyExists { .. }
        );
    }
    drop((writer, theirs, pending));
    assert_eq!(
        (bytes(&store, &parent).await, bytes(&store, &other).await),
        before
    );
    let again = fixture.reopened();
    assert!(!again.has(&child).await.unwrap());
    let ids: HashSet<_> = again.ids().await.unwrap().into_iter().collect();
    assert_eq!(ids, HashSet::from([parent.clone(), other]));
    // The id is as good as new.
    assert_eq!(again.fork(&parent, Some(3), child).await.unwrap().at_seq, 3);
}

/// A session of which only the header was brought in has nothing to fork.
pub async fn a_session_without_events_cannot_be_forked(fixture: Fixture) {
    let store = fixture.store();
    let (parent, child) = (new_id(), new_id());
    let mut import = fixture.backend.import(&parent).await.unwrap();
    let header = header_of(&parent).encode().unwrap();
    import.header(&header).await.unwrap();
    import.finish().await.unwrap();
    refused!(
        store.fork(&parent, None, child.clone()).await,
        ForkError::Empty { .. }
    );
    refused!(
        store.fork(&parent, Some(0), child.clone()).await,
        ForkError::Empty { .. } | ForkError::NoEvent { .. }
    );
    assert!(!fixture.reopened().has(&child).await.unwrap());
}

/// A fork is opened, written and opened again like any other session.
pub async fn a_fork_goes_on_by_itself(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    drop(busy(&store, &parent).await);
    let all = events(&store, &parent).await;
    let child = fork(&store, &parent, 10).await.id;
    let (mut wanted, before) = (closed(up_to(&all, 10)), raw(&store, &parent).await);
    for turn in 2..5 {
        let store = fixture.reopened();
        let writer = load(&store, &child).await.writer;
        assert_eq!(request_of(&writer).await, request_after(&wanted));
        assert_eq!(writer.with_transcript(|t| t.last_turn()).await, turn - 1);
        let next = writer.next_seq().await;
        assert_eq!(next, wanted.len() as u64);
        let more = whole_turn(next, turn, "mine");
        wanted.extend(more.clone());
        writer
            .append(next, more, AppendOptions::barrier())
            .await
            .unwrap();
        drop(writer);
        holds(&store, &child, &wanted).await;
    }
    let reader = fixture.reopened();
    assert_eq!(raw(&reader, &parent).await, before);
    let head = reader.verify(&parent).await.unwrap().head;
    assert_ne!(reader.verify(&child).await.unwrap().head, head);
}

/// A key of the shared part was used in the fork too; one that came later was not.
pub async fn keys_of_the_shared_part_are_known_to_a_fork(fixture: Fixture) {
    let store = fixture.store();
    let parent = new_id();
    let writer = stored(&store, &parent, whole_turn(0, 1, "one")).await;
    for (seq, turn, key) in [(7, 2, "shared"), (14, 3, "later")] {
        let turn = whole_turn(seq, turn, key);
        writer.append(seq, turn, keyed(key)).await.unwrap();
    }
    // Right behind the batch of the key, and in the middle of the next one.
    for (at, next) in [(13, 14), (16, 18)] {
        let child = fork(&store, &parent, at).await;
        let store = fixture.reopened();
        let writer = load(&store, &child.id).await.writer;
        let next = next.max(writer.next_seq().await);
        let again = writer
            .append(next, whole_turn(next, 4, "x"), keyed("shared"))
            .await
            .unwrap();
        assert_eq!((again.last_seq, again.repeated), (13, true));
        let fresh = writer
            .append(next, whole_turn(next, 4, "x"), keyed("later"))
            .await
            .unwrap();
        assert!(!fresh.repeated, "at {at}");
        sound(&store, &child.id).await;
    }
}

/// Forks outlive their parents, in whatever order those are deleted.
pub async fn deleting_a_parent_leaves_its_forks_whole(fixture: Fixture) {
    for top_first in [true, false] {
        let store = fixture.store();
        let top = new_id();
        drop(stored(&store, &top, whole_turn(0, 1, "one")).await);
        let middle = fork(&store, &top, 6).await.id;
        goes_on(&store, &middle, 2).await;
        let child = fork(&store, &middle, 11).await.id;
        goes_on(&store, &child, 3).await;
        let cousin = fork(&store, &top, 4).await.id;
        let kept = [&child, &cousin];
        let mut before = Vec::new();
        for id in kept {
            before.push(raw(&store, id).await);
        }
        let parents = if top_first {
            [&top, &middle]
        } else {
            [&middle, &top]
        };
        for parent in parents {
            store.delete(parent).await.unwrap();
            for store in [&store, &fixture.reopened()] {
                assert!(!store.has(parent).await.unwrap());
                for (id, before) in kept.into_iter().zip(&before) {
                    assert_eq!(&raw(store, id).await, before);
                    sound(store, id).await;
                }
            }
        }
        let again = fixture.reopened();
        let all = events(&again, &child).await;
        // The forks can be written and forked like before.
        for k in 0..all.len() as u64 {
            let grandchild = fork(&again, &child, k).await.id;
            holds(&again, &grandchild, up_to(&all, k)).await;
            again.delete(&grandchild).await.unwrap();
        }
        for id in kept {
            goes_on(&again, id, 9).await;
            again.delete(id).await.unwrap();
        }
        assert!(fixture.reopened().ids().await.unwrap().is_empty());
    }
}

/// A fork that is made while its parent is deleted is whole, or is not at all.
pub async fn deleting_a_parent_while_it_is_forked_tears_nothing(fixture: Fixture) {
    let store = fixture.store();
    for _ in 0..12 {
        let (parent, child) = (new_id(), new_id());
        drop(stored(&store, &parent, whole_turn(0, 1, "one")).await);
        let before = lines(&store, &parent).await;
        let (forking, deleting) = (fixture.reopened(), fixture.reopened());
        let (from, to) = (parent.clone(), child.clone());
        let fork = tokio::spawn(async move { forking.fork(&from, Some(5), to).await });
        let gone = parent.clone();
        let delete = tokio::spawn(async move {
            loop {
                match deleting.delete(&gone).await {
                    Err(DeleteError::Locked { .. }) => tokio::task::yield_now().await,
                    deleted => return deleted,
                }
            }
        });
        delete.await.unwrap().unwrap();
        let forked = fork.await.unwrap();
        assert!(!store.has(&parent).await.unwrap());
        match forked {
            Ok(_) => {
                for (ours, theirs) in lines(&store, &child).await.iter().zip(&before).take(6) {
                    assert_eq!(ours.raw, theirs.raw);
                }
                goes_on(&store, &child, 2).await;
            }
            Err(_) => assert!(!store.has(&child).await.unwrap()),
        }
    }
}

/// Many forks are made at once; of those under one id, one.
pub async fn of_forks_under_one_id_one_is_made(fixture: Fixture) {
    let store = fixture.store();
    let (parent, one) = (new_id(), new_id());
    let writer = stored(&store, &parent, whole_turn(0, 1, "one")).await;
    let ids = [one.clone(), new_id(), one.clone(), new_id(), one.clone()];
    let forks = ids.iter().zip(2..).map(|(child, at)| {
        let (store, parent, child) = (fixture.reopened(), parent.clone(), child.clone());
        tokio::spawn(async move { store.fork(&parent, Some(at), child).await })
    });
    let mut made = Vec::new();
    for forked in join_all(forks.collect::<Vec<_>>()).await {
        match forked.unwrap() {
            Ok(forked) => made.push(forked),
            Err(ForkError::AlreadyExists { id } | ForkError::Locked { id, .. }) => {
                assert_eq!(id, one);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(made.len(), 3, "{made:?}");
    let all = events(&store, &parent).await;
    for forked in made {
        holds(&store, &forked.id, up_to(&all, forked.at_seq)).await;
    }
    drop(writer);
}
