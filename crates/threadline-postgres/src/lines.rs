//! Lines as the table keeps them.

use threadline_session::{
    Place, SessionId,
    codec::{Line, check_raw},
};
use threadline_store::{Damage, Entry};

use crate::error::Trouble;

/// Splits a batch into its lines, without their LF.
///
/// A valid line holds no raw NUL and is UTF-8; what is neither cannot be kept as text.
pub(crate) fn split(batch: &[u8]) -> Result<Vec<&str>, Trouble> {
    let whole = batch
        .strip_suffix(b"\n")
        .ok_or_else(|| Trouble::Other("the last line has no end".into()))?;
    whole.split(|byte| *byte == b'\n').map(text).collect()
}

/// Returns a header line without its LF.
pub(crate) fn header(line: &[u8]) -> Result<&str, Trouble> {
    text(line.strip_suffix(b"\n").unwrap_or(line))
}

fn text(line: &[u8]) -> Result<&str, Trouble> {
    if line.contains(&0) {
        return Err(Trouble::Other(
            "a line holds a NUL byte, which PostgreSQL cannot keep as text".into(),
        ));
    }
    std::str::from_utf8(line).map_err(|error| {
        Trouble::Other(format!(
            "a line is not UTF-8, so PostgreSQL cannot keep it as text: {error}"
        ))
    })
}

/// Consecutive lines, as the arrays that a statement takes.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    pub(crate) seqs: Vec<i64>,
    pub(crate) ats: Vec<i64>,
    pub(crate) bodies: Vec<&'a str>,
    /// Where the line after them begins.
    pub(crate) end_at: u64,
    /// The number of the event after them.
    pub(crate) next_seq: u64,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(bytes: &'a [u8], first_seq: u64, start_at: u64) -> Result<Self, Trouble> {
        let mut batch = Self {
            end_at: start_at,
            next_seq: first_seq,
            ..Self::default()
        };
        if bytes.is_empty() {
            return Ok(batch);
        }
        for body in split(bytes)? {
            batch.seqs.push(crate::db::int(batch.next_seq));
            batch.ats.push(crate::db::int(batch.end_at));
            batch.bodies.push(body);
            batch.end_at += body.len() as u64 + 1;
            batch.next_seq += 1;
        }
        Ok(batch)
    }
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) seq: u64,
    pub(crate) at: u64,
    pub(crate) body: String,
}

impl Kept {
    pub(crate) fn read(row: &tokio_postgres::Row) -> Result<Self, Trouble> {
        Ok(Self {
            seq: crate::db::count(row.try_get(0)?),
            at: crate::db::count(row.try_get(1)?),
            body: row.try_get(2)?,
        })
    }

    /// Returns where the next line begins.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.len()
    }

    pub(crate) fn len(&self) -> u64 {
        self.body.len() as u64 + 1
    }

    /// Returns the line, when it is that of its event.
    pub(crate) fn checked(&self, id: &SessionId) -> Result<Vec<u8>, Damage> {
        match check_raw(self.body.as_bytes(), self.seq) {
            Ok(()) => Ok(self.body.clone().into_bytes()),
            Err(error) => Err(self.damage(id, error.to_string())),
        }
    }

    pub(crate) fn entry(&self, id: &SessionId) -> Entry {
        let reason = match Line::decode(self.body.as_bytes()) {
            Ok(line) if line.event.seq == self.seq => {
                let place = Place {
                    at: self.at,
                    len: u32::try_from(self.len()).unwrap_or(u32::MAX),
                };
                return Entry::Line(line, place);
            }
            Ok(line) => format!("the line says that it is event {}", line.event.seq),
            Err(error) => error.to_string(),
        };
        Entry::Damage(self.damage(id, reason))
    }

    fn damage(&self, id: &SessionId, reason: String) -> Damage {
        Damage {
            file: table(id),
            offset: self.at,
            bytes: self.len(),
            seq: self.seq,
            reason,
        }
    }
}

/// Names the place of a damage.
pub(crate) fn table(id: &SessionId) -> String {
    format!("the table events, session {id},")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_text_cannot_hold_is_refused() {
        assert_eq!(split(b"a\n\nb\n").unwrap(), ["a", "", "b"]);
        for bad in [&b"a"[..], b"", b"a\0b\n", b"a\n\xff\n"] {
            assert!(split(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lines_are_numbered_and_placed() {
        let batch = Batch::new(b"ab\nc\n", 7, 100).unwrap();
        assert_eq!((batch.seqs, batch.ats), (vec![7, 8], vec![100, 103]));
        assert_eq!((batch.next_seq, batch.end_at), (9, 105));
        let none = Batch::new(b"", 7, 100).unwrap();
        assert_eq!((none.next_seq, none.end_at), (7, 100));
    }
}
