//! Checking a whole log with the same decoder that running uses.

use std::ops::ControlFlow;

use serde::Serialize;
use threadline_session::{
    ApplyError, SessionId, Skimmed, Transcript,
    chain::Chain,
    codec::{Crc, Line, check_crc},
    types,
};

use crate::{
    Damage, Entry, ReadError, ReadPos, SessionStore, Shown, Torn,
    limits::{CHECK_STRIDE, HASHED_AT_ONCE, PAGE_BYTES},
};

/// What a check of a log is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStage {
    /// It reads the records.
    Records,
    /// It rebuilds the requests of all steps.
    Requests,
}

/// How far a check of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckProgress {
    /// What it is doing.
    pub stage: CheckStage,
    /// Bytes of the log that it has seen in this stage.
    pub bytes: u64,
    /// Bytes that the log had when the stage began; it may grow meanwhile.
    pub of: u64,
}

/// Is told how far a check is about every [`CHECK_STRIDE`], and ends it with
/// [`ControlFlow::Break`].
pub type WatchCheck<'a> = dyn FnMut(CheckProgress) -> ControlFlow<()> + Send + 'a;

/// Counts the bytes of a check for whoever watches it.
pub(crate) struct Meter<'a, 'w> {
    watch: &'a mut WatchCheck<'w>,
    progress: CheckProgress,
    told: u64,
    stopped: bool,
}

impl<'a, 'w> Meter<'a, 'w> {
    pub(crate) fn new(watch: &'a mut WatchCheck<'w>, stage: CheckStage, of: u64) -> Self {
        let progress = CheckProgress {
            stage,
            bytes: 0,
            of,
        };
        let stopped = watch(progress).is_break();
        Self {
            watch,
            progress,
            told: 0,
            stopped,
        }
    }

    /// Counts a line without its end. Returns whether the check goes on.
    pub(crate) fn line(&mut self, line: &[u8]) -> bool {
        self.progress.bytes += line.len() as u64 + 1;
        if !self.stopped && self.progress.bytes - self.told >= CHECK_STRIDE {
            self.told = self.progress.bytes;
            self.stopped = (self.watch)(self.progress).is_break();
        }
        !self.stopped
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// Something wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Finding {
    /// Bytes that are no valid record.
    Damage {
        /// Where and how.
        #[serde(flatten)]
        damage: Damage,
    },
    /// A turn end's chain value does not match the lines before it.
    Chain {
        /// The turn end.
        seq: u64,
        /// First event that the value covers.
        from_seq: u64,
    },
    /// A line without a checksum in a log that carries them.
    Unchecked {
        /// The event; `None` for the header.
        seq: Option<u64>,
    },
    /// A turn end without a chain value in a log that carries them.
    Unchained {
        /// The turn end.
        seq: u64,
    },
    /// The log ends before an event that was acknowledged as durable.
    Truncated {
        /// Last event there is; `None` when there is none.
        last_seq: Option<u64>,
        /// Last event that was acknowledged.
        acknowledged: u64,
    },
    /// An event that this version cannot read.
    Unreadable {
        /// The event.
        seq: u64,
        /// What is wrong.
        reason: String,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damage { damage } => write!(f, "seq {}: {damage}", damage.seq),
            Self::Chain { seq, from_seq } => write!(
                f,
                "seq {seq}: the turn's chain value does not match events {from_seq} to {seq}; one \
                 of them was changed, removed or moved"
            ),
            Self::Unchecked { seq: Some(seq) } => {
                write!(f, "seq {seq}: the line has lost its checksum")
            }
            Self::Unchecked { seq: None } => f.write_str("the header has lost its checksum"),
            Self::Unchained { seq } => {
                write!(f, "seq {seq}: the turn end has lost its chain value")
            }
            Self::Truncated {
                last_seq: Some(last),
                acknowledged,
            } => write!(
                f,
                "seq {}: the log ends after event {last}, but events up to {acknowledged} were \
                 acknowledged as stored",
                last + 1
            ),
            Self::Truncated {
                last_seq: None,
                acknowledged,
            } => write!(
                f,
                "seq 0: the log is empty, but events up to {acknowledged} were acknowledged"
            ),
            Self::Unreadable { seq, reason } => write!(f, "seq {seq}: {reason}"),
        }
    }
}

/// What a check of a log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The session.
    pub id: SessionId,
    /// Whether nothing is wrong.
    pub ok: bool,
    /// Events read.
    pub events: u64,
    /// Turns whose chain value was checked.
    pub chained_turns: u64,
    /// Lines that no checksum vouches for, in a log that has none at all.
    pub unverified: u64,
    /// Last chain value, to be kept elsewhere by who wants to notice a rollback.
    pub head: Option<String>,
    /// Bytes at the end that were never fully written; not a fault.
    pub torn: Option<Torn>,
    /// What is wrong, in order.
    pub findings: Vec<Finding>,
}

impl SessionStore {
    /// Checks a whole log: every checksum, every number, every link of the chain.
    ///
    /// # Errors
    /// [`ReadError`] when there is nothing to check. What the check finds is in the report.
    pub async fn verify(&self, id: &SessionId) -> Result<VerifyReport, ReadError> {
        let (report, _) = check(self, id, &mut |_| ControlFlow::Continue(())).await?;
        Ok(report)
    }

    /// The same for who wants to know how far it is, or to stop it: `None` when `watch` did.
    ///
    /// # Errors
    /// As [`SessionStore::verify`].
    pub async fn verify_watched(
        &self,
        id: &SessionId,
        watch: &mut WatchCheck<'_>,
    ) -> Result<Option<VerifyReport>, ReadError> {
        let (report, whole) = check(self, id, watch).await?;
        Ok(whole.then_some(report))
    }
}

/// Checks a log, and says whether `watch` let it come to the end.
async fn check(
    store: &SessionStore,
    id: &SessionId,
    watch: &mut WatchCheck<'_>,
) -> Result<(VerifyReport, bool), ReadError> {
    let stat = store.stat(id).await?;
    match store.header(id).await {
        Ok(_) => {}
        Err(ReadError::Corrupt { damage, .. }) => {
            let report = VerifyReport {
                id: id.clone(),
                ok: false,
                events: 0,
                chained_turns: 0,
                unverified: 0,
                head: None,
                torn: None,
                findings: vec![Finding::Damage { damage }],
            };
            return Ok((report, true));
        }
        Err(error) => return Err(error),
    }
    let mut meter = Meter::new(watch, CheckStage::Records, stat.bytes);
    let mut check = Check::new(store.transcript().bare());
    let mut pos = check.fast(store, id, stat.acknowledged, &mut meter).await?;
    let torn = loop {
        if meter.is_stopped() {
            break None;
        }
        let page = store.backend().page(id, pos, PAGE_BYTES).await?;
        for entry in &page.entries {
            check.take(entry);
            if let Entry::Line(line, _) = entry {
                meter.line(&line.raw);
            }
        }
        pos = page.next;
        if page.end {
            break page.torn;
        }
    };
    check.finish(stat.acknowledged);
    let report = VerifyReport {
        id: id.clone(),
        ok: check.findings.is_empty(),
        events: check.events,
        chained_turns: check.chained,
        unverified: if check.checked == 0 {
            check.unchecked.len() as u64
        } else {
            0
        },
        head: check.chain.last().map(|value| value.to_hex()),
        torn,
        findings: check.findings,
    };
    Ok((report, !meter.is_stopped()))
}

struct Check {
    chain: Chain,
    transcript: Transcript,
    readable: bool,
    events: u64,
    checked: u64,
    chained: u64,
    last_seq: Option<u64>,
    turn_from: u64,
    unchecked: Vec<Option<u64>>,
    /// Lines that the chain has still to take.
    unhashed: Vec<u8>,
    unchained: Vec<u64>,
    findings: Vec<Finding>,
}

impl Check {
    fn new(transcript: Transcript) -> Self {
        Self {
            chain: Chain::new(),
            transcript,
            readable: true,
            events: 0,
            checked: 0,
            chained: 0,
            last_seq: None,
            turn_from: 0,
            unchecked: Vec::new(),
            unhashed: Vec::new(),
            unchained: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn header(&mut self, line: &[u8]) {
        self.chain.line(line);
        match check_crc(line.strip_suffix(b"\n").unwrap_or(line)) {
            Crc::Match => self.checked += 1,
            Crc::Mismatch | Crc::Absent => self.unchecked.push(None),
        }
    }

    /// Goes through the durable part of a log as fast as its bytes can be hashed: each line's
    /// checksum, its number and the chain vouch for the bytes, and only what the reducer has to
    /// know is looked at. Returns where the decoder goes on: behind it, or at anything unusual.
    async fn fast(
        &mut self,
        store: &SessionStore,
        id: &SessionId,
        acknowledged: Option<u64>,
        meter: &mut Meter<'_, '_>,
    ) -> Result<ReadPos, ReadError> {
        let Some(end) = acknowledged else {
            return Ok(ReadPos::default());
        };
        let start = ReadPos::default();
        let stopped = store
            .backend()
            .skim(id, start, &mut |shown| {
                let (Shown::Header(line) | Shown::Line(line, _)) = &shown;
                meter.line(line) && self.look(shown, end)
            })
            .await?;
        self.flush();
        Ok(match self.last_seq {
            Some(last) => ReadPos {
                seq: last.saturating_add(1),
                hint: stopped.hint,
            },
            None => {
                // Not one event: the headers are seen again.
                *self = Self::new(store.transcript().bare());
                start
            }
        })
    }

    fn look(&mut self, shown: Shown<'_>, end: u64) -> bool {
        let (raw, place) = match shown {
            Shown::Header(line) => {
                if check_crc(line.strip_suffix(b"\n").unwrap_or(line)) != Crc::Match {
                    return false;
                }
                self.flush();
                self.header(line);
                return true;
            }
            Shown::Line(raw, place) => (raw, place),
        };
        let expected = self.last_seq.map_or(0, |last| last.saturating_add(1));
        let line = Skimmed::of(raw).filter(|line| line.seq == expected && line.seq <= end);
        let Some(line) = line.filter(|_| check_crc(raw) == Crc::Match) else {
            return false;
        };
        let value = line.chain_value();
        let ends = line.kind == types::TURN_END;
        if ends != value.is_some() {
            return false;
        }
        if self.readable && (line.has_more() || !self.transcript.skim(&line, place)) {
            let Ok(line) = Line::decode(raw) else {
                return false;
            };
            self.read(&line);
        }
        self.events += 1;
        self.checked += 1;
        self.last_seq = Some(line.seq);
        match value {
            Some(value) => {
                self.flush();
                let right = self.chain.check_skimmed(raw, value);
                self.turn_end(line.seq, Some(right));
            }
            None => {
                // Small pieces are hashed at a fraction of the speed of large ones.
                self.unhashed.extend_from_slice(raw);
                self.unhashed.push(b'\n');
                if self.unhashed.len() >= HASHED_AT_ONCE {
                    self.flush();
                }
            }
        }
        true
    }

    fn flush(&mut self) {
        self.chain.line(&self.unhashed);
        self.unhashed.clear();
    }

    fn take(&mut self, entry: &Entry) {
        let line = match entry {
            Entry::Damage(damage) => {
                self.findings.push(Finding::Damage {
                    damage: damage.clone(),
                });
                self.readable = false;
                return;
            }
            Entry::Header(line) => {
                self.header(line);
                return;
            }
            Entry::Line(line, _) => line,
        };
        let seq = line.event.seq;
        self.events += 1;
        self.last_seq = Some(seq);
        if line.verified {
            self.checked += 1;
        } else {
            self.unchecked.push(Some(seq));
        }
        let right = self.chain.check(line);
        if line.chain.is_some() || line.event.kind == types::TURN_END {
            self.turn_end(seq, line.chain.is_some().then_some(right));
        }
        self.read(line);
    }

    /// Notes the end of a turn, and whether its chain value is right if it has one.
    fn turn_end(&mut self, seq: u64, right: Option<bool>) {
        match right {
            None => self.unchained.push(seq),
            Some(right) => {
                self.chained += 1;
                if !right {
                    self.findings.push(Finding::Chain {
                        seq,
                        from_seq: self.turn_from,
                    });
                }
            }
        }
        self.turn_from = seq + 1;
    }

    fn read(&mut self, line: &Line) {
        let seq = line.event.seq;
        if !self.readable {
            return;
        }
        let mut applied = self.transcript.apply(&line.event).map(drop);
        if let Err(ApplyError::Past { .. }) = applied {
            // What the model sees from here on is of no concern to a check of the bytes.
            self.transcript.pass_over(&line.event);
            applied = Ok(());
        }
        if let Err(error) = applied {
            self.readable = false;
            if !matches!(error, ApplyError::OutOfOrder { .. }) {
                self.findings.push(Finding::Unreadable {
                    seq,
                    reason: error.to_string(),
                });
            }
        }
    }

    fn finish(&mut self, acknowledged: Option<u64>) {
        // A log by hand has no checksum at all, and that is only said. One that has lost some of
        // them was tampered with.
        if self.checked > 0 {
            let lost = self
                .unchecked
                .iter()
                .map(|seq| Finding::Unchecked { seq: *seq });
            self.findings.extend(lost);
        }
        if self.chained > 0 || self.checked > 0 {
            let lost = self
                .unchained
                .iter()
                .map(|seq| Finding::Unchained { seq: *seq });
            self.findings.extend(lost);
        }
        if let Some(acknowledged) = acknowledged
            && self.last_seq.is_none_or(|last| last < acknowledged)
        {
            self.findings.push(Finding::Truncated {
                last_seq: self.last_seq,
                acknowledged,
            });
        }
    }
}
