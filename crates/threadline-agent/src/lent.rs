//! What clients lend to sessions of this process, as long as they are connected.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use threadline_session::SessionId;

use crate::{
    Agents,
    agents::Core,
    subagents,
    tools::{ClientFiles, ClientTerminals, Files},
};

/// What a client lends to a session.
#[derive(Clone, Default)]
pub struct Lent {
    /// The texts of files. Subagents of the session use them as well.
    pub files: Option<Arc<dyn ClientFiles>>,
    /// Terminals, for commands of the session itself that nothing would confine.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("files", &self.files)
            .field("terminals", &self.terminals)
            .finish()
    }
}

/// What is lent to the sessions of this process.
#[derive(Default)]
pub(crate) struct Loans(Mutex<HashMap<SessionId, Arc<Lent>>>);

impl Loans {
    fn held(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Lent>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, id: &SessionId) -> Option<Arc<Lent>> {
        self.held().get(id).cloned()
    }

    fn lend(&self, id: SessionId, lent: Arc<Lent>) {
        self.held().insert(id, lent);
    }

    fn take_back(&self, id: &SessionId, lent: &Arc<Lent>) {
        let mut held = self.held();
        if held.get(id).is_some_and(|now| Arc::ptr_eq(now, lent)) {
            held.remove(id);
        }
    }
}

impl Agents {
    /// Lends to a session what a client has, instead of what was lent before. Runs that begin from
    /// now on use it, until it is [taken back](Self::take_back).
    pub fn lend(&self, id: SessionId, lent: Arc<Lent>) {
        self.shared.loans.lend(id, lent);
    }

    /// Takes back what was lent, unless another client has lent something since. A run that is under
    /// way keeps it.
    pub fn take_back(&self, id: &SessionId, lent: &Arc<Lent>) {
        self.shared.loans.take_back(id, lent);
    }
}

/// What the calls of one run have of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Borrowed {
    pub(crate) files: Files,
    pub(crate) terminals: Option<Arc<dyn ClientTerminals>>,
}

impl Borrowed {
    /// Returns what a run of a session may use. A subagent has no terminal: nobody is shown its
    /// calls.
    pub(crate) async fn of(core: &Core) -> Self {
        let loans = &core.shared.loans;
        let id = core.writer.id();
        let own = loans.of(id);
        let terminals = own.as_ref().and_then(|lent| lent.terminals.clone());
        let lent = match own {
            Some(own) => Some(own),
            None => {
                let root = subagents::root(&core.shared.store, core.writer.header()).await;
                loans.of(&root)
            }
        };
        let files = lent.and_then(|lent| lent.files.clone());
        Self {
            files: files.map_or_else(Files::default, Files::lent),
            terminals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_back_takes_only_what_it_has_lent() {
        let (loans, id) = (Loans::default(), SessionId::parse("s").unwrap());
        let (first, second) = (Arc::new(Lent::default()), Arc::new(Lent::default()));
        loans.lend(id.clone(), first.clone());
        loans.lend(id.clone(), second.clone());
        loans.take_back(&id, &first);
        assert!(Arc::ptr_eq(&loans.of(&id).unwrap(), &second));
        loans.take_back(&id, &second);
        assert!(loans.of(&id).is_none());
    }
}
