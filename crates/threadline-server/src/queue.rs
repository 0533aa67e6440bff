//! Messages that wait for their turn.

use axum::{Json, extract::State, http::StatusCode};
use serde::Serialize;
use threadline_agent::{Run, RunInput};
use threadline_session::{
    RunId,
    payload::{ContentPart, Delivery},
};

use crate::{
    error::Problem,
    input::{self, ImageBody, Path},
    runs,
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waiting {
    message_id: String,
    text: String,
    images: Vec<Image>,
    delivery: Delivery,
}

/// An image of a message that waits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    media_type: String,
    blob: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    messages: Vec<Waiting>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queued {
    message_id: String,
    seq: u64,
    /// The run that began with it, when the session had none.
    run_id: Option<RunId>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivered {
    /// `None` when nothing waits, or a run is under way and will see to it.
    run_id: Option<RunId>,
}

/// `GET /api/agent/sessions/{id}/queue`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Queue>, Problem> {
    let id = input::session_id(id)?;
    let waiting = shared.agents.store().inbox(&id).await?;
    let messages = waiting
        .into_iter()
        .map(|queued| Waiting {
            message_id: queued.message_id,
            text: threadline_session::payload::plain_text(&queued.content),
            images: queued.content.iter().filter_map(image).collect(),
            delivery: queued.delivery,
        })
        .collect();
    Ok(Json(Queue { messages }))
}

fn image(part: &ContentPart) -> Option<Image> {
    match part {
        ContentPart::Image { media_type, blob } => Some(Image {
            media_type: media_type.clone(),
            blob: blob.clone(),
        }),
        ContentPart::Text { .. } | ContentPart::Unknown => None,
    }
}

/// `POST /api/agent/sessions/{id}/queue`
pub(crate) async fn add(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: ImageBody,
) -> Result<(StatusCode, Json<Queued>), Problem> {
    let id = input::session_id(id)?;
    let message = input::queue(&body.0)?;
    shared.open()?;
    let mut run = RunInput::default();
    runs::bound(&shared, Some(&id), &mut run).await?;
    // A client that goes away in the middle must not leave a turn behind that nobody drives.
    let agents = shared.agents.clone();
    let task = tokio::spawn(async move { agents.queue(&id, message, run).await });
    let (queued, begun) = task.await.map_err(broke)??;
    shared.changed();
    let queued = Queued {
        message_id: queued.message_id,
        seq: queued.seq,
        run_id: begun.map(|run| note(&shared, &run)),
    };
    Ok((StatusCode::ACCEPTED, Json(queued)))
}

/// `POST /api/agent/sessions/{id}/queue/deliver`
pub(crate) async fn deliver(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Delivered>), Problem> {
    let id = input::session_id(id)?;
    shared.open()?;
    let mut run = RunInput::default();
    runs::bound(&shared, Some(&id), &mut run).await?;
    let agents = shared.agents.clone();
    let task = tokio::spawn(async move { agents.deliver(&id, run).await });
    let begun = task.await.map_err(broke)??;
    let run_id = begun.map(|run| note(&shared, &run));
    Ok((StatusCode::ACCEPTED, Json(Delivered { run_id })))
}

/// `DELETE /api/agent/sessions/{id}/queue/{messageId}`
pub(crate) async fn drop(
    State(shared): State<Shared>,
    Path((id, message)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id = input::session_id(id)?;
    shared.agents.withdraw(&id, &message).await?;
    shared.changed();
    Ok(StatusCode::NO_CONTENT)
}

fn note(shared: &Shared, run: &Run) -> RunId {
    shared.metrics.run_started();
    // Shutdown may have begun meanwhile, and have missed this run.
    if shared.stopping.is_cancelled() {
        run.cancel();
    }
    run.run_id().clone()
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn broke(error: tokio::task::JoinError) -> Problem {
    Problem::new(
        crate::error::Code::Internal,
        format!("starting the run broke: {error}"),
    )
}
