//! A session of a million events: opened at its end, scrolled to its beginning.
//!
//! `cargo test -p threadline-tui --test large -- --ignored --nocapture`; THREADLINE_EVENTS says how
//! many events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

use std::{sync::Arc, time::Instant};

use crossterm::event::KeyCode;
use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_session::{Header, OsPath};
use threadline_store::{
    AppendOptions, Durability, SessionStore, StoreOptions, WindowAt,
    contract::script::{answer, chunk, step_end, step_start, turn_end, turn_start, user},
};
use threadline_tui::{app::Effect, app::Msg, limits::PAGE_ITEMS};

use crate::support::{Stage, id};

/// Events of a turn.
const TURN: u64 = 100;

async fn written(store: &SessionStore, events: u64) {
    let header = Header::new(id(1), support::NOW, OsPath::from("/work"));
    let writer = store.create(header).await.unwrap();
    for turn in 1..=events / TURN {
        let mut payloads = vec![
            turn_start(turn),
            user(&format!("message {turn}")),
            step_start(turn, turn),
        ];
        let pieces = (0..TURN - 6).map(|n| chunk(turn, turn, &format!("word{n} ")));
        payloads.extend(pieces);
        payloads.push(answer(turn, turn, "All of it."));
        payloads.push(step_end(turn, turn));
        payloads.push(turn_end(turn));
        writer
            .record(payloads, AppendOptions::default())
            .await
            .unwrap();
    }
}

#[tokio::test]
#[ignore = "writes a large log: run by name"]
async fn a_million_events_open_at_their_end_and_scroll_back() {
    let events = std::env::var("THREADLINE_EVENTS");
    let events: u64 = events.map_or(1_000_000, |events| events.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = JsonlOptions::default();
        let backend = JsonlBackend::open(folder.path().to_owned(), options).unwrap();
        let options = StoreOptions {
            durability: Durability::Os,
            ..StoreOptions::default()
        };
        SessionStore::new(Arc::new(backend), options)
    };
    let start = Instant::now();
    written(&open(), events).await;
    println!("written: {events} events in {:?}", start.elapsed());
    let store = open();
    let start = Instant::now();
    let window = store
        .window(&id(1), WindowAt::End, PAGE_ITEMS)
        .await
        .unwrap();
    println!("last turns: {:?}", start.elapsed());
    let turns = window.turns;
    // As many turns as it takes, and what begins with one.
    let shown = turns.len() as u64;
    assert!((10..=PAGE_ITEMS as u64).contains(&shown), "{shown} turns");
    assert_eq!(window.from, events - shown * TURN);
    let mut stage = Stage::talking(80, 24, Vec::new());
    let start = Instant::now();
    stage.opened(turns, window.from);
    println!("first screen: {:?}", start.elapsed());
    assert!(stage.screen().contains("All of it."));
    let (mut pages, mut longest, mut slowest) = (0, start.elapsed(), start.elapsed());
    while pages < 100 {
        let start = Instant::now();
        let asked = stage.press(KeyCode::PageUp);
        longest = longest.max(start.elapsed());
        if let [Effect::Earlier { before, .. }] = asked.as_slice() {
            let start = Instant::now();
            let window = store
                .window(&id(1), WindowAt::Before(*before), PAGE_ITEMS)
                .await
                .unwrap();
            slowest = slowest.max(start.elapsed());
            let turns = window.turns;
            assert!(turns.len() as u64 >= shown);
            stage.send(Msg::Earlier(id(1), Ok((turns, window.from))));
            pages += 1;
        }
    }
    println!("100 pages back: slowest read {slowest:?}, longest key {longest:?}");
}
