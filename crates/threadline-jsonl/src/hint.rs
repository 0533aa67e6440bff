//! The record in the lock file: who writes, and what is known to be on stable storage.
//!
//! The lock itself is the operating system's and ends with its holder. The record is a hint for
//! people, and evidence after a crash: `durableSeq` was written only after a sync that covered it,
//! so it is a lower bound whatever happened since; a `bootId` other than the machine's says that
//! everything unsynced may have been lost, in any order. It is one line of JSON, padded with
//! spaces to a fixed length so that it is overwritten in place, with a checksum so that a torn one
//! is no evidence at all.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use threadline_session::codec::{Crc, check_crc, crc32c};
use threadline_store::Holder;

use crate::{
    limits::HINT_BYTES,
    vfs::{At as _, FileError, Mode, Vfs, VfsFile, read_full},
};

/// The lock file's record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hint {
    /// Process that wrote it.
    pub pid: u32,
    /// Its machine.
    pub host: String,
    /// The boot it was written in.
    pub boot_id: String,
    /// Counts the writers.
    pub epoch: u64,
    /// When its writer opened the session, unix milliseconds.
    pub since: u64,
    /// Highest event known to be on stable storage.
    pub durable_seq: Option<u64>,
    /// Whether a sync failed: what is behind `durable_seq` must not be believed, though it can be
    /// read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Whether what stands on stable storage may be older: a record that says `failed`, or a log
    /// that was put into its place and is not durable there. Both are to be synced before anything
    /// is acknowledged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
}

impl Hint {
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            pid: self.pid,
            host: self.host.clone(),
            since: self.since,
        }
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut line = serde_json::to_vec(self).ok()?;
        line.pop();
        let crc = crc32c(&line);
        line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}").as_bytes());
        if line.len() >= HINT_BYTES {
            return None;
        }
        line.resize(HINT_BYTES - 1, b' ');
        line.push(b'\n');
        Some(line)
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let end = record.iter().rposition(|b| !matches!(b, b' ' | b'\n'))?;
        let line = record.get(..=end)?;
        (check_crc(line) == Crc::Match).then(|| serde_json::from_slice(line).ok())?
    }

    /// Reads the record of an open lock file; `None` when there is none that can be believed, or
    /// none can be read.
    pub(crate) fn read(file: &dyn VfsFile) -> Option<Self> {
        Self::load(file).ok().flatten()
    }

    /// Reads the record as evidence: a failure is not the same as no record.
    pub(crate) fn load(file: &dyn VfsFile) -> io::Result<Option<Self>> {
        let mut record = vec![0; HINT_BYTES];
        let read = read_full(file, &mut record, 0)?;
        Ok(record.get(..read).and_then(Self::decode))
    }

    /// Reads the record of a lock file by its path, as evidence.
    pub(crate) fn load_at(vfs: &dyn Vfs, path: &Path) -> Result<Option<Self>, FileError> {
        match vfs.open(path, Mode::Read) {
            Ok(file) => Self::load(&*file).at("reading", path),
            Err(error) => match error.kind() {
                // Who may not read it cannot write either, and reads without evidence.
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
                _ => Err(error).at("opening", path),
            },
        }
    }

    /// Overwrites the record. It is not synced: an older one is weaker evidence, never false.
    pub(crate) fn write(&self, file: &dyn VfsFile, path: &Path) -> Result<(), FileError> {
        let Some(record) = self.encode() else {
            return Ok(());
        };
        let mut done = 0;
        while let Some(rest) = record.get(done..).filter(|rest| !rest.is_empty()) {
            match file.write_at(rest, done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).at("writing", path),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_any_changed_byte_makes_it_no_evidence() {
        let hint = Hint {
            pid: 7,
            host: "here".into(),
            boot_id: "b".into(),
            epoch: 3,
            since: 9,
            durable_seq: Some(41),
            failed: false,
            unsettled: false,
        };
        let record = hint.encode().unwrap();
        assert_eq!(record.len(), HINT_BYTES);
        assert_eq!(Hint::decode(&record), Some(hint));
        let end = record.iter().rposition(|b| *b == b'}').unwrap();
        for at in 0..=end {
            let mut bad = record.clone();
            bad[at] ^= 0x01;
            assert_ne!(Hint::decode(&bad), Some(Hint::default()));
            assert!(Hint::decode(&bad).is_none(), "byte {at}");
        }
        assert_eq!(Hint::decode(&record[..end]), None);
        assert_eq!(Hint::decode(&[0; HINT_BYTES]), None);
    }
}
