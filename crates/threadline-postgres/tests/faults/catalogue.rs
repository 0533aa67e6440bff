//! The catalogue is derived: emptied, stale or garbled, lists are the same.

use threadline_store::{Backend, CatalogueRow, ListFilter};

use crate::{
    kit::{World, created, id},
    support::until,
};

async fn listed(world: &World) -> Vec<String> {
    let page = world.store().list(&ListFilter::default(), None, 100).await;
    let mut ids: Vec<_> = page
        .unwrap()
        .sessions
        .iter()
        .map(|row| row.id.to_string())
        .collect();
    ids.sort();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_the_same_whatever_happens_to_the_catalogue() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        drop(created(&world.backend, name, 2).await);
    }
    assert_eq!(listed(&world).await, ["a", "b", "c"]);
    let garbled = "UPDATE catalogue SET row_json = 'x' WHERE id <> 'b'";
    assert_eq!(world.sql.execute(garbled, &[]).await.unwrap(), 2);
    assert_eq!(listed(&world).await, ["a", "b", "c"]);
    world
        .sql
        .execute("DELETE FROM catalogue", &[])
        .await
        .unwrap();
    let again = World {
        backend: world.again().await,
        options: world.options.clone(),
        sql: crate::kit::CLUSTER.sql(&world.options.schema).await,
    };
    assert_eq!(listed(&again).await, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_put_at_once_and_the_last_of_each_session_counts() {
    let world = World::new().await;
    let names: Vec<String> = (0..300).map(|n| format!("s{n:03}")).collect();
    for name in &names {
        drop(created(&world.backend, name, 1).await);
    }
    until("all leases are given back", async || {
        let held = "SELECT count(*) FROM sessions WHERE lease_until IS NOT NULL";
        (world.number(held).await == 0).then_some(())
    })
    .await;
    let listed = listed(&world).await;
    let catalogue = world.backend.catalogue().unwrap();
    let like = catalogue.get(&id(&listed[0])).await.unwrap().unwrap();
    let mut rows: Vec<CatalogueRow> = Vec::new();
    for name in &names {
        let stat = world.backend.stat(&id(name)).await.unwrap().unwrap();
        let mut row = like.clone();
        row.summary.id = id(name);
        (row.stamp, row.people, row.written) = (stat.stamp, stat.people, false);
        rows.push(row);
    }
    // The last of several for a session counts, and one that is deleted gets none.
    world.backend.delete(&id("s007")).await.unwrap();
    let older = rows.clone();
    rows[3].summary.title = Some("newer".into());
    catalogue.put([older, rows].concat()).await.unwrap();
    assert_eq!(catalogue.len().await.unwrap(), 299);
    let row = catalogue.get(&id("s003")).await.unwrap().unwrap();
    assert_eq!(row.summary.title.as_deref(), Some("newer"));
    assert!(catalogue.get(&id("s007")).await.unwrap().is_none());
    let suspects = "SELECT count(*) FROM sessions WHERE suspect";
    assert_eq!(world.number(suspects).await, 0);
}
