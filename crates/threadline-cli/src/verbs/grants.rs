//! `threadline grants`: what is approved for the rest of a session.

use serde_json::{Value, json};
use threadline_agent::{Allow, grant, revoke};
use threadline_session::{Covers, SessionGrant, SessionId};
use threadline_store::{OpenError, SessionStore};

use super::take_over;
use crate::{
    args::Grants,
    failure::{Exit, Failure, Outcome},
    sessions, text,
    ui::{Tone, Ui},
};

/// Who changes grants from here, as the log names it.
const BY: &str = "cli";

/// Changes and shows the grants of a session.
pub(crate) async fn grants(ui: Ui, store: &SessionStore, args: Grants) -> Outcome<Exit> {
    let id = sessions::find(store, &args.id).await?;
    let before = store.grants(&id).await?;
    // All are found before any is revoked.
    let revoked: Vec<String> = args
        .revoke
        .iter()
        .map(|text| one(&id, &before, text))
        .collect::<Outcome<_>>()?;
    if args.allow.is_empty() && revoked.is_empty() {
        show(ui, &id, &before, args.json)?;
        return Ok(Exit::Completed);
    }
    let opened = if args.take_over {
        take_over(ui, store, &id).await
    } else {
        store.load(&id).await
    };
    let loaded = opened.map_err(|error| refused(&id, &error))?;
    if loaded.closed > 0 && !args.take_over {
        let events = text::count(loaded.closed as u64, "event", "events");
        ui.warning(&format!(
            "the last turn was interrupted; it was closed with {events}"
        ));
    }
    for grant_id in &revoked {
        revoke(&loaded.writer, grant_id, BY).await?;
        ui.note(&format!("Revoked {grant_id}."));
    }
    for prefix in args.allow {
        let words = prefix.to_string();
        let by = BY.into();
        grant(&loaded.writer, Allow { prefix, by }).await?;
        ui.note(&format!(
            "Commands that begin with `{words}` are not asked for in session {id}."
        ));
    }
    drop(loaded);
    show(ui, &id, &store.grants(&id).await?, args.json)?;
    Ok(Exit::Completed)
}

/// Returns the grant that a text means: its id, or the beginning of it.
fn one(id: &SessionId, grants: &[SessionGrant], text: &str) -> Outcome<String> {
    let hint = format!("see what is granted with `threadline grants {id}`");
    let mut found = grants.iter().filter(|grant| grant.id.starts_with(text));
    let whole = grants.iter().find(|grant| grant.id == text);
    match (whole, found.next(), found.next()) {
        (Some(grant), _, _) | (None, Some(grant), None) if !text.is_empty() => Ok(grant.id.clone()),
        (_, Some(_), Some(_)) => Err(Failure::usage(format!(
            "`{}` is the beginning of several grants of session {id}",
            text::line(text, 80)
        ))
        .hint(hint)),
        _ => Err(Failure::usage(format!(
            "session {id} has no grant `{}` in force",
            text::line(text, 80)
        ))
        .hint(hint)),
    }
}

fn refused(id: &SessionId, error: &OpenError) -> Failure {
    let failure = Failure::from_open(error);
    match error {
        OpenError::Locked { holder, .. } => failure.hint(format!(
            "change it where the session runs: at the page of `threadline serve`, or with DELETE \
             and POST at /api/agent/sessions/{id}/grants; or wait until {holder} is done"
        )),
        _ => failure,
    }
}

fn as_json(grant: &SessionGrant) -> Outcome<Value> {
    let failed = |error: serde_json::Error| Failure::new("internal", error.to_string());
    let mut shown = serde_json::to_value(&grant.covers).map_err(failed)?;
    shown["grantId"] = json!(grant.id);
    shown["by"] = json!(grant.by);
    shown["grantedAt"] = json!(grant.time);
    shown["seq"] = json!(grant.seq);
    Ok(shown)
}

fn show(ui: Ui, id: &SessionId, grants: &[SessionGrant], json: bool) -> Outcome<()> {
    if json {
        let grants: Vec<Value> = grants.iter().map(as_json).collect::<Outcome<_>>()?;
        return ui.json(&json!({ "sessionId": id, "grants": grants }));
    }
    if grants.is_empty() {
        ui.note(&format!(
            "Nothing is approved for the rest of session {id}."
        ));
        return Ok(());
    }
    let width = grants.iter().map(|grant| grant.id.len()).max();
    let width = width.unwrap_or_default().clamp(5, 40);
    let head = format!("{:<width$}  {:<23}  {:<8}  COVERS", "GRANT", "SINCE", "BY");
    ui.line(&ui.out(Tone::Strong, &head))?;
    for grant in grants {
        let covers = match &grant.covers {
            Covers::Commands { prefix } => format!("commands: {} ...", prefix.join(" ")),
            Covers::Call { name, arguments } => format!("the call: {name} {arguments}"),
        };
        ui.line(&format!(
            "{:<width$}  {:<23}  {:<8}  {}",
            text::line(&grant.id, 80),
            text::moment(grant.time),
            text::line(&grant.by, 40),
            text::line(&covers, 200),
        ))?;
    }
    Ok(())
}
