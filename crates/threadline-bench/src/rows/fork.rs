//! Forking a large session.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use serde_json::json;
use threadline_jsonl::layout;
use threadline_session::SessionId;

use crate::{
    Bench, Outcome, data,
    data::Log,
    measure,
    measure::{Both, Moment},
    report::Figure,
};

const ROUNDS: usize = 15;

/// Bytes of a folder that no other folder shares: as written, and as they take up blocks.
fn own_bytes(dir: &Path) -> Outcome<(u64, u64)> {
    let (mut bytes, mut blocks) = (0, fs::metadata(dir)?.blocks() * 512);
    for entry in fs::read_dir(dir)? {
        let meta = entry?.metadata()?;
        if meta.is_file() && meta.nlink() == 1 {
            bytes += meta.len();
            blocks += meta.blocks() * 512;
        }
    }
    Ok((bytes, blocks))
}

/// The least that a durable fork has to do: a folder, a second name, a small file, their syncs.
fn raw_fork(log: &Path, dir: &Path) -> Outcome<()> {
    fs::create_dir(dir)?;
    fs::hard_link(log, dir.join("base"))?;
    let mut file = File::create(dir.join("log.new"))?;
    file.write_all(&[b'x'; 400])?;
    file.sync_data()?;
    fs::rename(dir.join("log.new"), dir.join("log"))?;
    File::open(dir)?.sync_all()?;
    if let Some(parent) = dir.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

struct Forks {
    both: Both,
    bytes: u64,
    blocks: u64,
    log_bytes: u64,
    reads: u64,
}

async fn rounds(log: &Log, at: Option<u64>) -> Outcome<Forks> {
    let id = log.id()?;
    let path = log.path()?;
    let (mut both, mut new) = (Both::default(), (0, 0));
    let (mut log_bytes, mut reads) = (0, 0);
    for round in 0..ROUNDS {
        let child = SessionId::parse(format!("bench-fork-{round}"))?;
        let (store, vfs) = data::counted(&log.root)?;
        let since = Moment::now();
        store.fork(&id, at, child.clone()).await?;
        both.ours(since);
        new = own_bytes(&layout::session_dir(&log.root, &child))?;
        log_bytes = vfs.counts().log_written_bytes + vfs.shares().copied_bytes;
        reads = vfs.reads().bytes;
        store.delete(&child).await?;
        let dir = log.root.join("raw-fork");
        let since = Moment::now();
        raw_fork(&path, &dir)?;
        both.raw(since);
        fs::remove_dir_all(dir)?;
    }
    Ok(Forks {
        both,
        bytes: new.0,
        blocks: new.1,
        log_bytes,
        reads,
    })
}

fn shown(what: &str, forks: &Forks) -> [Figure; 2] {
    [
        Figure::new("fork", what)
            .bar("<= 10 ms", forks.both.wall.ours() <= 10e-3)
            .both(&forks.both),
        Figure::new(
            "fork",
            format!("  new bytes; {} of blocks", measure::bytes(forks.blocks)),
        )
        .bar("<= 8 KB", forks.bytes.max(forks.log_bytes) <= 8 << 10)
        .ours(measure::bytes(forks.bytes))
        .detail(json!({
            "bytes": forks.bytes, "blocks": forks.blocks, "logBytes": forks.log_bytes,
            "readBytes": forks.reads,
        })),
    ]
}

/// Forks at the end of a session and in the middle of one of its turns.
pub(crate) async fn fork(bench: &Bench) -> Outcome<Vec<Figure>> {
    let log = data::log(&bench.data, data::OFTEN_1000).await?;
    let end = rounds(&log, None).await?;
    let middle = rounds(&log, Some(log.events / 2)).await?;
    let mut figures = Vec::new();
    figures.extend(shown(
        "fork of 1 GB at its end; raw links, writes, syncs",
        &end,
    ));
    figures.extend(shown("fork of 1 GB in its middle", &middle));
    Ok(figures)
}
