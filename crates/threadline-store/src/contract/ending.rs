//! Sessions whose run died: closing, inspecting, continuing.

use threadline_session::{
    INTERRUPTED_MARK, Payload, SessionId, Status, normalise,
    payload::{EndReason, ModelRef, Outcome, plain_text},
};

use super::{
    Fixture, bytes, events, load, new_id, plain,
    script::{
        calls, chunk, cut_in_a_tool, events_from, step_start, tool_result, tool_start, turn_start,
        user, whole_turn,
    },
    sound, stored,
};
use crate::{AppendOptions, SessionStatus, SessionStore};

async fn cut(fixture: &Fixture, events: Vec<threadline_session::Event>) -> SessionId {
    let id = new_id();
    drop(stored(&fixture.store(), &id, events).await);
    id
}

async fn tail(store: &SessionStore, id: &SessionId, from: usize) -> Vec<Payload> {
    events(store, id).await[from..]
        .iter()
        .map(|event| event.payload().unwrap())
        .collect()
}

/// The started call is `unknown`, the one after it `not_started`; both are told apart in words.
pub async fn an_interrupted_turn_is_closed_once(fixture: Fixture) {
    let id = cut(&fixture, cut_in_a_tool()).await;
    let store = fixture.reopened();
    let loaded = load(&store, &id).await;
    assert_eq!(loaded.closed, 4);
    drop(loaded);
    let closed = tail(&store, &id, 5).await;
    let kinds: Vec<_> = closed.iter().map(Payload::kind).collect();
    assert_eq!(
        kinds,
        ["tool/result", "tool/result", "step/end", "turn/end"]
    );
    let results: Vec<_> = closed
        .iter()
        .filter_map(|payload| match payload {
            Payload::ToolResult(result) => Some(result),
            _ => None,
        })
        .collect();
    for (result, (call_id, outcome)) in results
        .iter()
        .zip([("a", Outcome::Unknown), ("b", Outcome::NotStarted)])
    {
        assert_eq!(
            (result.call_id.as_str(), result.outcome),
            (call_id, outcome)
        );
        assert!(result.synthetic && result.is_error);
        assert!(plain_text(&result.content).starts_with(INTERRUPTED_MARK));
    }
    let Some(Payload::TurnEnd(end)) = closed.last() else {
        panic!("{closed:?}")
    };
    assert_eq!(end.reason, EndReason::Interrupted);
    let time = events(&store, &id).await[4].time;
    assert!(
        events(&store, &id).await[5..]
            .iter()
            .all(|event| event.time == time)
    );

    let (before, stat) = (bytes(&store, &id).await, store.stat(&id).await.unwrap());
    for _ in 0..2 {
        let again = fixture.reopened();
        assert_eq!(load(&again, &id).await.closed, 0);
        assert_eq!(bytes(&again, &id).await, before);
        assert_eq!(again.stat(&id).await.unwrap().stamp, stat.stamp);
    }
    sound(&store, &id).await;
}

/// What recovery writes is durable before the session is handed out.
pub async fn closers_are_durable_when_the_session_is_open(fixture: Fixture) {
    let id = cut(&fixture, cut_in_a_tool()).await;
    let store = fixture.reopened();
    let loaded = load(&store, &id).await;
    assert_eq!(loaded.writer.flush().await.unwrap(), Some(8));
    let stat = store.stat(&id).await.unwrap();
    assert!(stat.acknowledged.is_none_or(|seq| seq == 8), "{stat:?}");
}

/// Every point of a turn at which a process can die leads to a session that goes on.
pub async fn a_run_killed_at_any_event_goes_on(fixture: Fixture) {
    let whole = events_from(
        0,
        &[
            turn_start(1),
            user("do it"),
            step_start(1, 1),
            chunk(1, 1, "I will"),
            calls(1, 1, &["a", "b"]),
            tool_start("a"),
            tool_start("b"),
            tool_result("b", "B"),
            tool_result("a", "A"),
        ],
    );
    let target = ModelRef {
        provider: "offline".into(),
        name: "demo".into(),
    };
    for end in 1..=whole.len() {
        let id = cut(&fixture, whole[..end].to_vec()).await;
        let store = fixture.reopened();
        let writer = load(&store, &id).await.writer;
        let next = writer.next_seq().await;
        assert!(next > end as u64, "after {end} events");
        assert_eq!(events(&store, &id).await[..end], whole[..end]);
        writer
            .append(next, whole_turn(next, 2, "go on"), AppendOptions::barrier())
            .await
            .unwrap();
        let report = writer.with_transcript(|t| normalise(t, &target).1).await;
        assert!(report.is_clean(), "after {end} events: {report:?}");
        sound(&store, &id).await;
    }
}

/// The text that had streamed is kept as an interrupted message.
pub async fn streamed_text_survives_its_run(fixture: Fixture) {
    let streamed = [
        turn_start(1),
        user("say it"),
        step_start(1, 1),
        chunk(1, 1, "once upon "),
        chunk(1, 1, "a time"),
    ];
    let id = cut(&fixture, events_from(0, &streamed)).await;
    let store = fixture.reopened();
    assert_eq!(load(&store, &id).await.closed, 3);
    let closed = tail(&store, &id, 5).await;
    let Some(Payload::AssistantMessage(message)) = closed.first() else {
        panic!("{closed:?}")
    };
    assert_eq!(
        (message.text().as_str(), message.interrupted),
        ("once upon a time", true)
    );
}

/// Inspecting shows what opening would write, and writes nothing.
pub async fn inspecting_an_interrupted_session_writes_nothing(fixture: Fixture) {
    let id = cut(&fixture, cut_in_a_tool()).await;
    let store = fixture.reopened();
    let (before, stat) = (bytes(&store, &id).await, store.stat(&id).await.unwrap());
    let mut shown = None;
    for _ in 0..2 {
        let seen = store.inspect(&id).await.unwrap();
        assert_eq!(seen.unstored, 4);
        assert_eq!(seen.view.transcript().status(), Status::Interrupted);
        assert!(seen.damage.is_empty() && seen.torn.is_none() && seen.unsupported.is_none());
        shown = Some(seen.view.turns().to_vec());
        assert_eq!(bytes(&store, &id).await, before);
        assert_eq!(store.stat(&id).await.unwrap(), stat);
    }
    let row = store.summary(&id).await.unwrap();
    assert_eq!((row.status, row.events), (SessionStatus::Interrupted, 5));
    // What was shown is what opening then stores.
    drop(load(&store, &id).await);
    let seen = store.inspect(&id).await.unwrap();
    assert_eq!(seen.unstored, 0);
    assert_eq!(Some(seen.view.turns().to_vec()), shown);
}

/// A session that somebody is writing is not interrupted.
pub async fn inspecting_a_session_being_written_shows_no_closers(fixture: Fixture) {
    let id = new_id();
    let store = fixture.store();
    let writer = stored(&store, &id, cut_in_a_tool()).await;
    for store in [&store, &fixture.reopened()] {
        let seen = store.inspect(&id).await.unwrap();
        assert_eq!(seen.unstored, 0);
        assert!(seen.stat.writer.is_some());
        assert_eq!(seen.view.transcript().status(), Status::Running);
        let row = store.summary(&id).await.unwrap();
        assert_eq!(row.status, SessionStatus::Running);
    }
    drop(writer);
    assert_eq!(fixture.reopened().inspect(&id).await.unwrap().unstored, 4);
}

/// A run that goes on after its turn was closed continues numbers, turns and the chain.
pub async fn a_closed_session_goes_on(fixture: Fixture) {
    let id = cut(&fixture, cut_in_a_tool()).await;
    let store = fixture.reopened();
    let writer = load(&store, &id).await.writer;
    assert_eq!(
        writer
            .with_transcript(|t| (t.last_turn(), t.last_step()))
            .await,
        (1, 1)
    );
    let next = writer.next_seq().await;
    writer
        .append(next, whole_turn(next, 2, "go on"), plain())
        .await
        .unwrap();
    drop(writer);
    let report = fixture.reopened().verify(&id).await.unwrap();
    assert_eq!(
        (report.ok, report.chained_turns),
        (true, 2),
        "{:?}",
        report.findings
    );
}
