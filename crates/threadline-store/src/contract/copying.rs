//! Copies between stores, byte for byte.

use std::sync::Arc;

use async_trait::async_trait;
use threadline_session::{Event, Payload, Place, SessionId, chain::Chain, codec::Encoder};

use super::{
    Fixture, Wrapped, busy, events, load, new_id, options, plain, raw, record, refused,
    request_after, request_of,
    script::{
        cut_in_a_tool, cut_turn, picture, plain_turn, step_end, tool_result, turn_end, whole_turn,
    },
    sound, stored,
};
use crate::{
    Backend, BackendError, BlobError, BlobId, Copied, CopyError, Damage, Entry, MemoryBackend,
    Page, ReadError, ReadPos, SessionStore, SummaryPatch,
};

fn memory() -> SessionStore {
    SessionStore::new(Arc::new(MemoryBackend::new()), options())
}

/// The fixture's store and one in memory, each way.
fn both(fixture: &Fixture) -> [(SessionStore, SessionStore); 2] {
    [(memory(), fixture.store()), (fixture.store(), memory())]
}

/// Checks that two stores have the same bytes of a session and that both verify.
async fn same(from: &SessionStore, to: &SessionStore, id: &SessionId) {
    assert_eq!(raw(to, id).await, raw(from, id).await, "{id}");
    assert_eq!(to.header(id).await.unwrap(), from.header(id).await.unwrap());
    sound(to, id).await;
    let (theirs, ours) = (from.verify(id).await.unwrap(), to.verify(id).await.unwrap());
    assert_eq!(ours, theirs);
}

/// A session of many turns is the same in the other store, byte for byte, and goes on there.
pub async fn a_copy_is_the_same_bytes(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        let (writer, _) = busy(&from, &id).await;
        record(&writer, cut_turn(6, 6)).await;
        let events = events(&from, &id).await;
        // It may be written meanwhile.
        let copied = from.copy_to(&to, &id).await.unwrap();
        let wanted = Copied::New {
            events: events.len() as u64,
        };
        assert_eq!(copied, wanted);
        same(&from, &to, &id).await;
        let stat = to.stat(&id).await.unwrap();
        assert!(stat.writer.is_none());
        let loaded = load(&to, &id).await;
        assert_eq!(loaded.closed, 4);
        assert_eq!(request_of(&loaded.writer).await, request_after(&events));
        record(&loaded.writer, plain_turn(7, "there")).await;
        sound(&to, &id).await;
        assert_eq!(super::events(&from, &id).await, events);
    }
    sound_everywhere(&fixture).await;
}

async fn sound_everywhere(fixture: &Fixture) {
    let store = fixture.reopened();
    for id in store.ids().await.unwrap() {
        sound(&store, &id).await;
    }
}

/// What [`cut_in_a_tool`] lacks.
fn rest_of_the_turn() -> Vec<Payload> {
    vec![
        tool_result("a", "A"),
        tool_result("b", "B"),
        step_end(1, 1),
        turn_end(1),
    ]
}

/// A copy that is there already is left as it is; what has grown since is added, as long as one
/// log is the beginning of the other.
pub async fn a_copy_catches_up_with_what_has_grown(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        let writer = stored(&from, &id, cut_in_a_tool()).await;
        from.copy_to(&to, &id).await.unwrap();
        let mut had = 5;
        for turn in 1..4 {
            let stamp = to.stat(&id).await.unwrap().stamp;
            assert_eq!(from.copy_to(&to, &id).await.unwrap(), Copied::Same);
            assert_eq!(to.stat(&id).await.unwrap().stamp, stamp);
            let last = match turn {
                1 => record(&writer, rest_of_the_turn()).await,
                _ => record(&writer, plain_turn(turn, "more")).await,
            };
            let events = last + 1 - had;
            had = last + 1;
            let copied = from.copy_to(&to, &id).await.unwrap();
            assert_eq!(copied, Copied::CaughtUp { events });
            assert_eq!(raw(&to, &id).await, raw(&from, &id).await);
        }
        drop(writer);
        same(&from, &to, &id).await;
        // The copy is ahead now: nothing to add, and nothing lost.
        record(&load(&to, &id).await.writer, plain_turn(9, "ahead")).await;
        let ahead = raw(&to, &id).await;
        assert_eq!(from.copy_to(&to, &id).await.unwrap(), Copied::Same);
        assert_eq!(raw(&to, &id).await, ahead);
        assert_eq!(
            to.copy_to(&from, &id).await.unwrap(),
            Copied::CaughtUp { events: 7 }
        );
        same(&to, &from, &id).await;
        record(&load(&from, &id).await.writer, plain_turn(10, "back")).await;
        sound(&from, &id).await;
    }
}

/// Sessions that have gone different ways are told apart, and both are left alone.
pub async fn sessions_that_differ_are_left_alone(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        drop(stored(&from, &id, whole_turn(0, 1, "one")).await);
        from.copy_to(&to, &id).await.unwrap();
        record(&load(&from, &id).await.writer, plain_turn(2, "here")).await;
        record(&load(&to, &id).await.writer, plain_turn(2, "there")).await;
        record(&load(&from, &id).await.writer, plain_turn(3, "on")).await;
        let other = new_id();
        drop(stored(&from, &other, whole_turn(0, 1, "one")).await);
        drop(stored(&to, &other, whole_turn(0, 1, "an other")).await);
        for (id, first) in [(&id, 7..9), (&other, 0..3)] {
            for (from, to) in [(&from, &to), (&to, &from)] {
                let before = (raw(from, id).await, raw(to, id).await);
                let seq = refused!(
                    from.copy_to(to, id).await,
                    CopyError::Differs { seq, .. } => seq
                );
                assert!(first.contains(&seq), "{seq}");
                assert_eq!((raw(from, id).await, raw(to, id).await), before);
                sound(to, id).await;
            }
        }
    }
}

/// A backend that gives other lines than are stored.
struct Tampering {
    inner: Arc<dyn Backend>,
    /// The event, and its line without LF; `None` for damage.
    seq: u64,
    line: Option<Vec<u8>>,
}

#[async_trait]
impl Wrapped for Tampering {
    fn inner(&self) -> &dyn Backend {
        &*self.inner
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let mut page = self.inner.page(id, from, max_bytes).await?;
        for entry in &mut page.entries {
            let Entry::Line(line, place) = entry else {
                continue;
            };
            if line.event.seq != self.seq {
                continue;
            }
            *entry = match &self.line {
                Some(line) => {
                    let line = threadline_session::codec::Line::decode(line).unwrap();
                    Entry::Line(line, *place)
                }
                None => Entry::Damage(Damage {
                    file: "log".into(),
                    offset: place.at,
                    bytes: u64::from(place.len),
                    seq: self.seq,
                    reason: "tampered with".into(),
                }),
            };
        }
        Ok(page)
    }

    async fn lines(
        &self,
        id: &SessionId,
        wanted: &[(u64, Place)],
    ) -> Result<Vec<Result<Vec<u8>, Damage>>, BackendError> {
        self.inner.lines(id, wanted).await
    }
}

/// What is damaged or was tampered with is not copied, and nothing of it shows in the other store.
pub async fn a_session_that_cannot_be_trusted_is_not_copied(fixture: Fixture) {
    let sources: [Arc<dyn Backend>; 2] = [Arc::new(MemoryBackend::new()), (fixture.reopen)()];
    let targets = [fixture.reopened(), memory()];
    for (inner, to) in sources.into_iter().zip(targets) {
        let id = new_id();
        let from = SessionStore::new(inner.clone(), options());
        let writer = stored(&from, &id, whole_turn(0, 1, "one")).await;
        record(&writer, plain_turn(2, "two")).await;
        let forged = Event::from_json(
            8,
            1,
            "user/message",
            "{\"content\":[],\"source\":\"user\"}",
            false,
        );
        let forged = Encoder::new(Chain::new()).batch(8, &[forged.unwrap()], None);
        let mut forged = forged.unwrap().bytes;
        forged.pop();
        let tampered = |line| {
            let inner = inner.clone();
            SessionStore::new(
                Arc::new(Tampering {
                    inner,
                    seq: 8,
                    line,
                }),
                options(),
            )
        };
        let (damaged, forged) = (tampered(None), tampered(Some(forged)));
        let refuse = async || {
            let damage = refused!(
                damaged.copy_to(&to, &id).await,
                CopyError::Read(ReadError::Corrupt { damage, .. }) => damage
            );
            assert_eq!(damage.seq, 8);
            let seq = refused!(
                forged.copy_to(&to, &id).await,
                CopyError::Chain { seq, .. } => seq
            );
            assert_eq!(seq, 13);
        };
        refuse().await;
        assert!(!to.has(&id).await.unwrap());
        assert!(to.ids().await.unwrap().is_empty());
        // What is whole of it is copied once it is mended, under the same id.
        from.copy_to(&to, &id).await.unwrap();
        same(&from, &to, &id).await;
        drop(writer);
    }
}

/// What is damaged in the part that has grown is not added.
pub async fn damage_is_not_caught_up_with(fixture: Fixture) {
    let sources: [Arc<dyn Backend>; 2] = [Arc::new(MemoryBackend::new()), (fixture.reopen)()];
    let targets = [fixture.reopened(), memory()];
    for (inner, to) in sources.into_iter().zip(targets) {
        let id = new_id();
        let from = SessionStore::new(inner.clone(), options());
        let writer = stored(&from, &id, whole_turn(0, 1, "one")).await;
        from.copy_to(&to, &id).await.unwrap();
        record(&writer, plain_turn(2, "two")).await;
        let before = raw(&to, &id).await;
        let damaged = Tampering {
            inner,
            seq: 8,
            line: None,
        };
        let damaged = SessionStore::new(Arc::new(damaged), options());
        refused!(
            damaged.copy_to(&to, &id).await,
            CopyError::Read(ReadError::Corrupt { .. })
        );
        assert_eq!(raw(&to, &id).await, before);
        sound(&to, &id).await;
        assert_eq!(
            from.copy_to(&to, &id).await.unwrap(),
            Copied::CaughtUp { events: 7 }
        );
    }
}

/// A fork, and one of it that was taken over, keep the parts they are made of, without their
/// parents.
pub async fn a_copied_fork_keeps_its_parts(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let (parent, child, grandchild) = (new_id(), new_id(), new_id());
        drop(busy(&from, &parent).await);
        from.fork(&parent, Some(10), child.clone()).await.unwrap();
        let writer = load(&from, &child).await.writer;
        record(&writer, plain_turn(2, "two")).await;
        let taken = from.take_over(&child).await.unwrap();
        record(&taken.writer, cut_turn(3, 30)).await;
        drop((writer, taken));
        from.fork(&child, None, grandchild.clone()).await.unwrap();
        for id in [&grandchild, &child] {
            from.copy_to(&to, id).await.unwrap();
            same(&from, &to, id).await;
            assert_eq!(from.copy_to(&to, id).await.unwrap(), Copied::Same);
            let parent = to.header(id).await.unwrap().header.parent;
            assert_eq!(to.summary(id).await.unwrap().parent, parent);
            assert!(parent.is_some());
        }
        assert!(!to.has(&parent).await.unwrap());
        let all = events(&to, &grandchild).await;
        for k in 0..all.len() {
            let fork = new_id();
            to.fork(&grandchild, Some(k as u64), fork.clone())
                .await
                .unwrap();
            assert_eq!(events(&to, &fork).await, super::closed(&all[..=k]), "{k}");
            sound(&to, &fork).await;
        }
        for id in [&child, &grandchild] {
            record(&load(&to, id).await.writer, plain_turn(8, "on")).await;
            sound(&to, id).await;
            record(&load(&from, id).await.writer, plain_turn(9, "on")).await;
            sound(&from, id).await;
        }
    }
}

/// What people set and the blobs that a log names come along; blobs of others do not.
pub async fn titles_and_blobs_are_copied(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        let named = from.put_blob(b"named").await.unwrap();
        let other = from.put_blob(b"of others").await.unwrap();
        let writer = stored(&from, &id, whole_turn(0, 1, "one")).await;
        let gone = BlobId::of(b"never put");
        for blob in [&named, &gone] {
            record(&writer, vec![picture(blob.as_str())]).await;
        }
        let patch = |title: &str| SummaryPatch {
            title: Some(Some(title.into())),
            tags: Some(vec!["x".into()]),
            ..SummaryPatch::default()
        };
        from.update(&id, patch("called"), 0).await.unwrap();
        from.copy_to(&to, &id).await.unwrap();
        let row = to.summary(&id).await.unwrap();
        assert_eq!(row.title.as_deref(), Some("called"));
        assert_eq!((row.revision, row.tags), (1, vec!["x".to_owned()]));
        assert_eq!(to.get_blob(&named).await.unwrap(), b"named");
        for absent in [&other, &gone] {
            refused!(to.get_blob(absent).await, BlobError::NotFound { .. });
        }
        // A newer title comes along later; an older one does not come back.
        let blob = from.put_blob(b"later").await.unwrap();
        record(&writer, vec![picture(blob.as_str())]).await;
        from.update(&id, patch("anew"), 1).await.unwrap();
        assert_eq!(
            from.copy_to(&to, &id).await.unwrap(),
            Copied::CaughtUp { events: 1 }
        );
        assert_eq!(to.get_blob(&blob).await.unwrap(), b"later");
        for revision in 2..4 {
            let title = to.summary(&id).await.unwrap().title;
            assert_eq!(
                title.as_deref(),
                Some(if revision == 2 { "anew" } else { "mine" })
            );
            to.update(&id, patch("mine"), revision).await.unwrap();
            assert_eq!(from.copy_to(&to, &id).await.unwrap(), Copied::Same);
        }
        assert_eq!(from.summary(&id).await.unwrap().revision, 2);
    }
}

/// A blob that is damaged is not handed on, nor is the session without it.
pub async fn a_session_with_a_damaged_blob_is_not_copied(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        let blob = BlobId::of(b"right");
        from.backend().put_blob(&blob, b"wrong!").await.unwrap();
        let writer = stored(&from, &id, whole_turn(0, 1, "one")).await;
        record(&writer, vec![picture(blob.as_str())]).await;
        refused!(
            from.copy_to(&to, &id).await,
            CopyError::Blob(BlobError::Damaged { .. })
        );
        assert!(!to.has(&id).await.unwrap());
    }
}

/// A session that is not there, or that is being written in the other store, is not copied.
pub async fn a_copy_that_cannot_be_made_changes_nothing(fixture: Fixture) {
    for (from, to) in both(&fixture) {
        let id = new_id();
        refused!(
            from.copy_to(&to, &id).await,
            CopyError::Read(ReadError::NotFound { .. })
        );
        assert!(!to.has(&id).await.unwrap());
        let writer = stored(&from, &id, whole_turn(0, 1, "one")).await;
        from.copy_to(&to, &id).await.unwrap();
        record(&writer, plain_turn(2, "two")).await;
        let theirs = load(&to, &id).await.writer;
        let before = raw(&to, &id).await;
        refused!(from.copy_to(&to, &id).await, CopyError::Refused { .. });
        assert_eq!(raw(&to, &id).await, before);
        // Its writer is as it was.
        let next = theirs.next_seq().await;
        theirs
            .append(next, whole_turn(next, 2, "theirs"), plain())
            .await
            .unwrap();
        sound(&to, &id).await;
    }
}
