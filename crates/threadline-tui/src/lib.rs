//! The terminal interface: a picker of sessions and a conversation.
//!
//! It has no logic of its own. What runs is in [`threadline_agent`], what is kept in
//! [`threadline_store`], and what is shown is their one read model.
//!
//! - [`app`] is the whole state: [`app::App::update`] takes what happened and returns what is to be
//!   done. [`picker`], [`talk`], [`turns`] and [`composer`] are its parts, `keys` the commands.
//! - [`draw`] shows it, [`render`] the items of a turn; only what is seen is laid out.
//! - `engine` does what is asked for; [`run`] takes the terminal and drives everything.
//! - [`text`] makes text of models and tools inert.

pub mod app;
pub mod composer;
pub mod draw;
mod engine;
pub mod keys;
pub mod limits;
pub mod picker;
pub mod render;
pub mod talk;
mod terminal;
pub mod text;
pub mod theme;
pub mod turns;

pub use app::{Begin, Trouble};
pub use engine::Exporter;
pub use terminal::{Left, Options, TuiError, run};
