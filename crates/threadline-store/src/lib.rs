//! The session store: all semantics once, over a small backend seam.
//!
//! - [`SessionStore`] is the coordinator. Lazy creation, contiguous numbering, closers on load,
//!   idempotency, listing and following live here and nowhere else.
//! - [`Backend`] only stores and fetches lines. [`MemoryBackend`] is one for tests and embedders
//!   that want no persistence.
//! - [`contract`] (feature `contract`) is the suite that every backend must pass.

mod backend;
pub mod blob;
mod catalogue;
#[cfg(feature = "contract")]
pub mod contract;
mod copy;
mod error;
mod follow;
mod fork;
mod keep;
mod kept;
pub mod limits;
mod list;
mod memory;
mod repair;
mod requests;
mod scan;
mod store;
mod summary;
mod verify;
mod window;
mod writer;

pub use backend::{
    Backend, BackendError, Begun, BlobStat, Checkpoint, ClaimError, Damage, Entry, HeaderReadError,
    Holder, Import, LogEnd, NewLog, Page, ReadPos, Recovered, Shown, Stamp, Stat, StoredHeader,
    Torn, Usage, Visit, WriteError, Writer,
};
pub use blob::{BlobId, BlobIdError};
pub use catalogue::{Catalogue, CatalogueRow, ListKey, MemoryCatalogue, MemoryRows};
pub use copy::{Copied, CopyError};
pub use error::{
    AppendError, CreateError, DeleteError, ListError, OpenError, ReadError, UpdateError,
    error_chain,
};
pub use follow::{Follow, Followed};
pub use fork::{ForkError, Forked, MoveError, Moved};
pub use keep::{BlobError, GcError, GcReport};
pub use list::{Archived, ListFilter, ListPage, search_text};
pub use memory::MemoryBackend;
pub use repair::{LOG_LOST, Lost, RepairError, RepairReport};
pub use requests::{OpenQuestions, RebuiltRequest, Unequal};
pub use store::{Clock, Inspected, Loaded, RawPage, SessionStore, StoreOptions, SystemClock};
pub use summary::{
    Durability, MadeTitle, SessionStatus, SessionSummary, SummaryError, SummaryPatch, UserSummary,
};
pub use verify::{CheckProgress, CheckStage, Finding, VerifyReport, WatchCheck};
pub use window::{Window, WindowAt};
pub use writer::{AppendOptions, Appended, SessionWriter};
