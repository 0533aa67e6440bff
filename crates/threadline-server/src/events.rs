//! Following a session: `GET /api/agent/sessions/{id}/events`.

use axum::{extract::State, http::HeaderMap, response::Response};
use futures_util::Stream;
use serde::Serialize;
use threadline_session::{Patch, SessionId, codec::Line, types};
use threadline_store::{ReadError, ReadPos, SessionStore};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Code, Problem},
    fold::{Fold, Seen, Told, Watcher},
    input::{self, Params, Path},
    sse::{self, Frames},
    state::Shared,
};

#[derive(Serialize)]
struct ViewMessage<'a> {
    seq: u64,
    patches: &'a [Patch],
}

#[derive(Serialize)]
struct CaughtUp {
    r#type: &'static str,
    /// The last event given; -1 before the first.
    seq: i64,
}

/// `GET /api/agent/sessions/{id}/events`
pub(crate) async fn follow(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = input::session_id(id)?;
    let last = match headers.get("last-event-id") {
        None => None,
        // A value that is no text is no number either.
        Some(value) => Some(value.to_str().unwrap_or("not text")),
    };
    let after = input::start_after(last, params.get("after"))?;
    let view = params.choice("view", false, &[("1", true), ("0", false), ("true", true)])?;
    let store = shared.agents.store().clone();
    check_position(&store, &id, after).await?;
    let following = Following::new(store, id, after, view, shared.closing.clone());
    Ok(sse::respond(&shared, following.into_stream()))
}

/// A position that was never given is an error, not a stream that waits for the log to grow there.
async fn check_position(
    store: &SessionStore,
    id: &SessionId,
    after: Option<u64>,
) -> Result<(), Problem> {
    store.stat(id).await?;
    let Some(after) = after else {
        return Ok(());
    };
    let page = store.read(id, ReadPos::at(after), 1).await?;
    if page.entries.is_empty() {
        let detail = format!("session {id} has no event {after}");
        return Err(Problem::new(Code::BadCursor, detail)
            .at("after")
            .hint("start again without a position"));
    }
    Ok(())
}

/// The state of one stream.
struct Following {
    watcher: Watcher,
    fold: Fold,
    after: Option<u64>,
    view: bool,
    ended: bool,
    store: SessionStore,
    id: SessionId,
    closing: CancellationToken,
}

impl Following {
    fn new(
        store: SessionStore,
        id: SessionId,
        after: Option<u64>,
        view: bool,
        closing: CancellationToken,
    ) -> Self {
        Self {
            watcher: Watcher::new(store.clone(), id.clone(), after),
            fold: Fold::new(store.clone(), id.clone()),
            after,
            view,
            ended: false,
            store,
            id,
            closing,
        }
    }

    fn into_stream(self) -> impl Stream<Item = Frames> + Send + 'static {
        futures_util::stream::unfold(self, async |mut following| {
            let frames = following.next().await?;
            Some((frames, following))
        })
    }

    async fn next(&mut self) -> Option<Frames> {
        while !self.ended {
            let mut frames = Frames::default();
            if let Err(error) = self.advance(&mut frames).await {
                // Read behind what was given already: damage, or the session is gone.
                frames.error(Problem::from(error).into_failure());
                self.ended = true;
            }
            if !frames.is_empty() {
                return Some(frames);
            }
        }
        None
    }

    async fn advance(&mut self, frames: &mut Frames) -> Result<(), ReadError> {
        if self.view
            && let Some(after) = self.after
        {
            // What the client has by now: folded, not given again.
            self.fold.advance_to(after.saturating_add(1)).await?;
        }
        let open = (self.view && self.fold.is_open()).then(|| self.fold.next_seq());
        let seen = tokio::select! {
            biased;
            seen = self.watcher.next(open) => seen?,
            () = self.closing.cancelled() => {
                let next = ReadPos::at(self.after.map_or(0, |seq| seq.saturating_add(1)));
                if self.store.read(&self.id, next, 1).await?.entries.is_empty() {
                    // Without an error, so that clients connect again when the server is back.
                    self.ended = true;
                    return Ok(());
                }
                // The ends of the runs are given before the stream ends.
                self.watcher.next(open).await?
            }
        };
        match seen {
            Seen::Line(line) => self.give(&line, frames).await?,
            Seen::CaughtUp => {
                let seq = self
                    .after
                    .map_or(-1, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
                frames.control(
                    "caught_up",
                    &CaughtUp {
                        r#type: "caught_up",
                        seq,
                    },
                );
            }
            Seen::Abandoned => self.interrupted(frames),
        }
        Ok(())
    }

    async fn give(&mut self, line: &Line, frames: &mut Frames) -> Result<(), ReadError> {
        let seq = line.event.seq;
        let told = if self.view || tells(&line.event.kind) {
            self.fold.advance_to(seq).await?;
            self.fold.take(line).await?
        } else {
            Told::default()
        };
        if self.view && !told.patches.is_empty() {
            frames.control(
                "view",
                &ViewMessage {
                    seq,
                    patches: &told.patches,
                },
            );
        }
        if let Some(event) = told.before {
            frames.run_event(&event);
        }
        frames.line(line);
        if let Some(event) = told.after {
            frames.run_event(&event);
        }
        self.after = Some(seq);
        Ok(())
    }

    /// Nobody writes the open turn any more, and the log does not say so yet. The closers that the
    /// next opening will store are shown under the number of the first of them: when it comes, its
    /// own view is the one message that a client may pass over, and it says the same.
    fn interrupted(&self, frames: &mut Frames) {
        let patches = self.fold.interrupted();
        if !patches.is_empty() {
            let seq = self.fold.next_seq();
            frames.control(
                "view",
                &ViewMessage {
                    seq,
                    patches: &patches,
                },
            );
        }
    }
}

/// Returns whether something is told besides the event itself, also without the read model.
fn tells(kind: &str) -> bool {
    matches!(
        kind,
        types::TURN_START | types::TURN_END | types::APPROVAL_ASKED | types::APPROVAL_DECIDED
    )
}
