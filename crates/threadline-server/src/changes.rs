//! Telling pages that lists have changed: `GET /api/agent/changes`.
//!
//! A message says only that something changed, so that nothing is lost when several changes become
//! one message or a connection is cut: whoever connects is told at once, and looks.

use axum::{extract::State, response::Response};
use futures_util::Stream;
use serde::Serialize;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    limits::CHANGES_GAP,
    sse::{self, Frames},
    state::Shared,
};

#[derive(Serialize)]
struct Changed {
    r#type: &'static str,
}

/// `GET /api/agent/changes`
pub(crate) async fn follow(State(shared): State<Shared>) -> Response {
    let changes = Changes {
        runs: shared.agents.watch(),
        questions: shared.agents.approvals().watch(),
        sessions: shared.changes.subscribe(),
        closing: shared.closing.clone(),
        told: None,
    };
    sse::respond(&shared, changes.into_stream())
}

/// The state of one stream.
struct Changes {
    runs: watch::Receiver<u64>,
    questions: watch::Receiver<u64>,
    sessions: watch::Receiver<u64>,
    closing: CancellationToken,
    told: Option<Instant>,
}

impl Changes {
    fn into_stream(self) -> impl Stream<Item = Frames> + Send + 'static {
        futures_util::stream::unfold(self, async |mut changes| {
            let frames = changes.next().await?;
            Some((frames, changes))
        })
    }

    async fn next(&mut self) -> Option<Frames> {
        if let Some(told) = self.told {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                // A sender that is gone changes nothing any more; the server is going down then.
                changed = self.runs.changed() => changed.ok()?,
                changed = self.questions.changed() => changed.ok()?,
                changed = self.sessions.changed() => changed.ok()?,
            }
            // What comes close after another change is told together with it.
            tokio::time::sleep_until(told + CHANGES_GAP).await;
        }
        for watch in [&mut self.runs, &mut self.questions, &mut self.sessions] {
            watch.mark_unchanged();
        }
        self.told = Some(Instant::now());
        let mut frames = Frames::default();
        frames.control("changed", &Changed { r#type: "changed" });
        Some(frames)
    }
}
