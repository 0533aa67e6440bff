//! Repairs: what is valid is kept under its numbers, what is lost is said, and the old log is kept.

use threadline_session::{Event, SessionId};

use super::{
    Fixture, events, load, new_id, raw, record, refused,
    script::{picture, plain_turn, whole_turn},
    sound, stored,
};
use crate::{
    Backend, BlobId, ClaimError, Entry, LOG_LOST, ListFilter, LogEnd, NewLog, ReadPos, RepairError,
    SessionStore, WriteError,
};

/// Events of each turn of [`plain_turn`] and [`whole_turn`].
const TURN: u64 = 7;

/// Stores a session of three turns, of which some lines are then garbled. Returns its events as
/// they were.
async fn damaged(fixture: &Fixture, id: &SessionId, garbled: &[usize]) -> Vec<Event> {
    let store = fixture.store();
    let writer = stored(&store, id, whole_turn(0, 1, "one")).await;
    record(&writer, plain_turn(2, "two")).await;
    record(&writer, plain_turn(3, "three")).await;
    drop(writer);
    let was = events(&store, id).await;
    assert_eq!(was.len() as u64, 3 * TURN);
    let mut lines = raw(&store, id).await;
    for seq in garbled {
        // Behind the header; as long as before.
        let line = &mut lines[seq + 1];
        let middle = line.len() / 2;
        line[middle] = if line[middle] == b'#' { b'+' } else { b'#' };
    }
    store.delete(id).await.unwrap();
    drop(fixture.backend.create(id, made_of(&lines)).await.unwrap());
    was
}

fn made_of(lines: &[Vec<u8>]) -> NewLog {
    let (header, lines) = lines.split_first().unwrap();
    let mut batch = Vec::new();
    for line in lines {
        batch.extend_from_slice(line);
        batch.push(b'\n');
    }
    NewLog {
        header_line: header.clone(),
        batch,
        last_seq: (lines.len() as u64).checked_sub(1),
        parent: None,
    }
}

/// Everything that the storage gives of a log, damage included.
async fn shown(backend: &dyn Backend, id: &SessionId) -> Vec<Entry> {
    let (mut all, mut pos) = (Vec::new(), ReadPos::default());
    loop {
        let page = backend.page(id, pos, 1 << 16).await.unwrap();
        all.extend(page.entries);
        if page.end {
            return all;
        }
        pos = page.next;
    }
}

/// Checks that a log is as it was but for the events that stand for lost ones.
async fn mended(store: &SessionStore, id: &SessionId, was: &[Event], lost: &[u64]) {
    sound(store, id).await;
    let now = events(store, id).await;
    assert_eq!(now.len(), was.len());
    for (now, was) in now.iter().zip(was) {
        if lost.contains(&was.seq) {
            assert_eq!(now.kind, LOG_LOST, "{}", was.seq);
        } else {
            assert_eq!(now, was);
        }
    }
}

/// A repair keeps numbers and what is valid, says what is lost, and needs no second one; asking
/// what it would do changes nothing.
pub async fn a_damaged_log_is_repaired_under_its_numbers(fixture: Fixture) {
    for lost in [&[2][..], &[1, 2, 3], &[2, 9]] {
        let id = new_id();
        let was = damaged(&fixture, &id, lost).await;
        let lost: Vec<u64> = lost.iter().map(|seq| *seq as u64).collect();
        let store = fixture.reopened();
        assert!(!store.verify(&id).await.unwrap().ok);
        assert!(store.load(&id).await.is_err());
        let before = shown(&*fixture.backend, &id).await;
        let asked = store.repair(&id, true).await.unwrap();
        assert!(asked.dry_run && asked.repaired);
        assert_eq!(shown(&*fixture.backend, &id).await, before);

        let report = store.repair(&id, false).await.unwrap();
        assert!(report.repaired && !report.dry_run && !report.header);
        assert_eq!((report.kept, report.misplaced), (asked.kept, 0));
        assert_eq!(report.kept, was.len() as u64 - lost.len() as u64);
        let told = report
            .lost
            .iter()
            .flat_map(|lost| lost.from_seq..=lost.to_seq);
        assert_eq!(told.collect::<Vec<_>>(), lost);
        mended(&fixture.reopened(), &id, &was, &lost).await;
        let again = store.repair(&id, false).await.unwrap();
        assert!(!again.repaired);

        let loaded = load(&fixture.reopened(), &id).await;
        record(&loaded.writer, plain_turn(4, "four")).await;
        drop(loaded);
        sound(&fixture.reopened(), &id).await;
    }
}

/// The log as it was is kept: it takes up space, and what it alone names is still named.
pub async fn the_log_before_a_repair_is_kept_aside(fixture: Fixture) {
    let id = new_id();
    let blob = BlobId::of(b"in the damaged line");
    let store = fixture.store();
    let writer = stored(&store, &id, whole_turn(0, 1, "one")).await;
    record(&writer, vec![picture(blob.as_str())]).await;
    record(&writer, plain_turn(2, "two")).await;
    drop(writer);
    let mut lines = raw(&store, &id).await;
    lines[TURN as usize + 1][10] ^= 1;
    store.delete(&id).await.unwrap();
    drop(fixture.backend.create(&id, made_of(&lines)).await.unwrap());
    let size = store.stat(&id).await.unwrap().bytes;
    let backend = (fixture.reopen)();
    assert_eq!(backend.usage(&id).await.unwrap().quarantine, 0);
    for repairs in 1..3 {
        assert!(store.repair(&id, false).await.unwrap().repaired);
        let usage = backend.usage(&id).await.unwrap();
        assert!(usage.quarantine >= repairs * size / 2, "{usage:?}");
        let mut names = std::collections::HashSet::new();
        backend.blob_names(&id, &mut names).await.unwrap();
        assert!(names.contains(&blob));
        if repairs == 1 {
            break_the_chain(&fixture, &id).await;
        }
    }
    store.delete(&id).await.unwrap();
    assert!(!fixture.reopened().has(&id).await.unwrap());
    // The id is free, and what was kept under it is gone.
    drop(stored(&store, &id, whole_turn(0, 1, "anew")).await);
    assert_eq!(backend.usage(&id).await.unwrap().quarantine, 0);
}

/// Appends a line that is garbled and one that is not.
async fn break_the_chain(fixture: &Fixture, id: &SessionId) {
    let other = new_id();
    let store = fixture.store();
    drop(stored(&store, &other, whole_turn(0, 1, "one")).await);
    let last = events(&store, id).await.len() as u64;
    let mut writer = fixture.backend.claim(id).await.unwrap();
    let next = store
        .backend()
        .page(id, ReadPos::default(), 1 << 20)
        .await
        .unwrap()
        .next;
    writer.begin(LogEnd { next, torn: None }).await.unwrap();
    let good = Event::from_json(last + 1, 1, "vendor/note", "{}", true).unwrap();
    let mut encoder = threadline_session::codec::Encoder::new(Default::default());
    let mut batch = b"garbled\n".to_vec();
    batch.extend(encoder.batch(last + 1, &[good], None).unwrap().bytes);
    writer.append(batch, last + 1, true).await.unwrap();
}

/// Checkpoints of the old log are not those of the new one.
pub async fn a_repair_forgets_the_checkpoints_of_the_old_log(fixture: Fixture) {
    let id = new_id();
    let was = damaged(&fixture, &id, &[3]).await;
    let backend = (fixture.reopen)();
    let mut writer = backend.claim(&id).await.unwrap();
    let next = shown_next(&*backend, &id).await;
    writer.begin(LogEnd { next, torn: None }).await.unwrap();
    writer.put_checkpoint(b"of the old log").await.unwrap();
    drop(writer);
    let store = fixture.reopened();
    assert!(store.repair(&id, false).await.unwrap().repaired);
    let kept = (fixture.reopen)().checkpoint(&id, u64::MAX >> 1).await;
    assert!(
        kept.unwrap()
            .is_none_or(|kept| kept.state != b"of the old log")
    );
    mended(&fixture.reopened(), &id, &was, &[3]).await;
    drop(load(&fixture.reopened(), &id).await);
}

async fn shown_next(backend: &dyn Backend, id: &SessionId) -> ReadPos {
    let page = backend.page(id, ReadPos::default(), 1 << 20).await.unwrap();
    assert!(page.end);
    page.next
}

/// A stamp and the row in lists change with a repair, although the size may be the same.
pub async fn lists_see_a_repair(fixture: Fixture) {
    let id = new_id();
    damaged(&fixture, &id, &[2]).await;
    let store = fixture.store();
    let list = async |store: &SessionStore| {
        let page = store.list(&ListFilter::default(), None, 9).await.unwrap();
        page.sessions.into_iter().find(|row| row.id == id).unwrap()
    };
    assert!(list(&store).await.error.is_some());
    let before = store.stat(&id).await.unwrap();
    fixture.reopened().repair(&id, false).await.unwrap();
    let after = store.stat(&id).await.unwrap();
    assert_ne!(after.stamp, before.stamp);
    assert!(after.writer.is_none());
    let row = list(&store).await;
    assert!(row.error.is_none(), "{row:?}");
    assert_eq!(row.turns, 3);
}

/// A session that somebody writes is not repaired, and one that is being repaired is not claimed.
pub async fn a_session_being_written_is_not_repaired(fixture: Fixture) {
    let id = new_id();
    let was = damaged(&fixture, &id, &[2]).await;
    let before = shown(&*fixture.backend, &id).await;
    let writer = fixture.backend.claim(&id).await.unwrap();
    let other = fixture.reopened();
    refused!(other.repair(&id, false).await, RepairError::Locked { .. });
    drop(writer);
    let repair = fixture.backend.replace(&id).await.unwrap();
    let other = (fixture.reopen)();
    refused!(other.claim(&id).await.map(drop), ClaimError::Locked { .. });
    refused!(other.delete(&id).await, ClaimError::Locked { .. });
    drop(repair);
    assert_eq!(shown(&*fixture.backend, &id).await, before);
    fixture.reopened().repair(&id, false).await.unwrap();
    mended(&fixture.reopened(), &id, &was, &[2]).await;
    let unknown = new_id();
    refused!(
        fixture.store().repair(&unknown, false).await,
        RepairError::Read(crate::ReadError::NotFound { .. })
    );
    let none = fixture.backend.replace(&unknown).await.map(drop);
    refused!(none, ClaimError::NotFound);
}

/// A repair that is given up leaves everything as it was.
pub async fn a_repair_that_is_given_up_changes_nothing(fixture: Fixture) {
    let id = new_id();
    let was = damaged(&fixture, &id, &[2]).await;
    let before = shown(&*fixture.backend, &id).await;
    let lines = made_of(&[b"".to_vec(), b"{}".to_vec()]).batch;
    let header = fixture.store().header(&id).await.unwrap().line;
    for finish in [false, true] {
        let mut repair = fixture.backend.replace(&id).await.unwrap();
        if finish {
            // Without a header it is no log.
            assert!(repair.finish().await.is_err());
        } else {
            repair.header(&header).await.unwrap();
            repair.lines(&lines, 0).await.unwrap();
            assert!(repair.header(&header).await.is_err(), "a second header");
            drop(repair);
        }
        assert_eq!(shown(&*fixture.backend, &id).await, before);
    }
    let usage = (fixture.reopen)().usage(&id).await.unwrap();
    assert_eq!(usage.quarantine, 0);
    fixture.reopened().repair(&id, false).await.unwrap();
    mended(&fixture.reopened(), &id, &was, &[2]).await;
}

/// Whoever takes a session over while it is repaired has it; who had claimed the old log is fenced.
pub async fn a_repair_and_other_writers_fence_each_other(fixture: Fixture) {
    let id = new_id();
    let was = damaged(&fixture, &id, &[2]).await;
    let header = fixture.store().header(&id).await.unwrap().line;
    let before = shown(&*fixture.backend, &id).await;
    let other = (fixture.reopen)();
    let mut repair = fixture.backend.replace(&id).await.unwrap();
    repair.header(&header).await.unwrap();
    let mut old = other.take_over(&id).await.unwrap();
    let outcome = repair.finish().await;
    refused!(outcome, ClaimError::Locked { .. });
    let stayed = shown(&*fixture.backend, &id).await;
    assert_eq!(stayed.len(), before.len());
    let next = shown_next(&*other, &id).await;
    let begun = old.begin(LogEnd { next, torn: None }).await.unwrap();
    drop(begun);
    // Somebody takes it from this one too, goes, and it is repaired.
    drop(fixture.backend.take_over(&id).await.unwrap());
    let store = fixture.reopened();
    assert!(store.repair(&id, false).await.unwrap().repaired);
    let late = old.append(b"late\n".to_vec(), was.len() as u64, true).await;
    refused!(late, WriteError::Fenced { .. });
    drop(old);
    mended(&fixture.reopened(), &id, &was, &[2]).await;
}

/// Forks share what is repaired and what is not, and see nothing of it.
pub async fn forks_of_a_repaired_session_stay_as_they_are(fixture: Fixture) {
    let (id, fork) = (new_id(), new_id());
    let was = damaged(&fixture, &id, &[9]).await;
    let store = fixture.store();
    let base = fixture.backend.cut(&id, TURN - 1).await.unwrap();
    let header = threadline_session::Header {
        base,
        ..super::header_of(&fork)
    };
    let new = NewLog {
        header_line: header.encode().unwrap(),
        parent: Some(id.clone()),
        ..NewLog::default()
    };
    drop(fixture.backend.create(&fork, new).await.unwrap());
    let before = shown(&*fixture.backend, &fork).await;
    assert!(store.repair(&id, false).await.unwrap().repaired);
    assert_eq!(shown(&*fixture.backend, &fork).await, before);
    mended(&fixture.reopened(), &id, &was, &[9]).await;
    record(
        &load(&fixture.reopened(), &fork).await.writer,
        plain_turn(2, "other"),
    )
    .await;
    // The repaired one is forked as any other, and either goes without the other.
    let later = new_id();
    store
        .fork(&id, Some(3 * TURN - 1), later.clone())
        .await
        .unwrap();
    store.delete(&id).await.unwrap();
    for fork in [&fork, &later] {
        sound(&fixture.reopened(), fork).await;
        record(
            &load(&fixture.reopened(), fork).await.writer,
            plain_turn(8, "on"),
        )
        .await;
    }
}

/// A fork whose shared part is damaged is repaired as a log of its own; its parent stays damaged.
pub async fn a_fork_of_a_damaged_session_is_repaired_alone(fixture: Fixture) {
    let (id, fork) = (new_id(), new_id());
    let was = damaged(&fixture, &id, &[2]).await;
    let store = fixture.store();
    let base = fixture.backend.cut(&id, 2 * TURN - 1).await.unwrap();
    let header = threadline_session::Header {
        base,
        ..super::header_of(&fork)
    };
    let new = NewLog {
        header_line: header.encode().unwrap(),
        parent: Some(id.clone()),
        ..NewLog::default()
    };
    drop(fixture.backend.create(&fork, new).await.unwrap());
    let before = shown(&*fixture.backend, &id).await;
    assert!(store.repair(&fork, false).await.unwrap().repaired);
    assert_eq!(shown(&*fixture.backend, &id).await, before);
    mended(&fixture.reopened(), &fork, &was[..2 * TURN as usize], &[2]).await;
    store.delete(&id).await.unwrap();
    let reopened = fixture.reopened();
    mended(&reopened, &fork, &was[..2 * TURN as usize], &[2]).await;
    assert!(reopened.header(&fork).await.unwrap().header.base.is_none());
}
