//! What the list of sessions can be narrowed to, and what it says while it is being made.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use threadline_session::SessionId;
use threadline_store::{
    Backend, BackendError, Catalogue, CatalogueRow, ListFilter, ListKey, MemoryBackend,
    MemoryCatalogue, SessionStore, StoreOptions,
    contract::Wrapped,
    limits::{LIST_LOOK_TIME, LIST_LOOKS},
};

use crate::{runs::script, support::Server};

async fn listed(server: &Server, query: &str) -> Vec<String> {
    let page = server.get(&format!("/api/agent/sessions?{query}")).await;
    let page = page.json();
    assert_eq!(page["rebuilding"], false);
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    page["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(id)
        .collect()
}

#[tokio::test]
async fn lists_are_narrowed_to_a_status() {
    let server = Server::start().await;
    let idle = server.run(&json!({"task": "hello"})).await.session();
    let _call = server.call();
    let (_events, running, _) = script(&server, json!({})).await;
    assert_eq!(listed(&server, "status=idle").await, [idle]);
    assert_eq!(listed(&server, "status=running").await, [running]);
    for none in [
        "waiting",
        "interrupted",
        "damaged",
        "unsupported",
        "missing",
    ] {
        let found = listed(&server, &format!("status={none}")).await;
        assert!(found.is_empty(), "{none}: {found:?}");
    }
    for bad in ["status=broken", "status=", "status=Idle"] {
        let reply = server.get(&format!("/api/agent/sessions?{bad}")).await;
        let field = reply.problem(400, "invalid_input");
        assert_eq!(field.as_deref(), Some("status"), "{bad}");
    }
}

#[tokio::test]
async fn lists_are_narrowed_to_the_forks_of_a_session() {
    let server = Server::start().await;
    let parent = server.run(&json!({"task": "hello"})).await.session();
    let other = server.run(&json!({"task": "other"})).await.session();
    let path = format!("/api/agent/sessions/{parent}");
    let forked = server.request("POST", &format!("{path}/fork"), "{}").await;
    let fork = forked.json()["id"].as_str().unwrap().to_owned();
    let forks = format!("parent={parent}");
    assert_eq!(listed(&server, &forks).await, [fork.as_str()]);
    assert_eq!(
        listed(&server, &format!("{forks}&status=idle")).await,
        [fork.as_str()]
    );
    assert!(
        listed(&server, &format!("{forks}&status=damaged"))
            .await
            .is_empty()
    );
    assert!(listed(&server, &format!("parent={other}")).await.is_empty());
    // They outlive it.
    server.request("DELETE", &path, "").await;
    assert_eq!(listed(&server, &forks).await, [fork]);
    for bad in ["parent=", "parent=a%0ab"] {
        let reply = server.get(&format!("/api/agent/sessions?{bad}")).await;
        let field = reply.problem(400, "invalid_input");
        assert_eq!(field.as_deref(), Some("parent"), "{bad}");
    }
}

/// A storage whose catalogue knows nothing of more sessions than a list has time to look at.
struct Unknown {
    memory: Arc<MemoryBackend>,
}

impl Wrapped for Unknown {
    fn inner(&self) -> &dyn Backend {
        &*self.memory
    }

    fn catalogue(&self) -> Option<Arc<dyn Catalogue>> {
        Some(Arc::new(Slow {
            rows: MemoryCatalogue::new(self.memory.clone()),
            first: OnceLock::new(),
        }))
    }
}

struct Slow {
    rows: MemoryCatalogue,
    /// When the first session was looked at.
    first: OnceLock<Instant>,
}

#[async_trait]
impl Catalogue for Slow {
    async fn suspects(&self) -> Result<Vec<SessionId>, BackendError> {
        let ids = (0..LIST_LOOKS * 2).map(|number| SessionId::parse(format!("s-{number}")));
        Ok(ids.map(Result::unwrap).collect())
    }

    async fn get(&self, id: &SessionId) -> Result<Option<CatalogueRow>, BackendError> {
        // The first look takes all the time that a list has.
        while self.first.get_or_init(Instant::now).elapsed() < LIST_LOOK_TIME {
            std::thread::yield_now();
        }
        self.rows.get(id).await
    }

    async fn suspect(&self, id: &SessionId) -> Result<(), BackendError> {
        self.rows.suspect(id).await
    }

    async fn put(&self, rows: Vec<CatalogueRow>) -> Result<(), BackendError> {
        self.rows.put(rows).await
    }

    async fn forget(&self, id: &SessionId) -> Result<(), BackendError> {
        self.rows.forget(id).await
    }

    async fn page(
        &self,
        filter: &ListFilter,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<CatalogueRow>, BackendError> {
        self.rows.page(filter, after, limit).await
    }

    async fn len(&self) -> Result<u64, BackendError> {
        self.rows.len().await
    }
}

#[tokio::test]
async fn a_list_that_is_still_being_made_says_so() {
    let memory = Arc::new(MemoryBackend::new());
    let store = SessionStore::new(Arc::new(Unknown { memory }), StoreOptions::default());
    let server = Server::over(store, |_| {}, |_| {}).await;
    let page = server.get("/api/agent/sessions").await.json();
    assert_eq!(page["rebuilding"], true);
    assert_eq!(page["sessions"], json!([]));
}
