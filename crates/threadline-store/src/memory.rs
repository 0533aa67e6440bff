//! A backend that keeps everything in memory.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use threadline_session::{
    Header, SessionId,
    codec::{Line, line_end},
};

use crate::{
    Backend, BackendError, ClaimError, Damage, Entry, HeaderReadError, Holder, LogEnd, Page,
    ReadPos, Recovered, Stamp, Stat, StoredHeader, UserSummary, WriteError, Writer,
};

#[derive(Debug, Default)]
struct Held {
    header: Vec<u8>,
    lines: Vec<Vec<u8>>,
    summary: UserSummary,
    claimed: bool,
    acknowledged: Option<u64>,
    version: u64,
}

/// Returns a number never given before, so that a session made again under an old id has a stamp
/// of its own.
fn next_version() -> u64 {
    static VERSION: AtomicU64 = AtomicU64::new(0);
    VERSION.fetch_add(1, Ordering::Relaxed)
}

type Sessions = Arc<Mutex<HashMap<SessionId, Held>>>;

fn lock(sessions: &Sessions) -> MutexGuard<'_, HashMap<SessionId, Held>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps sessions for as long as it lives: for tests, and for embedders that want no persistence.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    sessions: Sessions,
}

impl MemoryBackend {
    /// Makes an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

fn this_process() -> Holder {
    Holder {
        pid: std::process::id(),
        host: "this process".into(),
        since: 0,
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn address(&self) -> String {
        "memory:".into()
    }

    async fn header(&self, id: &SessionId) -> Result<Option<StoredHeader>, HeaderReadError> {
        let Some(line) = lock(&self.sessions).get(id).map(|held| held.header.clone()) else {
            return Ok(None);
        };
        let decoded = Header::decode(line.strip_suffix(b"\n").unwrap_or(&line));
        let (header, verified) = decoded.map_err(|source| HeaderReadError::Header {
            file: id.to_string(),
            source,
        })?;
        Ok(Some(StoredHeader {
            header,
            line,
            verified,
        }))
    }

    async fn page(
        &self,
        id: &SessionId,
        from: ReadPos,
        max_bytes: usize,
    ) -> Result<Page, BackendError> {
        let sessions = lock(&self.sessions);
        let Some(held) = sessions.get(id) else {
            return Err(BackendError::new(
                format!("reading {id}"),
                "there is no such session",
            ));
        };
        let mut page = Page {
            next: from,
            ..Page::default()
        };
        let mut bytes = 0;
        let start = usize::try_from(from.seq).unwrap_or(usize::MAX);
        for (seq, raw) in held.lines.iter().enumerate().skip(start) {
            if bytes >= max_bytes {
                return Ok(page);
            }
            bytes += raw.len();
            let seq = seq as u64;
            page.next = ReadPos::at(seq + 1);
            page.entries
                .push(match Line::decode(raw.strip_suffix(b"\n").unwrap_or(raw)) {
                    Ok(line) => Entry::Line(line),
                    Err(error) => Entry::Damage(Damage {
                        file: id.to_string(),
                        offset: seq,
                        bytes: raw.len() as u64,
                        seq,
                        reason: error.to_string(),
                    }),
                });
        }
        page.end = true;
        Ok(page)
    }

    async fn stat(&self, id: &SessionId) -> Result<Option<Stat>, BackendError> {
        Ok(lock(&self.sessions).get(id).map(|held| {
            let bytes = held.header.len() + held.lines.iter().map(Vec::len).sum::<usize>();
            Stat {
                bytes: bytes as u64,
                stamp: Stamp(bytes as u64, held.version),
                writer: held.claimed.then(this_process),
                acknowledged: held.acknowledged,
            }
        }))
    }

    async fn ids(&self) -> Result<Vec<SessionId>, BackendError> {
        Ok(lock(&self.sessions).keys().cloned().collect())
    }

    async fn create(
        &self,
        id: &SessionId,
        header_line: &[u8],
        batch: &[u8],
        last_seq: u64,
    ) -> Result<Box<dyn Writer>, ClaimError> {
        {
            let mut sessions = lock(&self.sessions);
            if sessions.contains_key(id) {
                return Err(ClaimError::AlreadyExists);
            }
            let held = Held {
                header: header_line.to_vec(),
                lines: split(batch),
                claimed: true,
                acknowledged: Some(last_seq),
                version: next_version(),
                ..Held::default()
            };
            sessions.insert(id.clone(), held);
        }
        Ok(Box::new(MemoryWriter {
            sessions: self.sessions.clone(),
            id: id.clone(),
        }))
    }

    async fn claim(&self, id: &SessionId) -> Result<Box<dyn Writer>, ClaimError> {
        {
            let mut sessions = lock(&self.sessions);
            let held = sessions.get_mut(id).ok_or(ClaimError::NotFound)?;
            if held.claimed {
                return Err(ClaimError::Locked {
                    holder: this_process(),
                });
            }
            held.claimed = true;
        }
        Ok(Box::new(MemoryWriter {
            sessions: self.sessions.clone(),
            id: id.clone(),
        }))
    }

    async fn summary(&self, id: &SessionId) -> Result<UserSummary, BackendError> {
        Ok(lock(&self.sessions)
            .get(id)
            .map(|held| held.summary.clone())
            .unwrap_or_default())
    }

    async fn put_summary(
        &self,
        id: &SessionId,
        expected: u64,
        summary: &UserSummary,
    ) -> Result<Result<(), UserSummary>, BackendError> {
        let mut sessions = lock(&self.sessions);
        let Some(held) = sessions.get_mut(id) else {
            return Err(BackendError::new(
                format!("changing {id}"),
                "there is no such session",
            ));
        };
        if held.summary.revision != expected {
            return Ok(Err(held.summary.clone()));
        }
        held.summary = summary.clone();
        Ok(Ok(()))
    }

    async fn delete(&self, id: &SessionId) -> Result<(), ClaimError> {
        let mut sessions = lock(&self.sessions);
        match sessions.get(id) {
            None => Err(ClaimError::NotFound),
            Some(held) if held.claimed => Err(ClaimError::Locked {
                holder: this_process(),
            }),
            Some(_) => {
                sessions.remove(id);
                Ok(())
            }
        }
    }
}

struct MemoryWriter {
    sessions: Sessions,
    id: SessionId,
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if let Some(held) = lock(&self.sessions).get_mut(&self.id) {
            held.claimed = false;
        }
    }
}

#[async_trait]
impl Writer for MemoryWriter {
    async fn begin(&mut self, _: LogEnd) -> Result<Option<Recovered>, WriteError> {
        Ok(None)
    }

    async fn append(
        &mut self,
        batch: Vec<u8>,
        last_seq: u64,
        sync: bool,
    ) -> Result<(), WriteError> {
        let mut sessions = lock(&self.sessions);
        let Some(held) = sessions.get_mut(&self.id) else {
            return Err(WriteError::Fenced {
                by: "whoever deleted the session".into(),
            });
        };
        held.lines.extend(split(&batch));
        held.version = next_version();
        if sync {
            held.acknowledged = Some(last_seq);
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), WriteError> {
        if let Some(held) = lock(&self.sessions).get_mut(&self.id) {
            held.acknowledged = (held.lines.len() as u64).checked_sub(1);
        }
        Ok(())
    }
}

fn split(batch: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(end) = line_end(batch, at) {
        lines.push(batch.get(at..end).unwrap_or_default().to_vec());
        at = end;
    }
    lines
}
