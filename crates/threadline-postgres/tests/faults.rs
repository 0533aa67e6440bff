//! What a server does to its clients: crashes, cut connections, other writers, full disks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

#[path = "faults/catalogue.rs"]
mod catalogue;
#[path = "faults/crash.rs"]
mod crash;
#[path = "faults/fence.rs"]
mod fence;
#[path = "faults/kit.rs"]
mod kit;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/repairs.rs"]
mod repairs;
#[path = "faults/schema.rs"]
mod schema;
#[path = "faults/storage.rs"]
mod storage;
