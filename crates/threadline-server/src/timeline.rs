//! When what of a turn took how long: `GET /api/agent/sessions/{id}/timeline`.

use std::collections::HashMap;

use axum::{Json, extract::State};
use serde::Serialize;
use threadline_session::{Payload, codec::Line, payload::Outcome};
use threadline_store::{Entry, ReadPos, WindowAt};

use crate::{
    error::Problem,
    input::{self, Params, Path},
    limits::{MAX_LOG_LIMIT, MAX_TURN_ITEMS},
    state::Shared,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    /// The turn; 0 when the session has none.
    turn: u64,
    /// Unix milliseconds.
    started_at: u64,
    /// Unix milliseconds; `null` while it goes on, or when it goes on behind what is shown.
    ended_at: Option<u64>,
    /// Whether only a part of a long turn is shown: its first with a number, else its last.
    cut: bool,
    /// In the order in which they began.
    spans: Vec<Span>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    kind: Kind,
    label: String,
    step: u64,
    /// The event that it begins with.
    seq: u64,
    /// Unix milliseconds.
    started_at: u64,
    /// Unix milliseconds.
    ended_at: Option<u64>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Model,
    Tool,
    Approval,
}

/// `GET /api/agent/sessions/{id}/timeline`
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    params: Params,
) -> Result<Json<Timeline>, Problem> {
    let id = input::session_id(id)?;
    let number = match params.get("turn") {
        Some(_) => Some(params.number("turn", 0, 1..=u64::MAX)?),
        None => None,
    };
    let store = shared.agents.store();
    let at = number.map_or(WindowAt::End, WindowAt::Turn);
    let window = store.window(&id, at, MAX_TURN_ITEMS).await?;
    let shown = match number {
        Some(_) => window.turns.first(),
        None => window.turns.last(),
    };
    let Some(turn) = shown else {
        return Ok(Json(Timeline {
            turn: 0,
            started_at: 0,
            ended_at: None,
            cut: false,
            spans: Vec::new(),
        }));
    };
    let head = turn.head.clone();
    let first = head.start_seq.max(window.from);
    let end = head.end_seq.map_or(window.to, |seq| seq + 1).min(window.to);
    let mut spans = Spans::default();
    let mut next = Some(ReadPos::at(first));
    while let Some(from) = next.filter(|from| from.seq < end) {
        let page = store.read(&id, from, MAX_LOG_LIMIT).await?;
        for entry in &page.entries {
            if let Entry::Line(line, _) = entry
                && line.event.seq < end
            {
                spans.take(line);
            }
        }
        next = page.next;
    }
    Ok(Json(Timeline {
        turn: head.turn,
        started_at: head.started_at,
        ended_at: head.ended_at,
        cut: first > head.start_seq || (head.end_seq.is_none() && window.cut),
        spans: spans.done,
    }))
}

/// Spans in the making.
#[derive(Default)]
struct Spans {
    done: Vec<Span>,
    step: u64,
    /// The model call, and the calls and questions that have no end yet, by their ids.
    model: Option<usize>,
    tools: HashMap<String, usize>,
    questions: HashMap<String, usize>,
}

impl Spans {
    fn take(&mut self, line: &Line) {
        let (seq, time) = (line.event.seq, line.event.time);
        match line.event.payload() {
            Ok(Payload::StepStart(start)) => {
                self.step = start.step;
                self.model =
                    Some(self.begin(Kind::Model, format!("Step {}", start.step), seq, time));
            }
            Ok(Payload::AssistantMessage(_) | Payload::StepEnd(_) | Payload::TurnEnd(_)) => {
                let model = self.model.take();
                self.end(model, time, None);
            }
            Ok(Payload::ToolStart(start)) => {
                let at = self.begin(Kind::Tool, start.name, seq, time);
                self.tools.insert(start.call_id, at);
            }
            Ok(Payload::ToolResult(result)) => {
                let tool = self.tools.remove(&result.call_id);
                self.end(tool, time, Some(result.outcome));
            }
            Ok(Payload::ApprovalAsked(asked)) => {
                let at = self.begin(Kind::Approval, asked.name, seq, time);
                self.questions.insert(asked.approval_id, at);
            }
            Ok(Payload::ApprovalDecided(decided)) => {
                let question = self.questions.remove(&decided.approval_id);
                self.end(question, time, None);
            }
            _ => {}
        }
    }

    fn begin(&mut self, kind: Kind, label: String, seq: u64, time: u64) -> usize {
        self.done.push(Span {
            kind,
            label,
            step: self.step,
            seq,
            started_at: time,
            ended_at: None,
            outcome: None,
        });
        self.done.len() - 1
    }

    fn end(&mut self, at: Option<usize>, time: u64, outcome: Option<Outcome>) {
        if let Some(span) = at.and_then(|at| self.done.get_mut(at)) {
            span.ended_at = Some(time);
            span.outcome = outcome;
        }
    }
}
