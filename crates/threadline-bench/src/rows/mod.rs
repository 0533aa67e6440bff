//! One module per group of bars.

pub(crate) mod big;
pub(crate) mod commit;
pub(crate) mod fork;
pub(crate) mod index;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod resume;
pub(crate) mod sqlite;
pub(crate) mod start;
pub(crate) mod verify;
