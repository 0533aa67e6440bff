//! Spans of runs, sent to a collector of OpenTelemetry: OTLP over HTTP, as protobuf.
//!
//! Off unless an address is given. Nothing here can hold up or fail a run: spans are sent by a
//! thread of their own, in batches; what a collector that is down does not take is dropped, and
//! said once. At the end of the program what is left is sent, for a moment at most.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::Handle;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use crate::failure::{Failure, Outcome};

/// Longest time that one batch has to be taken.
const EXPORT_TIME: Duration = Duration::from_secs(10);
/// Longest time that the end of the program waits for what is left.
const FLUSH_TIME: Duration = Duration::from_secs(3);
/// Most bytes of a collector's answer that are read.
const ANSWER_BYTES: usize = 64 * 1024;
/// Where spans are sent below the address of a collector.
const PATH: &str = "/v1/traces";

/// Sends spans until it is ended.
pub(crate) struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Starts sending to a collector.
    pub(crate) fn start(address: &str, runtime: &Handle) -> Outcome<Self> {
        let endpoint = endpoint(address)?;
        let failed = |error: String| Failure::new("internal", format!("--otlp {address}: {error}"));
        // The client wants one also where nothing is encrypted. A second one is refused, and the
        // first is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            // A collector is addressed as it is: no proxy, no other place.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(EXPORT_TIME)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let client = Client {
            http,
            runtime: runtime.clone(),
            endpoint: endpoint.clone(),
            warned: Arc::default(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIME)
            .with_protocol(Protocol::HttpBinary)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", "threadline"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ]);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        Ok(Self { provider })
    }

    /// Returns the layer that takes up the spans of agents, and no events: those are logs.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("threadline"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_level(false)
            .with_target(false)
            .with_filter(filter_fn(|meta| {
                meta.is_span() && meta.target().starts_with("threadline_agent")
            }))
    }

    /// Sends what is left.
    pub(crate) async fn end(self) {
        // It waits for a thread, which waits for this runtime.
        let ended = tokio::task::spawn_blocking(move || {
            // What is not taken was warned of.
            let _ = self.provider.shutdown_with_timeout(FLUSH_TIME);
        });
        let _ = ended.await;
    }
}

/// Returns where spans are sent. Only plain HTTP is spoken.
fn endpoint(address: &str) -> Outcome<String> {
    let refuse = |reason: &str| {
        Failure::usage(format!("--otlp {address}: {reason}")).hint(
            "name a collector, e.g. `--otlp http://127.0.0.1:4318`; one on this machine can send \
             on to others over TLS",
        )
    };
    let url = reqwest::Url::parse(address).map_err(|error| refuse(&error.to_string()))?;
    if url.scheme() != "http" {
        return Err(refuse("only http:// is spoken here"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("an address has no query and no fragment"));
    }
    let base = url.as_str().trim_end_matches('/');
    let base = base.strip_suffix(PATH).unwrap_or(base);
    Ok(format!("{base}{PATH}"))
}

/// Sends requests on the program's runtime, since the thread that makes them has none.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
    endpoint: String,
    warned: Arc<AtomicBool>,
}

impl Client {
    fn warn(&self, reason: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "spans are not taken by {}: {reason}; runs go on, and this is not said again",
                self.endpoint
            );
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let request = self
            .http
            .request(parts.method, parts.uri.to_string())
            .headers(parts.headers)
            .body(body);
        let sent = self.runtime.spawn(async move {
            let mut answer = request.send().await?;
            let mut read = Vec::new();
            while let Some(piece) = answer.chunk().await? {
                let room = ANSWER_BYTES - read.len();
                read.extend(piece.iter().take(room));
                if room <= piece.len() {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((answer.status(), read))
        });
        let (status, read) = match sent.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                self.warn(&crate::text::chain(&error));
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        if !status.is_success() {
            self.warn(&format!("it answers {status}"));
        }
        Ok(Response::builder().status(status).body(read.into())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_to_the_path_of_the_protocol_below_a_plain_address() {
        for (address, wanted) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://h:1/", "http://h:1/v1/traces"),
            ("http://h:1/base/", "http://h:1/base/v1/traces"),
            ("http://h:1/v1/traces", "http://h:1/v1/traces"),
        ] {
            assert_eq!(endpoint(address).unwrap(), wanted);
        }
        for wrong in [
            "",
            "127.0.0.1:4318",
            "https://h",
            "http://h/?a=b",
            "ftp://h",
        ] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
