//! The contract, kept by PostgreSQL: each case in a schema of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

use std::sync::{Arc, LazyLock};

use threadline_postgres::PostgresBackend;
use threadline_store::{Backend, contract::Fixture};

use support::Cluster;

/// Stopped when the process ends.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

async fn make() -> Fixture {
    let (url, options) = (CLUSTER.url(), CLUSTER.options());
    // Opening again makes a backend of its own, as another process would.
    Fixture::new(move || {
        let connect = PostgresBackend::connect(&url, options.clone());
        let opened =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect));
        Arc::new(opened.unwrap()) as Arc<dyn Backend>
    })
}

threadline_store::contract_tests!(make);
