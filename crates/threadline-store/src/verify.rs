//! Checking a whole log with the same decoder that running uses.

use serde::Serialize;
use threadline_session::{ApplyError, SessionId, Transcript, chain::Chain, types};

use crate::{Damage, Entry, ReadError, ReadPos, SessionStore, Torn, limits::PAGE_BYTES};

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

pub(crate) async fn verify(
    store: &SessionStore,
    id: &SessionId,
) -> Result<VerifyReport, ReadError> {
    let stat = store.stat(id).await?;
    let header = match store.header(id).await {
        Ok(header) => header,
        Err(ReadError::Corrupt { damage, .. }) => {
            return Ok(VerifyReport {
                id: id.clone(),
                ok: false,
                events: 0,
                chained_turns: 0,
                unverified: 0,
                head: None,
                torn: None,
                findings: vec![Finding::Damage { damage }],
            });
        }
        Err(error) => return Err(error),
    };
    let mut check = Check::new(store.transcript(), &header.line, header.verified);
    let mut pos = ReadPos::default();
    let torn = loop {
        let page = store.backend().page(id, pos, PAGE_BYTES).await?;
        page.entries.iter().for_each(|entry| check.take(entry));
        pos = page.next;
        if page.end {
            break page.torn;
        }
    };
    check.finish(stat.acknowledged);
    Ok(VerifyReport {
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
    })
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
    unchained: Vec<u64>,
    findings: Vec<Finding>,
}

impl Check {
    fn new(transcript: Transcript, header_line: &[u8], verified: bool) -> Self {
        let mut chain = Chain::new();
        chain.line(header_line);
        Self {
            chain,
            transcript,
            readable: true,
            events: 0,
            checked: u64::from(verified),
            chained: 0,
            last_seq: None,
            turn_from: 0,
            unchecked: if verified { Vec::new() } else { vec![None] },
            unchained: Vec::new(),
            findings: Vec::new(),
        }
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
            Entry::Line(line) => line,
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
        if line.chain.is_some() {
            self.chained += 1;
            if !right {
                self.findings.push(Finding::Chain {
                    seq,
                    from_seq: self.turn_from,
                });
            }
        } else if line.event.kind == types::TURN_END {
            self.unchained.push(seq);
        }
        if line.event.kind == types::TURN_END {
            self.turn_from = seq + 1;
        }
        if self.readable
            && let Err(error) = self.transcript.apply(&line.event)
        {
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
