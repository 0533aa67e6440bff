//! Creating, opening, and what is stored when.

use threadline_session::{Event, Origin, OsPath, Payload, types};

use super::{
    Fixture, bytes, events, header_of, id, lines, load, new_id, options, plain, refused,
    script::{events_from, turn_start, user, vendor, whole_turn},
    sound, stored,
};
use crate::{
    AppendError, AppendOptions, CreateError, DeleteError, ListFilter, OpenError, ReadError,
};

/// What is appended comes back byte for byte: times, unicode, unknown fields, plug-ins' types.
pub async fn a_log_comes_back_byte_for_byte(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let strange = r#"{ "b":1.50, "a":"\u00e9\ud83d\ude00", "a2":"RAW\u0000", "z":[ ] }"#;
    let strange = strange.replace("RAW", "\u{e9}\u{1d11e}");
    let known = r#"{"content":[{"type":"text","text":"x","later":1}],"source":"user","new":{}}"#;
    let mut given = vec![
        vendor(0, &strange, true),
        Event::from_json(1, u64::MAX, types::USER_MESSAGE, known, false).unwrap(),
        Event::from_json(2, 0, types::USER_MESSAGE, known, false).unwrap(),
    ];
    let mut header = header_of(&id);
    header.cwd = OsPath::from("/w/\u{e9} \u{1d11e}");
    header.origin = Origin::Import {
        agent: Some("another \"agent\"".into()),
    };
    let writer = store.create(header.clone()).await.unwrap();
    writer.append(0, given.clone(), plain()).await.unwrap();
    let turn = whole_turn(3, 1, "\u{202e}line\nbreak\u{0}");
    writer
        .append(3, turn.clone(), AppendOptions::barrier())
        .await
        .unwrap();
    given.extend(turn);
    assert_eq!(events(&store, &id).await, given);
    drop(writer);
    let again = fixture.reopened();
    assert_eq!(events(&again, &id).await, given);
    assert_eq!(again.header(&id).await.unwrap().header, header);
    assert_eq!(bytes(&again, &id).await, bytes(&store, &id).await);
    sound(&again, &id).await;
}

/// Creating stores nothing; the first append does.
pub async fn a_session_without_events_is_nowhere(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    for store in [&store, &fixture.reopened()] {
        assert!(!store.has(&id).await.unwrap());
        assert!(store.ids().await.unwrap().is_empty());
        let page = store.list(&ListFilter::default(), None, 10).await.unwrap();
        assert!(page.sessions.is_empty());
        refused!(store.inspect(&id).await, ReadError::NotFound { .. });
        refused!(
            store.load(&id).await,
            OpenError::Read(ReadError::NotFound { .. })
        );
        refused!(store.delete(&id).await, DeleteError::NotFound { .. });
    }
    assert_eq!(writer.flush().await.unwrap(), None);
    assert!(!store.has(&id).await.unwrap());
    writer
        .append(0, events_from(0, &[turn_start(1)]), plain())
        .await
        .unwrap();
    for store in [&store, &fixture.reopened()] {
        assert!(store.has(&id).await.unwrap());
        assert_eq!(store.ids().await.unwrap(), std::slice::from_ref(&id));
        let page = store.list(&ListFilter::default(), None, 10).await.unwrap();
        assert_eq!(page.sessions.len(), 1);
    }
}

/// A writer that stored nothing leaves nothing.
pub async fn a_writer_dropped_before_its_first_append_leaves_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(store.create(header_of(&id)).await.unwrap());
    assert!(!fixture.reopened().has(&id).await.unwrap());
    stored(&store, &id, whole_turn(0, 1, "now")).await;
}

/// An id that is taken is refused, written to or not.
pub async fn a_taken_id_is_refused(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "first")).await;
    let header = header_of(&id);
    refused!(
        store.create(header.clone()).await,
        CreateError::AlreadyExists { .. }
    );
    drop(writer);
    let again = fixture.reopened();
    refused!(
        again.create(header).await,
        CreateError::AlreadyExists { .. }
    );
}

/// Of two that create the same session, the one that appends first has it.
pub async fn of_two_creators_the_second_to_append_is_refused(fixture: Fixture) {
    let id = new_id();
    let (store, other) = (fixture.store(), fixture.reopened());
    let first = store.create(header_of(&id)).await.unwrap();
    let second = other.create(header_of(&id)).await.unwrap();
    first
        .append(0, whole_turn(0, 1, "mine"), plain())
        .await
        .unwrap();
    for _ in 0..2 {
        let late = second.append(0, whole_turn(0, 1, "also"), plain()).await;
        refused!(late, AppendError::AlreadyExists { .. });
    }
    drop(second);
    first
        .append(7, whole_turn(7, 2, "go on"), plain())
        .await
        .unwrap();
    assert_eq!(events(&store, &id).await.len(), 14);
    sound(&store, &id).await;
}

/// A first batch that is refused creates nothing, and a good one still does.
pub async fn a_refused_first_batch_creates_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = store.create(header_of(&id)).await.unwrap();
    assert!(
        writer
            .append(0, whole_turn(1, 1, "x"), plain())
            .await
            .is_err()
    );
    assert!(
        writer
            .append(0, vec![vendor(0, "{}", false)], plain())
            .await
            .is_err()
    );
    assert!(
        writer
            .append(3, whole_turn(3, 1, "x"), plain())
            .await
            .is_err()
    );
    assert!(!store.has(&id).await.unwrap());
    writer
        .append(0, whole_turn(0, 1, "x"), plain())
        .await
        .unwrap();
    sound(&fixture.reopened(), &id).await;
}

/// Ids of an embedder, whatever they look like, are kept apart and come back as they were.
pub async fn ids_with_odd_characters_come_back_as_they_were(fixture: Fixture) {
    let store = fixture.store();
    let long = "x".repeat(threadline_session::limits::MAX_ID_BYTES);
    let long_unicode = "\u{e9}".repeat(threadline_session::limits::MAX_ID_BYTES / 2);
    let odd = [
        "plain",
        "Plain",
        "PLAIN",
        "a/b",
        "a\\b",
        "a%2Fb",
        "..",
        ".",
        "../../etc/passwd",
        "/",
        " ",
        "a b",
        "con",
        "nul.txt",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{1d11e}",
        "a\"b'c",
        "a:b*c?<>|",
        "~",
        "-rf",
        "#",
        "%",
        "%25",
        "a.",
        "a.b.c",
        "log.jsonl",
        "_",
        "__",
        "'; DROP TABLE x; --",
        "019a0000-0000-7000-8000-000000000000",
        "019A0000-0000-7000-8000-000000000000",
        &long,
        &long_unicode,
    ];
    for (at, text) in odd.iter().enumerate() {
        drop(stored(&store, &id(text), whole_turn(0, 1, &format!("number {at}"))).await);
    }
    let again = fixture.reopened();
    let mut ids: Vec<String> = again
        .ids()
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut wanted: Vec<String> = odd.iter().map(ToString::to_string).collect();
    ids.sort();
    wanted.sort();
    assert_eq!(ids, wanted);
    for (at, text) in odd.iter().enumerate() {
        let id = id(text);
        assert_eq!(again.header(&id).await.unwrap().header.id, id);
        let prompt = again.summary(&id).await.unwrap().first_prompt;
        assert_eq!(prompt, Some(format!("number {at}")), "{text}");
        drop(load(&again, &id).await);
    }
    for text in odd {
        again.delete(&id(text)).await.unwrap();
        assert!(!again.has(&id(text)).await.unwrap(), "{text}");
    }
    assert!(store.ids().await.unwrap().is_empty());
}

/// A deleted session is gone, and its id can be used again without a trace of the old one.
pub async fn a_deleted_session_is_gone_and_its_id_free(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "old one")).await);
    assert_eq!(
        store.summary(&id).await.unwrap().first_prompt.as_deref(),
        Some("old one")
    );
    let other = fixture.reopened();
    assert_eq!(
        other.summary(&id).await.unwrap().first_prompt.as_deref(),
        Some("old one")
    );
    // This one is not told of the end of the old session before it sees the new one.
    let apart = fixture.reopened();
    assert_eq!(
        apart.summary(&id).await.unwrap().first_prompt.as_deref(),
        Some("old one")
    );
    store.delete(&id).await.unwrap();
    for store in [&store, &other] {
        assert!(!store.has(&id).await.unwrap());
        assert!(store.ids().await.unwrap().is_empty());
        refused!(
            store.load(&id).await,
            OpenError::Read(ReadError::NotFound { .. })
        );
        refused!(store.inspect(&id).await, ReadError::NotFound { .. });
        refused!(store.header(&id).await, ReadError::NotFound { .. });
        refused!(store.delete(&id).await, DeleteError::NotFound { .. });
    }
    // As long as the old one, so that sizes alone do not tell them apart.
    drop(stored(&store, &id, whole_turn(0, 1, "new one")).await);
    for store in [&store, &other, &apart] {
        assert_eq!(
            store.summary(&id).await.unwrap().first_prompt.as_deref(),
            Some("new one")
        );
    }
}

/// What was never there cannot be deleted.
pub async fn deleting_an_unknown_session_is_not_found(fixture: Fixture) {
    let id = new_id();
    let wanted = id.clone();
    let found = refused!(fixture.store().delete(&id).await, DeleteError::NotFound { id, .. } => id);
    assert_eq!(found, wanted);
}

/// A session is not pulled from under its writer.
pub async fn a_session_being_written_is_not_deleted(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "mine")).await;
    for store in [&store, &fixture.reopened()] {
        refused!(store.delete(&id).await, DeleteError::Locked { .. });
    }
    writer
        .append(7, whole_turn(7, 2, "still"), plain())
        .await
        .unwrap();
    drop(writer);
    fixture.reopened().delete(&id).await.unwrap();
}

/// Deleting one session touches no other.
pub async fn deleting_one_session_leaves_the_others(fixture: Fixture) {
    let store = fixture.store();
    let (gone, kept) = (new_id(), new_id());
    drop(stored(&store, &gone, whole_turn(0, 1, "gone")).await);
    drop(stored(&store, &kept, whole_turn(0, 1, "kept")).await);
    let before = bytes(&store, &kept).await;
    store.delete(&gone).await.unwrap();
    assert_eq!(bytes(&fixture.reopened(), &kept).await, before);
    sound(&store, &kept).await;
}

/// Opening a balanced session, even often, writes nothing.
pub async fn opening_without_appending_writes_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    let (stat, before) = (store.stat(&id).await.unwrap(), bytes(&store, &id).await);
    for _ in 0..3 {
        let again = fixture.reopened();
        let loaded = load(&again, &id).await;
        assert_eq!((loaded.closed, loaded.writer.next_seq().await), (0, 7));
        assert!(loaded.writer.recovered().is_none());
        drop(loaded);
        let now = again.stat(&id).await.unwrap();
        assert_eq!((now.bytes, now.stamp), (stat.bytes, stat.stamp));
        assert_eq!(bytes(&again, &id).await, before);
    }
}

/// A session goes on over many openings as if it had never been closed.
pub async fn a_session_continues_over_many_openings(fixture: Fixture) {
    let id = new_id();
    let whole = fixture.store();
    drop(stored(&whole, &id, whole_turn(0, 1, "turn 1")).await);
    for turn in 2..=5 {
        let store = fixture.reopened();
        let loaded = load(&store, &id).await;
        let next = loaded.writer.next_seq().await;
        assert_eq!(next, (turn - 1) * 7);
        assert_eq!(
            loaded.writer.with_transcript(|t| t.last_turn()).await,
            turn - 1
        );
        let events = whole_turn(next, turn, &format!("turn {turn}"));
        loaded
            .writer
            .append(next, events, AppendOptions::barrier())
            .await
            .unwrap();
    }
    let report = fixture.reopened().verify(&id).await.unwrap();
    assert_eq!(
        (report.ok, report.events, report.chained_turns),
        (true, 35, 5)
    );
    assert_eq!(lines(&whole, &id).await.len(), 35);
}

/// A live state and the one folded from storage are the same.
pub async fn the_live_state_is_the_stored_state(fixture: Fixture) {
    let store = fixture.store_with(options());
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let payloads: Vec<Payload> = vec![turn_start(2), user("two")];
    writer
        .record(payloads, AppendOptions::barrier())
        .await
        .unwrap();
    let seen = fixture.reopened().inspect(&id).await.unwrap();
    let live = writer
        .with_transcript(|t| {
            (
                t.next_seq(),
                t.facts().clone(),
                t.status(),
                t.surface().count(),
            )
        })
        .await;
    let t = seen.view.transcript();
    assert_eq!(
        (
            t.next_seq(),
            t.facts().clone(),
            t.status(),
            t.surface().count()
        ),
        live
    );
    assert_eq!(writer.facts(), live.1);
}
