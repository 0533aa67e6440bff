//! The tools and the policy as the loop sees them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "tools/arguments.rs"]
mod arguments;
#[path = "tools/client.rs"]
mod client;
#[path = "tools/escapes.rs"]
mod escapes;
#[path = "tools/files.rs"]
mod files;
#[path = "tools/patch.rs"]
mod patch;
#[path = "tools/paths.rs"]
mod paths;
#[path = "tools/policy.rs"]
mod policy;
#[path = "tools/prefix.rs"]
mod prefix;
#[path = "tools/search.rs"]
mod search;
#[path = "tools/shell.rs"]
mod shell;
#[path = "tools/support.rs"]
mod support;
#[path = "tools/todo.rs"]
mod todo;
