//! The sessions that a connection holds open, and the prompts that wait in each.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_client_protocol_schema::v1::Error;
use threadline_agent::{Agents, Lent, RunInput};
use threadline_session::{RunId, SessionId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    ask::Asking,
    lent::Shown,
    limits::{OPEN_SESSIONS, PROMPTS_AT_ONCE},
    options::Settings,
    rpc::{Id, invalid_request},
};

/// What a prompt waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// It is being begun, or has not been yet.
    Beginning,
    /// It is being put into the inbox.
    Queueing,
    /// The end of a run.
    Run(RunId),
    /// The end of the turn that takes a message out of the inbox.
    Message(String),
}

/// A prompt that is not answered yet.
pub(crate) struct Ticket {
    /// The request that is answered.
    pub(crate) request: Id,
    /// Whether the client has cancelled it. Its answer is then `cancelled`, whatever happens.
    pub(crate) cancel: CancellationToken,
}

struct Waiting {
    ticket: Arc<Ticket>,
    by: By,
}

/// A session as this connection holds it.
pub(crate) struct Open {
    pub(crate) id: SessionId,
    state: Mutex<State>,
    /// Held while a prompt is begun, so that prompts are taken in their order.
    pub(crate) beginning: tokio::sync::Mutex<()>,
    /// Tells whoever follows the session that something was changed here.
    pub(crate) poke: Notify,
}

pub(crate) struct State {
    /// The working directory that the client has named.
    pub(crate) cwd: PathBuf,
    /// Whether the store has the session: it does from the first prompt on.
    pub(crate) stored: bool,
    pub(crate) settings: Settings,
    /// A title that was given before there was anything to store it with.
    pub(crate) title: Option<String>,
    /// Whether the client was told of the title.
    pub(crate) told_title: bool,
    /// Whether a task follows the session for the client.
    pub(crate) followed: bool,
    pub(crate) closed: bool,
    /// What the client was told that the session does without.
    pub(crate) lacks: Vec<String>,
    /// A question that outlived its process and is put to the person.
    pub(crate) offer: Option<Asking>,
    /// The run that a yes to such a question has begun; no prompt waits for it.
    pub(crate) offered_run: Option<RunId>,
    /// What the client has lent to the session.
    pub(crate) lent: Option<Arc<Lent>>,
    /// Terminals of commands that run.
    pub(crate) terminals: Vec<Shown>,
    waiting: Vec<Waiting>,
}

impl Open {
    pub(crate) fn new(id: SessionId, cwd: PathBuf, stored: bool, settings: Settings) -> Self {
        Self {
            id,
            state: Mutex::new(State {
                cwd,
                stored,
                settings,
                title: None,
                told_title: stored,
                followed: false,
                closed: false,
                lacks: Vec::new(),
                offer: None,
                offered_run: None,
                lent: None,
                terminals: Vec::new(),
                waiting: Vec::new(),
            }),
            beginning: tokio::sync::Mutex::default(),
            poke: Notify::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a prompt. Done while its line is read, so that a cancellation in the next line meets
    /// it.
    ///
    /// # Errors
    /// Says that too many wait.
    pub(crate) fn note(&self, request: Id) -> Result<Arc<Ticket>, Error> {
        let mut state = self.state();
        if state.waiting.len() >= PROMPTS_AT_ONCE {
            return Err(invalid_request(&format!(
                "{PROMPTS_AT_ONCE} prompts of this session wait already"
            )));
        }
        let ticket = Arc::new(Ticket {
            request,
            cancel: CancellationToken::new(),
        });
        state.waiting.push(Waiting {
            ticket: ticket.clone(),
            by: By::Beginning,
        });
        Ok(ticket)
    }

    /// Cancels what the client waits for: all prompts, or one.
    pub(crate) fn cancel(&self, agents: &Agents, request: Option<&Id>) {
        let state = self.state();
        let mut any = state.offered_run.is_some();
        for waiting in &state.waiting {
            if request.is_none_or(|request| *request == waiting.ticket.request) {
                waiting.ticket.cancel.cancel();
                any = true;
            }
        }
        drop(state);
        if request.is_none()
            && any
            && let Some(run) = agents.running(&self.id)
        {
            run.cancel();
        }
        self.poke.notify_one();
    }

    /// Returns whether a prompt waits under a request's id.
    pub(crate) fn has(&self, request: &Id) -> bool {
        let state = self.state();
        (state.waiting.iter()).any(|waiting| waiting.ticket.request == *request)
    }

    /// Takes an old question back: somebody goes on with the session without its answer.
    pub(crate) fn take_offer_back(&self) {
        if let Some(asking) = self.state().offer.take() {
            asking.settled.cancel();
        }
    }

    /// Says what a prompt waits for from now on.
    pub(crate) fn wait_for(&self, ticket: &Arc<Ticket>, by: By) {
        let mut state = self.state();
        let waiting = state.waiting.iter_mut();
        if let Some(waiting) = waiting.into_iter().find(|w| Arc::ptr_eq(&w.ticket, ticket)) {
            waiting.by = by;
        }
        drop(state);
        self.poke.notify_one();
    }

    /// Takes a prompt out, to answer it. Returns false when that was done before.
    pub(crate) fn take(&self, ticket: &Arc<Ticket>) -> bool {
        let mut state = self.state();
        let before = state.waiting.len();
        state.waiting.retain(|w| !Arc::ptr_eq(&w.ticket, ticket));
        let taken = state.waiting.len() < before;
        drop(state);
        self.poke.notify_one();
        taken
    }

    /// Returns the prompts that wait, with what each waits for.
    pub(crate) fn waiting(&self) -> Vec<(Arc<Ticket>, By)> {
        let state = self.state();
        let waiting = state.waiting.iter();
        waiting.map(|w| (w.ticket.clone(), w.by.clone())).collect()
    }

    /// Returns the prompts that wait for something that `wanted` knows.
    pub(crate) fn waiting_for(&self, wanted: impl Fn(&By) -> bool) -> Vec<Arc<Ticket>> {
        let waiting = self.waiting().into_iter();
        waiting
            .filter(|(_, by)| wanted(by))
            .map(|(t, _)| t)
            .collect()
    }

    /// Ends the following, unless a prompt still needs it.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state();
        let needed = state
            .waiting
            .iter()
            .any(|waiting| waiting.by != By::Beginning)
            || state.offered_run.is_some();
        state.followed &= needed;
        !state.followed
    }

    /// Joins the prompts that a running turn is followed for, when there is one.
    pub(crate) fn join(&self, ticket: &Arc<Ticket>) -> bool {
        let mut state = self.state();
        if !state.followed {
            return false;
        }
        let waiting = state.waiting.iter_mut();
        if let Some(waiting) = waiting.into_iter().find(|w| Arc::ptr_eq(&w.ticket, ticket)) {
            waiting.by = By::Queueing;
        }
        true
    }

    /// Returns what a run is begun under, and the settings that are named in it.
    pub(crate) fn run_input(&self) -> (RunInput, Settings) {
        let state = self.state();
        let mut input = RunInput {
            cwd: Some(state.cwd.clone()),
            ..RunInput::default()
        };
        state.settings.apply(&mut input);
        (input, state.settings.clone())
    }
}

/// All sessions that a connection holds open.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Arc<Open>>>);

impl Sessions {
    fn held(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Open>> {
        let id = SessionId::parse(id).ok()?;
        self.held().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Open>> {
        self.held().values().cloned().collect()
    }

    /// Opens a session, or sets anew what a client says of one that is open.
    ///
    /// # Errors
    /// Says that too many are open.
    pub(crate) fn open(&self, open: Open) -> Result<Arc<Open>, Error> {
        let mut held = self.held();
        if let Some(before) = held.get(&open.id) {
            let now = open.state();
            let mut state = before.state();
            state.cwd.clone_from(&now.cwd);
            state.settings = now.settings.clone();
            drop(state);
            return Ok(before.clone());
        }
        if held.len() >= OPEN_SESSIONS {
            return Err(invalid_request(&format!(
                "{OPEN_SESSIONS} sessions are open already; close one"
            )));
        }
        let open = Arc::new(open);
        held.insert(open.id.clone(), open.clone());
        Ok(open)
    }

    /// Closes a session for new prompts.
    pub(crate) fn close(&self, id: &str) -> Option<Arc<Open>> {
        let id = SessionId::parse(id).ok()?;
        let open = self.held().remove(&id)?;
        open.state().closed = true;
        Some(open)
    }
}
