//! The verbs besides `run` and `serve`. Only `fork` and `copy` create anything.

mod branch;
pub(crate) mod config;
mod copy;
mod doctor;
mod du;
mod edit;
pub(crate) mod export;
mod gc;
mod grants;
mod ls;
mod mcp;
mod repair;
mod replay;
mod show;
mod verify;

pub(crate) use branch::{branch, fork, redo, rewind, take_over};
pub(crate) use copy::copy;
pub(crate) use doctor::doctor;
pub(crate) use du::du;
pub(crate) use edit::{archive, remove, rename};
pub(crate) use export::export;
pub(crate) use gc::gc;
pub(crate) use grants::grants;
pub(crate) use ls::ls;
pub(crate) use mcp::mcp_list;
pub(crate) use repair::repair;
pub(crate) use replay::replay;
pub(crate) use show::show;
pub(crate) use verify::verify;
