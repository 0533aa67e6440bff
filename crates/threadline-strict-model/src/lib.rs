//! A strict model server for tests: refuses what the real ones refuse.
//!
//! [`StrictModel`] listens on a loopback port, speaks Chat Completions, the Responses API and the
//! Messages API, checks every request as the real servers do and answers from a script. It runs inside an async test, or as the
//! program `strict-model` beside a process that is going to be killed.
//!
//! # What is checked
//! In Chat Completions (`POST /v1/chat/completions`): size, UTF-8, JSON, lone surrogates and NUL; unknown keys; the system message only first; every
//! tool call answered by exactly one tool message directly after it, in call order, with the same
//! id; no orphan result; no empty content; arguments that are JSON objects; call ids unique in
//! their message and at most 40 characters; tool names well-formed and declared. A name counts as
//! declared when this or an earlier request declared it, or when a reply of this server called it:
//! models do call tools that nobody offered. Images are base64 data URLs of the kind that they
//! say, in user messages only.
//!
//! In the Responses API (`POST /v1/responses`) besides: `store` is false; every call has one
//! output before the user speaks again, and every output a call; ids of calls are unique in the
//! whole request; an item's own id has its prefix; reasoning comes back as it was issued, with its
//! encrypted content, to the model that issued it and right before the item that it was issued
//! before; an item that names itself does not come without its reasoning.
//!
//! In the Messages API (`POST /v1/messages`) besides: the header `anthropic-version`;
//! `max_tokens`; the user speaks first, last and in turns; no text of white space; every call
//! answered at the start of the next message; ids of calls match `^[a-zA-Z0-9_-]+$` and are unique
//! in the whole request; at most four cache marks; thinking comes back as it was issued to the
//! model that issued it, in its place while tool use goes on, never at the end of a message; a
//! turn begins with thinking when thinking is enabled.
//!
//! A violation is answered with status 400 in the provider's shape and recorded in
//! [`StrictModel::violations`].
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
//! - `text` is short for one `text` step per word. `finish` is the dialect's own reason and
//!   defaults to its usual ones; in the Responses API `length` or `content_filter` leaves the
//!   response incomplete, and `failed` (with `code` and `message`) and `cancelled` end it.
//! - `reasoning` is signed or encrypted where the dialect does that; `redacted` is reasoning that
//!   nobody may read, and says nothing in Chat Completions.
//! - `usage` holds `input` (all of it), `output`, `cached`, `created` and `reasoning`. Without it
//!   four bytes are a token, and what an earlier prompt began with alike is cached; the Messages
//!   API caches only when it is asked to.
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

mod anthropic;
mod chat;
mod check;
mod gate;
mod issued;
mod moves;
mod prompt;
mod responses;
mod script;
mod server;

pub use check::Violation;
pub use gate::Gate;
pub use prompt::Dialect;
pub use script::{Reply, ScriptError, Step, When};
pub use server::{RecordedRequest, StrictModel};
