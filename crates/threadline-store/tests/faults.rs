//! What the store makes of a backend that finds damage or fails to write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use threadline_session::{Header, OsPath, SessionId};
use threadline_store::{
    AppendError, AppendOptions, Backend, BackendError, Begun, ClaimError, Damage, Entry, Finding,
    Followed, ListFilter, LogEnd, MemoryBackend, NewLog, OpenError, Page, ReadError, ReadPos,
    SessionStatus, SessionStore, SessionWriter, StoreOptions, WriteError, Writer,
    contract::{
        Wrapped,
        script::{cut_in_a_tool, vendor, whole_turn},
    },
};

#[derive(Default)]
struct Faults {
    damaged: BTreeSet<u64>,
    writes: VecDeque<WriteError>,
    syncs: VecDeque<WriteError>,
}

/// A backend in memory that is damaged and fails as told.
#[derive(Default)]
struct Faulty {
    inner: MemoryBackend,
    faults: Arc<Mutex<Faults>>,
}

struct FaultyWriter {
    inner: Box<dyn Writer>,
    faults: Arc<Mutex<Faults>>,
}

impl Faulty {
    fn wrap(&self, inner: Box<dyn Writer>) -> Box<dyn Writer> {
        Box::new(FaultyWriter {
            inner,
            faults: self.faults.clone(),
        })
    }
}

#[async_trait]
impl Wrapped for Faulty {
    fn inner(&self) -> &dyn Backend {
        &self.inner
    }

    async fn page(&self, id: &SessionId, from: ReadPos, max: usize) -> Result<Page, BackendError> {
        let mut page = self.inner.page(id, from, max).await?;
        let faults = self.faults.lock().unwrap();
        for entry in &mut page.entries {
            if let Entry::Line(line, place) = entry
                && faults.damaged.contains(&line.event.seq)
            {
                *entry = Entry::Damage(Damage {
                    file: "log.jsonl".into(),
                    offset: 1000 + line.event.seq,
                    bytes: u64::from(place.len),
                    seq: line.event.seq,
                    reason: "the checksum does not match the line's bytes".into(),
                });
            }
        }
        Ok(page)
    }

    async fn create(&self, id: &SessionId, new: NewLog) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(self.wrap(self.inner.create(id, new).await?))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        Ok(self.wrap(self.inner.claim(id).await?))
    }
}

#[async_trait]
impl Writer for FaultyWriter {
    async fn begin(&mut self, end: LogEnd) -> Result<Begun, WriteError> {
        self.inner.begin(end).await
    }

    async fn append(&mut self, batch: Vec<u8>, last: u64, sync: bool) -> Result<u64, WriteError> {
        let fault = self.faults.lock().unwrap().writes.pop_front();
        match fault {
            Some(error) => Err(error),
            None => self.inner.append(batch, last, sync).await,
        }
    }

    async fn put_checkpoint(&mut self, state: &[u8]) -> Result<(), BackendError> {
        self.inner.put_checkpoint(state).await
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        let fault = self.faults.lock().unwrap().syncs.pop_front();
        match fault {
            Some(error) => Err(error),
            None => self.inner.sync().await,
        }
    }
}

struct Rig {
    store: SessionStore,
    faults: Arc<Mutex<Faults>>,
    id: SessionId,
}

impl Rig {
    /// A store with one session of two turns, 14 events, and its writer.
    async fn new() -> (Self, SessionWriter) {
        let backend = Faulty::default();
        let faults = backend.faults.clone();
        let store = SessionStore::new(Arc::new(backend), StoreOptions::default());
        let id = SessionId::parse("s").unwrap();
        let writer = store
            .create(Header::new(id.clone(), 1, OsPath::from("/w")))
            .await
            .unwrap();
        for turn in 1..=2 {
            let first = (turn - 1) * 7;
            let events = whole_turn(first, turn, "x");
            writer
                .append(first, events, AppendOptions::barrier())
                .await
                .unwrap();
        }
        (Self { store, faults, id }, writer)
    }

    async fn damaged(seqs: impl IntoIterator<Item = u64>) -> Self {
        let (rig, writer) = Self::new().await;
        drop(writer);
        rig.faults.lock().unwrap().damaged = seqs.into_iter().collect();
        rig
    }

    fn fail_write(&self, error: WriteError) {
        self.faults.lock().unwrap().writes.push_back(error);
    }

    async fn try_append(&self, writer: &SessionWriter) -> Result<u64, AppendError> {
        let next = writer.next_seq().await;
        let appended = writer.append(
            next,
            vec![vendor(next, "{}", true)],
            AppendOptions::default(),
        );
        appended.await.map(|appended| appended.last_seq)
    }
}

fn poisoned() -> WriteError {
    WriteError::Poisoned {
        reason: "EIO".into(),
    }
}

#[tokio::test]
async fn pages_go_on_behind_damage_whatever_their_size() {
    let rig = Rig::damaged([0, 5, 13]).await;
    for limit in 1..=15 {
        let mut seqs = Vec::new();
        let mut pos = Some(ReadPos::default());
        while let Some(from) = pos {
            let page = rig.store.read(&rig.id, from, limit).await.unwrap();
            pos = page.next;
            seqs.extend(page.entries.iter().map(|entry| match entry {
                Entry::Line(line, _) => line.event.seq,
                Entry::Damage(damage) => damage.seq,
                Entry::Header(_) => panic!("a header among the events"),
            }));
            assert!(
                seqs.len() <= 14,
                "limit {limit} goes round in circles: {seqs:?}"
            );
        }
        assert_eq!(seqs, (0..14).collect::<Vec<_>>(), "limit {limit}");
    }
}

#[tokio::test]
async fn a_damaged_session_is_shown_up_to_the_damage_and_not_continued() {
    let rig = Rig::damaged([9]).await;
    let Err(OpenError::Read(ReadError::Corrupt { damage, .. })) = rig.store.load(&rig.id).await
    else {
        panic!("it was opened")
    };
    assert_eq!(
        (damage.file.as_str(), damage.offset, damage.seq),
        ("log.jsonl", 1009, 9)
    );
    assert!(rig.store.stat(&rig.id).await.unwrap().writer.is_none());
    let seen = rig.store.inspect(&rig.id).await.unwrap();
    assert_eq!((seen.damage.len(), seen.unstored), (1, 0));
    assert_eq!(seen.view.transcript().next_seq(), 9);
    let page = rig
        .store
        .list(&ListFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.sessions[0].status, SessionStatus::Damaged);
    assert_eq!(page.sessions[0].error.as_ref().unwrap().seq, Some(9));
    let report = rig.store.verify(&rig.id).await.unwrap();
    assert!(!report.ok && matches!(report.findings[0], Finding::Damage { .. }));
}

#[tokio::test]
async fn a_follower_is_given_what_is_good_before_it_is_told_of_damage() {
    let rig = Rig::damaged([3]).await;
    let mut follow = rig.store.follow(&rig.id, None);
    for seq in 0..3 {
        let Followed::Line(line) = follow.next().await.unwrap() else {
            panic!("caught up")
        };
        assert_eq!(line.event.seq, seq);
    }
    assert!(matches!(
        follow.next().await,
        Err(ReadError::Corrupt { .. })
    ));
}

#[tokio::test]
async fn one_damaged_session_hides_no_other() {
    let rig = Rig::damaged([0]).await;
    let other = SessionId::parse("other").unwrap();
    let writer = rig
        .store
        .create(Header::new(other.clone(), 1, OsPath::from("/w")))
        .await
        .unwrap();
    writer
        .append(0, cut_in_a_tool(), AppendOptions::default())
        .await
        .unwrap();
    let page = rig
        .store
        .list(&ListFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.sessions.len(), 2);
}

#[tokio::test]
async fn a_full_storage_leaves_the_writer_usable_without_a_gap() {
    let (rig, writer) = Rig::new().await;
    for _ in 0..3 {
        rig.fail_write(WriteError::StorageFull {
            what: "disk".into(),
        });
        let refused = rig.try_append(&writer).await;
        assert!(matches!(refused, Err(AppendError::StorageFull { .. })));
    }
    assert_eq!(rig.try_append(&writer).await.unwrap(), 14);
    assert!(rig.store.verify(&rig.id).await.unwrap().ok);
}

#[tokio::test]
async fn after_a_failed_write_a_writer_refuses_everything_and_lets_go() {
    for error in [
        poisoned(),
        WriteError::Fenced {
            by: "another".into(),
        },
        WriteError::UnknownOutcome {
            reason: "the line went dead".into(),
        },
    ] {
        let (rig, writer) = Rig::new().await;
        rig.fail_write(error);
        let first = rig.try_append(&writer).await.unwrap_err().to_string();
        assert_eq!(
            rig.try_append(&writer).await.unwrap_err().to_string(),
            first
        );
        assert!(writer.flush().await.is_err() || writer.next_seq().await == 14);
        // The claim is free, so the same process can recover at once.
        let again = rig.store.load(&rig.id).await.unwrap().writer;
        assert_eq!(rig.try_append(&again).await.unwrap(), 14);
    }
}

#[tokio::test]
async fn after_a_failed_sync_nothing_more_is_acknowledged() {
    let (rig, writer) = Rig::new().await;
    rig.try_append(&writer).await.unwrap();
    rig.faults.lock().unwrap().syncs.push_back(poisoned());
    assert!(matches!(
        writer.flush().await,
        Err(AppendError::Poisoned { .. })
    ));
    assert!(matches!(
        writer.flush().await,
        Err(AppendError::Poisoned { .. })
    ));
    assert!(matches!(
        rig.try_append(&writer).await,
        Err(AppendError::Poisoned { .. })
    ));
}

#[tokio::test]
async fn recovery_that_meets_a_full_storage_says_so_and_can_be_tried_again() {
    let (rig, _writer) = Rig::new().await;
    let id = SessionId::parse("cut").unwrap();
    let writer = rig
        .store
        .create(Header::new(id.clone(), 1, OsPath::from("/w")))
        .await
        .unwrap();
    writer
        .append(0, cut_in_a_tool(), AppendOptions::default())
        .await
        .unwrap();
    drop(writer);
    rig.fail_write(WriteError::StorageFull {
        what: "disk".into(),
    });
    let refused = rig.store.load(&id).await;
    assert!(matches!(refused, Err(OpenError::StorageFull { .. })));
    assert_eq!(rig.store.load(&id).await.unwrap().closed, 4);
}
