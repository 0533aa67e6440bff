//! Opening the store.

use std::sync::Arc;

use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_store::{SessionStore, StoreOptions};

use crate::{
    failure::{Failure, Outcome},
    settings::Settings,
    text,
};

/// Returns the store. Nothing is created before the first turn is stored.
pub(crate) fn open(settings: &Settings) -> Outcome<SessionStore> {
    let opened = JsonlBackend::open(settings.root.clone(), JsonlOptions::default());
    let backend = opened.map_err(|error| {
        Failure::new("storage_error", text::chain(&error))
            .hint("name another directory: `--store DIR`, or set THREADLINE_HOME")
    })?;
    Ok(SessionStore::new(
        Arc::new(backend),
        StoreOptions::default(),
    ))
}
