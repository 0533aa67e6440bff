//! What an append accepts, refuses and promises.

use serde_json::value::RawValue;
use threadline_session::{ApplyError, Event, EventError, Payload, codec::EncodeError};

use super::{
    Fixture, bytes, events, header_of, keyed, load, new_id, options, plain, refused,
    script::{events_from, turn_end, turn_start, user, vendor, whole_turn},
    sound, stored,
};
use crate::{
    AppendError, AppendOptions, Durability, OpenError, ReadError, SessionStore, SessionWriter,
    StoreOptions,
};

/// A stored session of one turn, its writer and its id.
async fn begun(store: &SessionStore) -> (SessionWriter, threadline_session::SessionId) {
    let id = new_id();
    (stored(store, &id, whole_turn(0, 1, "first")).await, id)
}

/// Checks that refused batches left no trace and the writer goes on.
async fn untouched(
    fixture: &Fixture,
    writer: &SessionWriter,
    id: &threadline_session::SessionId,
    before: &[Vec<u8>],
) {
    let store = fixture.store();
    assert_eq!(bytes(&store, id).await, before);
    let next = writer.next_seq().await;
    writer
        .append(next, whole_turn(next, 9, "go on"), plain())
        .await
        .unwrap();
    sound(&store, id).await;
}

/// Whoever expects another number than the next is told both, and nothing is stored.
pub async fn another_first_number_is_a_conflict(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let before = bytes(&store, &id).await;
    for expected in [0, 6, 8, u64::MAX] {
        let batch = whole_turn(7, 2, "x");
        let told = refused!(
            writer.append(expected, batch, plain()).await,
            AppendError::Conflict { expected, actual } => (expected, actual)
        );
        assert_eq!(told, (expected, 7));
    }
    untouched(&fixture, &writer, &id, &before).await;
}

/// A batch that does not begin at its expected number is refused.
pub async fn a_batch_numbered_from_elsewhere_is_refused(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let before = bytes(&store, &id).await;
    let told = refused!(
        writer.append(7, whole_turn(9, 2, "x"), plain()).await,
        AppendError::Invalid(EncodeError::Gap { expected, found }) => (expected, found)
    );
    assert_eq!(told, (7, 9));
    untouched(&fixture, &writer, &id, &before).await;
}

/// A gap, a repeat or a step back in the middle of a batch refuses all of it.
pub async fn a_gap_in_a_batch_stores_nothing_of_it(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let before = bytes(&store, &id).await;
    for seqs in [[7, 9, 10], [7, 7, 8], [7, 8, 7]] {
        let batch = seqs.map(|seq| vendor(seq, "{}", true)).to_vec();
        refused!(
            writer.append(7, batch, plain()).await,
            AppendError::Invalid(EncodeError::Gap { .. })
        );
    }
    untouched(&fixture, &writer, &id, &before).await;
}

/// An empty batch and one too many are refused; the largest is accepted.
pub async fn batches_are_accepted_up_to_their_limit(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let most = threadline_session::limits::MAX_BATCH_EVENTS as u64;
    let notes = |n: u64| {
        (7..7 + n)
            .map(|seq| vendor(seq, "{}", true))
            .collect::<Vec<_>>()
    };
    refused!(
        writer.append(7, Vec::new(), plain()).await,
        AppendError::Invalid(EncodeError::Empty)
    );
    refused!(
        writer.append(7, notes(most + 1), plain()).await,
        AppendError::Invalid(EncodeError::TooMany { .. })
    );
    let stored = writer.append(7, notes(most), plain()).await.unwrap();
    assert_eq!(stored.last_seq, 6 + most);
    sound(&fixture.reopened(), &id).await;
}

/// Data that is no JSON object on one line never reaches the log.
pub async fn data_that_is_no_object_on_one_line_is_refused(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let before = bytes(&store, &id).await;
    for data in [
        "nonsense",
        "{\"a\":",
        "[]",
        "7",
        "null",
        "\"x\"",
        "{\"a\":\n1}",
    ] {
        let event = Event::from_json(7, 0, "vendor/thing", data, true);
        refused!(event, EventError::Data { .. });
        // And not by the back door either.
        let Ok(raw) = RawValue::from_string(data.to_owned()) else {
            continue;
        };
        let mut event = vendor(7, "{}", true);
        event.data = raw;
        refused!(
            writer.append(7, vec![event], plain()).await,
            AppendError::Invalid(EncodeError::Event(EventError::Data { .. }))
        );
    }
    let mut event = vendor(7, "{}", true);
    event.kind = "no name\n".into();
    refused!(
        writer.append(7, vec![event], plain()).await,
        AppendError::Invalid(EncodeError::Event(EventError::Type { .. }))
    );
    untouched(&fixture, &writer, &id, &before).await;
}

/// A known type with data of another shape could not be loaded, so it is not accepted.
pub async fn known_types_with_data_of_another_shape_are_refused(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let before = bytes(&store, &id).await;
    let event = Event::from_json(7, 0, "user/message", "{\"content\":1}", false).unwrap();
    refused!(
        writer.append(7, vec![event], plain()).await,
        AppendError::Unloadable(ApplyError::Payload(_))
    );
    untouched(&fixture, &writer, &id, &before).await;
}

/// Returns a plug-in's event whose line, with its LF, has exactly this many bytes.
fn of_size(seq: u64, bytes: usize) -> Event {
    let line = |event: &Event| {
        let encoder = threadline_session::codec::Encoder::new(Default::default());
        let events = std::slice::from_ref(event);
        encoder
            .with_max_event_bytes(usize::MAX)
            .batch(seq, events, None)
            .unwrap()
            .bytes
            .len()
    };
    let bare = vendor(seq, "{\"text\":\"\"}", true);
    let fill = "x".repeat(bytes - line(&bare));
    vendor(seq, &format!("{{\"text\":\"{fill}\"}}"), true)
}

/// An event is accepted at the limit and refused one byte over it, by name and size.
pub async fn an_event_is_accepted_up_to_the_size_limit(fixture: Fixture) {
    let default = threadline_session::limits::MAX_EVENT_BYTES;
    for limit in [300, default] {
        let store = fixture.store_with(StoreOptions {
            max_event_bytes: limit,
            ..options()
        });
        let (writer, id) = begun(&fixture.store()).await;
        drop(writer);
        let writer = load(&store, &id).await.writer;
        let told = refused!(
            writer.append(7, vec![of_size(7, limit + 1)], plain()).await,
            AppendError::Invalid(EncodeError::TooLarge { kind, bytes, limit }) => (kind, bytes, limit)
        );
        assert_eq!(told, ("vendor/thing".to_owned(), limit + 1, limit));
        let event = of_size(7, limit);
        writer
            .append(7, vec![event.clone()], plain())
            .await
            .unwrap();
        drop(writer);
        let again = fixture.reopened();
        assert_eq!(events(&again, &id).await.last(), Some(&event));
        sound(&again, &id).await;
    }
}

/// A type nobody knows is refused unless readers may pass over it.
pub async fn unknown_types_are_refused_unless_ignorable(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    refused!(
        writer
            .append(7, vec![vendor(7, "{}", false)], plain())
            .await,
        AppendError::Unloadable(ApplyError::UnknownType { .. })
    );
    writer
        .append(7, vec![vendor(7, "{}", true)], plain())
        .await
        .unwrap();
    drop(writer);
    assert_eq!(load(&fixture.reopened(), &id).await.closed, 0);
}

/// A registered type is accepted and loads again; without registration the session is shown and
/// not continued.
pub async fn a_registered_type_is_needed_by_those_who_continue(fixture: Fixture) {
    let knowing = || StoreOptions {
        registered: ["vendor/thing".to_owned()].into(),
        ..options()
    };
    let store = fixture.store_with(knowing());
    let (writer, id) = begun(&store).await;
    let event = vendor(7, "{\"n\":1}", false);
    writer
        .append(7, vec![event.clone()], AppendOptions::barrier())
        .await
        .unwrap();
    writer
        .append(8, whole_turn(8, 2, "second"), AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);

    let unknowing = fixture.reopened();
    let before = bytes(&unknowing, &id).await;
    refused!(
        unknowing.load(&id).await,
        OpenError::Read(ReadError::Unsupported { .. })
    );
    assert_eq!(events(&unknowing, &id).await[7], event);
    let seen = unknowing.inspect(&id).await.unwrap();
    assert!(seen.unsupported.is_some());
    assert_eq!((seen.view.turns().len(), seen.unstored), (1, 0));
    let row = unknowing.summary(&id).await.unwrap();
    assert_eq!(row.status, crate::SessionStatus::Unsupported);
    assert!(unknowing.stat(&id).await.unwrap().writer.is_none());
    assert_eq!(bytes(&unknowing, &id).await, before);

    let knows_again = fixture.reopened_with(knowing());
    let loaded = load(&knows_again, &id).await;
    assert_eq!((loaded.closed, loaded.writer.next_seq().await), (0, 15));
    sound(&knows_again, &id).await;
}

/// A repeat of a key stores nothing and gives the first result, also after opening again.
pub async fn a_repeated_key_stores_nothing_and_gives_the_first_result(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let batch = whole_turn(7, 2, "once");
    let first = writer
        .append(7, batch.clone(), keyed("k \u{e9}\""))
        .await
        .unwrap();
    assert_eq!((first.last_seq, first.repeated), (13, false));
    writer
        .append(14, whole_turn(14, 3, "more"), keyed("other"))
        .await
        .unwrap();
    let before = bytes(&store, &id).await;
    let again = writer
        .append(7, batch.clone(), keyed("k \u{e9}\""))
        .await
        .unwrap();
    assert_eq!((again.last_seq, again.repeated), (13, true));
    let recorded = writer
        .record(vec![user("once")], keyed("other"))
        .await
        .unwrap();
    assert_eq!((recorded.last_seq, recorded.repeated), (20, true));
    drop(writer);

    let reopened = fixture.reopened();
    let writer = load(&reopened, &id).await.writer;
    let again = writer.append(7, batch, keyed("k \u{e9}\"")).await.unwrap();
    assert_eq!((again.last_seq, again.repeated), (13, true));
    assert_eq!(bytes(&reopened, &id).await, before);
    let fresh = writer
        .append(21, whole_turn(21, 4, "new"), keyed("new"))
        .await
        .unwrap();
    assert!(!fresh.repeated);
    sound(&reopened, &id).await;
}

/// A batch that was refused leaves its key free.
pub async fn a_refused_batch_leaves_its_key_free(fixture: Fixture) {
    let store = fixture.store();
    let (writer, _) = begun(&store).await;
    assert!(
        writer
            .append(7, whole_turn(8, 2, "x"), keyed("k"))
            .await
            .is_err()
    );
    assert!(
        writer
            .append(8, whole_turn(8, 2, "x"), keyed("k"))
            .await
            .is_err()
    );
    let stored = writer
        .append(7, whole_turn(7, 2, "x"), keyed("k"))
        .await
        .unwrap();
    assert!(!stored.repeated);
}

/// A repeat that asks for a barrier gets one, even if the first append did not.
pub async fn a_repeat_with_a_barrier_is_durable(fixture: Fixture) {
    let store = fixture.store();
    let (writer, _) = begun(&store).await;
    let batch = whole_turn(7, 2, "once");
    let first = writer.append(7, batch.clone(), keyed("k")).await.unwrap();
    assert_eq!(first.durable_seq, Some(6));
    let options = AppendOptions {
        barrier: true,
        ..keyed("k")
    };
    let again = writer.append(7, batch, options).await.unwrap();
    assert_eq!(
        (again.last_seq, again.durable_seq, again.repeated),
        (13, Some(13), true)
    );
}

/// `record` numbers and times what it is given, after whatever is there.
pub async fn recorded_payloads_are_numbered_and_timed(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    let first = writer
        .record(vec![turn_start(1), user("a")], plain())
        .await
        .unwrap();
    let second = writer
        .record(vec![turn_end(1)], AppendOptions::barrier())
        .await
        .unwrap();
    assert_eq!((first.last_seq, second.last_seq), (1, 2));
    let stored = events(&store, &id).await;
    assert!(stored[0].time >= 1_700_000_000_000);
    assert_eq!(stored[0].time, stored[1].time);
    assert!(stored[2].time > stored[1].time);
    refused!(
        writer.record(Vec::new(), plain()).await,
        AppendError::Invalid(EncodeError::Empty)
    );
    sound(&store, &id).await;
}

/// By default a barrier makes durable what came before it, and nothing else does.
pub async fn a_barrier_moves_the_durable_mark(fixture: Fixture) {
    let store = fixture.store();
    let (writer, _) = begun(&store).await;
    let note = |seq| vec![vendor(seq, "{}", true)];
    let plainly = writer.append(7, note(7), plain()).await.unwrap();
    assert_eq!((plainly.last_seq, plainly.durable_seq), (7, Some(6)));
    let barrier = writer
        .append(8, note(8), AppendOptions::barrier())
        .await
        .unwrap();
    assert_eq!((barrier.last_seq, barrier.durable_seq), (8, Some(8)));
}

/// Each level keeps what it promises, and says which it is.
pub async fn every_durability_level_keeps_its_promise(fixture: Fixture) {
    for (level, plainly, barrier) in [
        (Durability::Step, 6, 8),
        (Durability::Event, 7, 8),
        (Durability::Os, 6, 6),
    ] {
        let store = fixture.store_with(StoreOptions {
            durability: level,
            ..options()
        });
        let (writer, id) = begun(&store).await;
        let first = writer
            .append(7, vec![vendor(7, "{}", true)], plain())
            .await
            .unwrap();
        assert_eq!(first.durable_seq, Some(plainly), "{level:?}");
        let event = vec![vendor(8, "{}", true)];
        let second = writer
            .append(8, event, AppendOptions::barrier())
            .await
            .unwrap();
        assert_eq!(second.durable_seq, Some(barrier), "{level:?}");
        assert_eq!(store.summary(&id).await.unwrap().durability, level);
        assert_eq!(writer.flush().await.unwrap(), Some(8), "{level:?}");
    }
}

/// A flush makes everything durable, and a second one has nothing to do.
pub async fn a_flush_makes_everything_durable(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    writer
        .record(vec![turn_start(2), user("x")], plain())
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(writer.flush().await.unwrap(), Some(8));
    }
    let stat = store.stat(&id).await.unwrap();
    assert!(stat.acknowledged.is_none_or(|seq| seq == 8), "{stat:?}");
}

/// What a dead writer had not made durable is not taken for durable because it can be read.
pub async fn what_was_read_is_not_taken_for_durable(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let unsynced = vec![turn_start(2), user("x"), turn_end(2)];
    writer.record(unsynced, plain()).await.unwrap();
    let acknowledged = store.stat(&id).await.unwrap().acknowledged;
    drop(writer);
    let writer = fixture.reopened().load(&id).await.unwrap().writer;
    let appended = writer.record(vec![turn_start(3)], plain()).await.unwrap();
    assert_eq!(appended.durable_seq, acknowledged);
    assert_eq!(writer.flush().await.unwrap(), Some(10));
    let stat = fixture.reopened().stat(&id).await.unwrap();
    assert!(stat.acknowledged.is_none_or(|seq| seq == 10), "{stat:?}");
}

/// A time that jumps backwards or far ahead changes no order.
pub async fn clocks_may_jump(fixture: Fixture) {
    let store = fixture.store();
    let (writer, id) = begun(&store).await;
    let mut batch = events_from(7, &[turn_start(2), user("x"), turn_end(2)]);
    for (event, time) in batch.iter_mut().zip([u64::MAX, 0, 5]) {
        event.time = time;
    }
    writer.append(7, batch.clone(), plain()).await.unwrap();
    drop(writer);
    let again = fixture.reopened();
    assert_eq!(events(&again, &id).await[7..], batch);
    let row = again.summary(&id).await.unwrap();
    assert_eq!(row.updated_at, row.created_at);
    let payload = events(&again, &id).await[8].payload();
    assert!(matches!(payload, Ok(Payload::UserMessage(_))));
}
