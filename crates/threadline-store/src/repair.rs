//! Repairing a damaged log: every valid record is kept, and what is lost is said in its place.

use serde::Serialize;
use serde_json::json;
use threadline_session::{
    Event, Header, Payload, SessionId, chain::Chain, codec::Encoder, codec::Line, types,
};

use crate::{
    ClaimError, Damage, Entry, Finding, Holder, ReadError, ReadPos, SessionStore, error_chain,
    limits::PAGE_BYTES,
};

pub use threadline_session::types::LOG_LOST;

/// Events that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// First event.
    pub from_seq: u64,
    /// Last event.
    pub to_seq: u64,
    /// Where the damage is.
    pub damage: Damage,
}

/// What a repair did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairReport {
    /// The session.
    pub id: SessionId,
    /// Whether nothing was changed because it was only asked.
    pub dry_run: bool,
    /// Whether the log was replaced, or would be. It is not when nothing is wrong.
    pub repaired: bool,
    /// Events kept, byte for byte but for the chain values behind the first loss.
    pub kept: u64,
    /// Events lost.
    pub lost: Vec<Lost>,
    /// Valid records that stand where they do not belong, as of a second writer; left out.
    pub misplaced: u64,
    /// Whether the header had to be made anew.
    pub header: bool,
}

/// Says why a session was not repaired. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The session cannot be read at all.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Somebody is writing it.
    #[error("session {id} is being written by {holder}")]
    Locked {
        /// The session.
        id: SessionId,
        /// Who.
        holder: Holder,
    },
    /// There is no space.
    #[error("the storage is full: {what}")]
    StorageFull {
        /// What could not be written.
        what: String,
    },
    /// The new log could not be stored.
    #[error("session {id} cannot be repaired: {reason}")]
    Failed {
        /// The session.
        id: SessionId,
        /// What is wrong.
        reason: String,
    },
}

/// The new log in the making.
struct Mend {
    report: RepairReport,
    encoder: Encoder,
    /// Whether lines are no longer the old ones, so that chain values are made anew.
    changed: bool,
    next_seq: u64,
    last_time: u64,
    /// Where the first loss since the last valid record is.
    damage: Option<Damage>,
    /// The header of the new log, when it is not the first one that is read.
    own_header: Option<Vec<u8>>,
    headers: u64,
}

/// A part of the new log.
enum Part {
    Header(Vec<u8>),
    Lines(Vec<u8>, u64),
}

impl Mend {
    fn new(id: &SessionId, dry_run: bool) -> Self {
        Self {
            report: RepairReport {
                id: id.clone(),
                dry_run,
                repaired: false,
                kept: 0,
                lost: Vec::new(),
                misplaced: 0,
                header: false,
            },
            encoder: Encoder::new(Chain::new()),
            changed: false,
            next_seq: 0,
            last_time: 0,
            damage: None,
            own_header: None,
            headers: 0,
        }
    }

    /// Takes a header line. A log of several files becomes one, under its own header.
    fn header(&mut self, line: &[u8]) -> Option<Part> {
        self.headers += 1;
        if self.headers > 1 {
            return None;
        }
        let line = self.own_header.take().unwrap_or_else(|| line.to_vec());
        self.encoder.header(&line);
        Some(Part::Header(line))
    }

    fn line(&mut self, line: &Line) -> Option<Part> {
        let seq = line.event.seq;
        if seq < self.next_seq {
            self.report.misplaced += 1;
            self.changed = true;
            return None;
        }
        let mut bytes = Vec::new();
        if seq > self.next_seq {
            bytes = self.fillers(seq);
        }
        self.damage = None;
        self.last_time = line.event.time;
        self.next_seq = seq + 1;
        self.report.kept += 1;
        let kept = self.kept(line);
        bytes.extend_from_slice(&kept);
        Some(Part::Lines(bytes, seq))
    }

    /// Returns the line as it is, or a turn end with the value that its chain has now.
    fn kept(&mut self, line: &Line) -> Vec<u8> {
        // A line that has lost its checksum gets one again, so that the log is whole.
        if self.changed && (line.event.kind == types::TURN_END || !line.verified) {
            let seq = line.event.seq;
            let events = std::slice::from_ref(&line.event);
            if let Ok(encoded) = self.encoder.batch(seq, events, line.key.as_deref()) {
                return encoded.bytes;
            }
        }
        self.encoder.follow(line);
        let mut bytes = line.raw.clone();
        bytes.push(b'\n');
        bytes
    }

    /// Writes an event for each lost one before `seq`, so that numbers stay what they were.
    fn fillers(&mut self, seq: u64) -> Vec<u8> {
        let damage = self.damage.take().unwrap_or_else(|| Damage {
            file: String::new(),
            offset: 0,
            bytes: 0,
            seq: self.next_seq,
            reason: "the events are missing".into(),
        });
        let mut bytes = Vec::new();
        for lost in self.next_seq..seq {
            // What is known is said once, in the first of them.
            let data = if lost == self.next_seq {
                json!({"fromSeq": lost, "toSeq": seq - 1, "bytes": damage.bytes, "reason": damage.reason})
            } else {
                json!({"fromSeq": self.next_seq})
            };
            let event = Event::from_json(lost, self.last_time, LOG_LOST, &data.to_string(), true);
            let encoded = event
                .ok()
                .and_then(|event| self.encoder.batch(lost, &[event], None).ok());
            bytes.extend(encoded.map(|encoded| encoded.bytes).unwrap_or_default());
        }
        self.report.lost.push(Lost {
            from_seq: self.next_seq,
            to_seq: seq - 1,
            damage,
        });
        self.changed = true;
        bytes
    }

    /// Takes the end of the log, where the next event will have the number `next`. Some storages
    /// know that events which they lost were there, also when none is left behind them.
    fn end(&mut self, next: u64) -> Option<Part> {
        if self.damage.is_none() || next <= self.next_seq {
            return None;
        }
        let bytes = self.fillers(next);
        self.next_seq = next;
        Some(Part::Lines(bytes, next - 1))
    }

    fn take(&mut self, entry: &Entry) -> Option<Part> {
        match entry {
            Entry::Header(line) => self.header(line),
            Entry::Line(line, _) => self.line(line),
            Entry::Damage(damage) => {
                self.damage.get_or_insert_with(|| damage.clone());
                None
            }
        }
    }
}

impl SessionStore {
    /// Repairs a damaged log: a new one is written that has every valid record, and an event of
    /// the type [`LOG_LOST`] in the place of each lost one, so that numbers stay what they were.
    /// The old log is kept aside. Does nothing when nothing is wrong.
    ///
    /// # Errors
    /// [`RepairError`]; the session is then as it was.
    pub async fn repair(&self, id: &SessionId, dry_run: bool) -> Result<RepairReport, RepairError> {
        self.stat(id).await?;
        let looked = self.mend(id, Mend::new(id, true), None).await?;
        let wrong = looked.changed || self.has_broken_chain(id, &looked).await?;
        if dry_run || !wrong {
            return Ok(RepairReport {
                repaired: wrong,
                ..looked.report
            });
        }
        let mut target = match self.backend().replace(id).await {
            Ok(target) => target,
            Err(error) => return Err(self.not_repaired(id, error)),
        };
        let mut mend = Mend::new(id, false);
        mend.own_header = self.flat_header(id).await?;
        mend.changed = !looked.changed || mend.own_header.is_some();
        let done = self.mend(id, mend, Some(&mut *target)).await?;
        let finished = target.finish().await;
        finished.map_err(|error| self.not_repaired(id, error))?;
        Ok(RepairReport {
            repaired: true,
            ..done.report
        })
    }

    /// Whether lines that are all valid are not those that the chain was made over.
    async fn has_broken_chain(&self, id: &SessionId, looked: &Mend) -> Result<bool, ReadError> {
        if looked.changed {
            return Ok(true);
        }
        let report = self.verify(id).await?;
        let mended = |finding: &Finding| {
            matches!(
                finding,
                Finding::Chain { .. } | Finding::Unchecked { .. } | Finding::Unchained { .. }
            )
        };
        Ok(report.findings.iter().any(mended))
    }

    fn not_repaired(&self, id: &SessionId, error: ClaimError) -> RepairError {
        let id = id.clone();
        match error {
            ClaimError::Locked { holder } => RepairError::Locked { id, holder },
            ClaimError::StorageFull { what } => RepairError::StorageFull { what },
            ClaimError::NotFound | ClaimError::AlreadyExists => self.not_found(&id).into(),
            ClaimError::Backend(error) if error.is_full() => RepairError::StorageFull {
                what: error_chain(&error),
            },
            ClaimError::Backend(error) => RepairError::Failed {
                id,
                reason: error_chain(&error),
            },
        }
    }

    async fn mend(
        &self,
        id: &SessionId,
        mut mend: Mend,
        mut target: Option<&mut dyn crate::Import>,
    ) -> Result<Mend, RepairError> {
        let failed = |error: crate::BackendError| self.not_repaired(id, error.into());
        if let Err(error) = self.header(id).await {
            let ReadError::Corrupt { .. } = error else {
                return Err(error.into());
            };
            mend.report.header = true;
            mend.changed = true;
        }
        let mut pos = ReadPos::default();
        loop {
            let page = self.backend().page(id, pos, PAGE_BYTES).await;
            let page = page.map_err(ReadError::from)?;
            for entry in &page.entries {
                let part = if mend.report.header && mend.headers == 0 {
                    let line = self.new_header(id).await?;
                    if let Some(target) = &mut target {
                        target.header(&line).await.map_err(failed)?;
                    }
                    mend.header(&line);
                    match entry {
                        Entry::Header(_) => None,
                        entry => mend.take(entry),
                    }
                } else {
                    mend.take(entry)
                };
                match (part, &mut target) {
                    (Some(Part::Header(line)), Some(target)) => {
                        target.header(&line).await.map_err(failed)?;
                    }
                    (Some(Part::Lines(lines, last)), Some(target)) => {
                        target.lines(&lines, last).await.map_err(failed)?;
                    }
                    _ => {}
                }
            }
            if page.end {
                if let (Some(Part::Lines(lines, last)), Some(target)) =
                    (mend.end(page.next.seq), &mut target)
                {
                    target.lines(&lines, last).await.map_err(failed)?;
                }
                return Ok(mend);
            }
            pos = page.next;
        }
    }

    /// Returns the header of a log that continues others, as that of a log on its own.
    async fn flat_header(&self, id: &SessionId) -> Result<Option<Vec<u8>>, RepairError> {
        let Ok(stored) = self.header(id).await else {
            return Ok(None);
        };
        let mut header = stored.header;
        if header.base.take().is_none() {
            return Ok(None);
        }
        let line = header.encode().map_err(|error| RepairError::Failed {
            id: id.clone(),
            reason: error.to_string(),
        })?;
        Ok(Some(line))
    }

    /// Makes a header from what the events tell, for a log that has lost its own.
    async fn new_header(&self, id: &SessionId) -> Result<Vec<u8>, RepairError> {
        let mut created = None;
        let mut cwd = None;
        let page = self
            .backend()
            .page(id, ReadPos::default(), PAGE_BYTES)
            .await;
        for entry in &page.map_err(ReadError::from)?.entries {
            if let Entry::Line(line, _) = entry {
                created = created.or(Some(line.event.time));
                if let Ok(Payload::TurnStart(start)) = line.event.payload() {
                    cwd = Some(start.context.cwd);
                    break;
                }
            }
        }
        let cwd = cwd.unwrap_or_else(|| std::path::PathBuf::from("/").into());
        let header = Header::new(
            id.clone(),
            created.unwrap_or_else(|| self.clock().now_ms()),
            cwd,
        );
        header.encode().map_err(|error| RepairError::Failed {
            id: id.clone(),
            reason: error.to_string(),
        })
    }

    /// Returns the bytes that a session takes up.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn usage(&self, id: &SessionId) -> Result<crate::Usage, ReadError> {
        self.stat(id).await?;
        Ok(self.backend().usage(id).await?)
    }

    /// Returns all blobs, in no order.
    ///
    /// # Errors
    /// [`ReadError::Backend`].
    pub async fn blob_stats(&self) -> Result<Vec<crate::BlobStat>, ReadError> {
        Ok(self.backend().blobs().await?)
    }
}
