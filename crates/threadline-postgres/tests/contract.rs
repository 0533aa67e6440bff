//! The contract, kept by PostgreSQL: each case in a schema of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail so"
)]

mod support;

use std::sync::{Arc, LazyLock};

use threadline_postgres::{PostgresBackend, PostgresOptions};
use threadline_store::{Backend, contract::Fixture};

use support::Cluster;

/// Stopped when the process ends.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

fn over(options: PostgresOptions) -> Fixture {
    let url = CLUSTER.url();
    // Opening again makes a backend of its own, as another process would.
    Fixture::new(move || {
        let connect = PostgresBackend::connect(&url, options.clone());
        let opened =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect));
        Arc::new(opened.unwrap()) as Arc<dyn Backend>
    })
}

async fn make() -> Fixture {
    over(CLUSTER.options())
}

threadline_store::contract_tests!(make);

/// The same with a checkpoint whenever one could be due, so that each opening starts from one.
mod with_checkpoints {
    use super::{CLUSTER, Fixture, PostgresOptions, over};

    async fn make() -> Fixture {
        over(PostgresOptions {
            checkpoint_every: 1,
            ..CLUSTER.options()
        })
    }

    threadline_store::contract_tests!(make);
}
