//! Checkpoints: a cache that changes nothing but how much is read.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use threadline_session::SessionId;

use super::{
    Fixture, Wrapped, busy, events, header_of, keyed, lines, load, new_id, options, plain, record,
    refused, request_after, request_of,
    script::{cut_turn, plain_turn, tool_result, tool_start, vendor, whole_turn},
    sound, still, stored,
};
use crate::{
    AppendOptions, Backend, BackendError, Checkpoint, LogEnd, MemoryBackend, OpenError, ReadError,
    SessionStore, SessionWriter, StoreOptions,
};

/// A store without checkpoints that has a copy of a session.
async fn twin(fixture: &Fixture, id: &SessionId) -> SessionStore {
    let twin = SessionStore::new(Arc::new(MemoryBackend::new()), still(7));
    fixture.blind(options()).copy_to(&twin, id).await.unwrap();
    twin
}

async fn kept(store: &SessionStore, id: &SessionId) -> Option<Checkpoint> {
    store.backend().checkpoint(id, u64::MAX).await.unwrap()
}

async fn frozen(writer: &SessionWriter) -> Vec<u8> {
    writer.with_transcript(|t| t.freeze()).await
}

/// Everything that can be told of a state, apart from where its lines are kept.
async fn told(writer: &SessionWriter) -> String {
    let request = request_of(writer).await;
    writer
        .with_transcript(|t| {
            let surface: Vec<u64> = t.surface_seqs().collect();
            let open = (t.open_turn(), t.open_step(), t.open_calls());
            let asked = (t.pending_approvals(), t.session_grants(), t.inbox());
            let counted = (t.next_seq(), t.last_time(), t.last_turn(), t.last_step());
            let rest = (t.context(), t.facts(), t.redo_target(), t.status());
            format!("{request} {surface:?} {open:?} {asked:?} {counted:?} {rest:?}")
        })
        .await
}

/// Puts a turn into a log whose every event is larger than any state, so that a checkpoint is kept
/// after each of them.
async fn heavy_cut(writer: &SessionWriter, turn: u64, step: u64) {
    for payload in cut_turn(turn, step) {
        record(writer, vec![payload]).await;
        let next = writer.next_seq().await;
        let data = format!("{{\"fill\":\"{}\"}}", "x".repeat(60_000));
        for seq in next..next + 2 {
            let padding = vec![vendor(seq, &data, true)];
            writer.append(seq, padding, plain()).await.unwrap();
        }
    }
}

/// Opening from a checkpoint gives the very state that reading the whole log gives.
pub async fn opening_from_a_checkpoint_gives_the_state_of_the_whole_log(fixture: Fixture) {
    let id = new_id();
    drop(busy(&fixture.eager(still(5)), &id).await);
    for turn in 10..13 {
        // Opening keeps a checkpoint of all that was read.
        drop(load(&fixture.eager(options()), &id).await);
        let store = fixture.eager(options());
        let next = events(&store, &id).await.len() as u64;
        let point = kept(&store, &id).await.expect("a checkpoint");
        assert_eq!(point.next.seq, next);
        let read = load(&fixture.blind(options()), &id).await.writer;
        let (state, all) = (frozen(&read).await, told(&read).await);
        drop(read);
        let writer = load(&store, &id).await.writer;
        assert_eq!(frozen(&writer).await, state);
        assert_eq!(told(&writer).await, all);
        record(&writer, plain_turn(turn, "on")).await;
        sound(&store, &id).await;
    }
}

/// A checkpoint in the middle of a turn leads to the same closers, byte for byte, as none.
pub async fn a_checkpoint_in_a_turn_gives_the_same_closers(fixture: Fixture) {
    let store = fixture.eager(still(5));
    let id = new_id();
    let (writer, _) = busy(&store, &id).await;
    heavy_cut(&writer, 6, 6).await;
    let next = writer.next_seq().await;
    drop(writer);
    let point = kept(&store, &id).await.expect("a checkpoint");
    // In the middle of the turn: the end of the log is the end of nothing.
    assert!(point.next.seq + 9 > next && point.next.seq <= next);
    let twin = twin(&fixture, &id).await;
    let (ours, theirs) = (
        load(&fixture.eager(still(7)), &id).await,
        load(&twin, &id).await,
    );
    assert_eq!((ours.closed, theirs.closed), (4, 4));
    assert_eq!(told(&ours.writer).await, told(&theirs.writer).await);
    drop(ours);
    assert_eq!(lines(&store, &id).await, lines(&twin, &id).await);
    sound(&store, &id).await;
}

/// What is appended behind a checkpoint has the same bytes, its chain included, as without.
pub async fn what_follows_a_checkpoint_is_the_same_bytes(fixture: Fixture) {
    let id = new_id();
    let writer = busy(&fixture.eager(still(5)), &id).await.0;
    drop(writer);
    let twin = twin(&fixture, &id).await;
    for turn in 7..10 {
        for store in [&fixture.eager(still(turn)), &twin] {
            drop(load(store, &id).await);
            let writer = load(store, &id).await.writer;
            let next = writer.next_seq().await;
            let more = whole_turn(next, turn, "more");
            let appended = writer.append(next, more, keyed(&format!("{turn}"))).await;
            assert_eq!(appended.unwrap().last_seq, next + 6);
            // Open when the writer goes.
            let cut = super::script::events_from(next + 7, &cut_turn(turn, turn + 20));
            writer.append(next + 7, cut, plain()).await.unwrap();
        }
        assert_eq!(
            lines(&fixture.store(), &id).await,
            lines(&twin, &id).await,
            "turn {turn}"
        );
        let head = twin.verify(&id).await.unwrap().head;
        assert_eq!(fixture.reopened().verify(&id).await.unwrap().head, head);
    }
    sound(&fixture.reopened(), &id).await;
}

/// Keys behind a checkpoint are known as those before it.
pub async fn keys_are_known_behind_a_checkpoint(fixture: Fixture) {
    let id = new_id();
    drop(stored(&fixture.eager(options()), &id, whole_turn(0, 1, "one")).await);
    for turn in 2..6 {
        let store = fixture.eager(options());
        let writer = load(&store, &id).await.writer;
        let next = writer.next_seq().await;
        let batch = whole_turn(next, turn, "keyed");
        let key = keyed(&format!("key {turn}"));
        let first = writer.append(next, batch, key).await.unwrap();
        assert!(!first.repeated);
        for known in 2..=turn {
            let last_seq = 7 * known - 1;
            let again = writer
                .append(next, Vec::new(), keyed(&format!("key {known}")))
                .await
                .unwrap();
            assert_eq!((again.last_seq, again.repeated), (last_seq, true));
        }
    }
    sound(&fixture.reopened(), &id).await;
}

fn knowing() -> StoreOptions {
    StoreOptions {
        registered: BTreeSet::from(["vendor/thing".to_owned()]),
        ..options()
    }
}

/// A checkpoint that holds an event of a registered type is of no use to who does not know it.
pub async fn a_checkpoint_hides_no_unknown_type(fixture: Fixture) {
    let id = new_id();
    let writer = stored(&fixture.eager(knowing()), &id, whole_turn(0, 1, "one")).await;
    let needed = vec![vendor(7, "{}", false)];
    writer.append(7, needed, plain()).await.unwrap();
    record(&writer, plain_turn(2, "two")).await;
    drop(writer);
    drop(load(&fixture.eager(knowing()), &id).await);
    let point = kept(&fixture.store(), &id).await.expect("a checkpoint");
    assert_eq!(point.next.seq, 15);
    for unknowing in [fixture.eager(options()), fixture.blind(options())] {
        refused!(
            unknowing.load(&id).await,
            OpenError::Read(ReadError::Unsupported { .. })
        );
        // A fork in the middle of the later turn would have to close it.
        refused!(
            unknowing.fork(&id, Some(9), new_id()).await,
            crate::ForkError::Read(ReadError::Unsupported { .. })
        );
    }
    assert_eq!(load(&fixture.eager(knowing()), &id).await.closed, 0);
}

/// Forks at every event have the same events with and without checkpoints before, at and behind it.
pub async fn a_fork_at_any_event_is_the_same_without_checkpoints(fixture: Fixture) {
    let store = fixture.eager(still(5));
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "one")).await);
    // Each opening keeps a checkpoint, so that there is one after each turn.
    for turn in [2, 3] {
        let writer = load(&fixture.eager(still(5)), &id).await.writer;
        record(&writer, plain_turn(turn, "more")).await;
    }
    let writer = load(&store, &id).await.writer;
    writer.rewind(9).await.unwrap();
    heavy_cut(&writer, 4, 4).await;
    record(&writer, vec![tool_start("y"), tool_result("x", "X")]).await;
    let all = events(&store, &id).await;
    let twin = twin(&fixture, &id).await;
    for k in 0..all.len() {
        let (ours, theirs) = (new_id(), new_id());
        let at = Some(k as u64);
        let eager = fixture.eager(still(7));
        let first = eager.fork(&id, at, ours.clone()).await.unwrap();
        let second = twin.fork(&id, at, theirs.clone()).await.unwrap();
        assert_eq!(first.closed, second.closed, "at {k}");
        assert_eq!(events(&eager, &ours).await, events(&twin, &theirs).await);
        for _ in 0..2 {
            let writer = load(&fixture.eager(still(7)), &ours).await.writer;
            let wanted = request_after(&all[..=k]);
            assert_eq!(request_of(&writer).await, wanted, "at {k}");
        }
        sound(&eager, &ours).await;
    }
}

/// A backend gives back the newest checkpoint that is not behind a limit, as it was put.
pub async fn a_checkpoint_comes_back_as_it_was_put(fixture: Fixture) {
    let store = fixture.blind(options());
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "one")).await);
    let backend = &fixture.backend;
    assert_eq!(backend.checkpoint(&id, u64::MAX).await.unwrap(), None);
    for turn in 2..5_u64 {
        let next = 7 * (turn - 1);
        let end = store.restore(&id, None, false).await.unwrap();
        let mut writer = backend.claim(&id).await.unwrap();
        let end = LogEnd {
            next: end.next,
            torn: None,
        };
        writer.begin(end).await.unwrap();
        let state = vec![u8::try_from(turn).unwrap(); 1 << turn];
        writer.put_checkpoint(&state).await.unwrap();
        drop(writer);
        for backend in [backend, &(fixture.reopen)()] {
            for limit in [next, u64::MAX] {
                let found = backend.checkpoint(&id, limit).await.unwrap();
                let found = found.expect("a checkpoint");
                assert_eq!((found.next.seq, &found.state), (next, &state));
            }
            let older = backend.checkpoint(&id, next - 1).await.unwrap();
            assert!(older.is_none_or(|older| older.next.seq < next && older.state != state));
        }
        // Bytes that are no state are passed over.
        let writer = load(&fixture.eager(options()), &id).await.writer;
        assert_eq!(writer.next_seq().await, next);
        drop(writer);
        let writer = load(&store, &id).await.writer;
        record(&writer, plain_turn(turn, "more")).await;
    }
    sound(&store, &id).await;
}

/// A backend whose checkpoints are not what was put.
struct Garbled(Arc<dyn Backend>, fn(Checkpoint) -> Checkpoint);

#[async_trait]
impl Wrapped for Garbled {
    fn inner(&self) -> &dyn Backend {
        &*self.0
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        limit: u64,
    ) -> Result<Option<Checkpoint>, BackendError> {
        let found = self.0.checkpoint(id, limit).await?;
        Ok(found.map(self.1))
    }
}

/// A checkpoint that is garbled or of another program is passed over, and the log has the truth.
pub async fn a_garbled_checkpoint_is_passed_over(fixture: Fixture) {
    let id = new_id();
    drop(busy(&fixture.eager(options()), &id).await);
    drop(load(&fixture.eager(options()), &id).await);
    assert!(kept(&fixture.store(), &id).await.is_some());
    let writer = load(&fixture.blind(options()), &id).await.writer;
    let (state, all) = (frozen(&writer).await, told(&writer).await);
    drop(writer);
    let garblings: [fn(Checkpoint) -> Checkpoint; 5] = [
        |mut c| {
            c.state.clear();
            c
        },
        |mut c| {
            c.state.truncate(c.state.len() / 2);
            c
        },
        |mut c| {
            c.state.iter_mut().for_each(|byte| *byte = 0xff);
            c
        },
        |mut c| {
            let text = String::from_utf8_lossy(&c.state).into_owned();
            c.state = text.replacen("\"revision\":", "\"revision\":9", 1).into();
            c
        },
        |mut c| {
            c.next.seq -= 1;
            c
        },
    ];
    for (at, garble) in garblings.into_iter().enumerate() {
        let backend = Arc::new(Garbled((fixture.reopen)(), garble));
        let store = SessionStore::new(backend, options());
        let loaded = load(&store, &id).await;
        assert_eq!(loaded.closed, 0, "garbling {at}");
        assert_eq!(frozen(&loaded.writer).await, state, "garbling {at}");
        assert_eq!(told(&loaded.writer).await, all, "garbling {at}");
    }
    sound(&fixture.reopened(), &id).await;
}

/// A session that is made again under an old id has nothing of the old one's checkpoints.
pub async fn a_checkpoint_goes_with_its_session(fixture: Fixture) {
    let id = new_id();
    drop(busy(&fixture.eager(options()), &id).await);
    drop(load(&fixture.eager(options()), &id).await);
    let store = fixture.eager(options());
    assert!(kept(&store, &id).await.is_some());
    store.delete(&id).await.unwrap();
    let writer = store.create(header_of(&id)).await.unwrap();
    writer
        .append(0, whole_turn(0, 1, "anew"), AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);
    for store in [fixture.eager(options()), fixture.blind(options())] {
        let writer = load(&store, &id).await.writer;
        let all = events(&store, &id).await;
        assert_eq!(request_of(&writer).await, request_after(&all));
        assert_eq!(writer.next_seq().await, 7);
    }
    sound(&store, &id).await;
}

/// A take-over behind a checkpoint in the middle of a turn leaves the chain whole.
pub async fn a_take_over_behind_a_checkpoint_keeps_the_chain(fixture: Fixture) {
    let id = new_id();
    let mut writers = vec![stored(&fixture.eager(options()), &id, whole_turn(0, 1, "x")).await];
    for turn in 2..5 {
        heavy_cut(writers.last().unwrap(), turn, turn).await;
        let next = writers.last().unwrap().next_seq().await;
        let store = fixture.eager(options());
        assert!(
            kept(&store, &id)
                .await
                .is_some_and(|c| c.next.seq + 9 > next)
        );
        let loaded = store.take_over(&id).await.unwrap();
        assert_eq!(loaded.closed, 4);
        writers.push(loaded.writer);
        sound(&store, &id).await;
    }
    drop(writers);
    let writer = load(&fixture.eager(options()), &id).await.writer;
    record(&writer, plain_turn(9, "on")).await;
    sound(&fixture.reopened(), &id).await;
}
