//! The verbs that read and tidy. None of them creates a store.

mod doctor;
mod edit;
mod ls;
mod show;
mod verify;

pub(crate) use doctor::doctor;
pub(crate) use edit::{archive, remove, rename};
pub(crate) use ls::ls;
pub(crate) use show::show;
pub(crate) use verify::verify;
