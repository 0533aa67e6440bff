//! The read model by turn, in pages: `GET /api/agent/sessions/{id}/turns`.

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::{Value, json};
use threadline_session::Turn;
use threadline_store::{Damage, ReadError, Window, WindowAt};

use crate::{
    error::{Code, Problem},
    input::{self, Params, Path},
    limits::{MAX_TURN_ITEMS, TURN_ITEMS},
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Turns {
    turns: Vec<Turn>,
    /// First event of the page.
    from: u64,
    /// Behind the last event of the page.
    to: u64,
    /// Whether the page reaches the end of the log.
    at_end: bool,
    /// Whether the last turn goes on behind the page.
    cut: bool,
    /// The last stored event; -1 when there is none. Closers that are only shown do not count.
    last_seq: i64,
    running: bool,
    status: Value,
    damage: Option<Damage>,
}

impl Turns {
    fn new(window: Window) -> Self {
        let status = if window.damage.is_some() {
            json!("damaged")
        } else if window.unsupported.is_some() {
            json!("unsupported")
        } else {
            json!(window.status)
        };
        Self {
            turns: window.turns,
            from: window.from,
            to: window.to,
            at_end: window.at_end,
            cut: window.cut,
            last_seq: i64::try_from(window.end).unwrap_or(i64::MAX) - 1,
            running: window.open && window.stat.writer.is_some(),
            status,
            damage: window.damage,
        }
    }

    fn unreadable(damage: Damage) -> Self {
        Self {
            turns: Vec::new(),
            from: 0,
            to: 0,
            at_end: true,
            cut: false,
            last_seq: -1,
            running: false,
            status: json!("damaged"),
            damage: Some(damage),
        }
    }
}

/// `GET /api/agent/sessions/{id}/turns`
pub(crate) async fn turns(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Turns>, Problem> {
    let id = input::session_id(id)?;
    let at = place(&params)?;
    let limit = params.number("limit", TURN_ITEMS as u64, 1..=MAX_TURN_ITEMS as u64)?;
    let limit = usize::try_from(limit).unwrap_or(TURN_ITEMS);
    match shared.agents.store().window(&id, at, limit).await {
        Ok(window) => Ok(Json(Turns::new(window))),
        Err(ReadError::Corrupt { damage, .. }) => Ok(Json(Turns::unreadable(damage))),
        Err(error) => Err(error.into()),
    }
}

/// Reads where a page is to be; the end of the log when nothing says.
fn place(params: &Params) -> Result<WindowAt, Problem> {
    let mut place = WindowAt::End;
    let mut taken = None;
    for name in ["before", "from", "around", "turn"] {
        if params.get(name).is_none() {
            continue;
        }
        if let Some(other) = taken {
            let detail = format!("`{other}` and `{name}` name two places");
            return Err(Problem::new(Code::InvalidInput, detail).at(name));
        }
        taken = Some(name);
        let number = params.number(name, 0, 0..=u64::MAX)?;
        place = match name {
            "before" => WindowAt::Before(number),
            "from" => WindowAt::From(number),
            "around" => WindowAt::Around(number),
            _ => WindowAt::Turn(number),
        };
    }
    Ok(place)
}
