//! The tests of contention. The lanes of xtask tell them from all others by this module's name.

mod child;
mod fight;
mod process;
mod stopped;
mod two;

use std::{collections::BTreeMap, path::Path};

use threadline_jsonl::{Files, JsonlBackend, JsonlOptions};
use threadline_session::{Event, codec::Line};

use crate::world::{Fallible, Session, read};

pub(crate) fn store(root: &Path) -> Files {
    let backend = JsonlBackend::open(root, JsonlOptions::default()).expect("a store");
    backend.files().clone()
}

/// An event that tells who wrote it.
pub(crate) fn event(seq: u64, writer: Writer, n: u64) -> Event {
    let Writer { pid, epoch } = writer;
    let filler = "x".repeat(usize::try_from(seq % 5).unwrap_or(0) * 90);
    let data = format!("{{\"pid\":{pid},\"epoch\":{epoch},\"n\":{n},\"filler\":\"{filler}\"}}");
    Event::from_json(seq, 1_000 + seq, "test/event", &data, true).expect("an event")
}

/// A process in one of its turns as the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) pid: u64,
    pub(crate) epoch: u64,
}

pub(crate) fn writer_of(line: &[u8]) -> Writer {
    let line = Line::decode(line.strip_suffix(b"\n").unwrap_or(line)).expect("a line");
    let data: serde_json::Value = serde_json::from_str(line.event.data.get()).expect("JSON");
    let number = |key: &str| data.get(key).and_then(serde_json::Value::as_u64);
    Writer {
        pid: number("pid").unwrap_or(0),
        epoch: number("epoch").unwrap_or(0),
    }
}

/// What was acknowledged, by its number.
pub(crate) type Ledger = BTreeMap<u64, String>;

/// Reads the log and compares. Returns its lines without LF.
pub(crate) fn check_log(root: &Path, ledger: &Ledger) -> Fallible<Vec<Vec<u8>>> {
    let log = read(&store(root), &Session::new(1).id, 1 << 20)?;
    if let Some(damage) = log.damage.first() {
        return Err(damage.to_string());
    }
    if log.seqs != (0..log.seqs.len() as u64).collect::<Vec<_>>() {
        return Err("the log has a gap".into());
    }
    let mut lines = log.lines;
    for line in &mut lines {
        line.pop();
    }
    for (seq, line) in ledger {
        let found = usize::try_from(*seq).ok().and_then(|at| lines.get(at));
        if found.map(Vec::as_slice) != Some(line.as_bytes()) {
            return Err(format!("event {seq} was acknowledged and is not there"));
        }
    }
    Ok(lines)
}

/// Epochs only grow along the log, and each belongs to one process.
pub(crate) fn check_epochs(lines: &[Vec<u8>]) -> Fallible<()> {
    let writers: Vec<_> = lines.iter().map(|line| writer_of(line)).collect();
    let mut owners = BTreeMap::new();
    for pair in writers.windows(2) {
        if pair[1].epoch < pair[0].epoch {
            return Err(format!("{:?} wrote behind {:?}", pair[1], pair[0]));
        }
    }
    for writer in writers {
        if *owners.entry(writer.epoch).or_insert(writer.pid) != writer.pid {
            return Err(format!("two processes wrote in epoch {}", writer.epoch));
        }
    }
    Ok(())
}
