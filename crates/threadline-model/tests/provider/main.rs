//! The providers against the strict model server and against raw sockets.

#[cfg(test)]
mod faults;
#[cfg(test)]
mod prefix;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod rejected;
#[cfg(test)]
mod strict;
#[cfg(test)]
mod switch;
#[cfg(test)]
mod walk;

#[cfg(test)]
mod support {
    use std::{sync::Arc, time::Duration};

    use futures_util::StreamExt as _;
    use threadline_model::{
        Completion, ModelError, ModelEvent, ModelStream, Provider, ProviderConfig, Secret, build,
    };
    use threadline_session::{
        HistoryItem, Request,
        payload::{AssistantPart, ChunkPart, ContentPart, ModelTrouble, ToolDefinition},
    };

    pub(crate) const KEY: &str = "sk-hunter2-hunter2";

    /// The providers that speak to a server.
    pub(crate) const ONLINE: [&str; 3] = ["openai-chat", "openai-responses", "anthropic"];

    /// A configuration that never waits between attempts.
    pub(crate) fn config(base_url: &str) -> ProviderConfig {
        config_of("openai-chat", base_url)
    }

    pub(crate) fn config_of(provider: &str, base_url: &str) -> ProviderConfig {
        let mut config = ProviderConfig::new(provider);
        config.base_url = Some(base_url.to_owned());
        config.api_key = Some(Secret::new(KEY));
        config.backoff_base = Duration::ZERO;
        config
    }

    pub(crate) fn provider(base_url: &str) -> Arc<dyn Provider> {
        build(config(base_url)).unwrap()
    }

    pub(crate) fn provider_of(name: &str, base_url: &str) -> Arc<dyn Provider> {
        build(config_of(name, base_url)).unwrap()
    }

    pub(crate) fn user(text: &str) -> HistoryItem {
        HistoryItem::User {
            content: vec![ContentPart::text(text)],
        }
    }

    pub(crate) fn request(items: Vec<HistoryItem>) -> Request {
        request_of("openai-chat", items)
    }

    pub(crate) fn request_of(provider: &str, items: Vec<HistoryItem>) -> Request {
        Request {
            provider: provider.into(),
            model: "m".into(),
            system: "You help.".into(),
            tools: vec![ToolDefinition {
                name: "shell".into(),
                description: "Runs a command.".into(),
                parameters: serde_json::json!({"type": "object"}),
            }],
            items,
            temperature: None,
        }
    }

    /// Everything that one call gave.
    #[derive(Debug)]
    pub(crate) struct Outcome {
        pub(crate) retries: Vec<ModelTrouble>,
        pub(crate) chunks: Vec<ChunkPart>,
        pub(crate) end: Result<Completion, ModelError>,
    }

    impl Outcome {
        pub(crate) fn code(&self) -> &'static str {
            self.end.as_ref().map_or_else(ModelError::code, |_| "done")
        }
    }

    /// Runs a call to its end and checks the order of its events.
    pub(crate) async fn call(provider: &dyn Provider, request: Request) -> Outcome {
        drain(provider.stream(request)).await
    }

    pub(crate) async fn drain(mut stream: ModelStream) -> Outcome {
        let (mut retries, mut chunks, mut end) = (Vec::new(), Vec::new(), None);
        while let Some(event) = stream.next().await {
            assert!(end.is_none(), "an event after the last: {event:?}");
            match event {
                Ok(ModelEvent::Retry(trouble)) => {
                    assert!(chunks.is_empty(), "a retry after a delta");
                    retries.push(trouble);
                }
                Ok(ModelEvent::Delta(chunk)) => {
                    assert!(!chunk.delta.is_empty());
                    chunks.push(chunk);
                }
                Ok(ModelEvent::Done(done)) => end = Some(Ok(done)),
                Err(error) => end = Some(Err(error)),
            }
        }
        Outcome {
            retries,
            chunks,
            end: end.expect("a stream ends with Done or an error"),
        }
    }

    pub(crate) fn text(text: &str) -> AssistantPart {
        AssistantPart::Text { text: text.into() }
    }

    pub(crate) fn tool_call(id: &str, arguments: &str) -> AssistantPart {
        AssistantPart::ToolCall {
            call_id: id.into(),
            name: "shell".into(),
            arguments: arguments.into(),
        }
    }

    pub(crate) fn tool_result(id: &str, text: &str) -> HistoryItem {
        HistoryItem::Tool {
            call_id: id.into(),
            name: "shell".into(),
            content: vec![ContentPart::text(text)],
            is_error: false,
        }
    }
}
