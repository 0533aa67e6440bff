//! Lists, and what people set.

use threadline_session::{Event, OsPath, SessionId};

use super::{
    Fixture, bytes, header_of, id, load, new_id, plain, refused,
    script::{events_from, turn_end, turn_start, user, whole_turn},
    stored,
};
use crate::{
    AppendOptions, Archived, ListError, ListFilter, ReadError, SessionStore, SummaryPatch,
    UpdateError,
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
    assert_eq!(row.status, crate::SessionStatus::Idle);
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
