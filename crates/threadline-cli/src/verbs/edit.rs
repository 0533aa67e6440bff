//! `threadline rename`, `archive`, `unarchive` and `rm`: what people set, and deleting.

use threadline_session::SessionId;
use threadline_store::{SessionStore, SummaryPatch, UpdateError};

use crate::{
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::Ui,
};

/// How often a change is tried again when somebody else changes the same session.
const ATTEMPTS: usize = 5;

async fn patch(store: &SessionStore, id: &SessionId, patch: SummaryPatch) -> Outcome<()> {
    let mut attempt = 1;
    loop {
        let revision = store.summary(id).await?.revision;
        match store.update(id, patch.clone(), revision).await {
            Ok(_) => return Ok(()),
            Err(UpdateError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sets or removes a session's title.
pub(crate) async fn rename(ui: Ui, store: &SessionStore, id: &str, title: &str) -> Outcome<Exit> {
    let id = sessions::find(store, id).await?;
    let title = Some(title.trim().to_owned()).filter(|title| !title.is_empty());
    let said = match &title {
        Some(title) => format!("Session {id} is now \"{}\".", text::harmless(title)),
        None => format!("Session {id} has no title now."),
    };
    patch(
        store,
        &id,
        SummaryPatch {
            title: Some(title),
            ..SummaryPatch::default()
        },
    )
    .await?;
    ui.note(&said);
    Ok(Exit::Completed)
}

/// Puts a session away, or takes it out again.
pub(crate) async fn archive(
    ui: Ui,
    store: &SessionStore,
    id: &str,
    archived: bool,
) -> Outcome<Exit> {
    let id = sessions::find(store, id).await?;
    let change = SummaryPatch {
        archived: Some(archived),
        ..SummaryPatch::default()
    };
    patch(store, &id, change).await?;
    ui.note(&if archived {
        format!("Session {id} is put away. Take it out with: threadline unarchive {id}")
    } else {
        format!("Session {id} is listed again.")
    });
    Ok(Exit::Completed)
}

/// Deletes a session after asking.
pub(crate) async fn remove(ui: Ui, store: &SessionStore, id: &str, yes: bool) -> Outcome<Exit> {
    let id = sessions::find(store, id).await?;
    if !yes {
        let row = store.summary(&id).await?;
        if !ui.can_ask {
            return Err(Failure::usage(format!(
                "deleting session {id} is final, and nobody is here to be asked"
            ))
            .hint(format!("say so: `threadline rm {id} --yes`")));
        }
        ui.ask(&format!(
            "Delete session {id} ({}; {}, {}) for good? [y/N] ",
            sessions::about(&row),
            text::count(row.turns, "turn", "turns"),
            text::bytes(row.bytes),
        ));
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        if read.is_err() || !matches!(line.trim().to_lowercase().as_str(), "y" | "yes") {
            ui.note("Nothing was deleted.");
            return Ok(Exit::Failed);
        }
    }
    store.delete(&id).await?;
    ui.note(&format!("Session {id} is deleted."));
    Ok(Exit::Completed)
}
