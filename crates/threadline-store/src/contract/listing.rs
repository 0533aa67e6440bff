//! Lists, and what people set.

use threadline_session::{
    Event, OsPath, Parent, SessionId,
    payload::{ModelRef, Usage},
};

use super::{
    Fixture, bytes, header_of, id, load, new_id, plain, refused,
    script::{events_from, turn_end, turn_start, user, whole_turn},
    stored,
};
use crate::{
    AppendOptions, Archived, DeleteError, ListError, ListFilter, MadeTitle, ReadError,
    SessionStatus, SessionStore, SessionSummary, SummaryPatch, UpdateError,
    limits::{MAX_TAGS, MAX_TITLE_CHARS},
};

/// A finished turn whose events all carry this time.
fn turn_at(time: u64, prompt: &str) -> Vec<Event> {
    let mut events = events_from(0, &[turn_start(1), user(prompt), turn_end(1)]);
    for event in &mut events {
        event.time = time;
    }
    events
}

const EPOCH: u64 = 1_800_000_000_000;

async fn listed(store: &SessionStore, filter: &ListFilter, limit: usize) -> Vec<SessionId> {
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.list(filter, cursor.as_deref(), limit).await.unwrap();
        assert!(page.sessions.len() <= limit);
        ids.extend(page.sessions.into_iter().map(|row| row.id));
        assert!(ids.len() <= 100, "the pages go round in circles");
        cursor = page.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

fn title(text: &str) -> SummaryPatch {
    SummaryPatch {
        title: Some(Some(text.into())),
        ..SummaryPatch::default()
    }
}

/// The newest activity comes first, and a new event moves its session up.
pub async fn lists_show_the_newest_activity_first(fixture: Fixture) {
    let store = fixture.store();
    let ids = ["b", "c", "a", "d"].map(id);
    for (id, time) in ids.iter().zip([3, 1, 4, 2]) {
        drop(stored(&store, id, turn_at(EPOCH + time, "x")).await);
    }
    let order = |names: [&str; 4]| names.map(id).to_vec();
    for store in [&store, &fixture.reopened()] {
        assert_eq!(
            listed(store, &ListFilter::default(), 10).await,
            order(["a", "b", "d", "c"])
        );
    }
    let again = fixture.reopened();
    let mut more = whole_turn(3, 2, "more");
    more.iter_mut().for_each(|event| event.time = EPOCH + 9);
    load(&again, &ids[1])
        .await
        .writer
        .append(3, more, plain())
        .await
        .unwrap();
    for store in [&store, &again, &fixture.reopened()] {
        assert_eq!(
            listed(store, &ListFilter::default(), 10).await,
            order(["c", "a", "b", "d"])
        );
    }
}

/// Pages of any size join to the whole list, also among equal times and while sessions come.
pub async fn pages_of_a_list_join_without_gap_or_repeat(fixture: Fixture) {
    let store = fixture.store();
    for at in 0..9 {
        let id = id(&format!("s.{at}/\u{e9}"));
        drop(stored(&store, &id, turn_at(EPOCH + at / 4, "x")).await);
    }
    let whole = listed(&store, &ListFilter::default(), 100).await;
    assert_eq!(whole.len(), 9);
    for limit in 1..=10 {
        assert_eq!(
            listed(&store, &ListFilter::default(), limit).await,
            whole,
            "limit {limit}"
        );
    }
    let first = store.list(&ListFilter::default(), None, 4).await.unwrap();
    drop(stored(&store, &id("newer"), turn_at(EPOCH + 99, "x")).await);
    store.delete(&whole[3]).await.unwrap();
    let rest = store
        .list(&ListFilter::default(), first.next.as_deref(), 100)
        .await
        .unwrap();
    let rest: Vec<_> = rest.sessions.into_iter().map(|row| row.id).collect();
    assert_eq!(rest, whole[4..]);
}

/// A cursor that no list gave is refused as such.
pub async fn a_cursor_that_no_list_gave_is_refused(fixture: Fixture) {
    let store = fixture.store();
    drop(stored(&store, &new_id(), turn_at(EPOCH, "x")).await);
    for cursor in [
        "",
        "x",
        ".",
        "12",
        "12.",
        "-1.a",
        "a.b",
        "99999999999999999999999.a",
    ] {
        refused!(
            store.list(&ListFilter::default(), Some(cursor), 10).await,
            ListError::Cursor
        );
    }
}

/// Words, archiving and folders narrow a list.
pub async fn filters_narrow_a_list(fixture: Fixture) {
    let store = fixture.store();
    let rows = [
        ("one", "Fix the PARSER"),
        ("two", "write d\u{d6}cs"),
        ("three", "parser docs"),
    ];
    for (at, (name, prompt)) in rows.into_iter().enumerate() {
        let mut header = header_of(&id(name));
        header.cwd = OsPath::from(if name == "two" { "/elsewhere" } else { "/work" });
        let writer = store.create(header).await.unwrap();
        writer
            .append(0, turn_at(EPOCH - at as u64, prompt), plain())
            .await
            .unwrap();
    }
    store
        .update(&id("one"), title("Called Otherwise"), 0)
        .await
        .unwrap();
    let archive = SummaryPatch {
        archived: Some(true),
        ..SummaryPatch::default()
    };
    store.update(&id("three"), archive, 0).await.unwrap();
    let with = |query: Option<&str>, archived, cwd: Option<&str>| ListFilter {
        query: query.map(Into::into),
        archived,
        cwd: cwd.map(Into::into),
        ..ListFilter::default()
    };
    let again = fixture.reopened();
    for (filter, wanted) in [
        (with(None, Archived::No, None), vec!["one", "two"]),
        (with(None, Archived::Only, None), vec!["three"]),
        (with(None, Archived::All, None), vec!["one", "two", "three"]),
        (
            with(Some("parser"), Archived::All, None),
            vec!["one", "three"],
        ),
        (
            with(Some("docs PARSER"), Archived::All, None),
            vec!["three"],
        ),
        (with(Some("D\u{f6}CS"), Archived::All, None), vec!["two"]),
        (with(Some("otherwise"), Archived::No, None), vec!["one"]),
        (with(Some("TWO"), Archived::No, None), vec!["two"]),
        (with(Some("nothing like it"), Archived::All, None), vec![]),
        (with(Some("  "), Archived::No, None), vec!["one", "two"]),
        (with(None, Archived::All, Some("/elsewhere")), vec!["two"]),
    ] {
        let wanted: Vec<_> = wanted.into_iter().map(id).collect();
        assert_eq!(listed(&again, &filter, 1).await, wanted, "{filter:?}");
    }
}

async fn rows(store: &SessionStore, filter: &ListFilter) -> Vec<SessionSummary> {
    store.list(filter, None, 100).await.unwrap().sessions
}

/// A turn that follows on those of [`turn_at`].
fn second_turn_at(time: u64) -> Vec<Event> {
    let mut events = events_from(3, &[turn_start(2), user("more"), turn_end(2)]);
    for event in &mut events {
        event.time = time;
    }
    events
}

/// Tags are searched too, and each word anywhere; ids from their beginning alone.
pub async fn words_are_found_in_tags(fixture: Fixture) {
    let store = fixture.store();
    for name in ["one", "two"] {
        drop(stored(&store, &id(name), turn_at(EPOCH, "x")).await);
    }
    let tags = SummaryPatch {
        tags: Some(vec!["Night Shift".into(), "100%_\u{df}".into()]),
        ..SummaryPatch::default()
    };
    store.update(&id("two"), tags, 0).await.unwrap();
    for query in ["shift", "NIGHT two", "0%_", "\u{df}"] {
        let filter = ListFilter {
            query: Some(query.into()),
            ..ListFilter::default()
        };
        assert_eq!(listed(&store, &filter, 5).await, [id("two")], "{query}");
    }
    let inside = ListFilter {
        query: Some("wo".into()),
        ..ListFilter::default()
    };
    assert_eq!(listed(&store, &inside, 5).await, []);
}

/// A list is narrowed to how sessions stand now, whoever writes them.
pub async fn a_filter_by_status_sees_who_writes_now(fixture: Fixture) {
    let (store, other) = (fixture.store(), fixture.reopened());
    let open = events_from(0, &[turn_start(1), user("x")]);
    drop(stored(&store, &id("idle"), whole_turn(0, 1, "x")).await);
    let running = stored(&store, &id("running"), open.clone()).await;
    drop(stored(&store, &id("cut"), open).await);
    let expect = async |status, wanted: &[&str]| {
        let wanted: Vec<_> = wanted.iter().map(|name| id(name)).collect();
        let filter = ListFilter {
            status: Some(status),
            ..ListFilter::default()
        };
        for (store, limit) in [(&store, 1), (&store, 10), (&other, 1), (&other, 10)] {
            let found = listed(store, &filter, limit).await;
            assert_eq!(found, wanted, "{status:?}");
        }
    };
    expect(SessionStatus::Idle, &["idle"]).await;
    expect(SessionStatus::Running, &["running"]).await;
    expect(SessionStatus::Waiting, &[]).await;
    expect(SessionStatus::Interrupted, &["cut"]).await;
    expect(SessionStatus::Missing, &[]).await;
    drop(running);
    expect(SessionStatus::Running, &[]).await;
    expect(SessionStatus::Interrupted, &["running", "cut"]).await;
}

/// A list is narrowed to the forks of a session.
pub async fn a_filter_by_parent_gives_its_forks(fixture: Fixture) {
    let store = fixture.store();
    drop(stored(&store, &id("parent"), turn_at(EPOCH, "x")).await);
    for (at, name) in ["first", "second"].into_iter().enumerate() {
        let mut header = header_of(&id(name));
        header.parent = Some(Parent {
            id: id("parent"),
            seq: 2,
        });
        let writer = store.create(header).await.unwrap();
        let events = turn_at(EPOCH + at as u64, "x");
        writer.append(0, events, plain()).await.unwrap();
    }
    let of = |name| ListFilter {
        parent: Some(id(name)),
        ..ListFilter::default()
    };
    let again = fixture.reopened();
    let forks = listed(&again, &of("parent"), 1).await;
    assert_eq!(forks, ["second", "first"].map(id));
    assert!(listed(&again, &of("first"), 1).await.is_empty());
}

/// Roots and what is below them, level by level, are what the flat list shows, whatever a filter
/// hides in between.
pub async fn a_list_of_trees_shows_each_session_once(fixture: Fixture) {
    let store = fixture.store();
    for name in ["a", "b"] {
        drop(stored(&store, &id(name), whole_turn(0, 1, name)).await);
    }
    for (of, name) in [
        ("a", "a1"),
        ("a", "a2"),
        ("a1", "a11"),
        ("b", "b1"),
        ("b1", "b11"),
    ] {
        store.fork(&id(of), None, id(name)).await.unwrap();
    }
    let archive = SummaryPatch {
        archived: Some(true),
        ..SummaryPatch::default()
    };
    store.update(&id("a1"), archive, 0).await.unwrap();
    store.delete(&id("b")).await.unwrap();
    for store in [&store, &fixture.reopened()] {
        for (archived, query, wanted) in [
            (Archived::No, None, vec!["a", "a11", "b1"]),
            (Archived::Only, None, vec!["a1"]),
            (Archived::All, None, vec!["a", "b1"]),
            (Archived::All, Some("b11"), vec!["b11"]),
        ] {
            let every = ListFilter {
                archived,
                query: query.map(str::to_owned),
                ..ListFilter::default()
            };
            let roots = ListFilter {
                roots: true,
                ..every.clone()
            };
            let mut found = listed(store, &roots, 2).await;
            let count = store.count(&roots).await.unwrap();
            assert_eq!(count, found.len() as u64, "{roots:?}");
            for (skip, wanted) in found.iter().enumerate() {
                let page = store.list_at(&roots, skip as u64, 1).await.unwrap();
                assert_eq!(&page.sessions[0].id, wanted, "{roots:?} from {skip}");
            }
            let mut shown = found.clone();
            found.sort();
            assert_eq!(
                found,
                wanted.iter().map(|name| id(name)).collect::<Vec<_>>()
            );
            let mut at = 0;
            while let Some(parent) = shown.get(at).cloned() {
                let below = ListFilter {
                    parent: Some(parent),
                    ..every.clone()
                };
                shown.extend(listed(store, &below, 1).await);
                at += 1;
            }
            let mut flat = listed(store, &every, 3).await;
            flat.sort();
            shown.sort();
            assert_eq!(shown, flat, "{every:?}");
        }
    }
}

/// A filter by model finds the sessions whose newest turn ran on it, by its whole name.
pub async fn a_filter_by_model_gives_those_that_used_it_last(fixture: Fixture) {
    let store = fixture.store();
    drop(stored(&store, &id("s"), whole_turn(0, 1, "x")).await);
    let model = store.summary(&id("s")).await.unwrap().model.unwrap();
    let begun = events_from(0, &[user("no turn, no model")]);
    drop(stored(&store, &id("t"), begun).await);
    let with = |provider: &str, name: &str| ListFilter {
        model: Some(ModelRef {
            provider: provider.into(),
            name: name.into(),
        }),
        ..ListFilter::default()
    };
    for store in [&store, &fixture.reopened()] {
        for (filter, wanted) in [
            (with(&model.provider, &model.name), vec![id("s")]),
            (with(&model.provider, "other"), vec![]),
            (with("other", &model.name), vec![]),
            (with(&model.provider, &model.name[1..]), vec![]),
        ] {
            assert_eq!(listed(store, &filter, 5).await, wanted, "{filter:?}");
            let count = store.count(&filter).await.unwrap();
            assert_eq!(count, wanted.len() as u64, "{filter:?}");
        }
    }
}

/// What is counted is what the list shows, and a page may begin at any of its rows.
pub async fn pins_counts_and_places_agree_with_the_whole_list(fixture: Fixture) {
    let (store, other) = (fixture.store(), fixture.reopened());
    for at in 0..7 {
        let name = id(&format!("s{at}"));
        drop(stored(&store, &name, turn_at(EPOCH + at / 2, "x")).await);
    }
    for (name, pinned, archived) in [("s1", true, false), ("s4", true, true), ("s5", false, true)] {
        let patch = SummaryPatch {
            pinned: Some(pinned),
            archived: Some(archived),
            ..SummaryPatch::default()
        };
        store.update(&id(name), patch, 0).await.unwrap();
    }
    let open = events_from(0, &[turn_start(1), user("x")]);
    let running = stored(&store, &id("running"), open.clone()).await;
    drop(stored(&store, &id("cut"), open).await);
    let filter = |pinned, archived, status| ListFilter {
        pinned,
        archived,
        status,
        ..ListFilter::default()
    };
    for (filter, wanted) in [
        (filter(None, Archived::All, None), 9),
        (filter(Some(true), Archived::No, None), 1),
        (filter(Some(true), Archived::All, None), 2),
        (filter(Some(false), Archived::No, None), 6),
        (filter(None, Archived::All, Some(SessionStatus::Idle)), 7),
        (filter(None, Archived::No, Some(SessionStatus::Running)), 1),
        (
            filter(None, Archived::No, Some(SessionStatus::Interrupted)),
            1,
        ),
        (
            filter(None, Archived::Only, Some(SessionStatus::Running)),
            0,
        ),
    ] {
        for store in [&store, &other] {
            let whole = listed(store, &filter, 3).await;
            assert_eq!(whole.len(), wanted, "{filter:?}: {whole:?}");
            assert_eq!(
                store.count(&filter).await.unwrap(),
                wanted as u64,
                "{filter:?}"
            );
            for skip in 0..=wanted + 1 {
                let page = store.list_at(&filter, skip as u64, 2).await.unwrap();
                let found: Vec<_> = page.sessions.into_iter().map(|row| row.id).collect();
                let rest = whole.get(skip..).unwrap_or_default();
                assert_eq!(found, rest[..rest.len().min(2)], "{filter:?} from {skip}");
                assert_eq!(
                    page.next.is_some(),
                    rest.len() > 2,
                    "{filter:?} from {skip}"
                );
            }
        }
    }
    drop(running);
}

/// Pages show each session that stays as it is once, whatever happens to the others meanwhile.
pub async fn pages_stay_in_order_while_sessions_change(fixture: Fixture) {
    let (store, other) = (fixture.store(), fixture.reopened());
    let name = |at: u64| id(&format!("s{at:02}"));
    for at in 0..24 {
        drop(stored(&store, &name(at), turn_at(EPOCH + at / 3, "x")).await);
    }
    let (mut seen, mut cursor, mut turns) = (Vec::new(), None::<String>, 0);
    let all = ListFilter::default();
    loop {
        let page = store.list(&all, cursor.as_deref(), 5).await.unwrap();
        seen.extend(page.sessions.into_iter().map(|row| row.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        // One moves to the front, one comes, one goes.
        let writer = load(&other, &name(turns)).await.writer;
        let events = second_turn_at(EPOCH + 100 + turns);
        writer.append(3, events, plain()).await.unwrap();
        drop(writer);
        let new = id(&format!("new{turns}"));
        drop(stored(&other, &new, turn_at(EPOCH + 200, "x")).await);
        other.delete(&name(turns + 10)).await.unwrap();
        turns += 1;
    }
    assert!(turns > 2);
    for at in (turns..10).chain(turns + 10..24) {
        let times = seen.iter().filter(|seen| **seen == name(at)).count();
        assert_eq!(times, 1, "session {at} in {seen:?}");
    }
}

/// What another process does to sessions shows in the next list.
pub async fn a_list_shows_what_others_have_done(fixture: Fixture) {
    let (store, other) = (fixture.store(), fixture.reopened());
    let all = ListFilter::default();
    assert!(rows(&store, &all).await.is_empty());
    for at in 0..3 {
        let name = id(&format!("s{at}"));
        drop(stored(&other, &name, turn_at(EPOCH + at, "x")).await);
        assert_eq!(rows(&store, &all).await[0].id, name);
    }
    // The last one of a list moves to its front, although the first page did not show it.
    let writer = load(&other, &id("s0")).await.writer;
    let events = second_turn_at(EPOCH + 10);
    writer.append(3, events, plain()).await.unwrap();
    let first = store.list(&all, None, 1).await.unwrap().sessions;
    assert_eq!((&first[0].id, first[0].turns), (&id("s0"), 2));
    drop(writer);
    other.update(&id("s1"), title("new"), 0).await.unwrap();
    let found = rows(&store, &all).await;
    assert_eq!(found[2].title.as_deref(), Some("new"));
    assert_eq!(found[2], other.summary(&id("s1")).await.unwrap());
    other.delete(&id("s2")).await.unwrap();
    assert_eq!(listed(&store, &all, 10).await, ["s0", "s1"].map(id));
}

/// A session that went without being deleted by a store is shown as missing, until it is deleted
/// or comes back. Not for backends that keep the rows of their sessions with the sessions.
pub async fn a_session_whose_files_are_gone_is_missing(fixture: Fixture) {
    let store = fixture.store();
    let all = ListFilter::default();
    for (at, name) in ["back", "gone", "stays"].into_iter().enumerate() {
        drop(stored(&store, &id(name), turn_at(EPOCH + at as u64, "words")).await);
    }
    assert_eq!(listed(&store, &all, 10).await.len(), 3);
    for name in ["back", "gone"] {
        fixture.backend.delete(&id(name)).await.unwrap();
    }
    let stands = |rows: &[SessionSummary]| -> Vec<_> {
        let each = rows
            .iter()
            .map(|row| (row.id.as_str().to_owned(), row.status));
        each.collect()
    };
    let here = |name: &str| (name.to_owned(), SessionStatus::Idle);
    let missing = |name: &str| (name.to_owned(), SessionStatus::Missing);
    for _ in 0..2 {
        let found = rows(&store, &all).await;
        assert_eq!(
            stands(&found),
            [here("stays"), missing("gone"), missing("back")]
        );
        let error = found[1].error.as_ref().unwrap();
        assert_eq!(error.code, "missing");
        assert!(error.message.contains("gone") && error.message.contains(&store.address()));
        assert_eq!(found[1].first_prompt.as_deref(), Some("words"));
    }
    let summary = store.summary(&id("gone")).await;
    refused!(summary, ReadError::NotFound { .. });
    store.delete(&id("gone")).await.unwrap();
    let again = store.delete(&id("gone")).await;
    refused!(again, DeleteError::NotFound { .. });
    drop(stored(&store, &id("back"), turn_at(EPOCH + 9, "again")).await);
    let found = rows(&store, &all).await;
    assert_eq!(stands(&found), [here("back"), here("stays")]);
}

/// Lists while sessions come and go end without an error, and agree in the end.
pub async fn lists_agree_after_many_changes_at_once(fixture: Fixture) {
    let stores = [fixture.store(), fixture.reopened()];
    let tasks = (0..4).map(|task| {
        let store = stores[task % 2].clone();
        tokio::spawn(async move {
            for at in 0..6 {
                let name = id(&format!("t{task}.{at}"));
                drop(stored(&store, &name, turn_at(EPOCH + at, "x")).await);
                let found = rows(&store, &ListFilter::default()).await;
                assert!(found.iter().any(|row| row.id == name));
                if at % 2 == 0 {
                    store.delete(&name).await.unwrap();
                }
            }
        })
    });
    for task in futures_util::future::join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
    let found = rows(&stores[0], &ListFilter::default()).await;
    assert_eq!(found.len(), 12);
    assert!(found.iter().all(|row| row.status == SessionStatus::Idle));
    for store in [&stores[1], &fixture.reopened()] {
        assert_eq!(found, rows(store, &ListFilter::default()).await);
    }
}

/// A row tells what the log says.
pub async fn a_row_tells_what_the_log_says(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let mut header = header_of(&id);
    header.created_at = 5;
    let writer = store.create(header).await.unwrap();
    writer
        .append(0, whole_turn(0, 1, " first prompt "), plain())
        .await
        .unwrap();
    writer
        .append(7, whole_turn(7, 2, "second"), plain())
        .await
        .unwrap();
    drop(writer);
    let row = fixture.reopened().summary(&id).await.unwrap();
    assert_eq!(row.first_prompt.as_deref(), Some("first prompt"));
    assert_eq!((row.created_at, row.turns, row.events), (5, 2, 14));
    assert_eq!(row.updated_at, 1_700_000_000_013);
    assert_eq!(
        (row.title, row.archived, row.pinned, row.revision),
        (None, false, false, 0)
    );
    assert_eq!(row.model.map(|model| model.name).as_deref(), Some("demo"));
    assert_eq!(row.status, SessionStatus::Idle);
    assert!(row.error.is_none() && row.bytes > 0);
}

/// Changing what people set touches no byte of the log, also while it is being written.
pub async fn an_update_leaves_the_log_alone(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    let writer = stored(&store, &id, whole_turn(0, 1, "x")).await;
    let (before, stat) = (bytes(&store, &id).await, store.stat(&id).await.unwrap());
    let other = fixture.reopened();
    let patch = SummaryPatch {
        title: Some(Some(" d\u{e9}j\u{e0} vu ".into())),
        archived: Some(true),
        pinned: Some(true),
        tags: Some(vec!["a".into(), "b c".into()]),
    };
    let row = other.update(&id, patch, 0).await.unwrap();
    assert_eq!(
        (row.title.as_deref(), row.revision),
        (Some("d\u{e9}j\u{e0} vu"), 1)
    );
    assert_eq!(bytes(&store, &id).await, before);
    let now = store.stat(&id).await.unwrap();
    assert_eq!((now.bytes, now.stamp), (stat.bytes, stat.stamp));
    writer
        .append(7, whole_turn(7, 2, "goes on"), AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);

    let again = fixture.reopened();
    let row = again.summary(&id).await.unwrap();
    assert_eq!((row.archived, row.pinned, row.tags.len()), (true, true, 2));
    let clear = SummaryPatch {
        title: Some(None),
        ..SummaryPatch::default()
    };
    let row = again.update(&id, clear, 1).await.unwrap();
    // What a patch does not name stays.
    assert_eq!(
        (row.title, row.archived, row.tags.len(), row.revision),
        (None, true, 2, 2)
    );
}

/// A title that a model made is shown until a person gives one, refuses no change of anybody, and
/// comes back when the person's is removed.
pub async fn a_made_title_stands_behind_a_persons(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    let made = |text: &str| MadeTitle {
        text: text.into(),
        model: ModelRef {
            provider: "p".into(),
            name: "m".into(),
        },
        usage: Usage {
            input_tokens: 7,
            ..Usage::default()
        },
    };
    assert!(store.keep_made_title(&id, &made("made")).await.unwrap());
    assert!(!store.keep_made_title(&id, &made("again")).await.unwrap());
    let row = fixture.reopened().summary(&id).await.unwrap();
    assert_eq!((row.title.as_deref(), row.revision), (Some("made"), 0));
    assert_eq!(row.made_title, Some(made("made")));
    let words = ListFilter {
        query: Some("made".into()),
        ..ListFilter::default()
    };
    let found = fixture.reopened().list(&words, None, 9).await.unwrap();
    assert_eq!(found.sessions.len(), 1);
    // Based on the revision from before.
    let row = store.update(&id, title("given"), 0).await.unwrap();
    assert_eq!((row.title.as_deref(), row.revision), (Some("given"), 1));
    let none = SummaryPatch {
        title: Some(None),
        ..SummaryPatch::default()
    };
    let row = store.update(&id, none, 1).await.unwrap();
    assert_eq!(row.title.as_deref(), Some("made"));

    let named = new_id();
    drop(stored(&store, &named, whole_turn(0, 1, "x")).await);
    store.update(&named, title("given"), 0).await.unwrap();
    assert!(!store.keep_made_title(&named, &made("late")).await.unwrap());
    for wrong in ["two\nlines", &"x".repeat(MAX_TITLE_CHARS + 1)] {
        let kept = store.keep_made_title(&named, &made(wrong)).await;
        assert!(matches!(kept, Err(UpdateError::Invalid { .. })));
    }
    let unknown = SessionId::parse("nobody").unwrap();
    let kept = store.keep_made_title(&unknown, &made("x")).await;
    assert!(matches!(kept, Err(UpdateError::Read(_))));
}

/// A change based on an old revision is refused and told the one in force.
pub async fn an_update_of_an_old_revision_is_a_conflict(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    store.update(&id, title("first"), 0).await.unwrap();
    for wrong in [0, 2, u64::MAX] {
        let told = refused!(
            fixture.reopened().update(&id, title("late"), wrong).await,
            UpdateError::Conflict { expected, actual, .. } => (expected, actual)
        );
        assert_eq!(told, (wrong, 1));
    }
    let row = store.summary(&id).await.unwrap();
    assert_eq!((row.title.as_deref(), row.revision), (Some("first"), 1));
}

/// Of changes made at once from the same revision, one is kept.
pub async fn of_updates_made_at_once_one_is_kept(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    let tasks = (0..8).map(|n| {
        let store = if n % 2 == 0 {
            store.clone()
        } else {
            fixture.reopened()
        };
        let id = id.clone();
        tokio::spawn(async move {
            let name = format!("title {n}");
            store
                .update(&id, title(&name), 0)
                .await
                .is_ok()
                .then_some(name)
        })
    });
    let kept = futures_util::future::join_all(tasks.collect::<Vec<_>>()).await;
    let kept: Vec<_> = kept.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let row = fixture.reopened().summary(&id).await.unwrap();
    assert_eq!((row.title.as_ref(), row.revision), (kept.first(), 1));
}

/// Titles and tags are accepted up to their limits and refused over them, by field.
pub async fn titles_and_tags_are_accepted_up_to_their_limits(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    let longest = "\u{1d11e}".repeat(MAX_TITLE_CHARS);
    store.update(&id, title(&longest), 0).await.unwrap();
    let tags = |n: usize, tag: &str| SummaryPatch {
        tags: Some(vec![tag.into(); n]),
        ..SummaryPatch::default()
    };
    store
        .update(&id, tags(MAX_TAGS, &longest), 1)
        .await
        .unwrap();
    for (patch, wanted) in [
        (title(&format!("{longest}x")), "title"),
        (title("two\nlines"), "title"),
        (tags(MAX_TAGS + 1, "t"), "tags"),
        (tags(1, ""), "tags"),
        (tags(1, &format!("{longest}x")), "tags"),
    ] {
        let field = refused!(
            store.update(&id, patch, 2).await,
            UpdateError::Invalid { field, .. } => field
        );
        assert_eq!(field, wanted);
    }
    let row = fixture.reopened().summary(&id).await.unwrap();
    assert_eq!(
        (row.title, row.tags.len(), row.revision),
        (Some(longest), MAX_TAGS, 2)
    );
}

/// There is nothing to change on a session that is not there.
pub async fn updating_an_unknown_session_is_not_found(fixture: Fixture) {
    refused!(
        fixture.store().update(&id("nobody"), title("x"), 0).await,
        UpdateError::Read(ReadError::NotFound { .. })
    );
}

/// What people set goes with the session.
pub async fn a_session_made_again_under_an_old_id_has_no_title(fixture: Fixture) {
    let store = fixture.store();
    let id = new_id();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    store.update(&id, title("of the old one"), 0).await.unwrap();
    store.delete(&id).await.unwrap();
    drop(stored(&store, &id, whole_turn(0, 1, "x")).await);
    let row = fixture.reopened().summary(&id).await.unwrap();
    assert_eq!((row.title, row.revision), (None, 0));
}
