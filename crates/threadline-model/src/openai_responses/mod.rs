//! OpenAI's Responses API, without anything kept on its server.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses>. Reasoning comes encrypted
//! and goes back as it came, to the model that issued it and to no other.

mod decode;
mod dialect;

use std::sync::Arc;

use serde_json::Value;
use threadline_session::Request;

use crate::{Images, ModelStream, Provider, ProviderConfig, http::Client};

/// The provider's name.
pub(crate) const NAME: &str = "openai-responses";

/// Kind of the mark that a message leaves among the opaque items.
const MESSAGE: &str = "message";
/// Kind of the mark that a call leaves.
const CALL: &str = "function_call";
/// Kind of reasoning.
const REASONING: &str = "reasoning";

/// The provider `openai-responses`.
pub(crate) struct OpenAiResponses {
    client: Arc<Client>,
    options: dialect::Options,
}

impl OpenAiResponses {
    pub(crate) fn new(client: Client, config: &ProviderConfig) -> Self {
        Self {
            client: Arc::new(client),
            options: dialect::Options {
                max_output_tokens: config.max_output_tokens,
                effort: config.reasoning_effort.clone(),
                summary: config.reasoning_summary.clone(),
            },
        }
    }
}

impl Provider for OpenAiResponses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn body(&self, request: &Request) -> Value {
        self.body_with(request, &Images::default())
    }

    fn body_with(&self, request: &Request, images: &Images) -> Value {
        dialect::body(request, images, &self.options).value()
    }

    fn stream(&self, request: Request) -> ModelStream {
        self.stream_with(request, &Images::default())
    }

    fn stream_short(&self, request: Request, max_tokens: u32) -> ModelStream {
        let options = dialect::Options {
            max_output_tokens: Some(max_tokens),
            ..self.options.clone()
        };
        let body = dialect::body(&request, &Images::default(), &options);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("responses", body, decoder)
    }

    fn stream_with(&self, request: Request, images: &Images) -> ModelStream {
        let body = dialect::body(&request, images, &self.options);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("responses", body, decoder)
    }
}
