//! What may become of what was not synced.

use std::{fmt, path::PathBuf};

/// What a crash did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The process was killed. The page cache lives on, and so does the boot.
    Killed {
        /// Bytes of the write in flight that arrived; 0 also when there was none.
        arrived: usize,
    },
    /// The power was cut. The page cache is gone, and the boot is another.
    PowerCut {
        /// What became of everything that is not named below.
        kept: Kept,
        /// A file with a fate of its own.
        file: Option<(PathBuf, FileFate)>,
        /// A folder of whose unsynced changes only the first few were kept.
        dir: Option<(PathBuf, usize)>,
    },
}

impl Fate {
    /// Returns whether the page cache was lost.
    #[must_use]
    pub fn is_power_cut(&self) -> bool {
        matches!(self, Self::PowerCut { .. })
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { arrived } => write!(f, "killed, {arrived} bytes in flight arrived"),
            Self::PowerCut { kept, file, dir } => {
                write!(f, "power cut, kept {kept:?}")?;
                if let Some((path, fate)) = file {
                    write!(f, ", {}: {fate:?}", path.display())?;
                }
                if let Some((path, steps)) = dir {
                    write!(f, ", {}: {steps} changes", path.display())?;
                }
                Ok(())
            }
        }
    }
}

/// What a power cut left of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// Content of files and entries of folders.
    All,
    /// Content of files, but no entries: a new file is lost, a rename undone.
    Data,
    /// Entries of folders, but no content: a renamed file is old or empty.
    Names,
}

impl Kept {
    pub(super) fn data(self) -> bool {
        matches!(self, Self::All | Self::Data)
    }

    pub(super) fn names(self) -> bool {
        matches!(self, Self::All | Self::Names)
    }
}

/// What a power cut left of the unsynced changes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFate {
    /// The first few.
    Prefix(usize),
    /// All but one; a later append stands behind a hole of NULs.
    Without(usize),
    /// All, but the last write only in part: its first bytes.
    Torn(usize),
    /// All, and the new length, but of the last write only the first bytes; NULs behind them.
    TornZeros(usize),
    /// All, but one block of 512 bytes of the last write is NULs.
    Hole(usize),
    /// The new length, but nothing of the data: NULs.
    Zeros,
}
