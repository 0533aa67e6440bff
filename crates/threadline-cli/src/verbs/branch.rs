//! `threadline fork`, `rewind` and `redo`: branching and going back, and taking a session over.

use serde_json::json;
use threadline_agent::new_run_id;
use threadline_session::{Item, Payload, SessionId, types};
use threadline_store::{Forked, Loaded, Moved, OpenError, SessionStore};

use crate::{
    args::{Fork, Redo, Rewind},
    failure::{Exit, Failure, Outcome},
    program::program,
    sessions, text,
    ui::Ui,
};

/// What going back never does.
const NOT_UNDONE: &str = "What tools did, as to files, is not undone.";

/// Makes a fork and prints its id.
pub(crate) async fn fork(ui: Ui, store: &SessionStore, args: Fork) -> Outcome<Exit> {
    let parent = sessions::find(store, &args.id).await?;
    let at = if args.before_compaction {
        Some(before_compaction(store, &parent).await?)
    } else {
        args.at
    };
    let forked = branch(ui, store, &parent, at).await?;
    if args.json {
        ui.json(&json!({
            "id": forked.id,
            "parent": {"id": forked.parent, "seq": forked.at_seq},
            "closed": forked.closed,
        }))?;
    } else {
        ui.line(forked.id.as_str())?;
    }
    ui.note(&format!(
        "Go on with: {} run --session {} \"TASK\"",
        program(),
        forked.id
    ));
    Ok(Exit::Completed)
}

/// Returns the event before the newest compaction that the history shows. The turn that a person
/// asked for it with is left out as a whole.
async fn before_compaction(store: &SessionStore, id: &SessionId) -> Outcome<u64> {
    let inspected = store.inspect_turns(id, drop).await?;
    let summaries = inspected.view.transcript().surface();
    let newest = summaries
        .filter(|(_, item)| matches!(item, Item::Summary(_)))
        .map(|(seq, _)| seq)
        .max();
    let none = || {
        Failure::usage(format!(
            "no compaction is in force in session {id}, so there is none to fork before"
        ))
        .hint(format!(
            "fork where it is with `threadline fork {id}`, or at an event with `--at SEQ`"
        ))
    };
    let newest = newest.ok_or_else(none)?;
    let mut turn = None;
    store
        .each_event(id, |line| {
            match line.event.kind.as_str() {
                types::TURN_START => turn = Some(line.event.seq),
                types::USER_MESSAGE | types::STEP_START => turn = None,
                _ => {}
            }
            line.event.seq + 1 < newest
        })
        .await?;
    turn.unwrap_or(newest).checked_sub(1).ok_or_else(none)
}

/// Makes a fork with an id of its own and says what it holds.
pub(crate) async fn branch(
    ui: Ui,
    store: &SessionStore,
    parent: &SessionId,
    at: Option<u64>,
) -> Outcome<Forked> {
    // As the id of every new session: that of its first run, which begins with the time.
    let child = SessionId::from_first_run(&new_run_id());
    let forked = store.fork(parent, at, child).await?;
    let closed = match forked.closed {
        0 => String::new(),
        closed => format!(
            "; the turn was cut in two and is closed in the fork ({})",
            text::count(closed as u64, "event", "events")
        ),
    };
    ui.note(&format!(
        "forked {} at event {} of {}{closed}",
        forked.id, forked.at_seq, forked.parent
    ));
    Ok(forked)
}

/// Opens a session for writing, also when another process has it, which is said.
pub(crate) async fn take_over(
    ui: Ui,
    store: &SessionStore,
    id: &SessionId,
) -> Result<Loaded, OpenError> {
    let holder = store.stat(id).await?.writer;
    let loaded = store.take_over(id).await?;
    if let Some(holder) = holder {
        let closed = match loaded.closed {
            0 => String::new(),
            closed => format!(
                "; its turn was closed with {}",
                text::count(closed as u64, "event", "events")
            ),
        };
        ui.warning(&format!(
            "the session was taken over from {holder}, which stores nothing in it any more{closed}"
        ));
    }
    Ok(loaded)
}

async fn open(
    ui: Ui,
    store: &SessionStore,
    id: &SessionId,
    by_force: bool,
) -> Result<Loaded, OpenError> {
    if by_force {
        take_over(ui, store, id).await
    } else {
        store.load(id).await
    }
}

/// Moves the history back.
pub(crate) async fn rewind(ui: Ui, store: &SessionStore, args: Rewind) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let loaded = open(ui, store, &id, args.take_over).await?;
    let to = match (args.to, args.turns) {
        (Some(to), _) => to,
        (None, Some(turns)) => before_turns(store, &id, turns).await?,
        (None, None) => return Err(Failure::usage("it is not said how far to go back")),
    };
    let moved = loaded.writer.rewind(to).await;
    let moved = moved.map_err(|error| Failure::from_move(&id, &error))?;
    tell(ui, &id, &moved, args.json)?;
    ui.note(&format!(
        "{NOT_UNDONE} Nothing was removed from the log; take it back with: {} redo {id}",
        program()
    ));
    Ok(Exit::Completed)
}

/// Takes the last rewind back.
pub(crate) async fn redo(ui: Ui, store: &SessionStore, args: Redo) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let loaded = open(ui, store, &id, args.take_over).await?;
    let moved = loaded.writer.redo().await;
    let moved = moved.map_err(|error| Failure::from_move(&id, &error))?;
    tell(ui, &id, &moved, args.json)?;
    ui.note(&format!(
        "{NOT_UNDONE} Go on with: {} run --session {id} \"TASK\"",
        program()
    ));
    Ok(Exit::Completed)
}

fn tell(ui: Ui, id: &SessionId, moved: &Moved, json: bool) -> Outcome<()> {
    if json {
        ui.json(&json!({"id": id, "toSeq": moved.to_seq, "seq": moved.seq}))?;
    }
    ui.note(&format!(
        "The history of session {id} is now what it was right after event {}.",
        moved.to_seq
    ));
    Ok(())
}

/// What moves the history, by the number of its event.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Turn(u64),
    Head { seq: u64, to: u64 },
}

impl Mark {
    fn seq(self) -> u64 {
        match self {
            Self::Turn(seq) | Self::Head { seq, .. } => seq,
        }
    }
}

/// Returns the event before the last turns of the history in force.
async fn before_turns(store: &SessionStore, id: &SessionId, turns: u64) -> Outcome<u64> {
    let mut marks = Vec::new();
    store
        .each_event(id, |line| {
            let seq = line.event.seq;
            if line.event.kind == types::TURN_START {
                marks.push(Mark::Turn(seq));
            } else if let (types::HISTORY_HEAD, Ok(Payload::HistoryHead(head))) =
                (line.event.kind.as_str(), line.event.payload())
            {
                marks.push(Mark::Head { seq, to: head.seq });
            }
            true
        })
        .await?;
    let starts = starts(&marks);
    let wanted = usize::try_from(turns).unwrap_or(usize::MAX);
    let start = starts.get(wanted.saturating_sub(1));
    match start.map(|start| start.checked_sub(1)) {
        Some(Some(before)) => Ok(before),
        found => {
            let there = text::count(starts.len() as u64, "turn", "turns");
            let why = match found {
                None => format!("session {id} has only {there} to go back by"),
                Some(_) => format!(
                    "going back by {} leaves nothing of session {id}",
                    text::count(turns, "turn", "turns")
                ),
            };
            Err(Failure::usage(why)
                .hint("name fewer turns, or begin a new session with `threadline run \"TASK\"`"))
        }
    }
}

/// Returns where the turns of the history in force begin, the last one first.
fn starts(marks: &[Mark]) -> Vec<u64> {
    let mut found = Vec::new();
    let mut end = u64::MAX;
    for mark in marks.iter().rev() {
        if mark.seq() > end {
            continue;
        }
        match *mark {
            Mark::Turn(seq) => found.push(seq),
            Mark::Head { to, .. } => end = to,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_were_gone_back_over_do_not_count_until_they_are_redone() {
        let mut marks = vec![Mark::Turn(1), Mark::Turn(10), Mark::Turn(20)];
        assert_eq!(starts(&marks), [20, 10, 1]);
        marks.push(Mark::Head { seq: 30, to: 9 });
        assert_eq!(starts(&marks), [1]);
        marks.push(Mark::Turn(31));
        assert_eq!(starts(&marks), [31, 1]);
        marks.push(Mark::Head { seq: 40, to: 29 });
        assert_eq!(starts(&marks), [20, 10, 1]);
    }
}
