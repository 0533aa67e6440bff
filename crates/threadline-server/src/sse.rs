//! Server-sent events: framing, keep-alive and headers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _};
use threadline_agent::{Failure, RunEvent};
use threadline_session::codec::Line;
use tokio::time::{Interval, MissedTickBehavior};

use crate::{
    limits::{KEEP_ALIVE, RETRY},
    state::Shared,
};

/// Messages that leave together.
#[derive(Debug, Default)]
pub(crate) struct Frames(String);

impl Frames {
    /// Adds a message. A log event has an id; a control event has none, so that a client that
    /// reconnects asks for what comes after the last log event it got.
    pub(crate) fn push(&mut self, id: Option<u64>, name: &str, data: &str) {
        if let Some(id) = id {
            self.0.push_str(&format!("id: {id}\n"));
        }
        self.0.push_str("event: ");
        self.0
            .extend(name.chars().filter(|c| !matches!(c, '\n' | '\r' | '\0')));
        self.0.push('\n');
        // JSON may hold line ends between its tokens; each line is a data line then.
        for line in data.split(['\n', '\r']) {
            self.0.push_str("data: ");
            self.0.push_str(line);
            self.0.push('\n');
        }
        self.0.push('\n');
    }

    /// Adds a control event.
    pub(crate) fn control(&mut self, name: &str, data: &impl serde::Serialize) {
        match serde_json::to_string(data) {
            Ok(json) => self.push(None, name, &json),
            Err(error) => tracing::error!(name, %error, "a control event does not serialize"),
        }
    }

    /// Adds a line of the log, verbatim.
    pub(crate) fn line(&mut self, line: &Line) {
        let text = String::from_utf8_lossy(&line.raw);
        self.push(Some(line.event.seq), &line.event.kind, &text);
    }

    /// Adds an event of a run.
    pub(crate) fn run_event(&mut self, event: &RunEvent) {
        if let RunEvent::Log(line) = event {
            return self.line(line);
        }
        match event.to_json() {
            Ok(json) => self.push(None, event.name(), json.get()),
            Err(error) => tracing::error!(name = event.name(), %error, "an event is no JSON"),
        }
    }

    /// Adds an error, which is always the last message.
    pub(crate) fn error(&mut self, failure: Failure) {
        self.run_event(&RunEvent::Error(failure));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

/// Sends a comment when nothing was sent for a while.
struct KeepAlive<S> {
    source: Pin<Box<S>>,
    ping: Interval,
}

impl<S> KeepAlive<S> {
    fn new(source: S) -> Self {
        let mut ping = tokio::time::interval(KEEP_ALIVE);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ping.reset();
        Self {
            source: Box::pin(source),
            ping,
        }
    }
}

impl<S: Stream<Item = Frames>> Stream for KeepAlive<S> {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.source.as_mut().poll_next(cx) {
            Poll::Ready(Some(frames)) => {
                self.ping.reset();
                Poll::Ready(Some(Ok(frames.into_bytes())))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self
                .ping
                .poll_tick(cx)
                .map(|_| Some(Ok(Bytes::from_static(b": alive\n\n")))),
        }
    }
}

/// Counts an open stream for as long as it lives.
struct OpenStream(Shared);

impl OpenStream {
    fn new(shared: &Shared) -> Self {
        shared.metrics.stream_opened();
        Self(shared.clone())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.metrics.stream_closed();
    }
}

/// Answers with a stream of events. It ends when its source does or when the client goes.
pub(crate) fn respond<S>(shared: &Shared, source: S) -> Response
where
    S: Stream<Item = Frames> + Send + 'static,
{
    let retry = Bytes::from(format!("retry: {}\n\n", RETRY.as_millis()));
    let open = OpenStream::new(shared);
    let source = source.inspect(move |_| {
        let _ = &open;
    });
    let body =
        futures_util::stream::once(std::future::ready(Ok(retry))).chain(KeepAlive::new(source));
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, no-transform"),
        ),
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (StatusCode::OK, headers, Body::from_stream(body)).into_response()
}

/// Answers with one error event and nothing else.
pub(crate) fn refuse(shared: &Shared, failure: Failure) -> Response {
    let mut frames = Frames::default();
    frames.error(failure);
    respond(
        shared,
        futures_util::stream::once(std::future::ready(frames)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_sends_a_comment_every_fifteen_seconds() {
        let talks = futures_util::stream::once(async {
            tokio::time::sleep(KEEP_ALIVE * 2 + KEEP_ALIVE / 2).await;
            let mut frames = Frames::default();
            frames.push(None, "x", "1");
            frames
        });
        let source = talks.chain(futures_util::stream::pending());
        let mut body = KeepAlive::new(source);
        let begun = tokio::time::Instant::now();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let bytes = body.next().await.unwrap().unwrap();
            seen.push((begun.elapsed().as_secs(), bytes.starts_with(b":")));
        }
        // A message starts the wait anew.
        assert_eq!(seen, [(15, true), (30, true), (37, false), (52, true)]);
    }

    #[test]
    fn a_message_stays_one_message_whatever_is_in_it() {
        let mut frames = Frames::default();
        frames.push(Some(7), "vendor/x\nid: 9", "{\"a\":\n1}");
        assert_eq!(
            frames.0,
            "id: 7\nevent: vendor/xid: 9\ndata: {\"a\":\ndata: 1}\n\n"
        );
    }
}
