//! What opening reads: the history, not the log. Counted below the file system, never timed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

use std::{path::Path, sync::Arc};

use threadline_jsonl::{CountingVfs, JsonlBackend, JsonlOptions, RealVfs, layout, vfs::Vfs as _};
use threadline_session::{
    Header, OsPath, Payload, SessionId,
    payload::{
        CompactionSummary, ContentPart, OutputStream, SeqRange, ToolOutput, UserMessage, UserSource,
    },
};
use threadline_store::{
    AppendOptions, Durability, SessionStore, SessionWriter, StoreOptions,
    contract::script::whole_turn,
};

const EVERY: u64 = 64 << 10;

/// Sizes of logs in KiB. What opening one reads depends on how far its last checkpoint happens to
/// lie behind the end, so that the worst of several is compared.
const SMALL: [usize; 4] = [600, 700, 800, 1000];
const LARGE: [usize; 4] = [6000, 6500, 7000, 8000];

fn store(vfs: &CountingVfs, root: &Path) -> SessionStore {
    let options = JsonlOptions {
        checkpoint_every: Some(EVERY),
        ..JsonlOptions::default()
    };
    let backend = JsonlBackend::with_vfs(Arc::new(vfs.clone()), root, options).unwrap();
    let options = StoreOptions {
        durability: Durability::Step,
        ..StoreOptions::default()
    };
    SessionStore::new(Arc::new(backend), options)
}

async fn say(writer: &SessionWriter, texts: usize) {
    let text = "what was said before ".repeat(50);
    let said = Payload::UserMessage(UserMessage {
        content: vec![ContentPart::text(text)],
        source: UserSource::Context,
    });
    let noise = Payload::ToolOutput(ToolOutput {
        call_id: "none".into(),
        stream: OutputStream::Stdout,
        delta: "noise ".repeat(100),
    });
    for _ in 0..texts {
        let batch = vec![said.clone(), noise.clone(), noise.clone()];
        writer
            .record(batch, AppendOptions::default())
            .await
            .unwrap();
    }
}

/// Makes a log of about `kib` KiB that is compacted near its end.
async fn compacted(store: &SessionStore, id: &SessionId, kib: usize) {
    let header = Header::new(id.clone(), 1, OsPath::from("/"));
    let writer = store.create(header).await.unwrap();
    let turn = whole_turn(0, 1, "first");
    writer
        .append(0, turn, AppendOptions::barrier())
        .await
        .unwrap();
    say(&writer, kib / 3).await;
    let to_seq = writer.next_seq().await - 1;
    let summary = Payload::CompactionSummary(CompactionSummary {
        summary: vec![ContentPart::text("much was said")],
        replaces: SeqRange {
            from_seq: 0,
            to_seq,
        },
        kept: Vec::new(),
        tokens_before: 1,
        tokens_after: None,
        usage: None,
        algorithm: "test".into(),
    });
    writer
        .record(vec![summary], AppendOptions::barrier())
        .await
        .unwrap();
    // Enough for a checkpoint behind it, and some more. Turns end now and then: the chain needs
    // every line since the last end.
    for turn in 2..5 {
        let next = writer.next_seq().await;
        let turn = whole_turn(next, turn, "and on");
        writer
            .append(next, turn, AppendOptions::barrier())
            .await
            .unwrap();
        say(&writer, 20).await;
    }
    writer.flush().await.unwrap();
}

/// Opens the session and returns the bytes that this has read.
async fn opened(vfs: &CountingVfs, store: &SessionStore, id: &SessionId) -> (u64, Vec<u8>) {
    let before = vfs.reads();
    let loaded = store.load(id).await.unwrap();
    let read = (vfs.reads() - before).bytes;
    (read, loaded.writer.with_transcript(|t| t.freeze()).await)
}

#[tokio::test]
async fn what_opening_reads_does_not_grow_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = CountingVfs::new(Arc::new(RealVfs));
    let store = store(&vfs, dir.path());
    let mut most = [0, 0];
    for (at, sizes) in [SMALL, LARGE].into_iter().enumerate() {
        for kib in sizes {
            let id = SessionId::parse(format!("of-{kib}")).unwrap();
            compacted(&store, &id, kib).await;
            most[at] = opened(&vfs, &store, &id).await.0.max(most[at]);
        }
    }
    let [from_small, from_large] = most;
    assert!(
        from_large < from_small + from_small / 5,
        "{from_large} bytes for ten times the log, {from_small} bytes for one"
    );
    let large = SessionId::parse(format!("of-{}", LARGE[0])).unwrap();
    let (from_large, state) = opened(&vfs, &store, &large).await;

    // The same without the index, which is made again.
    let index = layout::session_dir(dir.path(), &large).join(layout::INDEX);
    let log = layout::session_dir(dir.path(), &large).join(layout::LOG);
    let log_bytes = vfs.metadata(&log).unwrap().unwrap().len;
    vfs.remove_file(&index).unwrap();
    let (without, same) = opened(&vfs, &store, &large).await;
    assert!(without >= log_bytes, "{without} of {log_bytes} bytes");
    assert_eq!(same, state);
    let (again, same) = opened(&vfs, &store, &large).await;
    assert!(again <= from_large + EVERY, "{again} bytes");
    assert_eq!(same, state);
}

#[tokio::test]
async fn a_fork_costs_the_same_whatever_its_parent_holds() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = CountingVfs::new(Arc::new(RealVfs));
    let store = store(&vfs, dir.path());
    let mut most = [(0, 0); 2];
    for (at, sizes) in [SMALL, LARGE].into_iter().enumerate() {
        for kib in sizes {
            let id = SessionId::parse(format!("of-{kib}")).unwrap();
            compacted(&store, &id, kib).await;
            let (reads, counts) = (vfs.reads(), vfs.counts());
            let child = SessionId::parse(format!("fork-{kib}")).unwrap();
            store.fork(&id, None, child.clone()).await.unwrap();
            let forked = (vfs.reads() - reads).bytes;
            let usage = store.usage(&child).await.unwrap();
            assert!(usage.log + usage.other <= 8 << 10, "{usage:?}");
            assert_eq!(vfs.shares().copies, 0);
            assert!(vfs.counts() != counts);
            // Opening it reads the history of both, once more not the log.
            let (read, _) = opened(&vfs, &store, &child).await;
            most[at] = (forked.max(most[at].0), read.max(most[at].1));
        }
    }
    let [(small_fork, small_open), (large_fork, large_open)] = most;
    assert!(
        large_fork < small_fork + (small_fork / 5).max(EVERY),
        "{most:?}"
    );
    assert!(
        large_open < small_open + (small_open / 5).max(EVERY),
        "{most:?}"
    );
}
