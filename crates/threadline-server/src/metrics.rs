//! Counters in the text format of Prometheus.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
};

use threadline_agent::{Counts, limits::SYNC_BUCKETS_MS};

use crate::state::Shared;

/// Counts what happens.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    started: AtomicU64,
    streams: AtomicU64,
    requests: Mutex<BTreeMap<(String, u16), u64>>,
}

impl Metrics {
    pub(crate) fn run_started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stream_opened(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stream_closed(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    fn request(&self, route: &str, class: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route.to_owned(), class)).or_default() += 1;
    }

    fn text(&self, running: usize, version: &str, counts: &Counts) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            );
        };
        one(
            "threadline_runs_running",
            "gauge",
            "Runs of this process.",
            running as u64,
        );
        let started = self.started.load(Ordering::Relaxed);
        one(
            "threadline_runs_started_total",
            "counter",
            "Runs started over HTTP.",
            started,
        );
        let streams = self.streams.load(Ordering::Relaxed);
        one(
            "threadline_sse_connections",
            "gauge",
            "Open event streams.",
            streams,
        );
        let version: String = version
            .chars()
            .filter(|c| !matches!(c, '"' | '\\' | '\n'))
            .collect();
        let _ = writeln!(
            text,
            "# HELP threadline_info The version.\n# TYPE threadline_info gauge\n\
             threadline_info{{version=\"{version}\"}} 1\n\
             # HELP threadline_http_requests_total Requests by route and class of status.\n\
             # TYPE threadline_http_requests_total counter"
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, class), count) in requests.iter() {
            // Routes are this program's own templates, so nothing in them needs escaping.
            let _ = writeln!(
                text,
                "threadline_http_requests_total{{route=\"{route}\",status=\"{class}xx\"}} {count}"
            );
        }
        agents(&mut text, counts);
        text
    }
}

/// Writes what the agents have counted.
fn agents(text: &mut String, counts: &Counts) {
    for (name, label, help, words) in [
        (
            "threadline_runs_ended_total",
            "reason",
            "Runs that have ended, by reason.",
            &counts.runs,
        ),
        (
            "threadline_model_calls_total",
            "outcome",
            "Model calls of steps, by ok or the code of the error.",
            &counts.model_calls,
        ),
        (
            "threadline_tokens_total",
            "kind",
            "Tokens of model calls; input and output have the other kinds in them.",
            &counts.tokens,
        ),
        (
            "threadline_tool_calls_total",
            "outcome",
            "Tool calls, by outcome.",
            &counts.tool_calls,
        ),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for (word, count) in words {
            let _ = writeln!(text, "{name}{{{label}=\"{word}\"}} {count}");
        }
    }
    let _ = writeln!(
        text,
        "# HELP threadline_model_retries_total Attempts of model calls that were followed by \
         another.\n# TYPE threadline_model_retries_total counter\n\
         threadline_model_retries_total {}",
        counts.model_retries
    );
    let name = "threadline_sync_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} Time of appends that were on stable storage on return.\n\
         # TYPE {name} histogram"
    );
    for (most, count) in SYNC_BUCKETS_MS.iter().zip(counts.syncs.buckets) {
        let most = *most as f64 / 1000.0;
        let _ = writeln!(text, "{name}_bucket{{le=\"{most}\"}} {count}");
    }
    let (sum, count) = (counts.syncs.sum.as_secs_f64(), counts.syncs.count);
    let _ = writeln!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
    );
}

/// Counts a request under its route's template, so that ids do not become labels.
pub(crate) async fn count(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let response = next.run(request).await;
    shared
        .metrics
        .request(&route, response.status().as_u16() / 100);
    response
}

/// `GET /metrics`
pub(crate) async fn show(State(shared): State<Shared>) -> Response {
    let counts = shared.agents.config().counters.counts();
    let running = shared.agents.runs().len();
    let text = shared.metrics.text(running, &shared.version, &counts);
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
        .into_response()
}
