//! Raw pages, storage facts and verification.

use std::ops::ControlFlow;

use threadline_session::{Payload, Request, SessionId, Transcript, types};

use super::{
    Fixture, bytes, events, header_of, id, line, lines, load, new_id, plain, refused,
    script::{cut_in_a_tool, vendor, whole_turn},
    stored,
};
use crate::{AppendOptions, CheckProgress, CheckStage, ReadError, ReadPos};

/// Reading from any event gives exactly the rest.
pub async fn reading_from_any_event_gives_the_rest(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    writer
        .append(7, whole_turn(7, 2, "two"), plain())
        .await
        .unwrap();
    let all = events(&store, &id).await;
    for store in [&store, &fixture.reopened()] {
        for from in 0..=16 {
            let page = store.read(&id, ReadPos::at(from), 100).await.unwrap();
            let got: Vec<_> = page.entries.into_iter().map(|e| line(e).event).collect();
            let wanted = all
                .get(usize::try_from(from).unwrap()..)
                .unwrap_or_default();
            assert_eq!(got, wanted, "from {from}");
            assert_eq!(page.next, None, "from {from}");
        }
    }
}

/// Pages of any size join to the whole log without a gap or a repeat.
pub async fn pages_of_any_size_join_to_the_whole_log(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    writer
        .append(7, whole_turn(7, 2, "two"), plain())
        .await
        .unwrap();
    let all = events(&store, &id).await;
    for limit in [1, 2, 3, 7, 13, 14, 15] {
        let mut joined = Vec::new();
        let mut pos = Some(ReadPos::default());
        while let Some(from) = pos {
            let page = store.read(&id, from, limit).await.unwrap();
            assert!(page.entries.len() <= limit);
            assert!(page.next.is_none() || page.entries.len() == limit);
            joined.extend(page.entries.into_iter().map(|e| line(e).event));
            pos = page.next;
            assert!(joined.len() <= all.len(), "the pages go round in circles");
        }
        assert_eq!(joined, all, "limit {limit}");
    }
}

/// A log of many pages of the backend comes in order, whole, and loads.
pub async fn a_log_of_many_pages_comes_whole(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    let fill = "x".repeat(200_000);
    for seq in 0..24 {
        let event = vendor(seq, &format!("{{\"n\":{seq},\"fill\":\"{fill}\"}}"), true);
        writer.append(seq, vec![event], plain()).await.unwrap();
    }
    drop(writer);
    let again = fixture.reopened();
    let seqs: Vec<u64> = events(&again, &id)
        .await
        .iter()
        .map(|event| event.seq)
        .collect();
    assert_eq!(seqs, (0..24).collect::<Vec<_>>());
    assert_eq!(load(&again, &id).await.writer.next_seq().await, 24);
    let mut given = 0;
    again
        .each_event(&id, |line| {
            given += 1;
            line.event.seq < 9
        })
        .await
        .unwrap();
    assert_eq!(given, 10);
}

/// Everything that reads a session says when there is none.
pub async fn reading_an_unknown_session_is_not_found(fixture: Fixture) {
    let store = fixture.store();
    let id = id("nobody");
    refused!(
        store.read(&id, ReadPos::default(), 1).await,
        ReadError::NotFound { .. }
    );
    refused!(store.header(&id).await, ReadError::NotFound { .. });
    refused!(store.stat(&id).await, ReadError::NotFound { .. });
    refused!(store.inspect(&id).await, ReadError::NotFound { .. });
    refused!(store.summary(&id).await, ReadError::NotFound { .. });
    refused!(store.verify(&id).await, ReadError::NotFound { .. });
    refused!(
        store.each_event(&id, |_| true).await,
        ReadError::NotFound { .. }
    );
    refused!(
        store.follow(&id, None).next().await,
        ReadError::NotFound { .. }
    );
    refused!(
        store.request_of_step(&id, 1).await,
        ReadError::NotFound { .. }
    );
    let told = store.header(&id).await.unwrap_err().to_string();
    assert!(
        told.contains("nobody") && told.contains(&store.address()),
        "{told}"
    );
    assert!(!store.has(&id).await.unwrap());
}

/// The stamp of a session changes with its log and with nothing else.
pub async fn a_stamp_changes_with_the_log_alone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let reader = fixture.reopened();
    let first = reader.stat(&id).await.unwrap();
    drop(lines(&reader, &id).await);
    drop(reader.inspect(&id).await.unwrap());
    assert_eq!(reader.stat(&id).await.unwrap().stamp, first.stamp);
    writer
        .append(7, vec![vendor(7, "{}", true)], plain())
        .await
        .unwrap();
    let second = reader.stat(&id).await.unwrap();
    assert_ne!(second.stamp, first.stamp);
    assert!(second.bytes > first.bytes);
    let whole: usize = bytes(&store, &id)
        .await
        .iter()
        .map(|line| line.len() + 1)
        .sum();
    // The header's line brings its own LF.
    assert_eq!(second.bytes, whole as u64 - 1);
}

async fn head(fixture: &Fixture, id: &SessionId) -> Option<String> {
    let report = fixture.reopened().verify(id).await.unwrap();
    assert!(report.ok, "{:?}", report.findings);
    assert_eq!(report.unverified, 0);
    report.head
}

/// Verifying finds nothing wrong in what was written, and its head moves with each turn alone.
pub async fn the_verified_head_moves_with_each_turn_alone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, cut_in_a_tool()).await;
    assert_eq!(head(&fixture, &id).await, None);
    drop(writer);
    let writer = load(&store, &id).await.writer;
    let first = head(&fixture, &id).await;
    assert!(first.is_some());
    assert_eq!(head(&fixture, &id).await, first);
    writer
        .append(9, vec![vendor(9, "{}", true)], plain())
        .await
        .unwrap();
    assert_eq!(head(&fixture, &id).await, first);
    writer
        .append(10, whole_turn(10, 2, "two"), AppendOptions::barrier())
        .await
        .unwrap();
    let second = head(&fixture, &id).await;
    assert_ne!(second, first);
    drop(writer);
    assert_eq!(head(&fixture, &id).await, second);
    let report = store.verify(&id).await.unwrap();
    assert_eq!((report.events, report.chained_turns), (17, 2));
}

/// A check says how far it is while it goes on, and ends when it is told to.
pub async fn a_check_says_how_far_it_is_and_ends_when_it_is_told_to(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let data = format!("{{\"x\":\"{}\"}}", "x".repeat(1_000_000));
    for seq in 7..11 {
        let event = vec![vendor(seq, &data, true)];
        writer
            .append(seq, event, AppendOptions::barrier())
            .await
            .unwrap();
    }
    writer
        .append(11, whole_turn(11, 2, "two"), AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);
    let store = fixture.reopened();
    let whole = store.verify(&id).await.unwrap();
    let mut told: Vec<CheckProgress> = Vec::new();
    let mut watch = |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    };
    let report = store.verify_watched(&id, &mut watch).await.unwrap();
    assert_eq!(report, Some(whole));
    let unequal = store.unequal_requests_watched(&id, &mut watch).await;
    let wanted = store.unequal_requests(&id).await.unwrap();
    assert_eq!(unequal.unwrap(), Some(wanted));
    for stage in [CheckStage::Records, CheckStage::Requests] {
        let bytes: Vec<_> = told
            .iter()
            .filter(|progress| progress.stage == stage)
            .collect();
        assert!(bytes.len() >= 3, "{stage:?} {told:?}");
        assert!(
            bytes.is_sorted_by_key(|progress| progress.bytes),
            "{told:?}"
        );
        assert!(
            bytes.iter().all(|progress| progress.bytes <= progress.of),
            "{told:?}"
        );
    }

    // At once, and in the middle.
    for stop in [1, 2] {
        let mut calls = 0;
        let mut watch = |_| {
            calls += 1;
            if calls == stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        assert_eq!(store.verify_watched(&id, &mut watch).await.unwrap(), None);
        assert_eq!(calls, stop, "nothing is asked after it was told to end");
        let mut calls = 0;
        let mut watch = |_| {
            calls += 1;
            if calls == stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let unequal = store.unequal_requests_watched(&id, &mut watch).await;
        assert_eq!(unequal.unwrap(), None);
    }
}

/// The request of a step is rebuilt from the log.
pub async fn the_request_of_a_step_is_rebuilt(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    writer
        .append(7, whole_turn(7, 2, "two"), plain())
        .await
        .unwrap();
    let again = fixture.reopened();
    for (step, items) in [(1, 1), (2, 3)] {
        let rebuilt = again
            .request_of_step(&id, step)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(
            (rebuilt.start.step, rebuilt.request.items.len()),
            (step, items)
        );
        assert_eq!(
            events(&again, &id).await[usize::try_from(rebuilt.seq).unwrap()].kind,
            types::STEP_START
        );
    }
    assert!(again.request_of_step(&id, 3).await.unwrap().is_none());
}

/// Each step of a long session is found, and its request is the one that a fold of all that is
/// before it gives.
pub async fn a_step_is_found_without_going_through_the_log(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let mut next = 7;
    for turn in 2..=40 {
        let events = whole_turn(next, turn, &format!("turn {turn}"));
        next += events.len() as u64;
        writer
            .append(next - events.len() as u64, events, plain())
            .await
            .unwrap();
    }
    drop(writer);
    let again = fixture.reopened();
    let all = events(&again, &id).await;
    let mut seen = 0;
    for event in &all {
        let Ok(Payload::StepStart(start)) = event.payload() else {
            continue;
        };
        seen += 1;
        let found = again.request_of_step(&id, start.step).await.unwrap();
        let found = found.unwrap().unwrap();
        assert_eq!(found.seq, event.seq);
        let mut state = Transcript::new();
        for before in &all[..usize::try_from(event.seq).unwrap()] {
            state.apply(before).unwrap();
        }
        assert_eq!(found.request, Request::build(&state).unwrap().0);
    }
    assert!(seen >= 40, "{seen}");
    assert!(again.request_of_step(&id, 0).await.unwrap().is_none());
    assert!(again.request_of_step(&id, 1000).await.unwrap().is_none());
}

/// What the next opening begins with is what a fold of the whole log and its closers give, and
/// nothing is written for it.
pub async fn the_state_of_the_next_opening_is_shown_without_opening(fixture: Fixture) {
    let store = fixture.store();
    for (name, events) in [("whole", whole_turn(0, 1, "one")), ("cut", cut_in_a_tool())] {
        let id = id(name);
        drop(stored(&store, &id, events).await);
        let again = fixture.reopened();
        let before = bytes(&again, &id).await;
        let resumed = again.resumed(&id).await.unwrap().unwrap();
        let inspected = again.inspect(&id).await.unwrap();
        let wanted: Vec<_> = inspected.view.transcript().surface().collect();
        let found: Vec<_> = resumed.surface().collect();
        assert_eq!(found, wanted, "{name}");
        assert!(resumed.open_turn().is_none(), "{name}");
        assert_eq!(bytes(&again, &id).await, before, "{name}");
    }
}
