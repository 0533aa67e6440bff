//! Opening the store.

use std::sync::Arc;

use threadline_store::{SessionStore, StoreOptions, MemoryBackend};

use crate::{failure::Outcome, settings::Settings};

/// Returns the store. Nothing is created before the first turn is stored.
pub(crate) fn open(_settings: &Settings) -> Outcome<SessionStore> {
    let backend = MemoryBackend::new();
    Ok(SessionStore::new(Arc::new(backend), StoreOptions::default()))
}
