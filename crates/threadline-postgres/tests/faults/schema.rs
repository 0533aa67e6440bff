//! Making and refusing schemas.

use futures_util::future::join_all;
use threadline_postgres::PostgresBackend;
use threadline_store::{Backend, error_chain};

use crate::kit::{CLUSTER, created, id};

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_connect_to_a_fresh_schema_one_makes_it() {
    for _ in 0..4 {
        let options = CLUSTER.options();
        let connects = (0..8).map(|_| {
            let options = options.clone();
            tokio::spawn(async move { PostgresBackend::connect(&CLUSTER.url(), options).await })
        });
        let mut backends = Vec::new();
        for connected in join_all(connects.collect::<Vec<_>>()).await {
            backends.push(connected.unwrap().unwrap());
        }
        drop(created(&backends[0], "s", 1).await);
        for backend in &backends {
            assert!(backend.stat(&id("s")).await.unwrap().is_some());
        }
        let sql = CLUSTER.sql(&options.schema).await;
        let versions = sql.query("SELECT version FROM migrations", &[]).await;
        assert_eq!(versions.unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused_with_the_way_out() {
    let options = CLUSTER.options();
    drop(CLUSTER.backend(&options).await);
    let sql = CLUSTER.sql(&options.schema).await;
    let newer = "INSERT INTO migrations VALUES (999, 'later', now())";
    sql.execute(newer, &[]).await.unwrap();
    let refused = PostgresBackend::connect(&CLUSTER.url(), options).await;
    let told = error_chain(&refused.unwrap_err());
    assert!(told.contains("newer threadline (version 999"), "{told}");
    assert!(told.contains("upgrade threadline"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    for (url, place) in [
        (
            "postgres://u:hidden@127.0.0.1:1/data",
            "database data on 127.0.0.1:1",
        ),
        (
            "postgres://u:hidden@%2Fnowhere/data",
            "database data on /nowhere",
        ),
    ] {
        let refused = PostgresBackend::connect(url, CLUSTER.options()).await;
        let told = error_chain(&refused.unwrap_err());
        assert!(told.contains(place), "{told}");
        assert!(!told.contains("hidden"), "{told}");
    }
    let backend = CLUSTER.backend(&CLUSTER.options()).await;
    assert_eq!(backend.address(), CLUSTER.url());
}
