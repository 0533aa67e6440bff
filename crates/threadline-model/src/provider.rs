//! The interface that every provider implements.

use futures_util::stream::BoxStream;
use threadline_session::{
    Request,
    payload::{AssistantPart, ChunkPart, ModelTrouble, Opaque, StopReason, Usage},
};

use crate::{Images, ModelError};

/// Names of the providers that this version can build.
pub const PROVIDERS: &[&str] = &["openai-chat", "openai-responses", "anthropic", "offline"];

/// The events of one model call.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// A model provider.
///
/// Implementations keep no conversation: everything a call needs is in its request.
pub trait Provider: Send + Sync {
    /// Returns the provider's name as sessions record it, e.g. `openai-chat`.
    fn name(&self) -> &str;

    /// Returns the request in the provider's own dialect.
    ///
    /// It MUST be pure: equal requests give byte-identical JSON, and the history of a longer
    /// request begins with the bytes of the shorter one, so that provider-side prompt caches hit.
    fn body(&self, request: &Request) -> serde_json::Value;

    /// Returns the request in the provider's own dialect, with the images that it names.
    ///
    /// As pure as [`body`](Self::body), which it is for a provider that shows no images.
    fn body_with(&self, request: &Request, images: &Images) -> serde_json::Value {
        let _ = images;
        self.body(request)
    }

    /// Sends the request with the images that it names, and streams the answer as
    /// [`stream`](Self::stream) does. An image that is not given is told of in words.
    fn stream_with(&self, request: Request, images: &Images) -> ModelStream {
        let _ = images;
        self.stream(request)
    }

    /// Sends a request whose answer need not be longer than some tokens, nor thought about, where
    /// the provider can be told so, and streams the answer as [`stream`](Self::stream) does.
    fn stream_short(&self, request: Request, max_tokens: u32) -> ModelStream {
        let _ = max_tokens;
        self.stream(request)
    }

    /// Sends the request and streams the answer.
    ///
    /// A good stream ends with exactly one [`ModelEvent::Done`]; a bad one with exactly one error.
    /// Nothing is sent before the first poll, and dropping the stream aborts the request.
    /// [`ModelEvent::Retry`] comes only before the first [`ModelEvent::Delta`].
    fn stream(&self, request: Request) -> ModelStream;
}

/// Something that happened during a model call.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// An attempt failed and the call waits before the next one.
    Retry(ModelTrouble),
    /// A piece of the answer; never empty.
    Delta(ChunkPart),
    /// The answer is complete.
    Done(Completion),
}

/// A complete answer.
///
/// The part at position `i` of `content` is the one whose deltas carried index `i`.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Parts in order of first appearance.
    pub content: Vec<AssistantPart>,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// Tokens, when the provider told them.
    pub usage: Option<Usage>,
    /// What the provider needs back, in the order in which it came: whole items that only the
    /// issuer can read, and marks that say where the visible parts stood between them.
    pub opaque: Vec<Opaque>,
    /// The model that answered, as the provider names it.
    pub model: String,
}
