//! What a provider's prompt cache can match: each request begins with the one before.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use threadline_agent::{Agents, AgentsConfig, Models};
use threadline_session::{HistoryItem, SessionId};
use threadline_store::{Clock, SessionStore, StoreOptions};

use crate::support::{World, finish};

const DAY: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Default)]
struct Calendar(AtomicU64);

impl Clock for Calendar {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn agents(world: &World, calendar: &Arc<Calendar>) -> Agents {
    let options = StoreOptions {
        clock: calendar.clone(),
        ..StoreOptions::default()
    };
    let store = SessionStore::new(Arc::new(world.backend.clone()), options);
    let models = Models::new(Arc::new(world.script.clone()), "m-1");
    let config = AgentsConfig::new(Some(store), models, world.dir.path().to_owned());
    Agents::new(config)
}

#[tokio::test]
async fn requests_keep_their_beginning_over_restarts_forks_and_days() {
    let world = World::new([]);
    let calendar = Arc::new(Calendar::default());
    calendar.0.store(1_700_049_600_000, Ordering::Relaxed);
    let (run, _) = finish(&agents(&world, &calendar), None, "one").await;
    let mut id = run.session_id().clone();
    // Another process.
    finish(&agents(&world, &calendar), Some(&id), "two").await;
    // A fork.
    let fork = SessionId::parse("fork").unwrap();
    world.store().fork(&id, None, fork.clone()).await.unwrap();
    id = fork;
    finish(&agents(&world, &calendar), Some(&id), "three").await;
    // Another day, and new rules.
    calendar.0.fetch_add(DAY, Ordering::Relaxed);
    std::fs::write(world.dir.path().join("AGENTS.md"), "Be brief.").unwrap();
    finish(&agents(&world, &calendar), Some(&id), "four").await;
    // Nothing new is told again.
    finish(&agents(&world, &calendar), Some(&id), "five").await;

    let requests = world.script.requests();
    assert_eq!(requests.len(), 5);
    for pair in requests.windows(2) {
        let [before, after] = pair else {
            unreachable!()
        };
        assert_eq!(
            (&before.system, &before.tools),
            (&after.system, &after.tools)
        );
        let json = |items: &[HistoryItem]| serde_json::to_string(items).unwrap();
        let begins = &after.items[..before.items.len()];
        assert_eq!(json(begins), json(&before.items));
    }
    let users = |at: usize| {
        let is_user = |item: &&HistoryItem| matches!(item, HistoryItem::User { .. });
        requests[at].items.iter().filter(is_user).count()
    };
    let told: Vec<usize> = (0..5).map(users).collect();
    assert_eq!(told, [2, 3, 4, 6, 7]);
    let news = serde_json::to_string(&requests[3].items).unwrap();
    assert!(
        news.contains("Be brief.") && news.contains("2023-11-16"),
        "{news}"
    );
}
