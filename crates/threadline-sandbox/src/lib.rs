//! Keeps the commands of an agent within bounds that the kernel holds.
//!
//! A command is not run by the agent itself but by the *launcher*, a program that applies a
//! [`Policy`] to itself, for good, and then becomes the command. So nothing is done between `fork`
//! and `exec` of a process with many threads, and whatever the command starts is bound as well.
//!
//! - [`Sandbox`] knows the launcher and what the system can hold; [`Policy`] is what one command
//!   may touch; [`environment`] is what it sees of the agent's variables.
//! - [`launcher_main`] is the whole launcher; `threadline __sandbox` and `threadline-sandbox` are
//!   nothing else.
//! - `plan` finds what is closed among the files that are there; `linux` applies it with mounts,
//!   Landlock and seccomp. What each mode guarantees: `docs/sandbox.md`.
//! - [`protected_name`] is the rule for names, which the file tools share.

mod env;
mod error;
mod launcher;
pub mod limits;
#[cfg(target_os = "linux")]
mod linux;
mod names;
mod plan;
mod policy;
mod sandbox;

pub use env::{Passed, PassedError, environment, is_secret};
pub use error::Error;
pub use launcher::{FAILED, VERB, launcher_main};
pub use names::{Protected, protected_name};
pub use policy::{Layers, Policy};
pub use sandbox::{Launcher, Sandbox};
