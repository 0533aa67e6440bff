//! One streamed HTTP call: connecting, retrying, reading, timing out.
//!
//! Shared by every provider that streams server-sent events; a dialect only supplies a body and a
//! [`Decode`].

use std::{collections::VecDeque, error::Error as _, sync::Arc, time::SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::{
    Response, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde_json::Value;
use threadline_session::payload::ChunkPart;
use tokio::time::timeout;

use crate::{
    Completion, ConfigError, ModelError, ModelEvent, ModelStream, ProviderConfig, classify, config,
    limits, reject::Places, render::Body, retry, sse,
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

/// Turns the events of one answer into deltas and a completion. Every attempt begins with a copy
/// of the fresh one.
pub(crate) trait Decode: Clone + Send + 'static {
    /// Takes one event's data.
    fn event(&mut self, data: &str, out: &mut Vec<ChunkPart>) -> Result<Progress, ModelError>;

    /// Ends the answer; [`ModelError::CutStream`] when the model was not finished.
    fn complete(&mut self) -> Result<Completion, ModelError>;
}

/// How a provider is told the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`
    Bearer,
    /// `x-api-key: KEY`, beside the version of the API.
    /// Source: <https://docs.anthropic.com/en/api/versioning>.
    XApiKey,
}

/// The only version of the Messages API that there is.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// A configured HTTP client for one base URL.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<(HeaderName, HeaderValue)>,
    style: KeyHeader,
    key_required: bool,
    config: ProviderConfig,
}

impl Client {
    pub(crate) fn new(
        base: Url,
        config: ProviderConfig,
        style: KeyHeader,
    ) -> Result<Self, ConfigError> {
        let key = config.api_key.as_ref().map(config::Secret::expose);
        let key = match key.filter(|key| !key.is_empty()) {
            None => None,
            Some(key) => {
                let (name, value) = match style {
                    KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
                    KeyHeader::XApiKey => (HeaderName::from_static("x-api-key"), key.to_owned()),
                };
                let mut value = HeaderValue::from_str(&value).map_err(|_| ConfigError::Key)?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        Ok(Self {
            http: http_client(&base, &config)?,
            key_required: !config::is_loopback(&base),
            base,
            key,
            style,
            config,
        })
    }

    /// Returns the address of a route below the base URL.
    fn url(&self, route: &str) -> Url {
        let mut url = self.base.clone();
        let path = url.path().trim_end_matches('/');
        // People paste the whole address, or leave out the version that the route begins with, or
        // do not; nothing is added twice.
        let path = path.strip_suffix(route).unwrap_or(path);
        let path = path.trim_end_matches('/');
        let path = match route.split_once('/') {
            Some((version @ "v1", _)) => path.strip_suffix(version).unwrap_or(path),
            _ => path,
        };
        let path = path.trim_end_matches('/');
        let full = format!("{path}/{route}");
        url.set_path(&full);
        url
    }

    /// Streams one call.
    pub(crate) fn stream<D: Decode>(
        self: &Arc<Self>,
        route: &'static str,
        body: Body,
        decoder: D,
    ) -> ModelStream {
        let call = Call {
            client: Arc::clone(self),
            url: self.url(route),
            body: Bytes::from(body.json),
            places: body.places,
            fresh: decoder.clone(),
            decoder,
            spoken: false,
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
        if self.key_required && self.key.is_none() {
            let variable = config::key_variable(&self.config.provider).unwrap_or("an API key");
            return Err(Failure::lasting(ModelError::MissingKey { variable }));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some((name, value)) = &self.key {
            headers.insert(name.clone(), value.clone());
        }
        if self.style == KeyHeader::XApiKey {
            headers.insert(
                HeaderName::from_static("anthropic-version"),
                ANTHROPIC_VERSION,
            );
        }
        let sent = self
            .http
            .post(url.clone())
            .headers(headers)
            .body(body)
            .send();
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
        let error = self.scrubbed(status, &body, retry_after);
        Failure {
            transient: retry::is_transient(status) && !is_permanent(&error),
            error,
            retry_after,
        }
    }

    async fn not_a_stream(&self, response: Response, kind: &str) -> ModelError {
        let body = self.error_body(response).await;
        let holds_error = serde_json::from_slice::<Value>(&body)
            .is_ok_and(|value| value.get("error").is_some_and(|error| !error.is_null()));
        if holds_error {
            return self.scrubbed(200, &body, None);
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

    fn scrubbed(
        &self,
        status: u16,
        body: &[u8],
        retry_after: Option<std::time::Duration>,
    ) -> ModelError {
        let error = classify::http_error(status, body, retry_after);
        match &self.config.api_key {
            Some(key) => error.map_message(|message| key.scrub(message)),
            None => error,
        }
    }
}

/// Errors that waiting does not change.
fn is_permanent(error: &ModelError) -> bool {
    matches!(
        error,
        ModelError::Quota { .. } | ModelError::ContextLength { .. } | ModelError::ItemRejected(_)
    )
}

/// An attempt that gave no answer.
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
    /// An attempt gave no answer; the next phase says whether there is another one.
    Failed {
        failure: Failure,
        number: u32,
    },
    /// Deltas that arrived before the error are shown before it.
    Fail(ModelError),
    Ended,
}

struct Reading {
    number: u32,
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
    places: Places,
    fresh: D,
    decoder: D,
    /// Whether a delta was given away; nothing is tried again after that.
    spoken: bool,
    queue: VecDeque<ModelEvent>,
    phase: Phase,
}

impl<D: Decode> Call<D> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(Ok(event));
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Ended => return None,
                Phase::Fail(error) => return Some(Err(error.located(&self.places))),
                Phase::Wait { next, delay } => {
                    tokio::time::sleep(delay).await;
                    Phase::Attempt { number: next }
                }
                Phase::Attempt { number } => self.connect(number).await,
                Phase::Failed { failure, number } => self.again(failure, number),
                Phase::Read(reading) => {
                    let number = reading.number;
                    match self.read(reading).await {
                        Ok(phase) => phase,
                        Err(error) => self.broken(error, number),
                    }
                }
            };
        }
    }

    async fn connect(&mut self, number: u32) -> Phase {
        match self.client.attempt(&self.url, self.body.clone()).await {
            Ok(response) => {
                self.decoder = self.fresh.clone();
                Phase::Read(Box::new(Reading {
                    number,
                    response,
                    events: sse::Decoder::default(),
                    received: 0,
                    progress: Progress::Writing,
                }))
            }
            Err(failure) => Phase::Failed { failure, number },
        }
    }

    /// Decides on an error inside a stream: a busy provider may say so after it has said 200.
    fn broken(&mut self, error: ModelError, number: u32) -> Phase {
        let transient = error.status().is_some_and(retry::is_transient) && !is_permanent(&error);
        if !transient || self.spoken {
            return Phase::Fail(error);
        }
        let failure = Failure {
            error,
            transient,
            retry_after: None,
        };
        Phase::Failed { failure, number }
    }

    fn again(&mut self, failure: Failure, number: u32) -> Phase {
        let config = &self.client.config;
        let asked_too_much = failure.retry_after.is_some_and(retry::is_too_long);
        if !failure.transient || asked_too_much || number >= config.max_attempts {
            return Phase::Fail(failure.error);
        }
        let delay = failure
            .retry_after
            .unwrap_or_else(|| retry::backoff(number, config.backoff_base, config.backoff_cap));
        let trouble = failure.error.trouble(number, Some(delay));
        tracing::debug!(
            attempt = number,
            ?delay,
            code = failure.error.code(),
            "model call retried"
        );
        self.queue.push_back(ModelEvent::Retry(trouble));
        Phase::Wait {
            next: number.saturating_add(1),
            delay,
        }
    }

    async fn read(&mut self, mut reading: Box<Reading>) -> Result<Phase, ModelError> {
        let finished = reading.progress == Progress::Finished;
        let idle = self.client.config.idle_timeout;
        let patience = if finished {
            idle.min(limits::FINISH_GRACE)
        } else {
            idle
        };
        let piece = match timeout(patience, reading.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            // The model has said that it is finished; only its usage may be lost.
            Ok(Err(_)) | Err(_) if finished => None,
            Ok(Err(error)) => {
                tracing::debug!(error = %error.without_url(), "model stream broke");
                return Err(ModelError::CutStream);
            }
            Err(_) => return Err(ModelError::Idle { after: idle }),
        };
        let Some(piece) = piece else {
            return self.end(&mut reading);
        };
        reading.received += piece.len() as u64;
        if reading.received > limits::MAX_RESPONSE_BYTES {
            return Err(ModelError::TooLarge {
                what: "bytes of the answer",
                limit: limits::MAX_RESPONSE_BYTES,
            });
        }
        // An error does not lose the deltas before it: the queue goes out first.
        match self.take(&mut reading, Some(&piece)) {
            Err(error) => Err(error),
            Ok(()) if reading.progress == Progress::Complete => {
                // What may still come, or break, does not matter any more.
                let _ = timeout(limits::DRAIN_GRACE, reading.response.chunk()).await;
                self.queue
                    .push_back(ModelEvent::Done(self.decoder.complete()?));
                Ok(Phase::Ended)
            }
            Ok(()) => Ok(Phase::Read(reading)),
        }
    }

    fn end(&mut self, reading: &mut Reading) -> Result<Phase, ModelError> {
        // What is left is half an event, most likely: if it cannot be read, the stream was cut.
        match self.take(reading, None) {
            Ok(()) | Err(ModelError::Malformed { .. }) => {}
            Err(error) => return Err(error),
        }
        self.queue
            .push_back(ModelEvent::Done(self.decoder.complete()?));
        Ok(Phase::Ended)
    }

    fn take(&mut self, reading: &mut Reading, piece: Option<&[u8]>) -> Result<(), ModelError> {
        let Reading {
            events, progress, ..
        } = reading;
        let (decoder, queue, spoken) = (&mut self.decoder, &mut self.queue, &mut self.spoken);
        let mut parts = Vec::new();
        let mut sink = |data: &str| {
            if *progress == Progress::Complete {
                return Ok(());
            }
            let result = decoder.event(data, &mut parts);
            *spoken |= !parts.is_empty();
            queue.extend(parts.drain(..).map(ModelEvent::Delta));
            *progress = result?;
            Ok(())
        };
        let result = match piece {
            Some(piece) => events.feed(piece, &mut sink),
            None => events.finish(&mut sink),
        };
        match &self.client.config.api_key {
            Some(key) => result.map_err(|e| e.map_message(|message| key.scrub(message))),
            None => result,
        }
    }
}

/// Makes the HTTP client for one base URL.
fn http_client(base: &Url, config: &ProviderConfig) -> Result<reqwest::Client, ConfigError> {
    client(base, config.connect_timeout).map_err(|source| ConfigError::Client { source })
}

/// Makes an HTTP client for one address: TLS through rustls with the system's certificates, else
/// Mozilla's; no redirects, and no proxy to this machine.
///
/// # Errors
/// When no certificates can be used.
pub fn client(
    base: &Url,
    connect_timeout: std::time::Duration,
) -> Result<reqwest::Client, reqwest::Error> {
    // Another part of the process may have chosen a provider first; that one is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("threadline/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            // A redirect would carry the conversation, and maybe the key, somewhere else.
            .redirect(redirect::Policy::none());
        if config::is_loopback(base) {
            builder.no_proxy()
        } else {
            builder
        }
    };
    if base.scheme() == "http" {
        // Without TLS no certificates are needed, so none are read.
        return builder().tls_certs_only([]).build();
    }
    // The system's own roots, so that what an administrator trusts is trusted here.
    builder().build().or_else(|error| {
        tracing::warn!(%error, "no usable system certificates, using Mozilla's");
        builder().tls_certs_only(bundled_roots()).build()
    })
}

fn bundled_roots() -> impl Iterator<Item = reqwest::Certificate> {
    webpki_root_certs::TLS_SERVER_ROOT_CERTS
        .iter()
        .filter_map(|der| reqwest::Certificate::from_der(der).ok())
}

/// Makes a client for a quick question to this machine.
pub(crate) fn local_client(base: &Url, config: &ProviderConfig) -> Option<reqwest::Client> {
    http_client(base, config).ok()
}

fn content_type(response: &Response) -> String {
    response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// A certificate that is refused now is refused in ten seconds too.
fn is_certificate_error(error: &reqwest::Error) -> bool {
    let refuses = |error: &(dyn std::error::Error + 'static)| {
        matches!(
            error.downcast_ref::<rustls::Error>(),
            Some(rustls::Error::InvalidCertificate(_))
        )
    };
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if refuses(error) || inner.is_some_and(|inner| refuses(inner)) {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_roots_make_a_client() {
        let base = config::base_url("https://model.invalid/v1").unwrap();
        // Chooses the process's TLS provider.
        http_client(&base, &ProviderConfig::new("openai-chat")).unwrap();
        assert!(bundled_roots().count() > 50);
        reqwest::Client::builder()
            .tls_certs_only(bundled_roots())
            .build()
            .unwrap();
    }
}
