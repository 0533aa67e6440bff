//! The first line of a log.

use serde::{Deserialize, Serialize};

use crate::{OsPath, SessionId, codec};

/// The format name that every header carries.
pub const FORMAT: &str = "threadline";
/// The format version that this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Facts about a session that never change. They are not conversation state and never reach a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// Format version of the log.
    pub version: u32,
    /// The session's id.
    pub id: SessionId,
    /// Creation time, unix milliseconds.
    pub created_at: u64,
    /// Working directory at creation.
    pub cwd: OsPath,
    /// The session and event that this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// What brought the session into being.
    #[serde(default)]
    pub origin: Origin,
    /// The program that wrote the header, as `name/version`.
    pub app: String,
    /// For forks: the frozen prefix this log continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

/// Lineage of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The parent session.
    pub id: SessionId,
    /// The last event of the parent that the fork contains.
    pub seq: u64,
}

/// A frozen prefix of another log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// File name beside the log.
    pub file: String,
    /// Bytes of that file that belong to the prefix.
    pub bytes: u64,
    /// Last event of the prefix.
    pub last_seq: u64,
}

/// What brought a session into being.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Origin {
    /// A person or a program asked for it.
    #[default]
    User,
    /// An agent started it as a child.
    Subagent {
        /// The tool call of the parent that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
    },
    /// It was imported from another agent.
    Import {
        /// Name of the other agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
    },
    /// A kind that a newer version introduced; shown, never acted on.
    #[serde(other)]
    Unknown,
}

/// Says why a first line is not a header that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The line is not a header.
    #[error("the first line is not a session header: {reason}")]
    Invalid {
        /// What is wrong.
        reason: String,
    },
    /// The checksum does not match.
    #[error("the header's checksum does not match its bytes")]
    Checksum,
    /// The log was written by a newer version.
    #[error(
        "written by a newer threadline (format version {found}, this one reads up to {FORMAT_VERSION}): upgrade threadline to open it"
    )]
    Newer {
        /// Version found in the header.
        found: u64,
    },
    /// The log carries a version that never existed.
    #[error(
        "format version {found} was never released; this threadline reads version {FORMAT_VERSION}"
    )]
    NeverReleased {
        /// Version found in the header.
        found: u64,
    },
}

impl Header {
    /// Makes a header of the current format version.
    #[must_use]
    pub fn new(id: SessionId, created_at: u64, cwd: OsPath) -> Self {
        Self {
            format: FORMAT.into(),
            version: FORMAT_VERSION,
            id,
            created_at,
            cwd,
            parent: None,
            origin: Origin::User,
            app: concat!("threadline/", env!("CARGO_PKG_VERSION")).into(),
            base: None,
        }
    }

    /// Encodes the header as a line that ends in LF, with its checksum.
    ///
    /// # Errors
    /// [`HeaderError::Invalid`] when it does not serialize.
    pub fn encode(&self) -> Result<Vec<u8>, HeaderError> {
        let mut line = serde_json::to_vec(self).map_err(|e| HeaderError::Invalid {
            reason: e.to_string(),
        })?;
        line.pop();
        codec::finish_line(&mut line, 0);
        Ok(line)
    }

    /// Decodes a line without its LF. Returns the header and whether a checksum vouched for it.
    ///
    /// # Errors
    /// [`HeaderError`], which also gives the direction of an unknown version.
    pub fn decode(line: &[u8]) -> Result<(Self, bool), HeaderError> {
        #[derive(Deserialize)]
        struct Probe {
            format: String,
            version: u64,
        }
        let invalid = |reason: String| HeaderError::Invalid { reason };
        let verified = match codec::check_crc(line) {
            codec::Crc::Match => true,
            codec::Crc::Absent => false,
            codec::Crc::Mismatch => return Err(HeaderError::Checksum),
        };
        let probe: Probe = serde_json::from_slice(line).map_err(|e| invalid(e.to_string()))?;
        if probe.format != FORMAT {
            return Err(invalid(format!("its format is \"{}\"", probe.format)));
        }
        if probe.version > u64::from(FORMAT_VERSION) {
            return Err(HeaderError::Newer {
                found: probe.version,
            });
        }
        if probe.version < 1 {
            return Err(HeaderError::NeverReleased {
                found: probe.version,
            });
        }
        let header = serde_json::from_slice(line).map_err(|e| invalid(e.to_string()))?;
        Ok((header, verified))
    }
}
