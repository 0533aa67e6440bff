//! One streamed HTTP call: connecting, retrying, reading, timing out.
//!
//! Shared by every provider that streams server-sent events; a dialect only supplies a body and a
//! [`Decode`].

use std::{collections::VecDeque, error::Error as _, sync::Arc, time::SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect,
};
use serde_json::Value;
use threadline_session::payload::ChunkPart;
use tokio::time::timeout;

use crate::{
    Completion, ConfigError, ModelError, ModelEvent, ModelStream, ProviderConfig, config, limits, retry, sse,
};

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The model is still writing.
    Writing,
    /// The model is finished; usage may follow.
    Finished,
    /// Nothing more will come.
    Complete,
}

/// Turns the events of one answer into deltas and a completion.
pub(crate) trait Decode: Send + 'static {
    /// Takes one event's data.
    fn event(&mut self, data: &str, out: &mut Vec<ChunkPart>) -> Result<Progress, ModelError>;

    /// Ends the answer; [`ModelError::CutStream`] when the model was not finished.
    fn complete(&mut self) -> Result<Completion, ModelError>;
}

/// A configured HTTP client for one base URL.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
    key_required: bool,
    config: ProviderConfig,
}

impl Client {
    pub(crate) fn new(base: Url, config: ProviderConfig) -> Result<Self, ConfigError> {
        let key = config.api_key.as_ref().map(config::Secret::expose);
        let authorization = match key.filter(|key| !key.is_empty()) {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                    .map_err(|_| ConfigError::Key)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            http: http_client(&base, &config)?,
            key_required: !config::is_loopback(&base),
            base,
            authorization,
            config,
        })
    }

    /// Returns the address of a route below the base URL.
    fn url(&self, route: &str) -> Url {
        let mut url = self.base.clone();
        let path = url.path().trim_end_matches('/');
        // People paste the whole address; the route is not added twice.
        let path = path.strip_suffix(route).unwrap_or(path).trim_end_matches('/');
        let full = format!("{path}/{route}");
        url.set_path(&full);
        url
    }

    /// Streams one call.
    pub(crate) fn stream<D: Decode>(
        self: &Arc<Self>,
        route: &'static str,
        body: &Value,
        decoder: D,
    ) -> ModelStream {
        let call = Call {
            client: Arc::clone(self),
            url: self.url(route),
            body: Bytes::from(body.to_string()),
            decoder,
            queue: VecDeque::new(),
            phase: Phase::Attempt { number: 1 },
        };
        stream::unfold(call, |mut call| async move {
            let event = call.next().await?;
            Some((event, call))
        })
        .boxed()
    }

    async fn attempt(&self, url: &Url, body: Bytes) -> Result<Response, Failure> {
        if self.key_required && self.authorization.is_none() {
            let variable = config::key_variable(&self.config.provider).unwrap_or("an API key");
            return Err(Failure::lasting(ModelError::MissingKey { variable }));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        let sent = self.http.post(url.clone()).headers(headers).body(body).send();
        let response = match timeout(self.config.first_byte_timeout, sent).await {
            Err(_) => {
                return Err(Failure::lasting(ModelError::FirstByte {
                    after: self.config.first_byte_timeout,
                }));
            }
            Ok(Err(error)) => return Err(self.unreachable(url, error)),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let kind = content_type(&response);
        if kind.starts_with("application/json") || kind.starts_with("text/html") {
            return Err(Failure::lasting(self.not_a_stream(response, &kind).await));
        }
        Ok(response)
    }

    fn unreachable(&self, url: &Url, error: reqwest::Error) -> Failure {
        let lasting = error.is_builder() || is_certificate_error(&error);
        let error = ModelError::Connect {
            url: url.to_string(),
            source: error.without_url(),
        };
        Failure {
            error,
            transient: !lasting,
            retry_after: None,
        }
    }

    async fn refused(&self, response: Response) -> Failure {
        let status = response.status().as_u16();
        let retry_after = retry::retry_after(response.headers(), SystemTime::now());
        let body = self.error_body(response).await;
        let error = self.classify(status, &body, retry_after);
        let permanent = matches!(
            error,
            ModelError::Quota { .. } | ModelError::ContextLength { .. }
        );
        Failure {
            error,
            transient: retry::is_transient(status) && !permanent,
            retry_after,
        }
    }

    async fn not_a_stream(&self, response: Response, kind: &str) -> ModelError {
        let body = self.error_body(response).await;
        let holds_error = serde_json::from_slice::<Value>(&body)
            .is_ok_and(|value| value.get("error").is_some_and(|error| !error.is_null()));
        if holds_error {
            return self.classify(200, &body, None);
        }
        ModelError::Malformed {
            reason: format!("the server answered `{kind}` instead of an event stream"),
        }
    }

    /// Reads as much of an error answer as is needed, for as long as is sensible.
    async fn error_body(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(piece)) = response.chunk().await {
                let room = limits::MAX_ERROR_BYTES - body.len();
                body.extend_from_slice(&piece[..piece.len().min(room)]);
                if body.len() == limits::MAX_ERROR_BYTES {
                    break;
                }
            }
        };
        // What has arrived by then is shown; the status says the rest.
        let _ = timeout(self.config.idle_timeout.min(limits::CONNECT_TIMEOUT), read).await;
        body
    }

    fn classify(
        &self,
        status: u16,
        body: &[u8],
        retry_after: Option<std::time::Duration>,
    ) -> ModelError {
        let error = classify(status, body, retry_after);
        match &self.config.api_key {
            Some(key) => error.map_message(|message| key.scrub(message)),
            None => error,
        }
    }
}

/// An attempt that did not open a stream.
struct Failure {
    error: ModelError,
    transient: bool,
    retry_after: Option<std::time::Duration>,
}

impl Failure {
    fn lasting(error: ModelError) -> Self {
        Self {
            error,
            transient: false,
            retry_after: None,
        }
    }
}

enum Phase {
    Attempt {
        number: u32,
    },
    Wait {
        next: u32,
        delay: std::time::Duration,
    },
    Read(Box<Reading>),
    Ended,
}

struct Reading {
    response: Response,
    events: sse::Decoder,
    received: u64,
    progress: Progress,
}

/// The whole state of one call; dropping it closes the connection.
struct Call<D> {
    client: Arc<Client>,
    url: Url,
    body: Bytes,
    decoder: D,
    queue: VecDeque<ModelEvent>,
    phase: Phase,
}

impl<D: Decode> Call<D> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(Ok(event));
            }
            let result = match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Ended => return None,
                Phase::Wait { next, delay } => {
                    tokio::time::sleep(delay).await;
                    self.phase = Phase::Attempt { number: next };
                    Ok(())
                }
                Phase::Attempt { number } => self.connect(number).await,
                Phase::Read(reading) => self.read(reading).await,
            };
            if let Err(error) = result {
                // Deltas that arrived before the error are shown before it.
                if self.queue.is_empty() {
                    return Some(Err(error));
                }
                let event = self.queue.pop_front();
                self.phase = Phase::Ended;
                self.failed = Some(error);
                return event.map(Ok);
            }
        }
    }
}
