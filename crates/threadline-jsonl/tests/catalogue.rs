//! The catalogue: derived, never believed, and done without when it cannot be had.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may fail so, and spoils files behind the back of the seam"
)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;
use threadline_jsonl::{JsonlBackend, JsonlOptions, layout};
use threadline_session::{Event, Header, OsPath, SessionId};
use threadline_store::{
    AppendOptions, Archived, Backend, ListFilter, SessionStatus, SessionStore, SessionSummary,
    SessionWriter, StoreOptions, SummaryPatch,
    contract::{
        Fixture,
        script::{events_from, turn_end, turn_start, user, whole_turn},
    },
};

/// Milliseconds of 2023-11-14.
const THEN: u64 = 1_700_000_000_000;
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// In memory where the system has such a folder: these tests are not about syncs.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.unwrap()
}

fn open(root: &Path) -> SessionStore {
    let backend = JsonlBackend::open(root, JsonlOptions::default()).unwrap();
    SessionStore::new(Arc::new(backend), StoreOptions::default())
}

/// An id whose folder is that of a day.
fn dated(day: u64, number: u64) -> SessionId {
    let time = THEN + day * DAY + number;
    let text = format!(
        "{:08x}-{:04x}-7000-8000-{number:012x}",
        time >> 16,
        time & 0xffff
    );
    SessionId::parse(text).unwrap()
}

fn named(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

fn at(mut events: Vec<Event>, time: u64) -> Vec<Event> {
    for event in &mut events {
        event.time = time;
    }
    events
}

fn turn(seq: u64, number: u64, time: u64) -> Vec<Event> {
    let events = [turn_start(number), user("do this"), turn_end(number)];
    at(events_from(seq, &events), time)
}

async fn begun(store: &SessionStore, id: &SessionId, events: Vec<Event>) -> SessionWriter {
    let header = Header::new(id.clone(), THEN, OsPath::from("/work"));
    let writer = store.create(header).await.unwrap();
    writer
        .append(0, events, AppendOptions::barrier())
        .await
        .unwrap();
    writer
}

async fn rows_of(store: &SessionStore, filter: &ListFilter, limit: usize) -> Vec<SessionSummary> {
    let (mut rows, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let page = store.list(filter, cursor.as_deref(), limit).await.unwrap();
        assert_eq!(page.rebuilding, None);
        rows.extend(page.sessions);
        cursor = page.next;
        if cursor.is_none() {
            return rows;
        }
    }
}

async fn rows(store: &SessionStore) -> Vec<SessionSummary> {
    rows_of(store, &ListFilter::default(), 100).await
}

fn ids(rows: &[SessionSummary]) -> Vec<SessionId> {
    rows.iter().map(|row| row.id.clone()).collect()
}

/// What all kinds of lists say.
async fn answers(store: &SessionStore) -> Vec<Vec<SessionSummary>> {
    let all = ListFilter {
        archived: Archived::All,
        ..ListFilter::default()
    };
    let filters = [
        ListFilter::default(),
        ListFilter {
            query: Some("this NIGHT".into()),
            ..all.clone()
        },
        ListFilter {
            cwd: Some("/work".into()),
            ..all.clone()
        },
        ListFilter {
            status: Some(SessionStatus::Interrupted),
            ..all
        },
    ];
    let mut answers = Vec::new();
    for filter in &filters {
        answers.push(rows_of(store, filter, 5).await);
    }
    answers
}

/// Sessions of all kinds: of several days and none, archived, titled, cut short, damaged.
async fn furnished(root: &Path) {
    let store = open(root);
    for (number, day) in [(1, 0), (2, 0), (3, 1), (4, 40)] {
        drop(begun(&store, &dated(day, number), turn(0, 1, THEN + number)).await);
    }
    for name in ["plain", "a/b \u{e9}", &"long".repeat(40)] {
        drop(begun(&store, &named(name), whole_turn(0, 1, "do this")).await);
    }
    let cut = at(events_from(0, &[turn_start(1), user("cut")]), THEN + 9);
    drop(begun(&store, &dated(1, 9), cut).await);
    let patch = SummaryPatch {
        title: Some(Some("Night".into())),
        archived: Some(true),
        ..SummaryPatch::default()
    };
    store.update(&dated(0, 1), patch, 0).await.unwrap();
    let log = layout::session_dir(root, &named("plain")).join(layout::LOG);
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
}

fn file(root: &Path) -> PathBuf {
    root.join(layout::CATALOGUE)
}

fn remove_catalogue(root: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let path = root.join(format!("{}{suffix}", layout::CATALOGUE));
        if path.exists() {
            fs::remove_file(path).unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
        set_time(&target, modified(&entry.path()));
    }
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn set_time(path: &Path, time: SystemTime) {
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes everything an hour older, so that nothing is looked at because it is young.
fn age(path: &Path) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path);
        }
        set_time(&path, modified(&path) - Duration::from_secs(3600));
    }
}

type Snapshot = BTreeMap<PathBuf, (u64, SystemTime, Option<Vec<u8>>)>;

fn snapshot(path: &Path, into: &mut Snapshot) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::metadata(&path).unwrap();
        let bytes = meta.is_file().then(|| fs::read(&path).unwrap());
        if meta.is_dir() {
            snapshot(&path, into);
        }
        into.insert(path, (meta.len(), meta.modified().unwrap(), bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_files_are_gone_is_missing() {
    let root = folder();
    let fixture = Fixture::new(move || {
        let backend = JsonlBackend::open(root.path(), JsonlOptions::default());
        Arc::new(backend.unwrap()) as Arc<dyn Backend>
    });
    threadline_store::contract::listing::a_session_whose_files_are_gone_is_missing(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_where_nothing_is_makes_nothing() {
    let root = folder();
    let store = open(&root.path().join("none"));
    assert!(rows(&store).await.is_empty());
    assert!(!root.path().join("none").exists());
    drop(begun(&store, &dated(0, 1), turn(0, 1, THEN)).await);
    assert_eq!(rows(&store).await.len(), 1);
    let mode = fs::metadata(file(&root.path().join("none"))).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_and_opening_write_nothing_to_a_session() {
    let root = folder();
    furnished(root.path()).await;
    let sessions = root.path().join("sessions");
    let mut before = Snapshot::new();
    snapshot(&sessions, &mut before);
    for delete in [false, true] {
        if delete {
            remove_catalogue(root.path());
        }
        let store = open(root.path());
        answers(&store).await;
        for id in store.ids().await.unwrap() {
            store.summary(&id).await.unwrap();
            let _ = store.inspect(&id).await.unwrap();
        }
        store.catch_up().await.unwrap();
        let mut after = Snapshot::new();
        snapshot(&sessions, &mut after);
        assert_eq!(before, after);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_copied_in_by_hand_are_found() {
    let (here, there) = (folder(), folder());
    let (old, new) = (open(there.path()), open(here.path()));
    let names = [dated(0, 1), dated(3, 2), named("other one")];
    for (time, id) in names.iter().enumerate() {
        drop(begun(&old, id, turn(0, 1, THEN + time as u64)).await);
    }
    drop(begun(&new, &dated(0, 7), turn(0, 1, THEN + 10)).await);
    age(&here.path().join("sessions"));
    assert_eq!(ids(&rows(&new).await), [dated(0, 7)]);
    for (found, id) in names.iter().enumerate() {
        let from = layout::session_dir(there.path(), id);
        copy(&from, &layout::session_dir(here.path(), id));
        for store in [&new, &open(here.path())] {
            let rows = rows(store).await;
            assert_eq!(rows.len(), found + 2);
            assert_eq!(rows[1].id, *id);
            assert_eq!(rows[1].status, SessionStatus::Idle);
        }
        age(&here.path().join("sessions"));
        rows(&new).await;
    }
    // Another log of the same session in its place.
    let writer = old.load(&names[1]).await.unwrap().writer;
    writer
        .append(3, turn(3, 2, THEN + 99), AppendOptions::barrier())
        .await
        .unwrap();
    drop(writer);
    let place = layout::session_dir(here.path(), &names[1]);
    fs::remove_dir_all(&place).unwrap();
    copy(&layout::session_dir(there.path(), &names[1]), &place);
    for store in [&new, &open(here.path())] {
        let rows = rows(store).await;
        assert_eq!((&rows[0].id, rows[0].turns), (&names[1], 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_removed_by_hand_are_missing_until_they_are_back() {
    let root = folder();
    furnished(root.path()).await;
    let sessions = root.path().join("sessions");
    age(&sessions);
    let live = open(root.path());
    let before = rows(&live).await;
    let aside = folder();
    copy(&sessions, aside.path());
    // One session, a whole day, and everything that is not of a day.
    let gone = [dated(0, 2), dated(40, 4), named("a/b \u{e9}")];
    fs::remove_dir_all(layout::session_dir(root.path(), &gone[0])).unwrap();
    let day = layout::session_dir(root.path(), &gone[1]);
    fs::remove_dir_all(day.parent().unwrap()).unwrap();
    fs::remove_dir_all(sessions.join("other")).unwrap();
    let missing = ListFilter {
        status: Some(SessionStatus::Missing),
        ..ListFilter::default()
    };
    for store in [&live, &open(root.path())] {
        let found = rows_of(store, &missing, 1).await;
        assert_eq!(found.len(), 5);
        for row in &found {
            assert!(
                row.error
                    .as_ref()
                    .unwrap()
                    .message
                    .contains(row.id.as_str())
            );
        }
        for id in &gone {
            assert!(found.iter().any(|row| row.id == *id));
        }
        assert_eq!(ids(&rows(store).await), ids(&before));
    }
    fs::remove_dir_all(&sessions).unwrap();
    copy(aside.path(), &sessions);
    for store in [&live, &open(root.path())] {
        assert_eq!(rows(store).await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_catalogue_is_made_anew_under_way() {
    let root = folder();
    furnished(root.path()).await;
    let live = open(root.path());
    let before = answers(&live).await;
    remove_catalogue(root.path());
    assert_eq!(answers(&open(root.path())).await, before);
    assert_eq!(answers(&live).await, before);
    remove_catalogue(root.path());
    assert_eq!(answers(&live).await, before);
    assert!(file(root.path()).exists());
    // What one does the other sees: both use the new file.
    let other = open(root.path());
    other.delete(&dated(0, 2)).await.unwrap();
    assert!(!ids(&rows(&live).await).contains(&dated(0, 2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_garbled_at_any_byte_gives_the_same_answers() {
    let root = folder();
    furnished(root.path()).await;
    age(&root.path().join("sessions"));
    let before = answers(&open(root.path())).await;
    let path = file(root.path());
    let bytes = fs::read(&path).unwrap();
    let put = |bytes: &[u8]| {
        remove_catalogue(root.path());
        fs::write(&path, bytes).unwrap();
    };
    put(&bytes);
    assert_eq!(answers(&open(root.path())).await, before);
    for offset in 0..bytes.len() {
        // The highest and the lowest bit by turns; both in the header.
        for mask in [0x01, 0x80] {
            if offset >= 128 && (offset % 2 == 0) == (mask == 1) {
                continue;
            }
            let mut garbled = bytes.clone();
            garbled[offset] ^= mask;
            put(&garbled);
            let after = answers(&open(root.path())).await;
            assert_eq!(after, before, "byte {offset} ^ {mask}");
        }
    }
    for len in (0..bytes.len()).step_by(509) {
        put(&bytes[..len]);
        assert_eq!(answers(&open(root.path())).await, before, "cut to {len}");
    }
    put(b"this is no database, but it is long enough to look at");
    assert_eq!(answers(&open(root.path())).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_garbled_in_use_gives_the_same_answers() {
    let root = folder();
    furnished(root.path()).await;
    let live = open(root.path());
    let before = answers(&live).await;
    let other = open(root.path());
    for round in 0..3 {
        let path = file(root.path());
        let len = fs::metadata(&path).unwrap().len();
        fs::write(&path, vec![round; usize::try_from(len).unwrap()]).unwrap();
        for store in [&live, &other, &open(root.path())] {
            assert_eq!(answers(store).await, before);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_do_without_a_catalogue_that_cannot_be_had() {
    let root = folder();
    furnished(root.path()).await;
    let before = answers(&open(root.path())).await;
    remove_catalogue(root.path());
    fs::create_dir(file(root.path())).unwrap();
    fs::write(file(root.path()).join("x"), "x").unwrap();
    let store = open(root.path());
    assert_eq!(answers(&store).await, before);
    let new = dated(0, 50);
    drop(begun(&store, &new, turn(0, 1, u64::MAX / 2)).await);
    assert_eq!(rows(&store).await[0].id, new);
    let patch = SummaryPatch {
        title: Some(Some("seen".into())),
        ..SummaryPatch::default()
    };
    store.update(&new, patch, 0).await.unwrap();
    assert_eq!(rows(&store).await[0].title.as_deref(), Some("seen"));
    store.delete(&new).await.unwrap();
    assert_eq!(answers(&store).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_do_without_a_catalogue_that_somebody_keeps_locked() {
    let root = folder();
    furnished(root.path()).await;
    let store = open(root.path());
    let before = rows(&store).await;
    let locker = rusqlite::Connection::open(file(root.path())).unwrap();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = dated(0, 50);
    drop(begun(&store, &new, turn(0, 1, u64::MAX / 2)).await);
    assert_eq!(rows(&store).await[0].id, new);
    store.delete(&dated(0, 2)).await.unwrap();
    assert!(!ids(&rows(&store).await).contains(&dated(0, 2)));
    locker.execute_batch("COMMIT").unwrap();
    store.delete(&new).await.unwrap();
    for store in [&store, &open(root.path())] {
        let found = ids(&rows(store).await);
        let mut wanted = ids(&before);
        wanted.retain(|id| *id != dated(0, 2));
        assert_eq!(found, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_writers_session_is_listed_as_it_is() {
    let (root, killed) = (folder(), folder());
    let store = open(root.path());
    let id = dated(0, 1);
    let writer = begun(&store, &id, turn(0, 1, THEN)).await;
    // More sessions than an opening looks at once more.
    for number in 2..400 {
        drop(begun(&store, &dated(1, number), turn(0, 1, THEN + number)).await);
    }
    store.catch_up().await.unwrap();
    age(&root.path().join("sessions"));
    store.catch_up().await.unwrap();
    let last = rows_of(&store, &ListFilter::default(), 500)
        .await
        .pop()
        .unwrap();
    assert_eq!((last.id, last.turns), (id.clone(), 1));
    let more = at(events_from(3, &[turn_start(2), user("more")]), THEN + 999);
    writer
        .append(3, more, AppendOptions::barrier())
        .await
        .unwrap();
    // What is on the disk now is what a killed process leaves, and nobody has its lock.
    copy(root.path(), killed.path());
    let after = open(killed.path());
    let first = after.list(&ListFilter::default(), None, 1).await.unwrap();
    assert_eq!((&first.sessions[0].id, first.sessions[0].turns), (&id, 2));
    assert_eq!(first.sessions[0].status, SessionStatus::Interrupted);
    drop(after);
    drop(writer);
    // The same of a session that was opened again long after it was listed.
    rows_of(&store, &ListFilter::default(), 500).await;
    let opened = dated(1, 2);
    let writer = store.load(&opened).await.unwrap().writer;
    let turn = turn(3, 2, THEN + 9_999);
    writer
        .append(3, turn, AppendOptions::barrier())
        .await
        .unwrap();
    let killed = folder();
    copy(root.path(), killed.path());
    let after = open(killed.path());
    let first = after.list(&ListFilter::default(), None, 1).await.unwrap();
    assert_eq!(
        (&first.sessions[0].id, first.sessions[0].turns),
        (&opened, 2)
    );
}
