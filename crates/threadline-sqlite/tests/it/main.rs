//! What is particular to this backend; what all backends promise is in `contract.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    reason = "a test may fail so"
)]

mod catalogue;
mod children;
mod damage;
mod files;
mod forks;
mod imports;
mod leases;
mod repairs;
mod space;
mod support;
