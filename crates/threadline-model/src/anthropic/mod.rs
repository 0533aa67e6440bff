//! Anthropic's Messages API.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>. Thinking comes signed and goes back as it
//! came, to the model that issued it and to no other.

mod decode;
mod dialect;

use std::sync::Arc;

use serde_json::Value;
use threadline_session::Request;

use crate::{Images, ModelStream, Provider, ProviderConfig, http::Client};

/// The provider's name.
pub(crate) const NAME: &str = "anthropic";

/// Kind of the mark that a text block leaves among the opaque blocks.
const TEXT: &str = "text";
/// Kind of the mark that a tool call leaves.
const CALL: &str = "tool_use";

/// The provider `anthropic`.
pub(crate) struct Anthropic {
    client: Arc<Client>,
    options: dialect::Options,
}

impl Anthropic {
    pub(crate) fn new(client: Client, config: &ProviderConfig) -> Self {
        Self {
            client: Arc::new(client),
            options: dialect::Options {
                max_output_tokens: config.max_output_tokens,
                thinking: config.thinking,
            },
        }
    }
}

impl Provider for Anthropic {
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
            // A budget would not leave room for the answer.
            thinking: None,
        };
        let body = dialect::body(&request, &Images::default(), &options);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("v1/messages", body, decoder)
    }

    fn stream_with(&self, request: Request, images: &Images) -> ModelStream {
        let body = dialect::body(&request, images, &self.options);
        let decoder = decode::Answer::new(request.model);
        self.client.stream("v1/messages", body, decoder)
    }
}
