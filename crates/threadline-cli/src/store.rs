//! Opening the store.

use std::{path::Path, sync::Arc};

use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_postgres::{PostgresBackend, PostgresOptions};
use threadline_sqlite::{SqliteBackend, SqliteOptions};
use threadline_store::{Backend, BackendError, SessionStore, StoreOptions};

use crate::{
    address::Address,
    failure::{Failure, Outcome},
    settings::Settings,
    text,
};

/// Bytes of log between two checkpoints, for tests that want many of them.
const CHECKPOINT_BYTES: &str = "THREADLINE_CHECKPOINT_BYTES";

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To look at what is there.
    Read,
    /// To keep sessions in it; it comes into being if need be.
    Write,
}

/// Returns the store that the settings name.
pub(crate) async fn open(settings: &Settings, purpose: Purpose) -> Outcome<SessionStore> {
    open_at(&settings.address, purpose).await
}

/// Returns the store at an address. A directory is not created before the first turn is stored.
pub(crate) async fn open_at(address: &Address, purpose: Purpose) -> Outcome<SessionStore> {
    let checkpoint_every = std::env::var(CHECKPOINT_BYTES)
        .ok()
        .and_then(|bytes| bytes.parse().ok());
    let opened: Result<Arc<dyn Backend>, BackendError> = match address {
        Address::Jsonl(root) => {
            let options = JsonlOptions {
                checkpoint_every,
                ..JsonlOptions::default()
            };
            JsonlBackend::open(root.clone(), options)
                .map(|backend| Arc::new(backend) as Arc<dyn Backend>)
        }
        Address::Sqlite(path) => {
            if purpose == Purpose::Read && !path.exists() {
                return Err(absent(path));
            }
            let options = SqliteOptions {
                create: purpose == Purpose::Write,
                checkpoint_every,
                ..SqliteOptions::default()
            };
            SqliteBackend::open(path, options).map(|backend| Arc::new(backend) as Arc<dyn Backend>)
        }
        Address::Postgres(url) => PostgresBackend::connect(url, PostgresOptions::default())
            .await
            .map(|backend| Arc::new(backend) as Arc<dyn Backend>),
    };
    let backend = opened.map_err(|error| {
        Failure::new("storage_error", text::chain(&error)).hint(match address {
            Address::Jsonl(_) => "name another directory: `--store DIR`, or set THREADLINE_HOME",
            Address::Sqlite(_) => "name another file: `--store sqlite:FILE`",
            Address::Postgres(_) => {
                "check that the server runs, and the address: `--store \
                 postgres://USER@HOST/DATABASE`"
            }
        })
    })?;
    Ok(SessionStore::new(backend, StoreOptions::default()))
}

fn absent(path: &Path) -> Failure {
    Failure::new(
        "no_store",
        format!("there is no store: no file {}", path.display()),
    )
    .hint("check the path; the first `threadline run` with it makes the file")
}
