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

fn over(options: &JsonlOptions) -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = options.clone();
    // Opening again makes a backend of its own, as another process would.
    Fixture::new(move || {
        let backend = JsonlBackend::open(folder.path(), options.clone());
        Arc::new(backend.expect("an empty store")) as Arc<dyn Backend>
    })
}

async fn make() -> Fixture {
    over(&JsonlOptions::default())
}

threadline_store::contract_tests!(make);

/// The same with a checkpoint whenever one could be due, so that each opening starts from one.
mod with_checkpoints {
    use super::{Fixture, JsonlOptions, over};

    async fn make() -> Fixture {
        over(&JsonlOptions {
            checkpoint_every: Some(1),
            ..JsonlOptions::default()
        })
    }

    threadline_store::contract_tests!(make);
}
