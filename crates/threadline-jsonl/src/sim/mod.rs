//! Simulated file systems for tests: they crash, forget and fail on command.
//!
//! [`MemVfs`] keeps, for every file and folder, what the page cache holds, what is on stable
//! storage, and what lies between; [`MemVfs::crash_states`] then gives every image that a crash
//! may leave behind. [`FaultVfs`] makes a chosen operation fail in a chosen way. Both are
//! deterministic: no clock, no randomness, no disk.

mod crash;
mod disk;
mod fate;
mod fault;
mod file;
mod mem;
mod stats;
#[cfg(test)]
mod tests;

pub use fate::{Fate, FileFate, Kept};
pub use fault::{Fault, FaultVfs, Op, Plan};
pub use mem::MemVfs;
pub use stats::Stats;
