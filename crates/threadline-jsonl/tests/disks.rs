//! Real file systems on loop images: the power is cut, the disk is full, a sync fails.
//!
//! They are mounted as root, so the tests run on request only: `cargo xtask test disks`. Where they
//! cannot be, each test says how much it has skipped and why.
//! `THREADLINE_POWER_CUTS=2000 THREADLINE_SEED=7 cargo xtask test disks` cuts more often, from a
//! seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "real disks are the matter; the store under test goes through its seam"
)]

#[path = "disks/mod.rs"]
mod disks;
