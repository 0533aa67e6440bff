//! OpenAI's Chat Completions, as OpenAI, DeepSeek, Ollama, vLLM and llama.cpp speak it.

mod decode;
mod dialect;

use std::sync::Arc;

use serde_json::Value;
use threadline_session::Request;

use crate::{Images, ModelStream, Provider, http::Client};

/// The provider `openai-chat`.
pub(crate) struct OpenAiChat {
    client: Arc<Client>,
}

impl OpenAiChat {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client: Arc::new(client),
        }
    }
}

impl Provider for OpenAiChat {
    fn name(&self) -> &'static str {
        "openai-chat"
    }

    fn body(&self, request: &Request) -> Value {
        self.body_with(request, &Images::default())
    }

    fn body_with(&self, request: &Request, images: &Images) -> Value {
        dialect::body(request, images).value()
    }

    fn stream(&self, request: Request) -> ModelStream {
        self.stream_with(request, &Images::default())
    }

    fn stream_with(&self, request: Request, images: &Images) -> ModelStream {
        let body = dialect::body(&request, images);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("chat/completions", body, decoder)
    }
}
