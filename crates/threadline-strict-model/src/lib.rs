//! A strict model server for tests: refuses what the real ones refuse.
//!
//! [`StrictModel`] listens on a loopback port, speaks Chat Completions, checks every request as
//! the real server does and answers from a script. It runs inside an async test, or as the
//! program `strict-model` beside a process that is going to be killed.
//!
//! # What is checked
//! Size, UTF-8, JSON, lone surrogates and NUL; unknown keys; the system message only first; every
//! tool call answered by exactly one tool message directly after it, in call order, with the same
//! id; no orphan result; no empty content; arguments that are JSON objects; call ids unique in
//! their message and at most 40 characters; tool names well-formed and declared. A name counts as
//! declared when this or an earlier request declared it, or when a reply of this server called it:
//! models do call tools that nobody offered. A violation is answered with status 400 in OpenAI's
//! shape and recorded in [`StrictModel::violations`].
//!
//! # Scripts
//! A script is a list of [`Reply`]s. A request takes the first reply whose `when` fits it, and
//! removes it unless it repeats. With none left the server echoes the last message. As JSON:
//!
//! ```json
//! [
//!   {"text": "Hello there.", "usage": {"input": 12, "output": 3, "cached": 4}},
//!   {"when": {"user": "list"}, "steps": [
//!     {"reasoning": "hm"}, {"text": "Let me"}, {"gate": "a"}, {"text": " look."},
//!     {"toolCall": {"id": "call_1", "name": "shell", "arguments": {"command": "ls"}}}
//!   ]},
//!   {"when": {"last": "exit 0"}, "repeat": true, "text": "Done.", "finish": "stop"},
//!   {"status": 429, "retryAfter": "1", "message": "slow down"},
//!   {"steps": [{"text": "half"}, "cut"]},
//!   {"steps": [{"text": "half"}, "stall"]},
//!   {"steps": ["malformed"]},
//!   {"steps": [{"raw": "{\"choices\":[]}"}, {"pause": 50}]}
//! ]
//! ```
//!
//! - `when`: `user` (the last user message holds it), `last` (the last message does), `body` (the
//!   body's bytes do); all that are given must hold.
//! - `text` is short for one `text` step per word. `finish` defaults to `tool_calls` or `stop`.
//! - `toolCall` streams its arguments in pieces; `toolStart` `{index,id,name}` and `toolArgs`
//!   `{index,delta}` interleave calls by hand; `arguments` is an object or a text sent as it is.
//! - `gate` waits until the gate is opened; `cut` breaks the connection; `stall` says nothing
//!   more; `malformed` sends a frame that is not JSON; `raw` sends one frame's data as it is.
//!
//! # Control routes
//! - `GET /_strict/state`: `{requests, violations, waitingGates, queued}`
//! - `GET /_strict/gate/{name}`: answers once a reply waits, or has waited, at the gate
//! - `POST /_strict/gate/{name}`: opens the gate for good
//! - `POST /_strict/script`: appends a reply or a list of them

mod chat;
mod check;
mod gate;
mod script;
mod server;

pub use check::Violation;
pub use gate::Gate;
pub use script::{Reply, ScriptError, Step, When};
pub use server::{RecordedRequest, StrictModel};
