//! Blobs of a store: putting, getting, and clearing away what nothing names.

use std::collections::HashSet;

use serde::Serialize;
use threadline_session::SessionId;

use crate::{
    BackendError, BlobId, BlobStat, SessionStore, error_chain,
    limits::{BLOB_GRACE, MAX_BLOB_BYTES},
};

/// Says why a blob was not stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It is too big.
    #[error("a blob of {bytes} bytes is over the limit of {MAX_BLOB_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is not there.
    #[error("blob {id} is not in {store}")]
    NotFound {
        /// The blob.
        id: BlobId,
        /// The store that was asked.
        store: String,
    },
    /// Its bytes are not those that its name stands for.
    #[error("blob {id} is damaged: its bytes do not match its name")]
    Damaged {
        /// The blob.
        id: BlobId,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Says why nothing was cleared away.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// A session cannot be read, so it is not known which blobs it names.
    #[error("session {id} cannot be read, and what it names must not be removed: {reason}")]
    Unreadable {
        /// The session.
        id: SessionId,
        /// What is wrong.
        reason: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// What clearing away did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GcReport {
    /// Whether nothing was removed because it was only asked.
    pub dry_run: bool,
    /// Sessions that were looked through.
    pub sessions: u64,
    /// Blobs that some log names.
    pub kept: u64,
    /// Blobs that nothing names yet, too young to be removed.
    pub young: u64,
    /// Blobs that nothing names.
    pub removed: Vec<BlobId>,
    /// Their size.
    pub removed_bytes: u64,
}

impl SessionStore {
    /// Stores bytes as a blob, durably, so that an event may name it.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn put_blob(&self, bytes: &[u8]) -> Result<BlobId, BlobError> {
        if bytes.len() > MAX_BLOB_BYTES {
            return Err(BlobError::TooLarge { bytes: bytes.len() });
        }
        let id = BlobId::of(bytes);
        self.backend().put_blob(&id, bytes).await?;
        Ok(id)
    }

    /// Reads a blob and checks its bytes.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn get_blob(&self, id: &BlobId) -> Result<Vec<u8>, BlobError> {
        let Some(bytes) = self.backend().get_blob(id).await? else {
            return Err(BlobError::NotFound {
                id: id.clone(),
                store: self.address(),
            });
        };
        if BlobId::of(&bytes) != *id {
            return Err(BlobError::Damaged { id: id.clone() });
        }
        Ok(bytes)
    }

    /// Removes blobs that nothing kept of any session names and that were put some time ago.
    /// With `dry_run` it only says which.
    ///
    /// # Errors
    /// [`GcError`]; then nothing was removed.
    pub async fn gc(&self, dry_run: bool) -> Result<GcReport, GcError> {
        // First the blobs, then the names: a blob that comes later is not looked at, and one that
        // is named again is put again before.
        let blobs = self.backend().blobs().await?;
        let mut report = GcReport {
            dry_run,
            ..GcReport::default()
        };
        let mut named = HashSet::new();
        let mut seen = HashSet::new();
        loop {
            let ids = self.backend().ids().await?;
            let fresh: Vec<_> = ids.into_iter().filter(|id| !seen.contains(id)).collect();
            if fresh.is_empty() {
                break;
            }
            for id in fresh {
                self.names_of(&id, &mut named).await?;
                report.sessions += 1;
                seen.insert(id);
            }
        }
        let grace = u64::try_from(BLOB_GRACE.as_millis()).unwrap_or(u64::MAX);
        let before = self.clock().now_ms().saturating_sub(grace);
        for blob in blobs {
            if named.contains(&blob.id) {
                report.kept += 1;
            } else if blob.put_at > before {
                report.young += 1;
            } else {
                self.clear(&blob, &mut report).await?;
            }
        }
        Ok(report)
    }

    async fn names_of(&self, id: &SessionId, named: &mut HashSet<BlobId>) -> Result<(), GcError> {
        let Err(error) = self.backend().blob_names(id, named).await else {
            return Ok(());
        };
        // Deleted meanwhile: it names nothing any more.
        if self.backend().stat(id).await?.is_none() {
            return Ok(());
        }
        Err(GcError::Unreadable {
            id: id.clone(),
            reason: error_chain(&error),
        })
    }

    async fn clear(&self, blob: &BlobStat, report: &mut GcReport) -> Result<(), GcError> {
        let gone = report.dry_run || self.backend().delete_blob(blob).await?;
        if gone {
            report.removed.push(blob.id.clone());
            report.removed_bytes += blob.bytes;
        } else {
            report.kept += 1;
        }
        Ok(())
    }
}
