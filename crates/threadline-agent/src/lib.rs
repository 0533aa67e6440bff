//! The agent: runs, steps, tools, approvals and policy over a durable session.
//!
//! - [`Agents`] makes agents: [`Agents::create`] at once, [`Agents::resume`] after reading the log.
//! - [`Agent::start`] begins a turn; a [`Run`] is a handle on it, and [`RunStream`] what happens.
//! - [`tools`] are what the model can do, [`policy`] what it may, [`ApprovalBoard`] where people
//!   answer.

mod agents;
mod approvals;
mod calls;
mod compact;
mod driver;
mod error;
pub mod limits;
mod outputs;
pub mod policy;
pub mod prompt;
mod run;
mod start;
pub mod tools;

pub use agents::{
    Agent, Agents, AgentsConfig, Approver, CreateOptions, Defaults, Models, ResumeOptions,
    new_run_id,
};
pub use approvals::{Answer, AnswerError, Answered, ApprovalBoard, ApprovalInfo};
pub use compact::CompactionOptions;
pub use error::{StartError, append_code, blob_code, open_code, read_code};
pub use run::{Failure, Run, RunEvent, RunOutcome, RunStream};
pub use start::{COMPACT_COMMAND, RunInput, RunPolicy, Started};
