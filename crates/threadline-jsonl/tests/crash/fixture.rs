//! A small log whose bytes are known, and ways to read it changed.

use threadline_jsonl::{Files, sim::MemVfs};

use crate::world::{Log, Session, batch, files, read};

/// Whether two lines are the same, but for the name of the checksum's key: a line without one is
/// taken as hand-made, and reported as unverified.
fn same(one: &[u8], other: &[u8]) -> bool {
    let tail = b"crc\":\"01234567\"}\n".len();
    let name = one.len() - tail..one.len() - tail + 3;
    one.len() == other.len() && (0..one.len()).all(|at| one[at] == other[at] || name.contains(&at))
}

/// Whether a byte belongs to the name of a line's checksum.
pub(crate) fn names_crc(line_end: usize, at: usize) -> bool {
    let start = line_end - b"crc\":\"01234567\"}\n".len();
    (start..start + 3).contains(&at)
}

pub(crate) struct Fixture {
    pub(crate) vfs: MemVfs,
    pub(crate) session: Session,
    /// The whole log: a header, one event, a batch of three, two events.
    pub(crate) bytes: Vec<u8>,
    /// Where each event's line begins, and where the last one ends.
    pub(crate) starts: Vec<usize>,
    /// Number of events after which no batch is open.
    pub(crate) whole: Vec<usize>,
}

impl Fixture {
    /// The lock file is there only when asked for: without it there is no evidence.
    pub(crate) fn new() -> Self {
        let session = Session::new(1);
        let batches = [
            batch(0, 1, 0),
            batch(1, 3, 0),
            batch(4, 1, 0),
            batch(5, 1, 0),
        ];
        let mut bytes = session.header.clone();
        let mut starts = vec![bytes.len()];
        let mut whole = vec![0];
        for batch in batches {
            for line in batch {
                bytes.extend_from_slice(&line);
                starts.push(bytes.len());
            }
            whole.push(starts.len() - 1);
        }
        Self {
            vfs: MemVfs::new(),
            session,
            bytes,
            starts,
            whole,
        }
    }

    pub(crate) fn files(&self) -> Files {
        files(&self.vfs).expect("a store")
    }

    pub(crate) fn read(&self, bytes: &[u8]) -> Log {
        self.vfs.put(&self.session.log(), bytes).expect("a log");
        let log = read(&self.files(), &self.session.id, 1 << 20).expect("reading works");
        for line in &log.lines {
            let known = self.starts.windows(2).map(|at| &self.bytes[at[0]..at[1]]);
            assert!(
                known.into_iter().any(|it| same(it, line)),
                "a line that was never written"
            );
        }
        assert!(log.seqs.is_sorted_by(|a, b| a < b));
        let header = self.files().header(&self.session.id);
        if let Ok(Some(header)) = header {
            assert!(bytes.starts_with(&header.line));
        }
        log
    }

    /// Events that stand whole before an offset, batches counted as one.
    pub(crate) fn whole_before(&self, offset: usize) -> usize {
        *self
            .whole
            .iter()
            .rfind(|n| self.starts[**n] <= offset)
            .expect("at least none")
    }

    pub(crate) fn event_at(&self, offset: usize) -> usize {
        self.starts
            .iter()
            .rposition(|start| *start <= offset)
            .expect("behind the header")
    }
}

impl Fixture {
    pub(crate) fn read_unchecked(&self, bytes: &[u8]) -> Log {
        self.vfs.put(&self.session.log(), bytes).expect("a log");
        read(&self.files(), &self.session.id, 1 << 20).expect("reading works")
    }
}

/// A session whose lock record says that event 0 is durable, with more behind it.
pub(crate) fn with_record() -> (MemVfs, Session) {
    let vfs = MemVfs::new();
    let mut session = Session::new(1);
    let files = files(&vfs).expect("a store");
    let mut writer = session.create(&files, 1).expect("a session");
    for _ in 0..3 {
        session.append(&mut writer, 1, false).expect("a batch");
    }
    (vfs, session)
}
