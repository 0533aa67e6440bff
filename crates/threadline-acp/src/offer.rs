//! Questions that outlived the process which asked them: put to the person again when the session is
//! opened.
//!
//! The answer is a turn of its own, which no prompt waits for. A prompt takes the question back:
//! whoever goes on has let the call be.

use std::sync::Arc;

use threadline_agent::{Accepted, Answered, ApprovalInfo, OfferError, Started};
use threadline_store::error_chain;

use crate::{
    ask::{self, Asking},
    connection::Connection,
    live,
    sessions::Open,
};

/// Puts the question that a session was left with, if there is one.
pub(crate) async fn offer(c: &Arc<Connection>, open: &Arc<Open>) {
    let info = match c.agents.offers_of(&open.id).await {
        // A run asks one question at a time.
        Ok(offers) => offers.into_iter().next(),
        Err(error) => {
            tracing::debug!(%error, "whether the session asks something cannot be read");
            None
        }
    };
    let Some(info) = info else {
        return;
    };
    let asking = Asking::default();
    {
        let mut state = open.state();
        if state.closed || state.followed || c.closing.is_cancelled() {
            return;
        }
        if let Some(before) = state.offer.replace(asking.clone()) {
            before.settled.cancel();
        }
    }
    let asks = ask(c.clone(), open.clone(), info, asking);
    c.tasks.spawn(Box::pin(asks));
}

async fn ask(c: Arc<Connection>, open: Arc<Open>, info: ApprovalInfo, asking: Asking) {
    let call = ask::alone(&info, &open.state().cwd);
    let said = tokio::select! {
        biased;
        () = asking.over.cancelled() => return,
        said = ask::put(&c, &open, &info, call, &asking.settled) => said,
    };
    // Whoever has not said yes or no is asked again when the session is opened again.
    let Some(answered) = said.answered(&c, &info) else {
        return;
    };
    let _beginning = open.beginning.lock().await;
    {
        let mut state = open.state();
        if asking.settled.is_cancelled() || state.closed || c.closing.is_cancelled() {
            return;
        }
        state.offer = None;
    }
    if let Err(why) = begin(&c, &open, info, answered).await {
        let text = format!("[The answer came to nothing: {why}.]");
        let _ = c.update(&open.id, live::note(text)).await;
    }
}

async fn begin(
    c: &Arc<Connection>,
    open: &Arc<Open>,
    info: ApprovalInfo,
    answered: Answered,
) -> Result<(), String> {
    let accepted = c.agents.accept(info, answered).await.map_err(|e| match e {
        OfferError::Answer(error) => error.to_string(),
        OfferError::Read(error) => error_chain(&error),
        OfferError::Start(error) => error_chain(&error),
    })?;
    let Some(accepted) = accepted else {
        return Ok(());
    };
    start(c, open, accepted).await
}

async fn start(c: &Arc<Connection>, open: &Arc<Open>, accepted: Accepted) -> Result<(), String> {
    let writer = accepted.agent().writer();
    let transcript = writer.with_transcript(Clone::clone).await;
    let (input, sent) = open.run_input();
    let started = accepted.start(input).await;
    let Started::New(run) = started.map_err(|error| error_chain(&error))? else {
        return Err("the call was taken for a repeat".into());
    };
    {
        let mut state = open.state();
        state.settings.logged(&sent);
        state.offered_run = Some(run.run_id().clone());
    }
    live::follow(c, open, transcript, run);
    Ok(())
}
