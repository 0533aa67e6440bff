//! The session store: all semantics once, over a small backend seam.
//!
//! - [`SessionStore`] is the coordinator. Lazy creation, contiguous numbering, closers on load,
//!   idempotency, listing and following live here and nowhere else.
//! - [`Backend`] only stores and fetches lines. [`MemoryBackend`] is one for tests and embedders
//!   that want no persistence.
//! - [`contract`] (feature `contract`) is the suite that every backend must pass.

mod backend;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod follow;
pub mod limits;
mod list;
mod memory;
mod scan;
mod store;
mod summary;
mod verify;
mod writer;

pub use backend::{
    Backend, BackendError, ClaimError, Damage, Entry, HeaderReadError, Holder, LogEnd, Page,
    ReadPos, Recovered, Stamp, Stat, StoredHeader, Torn, WriteError, Writer,
};
pub use error::{
    AppendError, CreateError, DeleteError, ListError, OpenError, ReadError, UpdateError,
    error_chain,
};
pub use follow::{Follow, Followed};
pub use list::{Archived, ListFilter, ListPage};
pub use memory::MemoryBackend;
pub use store::{
    Clock, Inspected, Loaded, RawPage, RebuiltRequest, SessionStore, StoreOptions, SystemClock,
};
pub use summary::{
    Durability, SessionStatus, SessionSummary, SummaryError, SummaryPatch, UserSummary,
};
pub use verify::{Finding, VerifyReport};
pub use writer::{AppendOptions, Appended, SessionWriter};
