//! Model providers: one streaming interface, each provider's dialect, and retries.
//!
//! A [`Provider`] turns a [`Request`](threadline_session::Request) into its own dialect and
//! streams the answer as [`ModelEvent`]s. The crate reads no environment variable, no
//! configuration file and no home directory; its callers pass everything in a
//! [`ProviderConfig`].
//!
//! - `openai-chat` speaks Chat Completions to any compatible server.
//! - `openai-responses` speaks OpenAI's Responses API and keeps nothing on its server.
//! - `anthropic` speaks Anthropic's Messages API.
//! - `offline` is a deterministic demonstration that needs no network.
//!
//! What a model sends is untrusted: every buffer is bounded by [`limits`], invalid UTF-8 and lone
//! surrogates are replaced at entry, and nothing in it can panic the process.

mod anthropic;
mod assemble;
mod classify;
mod config;
mod detect;
mod error;
mod http;
mod images;
pub mod limits;
mod offline;
mod openai_chat;
mod openai_responses;
mod provider;
mod reject;
mod render;
mod retry;
mod sse;
#[cfg(test)]
mod testing;

pub use config::{ConfigError, ProviderConfig, Secret, Thinking, build, key_variable};
pub use detect::{OLLAMA_URL, detect, detect_ollama};
pub use error::ModelError;
pub use http::client as http_client;
pub use images::{ImageError, Images};
pub use provider::{Completion, ModelEvent, ModelStream, PROVIDERS, Provider};
pub use reject::{RejectedKind, Rejection};
