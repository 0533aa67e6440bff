//! The contract, kept by the default backend.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

use std::sync::Arc;

use threadline_jsonl::{JsonlBackend, JsonlOptions};
use threadline_store::{Backend, contract::Fixture};

async fn make() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Opening again makes a backend of its own, as another process would.
    Fixture::new(move || {
        let backend = JsonlBackend::open(folder.path(), JsonlOptions::default());
        Arc::new(backend.expect("an empty store")) as Arc<dyn Backend>
    })
}

threadline_store::contract_tests!(make);
