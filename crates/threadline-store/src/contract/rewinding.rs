//! Going back in the history of a session, and forward again.

use threadline_session::{Payload, payload::Outcome, types};

use super::{
    Fixture, busy, bytes, events, lines, load, new_id, raw, record, refused, request_after,
    request_of,
    script::{cut_turn, plain_turn, whole_turn},
    sound, still, stored,
};
use crate::{MemoryBackend, MoveError, OpenError, ReadError, SessionStore, SessionWriter};

/// Three whole turns of seven events each.
async fn three_turns(store: &SessionStore, id: &threadline_session::SessionId) -> SessionWriter {
    let writer = stored(store, id, whole_turn(0, 1, "one")).await;
    for turn in [2, 3] {
        record(&writer, plain_turn(turn, "more")).await;
    }
    writer
}

/// Wherever the history is moved back to, the model sees what it saw there, with the calls that
/// this opens again answered; a redo brings all of it back.
pub async fn a_rewind_to_any_event_gives_the_history_of_that_event(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let (writer, _) = busy(&store, &id).await;
    let last = writer.next_seq().await - 1;
    let latest = request_of(&writer).await;
    for to in 0..=last {
        let moved = writer.rewind(to).await.unwrap();
        assert_eq!(moved.to_seq, to);
        let head = usize::try_from(moved.seq).unwrap();
        let all = events(&store, &id).await;
        assert_eq!(all[head].kind, types::HISTORY_HEAD);
        assert_eq!(request_of(&writer).await, request_after(&all[..=head]));
        // The surface is the one that the events up to there have, but for answers.
        let then = threadline_session::Transcript::fold(&all[..=usize::try_from(to).unwrap()]);
        let then: Vec<u64> = then.unwrap().surface_seqs().collect();
        let now: Vec<u64> = writer.with_transcript(|t| t.surface_seqs().collect()).await;
        let now: Vec<u64> = now.into_iter().filter(|seq| *seq <= last).collect();
        assert_eq!(now, then, "to {to}");
        // Back to the end of the busy part, by going to its last event.
        writer.rewind(last).await.unwrap();
        assert_eq!(request_of(&writer).await, latest, "to {to}");
    }
    drop(writer);
    sound(&fixture.reopened(), &id).await;
}

/// Two rewinds are redone one after the other, and then there is nothing to redo.
pub async fn rewinds_are_redone_one_after_the_other(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = three_turns(&store, &id).await;
    let three = request_of(&writer).await;
    refused!(writer.redo().await, MoveError::NothingToRedo);
    writer.rewind(13).await.unwrap();
    let two = request_of(&writer).await;
    writer.rewind(6).await.unwrap();
    let one = request_of(&writer).await;
    assert!(one != two && two != three && one != three);
    let all = events(&store, &id).await;
    for (request, last) in [(&one, 6), (&two, 13), (&three, 20)] {
        assert_eq!(request, &request_after(&all[..=last]));
    }
    drop(writer);
    // Each in a process of its own.
    for wanted in [&two, &three] {
        let store = fixture.reopened();
        let moved = store.redo(&id).await.unwrap();
        assert!(moved.seq > moved.to_seq);
        let writer = load(&store, &id).await.writer;
        assert_eq!(&request_of(&writer).await, wanted);
    }
    let before = raw(&store, &id).await;
    refused!(fixture.reopened().redo(&id).await, MoveError::NothingToRedo);
    assert_eq!(raw(&store, &id).await, before);
    sound(&store, &id).await;
}

/// What a rewind took cannot be redone once something was built upon it.
pub async fn a_rewind_that_was_built_upon_is_not_redone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = three_turns(&store, &id).await;
    writer.rewind(6).await.unwrap();
    record(&writer, plain_turn(4, "another way")).await;
    let (request, before) = (request_of(&writer).await, bytes(&store, &id).await);
    refused!(writer.redo().await, MoveError::NothingToRedo);
    drop(writer);
    let again = fixture.reopened();
    refused!(again.redo(&id).await, MoveError::NothingToRedo);
    assert_eq!(bytes(&again, &id).await, before);
    // What was left behind is still in the log and can be gone back to.
    let writer = load(&again, &id).await.writer;
    writer.rewind(20).await.unwrap();
    let all = events(&again, &id).await;
    assert_eq!(request_of(&writer).await, request_after(&all[..=20]));
    writer.redo().await.unwrap();
    assert_eq!(request_of(&writer).await, request);
    sound(&again, &id).await;
}

/// A rewind behind a compaction brings back what was compacted; a redo compacts it again.
pub async fn a_rewind_reaches_behind_a_compaction(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let (writer, marks) = busy(&store, &id).await;
    writer.rewind(marks.compaction).await.unwrap();
    let compacted = request_of(&writer).await;
    assert!(compacted.contains("what came before"), "{compacted}");
    writer.rewind(marks.second).await.unwrap();
    let whole = request_of(&writer).await;
    assert!(
        whole.contains("I will") || whole.contains("\"B\""),
        "{whole}"
    );
    assert!(!whole.contains("what came before"), "{whole}");
    drop(writer);
    let again = fixture.reopened();
    again.redo(&id).await.unwrap();
    let writer = load(&again, &id).await.writer;
    assert_eq!(request_of(&writer).await, compacted);
    sound(&again, &id).await;
}

/// Nothing is moved while a turn runs, to an event that is not there, or in a session that somebody
/// else has; and nothing is written then.
pub async fn a_rewind_that_cannot_be_writes_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = three_turns(&store, &id).await;
    let before = raw(&store, &id).await;
    for to in [21, 22, u64::MAX] {
        let told = refused!(
            writer.rewind(to).await,
            MoveError::NoEvent { to, last } => (to, last)
        );
        assert_eq!(told, (to, 20));
    }
    for moved in [store.rewind(&id, 6).await, store.redo(&id).await] {
        refused!(moved, MoveError::Open(OpenError::Locked { .. }));
    }
    let unknown = store.rewind(&new_id(), 0).await;
    refused!(
        unknown,
        MoveError::Open(OpenError::Read(ReadError::NotFound { .. }))
    );
    assert_eq!(raw(&store, &id).await, before);
    writer.rewind(6).await.unwrap();
    record(&writer, cut_turn(4, 4)).await;
    let before = raw(&store, &id).await;
    refused!(writer.rewind(6).await, MoveError::TurnOpen);
    assert_eq!(raw(&store, &id).await, before);
    drop(writer);
    // A turn that nobody runs any more is closed by opening.
    let again = fixture.reopened();
    again.rewind(&id, 6).await.unwrap();
    sound(&again, &id).await;
}

/// Calls that a rewind opens again may have had their effect: their outcome is unknown, also that
/// of a call that had not begun at that point.
pub async fn calls_that_a_rewind_opens_are_answered_as_unknown(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let (writer, marks) = busy(&store, &id).await;
    let moved = writer.rewind(marks.inside).await.unwrap();
    let answers: Vec<_> = events(&store, &id)
        .await
        .iter()
        .filter(|event| event.seq > moved.seq)
        .map(|event| match event.payload().unwrap() {
            Payload::ToolResult(result) => (result.call_id, result.outcome, result.synthetic),
            other => panic!("{}", other.kind()),
        })
        .collect();
    let unknown = |id: &str| (id.to_owned(), Outcome::Unknown, true);
    assert_eq!(answers, [unknown("a"), unknown("c")]);
    assert!(writer.with_transcript(|t| t.open_calls().is_empty()).await);
    drop(writer);
    assert_eq!(load(&fixture.reopened(), &id).await.closed, 0);
    sound(&fixture.reopened(), &id).await;
}

/// A rewind into a turn is redone like any other: its own answers are nothing built upon it.
pub async fn a_rewind_into_a_turn_is_redone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let (writer, marks) = busy(&store, &id).await;
    let before = request_of(&writer).await;
    writer.rewind(marks.inside).await.unwrap();
    assert_ne!(request_of(&writer).await, before);
    writer.redo().await.unwrap();
    assert_eq!(request_of(&writer).await, before);
    sound(&store, &id).await;
}

/// A session that was moved back opens there, and goes on from there.
pub async fn a_rewind_survives_opening_again(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let (writer, marks) = busy(&store, &id).await;
    drop(writer);
    for to in [marks.first, marks.inside, marks.compaction] {
        let store = fixture.reopened();
        store.rewind(&id, to).await.unwrap();
        let all = events(&store, &id).await;
        let loaded = load(&fixture.reopened(), &id).await;
        assert_eq!(loaded.closed, 0);
        assert_eq!(request_of(&loaded.writer).await, request_after(&all));
        let seen = store.inspect(&id).await.unwrap();
        assert_eq!(super::request(seen.view.transcript()), request_after(&all));
        record(&loaded.writer, plain_turn(9, "from there")).await;
        let all = events(&store, &id).await;
        assert_eq!(request_of(&loaded.writer).await, request_after(&all));
        sound(&store, &id).await;
    }
}

/// A session that was opened from a checkpoint moves far behind it as one that has read everything.
pub async fn a_rewind_far_behind_a_checkpoint_is_the_same_without(fixture: Fixture) {
    let id = new_id();
    drop(busy(&fixture.eager(still(5)), &id).await);
    let twin = SessionStore::new(std::sync::Arc::new(MemoryBackend::new()), still(7));
    fixture.store().copy_to(&twin, &id).await.unwrap();
    let last = events(&twin, &id).await.len() as u64 - 1;
    for to in 0..=last {
        let store = fixture.eager(still(7));
        // The first opening keeps a checkpoint of everything, the second begins with it.
        drop(load(&store, &id).await);
        let kept = store.backend().checkpoint(&id, u64::MAX).await.unwrap();
        assert!(kept.is_some_and(|kept| kept.next.seq > to), "to {to}");
        let (ours, theirs) = (
            load(&store, &id).await.writer,
            load(&twin, &id).await.writer,
        );
        assert_eq!(
            ours.rewind(to).await.unwrap(),
            theirs.rewind(to).await.unwrap()
        );
        assert_eq!(
            request_of(&ours).await,
            request_of(&theirs).await,
            "to {to}"
        );
        for writer in [&ours, &theirs] {
            record(writer, plain_turn(50 + to, "on")).await;
        }
        assert_eq!(
            request_of(&ours).await,
            request_of(&theirs).await,
            "to {to}"
        );
        assert_eq!(ours.facts(), theirs.facts());
        // Back and forward again, each over the moves before.
        for writer in [&ours, &theirs] {
            writer.rewind(to / 2).await.unwrap();
            writer.rewind(last).await.unwrap();
        }
        assert_eq!(
            request_of(&ours).await,
            request_of(&theirs).await,
            "to {to}"
        );
    }
    let (ours, theirs) = (lines(&fixture.store(), &id).await, lines(&twin, &id).await);
    assert_eq!(ours, theirs);
    sound(&fixture.reopened(), &id).await;
}
