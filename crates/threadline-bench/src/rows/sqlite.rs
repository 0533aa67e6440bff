//! The SQLite backend: a fenced batch beside plain inserts.

use std::time::Instant;

use serde_json::json;
use threadline_session::{
    Event, Header, OsPath, SessionId, chain::Chain, codec::Encoder, payload::UserSource,
};
use threadline_sqlite::{SqliteBackend, SqliteOptions};
use threadline_store::{Backend as _, NewLog};

use super::commit::{insert, raw_database};
use crate::{Bench, Outcome, agent::Agent, measure, measure::Sides, report::Figure};

pub(crate) const EVENTS: u64 = 12;
const BATCHES: u64 = 400;

/// Encodes the batches of a session.
pub(crate) struct Batches {
    agent: Agent,
    encoder: Encoder,
    next_seq: u64,
    pub(crate) header_line: Vec<u8>,
}

impl Batches {
    pub(crate) fn new(id: &SessionId) -> Outcome<Self> {
        let header_line = Header::new(id.clone(), 0, OsPath::from("/")).encode()?;
        let mut encoder = Encoder::new(Chain::new());
        encoder.header(&header_line);
        Ok(Self {
            agent: Agent::new(5),
            encoder,
            next_seq: 0,
            header_line,
        })
    }

    /// Returns the next lines and the number of the last event.
    pub(crate) fn next(&mut self) -> Outcome<(Vec<u8>, u64)> {
        let first = self.next_seq;
        let mut events = Vec::new();
        for seq in first..first + EVENTS {
            let payload = self.agent.user(800, UserSource::Context);
            events.push(Event::new(seq, 0, &payload)?);
        }
        self.next_seq += EVENTS;
        let encoded = self.encoder.batch(first, &events, None)?;
        Ok((encoded.bytes, self.next_seq - 1))
    }
}

/// Returns the lines of a batch as rows.
pub(crate) fn rows(batch: &[u8]) -> Outcome<Vec<String>> {
    let text = std::str::from_utf8(batch)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A batch of 12 under the fence, durable.
pub(crate) async fn sqlite(bench: &Bench) -> Outcome<Vec<Figure>> {
    let dir = bench.scratch()?;
    let backend = SqliteBackend::open(dir.path().join("ours.sqlite"), SqliteOptions::default())?;
    let mut db = raw_database(&dir.path().join("raw.sqlite"))?;
    let id = SessionId::parse("bench-sqlite")?;
    let mut batches = Batches::new(&id)?;
    let (batch, last_seq) = batches.next()?;
    let new = NewLog {
        header_line: batches.header_line.clone(),
        batch,
        last_seq: Some(last_seq),
        parent: None,
    };
    let mut writer = backend.create(&id, new).await?;
    let mut sides = Sides::default();
    for _ in 0..BATCHES {
        let (batch, last_seq) = batches.next()?;
        let rows = rows(&batch)?;
        let start = Instant::now();
        writer.append(batch, last_seq, true).await?;
        sides.ours.push(start.elapsed().as_secs_f64());
        let first = usize::try_from(last_seq + 1 - EVENTS)?;
        let (took, ()) = measure::timed(|| insert(&mut db, first, &rows))?;
        sides.raw.push(took);
    }
    let ratio = sides.ratio();
    Ok(vec![
        Figure::new("sqlite", "SQLite, batch of 12 fenced, FULL")
            .bar("<= 1.3 x plain inserts", ratio <= 1.3)
            .ours(measure::time(sides.ours()))
            .raw(measure::time(sides.raw()), ratio)
            .detail(json!({ "ours": sides.ours(), "raw": sides.raw(), "rounds": BATCHES })),
    ])
}
