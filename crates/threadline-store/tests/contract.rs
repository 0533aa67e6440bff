//! The contract, kept by the backend in memory.

use std::sync::Arc;

use threadline_store::{Backend, MemoryBackend, contract::Fixture};

async fn make() -> Fixture {
    let memory = MemoryBackend::new();
    Fixture::new(move || Arc::new(memory.clone()) as Arc<dyn Backend>)
}

threadline_store::contract_tests!(make);

#[tokio::test]
async fn the_cases_can_be_run_as_one() {
    threadline_store::contract::run_all(make).await;
}
