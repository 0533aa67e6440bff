//! Replaying a session: every turn from the log, one after the other, as fast as the client reads.

use threadline_session::{SessionId, Turn, View, payload::TurnContext};
use threadline_store::{Entry, ReadError, ReadPos};

use crate::{
    connection::Connection,
    images::Images,
    live,
    transport::Gone,
    updates::{People, Updates},
};

/// Says why a session was not replayed to its end.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// It cannot be read.
    Read(ReadError),
    /// The client reads no more.
    Gone(Gone),
}

impl From<ReadError> for ReplayError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<Gone> for ReplayError {
    fn from(error: Gone) -> Self {
        Self::Gone(error)
    }
}

/// Sends everything that a person has seen of a session. Holds one turn and one page of the log,
/// never the session. Returns what the newest turn ran under.
///
/// Damage does not hide what is before it: that is shown, and then what is wrong.
///
/// # Errors
/// [`ReplayError`].
pub(crate) async fn replay(
    c: &Connection,
    id: &SessionId,
) -> Result<Option<TurnContext>, ReplayError> {
    let store = c.agents.store();
    let header = store.header(id).await?.header;
    let mut view = View::over(store.transcript().bare());
    let mut updates = Updates::new(header.cwd.as_path().to_owned());
    let mut from = ReadPos::default();
    let trouble = 'log: loop {
        let page = store.read(id, from, usize::MAX).await?;
        for entry in page.entries {
            match entry {
                Entry::Header(_) => {}
                Entry::Line(line, _) => {
                    if let Err(error) = store.apply(id, &mut view, &line.event).await? {
                        break 'log Some(error.to_string());
                    }
                    if view.turns().len() > 1 {
                        for turn in view.take_turns() {
                            show(c, id, &mut updates, &turn).await?;
                        }
                    }
                }
                Entry::Damage(damage) => break 'log Some(damage.to_string()),
            }
        }
        match page.next {
            Some(next) => from = next,
            None => break None,
        }
    };
    if trouble.is_none() && view.transcript().open_turn().is_some() {
        for event in store.closers(id).await? {
            // Those that the next opening would append; they fit this log by their making.
            if view.apply(&event).is_err() {
                break;
            }
        }
    }
    if let Some(turn) = view.turns().last() {
        show(c, id, &mut updates, turn).await?;
    }
    if let Some(trouble) = trouble {
        let text = format!(
            "[The session cannot be shown further, and not be continued: {trouble}. All findings: \
             threadline verify {id}]"
        );
        c.update(id, live::note(text)).await?;
    }
    Ok(view.transcript().context().cloned())
}

async fn show(
    c: &Connection,
    id: &SessionId,
    updates: &mut Updates,
    turn: &Turn,
) -> Result<(), Gone> {
    updates.turn(&turn.head);
    for item in &turn.items {
        let images = Images::of(c.agents.store(), item).await;
        for update in updates.item(item, &images, People::Told, None) {
            c.update(id, update).await?;
        }
    }
    for update in updates.end(&turn.head) {
        c.update(id, update).await?;
    }
    Ok(())
}
