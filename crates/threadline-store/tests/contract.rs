//! The contract, kept by the backend in memory.

use std::sync::Arc;

use threadline_store::{
    Backend, MemoryBackend,
    contract::{self, Fixture},
};

async fn make() -> Fixture {
    let memory = MemoryBackend::new();
    Fixture::new(move || Arc::new(memory.clone()) as Arc<dyn Backend>)
}

threadline_store::contract_tests!(make);

#[tokio::test]
async fn the_cases_can_be_run_as_one() {
    contract::run_all(make).await;
}

#[tokio::test]
async fn a_session_whose_files_are_gone_is_missing() {
    contract::listing::a_session_whose_files_are_gone_is_missing(make().await).await;
}

/// The same with a checkpoint whenever one could be due, so that each opening starts from one.
mod with_checkpoints {
    use super::{Arc, Backend, Fixture, MemoryBackend};

    async fn make() -> Fixture {
        let memory = MemoryBackend::new().with_checkpoints_every(1);
        Fixture::new(move || Arc::new(memory.clone()) as Arc<dyn Backend>)
    }

    threadline_store::contract_tests!(make);
}
