//! The session log without I/O: ids, header, events, the one reducer, recovery and history.
//!
//! Everything that must be right lives here and is property-tested. The crate reads no clock,
//! opens no file and draws no random number; given the same events it gives the same answers on
//! every machine.
//!
//! - [`codec`] turns events into checksummed lines and back; [`chain`] links the turns.
//! - [`Transcript`] is the only code that turns events into state.
//! - [`closers`] completes a log that ended in the middle of a turn.
//! - [`normalise`] and [`Request`] turn state into what a provider is sent, with a fingerprint.
//! - [`View`] is the read model by turn that pages and editors show.

pub mod chain;
mod closers;
pub mod codec;
mod event;
mod frozen;
mod grants;
mod header;
mod ids;
pub mod limits;
mod normalise;
mod os_path;
pub mod payload;
mod request;
mod skim;
mod sorted;
mod state;
mod surface;
mod surrogates;
mod transcript;
mod view;
mod vocabulary;

pub use closers::{INTERRUPTED_MARK, closers, closing};
pub use event::{Event, EventError, types};
pub use frozen::ThawError;
pub use grants::{Covers, SessionGrant};
pub use header::{Base, FORMAT, FORMAT_VERSION, Header, HeaderError, Origin, Parent};
pub use ids::{IdError, RunId, SessionId};
pub use normalise::{HistoryItem, NormaliseReport, normalise};
pub use os_path::OsPath;
pub use request::{Fingerprint, Request, RequestError};
pub use skim::Skimmed;
pub use state::{
    ApplyError, CallKey, Change, Facts, Item, OpenCall, PendingApproval, Queued, Status,
};
pub use surface::Place;
pub use transcript::{SurfaceAt, Transcript};
pub use view::{AssistantItem, Patch, ToolItem, Turn, TurnHead, TurnItem, View, ViewPart};
pub use vocabulary::Payload;
