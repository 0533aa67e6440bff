//! The catalogue is derived: emptied, stale or garbled, lists are the same.

use threadline_store::ListFilter;

use crate::kit::{World, created};

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
