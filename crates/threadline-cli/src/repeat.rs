//! A run that was asked for again under the same idempotency key: shown from the log, not run.

use serde_json::json;
use threadline_agent::{RunEvent, RunPolicy};
use threadline_session::SessionId;
use threadline_session::{Turn, payload::EndReason};
use threadline_store::{ReadPos, SessionStore};

use crate::{
    failure::{Exit, Failure, Outcome},
    run,
    ui::Ui,
};

/// Shows the turn that event `seq` belongs to as its run would have.
pub(crate) async fn show(
    ui: Ui,
    store: &SessionStore,
    id: &SessionId,
    seq: u64,
    json: bool,
) -> Outcome<Exit> {
    let inspected = store.inspect(id).await?;
    let turn = inspected
        .view
        .turns()
        .iter()
        .rev()
        .find(|turn| turn.head.start_seq <= seq);
    let Some(turn) = turn else {
        return Err(Failure::new(
            "internal",
            format!("event {seq} of session {id} is in no turn"),
        ));
    };
    ui.note("This key was used before; its first run is shown and nothing is run.");
    let Some(reason) = &turn.head.reason else {
        return Err(Failure::new(
            "locked",
            format!("the first run with this key, in session {id}, is still going on"),
        )
        .hint(format!("look at it with `threadline show {id}`")));
    };
    if json {
        lines(ui, store, id, turn, reason).await?;
    } else {
        ui.line(&ui.foreign(&turn.answer()))?;
    }
    let exit = run::finished(ui, id, reason);
    ui.note(&run::go_on(ui, id));
    Ok(exit)
}

async fn lines(
    ui: Ui,
    store: &SessionStore,
    id: &SessionId,
    turn: &Turn,
    reason: &EndReason,
) -> Outcome<()> {
    let head = &turn.head;
    ui.json(&json!({
        "type": "run_started",
        "runId": head.run_id,
        "sessionId": id,
        "resumed": head.turn > 1,
        "policy": head.context.as_ref().map(RunPolicy::from),
    }))?;
    let last = head.end_seq.unwrap_or(u64::MAX);
    let mut next = Some(ReadPos::at(head.start_seq));
    while let Some(from) = next {
        let page = store.read(id, from, usize::MAX).await?;
        for entry in page.entries {
            if let threadline_store::Entry::Line(line, _) = entry
                && line.event.seq <= last
            {
                ui.line(&String::from_utf8_lossy(&line.raw))?;
            }
        }
        next = page.next.filter(|next| next.seq <= last);
    }
    let finished = RunEvent::RunFinished {
        run_id: head.run_id.clone(),
        session_id: id.clone(),
        reason: reason.clone(),
        answer: turn.answer(),
        usage: head.usage,
        subagent_usage: head.subagent_usage,
        durable_seq: head.end_seq,
    };
    ui.json(&finished)
}
