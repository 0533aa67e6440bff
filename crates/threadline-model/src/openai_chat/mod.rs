//! OpenAI's Chat Completions, as OpenAI, DeepSeek, Ollama, vLLM and llama.cpp speak it.

mod decode;
mod dialect;

use std::sync::Arc;

use serde_json::Value;
use threadline_session::Request;

use crate::{ModelStream, Provider, http::Client};

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
        dialect::body(request)
    }

    fn stream(&self, request: Request) -> ModelStream {
        let body = dialect::body(&request);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("chat/completions", &body, decoder)
    }
}
