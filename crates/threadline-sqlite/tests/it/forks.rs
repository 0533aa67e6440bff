//! Forks share rows; deleting removes what nobody else has.

use threadline_session::{Base, Header, Parent};
use threadline_sqlite::SqliteBackend;
use threadline_store::{Backend as _, Checkpoint, LogEnd, NewLog, ReadPos, Writer};

use crate::support::{Db, bytes, created, entries, header, id, line, lines};

/// Forks below the store, with these own lines.
async fn fork(
    backend: &SqliteBackend,
    parent: &str,
    at: u64,
    child: &str,
    texts: &[&str],
) -> Box<dyn Writer> {
    let base = backend.cut(&id(parent), at).await.unwrap().unwrap();
    let header = Header {
        parent: Some(Parent {
            id: id(parent),
            seq: at,
        }),
        base: Some(base),
        ..header(&id(child))
    };
    let batch = texts
        .iter()
        .zip(at + 1..)
        .flat_map(|(text, seq)| line(seq, text));
    let new = NewLog {
        header_line: header.encode().unwrap(),
        batch: batch.collect(),
        last_seq: Some(at + texts.len() as u64),
        parent: Some(id(parent)),
    };
    backend.create(&id(child), new).await.unwrap()
}

async fn append(writer: &mut Box<dyn Writer>, seq: u64, text: &str) {
    writer.append(line(seq, text), seq, true).await.unwrap();
}

#[tokio::test]
async fn a_fork_copies_no_row_and_goes_its_own_way() {
    let db = Db::new();
    let backend = db.open();
    let mut parent = created(&backend, "parent", &["a", "b", "c"]).await;
    let before = bytes(&*backend, "parent").await;
    let mut child = fork(&backend, "parent", 1, "child", &[]).await;
    assert_eq!(db.count("events"), 3);
    append(&mut parent, 3, "the parent's").await;
    append(&mut child, 2, "the child's").await;

    let whole = bytes(&*backend, "parent").await;
    assert!(whole.starts_with(&before) && whole.ends_with(&line(3, "the parent's")));
    let forked = bytes(&*backend, "child").await;
    let base = backend.cut(&id("parent"), 1).await.unwrap().unwrap();
    let shared = usize::try_from(base.bytes).unwrap();
    assert_eq!(forked[..shared], whole[..shared]);
    assert_eq!(
        forked[shared..],
        [
            backend.header(&id("child")).await.unwrap().unwrap().line,
            line(2, "the child's")
        ]
        .concat()
    );
    let stat = backend.stat(&id("child")).await.unwrap().unwrap();
    assert_eq!(stat.bytes, forked.len() as u64);
}

#[tokio::test]
async fn a_cut_names_the_log_that_is_cut_and_the_bytes_in_it() {
    let db = Db::new();
    let backend = db.open();
    let _a = created(&backend, "a", &["0", "1", "2"]).await;
    let _b = fork(&backend, "a", 1, "b", &["2b", "3b"]).await;
    let _c = fork(&backend, "b", 2, "c", &["3c"]).await;
    let own = |of: &'static str| {
        let backend = &backend;
        async move { backend.header(&id(of)).await.unwrap().unwrap().line.len() as u64 }
    };
    let len = |seq, text| line(seq, text).len() as u64;
    let at = |seq| {
        let backend = &backend;
        async move { backend.cut(&id("c"), seq).await.unwrap() }
    };
    let base = |k: u32, bytes, last_seq| {
        Some(Base {
            file: format!("base-{k}.jsonl"),
            bytes,
            last_seq,
        })
    };
    assert_eq!(at(0).await, base(0, own("a").await + len(0, "0"), 0));
    assert_eq!(at(2).await, base(1, own("b").await + len(2, "2b"), 2));
    assert_eq!(at(3).await, base(2, own("c").await + len(3, "3c"), 3));
    assert_eq!(at(4).await, None);
}

#[tokio::test]
async fn reading_from_any_event_gives_the_header_that_stands_before_it() {
    let db = Db::new();
    let backend = db.open();
    let _a = created(&backend, "a", &["0", "1", "2"]).await;
    let _b = fork(&backend, "a", 1, "b", &[]).await;
    let _c = fork(&backend, "b", 1, "c", &["2c", "3c"]).await;
    // The empty log of "b" is no part of "c".
    assert_eq!(entries(&*backend, "c").await.len(), 6);
    for (from, expected) in [(0, 6), (1, 4), (2, 3), (3, 1), (4, 0), (9, 0)] {
        let page = backend
            .page(&id("c"), ReadPos::at(from), 1 << 20)
            .await
            .unwrap();
        assert_eq!(page.entries.len(), expected, "from {from}");
        let next = if from == 9 { 9 } else { 4 };
        assert_eq!((page.end, page.next.seq), (true, next));
    }
    for from in [2, 7] {
        let page = backend
            .page(&id("b"), ReadPos::at(from), 1 << 20)
            .await
            .unwrap();
        assert_eq!(page.entries.len(), 1, "its own header, from {from}");
    }
}

#[tokio::test]
async fn deleting_a_parent_keeps_what_forks_share_and_nothing_else() {
    let db = Db::new();
    let backend = db.open();
    let shared = "shared".repeat(300);
    let secret = "secret".repeat(300);
    let parent = created(&backend, "parent", &[&shared, &shared, &secret, &secret]).await;
    let child = fork(&backend, "parent", 1, "child", &["own"]).await;
    let before = bytes(&*backend, "child").await;
    drop((parent, child));
    backend.delete(&id("parent")).await.unwrap();
    assert_eq!(bytes(&*backend, "child").await, before);
    assert_eq!(db.count("events"), 3);
    assert_eq!(db.count("pragma_foreign_key_check"), 0);
    for path in backend.private_paths() {
        let found = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&found);
        assert!(!text.contains("secretsecret"), "in {}", path.display());
    }
    backend.delete(&id("child")).await.unwrap();
    for table in ["events", "segments", "session_segments", "sessions"] {
        assert_eq!(db.count(table), 0, "{table}");
    }
}

#[tokio::test]
async fn deleting_a_fork_leaves_its_parent_and_its_own_forks() {
    let db = Db::new();
    let backend = db.open();
    drop(created(&backend, "a", &["0", "1"]).await);
    drop(fork(&backend, "a", 0, "b", &["1b", "2b"]).await);
    drop(fork(&backend, "b", 1, "c", &["2c"]).await);
    let (a, c) = (bytes(&*backend, "a").await, bytes(&*backend, "c").await);
    backend.delete(&id("b")).await.unwrap();
    assert_eq!(bytes(&*backend, "a").await, a);
    assert_eq!(bytes(&*backend, "c").await, c);
    assert_eq!(lines(&*backend, "c").await.len(), 3);
    assert_eq!(db.count("events"), 4, "2b is gone");
}

#[tokio::test]
async fn the_space_of_a_deleted_session_is_given_back() {
    let db = Db::new();
    let backend = db.open();
    drop(created(&backend, "small", &["x"]).await);
    let small = std::fs::metadata(db.path()).map_or(0, |meta| meta.len());
    let big = "big".repeat(100_000);
    let texts = vec![big.as_str(); 40];
    drop(created(&backend, "big", &texts).await);
    backend.delete(&id("big")).await.unwrap();
    // The rest is done when the thread that writes has nothing else to do, before it ends.
    drop(backend);
    let left = std::fs::metadata(db.path()).unwrap().len();
    assert!(
        left <= small.max(4096) + 2_000_000,
        "{left} bytes left, {small} before"
    );
    assert_eq!(db.open().ids().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_fork_starts_from_its_parents_checkpoint() {
    let db = Db::new();
    let backend = db.open();
    let mut parent = created(&backend, "parent", &["0", "1"]).await;
    let at = |seq, hint, state: &[u8]| {
        Some(Checkpoint {
            next: ReadPos {
                seq,
                hint: Some(hint),
            },
            state: state.to_vec(),
        })
    };
    let begun = backend.stat(&id("parent")).await.unwrap().unwrap().bytes;
    parent.put_checkpoint(b"two").await.unwrap();
    append(&mut parent, 2, "2").await;
    parent.put_checkpoint(b"three").await.unwrap();
    let _child = fork(&backend, "parent", 1, "child", &["2c"]).await;
    let found = backend.checkpoint(&id("child"), u64::MAX).await.unwrap();
    assert_eq!(found, at(2, begun, b"two"));
    // Going on from there gives the fork's own header.
    let page = backend
        .page(&id("child"), found.unwrap().next, 1 << 20)
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 2);
    assert_eq!(backend.checkpoint(&id("child"), 1).await.unwrap(), None);
}

#[tokio::test]
async fn a_garbled_checkpoint_is_passed_over() {
    let db = Db::new();
    let backend = db.open();
    let mut writer = created(&backend, "s", &["0"]).await;
    writer.put_checkpoint(b"good").await.unwrap();
    append(&mut writer, 1, "1").await;
    writer.put_checkpoint(b"bad").await.unwrap();
    db.raw()
        .execute(
            "UPDATE checkpoints SET state = CAST('bed' AS BLOB) WHERE seq = 2",
            [],
        )
        .unwrap();
    let found = backend
        .checkpoint(&id("s"), u64::MAX)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.state, b"good");
}

#[tokio::test]
async fn a_line_that_is_no_text_comes_back_byte_for_byte() {
    let db = Db::new();
    let backend = db.open();
    let mut writer = created(&backend, "s", &["0"]).await;
    writer
        .begin(LogEnd {
            next: ReadPos::at(1),
            torn: None,
        })
        .await
        .unwrap();
    let mut odd = line(1, "bytes \u{0} here");
    odd.splice(60..60, [0xff, 0xfe, 0x00]);
    writer.append(odd.clone(), 1, true).await.unwrap();
    append(&mut writer, 2, "nul \u{0} \u{1F600}").await;
    let kept: Vec<(String, Vec<u8>)> = db
        .raw()
        .prepare("SELECT typeof(body), CAST(body AS BLOB) FROM events ORDER BY seq")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let kinds: Vec<&str> = kept.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["text", "blob", "text"]);
    assert_eq!([kept[1].1.as_slice(), b"\n"].concat(), odd);
    assert_eq!(
        [kept[2].1.as_slice(), b"\n"].concat(),
        line(2, "nul \u{0} \u{1F600}")
    );
}
