//! The agent: runs, steps, tools, approvals and policy over a durable session.
//!
//! - [`Agents`] makes agents: [`Agents::create`] at once, [`Agents::resume`] after reading the log.
//! - [`Agent::start`] begins a turn; a [`Run`] is a handle on it, and [`RunStream`] what happens.
//! - [`tools`] are what the model can do, [`policy`] what it may, [`ApprovalBoard`] where people
//!   answer.

mod agents;
mod approvals;
mod asking;
mod budget;
mod calls;
mod compact;
mod context;
mod counters;
mod driver;
mod error;
mod grants;
mod inbox;
mod lent;
pub mod limits;
mod offers;
mod outputs;
pub mod policy;
pub mod prompt;
mod replay;
mod run;
mod sources;
mod spans;
mod start;
pub mod subagents;
mod titles;
pub mod tools;

pub use agents::{
    Agent, Agents, AgentsConfig, Approver, CreateOptions, Defaults, Models, ResumeOptions,
    new_run_id,
};
pub use approvals::{Answer, AnswerError, Answered, ApprovalBoard, ApprovalInfo};
pub use budget::{Price, Prices, RunLimits};
pub use compact::CompactionOptions;
pub use counters::{Counters, Counts, Histogram, Words};
pub use error::{StartError, append_code, blob_code, open_code, read_code};
pub use grants::{Allow, GrantError, grant, revoke};
pub use inbox::{QueueError, QueueInput, QueuedMessage};
pub use lent::Lent;
pub use offers::{Accepted, OfferError};
pub use replay::{
    Difference, Divergence, ReplayError, ReplayNote, ReplayOptions, ReplayReport, replay,
};
pub use run::{Failure, Run, RunEvent, RunOutcome, RunStream};
pub use start::{COMPACT_COMMAND, RunInput, RunPolicy, Started};
pub use titles::TitleModel;
