//! Parts of the read model, against a fold of the whole log.

use threadline_session::{SessionId, Turn, View};

use super::{
    Fixture, busy, events, new_id, options, record,
    script::{cut_turn, plain_turn},
    still,
};
use crate::{SessionStore, Window, WindowAt};

/// A log with everything in it: compactions, rewinds, calls at once, and at its end a turn that is
/// cut while a tool runs, of which nothing is stored.
async fn cut_log(fixture: &Fixture, id: &SessionId) {
    let writer = busy(&fixture.eager(still(5)), id).await.0;
    record(&writer, plain_turn(6, "more")).await;
    record(&writer, cut_turn(7, 7)).await;
}

/// Both ways to come by a state: from a checkpoint, and from the whole log.
fn stores(fixture: &Fixture) -> [SessionStore; 2] {
    [fixture.eager(options()), fixture.blind(options())]
}

/// Puts a window in front of the turns behind it.
fn join(mut older: Vec<Turn>, newer: Vec<Turn>) -> Vec<Turn> {
    for turn in newer {
        match older.last_mut() {
            Some(last) if last.head.start_seq == turn.head.start_seq => {
                last.head = turn.head;
                last.items.extend(turn.items);
            }
            _ => older.push(turn),
        }
    }
    older
}

async fn window(store: &SessionStore, id: &SessionId, at: WindowAt, items: usize) -> Window {
    store.window(id, at, items).await.unwrap()
}

/// Windows from the end to the beginning, and from the beginning to the end, join to the whole.
pub async fn windows_of_any_size_join_to_the_whole_read_model(fixture: Fixture) {
    let id = new_id();
    cut_log(&fixture, &id).await;
    for store in stores(&fixture) {
        let whole = store.inspect(&id).await.unwrap();
        let end = events(&store, &id).await.len() as u64;
        for items in [1, 2, 3, 5, 8, 100] {
            let mut newest = window(&store, &id, WindowAt::End, items).await;
            assert!(newest.at_end && !newest.cut);
            assert_eq!((newest.to, newest.end), (end, end));
            assert_eq!(newest.status, whole.view.transcript().status());
            let mut turns = std::mem::take(&mut newest.turns);
            while newest.from > 0 {
                let older = window(&store, &id, WindowAt::Before(newest.from), items).await;
                assert_eq!(older.to, newest.from);
                assert!(older.from < newest.from && !older.at_end);
                turns = join(older.turns.clone(), turns);
                newest = older;
            }
            assert!(turns == whole.view.turns(), "{items} items from the end");

            let mut turns = Vec::new();
            let mut next = 0;
            while next < end {
                let part = window(&store, &id, WindowAt::From(next), items).await;
                assert_eq!(part.from, next);
                assert!(part.to > next);
                next = part.to;
                turns = join(turns, part.turns);
            }
            assert_eq!(
                turns,
                whole.view.turns(),
                "{items} items from the beginning"
            );
        }
    }
}

/// Every event and every turn is found, however small the window.
pub async fn a_window_is_found_around_every_event_and_at_every_turn(fixture: Fixture) {
    let id = new_id();
    cut_log(&fixture, &id).await;
    for store in stores(&fixture) {
        let whole = store.inspect(&id).await.unwrap();
        let end = events(&store, &id).await.len() as u64;
        for items in [1, 4] {
            for seq in 0..end {
                let around = window(&store, &id, WindowAt::Around(seq), items).await;
                assert!(around.from <= seq && seq < around.to, "event {seq}");
            }
            for turn in whole.view.turns() {
                let at = WindowAt::Turn(turn.head.turn);
                let found = window(&store, &id, at, items).await;
                assert_eq!(found.turns[0].head.start_seq, turn.head.start_seq);
                assert_eq!(found.turns[0].items[..1], turn.items[..1]);
            }
        }
        let far = window(&store, &id, WindowAt::Around(u64::MAX), 1).await;
        assert_eq!(far.to, end);
        let far = window(&store, &id, WindowAt::Turn(u64::MAX), 1).await;
        assert_eq!(far.to, end);
    }
}

/// A model for following that begins at any event tells the same changes as one that was folded
/// from the first.
pub async fn following_from_any_event_tells_the_same_changes(fixture: Fixture) {
    let id = new_id();
    cut_log(&fixture, &id).await;
    for store in stores(&fixture) {
        let events = events(&store, &id).await;
        let mut whole = View::over(store.transcript());
        let mut told = Vec::new();
        for event in &events {
            told.push(store.apply(&id, &mut whole, event).await.unwrap().unwrap());
        }
        for from in 0..events.len() {
            let (mut view, _) = store.view_before(&id, from as u64).await.unwrap().unwrap();
            for (event, wanted) in events.iter().zip(&told).skip(from) {
                let patches = store.apply(&id, &mut view, event).await.unwrap().unwrap();
                assert_eq!(patches, *wanted, "from {from}, event {}", event.seq);
            }
        }
    }
}
