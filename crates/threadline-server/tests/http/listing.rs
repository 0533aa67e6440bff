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
async fn a_list_of_trees_counts_what_is_below_each_row_and_in_all_trees() {
    let server = Server::start().await;
    let parent = server.run(&json!({"task": "hello"})).await.session();
    let path = format!("/api/agent/sessions/{parent}");
    for _ in 0..2 {
        server.request("POST", &format!("{path}/fork"), "{}").await;
    }
    let other = server.run(&json!({"task": "other"})).await.session();
    let archived = json!({"archived": true, "revision": 0});
    let page = server
        .get("/api/agent/sessions?tree=1&count=1")
        .await
        .json();
    let rows = |page: &Value| -> Vec<(String, u64)> {
        let rows = page["sessions"].as_array().unwrap().iter();
        let row = |row: &Value| {
            let id = row["id"].as_str().unwrap().to_owned();
            (id, row["children"].as_u64().unwrap())
        };
        rows.map(row).collect()
    };
    assert_eq!(rows(&page), [(other.clone(), 0), (parent.clone(), 2)]);
    let counts = json!({"shown": 2, "inTrees": 4, "all": 4});
    assert_eq!(page["counts"], counts);
    let below = format!("/api/agent/sessions?tree=1&parent={parent}");
    let page = server.get(&below).await.json();
    assert_eq!(rows(&page).len(), 2);
    // A fork whose parent is put away stands for itself.
    server.request("PATCH", &path, &archived.to_string()).await;
    let page = server
        .get("/api/agent/sessions?tree=1&count=1")
        .await
        .json();
    assert_eq!(rows(&page).len(), 3);
    assert_eq!(page["counts"], json!({"shown": 3, "inTrees": 3, "all": 4}));
    let refused = server.get("/api/agent/sessions?tree=1&status=idle").await;
    let field = refused.problem(400, "invalid_input");
    assert_eq!(field.as_deref(), Some("status"));
    let flat = server.get("/api/agent/sessions").await.json();
    assert!(flat["sessions"][0].get("children").is_none());
}

#[tokio::test]
async fn lists_are_narrowed_to_a_model() {
    let server = Server::start().await;
    let offline = server.run(&json!({"task": "hello"})).await.session();
    let call = server.call();
    call.done("hi");
    let script = server
        .run(&json!({"task": "hello", "model": "script/m"}))
        .await
        .session();
    assert_eq!(listed(&server, "model=script/m").await, [script]);
    let model = "model=offline/demonstration";
    assert_eq!(listed(&server, model).await, [offline]);
    assert!(listed(&server, "model=offline/other").await.is_empty());
    let refused = server.get("/api/agent/sessions?model=offline").await;
    let field = refused.problem(400, "invalid_input");
    assert_eq!(field.as_deref(), Some("model"));
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

    async fn count(&self, filter: &ListFilter) -> Result<u64, BackendError> {
        self.rows.count(filter).await
    }

    async fn key_at(&self, filter: &ListFilter, at: u64) -> Result<Option<ListKey>, BackendError> {
        self.rows.key_at(filter, at).await
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

#[tokio::test]
async fn a_list_is_counted_narrowed_to_pins_and_folders_and_begun_anywhere() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for task in ["one", "two", "three"] {
        ids.push(server.run(&json!({"task": task})).await.session());
    }
    ids.reverse();
    let pin = json!({"pinned": true, "revision": 0}).to_string();
    let path = format!("/api/agent/sessions/{}", ids[2]);
    assert_eq!(server.request("PATCH", &path, &pin).await.status, 200);
    assert_eq!(listed(&server, "pinned=true").await, ids[2..]);
    assert_eq!(listed(&server, "pinned=false").await, ids[..2]);
    assert_eq!(listed(&server, "skip=1&limit=1").await, ids[1..2]);
    assert!(listed(&server, "skip=3").await.is_empty());
    let here = server.dir.path().display().to_string();
    assert_eq!(listed(&server, &format!("cwd={here}")).await.len(), 3);
    assert!(listed(&server, "cwd=/elsewhere").await.is_empty());
    let page = server.get("/api/agent/sessions?query=one&count=1").await;
    assert_eq!(page.json()["counts"], json!({"shown": 1, "all": 3}));
    let page = server.get("/api/agent/sessions").await.json();
    assert_eq!(page.get("counts"), None);
    for (bad, field) in [
        ("skip=-1", "skip"),
        ("skip=1&cursor=1.a", "skip"),
        ("pinned=1", "pinned"),
        ("count=yes", "count"),
    ] {
        let reply = server.get(&format!("/api/agent/sessions?{bad}")).await;
        let named = reply.problem(400, "invalid_input");
        assert_eq!(named.as_deref(), Some(field), "{bad}");
    }
}

#[tokio::test]
async fn changes_are_told_at_once_and_with_every_change_that_a_list_may_show() {
    let server = Server::start().await;
    let mut changes = server.follow_changes().await;
    changes.until("changed").await;
    let call = server.call();
    let (mut events, id, _) = script(&server, json!({})).await;
    changes.until("changed").await;
    call.done("done");
    events.until("run_finished").await;
    changes.until("changed").await;
    let path = format!("/api/agent/sessions/{id}");
    let patch = json!({"archived": true, "revision": 0}).to_string();
    server.request("PATCH", &path, &patch).await;
    changes.until("changed").await;
    server.request("POST", &format!("{path}/fork"), "{}").await;
    changes.until("changed").await;
    server.request("DELETE", &path, "").await;
    changes.until("changed").await;
}

#[tokio::test]
async fn the_stream_of_changes_ends_with_the_server() {
    let mut server = Server::start().await;
    let mut changes = server.follow_changes().await;
    changes.until("changed").await;
    server.ask();
    server.stopped().await;
    while changes.next().await.is_some() {}
}
