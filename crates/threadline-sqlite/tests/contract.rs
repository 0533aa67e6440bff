//! The contract, kept by one SQLite file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

use std::sync::Arc;

use threadline_sqlite::{SqliteBackend, SqliteOptions};
use threadline_store::{Backend, contract::Fixture};

fn over(options: &SqliteOptions) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let options = options.clone();
    Fixture::new(move || {
        let path = dir.path().join("deep/sessions.sqlite");
        Arc::new(SqliteBackend::open(path, options.clone()).unwrap()) as Arc<dyn Backend>
    })
}

async fn make() -> Fixture {
    over(&SqliteOptions::default())
}

threadline_store::contract_tests!(make);

/// The same with a checkpoint after every few events, so that each opening starts from one.
mod with_checkpoints {
    use super::{Fixture, SqliteOptions, over};

    async fn make() -> Fixture {
        over(&SqliteOptions {
            checkpoint_every: Some(1),
            ..SqliteOptions::default()
        })
    }

    threadline_store::contract_tests!(make);
}
