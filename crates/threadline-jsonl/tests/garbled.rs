//! Caches and hints deleted, cut at every byte and changed at every byte: the answers are the same,
//! and of what people had set nothing is thrown away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

/// Prints past the test harness, which would keep what a passing test says to itself.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

#[path = "crash/world.rs"]
mod world;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use threadline_jsonl::{JsonlBackend, JsonlOptions, layout, sim::MemVfs};
use threadline_session::{Header, Payload, Request, SessionId, Transcript};
use threadline_store::{
    AppendOptions, Clock, ListFilter, SessionStore, StoreOptions, SummaryPatch, UpdateError,
    VerifyReport, contract::script,
};
use tokio::runtime::Runtime;
use world::{ROOT, Session, files, read};

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> u64 {
        1_764_460_900_000
    }
}

/// Blocking work is done in place, so that nothing runs beside the test.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

fn store(vfs: &MemVfs) -> SessionStore {
    let options = JsonlOptions {
        checkpoint_every: Some(0),
        ..JsonlOptions::default()
    };
    let backend = JsonlBackend::with_vfs(Arc::new(vfs.clone()), ROOT, options).unwrap();
    let options = StoreOptions {
        clock: Arc::new(Still),
        ..StoreOptions::default()
    };
    SessionStore::new(Arc::new(backend), options)
}

fn id(number: u32) -> SessionId {
    Session::new(number).id
}

fn request(state: &Transcript) -> String {
    match Request::build(state) {
        Ok((request, _)) => serde_json::to_string(&request).unwrap(),
        Err(error) => error.to_string(),
    }
}

async fn record(store: &SessionStore, id: &SessionId, payloads: Vec<Payload>) {
    let loaded = store.load(id).await.unwrap();
    let options = AppendOptions::barrier();
    loaded.writer.record(payloads, options).await.unwrap();
}

/// A session that was interrupted in its third turn, and a fork of it in the second.
async fn make(vfs: &MemVfs) {
    let store = store(vfs);
    let header = Header::new(id(1), 1_764_460_800_000, Path::new("/w").into());
    let writer = store.create(header).await.unwrap();
    let options = AppendOptions::barrier;
    let first = script::plain_turn(1, "first");
    writer.record(first, options()).await.unwrap();
    drop(writer);
    record(&store, &id(1), script::turn_with_question(2, 2)).await;
    store.fork(&id(1), Some(11), id(2)).await.unwrap();
    record(&store, &id(2), script::plain_turn(3, "in the fork")).await;
    record(&store, &id(1), script::cut_turn(3, 3)).await;
}

/// Everything that a store says of a session, and the bytes that it writes next.
#[derive(Debug, PartialEq)]
struct Answers {
    seen: String,
    view: String,
    row: String,
    listed: String,
    verified: VerifyReport,
    closed: usize,
    request: String,
    log: Vec<u8>,
}

/// Asks a copy, so that the next one is asked of the same.
async fn ask(vfs: &MemVfs, id: &SessionId) -> Answers {
    let vfs = vfs.fork();
    let store = store(&vfs);
    let inspected = store.inspect(id).await.unwrap();
    assert!(inspected.damage.is_empty());
    let seen = request(inspected.view.transcript());
    let view = format!("{:?}", inspected.view.turns());
    let row = format!("{:?}", store.summary(id).await.unwrap());
    store.catch_up().await.unwrap();
    let listed = store.list(&ListFilter::default(), None, 10).await.unwrap();
    let listed = listed.sessions.iter().find(|row| row.id == *id);
    let listed = format!("{listed:?}");
    let verified = store.verify(id).await.unwrap();
    let loaded = store.load(id).await.unwrap();
    let next = script::plain_turn(4, "next");
    let options = AppendOptions::barrier();
    loaded.writer.record(next, options).await.unwrap();
    let request = loaded.writer.with_transcript(request).await;
    let log = layout::session_dir(ROOT.as_ref(), id).join(layout::LOG);
    Answers {
        seen,
        view,
        row,
        listed,
        verified,
        closed: loaded.closed,
        request,
        log: vfs.content(&log).unwrap(),
    }
}

fn in_session(id: &SessionId, name: &str) -> PathBuf {
    layout::session_dir(ROOT.as_ref(), id).join(name)
}

/// The file gone, empty, cut at every byte, and with every byte changed; each with a name.
fn garblings(bytes: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    let cuts = (0..bytes.len()).map(|at| (format!("cut at {at}"), bytes[..at].to_vec()));
    let flips = (0..bytes.len()).map(|at| {
        let mut bad = bytes.to_vec();
        bad[at] ^= 0x20 >> (at % 6);
        (format!("byte {at} changed"), bad)
    });
    cuts.chain(flips)
}

/// A copy of the store without one of its files.
fn without(vfs: &MemVfs, path: &Path) -> MemVfs {
    use threadline_jsonl::vfs::Vfs as _;
    let copy = vfs.fork();
    copy.remove_file(path).unwrap();
    copy
}

fn index_is_no_more_than_a_cache(number: u32, name: &str) -> usize {
    runtime().block_on(async {
        let vfs = MemVfs::new();
        make(&vfs).await;
        let path = in_session(&id(number), name);
        let bytes = vfs.content(&path).expect("a checkpoint");
        let expected = ask(&vfs, &id(number)).await;
        assert!(expected.verified.ok);
        assert_eq!(ask(&without(&vfs, &path), &id(number)).await, expected);
        let mut tried = 0;
        for (what, bad) in garblings(&bytes) {
            let copy = vfs.fork();
            copy.put(&path, &bad).unwrap();
            let found = ask(&copy, &id(number)).await;
            assert!(found == expected, "{what}: {found:#?}");
            tried += 1;
        }
        tried
    })
}

#[test]
fn an_index_that_is_gone_cut_or_changed_at_any_byte_changes_no_answer() {
    let tried = index_is_no_more_than_a_cache(1, layout::INDEX);
    say!("garbled index: {tried} states");
}

#[test]
fn an_index_of_a_prefix_that_is_gone_cut_or_changed_at_any_byte_changes_no_answer() {
    let tried = index_is_no_more_than_a_cache(2, "base-0.index");
    say!("garbled index of a prefix: {tried} states");
}

#[test]
fn an_index_of_another_session_or_another_time_changes_no_answer() {
    runtime().block_on(async {
        let vfs = MemVfs::new();
        make(&vfs).await;
        let [one, two] = [1, 2].map(|n| in_session(&id(n), layout::INDEX));
        let indexes = [one.clone(), two.clone()].map(|path| vfs.content(&path));
        for (number, path, other) in [(1, &one, &indexes[1]), (2, &two, &indexes[0])] {
            let Some(other) = other else {
                continue;
            };
            let expected = ask(&vfs, &id(number)).await;
            let copy = vfs.fork();
            copy.put(path, other).unwrap();
            assert_eq!(ask(&copy, &id(number)).await, expected);
        }
        // The log is replaced by the one that an older copy holds.
        let log = in_session(&id(1), layout::LOG);
        let bytes = vfs.content(&log).unwrap();
        let ends: Vec<_> = memchr::memchr_iter(b'\n', &bytes).collect();
        for end in ends.iter().skip(7) {
            let copy = vfs.fork();
            copy.put(&log, &bytes[..=*end]).unwrap();
            let bare = without(&copy, &one);
            assert_eq!(ask(&copy, &id(1)).await, ask(&bare, &id(1)).await);
        }
    });
}

/// The session opens, lists and resumes; what people had set may be missing, and the damaged file
/// is kept aside at the next change.
async fn people(vfs: &MemVfs, expected: &Answers, what: &str, bad: &[u8]) {
    let path = in_session(&id(1), layout::SUMMARY);
    vfs.put(&path, bad).unwrap();
    let found = ask(vfs, &id(1)).await;
    let logged = |it: &Answers| (it.seen.clone(), it.view.clone(), it.request.clone());
    assert_eq!(logged(&found), logged(expected), "{what}");
    assert_eq!(found.log, expected.log, "{what}");
    assert!(found.verified.ok && found.listed != "None", "{what}");
    let store = store(vfs);
    let valid = serde_json::from_slice::<threadline_store::UserSummary>(bad).is_ok();
    let patch = || SummaryPatch {
        title: Some(Some("new".into())),
        ..SummaryPatch::default()
    };
    let updated = match store.update(&id(1), patch(), 0).await {
        Err(UpdateError::Conflict { actual, .. }) => {
            assert!(valid, "{what}");
            store.update(&id(1), patch(), actual).await
        }
        updated => updated,
    };
    assert_eq!(updated.unwrap().title.as_deref(), Some("new"), "{what}");
    let aside = in_session(&id(1), layout::QUARANTINE).join(layout::SUMMARY);
    let kept = vfs.content(&aside);
    assert_eq!(kept.as_deref(), (!valid).then_some(bad), "{what}");
}

#[test]
fn a_summary_cut_or_changed_at_any_byte_hides_no_session_and_is_kept_aside() {
    let tried = runtime().block_on(async {
        let vfs = MemVfs::new();
        make(&vfs).await;
        let patch = SummaryPatch {
            title: Some(Some("what people set".into())),
            pinned: Some(true),
            tags: Some(vec!["one".into(), "zwei \u{e9}".into()]),
            ..SummaryPatch::default()
        };
        store(&vfs).update(&id(1), patch, 0).await.unwrap();
        let bytes = vfs
            .content(&in_session(&id(1), layout::SUMMARY))
            .expect("a summary");
        let expected = ask(&vfs, &id(1)).await;
        let mut tried = 0;
        for (what, bad) in garblings(&bytes) {
            people(&vfs.fork(), &expected, &what, &bad).await;
            tried += 1;
        }
        tried
    });
    say!("garbled summary: {tried} states");
}

/// Opens a session whose lock is garbled, and goes on in it.
fn opens(vfs: &MemVfs, session: &Session, what: &str) {
    let (vfs, mut session) = (vfs.fork(), session.clone());
    let store = files(&vfs).unwrap();
    let expected = session.owned();
    let log = read(&store, &session.id, 1 << 20).unwrap();
    assert!(log.damage.is_empty(), "{what}");
    assert_eq!(log.lines[..], expected[..], "{what}");
    let mut writer = session.resume(&store).unwrap();
    session.append(&mut writer, 2, true).unwrap();
    let log = read(&store, &session.id, 1 << 20).unwrap();
    assert_eq!(log.lines, session.owned(), "{what}");
}

#[test]
fn a_lock_cut_or_changed_at_any_byte_loses_no_event() {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let store = files(&vfs).unwrap();
    let mut writer = session.create(&store, 2).unwrap();
    session.append(&mut writer, 3, true).unwrap();
    drop(writer);
    let path = session.dir().join(layout::LOCK);
    let bytes = vfs.content(&path).expect("a record");
    let mut tried = 0;
    opens(&without(&vfs, &path), &session, "gone");
    for (what, bad) in garblings(&bytes) {
        let copy = vfs.fork();
        copy.put(&path, &bad).unwrap();
        opens(&copy, &session, &what);
        // The machine is started anew: what the record says is weighed otherwise.
        opens(
            &copy.power_cut(threadline_jsonl::sim::Kept::All),
            &session,
            &what,
        );
        tried += 2;
    }
    say!("garbled lock: {tried} states");
}
