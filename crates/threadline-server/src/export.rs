//! A session as a file: its log, Markdown for people, or one page of HTML that needs nothing else.
//!
//! Everything is written piece by piece, so that no session is held as a whole.

mod html;
mod markdown;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use threadline_session::{SessionId, ToolItem, Turn};
use threadline_store::{Entry, ReadError, ReadPos, SessionStore, SessionSummary, WindowAt};
use tokio::sync::mpsc;

use crate::{
    error::Problem,
    input::{self, Params, Path},
    limits::{MAX_LOG_LIMIT, TURN_ITEMS},
    state::Shared,
};

/// What a session is exported as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The lines of its log as they are stored, header first.
    Jsonl,
    /// Text for people.
    Markdown,
    /// One page without scripts; images are inside it.
    Html,
}

impl Format {
    fn ending(self) -> (&'static str, &'static str) {
        match self {
            Self::Jsonl => ("jsonl", "application/x-ndjson"),
            Self::Markdown => ("md", "text/markdown; charset=utf-8"),
            Self::Html => ("html", "text/html; charset=utf-8"),
        }
    }
}

/// Says why a session was not exported to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The session cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was written is not wanted any more, or cannot be taken.
    #[error("the export cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

/// Takes the pieces of an export, in order.
pub trait Sink: Send {
    /// Takes the next piece.
    fn take(&mut self, piece: String) -> impl Future<Output = std::io::Result<()>> + Send;
}

impl<F: FnMut(String) -> std::io::Result<()> + Send> Sink for F {
    async fn take(&mut self, piece: String) -> std::io::Result<()> {
        self(piece)
    }
}

/// Gives pieces to a connection, as fast as it takes them.
struct Pieces(mpsc::Sender<std::io::Result<String>>);

impl Sink for Pieces {
    async fn take(&mut self, piece: String) -> std::io::Result<()> {
        let gone = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        self.0.send(Ok(piece)).await.map_err(gone)
    }
}

/// Writes a session. Damage in the middle of a log ends the export with a note that says so.
///
/// # Errors
/// [`ExportError`]; what was written by then is not the whole session.
pub async fn export(
    store: &SessionStore,
    id: &SessionId,
    format: Format,
    sink: &mut impl Sink,
) -> Result<(), ExportError> {
    if format == Format::Jsonl {
        return lines(store, id, sink).await;
    }
    let summary = store.summary(id).await?;
    sink.take(match format {
        Format::Html => html::begin(&summary),
        _ => markdown::begin(&summary),
    })
    .await?;
    let mut from = 0;
    // The part of a turn that the page before ended in.
    let mut open: Option<u64> = None;
    loop {
        let window = store.window(id, WindowAt::From(from), TURN_ITEMS).await?;
        for turn in &window.turns {
            let goes_on = open == Some(turn.head.start_seq);
            open = Some(turn.head.start_seq);
            let piece = match format {
                Format::Html => html::turn(store, turn, goes_on).await,
                _ => markdown::turn(turn, goes_on),
            };
            sink.take(piece).await?;
        }
        if window.at_end || window.to <= from {
            let damage = window.damage.map(|damage| damage.to_string());
            sink.take(match format {
                Format::Html => html::end(damage.as_deref()),
                _ => markdown::end(damage.as_deref()),
            })
            .await?;
            return Ok(());
        }
        from = window.to;
    }
}

async fn lines(
    store: &SessionStore,
    id: &SessionId,
    sink: &mut impl Sink,
) -> Result<(), ExportError> {
    let header = store.header(id).await?;
    sink.take(String::from_utf8_lossy(&header.line).into_owned())
        .await?;
    let mut next = Some(ReadPos::default());
    while let Some(from) = next {
        let page = store.read(id, from, MAX_LOG_LIMIT).await?;
        let mut text = String::new();
        for entry in &page.entries {
            match entry {
                Entry::Header(_) => {}
                Entry::Line(line, _) => {
                    text.push_str(&String::from_utf8_lossy(&line.raw));
                    text.push('\n');
                }
                Entry::Damage(damage) => {
                    let (id, damage) = (id.clone(), damage.clone());
                    return Err(ReadError::Corrupt { id, damage }.into());
                }
            }
        }
        sink.take(text).await?;
        next = page.next;
    }
    Ok(())
}

fn title_of(summary: &SessionSummary) -> &str {
    let named = summary.title.as_deref().or(summary.first_prompt.as_deref());
    named.unwrap_or("Session")
}

/// How a call ended, in a word.
fn outcome(tool: &ToolItem) -> String {
    let word = serde_json::to_value(tool.outcome).ok();
    let word = word.as_ref().and_then(serde_json::Value::as_str);
    word.unwrap_or("no result").to_owned()
}

/// Why a turn ended, when that is worth a sentence.
fn ending(turn: &Turn) -> Option<String> {
    use threadline_session::payload::EndReason;
    match turn.head.reason.as_ref()? {
        EndReason::Completed => None,
        EndReason::Error { message, .. } | EndReason::Limit { message, .. } => {
            Some(format!("The turn ended: {message}"))
        }
        other => Some(format!("The turn ended as {}.", other.name())),
    }
}

/// `GET /api/agent/sessions/{id}/export`
pub(crate) async fn download(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Response, Problem> {
    let id = input::session_id(id)?;
    let formats = [
        ("jsonl", Format::Jsonl),
        ("markdown", Format::Markdown),
        ("html", Format::Html),
    ];
    let format = params.choice("format", Format::Jsonl, &formats)?;
    let store = shared.agents.store().clone();
    // What cannot be begun is a problem, not a broken file.
    store.header(&id).await?;
    let (ending, _) = format.ending();
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{id}.{ending}\""))
        .unwrap_or(HeaderValue::from_static("attachment"));
    let (pieces, taken) = mpsc::channel::<Result<String, std::io::Error>>(4);
    tokio::spawn(async move {
        let mut sink = Pieces(pieces.clone());
        if let Err(error) = export(&store, &id, format, &mut sink).await {
            // The connection breaks off, so that no client takes the part for the whole.
            tracing::info!(%id, %error, "an export was not ended");
            let _gone = pieces
                .send(Err(std::io::Error::other(error.to_string())))
                .await;
        }
    });
    let stream = futures_util::stream::unfold(taken, async |mut taken| {
        let piece = taken.recv().await?;
        Some((piece, taken))
    });
    let headers = [
        // Never shown by a browser on this origin: it is saved.
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (header::CONTENT_DISPOSITION, name),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}
