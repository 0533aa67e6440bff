//! What a session does besides appending: forks, take-overs, imports, repairs, checkpoints.

#![allow(
    dead_code,
    reason = "shared by several test binaries, each of which uses a part"
)]

use std::path::Path;

use threadline_jsonl::{Files, LogWriter};
use threadline_session::{Event, Header, Parent, SessionId, chain::Chain, codec::Encoder};
use threadline_store::{ClaimError, LogEnd, NewLog};

use crate::world::{Batch, Fallible, Given, Repair, Session, batch, read, state_of, text};

/// A session that is forked, and the event where.
pub(crate) struct At<'a> {
    pub(crate) parent: &'a Session,
    pub(crate) seq: u64,
}

impl Session {
    /// A fork's events differ from those of its parent.
    pub(crate) fn new_fork(number: u32) -> Self {
        let mut session = Self::new(number);
        session.attempt = 1_000 * number;
        session
    }

    /// Makes the session a fork, with some events that close what is open there.
    pub(crate) fn fork(
        &mut self,
        files: &Files,
        at: &At<'_>,
        closing: usize,
    ) -> Fallible<LogWriter> {
        let base = files.cut(&at.parent.id, at.seq).map_err(text)?;
        let base = base.ok_or("the parent has no such event")?;
        let mut header = Header::new(self.id.clone(), 9, Path::new("/w").into());
        header.parent = Some(Parent {
            id: at.parent.id.clone(),
            seq: at.seq,
        });
        header.base = Some(base);
        self.header = header.encode().map_err(text)?;
        let events = usize::try_from(at.seq).map_err(text)? + 1;
        let mut lines: Batch = at.parent.owned();
        lines.truncate(events);
        let own = match closing {
            0 => Batch::new(),
            _ => batch(at.seq + 1, closing, self.attempt),
        };
        lines.extend(own.iter().cloned());
        // It is there with all of that, or it is not there.
        self.tried = vec![lines];
        let new = NewLog {
            header_line: self.header.clone(),
            batch: own.concat(),
            last_seq: Some(at.seq + closing as u64),
            parent: Some(at.parent.id.clone()),
        };
        let writer = files.create(&self.id, &new).map_err(text)?;
        self.created = true;
        self.written = self.next_seq();
        self.synced = self.written;
        Ok(writer)
    }

    /// Takes the session over and goes on behind what is in its log.
    pub(crate) fn take_over(&mut self, files: &Files) -> Fallible<LogWriter> {
        self.renewed = true;
        let mut writer = files.take_over(&self.id).map_err(text)?;
        let end = self.end(files)?;
        writer.begin(end).map_err(text)?;
        Ok(writer)
    }

    /// Reads the log as one does between the claim and the beginning.
    pub(crate) fn end(&mut self, files: &Files) -> Fallible<LogEnd> {
        let log = read(files, &self.id, 1 << 20)?;
        if let Some(damage) = log.damage.first() {
            return Err(text(damage));
        }
        self.found(log.lines.len())?;
        Ok(LogEnd {
            next: log.next,
            torn: log.torn,
        })
    }

    /// Keeps a checkpoint whose state is all lines so far.
    pub(crate) fn checkpoint(&self, writer: &mut LogWriter) -> Fallible<()> {
        let state = state_of(&self.owned());
        writer.put_checkpoint(&state).map_err(text)
    }

    /// Appends one event that names a blob, durably.
    pub(crate) fn append_naming(&mut self, writer: &mut LogWriter, blob: &str) -> Fallible<()> {
        let seq = self.next_seq() as u64;
        let data = format!("{{\"attempt\":{},\"blob\":\"{blob}\"}}", self.attempt);
        let event = Event::from_json(seq, 1_000 + seq, "test/blob", &data, false).map_err(text)?;
        let encoded = Encoder::new(Chain::new()).batch(seq, &[event], None);
        let line = encoded.map_err(text)?.bytes;
        self.append_lines(writer, vec![line], true).map_err(text)
    }

    /// Brings the session in, piece by piece.
    pub(crate) fn import(&mut self, files: &Files, pieces: &[Given]) -> Result<(), ClaimError> {
        let mut import = files.import(&self.id)?;
        for (header, lines, last) in pieces {
            import.header(header)?;
            if !lines.is_empty() {
                import.lines(lines, *last)?;
            }
        }
        import.finish()?;
        self.created = true;
        self.written = self.next_seq();
        self.synced = self.written;
        Ok(())
    }

    /// Puts the repaired log in the place of the damaged one.
    pub(crate) fn mend(&mut self, files: &Files) -> Result<(), ClaimError> {
        let Some(Repair { new, .. }) = self.repair.clone() else {
            return Ok(());
        };
        let mut replace = files.replace(&self.id)?;
        for (header, lines, last) in &new {
            replace.header(header)?;
            replace.lines(lines, *last)?;
        }
        replace.finish()?;
        self.written = self.next_seq();
        self.synced = self.written;
        self.repair = None;
        Ok(())
    }

    /// Whether the files are those of the damaged log.
    pub(crate) fn is_old(&self, content: impl Fn(&Path) -> Option<Vec<u8>>) -> bool {
        self.repair.as_ref().is_some_and(|repair| {
            let mut old = repair.old.iter();
            old.all(|(path, bytes)| content(path).as_ref() == Some(bytes))
        })
    }
}

/// A log of two pieces, as an import takes it, and the session that it makes.
pub(crate) fn two_pieces(id: SessionId) -> Fallible<(Session, Vec<Given>)> {
    let (first, second) = (batch(0, 4, 0), batch(4, 3, 7));
    let root = Session::new(77);
    let mut header = Header::new(id.clone(), 9, Path::new("/w").into());
    header.parent = Some(Parent {
        id: root.id.clone(),
        seq: 3,
    });
    header.base = Some(threadline_session::Base {
        file: "base-0.jsonl".into(),
        bytes: (root.header.len() + first.concat().len()) as u64,
        last_seq: 3,
    });
    let mut session = Session::with_id(id);
    session.header = header.encode().map_err(text)?;
    session.tried = vec![[first.clone(), second.clone()].concat()];
    let pieces = vec![
        (root.header, first.concat(), 3),
        (session.header.clone(), second.concat(), 6),
    ];
    Ok((session, pieces))
}

/// Overwrites bytes in the middle of a line, so that it is no record any more.
pub(crate) fn spoil(line: &[u8], content: &[u8]) -> Fallible<Vec<u8>> {
    let at = memchr::memmem::find(content, line).ok_or("no such line")?;
    let mut bytes = content.to_vec();
    let middle = at + line.len() / 2;
    let spot = bytes.get_mut(middle..middle + 4);
    spot.ok_or("a short line")?.fill(b'~');
    Ok(bytes)
}
