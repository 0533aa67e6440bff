//! Taking a session over from a writer that is still there.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::future::join_all;
use threadline_session::SessionId;

use super::{
    Fixture, Wrapped, events, header_of, keyed, lines, load, new_id, options, plain, record,
    refused, request_after, request_of,
    script::{cut_in_a_tool, plain_turn, vendor, whole_turn},
    sound, stored,
};
use crate::{
    AppendError, AppendOptions, Backend, BackendError, Begun, ClaimError, Follow, Followed, LogEnd,
    OpenError, ReadError, SessionStore, SessionWriter, WriteError, Writer,
};

/// Checks that a writer is fenced and told by whom.
async fn fenced(writer: &SessionWriter) {
    let next = writer.next_seq().await;
    for barrier in [false, true] {
        let late = AppendOptions { key: None, barrier };
        let batch = whole_turn(next, 77, "too late");
        let by = refused!(
            writer.append(next, batch, late).await,
            AppendError::Fenced { by } => by
        );
        assert!(!by.is_empty());
    }
    let by = refused!(writer.flush().await, AppendError::Fenced { by } => by);
    assert!(!by.is_empty());
}

/// Whoever is taken over is told at the next append, of which nothing is stored; the log goes on
/// without a gap.
pub async fn a_writer_that_was_taken_over_stores_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let old = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let elsewhere = fixture.reopened();
    for other in [&store, &elsewhere] {
        refused!(other.load(&id).await, OpenError::Locked { .. });
    }
    let before = lines(&store, &id).await;
    let new = elsewhere.take_over(&id).await.unwrap();
    assert_eq!((new.closed, new.writer.next_seq().await), (0, 7));
    fenced(&old).await;
    assert_eq!(lines(&store, &id).await, before);
    new.writer
        .append(7, whole_turn(7, 2, "mine"), AppendOptions::barrier())
        .await
        .unwrap();
    fenced(&old).await;
    for store in [&store, &elsewhere, &fixture.reopened()] {
        let now = lines(store, &id).await;
        assert_eq!(now[..7], before);
        assert_eq!(now.len(), 14);
        assert!(now.iter().all(|l| !l.event.data.get().contains("late")));
        sound(store, &id).await;
    }
}

/// Whoever is taken over with something unsynced may not call it durable; what was stored of it
/// stays.
pub async fn a_flush_after_a_take_over_is_fenced(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let old = stored(&store, &id, whole_turn(0, 1, "one")).await;
    old.append(7, whole_turn(7, 2, "unsynced"), plain())
        .await
        .unwrap();
    let new = fixture.reopened().take_over(&id).await.unwrap();
    assert_eq!(new.writer.next_seq().await, 14);
    let by = refused!(old.flush().await, AppendError::Fenced { by } => by);
    assert!(!by.is_empty());
    assert_eq!(new.writer.flush().await.unwrap(), Some(13));
    sound(&store, &id).await;
}

/// The turn of the one that is taken over is closed, call by call.
pub async fn a_turn_that_is_taken_over_is_closed(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let old = stored(&store, &id, cut_in_a_tool()).await;
    let new = fixture.reopened().take_over(&id).await.unwrap();
    assert_eq!(new.closed, 4);
    let wanted = request_after(&events(&store, &id).await[..5]);
    assert_eq!(request_of(&new.writer).await, wanted);
    fenced(&old).await;
    record(&new.writer, plain_turn(2, "on")).await;
    sound(&store, &id).await;
}

/// A session that nobody holds is taken over as if it were opened.
pub async fn a_session_that_nobody_holds_is_taken_over(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "one")).await);
    let before = store.stat(&id).await.unwrap().stamp;
    let taken = fixture.reopened().take_over(&id).await.unwrap();
    assert_eq!(store.stat(&id).await.unwrap().stamp, before);
    assert!(store.stat(&id).await.unwrap().writer.is_some());
    refused!(store.load(&id).await, OpenError::Locked { .. });
    record(&taken.writer, plain_turn(2, "on")).await;
    drop(taken);
    drop(load(&store, &id).await);
    sound(&store, &id).await;
}

/// There is nothing to take over where there is no session.
pub async fn taking_over_an_unknown_session_is_not_found(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let pending = store.create(header_of(&id)).await.unwrap();
    for unknown in [&id, &new_id()] {
        refused!(
            store.take_over(unknown).await,
            OpenError::Read(ReadError::NotFound { .. })
        );
    }
    drop(pending);
    assert!(fixture.reopened().ids().await.unwrap().is_empty());
}

/// A session that was taken over several times is one whole log, whose every turn verifies, and
/// can be deleted.
pub async fn a_session_taken_over_again_and_again_is_whole(fixture: Fixture) {
    let id = new_id();
    let mut writers = vec![stored(&fixture.store(), &id, whole_turn(0, 1, "one")).await];
    for turn in 2..6 {
        // At times twice in a row, with nothing between.
        for _ in 0..turn % 2 + 1 {
            let taken = fixture.reopened().take_over(&id).await.unwrap();
            fenced(writers.last().unwrap()).await;
            writers.push(taken.writer);
        }
        record(writers.last().unwrap(), plain_turn(turn, "more")).await;
        let reader = fixture.reopened();
        sound(&reader, &id).await;
        let report = reader.verify(&id).await.unwrap();
        assert_eq!((report.events, report.chained_turns), (7 * turn, turn));
    }
    let last = writers.pop().unwrap();
    for old in &writers {
        fenced(old).await;
    }
    drop(writers);
    drop(last);
    let store = fixture.reopened();
    let writer = load(&store, &id).await.writer;
    let all = events(&store, &id).await;
    assert_eq!(request_of(&writer).await, request_after(&all));
    record(&writer, plain_turn(6, "six")).await;
    sound(&store, &id).await;
    drop(writer);
    store.delete(&id).await.unwrap();
    assert!(!fixture.reopened().has(&id).await.unwrap());
    drop(stored(&store, &id, whole_turn(0, 1, "anew")).await);
    sound(&fixture.reopened(), &id).await;
}

/// A fenced writer that goes away takes nobody's claim with it.
pub async fn a_fenced_writer_that_goes_frees_nothing(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let old = stored(&store, &id, whole_turn(0, 1, "one")).await;
    let unaware = fixture.reopened().take_over(&id).await.unwrap();
    let new = fixture.reopened().take_over(&id).await.unwrap();
    fenced(&old).await;
    for gone in [old, unaware.writer] {
        drop(gone);
        for store in [&store, &fixture.reopened()] {
            refused!(store.load(&id).await, OpenError::Locked { .. });
            assert!(store.stat(&id).await.unwrap().writer.is_some());
            refused!(store.delete(&id).await, crate::DeleteError::Locked { .. });
        }
    }
    record(&new.writer, plain_turn(2, "on")).await;
    drop(new);
    drop(load(&fixture.reopened(), &id).await);
    sound(&store, &id).await;
}

async fn until(follow: &mut Follow, last: u64) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.last().is_none_or(|seq| *seq < last) {
        if let Followed::Line(line) = follow.next().await.unwrap() {
            seqs.push(line.event.seq);
        }
    }
    seqs
}

/// Followers, here and elsewhere, get every event once, whoever writes it.
pub async fn a_follower_sees_every_event_once_over_take_overs(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let mut writers = vec![stored(&store, &id, whole_turn(0, 1, "one")).await];
    let elsewhere = fixture.reopened();
    let mut follows = [
        store.follow(&id, None),
        elsewhere.follow(&id, None),
        elsewhere.follow(&id, Some(4)),
    ];
    let mut seen: Vec<Vec<u64>> = join_all(follows.iter_mut().map(|f| until(f, 6))).await;
    for turn in 2..5 {
        let taking = [&store, &elsewhere][turn as usize % 2];
        let taken = taking.take_over(&id).await.unwrap();
        fenced(writers.last().unwrap()).await;
        let last = record(&taken.writer, plain_turn(turn, "more")).await;
        writers.push(taken.writer);
        let more = join_all(follows.iter_mut().map(|f| until(f, last))).await;
        for (seen, more) in seen.iter_mut().zip(more) {
            seen.extend(more);
        }
    }
    assert_eq!(seen[0], (0..28).collect::<Vec<_>>());
    assert_eq!(seen[1], seen[0]);
    assert_eq!(seen[2], (5..28).collect::<Vec<_>>());
}

/// A session that was taken over is forked at any event, before and behind the take-overs.
pub async fn a_session_that_was_taken_over_is_forked(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let mut writers = vec![stored(&store, &id, cut_in_a_tool()).await];
    for turn in 2..4 {
        let taken = fixture.reopened().take_over(&id).await.unwrap();
        record(&taken.writer, plain_turn(turn, "more")).await;
        let next = taken.writer.next_seq().await;
        let open = super::script::events_from(next, &super::script::cut_turn(turn, turn));
        taken.writer.append(next, open, plain()).await.unwrap();
        writers.push(taken.writer);
    }
    let all = events(&store, &id).await;
    for k in 0..all.len() {
        let child = new_id();
        store
            .fork(&id, Some(k as u64), child.clone())
            .await
            .unwrap();
        let wanted = super::closed(&all[..=k]);
        assert_eq!(events(&store, &child).await, wanted, "at {k}");
        sound(&store, &child).await;
        let writer = load(&fixture.reopened(), &child).await.writer;
        record(&writer, plain_turn(9, "on")).await;
        drop(writer);
        sound(&store, &child).await;
    }
    drop(writers);
    // Forks of what was taken over outlive it.
    let child = new_id();
    store.fork(&id, None, child.clone()).await.unwrap();
    let before = lines(&store, &child).await;
    store.delete(&id).await.unwrap();
    assert_eq!(lines(&fixture.reopened(), &child).await, before);
    sound(&store, &child).await;
}

/// Takes a session over and appends until somebody else has it, some times. Returns what was
/// acknowledged, and what is not known.
async fn contend(
    store: SessionStore,
    id: SessionId,
    task: u64,
    count: Arc<AtomicU64>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut acknowledged = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    for round in 0..6 {
        let writer = loop {
            match store.take_over(&id).await {
                Ok(loaded) => break loaded.writer,
                Err(
                    OpenError::Locked { .. }
                    | OpenError::Recovery {
                        source: AppendError::Fenced { .. } | AppendError::UnknownOutcome { .. },
                        ..
                    },
                ) => tokio::task::yield_now().await,
                Err(error) => panic!("{error:?}"),
            }
        };
        for at in 0..8 {
            let name = format!("{task}.{round}.{at}");
            let seq = writer.next_seq().await;
            let event = vendor(seq, &format!("{{\"name\":\"{name}\"}}"), true);
            let options = AppendOptions {
                key: Some(name.clone()),
                barrier: at % 2 == 0,
            };
            match writer.append(seq, vec![event], options).await {
                Ok(appended) => {
                    assert_eq!(appended.last_seq, seq);
                    acknowledged.insert(name);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Err(AppendError::Fenced { .. }) => break,
                Err(AppendError::UnknownOutcome { .. }) => {
                    unknown.insert(name);
                    break;
                }
                Err(error) => panic!("{error:?}"),
            }
            tokio::task::yield_now().await;
        }
    }
    (acknowledged, unknown)
}

/// Of writers that take over from each other, all that was acknowledged is stored, once, and
/// nothing else but what they were told is not known.
pub async fn stored_is_what_was_acknowledged_over_take_overs(fixture: Fixture) {
    let id = new_id();
    drop(stored(&fixture.store(), &id, whole_turn(0, 1, "one")).await);
    let count = Arc::new(AtomicU64::new(0));
    let tasks = (0..3).map(|task| {
        let (store, id, count) = (fixture.reopened(), id.clone(), count.clone());
        tokio::spawn(contend(store, id, task, count))
    });
    let (mut acknowledged, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        let (acked, asked) = task.unwrap();
        acknowledged.extend(acked);
        unknown.extend(asked);
    }
    let store = fixture.reopened();
    sound(&store, &id).await;
    let all = events(&store, &id).await.split_off(7);
    let names: Vec<String> = all
        .iter()
        .map(|event| {
            let data: serde_json::Value = serde_json::from_str(event.data.get()).unwrap();
            data["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(acknowledged.len() as u64, count.load(Ordering::Relaxed));
    let stored: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(stored.len(), names.len(), "an event is stored twice");
    assert!(stored.is_superset(&acknowledged));
    let rest: BTreeSet<_> = stored.difference(&acknowledged).cloned().collect();
    assert!(rest.is_subset(&unknown), "{rest:?}");
}

/// A backend whose next append is lost sight of: stored or not, nobody is told.
struct Lossy {
    inner: Arc<dyn Backend>,
    stores: bool,
    due: Arc<AtomicBool>,
}

#[async_trait]
impl Wrapped for Lossy {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(Box::new(LossyWriter {
            inner: self.inner.claim(id).await?,
            stores: self.stores,
            due: self.due.clone(),
        }))
    }
}

struct LossyWriter {
    inner: Box<dyn Writer>,
    stores: bool,
    due: Arc<AtomicBool>,
}

#[async_trait]
impl Writer for LossyWriter {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        self.inner.begin(end).await
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<u64, WriteError> {
        if !self.due.swap(false, Ordering::Relaxed) {
            return self.inner.append(batch, last_seq, sync).await;
        }
        if self.stores {
            self.inner.append(batch, last_seq, sync).await?;
        }
        Err(WriteError::UnknownOutcome {
            reason: "the connection was lost".into(),
        })
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        self.inner.sync().await
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        self.inner.put_checkpoint(state).await
    }
}

/// After an append whose outcome is not known the writer refuses everything; opened again, the
/// batch is appended under the same key and is there once.
pub async fn an_unknown_outcome_is_settled_by_its_key(fixture: Fixture) {
    for stores in [true, false] {
        let id = new_id();
        drop(stored(&fixture.store(), &id, whole_turn(0, 1, "one")).await);
        let due = Arc::new(AtomicBool::new(false));
        let lossy = Lossy {
            inner: (fixture.reopen)(),
            stores,
            due: due.clone(),
        };
        let store = SessionStore::new(Arc::new(lossy), options());
        let writer = load(&store, &id).await.writer;
        due.store(true, Ordering::Relaxed);
        let batch = whole_turn(7, 2, "perhaps");
        let lost = writer.append(7, batch.clone(), keyed("perhaps")).await;
        refused!(lost, AppendError::UnknownOutcome { .. });
        // Whether a blind retry is right cannot be told here, so it is refused.
        for key in ["perhaps", "other"] {
            let again = writer.append(7, batch.clone(), keyed(key)).await;
            refused!(again, AppendError::UnknownOutcome { .. });
        }
        refused!(writer.flush().await, AppendError::UnknownOutcome { .. });
        drop(writer);
        let writer = load(&store, &id).await.writer;
        let next = writer.next_seq().await;
        assert_eq!(next, if stores { 14 } else { 7 });
        let again = writer.append(7, batch, keyed("perhaps")).await.unwrap();
        assert_eq!((again.last_seq, again.repeated), (13, stores));
        assert_eq!(events(&store, &id).await.len(), 14);
        sound(&store, &id).await;
    }
}
